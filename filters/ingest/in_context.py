"""Texts with what other columns of their rows say beside them: `a table for four (city: San Jose; screen: Sino)`.

One idea: the context is part of the request. Equal texts in other contexts are no duplicates, a reader may take values from it, and a
policy is told it. `split_context` takes it off again. An empty text has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

LONGEST = 200
"""Characters of a context that a text has at most."""


class Reader(Protocol):
    def take(self, rows: int) -> pl.Series: ...


@dataclass(frozen=True, slots=True)
class InContext:
    """Reads texts and their contexts side by side. main: reader of the texts. contexts: (label, reader of its cells)."""

    main: Reader
    contexts: Sequence[tuple[str, Reader]]

    def take(self, rows: int) -> pl.Series:
        """As the reader of the texts, with contexts at their ends; a text that could not be decoded stays null."""
        texts = self.main.take(rows)
        return with_context(texts, [(label, _exactly(reader, len(texts))) for label, reader in self.contexts])


def _exactly(reader: Reader, rows: int) -> pl.Series:
    parts, count = [pl.Series("text", [], pl.String)], 0
    while count < rows and len(part := reader.take(rows - count)):
        parts.append(part)
        count += len(part)
    return pl.concat(parts)


def with_context(texts: pl.Series, contexts: Sequence[tuple[str, pl.Series]]) -> pl.Series:
    """Texts, each with its contexts in parentheses; those without a cell have none. contexts: label, cells."""
    cells = pl.DataFrame({"text": texts, **{f"at {place}": cells for place, (_, cells) in enumerate(contexts)}})
    said = []
    for place, (label, _) in enumerate(contexts):
        cell = pl.col(f"at {place}").str.replace_all(r"[\s();]+", " ").str.strip_chars().str.slice(0, LONGEST).str.strip_chars_end()
        said.append(pl.when(cell != "").then(pl.concat_str(pl.lit(f"{label}: "), cell)))
    joined = pl.concat_str(*said, separator="; ", ignore_nulls=True)
    text = pl.col("text")
    has_both = (joined != "") & (text.str.strip_chars() != "")
    full = pl.when(has_both).then(pl.concat_str(text.str.strip_chars_end(), pl.lit(" ("), joined, pl.lit(")"))).otherwise(text)
    return cells.select(full.alias("text")).to_series()


@dataclass(frozen=True, slots=True)
class Cell:
    """A context of a text. start: where its value begins in the text with context."""

    label: str
    value: str
    start: int


def split_context(text: str, labels: Sequence[str]) -> tuple[str, list[Cell]]:
    """The text alone, and its contexts."""
    match = re.search(rf"{_contexts(labels)}\)$", text) if labels and text.endswith(")") else None
    if match is None:
        return text, []
    parts = re.finditer(_context(labels), match[0])
    return text[: match.start()], [Cell(part[1], part[2], match.start() + part.start(2)) for part in parts]


def without_context(texts: pl.Series, labels: Sequence[str]) -> pl.Series:
    """Texts without their contexts, normalised ones too: these are in lower case, and no parenthesis closes them."""
    return texts.str.replace(rf"(?i){_contexts(labels)}\)?$", "") if labels else texts


def _context(labels: Sequence[str]) -> str:
    """Pattern of a label and its value, a group each."""
    return rf"({'|'.join(map(re.escape, labels))}): ([^();]+)"


def _contexts(labels: Sequence[str]) -> str:
    """Pattern of all contexts of a text, up to the last parenthesis."""
    return rf" \({_context(labels)}(?:; {_context(labels)})*"
