"""Queries in a column of Parquet files, nested or not, read a run of row groups at a time.

A piece has whole row groups, so that each is decoded once; within a piece rows are decoded in small steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from filters.ingest.column import Keys, keys_of, missing_column
from filters.ingest.lines import series
from filters.ingest.source_files import is_url, open_stored, reading
from storage.errors import BadInput

_STEP_ROWS, _STEP_BYTES = 16_384, 4 << 20
_PEEKED_ROWS, _PEEKED_FROM_ROWS = 16, 1024
_BUFFER_BYTES = 1 << 20


@contextmanager
def open_parquet(path: str) -> Iterator[pq.ParquetFile]:
    """Raises BadInput: it is no Parquet file, or its footer is damaged."""
    options = {"buffer_size": _BUFFER_BYTES, "pre_buffer": False, "page_checksum_verification": True}
    with reading(path), open_stored(path) as file:
        try:
            parquet = pq.ParquetFile(file if is_url(path) else path, **options)
        except (pa.ArrowException, OSError) as error:
            raise BadInput(f"{path}: damaged, truncated, or not Parquet ({_reason(error)}); write the file again") from error
        with parquet:
            yield parquet


def parquet_keys(path: str, column: str, *, any_scalar: bool = False) -> Keys:
    """The way to a column of texts. any_scalar: numbers and the like count as texts.

    Raises:
        BadInput: there is none of that name, or it does not hold text.
    """
    with open_parquet(path) as file:
        schema = file.schema_arrow
    keys = keys_of(column, schema.names)
    kind = pa.struct(list(schema))
    for key in keys:
        kind = _inner(kind, key)
        if kind is None:
            raise missing_column(path, column, _dotted_names(pa.struct(list(schema))))
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_scalar = any_scalar and not (pa.types.is_nested(value) or pa.types.is_binary(value) or pa.types.is_large_binary(value))
    if not (is_scalar or pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)):
        raise BadInput(f"{path}: column '{column}' holds {kind}, not text")
    return keys


def runs(path: str, rows: int) -> list[tuple[range, int]]:
    """The file's row groups in successive runs of about `rows` rows, each with the number of its rows."""
    with open_parquet(path) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    ranges: list[tuple[range, int]] = []
    for group, size in enumerate(sizes):
        last, together = ranges[-1] if ranges else (range(0), 0)
        if ranges and together + size <= rows:
            ranges[-1] = (range(last.start, group + 1), together + size)
        else:
            ranges.append((range(group, group + 1), size))
    return ranges


class ParquetRows:
    """The texts at these keys in some row groups, row by row.

    Raises:
        BadInput: from `take`, naming the row group: it is damaged.
    """

    def __init__(self, path: str, file: pq.ParquetFile, keys: Keys, groups: Sequence[int]) -> None:
        self._path, self._file, self._keys = path, file, keys
        self._steps = (step for group in groups for step in self._group(group))
        self._held = pl.Series("text", [], pl.String)

    def take(self, rows: int) -> pl.Series:
        """The next texts: `rows` of them at most, and some at least unless there are no more; null where a text is missing or not UTF-8."""
        if not len(self._held):
            self._held = self._next()
        batch, self._held = self._held[:rows], self._held[rows:]
        return batch

    def _next(self) -> pl.Series:
        """The texts of the next step; of several, where row groups are small."""
        steps: list[pa.Array] = []
        while sum(map(len, steps)) < _STEP_ROWS and sum(step.nbytes for step in steps) < _STEP_BYTES:
            if (step := next(self._steps, None)) is None:
                break
            steps.append(step)
        return _decode(pa.chunked_array(steps)) if steps else pl.Series("text", [], pl.String)

    def empty(self) -> int:
        """How many of the rows to come have no value."""
        return sum(step.null_count for step in self._steps)

    def _group(self, group: int) -> Iterator[pa.Array]:
        rows, read = self._file.metadata.row_group(group).num_rows, 0
        try:
            for batch in self._batches(group, self._step_rows(group)):
                read += batch.num_rows
                yield _values(batch.column(batch.schema.get_field_index(self._keys[0])), self._keys[1:])
        except (pa.ArrowException, OSError) as error:
            raise self._damage_error(group, _reason(error)) from error
        if read != rows:
            raise self._damage_error(group, f"{read} rows in it")

    def _batches(self, group: int, rows: int) -> Iterator[pa.RecordBatch]:
        return self._file.iter_batches(rows, row_groups=[group], columns=[self._column_path], use_threads=False)  # type: ignore[no-any-return]

    def _step_rows(self, group: int) -> int:
        """Number of rows of a group to decode at once, by the size in its metadata. A column with a dictionary stores a repeated text only
        once, so there the size of the first decoded rows counts too."""
        metadata = self._file.metadata.row_group(group)
        chunks = [metadata.column(index) for index in range(metadata.num_columns)]
        chunks = [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(f"{self._column_path}.")]
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        if metadata.num_rows > _PEEKED_FROM_ROWS and any(chunk.has_dictionary_page for chunk in chunks):
            size = max(size, next(self._batches(group, _PEEKED_ROWS)).nbytes * metadata.num_rows // _PEEKED_ROWS)
        return int(max(1, min(_STEP_ROWS, _STEP_BYTES * metadata.num_rows // max(1, size))))

    def _damage_error(self, group: int, reason: str) -> BadInput:
        sizes = [self._file.metadata.row_group(index).num_rows for index in range(group + 1)]
        rows = f"rows {sum(sizes[:-1])} to {sum(sizes) - 1}"
        return BadInput(f"{self._path}: row group {group} ({rows}) is damaged ({reason}); write the file again")

    @cached_property
    def _column_path(self) -> str:
        """The name under which Parquet knows the column, as far as it is not inside a list."""
        kind, names = self._file.schema_arrow.field(self._keys[0]).type, [self._keys[0]]
        for key in self._keys[1:]:
            if not pa.types.is_struct(kind):
                break
            kind = _inner(kind, key)
            names.append(key)
        return ".".join(names)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _inner(kind: pa.DataType, key: str) -> pa.DataType | None:
    """The type of what a key names in a value of this type."""
    if pa.types.is_struct(kind):
        return kind.field(key).type if kind.get_field_index(key) >= 0 else None
    return kind.value_type if _is_list(kind) and key.isdecimal() else None


def _dotted_names(kind: pa.DataType, prefix: str = "") -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _dotted_names(field.type, f"{prefix}{field.name}.")
    elif _is_list(kind):
        yield from _dotted_names(kind.value_type, f"{prefix}0.")
    else:
        yield prefix[:-1]


def _values(column: pa.Array, keys: Keys) -> pa.Array:
    """What lies at these keys in each of a column's values; null where they lead nowhere."""
    for key in keys:
        if pa.types.is_struct(column.type):
            column = column.flatten()[column.type.get_field_index(key)]
        else:
            if pa.types.is_fixed_size_list(column.type):
                column = column.cast(pa.list_(column.type.value_type))
            offsets = column.offsets.to_numpy()
            at = offsets[:-1].astype(np.int64) + int(key)
            is_missing = (at >= offsets[1:]) | column.is_null().to_numpy(zero_copy_only=False)
            column = column.values.take(pa.array(at, mask=is_missing))
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _decode(column: pa.ChunkedArray) -> pl.Series:
    """Texts as a column; null where they are not UTF-8."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    raw = pl.Series("text", pl.from_arrow((column if is_text else column.cast(pa.string())).cast(pa.large_binary())))
    try:
        return raw.cast(pl.String)
    except pl.exceptions.ComputeError:
        return series([None if value is None else value.decode(errors="surrogateescape") for value in raw])
