"""The tables as declared are those that a store has."""

from dataclasses import replace

import polars as pl

from storage.store import Store
from storage.tables import TABLES, schema_version


def test_a_store_has_the_declared_columns_in_their_order(tmp_path):
    found: dict[str, dict[str, str]] = {}
    rows = Store(tmp_path / "store").query(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY table_name, column_index"
    )
    for table, column, sql_type in rows.iter_rows():
        found.setdefault(table, {})[column] = sql_type
    own = {"parts", "schema_version", "shadowed", "matches"}
    assert found.keys() == TABLES.keys() | own
    for table, schema in TABLES.items():
        columns = found[table] if schema.is_lake else {name: kind for name, kind in found[table].items() if name != "part_id"}
        assert list(columns.items()) == list(schema.sql_columns().items()), table


def test_keys_and_unhashed_columns_exist():
    for schema in TABLES.values():
        assert set(schema.key) <= schema.columns.keys()
        assert schema.unhashed <= schema.columns.keys() - set(schema.key)
        if schema.is_lake and schema.unique_across_parts:
            assert len(schema.key) == 1


def test_a_store_says_its_schema_version_which_another_table_changes(tmp_path, monkeypatch):
    assert Store(tmp_path / "store").query("FROM schema_version")["version"].to_list() == [schema_version()]
    for table in ("policies", "answers"):
        with monkeypatch.context() as changed:
            columns = TABLES[table].columns | {"added": pl.String()}
            changed.setitem(TABLES, table, replace(TABLES[table], columns=columns))
            assert schema_version.__wrapped__() != schema_version()
