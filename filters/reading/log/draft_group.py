"""A table of what a group of requests mentions, for the draft of a world that serves them (`synth/writing/draft_spec.py`).

One idea: users name the things of a world that nobody has described yet. Each request gives a row: the name that it has, and its days,
times, amounts and counted numbers. Such rows show which fields the world needs; the user's own table is to take their place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import polars as pl

from filters.reading.chinese.chinese_spans import typed_spans
from filters.reading.chinese.chinese_words import plain
from filters.reading.english_words import FUNCTION_WORDS, SMALL_TALK, VERB_FAMILIES, tokenise
from filters.reading.spans import SpanFinder
from filters.reading.world_reader import language_of
from storage.errors import BadInput
from storage.store import Store
from synth.writing.draft_spec import draft_spec

_TODAY = date(2026, 5, 13)
_LEAST_SHARE, _MOST_COUNTED = 0.1, 3
"""Least share of the requests that have a value of a column; most columns of counted things."""
_COMMENTED, _LONGEST = 20, 200
"""Requests that stand in a spec as comments, and characters of each."""
_LISTED = 8
"""Groups that an error message names."""
_MOST_WORDS, _LONGEST_NOUN = 2, 20
"""Words of a topic that name its table and rows; characters of one without English words."""
_LAST_GROUPS = """
WITH last AS (SELECT run FROM unserved JOIN parts USING (part_id) GROUP BY run ORDER BY max(parts.rowid) DESC LIMIT 1)
SELECT topic, requests FROM unserved JOIN last USING (run) ORDER BY rows DESC, topic"""
_UNITS = re.compile(r"[^\W\d_]+")
_QUOTED_ZH = re.compile(r"[《“「]([^》”」]{1,40})[》”」]")


def group_of(store: Store, topic: str) -> tuple[str, list[str]]:
    """Name and requests of a group of the last run that has groups, by the beginning of its name.

    Raises:
        BadInput: there is no such group, or several; the message lists some.
    """
    groups = store.query(_LAST_GROUPS)
    if groups.is_empty():
        raise BadInput("the store has no groups of requests that no tool serves; `headrace curate FILE --world WORLD` finds them")
    names = groups["topic"].to_list()
    found = [name for name in names if name.casefold() == topic.casefold()]
    found = found or [name for name in names if name.casefold().startswith(topic.casefold())]
    if len(found) != 1:
        what = "several groups begin with" if found else "no group begins with"
        raise BadInput(f"{what} {topic!r}; groups are {', '.join((found or names)[:_LISTED])}")
    return found[0], groups.row(by_predicate=pl.col("topic") == found[0], named=True)["requests"]


def draft_group(topic: str, requests: Sequence[str], spec: Path) -> str:
    """The text of a spec from a group of requests, whose table is written beside it.

    Raises:
        BadInput: no table can be written there, or none can be made; then none is left.
    """
    table = write_table(requests, topic, spec)
    try:
        return draft_spec([table], spec) + comments(topic, requests)
    except BaseException:
        table.unlink(missing_ok=True)
        raise


def write_table(requests: Sequence[str], topic: str, spec: Path) -> Path:
    """Writes what the requests mention as CSV beside a spec.

    Raises:
        BadInput: a file of that name exists, or cannot be written.
    """
    path = spec.with_name(f"{'_'.join(_subject(topic)) or 'request'}.csv")
    if path.exists():
        raise BadInput(f"{path} exists, where the table of what is mentioned would be; move it away")
    try:
        requests_table(requests, topic).write_csv(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror})") from None
    return path


def _subject(topic: str) -> list[str]:
    """The first words of a topic that say what it is about."""
    said = [word for word in re.findall(r"[a-z]+", topic.lower()) if word not in FUNCTION_WORDS | SMALL_TALK | VERB_FAMILIES.keys()]
    return said[:_MOST_WORDS]


def comments(topic: str, requests: Sequence[str]) -> str:
    """Some of the requests, as comments of a spec."""
    plain = ("".join(character if character.isprintable() else " " for character in request) for request in requests[:_COMMENTED])
    lines = (" ".join(request.split())[:_LONGEST] for request in plain)
    return "".join([f"\n# What users ask for ({topic}); write jobs that serve it:\n", *(f"#   {line}\n" for line in lines)])


def requests_table(requests: Sequence[str], topic: str) -> pl.DataFrame:
    """A row for each name: `name`, and a column for each kind of value that a tenth of the requests have, two at least. A request without a
    name stands for a row that is numbered; a cell that it leaves out is that of the request before."""
    rows = [dict(_mentions(request)) for request in dict.fromkeys(requests)]
    counts = Counter(column for row in rows for column in row)
    counted = [column for column, _ in counts.most_common() if column.startswith("number of ")][:_MOST_COUNTED]
    columns = [column for column in ("day", "time", "amount", *counted) if counts[column] >= max(2, _LEAST_SHARE * len(rows))]
    subject = " ".join(_subject(topic)) or topic[:_LONGEST_NOUN]
    unnamed = (f"{subject} {number}" for number in range(1, len(rows) + 1))
    names = [row.get("name") or next(unnamed) for row in rows]
    table = pl.DataFrame({"name": names, **{column: [row.get(column) for row in rows] for column in columns}})
    return table.unique("name", maintain_order=True).fill_null(strategy="forward").fill_null(strategy="backward")


def _mentions(request: str) -> Iterator[tuple[str, str]]:
    """(column, cell) of what a request mentions; the first of each kind counts."""
    found = _english(request) if language_of(request) == "en" else _chinese(request)
    seen = set[str]()
    for column, cell in found:
        if column not in seen:
            seen.add(column)
            yield column, cell


def _english(request: str) -> Iterator[tuple[str, str]]:
    tokens = tokenise(request)
    for span in SpanFinder(request, tokens, _TODAY).spans():
        if span.kind == "day":
            yield "day", span.value.isoformat()
        elif span.kind == "time":
            yield "time", _clock(span.value)
        elif span.kind == "money":
            yield "amount", f"{span.value:g}"
        elif span.kind == "count" and span.nouns and span.nouns[0] not in FUNCTION_WORDS:
            yield f"number of {span.nouns[0]}", f"{span.value:g}"
        elif span.kind == "name" and span.shape in ("capitals", "quoted") and span.first:
            yield "name", span.text


def _chinese(request: str) -> Iterator[tuple[str, str]]:
    for span in typed_spans(plain(request), request, _TODAY):
        if span.kind == "day":
            yield "day", span.value.isoformat()
        elif span.kind == "time":
            yield "time", _clock(span.value)
        elif span.unit in ("元", "块", "块钱", "¥"):
            yield "amount", f"{span.value:g}"
        elif _UNITS.fullmatch(span.unit):
            yield f"number of {span.unit}", f"{span.value:g}"
    for match in _QUOTED_ZH.finditer(request):
        yield "name", match[1]


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"
