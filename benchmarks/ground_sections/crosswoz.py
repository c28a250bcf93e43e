"""Requests of CrossWOZ (Apache-2.0) as labelled requests, and its tables as a readable world.

The data lie in `HEADRACE_TEST_DATA/real_queries`. By one rule, each table is an intent: to find a row. A column of numbers is two slots, at
least and at most; every other column that people name is one; a column that is asked for is a mark. Metro and taxi are one intent each,
from one place to another. What an intent always tells is no mark: the name of what is found, the stations, the car.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from filters.reading.chinese.chinese_words import UNITS
from filters.reading.declaration import ReadableIntent, ReadableSlot, ReadableWorld
from filters.reading.readings import Reading
from storage.records import content_id

TABLES: Mapping[str, str] = {"餐馆": "restaurant", "酒店": "hotel", "景点": "attraction"}
_UNITS: Mapping[str, str] = {"人均消费": "yuan", "价格": "yuan", "门票": "yuan", "评分": "stars"}
_TRIPS = ("出租", "地铁")
_ALWAYS_TOLD = frozenset({"名称", "车型", "车牌", "出发地附近地铁站", "目的地附近地铁站"})
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_MOST_VALUES = 60


@dataclass(frozen=True)
class Request:
    """A request and what it asks for: the domain, slot -> value, and the columns that are asked for."""

    text: str
    domain: str
    values: Mapping[str, tuple[Any, ...]]
    asked: frozenset[str]

    def is_right(self, reading: Reading) -> bool:
        """Whether domain, values and what is asked for are all right."""
        asked = {value.slot.removeprefix("ask ") for value in reading.values if value.slot.startswith("ask ")}
        said = {value.slot: value.value for value in reading.values if not value.slot.startswith("ask ")}
        wanted = {slot: right for slot, right in self.values.items() if None not in right or slot in said}
        return (
            reading.intent == self.domain
            and asked == self.asked
            and said.keys() == wanted.keys()
            and all(_plain(value) in {_plain(each) for each in wanted[slot]} for slot, value in said.items())
        )


def _plain(value: Any) -> Any:
    return re.sub(r"\s", "", value.replace("（", "(").replace("）", ")")) if isinstance(value, str) else value


def requests_in(folder: Path, split: str) -> list[Request]:
    """The requests of a split that are about one domain."""
    with gzip.open(folder / f"crosswoz_{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [_request(row["text"], row["acts"]) for row in rows if len({act[1] for act in row["acts"]}) == 1]


def halves(requests: Sequence[Request]) -> tuple[list[Request], list[Request]]:
    """The half that weights are fitted on, and the other one, by a hash of the text."""
    parts: tuple[list[Request], list[Request]] = ([], [])
    for request in requests:
        parts[int(content_id("half", request.text)[-1], 16) % 2].append(request)
    return parts


def unfitted(folder: Path, split: str) -> list[Request]:
    """The requests that no weight was fitted on. split: as of SGD: of `dev` half of CrossWOZ's validation part, of another part all."""
    requests = requests_in(folder, "val" if split == "dev" else split)
    return halves(requests)[1] if split == "dev" else requests


def _request(text: str, acts: Sequence[Sequence[str]]) -> Request:
    values: dict[str, tuple[Any, ...]] = {}
    asked = frozenset(column for act, _, column, _ in acts if act == "Request" and column not in _ALWAYS_TOLD)
    for act, _, column, value in acts:
        if act != "Inform":
            continue
        if column in _UNITS:
            low, high = _range(value)
            values |= {f"least {column}": (low,), f"most {column}": (high,)}
            if low == high:  # "a score of 5": at least as much, or just as much
                values[f"most {column}" if column == "评分" else f"least {column}"] = (low, None)
        elif column in values:
            values[f"{column} 2"] = (value,)
        else:
            values[column] = (value,) if "-" not in column else ("yes",)
    return Request(text, acts[0][1], {slot: right for slot, right in values.items() if right != (None,)}, asked)


def _range(value: str) -> tuple[float | None, float | None]:
    """At least and at most, of `4分以上`, `50-100元`, 免费."""
    numbers = [float(each) for each in _NUMBER.findall(value)] or [0.0]
    low, high = numbers[0], numbers[-1]
    return (low, None) if "以上" in value else (None, high) if "以下" in value else (low, high)


@cache
def world(folder: Path) -> ReadableWorld:
    """The world that the tables make."""
    intents = {}
    for domain, name in TABLES.items():
        with gzip.open(folder / f"crosswoz_db_{name}.json.gz", "rt", encoding="utf-8") as file:
            rows = [row for _, row in json.load(file)]
        intents[domain] = _found(domain, rows)
    for domain in _TRIPS:
        places = {place: ReadableSlot(place, "name", place, beside=((cue, ""),)) for place, cue in (("出发地", "从"), ("目的地", "到"))}
        intents[domain] = ReadableIntent(domain, f"从一个地方坐{domain}到另一个地方", places, frozenset(places))
    return ReadableWorld("beijing", "北京的餐馆、酒店和景点", intents, date(2019, 3, 1))


def _found(domain: str, rows: Sequence[Mapping[str, Any]]) -> ReadableIntent:
    slots = dict[str, ReadableSlot]()
    columns = [column for column in rows[0] if column != "领域"]
    for column in columns:
        cells = [each for row in rows for each in _cells(row[column])]
        if column == f"{domain}设施":
            for part in dict.fromkeys(cells):
                slots[f"{column}-{part}"] = ReadableSlot(f"{column}-{part}", "choice", part, {"yes": (part,)}, key=f"{column}-{part}")
            continue
        slots[f"ask {column}"] = _mark(domain, column)
        if column in _UNITS:
            units = UNITS[_UNITS[column]]
            slots[f"least {column}"] = ReadableSlot(f"least {column}", "number", column, bound=-1, units=units)
            slots[f"most {column}"] = ReadableSlot(f"most {column}", "number", column, bound=1, units=units)
        elif not column.startswith("周边"):
            common = [value for value, _ in Counter(map(str, cells)).most_common(_MOST_VALUES)]
            is_choice = len(set(cells)) <= _MOST_VALUES
            values = {value: (value,) for value in common} if is_choice else {}
            slots[column] = ReadableSlot(column, "choice" if is_choice else "name", column, values, key=f"{domain} {column}")
    return ReadableIntent(domain, f"找一个{domain}", slots, frozenset())


def _cells(cell: Any) -> Sequence[Any]:
    return cell if isinstance(cell, list) else [] if cell is None else [cell]


def _mark(domain: str, column: str) -> ReadableSlot:
    return ReadableSlot(f"ask {column}", "mark", column, {"yes": (column,)}, key=f"ask {domain} {column}")
