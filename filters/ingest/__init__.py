"""Reads raw queries from files: Parquet, JSONL, CSV (TSV), or text with a query a line; local or remote, compressed or not.

`inspect` reads every file once before anything is written, and refuses bad input: a file that is missing, empty, damaged, not UTF-8, or
without the column. It cuts each file into pieces, which `read_piece` reads in any process. A row that cannot be decoded inside a good file
is a null and gets the verdict `undecodable`: a line that is no JSON object, a value that is missing or no text, invalid UTF-8, a NUL, a
line or text of more than 1 MiB, a CSV row of another length. A file with mostly such rows is refused. Rows are numbered as in the file,
from 0, blank lines included, so that the user can find a row by its number. A file must not change during the run: a piece that differs
from the inspected one is an error.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import polars as pl
import polars_hash as plh
from pydantic import BaseModel, ConfigDict, Field, model_validator

from filters.ingest import parquet, row_fields, source_files
from filters.ingest.column import Keys, MissingColumn
from filters.ingest.csv_rows import DELIMITERS, CsvRows
from filters.ingest.in_context import InContext, Reader
from filters.ingest.lines import Lines, decoder, json_keys, refuse_truncated_json, without_value
from storage.errors import BadInput, HeadraceError
from storage.execution import Executor

BATCH_BYTES = 32 << 20
"""A batch ends after this many bytes of text, even if it has fewer than `batch_rows` rows."""
MAX_TEXT_BYTES = 1 << 20
ID_DIGITS = 8
"""Digits of a file's hash in the ids of its rows."""
_HEAD_BYTES = 65536
_CHANGED = "{}: no longer what it was when the run began; run again, and leave the file as it is until the run is over"


class IngestConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str = Field(default="text", description="Column (Parquet, CSV) or key (JSONL) that holds the query; ignored for text files.")
    context: tuple[str, ...] = Field(
        default=(),
        description="Columns or keys with what is known beside the query, such as the user's city: it stands behind the query in "
        "parentheses, is told to the policy, and fills slots that are called like the column, but in city and retail; of each at most 200 "
        "characters.",
    )
    strict: bool = Field(
        default=False, description="Whether a file with a row that cannot be decoded is refused, instead of only the row dropped."
    )
    keep_columns: bool = Field(
        default=True,
        description="Whether the other columns of kept rows are stored, as they are: personal data are masked in the query only.",
    )
    batch_rows: int = Field(default=125_000, ge=1_000, description="Rows of a batch; two batches per core are in memory at once.")

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        if len({self.column, *self.context}) <= len(self.context) or len(set(self.labels)) < len(self.context):
            raise ValueError("ingest.context: each column is named once, and none is the query's own")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """What stands before each context in a query: the last name of its path."""
        return tuple(column.rpartition(".")[2] for column in self.context)


@dataclass(frozen=True, slots=True)
class Piece:
    """Successive batches of a file that are read together.

    stamp: size and time of the last change of the file.
    keys: path to the query in a row.
    context: label and path of each column that is read beside it.
    start, end: offsets in bytes (lines) or row groups (Parquet); compressed and CSV files are one piece.
    batches: number of rows of each batch.
    checks: checksum of the texts of each batch.
    """

    location: str
    stamp: str
    keys: Keys
    start: int
    end: int | None
    context: tuple[tuple[str, Keys], ...] = ()
    batches: tuple[int, ...] = ()
    checks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """An inspected file. location: path or URL; first_row: number of its row 0 in the run; content_hash: SHA-256 of its bytes, in hex."""

    location: str
    content_hash: str
    first_row: int
    rows: int
    pieces: tuple[Piece, ...]

    @property
    def name(self) -> str:
        return source_files.name_of(self.location)

    @property
    def format(self) -> str:
        return str(source_files.format_of(self.location))


def inspect(paths: Sequence[str | Path], config: IngestConfig, executor: Executor | None = None) -> list[Source]:
    """Counts, hashes and cuts into pieces the files of paths, patterns and URLs. The heads of all files are checked before a file is read
    completely. `executor` gets one call a file; without one, files are read in turn. This process reads no file twice.

    Raises:
        BadInput: no file, one that is missing, empty, damaged, of unknown format, not UTF-8, without the column, given twice; with
            `strict`, one with a row that cannot be decoded.
    """
    if not paths:
        raise BadInput("no query file given: name at least one Parquet, JSONL, CSV or text file")
    run = executor.map if executor else map
    heads = list(run(partial(inspect_head, config=config), source_files.locate(paths)))
    sources: list[Source] = []
    locations: dict[str, str] = {}
    prefixes: dict[str, str] = {}
    for source in run(partial(_inspect_file, config=config), heads):
        if source.content_hash in locations:
            raise BadInput(f"{source.location}: same content as {locations[source.content_hash]}; give each file once")
        locations[source.content_hash] = source.location
        if (other := prefixes.setdefault(source.content_hash[:ID_DIGITS], source.location)) != source.location:
            raise BadInput(f"{source.location}: its rows would have the ids of {other}'s (one in 4 billion); read it into another store")
        sources.append(replace(source, first_row=sources[-1].first_row + sources[-1].rows if sources else 0))
    return sources


def content_hash(location: str) -> str:
    """The SHA-256 of a file's bytes, hexadecimal. Raises BadInput: it cannot be read."""
    with source_files.reading(location), source_files.open_stored(location) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def read_piece(piece: Piece) -> Iterator[pl.Series]:
    """The texts of each batch of a piece, in order; null where a row could not be decoded.

    Raises:
        HeadraceError: the file is no longer what it was when it was inspected.
    """
    changed = _CHANGED.format(piece.location)
    try:
        if source_files.stamp(piece.location) != piece.stamp:
            raise HeadraceError(changed)
        with _reader(piece) as reader:
            for rows, check in zip(piece.batches, piece.checks, strict=True):
                texts = _batch(reader, rows)
                if len(texts) != rows or _checksum(texts) != check:
                    raise HeadraceError(changed)
                yield texts
    except BadInput as error:
        raise HeadraceError(f"{changed} ({error})") from error


def read_fields(piece: Piece, places: Sequence[int]) -> list[dict[str, Any]]:
    """All columns of the rows at these places (ascending, from the start of a piece), as values that JSON can hold; of a text file none.

    Raises:
        HeadraceError: the file is no longer what it was when it was inspected.
    """
    if source_files.stamp(piece.location) != piece.stamp:
        raise HeadraceError(_CHANGED.format(piece.location))
    return row_fields.read_rows(piece.location, piece.start, piece.end, places)


@contextmanager
def _reader(piece: Piece) -> Iterator[Reader]:
    """Reads the texts of a piece, with their contexts."""
    with ExitStack() as every:
        readers = [every.enter_context(_column_reader(piece, piece.keys))]
        readers += [every.enter_context(_column_reader(piece, keys, any_scalar=True)) for _, keys in piece.context]
        labels = [label for label, _ in piece.context]
        yield InContext(readers[0], list(zip(labels, readers[1:], strict=True))) if labels else readers[0]


@contextmanager
def _column_reader(piece: Piece, keys: Keys, *, any_scalar: bool = False) -> Iterator[Reader]:
    """any_scalar: whether numbers and the like are texts too."""
    kind = source_files.format_of(piece.location)
    if kind == "parquet":
        with parquet.open_parquet(piece.location) as file:
            yield parquet.ParquetRows(piece.location, file, keys, range(piece.start, piece.end or 0))
        return
    with source_files.reading(piece.location), source_files.open_unpacked(piece.location) as stream:
        if kind in DELIMITERS:
            yield CsvRows(piece.location, stream, keys[0], DELIMITERS[kind])
        else:
            yield Lines(stream, decoder(str(kind), keys, any_scalar=any_scalar), piece.start, piece.end)


def _batch(reader: Reader, rows: int, size_bytes: int | None = None) -> pl.Series:
    """The next texts: `rows` of them, fewer where they come to `size_bytes` before that or there are no more."""
    parts, count, size = [pl.Series("text", [], pl.String)], 0, 0
    while count < rows and (size_bytes is None or size < size_bytes):
        texts = reader.take(rows - count)
        if not len(texts):
            break
        lengths = texts.str.len_bytes()
        is_bad = (lengths > MAX_TEXT_BYTES) | texts.str.contains("\0", literal=True)
        parts.append(texts.set(is_bad, None) if is_bad.any() else texts)
        count, size = count + len(texts), size + int(lengths.sum())
    return pl.concat(parts, rechunk=True)


def _checksum(texts: pl.Series) -> int:
    hashes = texts.to_frame("text").select(plh.col("text").nchash.xxh3_64().fill_null(0)).to_series()
    return zlib.crc32(hashes.to_numpy().tobytes())


# ---- inspecting -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Batch:
    """The record of a batch. first_bad: its first row that could not be decoded."""

    rows: int
    check: int
    undecodable: int
    first_bad: int | None


@lru_cache(maxsize=4096)
def _inspect_file(whole: Piece, config: IngestConfig) -> Source:
    """A file as if it were the first of the run."""
    with source_files.reading(whole.location):
        digest = content_hash(whole.location)
        pieces: list[Piece] = []
        batches: list[_Batch] = []
        for piece, piece_batches in _cut(whole, config):
            pieces.append(
                replace(piece, batches=tuple(each.rows for each in piece_batches), checks=tuple(each.check for each in piece_batches))
            )
            batches += piece_batches
        _check_rows(whole, config, batches)
    return Source(whole.location, digest, 0, sum(each.rows for each in batches), tuple(pieces))


def inspect_head(path: str, config: IngestConfig) -> Piece:
    """The whole file as one piece, after a check of its head. Raises BadInput: as `inspect`."""
    with source_files.reading(path):
        stamp = source_files.stamp(path)
        _check_head(path)
        if config.context and source_files.format_of(path) == "text":
            raise BadInput(f"{path}: lines of text have no column beside the query; leave out --context, or convert the file to JSONL")
        keys = _keys(path, config.column, "name the query's column with --column")
        context = [_keys(path, column, "name another with --context", any_scalar=True) for column in config.context]
        return Piece(path, stamp, keys, 0, None, tuple(zip(config.labels, context, strict=True)))


def _check_head(path: str) -> None:
    with source_files.open_unpacked(path) as unpacked:
        head = unpacked.read(_HEAD_BYTES)
    if not head.strip():
        raise BadInput(f"{path}: the file is empty")
    if source_files.format_of(path) != "parquet" and (head.startswith((b"\xff\xfe", b"\xfe\xff")) or head.count(0) * 4 > len(head)):
        raise BadInput(f"{path}: not UTF-8 text (UTF-16, or binary); convert it, e.g. with `iconv -t UTF-8`")


def _keys(path: str, column: str, advice: str, *, any_scalar: bool = False) -> Keys:
    """The path to a column. Raises BadInput: there is none; the message ends with the advice."""
    try:
        return _find_keys(path, column, any_scalar=any_scalar)
    except MissingColumn as error:
        raise BadInput(f"{error}; {advice}") from None


def _find_keys(path: str, column: str, *, any_scalar: bool) -> Keys:
    kind = source_files.format_of(path)
    if kind == "parquet":
        return parquet.parquet_keys(path, column, any_scalar=any_scalar)
    if kind == "jsonl":
        with source_files.open_unpacked(path) as stream:
            return json_keys(path, stream, column)
    if kind in DELIMITERS:
        with source_files.open_unpacked(path) as stream:
            CsvRows(path, stream, column, DELIMITERS[kind])
    return (column,)


def _cut(whole: Piece, config: IngestConfig) -> Iterator[tuple[Piece, list[_Batch]]]:
    """The pieces of a file, each with the records of its batches."""
    if source_files.format_of(whole.location) == "parquet":
        for groups, rows in parquet.runs(whole.location, config.batch_rows):
            piece = replace(whole, start=groups.start, end=groups.stop)
            with _reader(piece) as reader:
                yield piece, list(_batch_records(reader, math.ceil(rows / max(1, round(rows / config.batch_rows)))))
        return
    with _reader(whole) as reader:
        main = reader.main if isinstance(reader, InContext) else reader
        if isinstance(main, Lines) and source_files.is_seekable(whole.location):
            start = main.position
            for batch in _batch_records(reader, config.batch_rows):
                yield replace(whole, start=start, end=main.position), [batch]
                start = main.position
        else:
            yield whole, list(_batch_records(reader, config.batch_rows))
        if isinstance(main, Lines) and source_files.format_of(whole.location) == "jsonl":
            refuse_truncated_json(whole.location, main.unfinished)


def _batch_records(reader: Reader, rows: int) -> Iterator[_Batch]:
    while len(texts := _batch(reader, rows, BATCH_BYTES)):
        bad = texts.null_count()
        yield _Batch(len(texts), _checksum(texts), bad, int(texts.is_null().arg_max() or 0) if bad else None)


def _check_rows(whole: Piece, config: IngestConfig, batches: Sequence[_Batch]) -> None:
    rows, undecodable = sum(each.rows for each in batches), sum(each.undecodable for each in batches)
    if rows == 0:
        raise BadInput(f"{whole.location}: no rows")
    if undecodable == 0:
        return
    index, first_bad = next((index, each.first_bad) for index, each in enumerate(batches) if each.first_bad is not None)
    first_bad += sum(each.rows for each in batches[:index])
    if undecodable * 2 > rows:
        empty = _empty(whole)
        if empty * 2 > undecodable:
            raise BadInput(f"{whole.location}: column '{config.column}' is empty in {empty} of {rows} rows; name another with --column")
        beside = f", {empty} are empty" if empty else ""
        raise BadInput(
            f"{whole.location}: {undecodable - empty} of {rows} rows cannot be decoded{beside}, the first is row {first_bad}; is it "
            f"{source_files.format_of(whole.location)} in UTF-8? (convert other encodings with `iconv -t UTF-8`)"
        )
    if config.strict:
        raise BadInput(
            f"{whole.location}: row {first_bad} is empty or cannot be decoded (and {undecodable - 1} more); mend the file, or leave out "
            "`strict`"
        )


def _empty(whole: Piece) -> int:
    """The number of rows of a file without a value."""
    kind = source_files.format_of(whole.location)
    if kind == "parquet":
        with parquet.open_parquet(whole.location) as file:
            return parquet.ParquetRows(whole.location, file, whole.keys, range(file.num_row_groups)).empty()
    if kind == "jsonl":
        with source_files.open_unpacked(whole.location) as stream:
            lines, empty = Lines(stream, partial(without_value, keys=whole.keys)), 0
            while len(batch := lines.take(10_000)):
                empty += int(batch.sum())
            return empty
    return 0
