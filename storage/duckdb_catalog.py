"""The catalogue: the DuckDB database that registers parts, holds the small tables, and shows the bulky ones as views.

These functions work on the connection of a commit or of a reader: they open it, create tables, insert a part's rows, and create views.
Repeated rows: ids are hashes of content, so a row with a committed key is the same row, and is not shown again. In a catalogue table a row
with a committed key and *other* content is refused. In a lake table the content is not compared: a repeated sample may differ in the last
digit of a log-probability, and a comparison would have to read the messages of all parts. The row committed first stays.
Withdrawn rows: a tombstone in table `withdrawn` hides rows by an id that they have. Catalogue tables lose them, views leave them out, and
later parts do not bring them back; the parts stay as they are.
`storage/store.py` decides who opens which file, and when.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import polars as pl

from storage.errors import BadInput, HeadraceError, OtherVersion
from storage.files import is_disk_full
from storage.parts import Part
from storage.tables import FILE_LENGTH, TABLES, columns_sql, create_sql, hiding, schema_version

_MATCHES_SQL = """CREATE OR REPLACE VIEW matches AS
SELECT v.run, v.step, v.similarity, v.query_id, q.text, v.duplicate_of, o.text AS duplicate_of_text
FROM verdicts v JOIN queries q USING (query_id, run) JOIN queries o ON o.query_id = v.duplicate_of
QUALIFY row_number() OVER (PARTITION BY v.run, v.query_id ORDER BY o.run <> v.run, o.run) = 1"""
"""Every row that was dropped as a duplicate, with the row that it repeats, for inspection."""
_SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "python_enable_replacements": "false"}
"""A name in a query is a table, never a variable of Python."""


def quote(path: Path) -> str:
    return str(path).replace("'", "''")


def connect(database: str, root: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(database, config=dict(_SETTINGS))
    connection.execute(f"SET file_search_path = '{quote(root)}'")
    connection.execute(f"SET temp_directory = '{quote(Path(tempfile.gettempdir()))}'")
    return connection


def open_for_writing(path: Path, root: Path) -> duckdb.DuckDBPyConnection:
    """Raises BadInput if the file is no database."""
    try:
        return connect(str(path), root)
    except duckdb.Error as error:
        raise unreadable(path, error) from error


def open_for_reading(path: Path, root: Path) -> duckdb.DuckDBPyConnection:
    """As `open_any_version`, with the tables of this version. Raises OtherVersion: the catalogue has another schema version."""
    connection = open_any_version(path, root)
    with _closed_on_error(connection, path):
        is_empty(connection, root)
        for table in _absent_late_tables(connection):
            connection.execute(f"CREATE TEMP TABLE {columns_sql(table)}")
    return connection


def open_any_version(path: Path, root: Path) -> duckdb.DuckDBPyConnection:
    """The database file, attached read-only to one in memory: DuckDB would otherwise hand out a replaced file that is still open.

    Raises:
        BadInput: it is no catalogue of a store.
    """
    connection = connect(":memory:", root)
    with _closed_on_error(connection, path):
        connection.execute(f"ATTACH '{quote(path)}' AS store (READ_ONLY)")
        connection.execute("USE store")
        try:
            is_foreign = not versions(connection)
        except duckdb.CatalogException:
            is_foreign = True
        if is_foreign:
            raise _foreign(root)
    return connection


@contextmanager
def _closed_on_error(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """Closes the connection after an error; one of DuckDB is told as the file's."""
    try:
        yield
    except duckdb.Error as error:
        connection.close()
        raise unreadable(path, error) from error
    except BadInput:
        connection.close()
        raise


def is_empty(connection: duckdb.DuckDBPyConnection, root: Path) -> bool:
    """Whether the database in use has no table yet.

    Raises:
        BadInput: it has tables, but not those of a store. OtherVersion: its store has another schema version.
    """
    try:
        version = versions(connection)[-1]
    except duckdb.CatalogException:
        if connection.execute("SELECT 1 FROM duckdb_tables WHERE database_name = current_database()").fetchone():
            raise _foreign(root) from None
        return True
    if version != schema_version():
        raise OtherVersion(
            f"the store {root} has schema version {version}, this Headrace has {schema_version()}; "
            f"`headrace store upgrade --store {root}` says what that changes"
        )
    return False


def versions(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The schema versions that the database in use has had, the present one last. Raises duckdb.CatalogException if it has none."""
    return [version for (version,) in connection.execute("SELECT version FROM schema_version ORDER BY rowid").fetchall()]


def set_versions(connection: duckdb.DuckDBPyConnection, versions: Sequence[str]) -> None:
    """Replaces the schema versions that the database in use has had; the present one is last."""
    connection.execute("DELETE FROM schema_version")
    connection.executemany("INSERT INTO schema_version VALUES (?)", [[version] for version in versions])


def create_tables(connection: duckdb.DuckDBPyConnection, earlier: Sequence[str] = ()) -> None:
    """Creates the tables and views of an empty database, all or none. earlier: schema versions that the store has had."""
    connection.execute("BEGIN")
    for statement in create_sql():
        connection.execute(statement)
    set_versions(connection, (*earlier, schema_version()))
    for table, schema in TABLES.items():
        if schema.is_lake:
            connection.execute(view_sql(connection, table))
    connection.execute(_MATCHES_SQL)
    connection.execute("COMMIT")


def _absent_late_tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Late tables that the database in use does not have."""
    present = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables").fetchall()}
    return [name for name, schema in TABLES.items() if schema.is_late and name not in present]


def create_late_tables(connection: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> None:
    """Creates those of these tables that are late and not there yet."""
    for table in set(tables) & set(_absent_late_tables(connection)):
        connection.execute(f"CREATE TABLE {columns_sql(table)}")


def _foreign(root: Path) -> BadInput:
    return BadInput(f"{root} holds a DuckDB database that is not a Headrace store; name another folder")


def unreadable(path: Path, error: Exception) -> Exception:
    """What is raised where a file of the catalogue cannot be opened or read: BadInput, or the error itself if the disk is full."""
    if is_disk_full(error):
        return error
    reason = str(error).splitlines()[0].replace(f'"{path}"', "it").removeprefix("IO Error: The file it exists, but ")
    remedy = f"`headrace store repair --store {path.parent}` builds it again" if (path.parent / "lake").is_dir() else "name another folder"
    return BadInput(f"{path} cannot be opened as a store's catalogue: {reason}; {remedy}")


def find_uncommitted(connection: duckdb.DuckDBPyConnection, parts: Sequence[Part]) -> list[Part]:
    """The parts whose id is not committed yet; of several with one id, the first."""
    committed = {part for (part,) in connection.execute("SELECT part_id FROM parts").fetchall()}
    fresh: list[Part] = []
    for part in parts:
        if part.part_id not in committed:
            committed.add(part.part_id)
            fresh.append(part)
    return fresh


def next_commit_us(connection: duckdb.DuckDBPyConnection) -> int:
    """The time of a commit that is made now, in microseconds since 1970: later than any before, whatever clocks these were made by."""
    answer = connection.execute("SELECT greatest(epoch_us(now()), coalesce(max(epoch_us(committed_at)) + 1, 0)) FROM parts").fetchone()
    assert answer is not None
    return int(answer[0])


def list_commits(connection: duckdb.DuckDBPyConnection, after_us: int = -1) -> dict[int, list[Part]]:
    """Time of each commit after this time, in microseconds since 1970 -> its parts, in the order of the commits."""
    rows = connection.execute(
        """SELECT epoch_us(committed_at) AS at_us, part_id, table_name, path, rows, content_hash FROM parts WHERE at_us > ?
           ORDER BY at_us, rowid""",
        [after_us],
    ).fetchall()
    commits: dict[int, list[Part]] = {}
    for at_us, part, table, path, count, digest in rows:
        commits.setdefault(at_us, []).append(Part(part, table, Path(path), count, digest))
    return commits


def register_parts(connection: duckdb.DuckDBPyConnection, parts: Sequence[Part], at_us: int) -> None:
    rows = pl.DataFrame([(part.part_id, part.table, str(part.path), part.rows, part.content_hash) for part in parts], orient="row")
    connection.register("fresh_parts", rows.to_arrow())
    connection.execute("INSERT INTO parts SELECT *, make_timestamptz(?) FROM fresh_parts", [at_us])
    connection.unregister("fresh_parts")


def insert_rows(connection: duckdb.DuckDBPyConnection, part: Part) -> None:
    """Inserts the rows of a catalogue table's part, except those whose key is there already with the same content."""
    schema = TABLES[part.table]
    columns = ", ".join(f'"{name}"' for name in schema.columns)
    source = f"({_typed(part.table)} UNION ALL BY NAME FROM read_parquet('{part.path}'))"
    same_key = " AND ".join(f'fresh."{name}" IS NOT DISTINCT FROM held."{name}"' for name in schema.key)
    others = [name for name in schema.columns if name not in schema.key and name not in schema.unhashed]
    if others:
        differs = " OR ".join(f'fresh."{name}" IS DISTINCT FROM held."{name}"' for name in others)
        key = ", ".join(f'fresh."{name}"' for name in schema.key)
        clash = connection.execute(
            f"SELECT {key}, held.part_id FROM {source} fresh JOIN {part.table} held ON {same_key} WHERE {differs} LIMIT 1"
        ).fetchone()
        if clash:
            raise HeadraceError(
                f"{part.table} already holds {dict(zip(schema.key, clash[:-1], strict=True))} with other content (part {clash[-1]}); "
                "nothing was committed. Use a fresh store, or include the difference in the id where both are made"
            )
    connection.execute(
        f"INSERT INTO {part.table} (part_id, {columns}) SELECT ?, {columns} FROM {source} fresh ANTI JOIN {part.table} held ON {same_key}",
        [part.part_id],
    )


def register_all(connection: duckdb.DuckDBPyConnection, commits: Mapping[int, Sequence[Part]]) -> None:
    """Registers the parts of all commits in a catalogue that has none: the rows and views are those that one commit after another gives.

    commits: time of each, microseconds since 1970 -> its parts.
    """
    listed = [(part, at_us) for at_us, parts in commits.items() for part in parts]
    columns = {
        "part_id": pl.String,
        "table_name": pl.String,
        "path": pl.String,
        "rows": pl.Int64,
        "content_hash": pl.String,
        "at_us": pl.Int64,
    }
    rows = [(part.part_id, part.table, str(part.path), part.rows, part.content_hash, at_us) for part, at_us in listed]
    listing = pl.DataFrame(rows, schema=columns, orient="row").with_row_index("place")
    connection.register("all_parts", listing.to_arrow())
    connection.execute("INSERT INTO parts SELECT * EXCLUDE (place, at_us), make_timestamptz(at_us) FROM all_parts ORDER BY place")
    connection.register(
        "places",
        listing.select(of_part="part_id", of_file=pl.col("path").str.split("/").list.last(), place="place", at_us="at_us").to_arrow(),
    )
    tables = {part.table for part, _ in listed}
    create_late_tables(connection, tables)
    for table in sorted(tables):
        schema = TABLES[table]
        paths = ", ".join(f"'{part.path}'" for part, _ in listed if part.table == table)
        source = f"read_parquet([{paths}], filename = true, union_by_name = true)"
        key = ", ".join(f'"{name}"' for name in schema.key)
        if not schema.is_lake:
            names = ", ".join(f'"{name}"' for name in schema.columns)
            connection.execute(
                f"""INSERT INTO {table} (part_id, {names}) SELECT of_part, {names} FROM (
                        SELECT of_part, place, {names}, row_number() OVER (PARTITION BY {key} ORDER BY place) AS nth
                        FROM ({_typed(table)} UNION ALL BY NAME FROM {source}) JOIN places ON of_file = parse_filename(filename))
                    WHERE nth = 1 ORDER BY place"""
            )
        elif schema.unique_across_parts:
            connection.execute(
                f"""INSERT INTO shadowed SELECT '{table}', of_part, {key} FROM (
                        SELECT of_part, {key}, row_number() OVER (PARTITION BY {key} ORDER BY at_us, of_part) AS nth
                        FROM {source} JOIN places ON of_file = parse_filename(filename)) WHERE nth > 1"""
            )
    connection.unregister("all_parts")
    connection.unregister("places")
    for table in tables:
        if TABLES[table].is_lake:
            connection.execute(view_sql(connection, table))
    hide_withdrawn(connection, [*tables, "withdrawn"])


def shadow_repeats(connection: duckdb.DuckDBPyConnection, table: str, parts: Sequence[Part]) -> None:
    """Records the rows of new lake parts whose key is in a committed part, or in a new part with a smaller id.

    Only keys are compared: rows with other content are hidden too.
    """
    (key,) = TABLES[table].key
    paths = ", ".join(f"'{part.path}'" for part in parts)
    connection.execute(
        f"""INSERT INTO shadowed SELECT '{table}', part_id, "{key}" FROM (
                SELECT "{key}", part_id, row_number() OVER (PARTITION BY "{key}" ORDER BY part_id) AS nth FROM (
                    SELECT "{key}", regexp_extract(parse_filename(filename), '(.*)-[^-]*', 1) AS part_id
                    FROM read_parquet([{paths}], filename = true)))
            WHERE nth > 1 OR "{key}" IN (SELECT "{key}" FROM {table})"""
    )


def view_sql(connection: duckdb.DuckDBPyConnection, table: str) -> str:
    """The view of a lake table over its registered parts, in the order of their ids, without the rows that are shadowed."""
    schema = TABLES[table]
    by_name = ", union_by_name = true" if len(versions(connection)) > 1 else ""  # parts of several versions; it reads every footer first
    paths = connection.execute(
        "SELECT path, part_id IN (SELECT part_id FROM shadowed WHERE table_name = ?) FROM parts WHERE table_name = ? ORDER BY part_id",
        [table, table],
    ).fetchall()
    whole = ", ".join(f"'{path}'" for path, has_shadows in paths if not has_shadows)
    selects = [_typed(table)]
    if whole:
        selects.append(f"SELECT * FROM read_parquet([{whole}]{by_name})")
    for path, has_shadows in paths:
        if has_shadows:
            part = Path(path).stem.rpartition("-")[0]
            hidden = f"SELECT key FROM shadowed WHERE table_name = '{table}' AND part_id = '{part}'"
            selects.append(f"SELECT * FROM read_parquet('{path}') WHERE \"{schema.key[0]}\" NOT IN ({hidden})")
    columns = ", ".join(f'"{name}"' for name in schema.columns)  # a part of an older version may have others
    rows = f"SELECT {columns} FROM ({' UNION ALL BY NAME '.join(selects)})" if by_name else " UNION ALL BY NAME ".join(selects)
    hidden = hidden_sql(table, tombstone_kinds(connection))
    return f"CREATE OR REPLACE VIEW {table} AS " + (f"SELECT * FROM ({rows}) WHERE NOT ({hidden})" if hidden else rows)


def _typed(table: str) -> str:
    """A SELECT without rows, whose columns and types are the table's: a column that a part of an older version lacks is null."""
    columns = ", ".join(f'NULL::{sql_type} AS "{name}"' for name, sql_type in TABLES[table].sql_columns().items())
    return f"SELECT {columns} WHERE false"


def tombstone_kinds(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Kinds of the tombstones in the database in use."""
    if "withdrawn" in _absent_late_tables(connection):
        return set()
    return {kind for (kind,) in connection.execute("SELECT DISTINCT kind FROM withdrawn").fetchall()}


def hidden_sql(table: str, kinds: Collection[str], tombstones: str = "withdrawn") -> str:
    """The condition that a row of a table has a tombstone; empty if none of these kinds hides any.

    tombstones: the relation that has them.
    """
    conditions = []
    for column, of_column in hiding(table).items():
        for kind in sorted(set(of_column) & set(kinds)):
            value = f'left("{column}", {FILE_LENGTH})' if kind == "file" else f'"{column}"'
            conditions.append(f"coalesce({value} IN (SELECT id FROM {tombstones} WHERE kind = '{kind}'), false)")
    return " OR ".join(conditions)


def content_hash(connection: duckdb.DuckDBPyConnection) -> str:
    """See `Store.content_hash`."""
    rows = connection.execute("SELECT table_name, content_hash FROM parts WHERE rows > 0 ORDER BY table_name, content_hash").fetchall()
    return hashlib.sha256("\n".join(f"{table}:{digest}" for table, digest in rows).encode()).hexdigest()


def catalogue_tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The tables of the database in use whose rows lie in it."""
    held = "SELECT table_name FROM duckdb_tables WHERE database_name = current_database() ORDER BY table_name"
    return [name for (name,) in connection.execute(held).fetchall()]


def hide_withdrawn(connection: duckdb.DuckDBPyConnection, tables: Collection[str]) -> None:
    """Takes rows with a tombstone out of these catalogue tables; where `withdrawn` is one of them, out of all, and of all views."""
    kinds, absent = tombstone_kinds(connection), _absent_late_tables(connection)
    if not kinds:
        return
    for table, schema in TABLES.items():
        is_touched = table in tables or "withdrawn" in tables
        hidden = hidden_sql(table, kinds)
        if is_touched and hidden and schema.is_lake:
            connection.execute(view_sql(connection, table))
        elif is_touched and hidden and table not in absent:
            connection.execute(f"DELETE FROM {table} WHERE {hidden}")
