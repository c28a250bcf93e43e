"""Queries in a column of CSV (or TSV) files.

A row of another length than the header, or with a quote that is never closed, cannot be decoded; only its first line is dropped, and
reading continues with the next line. The same holds for a line longer than MAX_LINE_CHARACTERS, of which only a part is in memory.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import partial
from itertools import islice

import polars as pl

from filters.ingest.column import missing_column
from filters.ingest.lines import series
from storage.errors import BadInput

DELIMITERS = {"csv": ",", "tsv": "\t"}
MAX_LINE_CHARACTERS = 1 << 20
csv.field_size_limit(MAX_LINE_CHARACTERS)
_READ = MAX_LINE_CHARACTERS + 2
"""Longest line with its end."""
_UNREADABLE = '"a"b\n'
"""A line that is an error everywhere, even inside an open quote."""
_AT_ONCE = 2048


class CsvRows:
    """The texts of a column, row by row.

    Raises:
        BadInput: no header, no such column; from `take`: the file ends inside a quoted field.
    """

    def __init__(self, path: str, file: io.BufferedReader, column: str, delimiter: str) -> None:
        self._records = csv_records(file, delimiter)
        header = next(self._records, None)
        if not header:
            raise BadInput(f"{path}: the first line is not a CSV header")
        if column not in header:
            raise missing_column(path, column, header)
        self._path, self._index, self._fields = path, header.index(column), len(header)

    def take(self, rows: int) -> pl.Series:
        """The next texts: `rows` of them at most, and some at least unless there are no more; null where a row cannot be decoded."""
        records = islice(self._records, min(rows, _AT_ONCE))
        index, fields = self._index, self._fields
        texts = series([record[index] if record is not None and len(record) == fields else None for record in records])
        if (line := self._records.truncated) is not None:
            raise BadInput(f"{self._path}: truncated, the file ends inside a quoted field; its row begins in line {line}")
        return texts


def csv_records(file: io.BufferedReader, delimiter: str) -> _Records:
    """The records of a file, header included."""
    return _Records(io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline=""), delimiter)


class _Records:
    """The records of CSV text: each is a list of fields, or None for a line that cannot be read. If a record cannot be read, for example
    because a quote is never closed, only its first line is dropped, and reading continues with the next line.

    truncated: if the text ends inside a record, the number, from 1, of the record's first line; else None.
    """

    def __init__(self, text: io.TextIOWrapper, delimiter: str) -> None:
        self._text, self._delimiter = text, delimiter
        self._lines = iter(partial(text.readline, _READ), "")
        self._held: list[str] = []
        self._again: list[str] = []
        self._reader = self._fresh()
        self._line = 1
        self.truncated: int | None = None

    def __iter__(self) -> Iterator[list[str] | None]:
        return self

    def __next__(self) -> list[str] | None:
        self._line += len(self._held)
        self._held.clear()
        try:
            return next(self._reader)
        except csv.Error as error:
            if self.truncated is None and "unexpected end of data" in str(error) and not self._held[-1].endswith(("\n", "\r")):
                self.truncated = self._line
            self._again += reversed(self._held[1:])
            del self._held[1:]
            self._reader = self._fresh()
            return None

    def _fresh(self) -> Iterator[list[str]]:
        return csv.reader(self._remaining_lines(), delimiter=self._delimiter, strict=True)

    def _remaining_lines(self) -> Iterator[str]:
        """The lines that are still to be read, _UNREADABLE for one that is too long; those of the record that is being read are held."""
        while (line := self._again.pop() if self._again else next(self._lines, None)) is not None:
            if len(line) == _READ and line[-1] != "\n":
                while line and line[-1] not in "\r\n":
                    line = self._text.readline(_READ)
                if line.endswith("\r") and (after := self._text.readline(_READ)) not in ("", "\n"):
                    self._again.append(after)
                line = _UNREADABLE
            self._held.append(line)
            yield line
