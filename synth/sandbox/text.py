"""Bytes that a program wrote, as text that is safe to store, to show on a terminal and to put before a model.

Invalid UTF-8, control characters (ANSI escapes among them), characters that turn the direction of what follows, and noncharacters become
U+FFFD; of a run of combining marks the first eight stay. Nothing is normalised, so no text grows.
"""

from __future__ import annotations

import re

MARKS = 8

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, all but tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction
    "\u2028\u2029\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"  # tags: text that nobody sees
)
_MARK = (
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]"
)
_MANY_MARKS = re.compile(f"({_MARK}{{{MARKS}}}){_MARK}+")


def safe_text(data: bytes) -> str:
    """`data` as safe text, at most as many characters as bytes."""
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n")
    return _MANY_MARKS.sub(r"\1", _UNSAFE.sub("\ufffd", text))
