"""Bytes that a program wrote, as text that is safe to store, to show on a terminal and to put before a model.

Invalid UTF-8, control characters (ANSI escapes among them), characters that turn the direction of what follows, invisible ones (they
carry hidden text) and noncharacters become U+FFFD. Joiners and variation selectors, which emoji and several scripts need, stay
where at most two stand together; of a run of combining marks the first eight stay. Nothing is normalised, so no text grows.
Source: Unicode's Default_Ignorable_Code_Point and Bidi_Control.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby, islice
from unicodedata import category

MARKS, JOINERS = 8, 2

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, all but tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\uffa0\ufeff\ufff0-\ufffb"  # invisible
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u2028\u2029\ud800-\udfff\ufdd0-\ufdef" + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF)) + "]"
)
_LINE = 300
"""Characters of a line of another program that are shown."""
_MANY_JOINERS = re.compile(f"[\u200c\u200d\ufe00-\ufe0f]{{{JOINERS + 1},}}")


def safe_text(data: bytes) -> str:
    """`data` as safe text, at most as many characters as bytes."""
    text = _UNSAFE.sub("\ufffd", data.decode("utf-8", errors="replace").replace("\r\n", "\n"))
    if text.isascii():
        return text
    text = _MANY_JOINERS.sub(lambda match: match[0][:JOINERS], text)
    return _many_marks().sub(lambda match: _cut_marks(match[0]), text)


def safe(text: str) -> str:
    """`text` as safe text; half a surrogate pair becomes `?`."""
    return text if text.isascii() and text.isprintable() else safe_text(text.encode("utf-8", errors="replace"))


def one_line(text: str, most: int = _LINE) -> str:
    """`text` as one safe line without outer spaces. most: characters that stay."""
    return " ".join(safe(text[: 4 * most]).split())[:most]


@cache
def _many_marks() -> re.Pattern[str]:
    """Runs that may have too many marks: marks as this Python's Unicode knows them, and all of plane 1, as long classes of it are slow."""
    marks = "".join(filter(_is_mark, map(chr, range(0x300, 0x10000))))
    return re.compile(f"[{marks}\U00010000-\U0001ffff]{{{MARKS + 1},}}")


def _is_mark(letter: str) -> bool:
    return category(letter) in ("Mn", "Me")


def _cut_marks(text: str) -> str:
    return "".join(letter for is_mark, run in groupby(text, _is_mark) for letter in islice(run, MARKS if is_mark else None))
