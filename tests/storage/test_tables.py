"""The tables as declared and the tables as the migrations make them are the same."""

from storage.store import Store
from storage.tables import TABLES, schema_version


def test_declared_columns_are_those_of_the_migrations(tmp_path):
    found: dict[str, dict[str, str]] = {}
    rows = Store(tmp_path / "store").query(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY table_name, column_index"
    )
    for table, column, sql_type in rows.iter_rows():
        found.setdefault(table, {})[column] = sql_type
    own = {"parts", "migrations", "shadowed", "matches"}
    assert found.keys() == TABLES.keys() | own
    for table, schema in TABLES.items():
        columns = found[table] if schema.is_lake else {name: kind for name, kind in found[table].items() if name != "part_id"}
        assert columns == schema.sql_columns(), table


def test_keys_and_unhashed_columns_exist():
    for schema in TABLES.values():
        assert set(schema.key) <= schema.columns.keys()
        assert schema.unhashed <= schema.columns.keys() - set(schema.key)
        if schema.is_lake and schema.unique_across_parts:
            assert len(schema.key) == 1


def test_the_version_is_that_of_the_last_migration(tmp_path):
    assert Store(tmp_path / "store").query("SELECT max(version) AS v FROM migrations").item() == schema_version()
