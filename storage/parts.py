"""Parts: the immutable Parquet files that hold all rows of a store.

One idea: a part's id is a hash of its *inputs* (ids, parameters, the producer's version), so a resumed run knows which parts exist. Its
content hash is a hash of its *rows*, over the table's hashed columns, sorted by key. Two runs of the same work have the same ids and
content hashes, in any order, on any machine, at any time.
Any process may write a part; its rows count once `Store.commit` has committed it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from storage.errors import HeadraceError
from storage.files import disk_errors, replace_atomically
from storage.outside.known_secrets import mask, spellings
from storage.records import JSON, content_id
from storage.tables import TABLES, TableSchema

_ROW_GROUP = 131_072
_KEYS_IN_WORDS = frozenset({"description", "parameters", "output"})
"""Columns of a key that are no ids, but a server's words about a tool."""


@dataclass(frozen=True)
class Part:
    """A written part. `path` is relative to the store's root; `rows` counts its rows."""

    part_id: str
    table: str
    path: Path
    rows: int
    content_hash: str


class DamagedPart(HeadraceError):
    """A committed part's file is missing, or has other content than it was committed with. root: of the store."""

    def __init__(self, root: Path, path: Path, problem: str) -> None:
        super().__init__(f"{root / path} {problem}. `headrace store repair --store {root}` sets it aside, so that it is made again")
        self.path, self.problem = path, problem


def part_id(table: str, inputs: Sequence[str], parameters: Mapping[str, JSON], version: int) -> str:
    """The id of a part.

    inputs: ids of parts, hashes of files.
    parameters: JSON values without absolute paths, times or process ids: the same work must give the same id everywhere.
    version: version of the producer.
    """
    return content_id(_schema(table)[0], list(inputs), dict(parameters), version)


def table_of(part: str) -> str:
    """The table that a part id belongs to."""
    table = part.rpartition("-")[0]
    return _schema(table)[0]


def _schema(table: str) -> tuple[str, TableSchema]:
    if table not in TABLES:
        raise ValueError(f"{table!r} is not a table of the store; tables are {', '.join(TABLES)}")
    return table, TABLES[table]


def fit(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """`frame` with exactly the table's columns, in their order and types. Only lossless casts are made.

    Raises:
        ValueError: a column is missing, unknown, or of another kind.
        HeadraceError: two rows have the same key.
    """
    schema = _schema(table)[1]
    missing, unknown = schema.columns.keys() - set(frame.columns), set(frame.columns) - schema.columns.keys()
    if missing or unknown:
        raise ValueError(f"a part of {table} lacks columns {sorted(missing)} and has unknown columns {sorted(unknown)}")
    for name, dtype in schema.columns.items():
        given = frame.schema[name]
        if not _casts_safely(given, dtype):
            raise ValueError(f"column {name} of a part of {table} is {given}, not {dtype}")
    fitted = frame.select(pl.col(name).cast(dtype) for name, dtype in schema.columns.items())
    doubled = 0 if _is_ordered(fitted, schema.key) else fitted.height - fitted.select(schema.key).n_unique()
    if doubled:
        example = fitted.select(schema.key).filter(pl.struct(schema.key).is_duplicated()).row(0, named=True)
        raise HeadraceError(f"a part of {table} has {doubled} doubled rows, for example {example}")
    return fitted


def _is_ordered(frame: pl.DataFrame, key: tuple[str, ...]) -> bool:
    """Whether the first key column increases strictly, as row numbers do: then keys are unique and rows are sorted."""
    first = frame[key[0]]
    return first.null_count() == 0 and bool((first[:-1] < first[1:]).all())


def _casts_safely(given: pl.DataType, target: pl.DataType) -> bool:
    if given in (target, pl.Null):
        return True
    if isinstance(target, pl.List):
        return isinstance(given, pl.List) and (given.inner in (pl.Null, pl.String) or isinstance(given.inner, pl.Categorical | pl.Enum))
    if target == pl.String:
        return isinstance(given, pl.Categorical | pl.Enum)
    if target.is_integer():
        return given.is_integer()
    return target.is_float() and given.is_numeric()


def content_hash(frame: pl.DataFrame, table: str, columns: Sequence[str] | None = None) -> str:
    """32 hex digits over the logical columns of a fitted frame, rows in the order of the table's key (nulls first).

    columns: those of the table in the version that wrote the part, in their order; None: today's.

    It does not depend on the order of rows, on unhashed columns, on Parquet, or on any library's hash function.
    """
    schema = _schema(table)[1]
    hashed = [name for name in columns or schema.columns if name not in schema.unhashed]
    ordered = frame.select(hashed) if _is_ordered(frame, schema.key) else frame.select(hashed).sort(schema.key, nulls_last=False)
    digest = hashlib.blake2b(f"{table}|{','.join(hashed)}|{ordered.height}".encode(), digest_size=16)
    for name in hashed:
        for chunk in _bytes_of(ordered[name]):
            digest.update(chunk)
    return digest.hexdigest()


def _bytes_of(series: pl.Series) -> list[bytes]:
    """A column as canonical bytes: the null mask, then the values with zeros for nulls."""
    chunks = [series.is_null().to_numpy().astype(np.uint8).tobytes() if series.null_count() else b"no nulls"]
    if isinstance(series.dtype, pl.List):
        array = series.to_arrow(compat_level=pl.CompatLevel.oldest())
        chunks.append(series.list.len().fill_null(0).to_numpy().astype("<u4").tobytes())
        return chunks + _bytes_of(pl.Series(array.flatten(), dtype=pl.String))
    if series.dtype == pl.String:
        filled = series.fill_null("")
        chunks.append(filled.str.len_bytes().to_numpy().astype("<u4").tobytes())
        array = filled.to_arrow(compat_level=pl.CompatLevel.oldest())
        assert isinstance(array, pa.LargeStringArray)
        _, offsets, data = array.buffers()
        if data is not None and len(array):
            edges = np.frombuffer(offsets, dtype="<i8")
            chunks.append(data[int(edges[array.offset]) : int(edges[array.offset + len(array)])].to_pybytes())
        return chunks
    if series.dtype == pl.Boolean:
        chunks.append(series.fill_null(False).to_numpy().astype(np.uint8).tobytes())
    elif series.dtype.is_float():
        values = series.fill_null(0.0).to_numpy().astype("<f8") + 0.0
        chunks.append(np.where(np.isnan(values), np.nan, values).tobytes())
    else:
        chunks.append(series.fill_null(0).to_numpy().astype("<i8").tobytes())
    return chunks


def write_part(root: Path, table: str, part: str, frame: pl.DataFrame | pl.LazyFrame) -> Part:
    """Writes the rows as `lake/<table>/<part id>-<content hash>.parquet` under `root`, whole or not at all.

    Raises:
        ValueError, HeadraceError: see `fit`; the disk is full.
    """
    if table_of(part) != table:
        raise ValueError(f"part {part} belongs to {table_of(part)}, not to {table}")
    rows = _without_secrets(fit(frame.collect() if isinstance(frame, pl.LazyFrame) else frame, table), table)
    digest = content_hash(rows, table)
    relative = Path("lake", table, f"{part}-{digest}.parquet")
    target = root / relative
    if rows_on_disk(target) != rows.height:
        with disk_errors(f"writing {relative}", root):
            replace_atomically(
                target, lambda temporary: rows.write_parquet(temporary, compression="zstd", row_group_size=_ROW_GROUP, statistics=True)
            )
    return Part(part, table, relative, rows.height, digest)


def part_of_path(path: Path, rows: int) -> Part:
    """The part whose file has this path, relative to the store: table, id and content hash are in the path."""
    part, _, digest = path.stem.rpartition("-")
    return Part(part, path.parent.name, path, rows, digest)


@contextmanager
def damage_of(root: Path, path: Path) -> Iterator[None]:
    """Inside the block, an error while reading the part at `path` names the part.

    Raises:
        DamagedPart: the file is missing or cannot be read as a part.
    """
    try:
        yield
    except (OSError, ValueError, pl.exceptions.PolarsError, pa.ArrowException) as error:
        problem = "is missing" if not (root / path).exists() else f"is damaged ({_first_line(error)})"
        raise DamagedPart(root, path, problem) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def read_part(root: Path, path: Path | str, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of a part. path: relative to the store `root`. columns: names; None: all.

    Raises:
        DamagedPart: the file is missing or damaged.
    """
    with damage_of(root, Path(path)):
        return pl.read_parquet(root / path, columns=None if columns is None else list(columns), glob=False)


def columns_on_disk(root: Path, path: Path) -> set[str]:
    """Names of the columns of a part, from its footer. Raises DamagedPart: see `read_part`."""
    with damage_of(root, path):
        return set(pl.read_parquet_schema(root / path))


def check_part(root: Path, part: Part) -> None:
    """Reads a part and compares its rows with its content hash.

    Raises:
        DamagedPart: the file is missing, damaged, or has other rows.
    """
    with damage_of(root, part.path):
        rows = pl.read_parquet(root / part.path, glob=False)
        digest = content_hash(rows, part.table, rows.columns)
    if digest != part.content_hash:
        raise DamagedPart(root, part.path, "has other rows than it was committed with")


def _without_secrets(rows: pl.DataFrame, table: str) -> pl.DataFrame:
    """The rows with known secrets masked in every text, except in ids: what a key is compared with stays as it is."""
    secrets, ids = list(spellings()), set(TABLES[table].key) - _KEYS_IN_WORDS
    if not secrets:
        return rows
    texts = [name for name, dtype in rows.schema.items() if dtype in (pl.String, pl.List(pl.String)) and name not in ids]
    found = [name for name in texts if rows[name].explode().str.contains_any(secrets).any()]
    lists = [name for name in found if rows.schema[name] != pl.String]

    def masked(column: pl.Series) -> pl.Series:
        hits = column.str.contains_any(secrets).fill_null(False).arg_true()
        return column.scatter(hits, [mask(text) for text in column.gather(hits)])

    return rows.with_columns(
        *(masked(rows[name]) for name in found if name not in lists),
        *(pl.col(name).list.eval(pl.element().map_batches(masked, return_dtype=pl.String)) for name in lists),
    )


def find_written(root: Path, part: str) -> Part | None:
    """The part of this id with a complete file on disk, committed or not; of several, the first by content hash."""
    table = table_of(part)
    for path in sorted((root / "lake" / table).glob(f"{part}-*.parquet")):
        rows = rows_on_disk(path)
        if rows is not None:
            return Part(part, table, path.relative_to(root), rows, path.stem.rpartition("-")[2])
    return None


def rows_on_disk(path: Path) -> int | None:
    """Number of rows in a part's file, from its footer; None if the file is missing or incomplete."""
    try:
        return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
    except (OSError, pl.exceptions.PolarsError):
        return None
