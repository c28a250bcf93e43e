"""Two texts side by side, with the words marked in which they differ."""

from __future__ import annotations

import difflib
import re

from markupsafe import Markup

_COMPARED = 2_000
"""Characters of each text that are compared."""
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|\s+|[^\w\s]|_")


def differing_words(text: str, other: str) -> tuple[Markup, Markup]:
    """Two texts, escaped, each with the words marked that the other does not have at that place."""
    one, two = (_words(each) for each in (text, other))
    sides: tuple[list[Markup], list[Markup]] = ([], [])
    for what, *ends in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        for side, words, start, end in zip(sides, (one, two), ends[::2], ends[1::2], strict=True):
            form = "{}" if what == "equal" else "<mark>{}</mark>"
            side.append(Markup(form).format("".join(words[start:end])) if end > start else Markup(""))
    return Markup("").join(sides[0]), Markup("").join(sides[1])


def _words(text: str) -> list[str]:
    """Words, spaces and marks, and single Chinese characters. What follows on `_COMPARED` characters is one word."""
    return [*_WORD.findall(text[:_COMPARED]), *filter(None, [text[_COMPARED:]])]
