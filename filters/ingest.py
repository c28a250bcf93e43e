"""Raw queries from a person's files: Parquet, JSONL, CSV (TSV), or text with a query a line.

`inspect` reads every file once before anything is written, and refuses bad input at the door: missing, empty, damaged, not UTF-8,
no such column. `batches` then yields the texts. A single row that cannot be decoded inside a good file is a null, which becomes the
verdict `undecodable`: a line that is not a JSON object, a value that is missing or not text, invalid UTF-8, a CSV row of another length,
or with a quote that is never closed: then only its first line is given up, and what follows is read afresh. A file most of whose rows are
like that is not what its name says, and is refused. Rows are numbered as they lie in the file, from 0, blank lines included, so that a
verdict can be looked up in it.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput

FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".txt": "text", ".text": "text"}
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_SAMPLED_LINES = 1000


class IngestConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str = Field(default="text", description="The column (Parquet, CSV) or key (JSONL) that holds the query; text files have none.")
    strict: bool = Field(default=False, description="Refuse a file with a row that cannot be decoded, instead of dropping the row.")
    batch_rows: int = Field(default=125_000, ge=1_000, description="Rows of a batch; two batches a core are in memory at once.")


@dataclass(frozen=True, slots=True)
class Source:
    """One inspected file. first_row: number of its row 0 within the run; content_hash: SHA-256 of its bytes, hexadecimal."""

    path: Path
    content_hash: str
    first_row: int
    rows: int

    @property
    def format(self) -> str:
        return FORMATS[self.path.suffix.lower()]


def inspect(paths: Sequence[Path], config: IngestConfig) -> list[Source]:
    """The files, counted and hashed.

    Raises:
        BadInput: no file, one that is missing, empty, damaged, of unknown format, not UTF-8, without the column, given twice; with
            `strict`, one with a row that cannot be decoded.
    """
    if not paths:
        raise BadInput("no query file given: name at least one Parquet, JSONL, CSV or text file")
    sources: list[Source] = []
    for path in map(Path, paths):
        content_hash = _checked_hash(path)
        for other in sources:
            if other.content_hash == content_hash:
                raise BadInput(f"{path}: same content as {other.path}; give each file once")
        first_row = sources[-1].first_row + sources[-1].rows if sources else 0
        source = Source(path, content_hash, first_row, 0)
        rows, undecodable, first_bad = 0, 0, None
        for texts in batches(source, config):
            bad = texts.null_count()
            if bad and first_bad is None:
                first_bad = rows + int(texts.is_null().arg_max() or 0)
            rows, undecodable = rows + len(texts), undecodable + bad
        _check_rows(source, config, rows, undecodable, first_bad)
        sources.append(Source(path, content_hash, first_row, rows))
    return sources


def batches(source: Source, config: IngestConfig) -> Iterator[pl.Series]:
    """The texts of a file in order, `batch_rows` at a time; null where a row could not be decoded.

    Raises:
        BadInput: the file as a whole cannot be read.
    """
    if source.format == "parquet":
        yield from _of_size(_parquet(source.path, config), config.batch_rows)
        return
    values = {"jsonl": _jsonl, "csv": _csv, "tsv": _csv, "text": _text}[source.format](source.path, config)
    while batch := list(islice(values, config.batch_rows)):
        yield _series(batch)


def _of_size(pieces: Iterator[pl.Series], size: int) -> Iterator[pl.Series]:
    """The same texts, cut into series of just `size`; the last may be shorter."""
    held: pl.Series | None = None
    for piece in pieces:
        held = piece if held is None else pl.concat([held, piece])
        while len(held) >= size:
            yield held[:size]
            held = held[size:]
    if held is not None and len(held):
        yield held


def _checked_hash(path: Path) -> str:
    if not path.exists():
        raise BadInput(f"{path}: no such file")
    if not path.is_file():
        raise BadInput(f"{path}: not a file; name the query files in it one by one")
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"{path}: unknown format; the name must end in one of {' '.join(FORMATS)}")
    try:
        with path.open("rb") as file:
            head = file.read(65536)
            file.seek(0)
            content_hash = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    if not head.strip():
        raise BadInput(f"{path}: the file is empty")
    if FORMATS[path.suffix.lower()] != "parquet" and (head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head):
        raise BadInput(f"{path}: not UTF-8 text (UTF-16, or binary); convert it, e.g. with `iconv -t UTF-8`")
    return content_hash


def _check_rows(source: Source, config: IngestConfig, rows: int, undecodable: int, first_bad: int | None) -> None:
    if rows == 0:
        raise BadInput(f"{source.path}: no rows")
    if undecodable * 2 > rows:
        empty = _empty(source, config)
        if empty * 2 > undecodable:
            raise BadInput(f"{source.path}: column '{config.column}' is empty in {empty} of {rows} rows; name another with --column")
        beside = f", {empty} are empty" if empty else ""
        raise BadInput(
            f"{source.path}: {undecodable - empty} of {rows} rows cannot be decoded{beside}, the first is row {first_bad}; is it "
            f"{source.format} in UTF-8? (convert other encodings with `iconv -t UTF-8`)"
        )
    if config.strict and first_bad is not None:
        raise BadInput(
            f"{source.path}: row {first_bad} is empty or cannot be decoded (and {undecodable - 1} more); mend the file, or leave out "
            "`strict`"
        )


def _empty(source: Source, config: IngestConfig) -> int:
    """In how many rows of a file there is no value at all."""
    if source.format == "parquet":
        with pq.ParquetFile(source.path) as file:
            return sum(batch.column(0).null_count for batch in file.iter_batches(config.batch_rows, columns=[config.column]))
    if source.format == "jsonl":
        with source.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as lines:
            return sum(bool((fields := _object(line)) and fields.get(config.column) is None) for line in lines)
    return 0


def _missing_column(path: Path, column: str, columns: Iterable[str]) -> BadInput:
    names = list(columns)
    near = difflib.get_close_matches(column.lower(), [name.lower() for name in names], n=3, cutoff=0.5)
    nearest = [name for name in names if name.lower() in near]
    hint = f"nearest: {', '.join(nearest)}; " if nearest else ""
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return BadInput(f"{path}: no column '{column}' ({hint}it has: {listed or 'none'}); name the query's column with --column")


def _parquet(path: Path, config: IngestConfig) -> Iterator[pl.Series]:
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            if config.column not in schema.names:
                raise _missing_column(path, config.column, schema.names)
            kind = schema.field(config.column).type
            value = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)):
                raise BadInput(f"{path}: column '{config.column}' holds {kind}, not text")
            for batch in file.iter_batches(config.batch_rows, columns=[config.column]):
                column = batch.column(0)
                raw = column.cast(value) if pa.types.is_dictionary(kind) else column
                yield _decoded(pl.Series("text", pl.from_arrow(raw.cast(pa.large_binary()))))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{path}: damaged, truncated, or not Parquet ({reason}); write the file again") from error


def _decoded(raw: pl.Series) -> pl.Series:
    """Bytes as text; null where they are not UTF-8."""
    try:
        return raw.cast(pl.String)
    except pl.exceptions.ComputeError:
        return _series([None if value is None else value.decode(errors="surrogateescape") for value in raw])


def _series(values: list[str | None]) -> pl.Series:
    """Python strings as a column; null where a string holds a lone surrogate (an undecodable byte, or half a character)."""
    try:
        return pl.Series("text", values, dtype=pl.String)
    except UnicodeEncodeError:
        return pl.Series("text", [None if value is None or not _is_encodable(value) else value for value in values], dtype=pl.String)


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _text(path: Path, config: IngestConfig) -> Iterator[str | None]:
    del config
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        for line in file:
            yield line.rstrip("\r\n")


def _jsonl(path: Path, config: IngestConfig) -> Iterator[str | None]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        keys = _keys(islice(file, _SAMPLED_LINES))
        if keys is not None and config.column not in keys:
            raise _missing_column(path, config.column, keys)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        for line in file:
            fields = _object(line)
            if fields is None and line.strip() and not line.endswith("\n"):
                raise BadInput(f"{path}: truncated, the last line ends inside a JSON object; write the file again, or remove that line")
            value = fields.get(config.column) if fields else None
            yield value if isinstance(value, str) else None


def _object(line: str) -> dict[str, object] | None:
    """The JSON object on a line; an empty one where it holds something else, None where it is no JSON."""
    try:
        value = json.loads(line)
    except RecursionError:
        return {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else {}


def _keys(lines: Iterable[str]) -> list[str] | None:
    """All keys of the objects on some lines, in order of appearance; None where no line is an object."""
    keys: dict[str, None] = {}
    found = False
    for line in lines:
        value = _object(line) or {}
        found = found or bool(value)
        keys.update(dict.fromkeys(value))
    return list(keys) if found else None


def _csv(path: Path, config: IngestConfig) -> Iterator[str | None]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        records = _Records(file, _DELIMITERS[FORMATS[path.suffix.lower()]])
        header = next(records, None)
        if not header:
            raise BadInput(f"{path}: the first line is not a CSV header")
        if config.column not in header:
            raise _missing_column(path, config.column, header)
        index = header.index(config.column)
        for record in records:
            if record is None and records.is_truncated:
                raise BadInput(f"{path}: truncated, the file ends inside a quoted field; its row begins in line {records.line}")
            yield record[index] if record is not None and len(record) == len(header) else None


class _Records:
    """The records of CSV lines, each a list of fields, or None for a line that cannot be read. A quote that is never closed runs on into
    lines that are not its own: only the first line is given up, and reading goes on with the next.

    After each record, `line` is the number of its first line, from 1, and `is_truncated` says whether the text ends within it.
    """

    def __init__(self, lines: Iterator[str], delimiter: str) -> None:
        self._lines, self._delimiter = lines, delimiter
        self._held: list[str] = []
        self._again: list[str] = []
        self._reader = self._fresh()
        self.line, self.is_truncated = 1, False

    def __iter__(self) -> Iterator[list[str] | None]:
        return self

    def __next__(self) -> list[str] | None:
        self.line += len(self._held)
        self._held.clear()
        try:
            return next(self._reader)
        except csv.Error as error:
            self.is_truncated = "unexpected end of data" in str(error) and not self._held[-1].endswith(("\n", "\r"))
            self._again += reversed(self._held[1:])
            del self._held[1:]
            self._reader = self._fresh()
            return None

    def _fresh(self) -> Iterator[list[str]]:
        return csv.reader(self._given(), delimiter=self._delimiter, strict=True)

    def _given(self) -> Iterator[str]:
        """The lines that are still to be read; those of the record that is being read are held."""
        while (line := self._again.pop() if self._again else next(self._lines, None)) is not None:
            self._held.append(line)
            yield line
