"""Shortens long results by rule, and shows the rest page by page.

One idea: the rule reads the result alone, never the plan: a result that kept what the plan needs would tell the policy where to look. Of
JSON, the longest list keeps its first items and its last one, a long text its head and its tail, until the result fits; what is no JSON is
cut as a text. In place of what is left out stands a mark (`synth/context/marks.py`). Items are never cut in two, nor words and numbers.

A result that has no long list or text stays whole up to twice the limit. Marks do not count, and errors are never shortened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from storage.records import JSON, canonical_json, is_error
from synth.context.marks import has_mark, is_mark, without_marks, write_mark

_LONG_TEXT = 60
"""Fewest characters of a text in JSON that is cut."""
_WITH_TAIL = 3
"""Items of a list that must fit for the last one to be among them."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A list or text that was shortened.

    key: name of its field; None for a result that is a list or text itself.
    write: JSON in the spacing of its result.
    """

    content: list[JSON] | str
    key: str | None
    write: Callable[[JSON], str]


class Shortener:
    """Shortens the results of one conversation. limit: characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cuts: dict[str, Cut] = {}

    def shorten(self, content: str) -> str:
        """The result, shortened if it is longer than the limit."""
        if len(content) <= self._limit or is_error(content):
            return content
        before, write = dict(self._cuts), _writer(content)
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, (dict, list)):
            shown = write(self._fit(value, write))
            if len(without_marks(shown)) <= 2 * self._limit:
                return shown
            self._cuts = before
        return self._cut_text(content, Cut(content, None, write), self._limit)

    def page(self, cut: JSON, start: JSON) -> str:
        """The part of a shortened result from item or character `start` on; an error if there is none."""
        known = self._cuts.get(cut) if isinstance(cut, str) else None
        if known is None:
            return canonical_json({"error": f"no shortened result has the id {cut}"})
        if isinstance(start, bool) or not isinstance(start, int) or not 0 <= start < len(known.content):
            return canonical_json({"error": f"{cut} has items 0 to {len(known.content) - 1}"})
        content, total = known.content, len(known.content)
        if isinstance(content, str):
            end = _boundary(content, start, min(start + self._limit, total))
            part: JSON = content[start:end] + write_mark(str(cut), end, total - end, total, "characters")
        else:
            end = start + _fitting([len(known.write(item)) for item in content[start:]], self._limit)
            items = json.loads(json.dumps(content[start:end]))
            part = [*items, write_mark(str(cut), end, total - end, total, "items")]
        if known.key is None and isinstance(part, str):
            return part
        value = part if known.key is None else {known.key: part}
        return known.write(self._fit(value, known.write) if isinstance(part, list) else value)

    # ---- cutting -------------------------------------------------------------------------------------------------------------

    def _fit(self, value: Any, write: Callable[[JSON], str]) -> Any:
        """The value with its longest lists and texts cut in place, until it fits or nothing is left to cut."""
        box = [value]
        while (excess := len(without_marks(write(box[0]))) - self._limit) > 0:
            longest = max(_cuttable(box), key=lambda place: len(write(place[3])), default=None)
            if longest is None:
                break
            holder, key, name, node = longest
            holder[key] = self._cut(node, Cut(node, name, write), len(write(node)) - excess)
        return box[0]

    def _cut(self, node: list[JSON] | str, cut: Cut, size: int) -> list[JSON] | str:
        return self._cut_text(node, cut, size) if isinstance(node, str) else self._cut_list(node, cut, size)

    def _cut_list(self, items: list[JSON], cut: Cut, size: int) -> list[JSON]:
        shown, total, name = _fitting([len(cut.write(item)) for item in items], size), len(items), self._name(cut)
        shown = min(shown, total - 1)
        tail = 1 if shown >= _WITH_TAIL else 0
        head = shown - tail
        return [*items[:head], write_mark(name, head, total - shown, total, "items"), *items[total - tail :]]

    def _cut_text(self, text: str, cut: Cut, size: int) -> str:
        size, total, name = max(size, _LONG_TEXT // 2), len(text), self._name(cut)
        head = _boundary(text, 0, size * 2 // 3)
        tail = max(head, _boundary(text, head, total - size // 3, before=False))
        return text[:head] + write_mark(name, head, tail - head, total, "characters") + text[tail:]

    def _name(self, cut: Cut) -> str:
        name = f"r{len(self._cuts) + 1}"
        self._cuts[name] = cut
        return name


def _cuttable(value: Any) -> Iterator[tuple[Any, Any, str | None, Any]]:
    """The lists and texts below a value that may be cut: holder, key or index, name of the field (None in a list), and themselves."""
    places = (
        [(key, key, node) for key, node in value.items()] if isinstance(value, dict) else [(at, None, it) for at, it in enumerate(value)]
    )
    for key, name, node in places:
        if _is_cuttable(node):
            yield value, key, name, node
        if isinstance(node, (dict, list)):
            yield from _cuttable(node)


def _is_cuttable(node: Any) -> bool:
    if isinstance(node, str):
        return len(node) > _LONG_TEXT and not has_mark(node)
    return isinstance(node, list) and len(node) > 1 and not any(is_mark(item) for item in node)


def _fitting(sizes: list[int], limit: int) -> int:
    """How many items fit, at least one."""
    count, used = 0, 0
    for size in sizes:
        used += size + 1
        if count and used > limit:
            break
        count += 1
    return count


def _boundary(text: str, start: int, end: int, *, before: bool = True) -> int:
    """The place nearest to `end`, before or behind it, that is in no word or number; `end` itself where half the way has none."""
    if not start < end < len(text):
        return max(start, min(end, len(text)))
    places = range(end, start + (end - start) // 2, -1) if before else range(end, end + (len(text) - end) // 2)
    return next((place for place in places if not (_is_in_word(text[place - 1]) and _is_in_word(text[place]))), end)


def _is_in_word(letter: str) -> bool:
    return letter in "._-:," or (letter.isascii() and letter.isalnum())


def _writer(content: str) -> Callable[[JSON], str]:
    separators = (", ", ": ") if '": ' in content else (",", ":")
    return lambda value: json.dumps(value, ensure_ascii=False, separators=separators)
