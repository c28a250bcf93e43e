"""Text for a terminal of 80 columns: wrapped rows of label and text, and cut texts.

One idea: a wide character (Chinese) takes two columns, so widths are columns and not characters. Control characters are replaced, because
a terminal would execute them. It knows nothing of a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

WIDTH = 80
_LABELS = 20
"""Most columns of the labels; a longer label has a line of its own."""
_WIDE = r"\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
_PIECES = re.compile(rf"[{_WIDE}]|[^\s,{_WIDE}]*,|[^\s,{_WIDE}]+|[^\S\n]+")
"""Pieces of a line that are not divided: words, single wide characters, and parts up to a comma."""

_CUT = re.compile(r" \.\.\. [0-9,]+ more characters\b")

Rows = Sequence[tuple[str, str]]
"""(label, text) pairs."""


@dataclass(frozen=True)
class Section:
    """A titled block of rows."""

    title: str
    rows: tuple[tuple[str, str], ...]


def cut(text: str, most: int | None) -> str:
    """The first `most` characters, and the number of the others; None: the whole text."""
    if most is None or len(text) <= most + len(" ... 999 more characters"):
        return text
    return f"{text[:most].rstrip()} ... {len(text) - most:,} more characters"


def is_cut(text: str) -> bool:
    """Whether a part of the text is what `cut` made of a longer one."""
    return _CUT.search(text) is not None


def layout_rows(rows: Rows, indent: int = 2, *, repeat_labels: bool = True) -> list[str]:
    """Rows as lines of at most 80 columns: labels to the left, texts wrapped beside them. repeat_labels: False shows the label of equal
    neighbours once."""
    column = max((columns(label) for label, _ in rows if columns(label) <= _LABELS), default=0)
    start = column + 2 if column else 0
    lines, last = list[str](), ""
    for label, text in rows:
        shown, last = "" if label == last and not repeat_labels else label, label
        if columns(shown) > column:
            lines += [" " * indent + part for part in wrap(shown, WIDTH - indent)]
            shown = ""
        for line in wrap(text, WIDTH - indent - start):
            lines.append(f"{' ' * indent}{shown}{' ' * (start - columns(shown))}{line}".rstrip())
            shown = ""
    return lines


def layout_sections(sections: Iterable[Section]) -> list[str]:
    """Each section after an empty line: its title, then its rows."""
    return [line for section in sections for line in ("", section.title, *layout_rows(section.rows))]


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; line breaks of the text stay."""
    return [line for part in text.splitlines() or [""] for line in _wrap_line(printable(part), width)]


def _wrap_line(text: str, width: int) -> list[str]:
    lines, line, used = list[str](), "", 0
    for piece in _divide_long(_PIECES.findall(text), width):
        size = columns(piece)
        if used + size > width and line.strip():
            lines.append(line.rstrip())
            line, used = ("", 0) if piece.isspace() else (piece, size)
        else:
            line, used = line + piece, used + size
    return [*lines, line.rstrip()]


def _divide_long(pieces: Iterable[str], width: int) -> Iterable[str]:
    """The pieces, those wider than a line divided."""
    for piece in pieces:
        for start in range(0, len(piece), width):
            yield piece[start : start + width]


def columns(text: str) -> int:
    """Columns that a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def printable(text: str) -> str:
    """The text without control characters, which a terminal would execute."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
