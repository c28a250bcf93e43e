"""Queries in lines: JSONL (one JSON object a line) and text (a query a line), read a block at a time from any line on.

A block of bytes is cut into lines that are decoded together; only a block with an undecodable line is decoded line by line. A line longer
than MAX_LINE_BYTES is skipped without being in memory, and counts as undecodable.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import orjson
import polars as pl

from filters.ingest.column import Keys, dotted_names, keys_of, missing_column, value_at
from storage.errors import BadInput

MAX_LINE_BYTES = 1 << 20
BLOCK_BYTES = 1 << 20
_TOO_LONG = b"\xff"
"""Replaces a line that is too long; neither text nor JSON."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SAMPLED_LINES, _SAMPLED_BYTES = 1000, 16 << 20


class Lines:
    """The lines of a stream of bytes from offset `start` (where a line begins) to `end`, decoded.

    After each `take`, `position` is the offset of the next line, and `unfinished` is the last line, if it was taken and no newline ends it.
    """

    def __init__(self, file: io.BufferedReader, decode: Callable[[list[bytes]], pl.Series], start: int = 0, end: int | None = None) -> None:
        self._file, self._decode, self._end = file, decode, end
        self._held: list[bytes] = []
        self._rest, self.unfinished, self.position = b"", b"", start
        if start:
            file.seek(start)
        self._read_to = start
        if not start:
            self._rest = self._read(len(_BYTE_ORDER_MARK))
            if self._rest == _BYTE_ORDER_MARK:
                self._rest, self.position = b"", len(_BYTE_ORDER_MARK)

    def take(self, rows: int) -> pl.Series:
        """The next lines, decoded: `rows` of them at most, and some at least unless there are no more."""
        if not self._held:
            self._fill()
        lines, self._held = self._held[:rows], self._held[rows:]
        lengths = list(map(len, lines))
        self.position += sum(lengths) + len(lines)
        if max(lengths, default=0) > MAX_LINE_BYTES:
            lines = [_TOO_LONG if len(line) > MAX_LINE_BYTES else line for line in lines]
        return self._decode(lines)

    def _fill(self) -> None:
        while not self._held:
            block = self._read(BLOCK_BYTES)
            *self._held, self._rest = (self._rest + block).split(b"\n")
            if not block:
                if self._rest:
                    self._held, self.unfinished, self._rest = [*self._held, self._rest], self._rest, b""
                return
            if not self._held and len(self._rest) > MAX_LINE_BYTES:
                self._skip_long_line()

    def _skip_long_line(self) -> None:
        """Skips the current line and puts _TOO_LONG in its place."""
        passed, newline, self._held = len(self._rest), b"", [_TOO_LONG]
        self._rest = b""
        while not newline and (block := self._read(BLOCK_BYTES)):
            line, newline, self._rest = block.partition(b"\n")
            passed += len(line)
        self.position += passed - len(_TOO_LONG)

    def _read(self, size: int) -> bytes:
        block = self._file.read(size if self._end is None else min(size, self._end - self._read_to))
        self._read_to += len(block)
        return block


def text_values(lines: list[bytes]) -> pl.Series:
    """Lines of text as they are, without a carriage return at the end; null where they are not UTF-8."""
    try:
        text = b"\n".join(lines).decode()
    except UnicodeDecodeError:
        text = b"\n".join(lines).decode(errors="surrogateescape")
    values = text.split("\n") if lines else []
    return series([value.rstrip("\r") for value in values] if "\r" in text else values)


def json_values(lines: list[bytes], keys: Keys) -> pl.Series:
    """The texts at these keys of lines of JSON; null where there is no text."""
    try:
        if len(keys) == 1:
            return series([orjson.loads(line).get(keys[0]) for line in lines])
        return series([value_at(orjson.loads(line), keys) for line in lines])
    except (ValueError, TypeError, AttributeError):
        values = [value_at(json_object(line), keys) for line in lines]
        return series([value if isinstance(value, str) else None for value in values])


def json_object(line: bytes) -> dict[str, object] | None:
    """The JSON object on a line; an empty one where it holds something else, None where it is no JSON. Bytes that are not UTF-8 become
    lone surrogates, so that they spoil their own value only."""
    try:
        value = orjson.loads(line)
    except ValueError:
        try:
            value = json.loads(line.decode(errors="surrogateescape"))
        except RecursionError:
            return {}
        except ValueError:
            return None
    return value if isinstance(value, dict) else {}


def json_keys(path: str, file: io.BufferedReader, column: str) -> Keys:
    """The path to a column in the objects on the first lines.

    Raises:
        BadInput: they do not have it.
    """
    objects: list[dict[str, object]] = []

    def keep(lines: list[bytes]) -> pl.Series:
        objects.extend(json_object(line) or {} for line in lines)
        return pl.Series(lines, dtype=pl.Binary)

    sampled = Lines(file, keep)
    while len(objects) < _SAMPLED_LINES and sampled.position < _SAMPLED_BYTES and len(sampled.take(_SAMPLED_LINES)):
        pass
    keys = keys_of(column, set(chain.from_iterable(objects)))
    if any(objects) and all(value_at(each, keys) is None for each in objects) and not any(column in each for each in objects):
        raise missing_column(path, column, chain.from_iterable(map(dotted_names, objects)))
    return keys


def refuse_truncated_json(path: str, last: bytes) -> None:
    """Raises BadInput where a file's last line, which no newline ends, is not whole."""
    if last.strip() and json_object(last) is None:
        raise BadInput(f"{path}: truncated, the last line ends inside a JSON object; write the file again, or remove that line")


def without_value(lines: list[bytes], keys: Keys) -> pl.Series:
    """Of each line, whether it is a JSON object that has no value at these keys."""
    return pl.Series([bool((parsed := json_object(line)) and value_at(parsed, keys) is None) for line in lines], dtype=pl.Boolean)


def series(values: Sequence[object]) -> pl.Series:
    """Python strings as a column; null where a string holds a lone surrogate (an undecodable byte, or half a character).

    Raises:
        TypeError: a value is neither a string nor None.
    """
    try:
        return pl.Series("text", values, dtype=pl.String)
    except UnicodeEncodeError:
        return pl.Series("text", [value if _is_encodable(value) else None for value in values], dtype=pl.String)


def _is_encodable(value: object) -> bool:
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def scalar_values(lines: list[bytes], keys: Keys) -> pl.Series:
    """The texts, numbers and truth values of JSON lines at these keys, as texts; null for all else."""
    values = (value_at(json_object(line), keys) for line in lines)
    return series([value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else None for value in values])


def decoder(kind: str, keys: Keys, *, any_scalar: bool = False) -> Callable[[list[bytes]], pl.Series]:
    if kind != "jsonl":
        return text_values
    return partial(scalar_values if any_scalar else json_values, keys=keys)
