"""Conversations of the executable worlds for the benchmark of the grounding veto, and what is known of what they showed.

One idea: a world's observations are JSON; which field is a distance, a price or a name is known from the city's and the shop's own keys,
and of a compiled domain from its spec. Tasks are drawn as everywhere (frame, wording, admission) and their expert plans really executed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from benchmarks.tags_sections.veto_values import KindOf, Seen, Value, leaves, seen_in
from storage.errors import BadInput
from storage.records import JSON, Frame, Language, Message, Task
from synth.tasks.solver import NotAdmitted, admit, execute
from synth.tasks.wording import render
from synth.worlds import WORLDS, make_world
from synth.worlds.base import World
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.domain import Entity, Field

MIX = ("city", "library", "city", "retail", "gen", "city", "clinic", "city", "gen", "hotel", "city", "retail", "telecom")
GENERATED = (1, 2, 3, 7)
REFUSALS = 0.15
"""Of the refusal tasks that come up so many are taken."""
UNITS: Mapping[str, str] = {
    "days": "天", "nights": "晚", "weeks": "周", "months": "个月", "years": "年", "people": "人", "items": "件", "pages": "页",
    "points": "分", "kg": "公斤", "gb": "GB", "reviews": "条点评", "lights": "个红绿灯", "seats": "个座位", "requests": "件",
    "steps": "级台阶",
}  # fmt: skip
Row = Mapping[str, JSON]


@dataclass(frozen=True)
class Conversation:
    """An admitted task with its expert's calls made; `messages` ends before the answer."""

    task: Task
    messages: tuple[Message, ...]
    changes: Mapping[str, JSON]
    world: World

    @property
    def language(self) -> Language:
        return self.task.language

    @property
    def answer(self) -> str:
        return self.task.plan.answer

    @cached_property
    def currency(self) -> str:
        return {"city": "yuan", "retail": "dollars"}.get(self.world.name) or cast(SpecWorld, self.world).domain.spec.head.currency

    @cached_property
    def seen(self) -> Seen:
        rules = "\n".join(json.dumps(tool.to_openai(), ensure_ascii=False) for tool in self.world.tools)
        return seen_in(self.messages, rules, self._kind_of)

    @property
    def _kind_of(self) -> KindOf:
        if self.world.name == "city":
            return lambda key, _: (_CITY.get(key, ""), 1)
        if self.world.name == "retail":
            return lambda key, _: ({"price": "price", "total": "price", "stock": "count", "bought": "count"}.get(key, ""), 1)
        return self._kind_of_field

    def _kind_of_field(self, key: str, holder: Row) -> tuple[str, float]:
        field = self._field(key, holder)
        if field is None or field.spec.type not in ("integer", "number", "money"):
            return "", 1
        value = _value_of_field(field, 1, "")
        return ("", 1) if value.kind in ("number", "text") else (value.kind, float(value.value))

    def _entity(self, row: Row) -> Entity | None:
        entities = cast(SpecWorld, self.world).domain.entities.values()
        return next((each for each in entities if re.fullmatch(each.pattern, str(row.get("id", "")))), None)

    def _field(self, key: str, row: Row) -> Field | None:
        entity = self._entity(row)
        return entity.fields.get(key) if entity else None

    def rows(self) -> list[Row]:
        """The objects that observations showed and that are about one thing."""
        found: dict[int, Row] = {}
        for message in self.messages:
            if message.role == "tool":
                for _, holder, _ in leaves(json.loads(message.content or "")):
                    found[id(holder)] = holder
        return [row for row in found.values() if "error" not in row]

    def fields(self, row: Row) -> list[dict[str, Value]]:
        """What can be said of a row, by placeholder of the templates; of a shop's or a compiled domain's rows one for every order of two
        fields (`label`, `value`, `label2`, `value2`)."""
        if self.world.name == "city":
            return [_city_fields(row, self.language)]
        named = self._named(row)
        return [
            {"id": Value("text", str(row["id"] if "id" in row else row.get("order") or row.get("product")))}
            | {"label": Value("text", label), "value": value}
            | ({"label2": Value("text", named[at - 1][0]), "value2": named[at - 1][1]} if len(named) > 1 else {})
            for at, (label, value) in enumerate(named)
        ]

    def _named(self, row: Row) -> list[tuple[str, Value]]:
        zh = self.language == "zh"
        if self.world.name == "retail":
            labels = {"price": "价格", "stock": "库存", "total": "总价"} if zh else {"price": "price", "stock": "stock", "total": "total"}
            units = {"stock": ("count", ("items", "件"))}
            is_one = "order" in row or "product" in row
            found = [(key, *units.get(key, ("price", ("dollars", "")))) for key in row if is_one and key in labels]
            return [(labels[key], Value(kind, float(cast(int, row[key])), unit)) for key, kind, unit in found]
        entity = self._entity(row)
        fields = ((entity.fields.get(key), value) for key, value in row.items()) if entity else ()
        return [
            (field.label.zh if zh else field.label.en, self._told_field(field, value))
            for field, value in fields
            if field is not None and value is not None and field.spec.type in _TOLD and not _hides_a_number(field, value)
        ]

    def _told_field(self, field: Field, value: JSON) -> Value:
        if field.spec.type in ("choice", "name"):
            words = field.words.get(str(value))
            return Value("text", (words.zh if self.language == "zh" else words.en) if words else str(value))
        return _value_of_field(field, value, self.currency)


def _hides_a_number(field: Field, value: JSON) -> bool:
    """Whether it is told with a figure that an observation has in other characters: 4G of `four_g`."""
    words = field.words.get(str(value))
    return words is not None and any(mark.isdigit() and mark not in str(value) for mark in words.en + words.zh)


_TOLD = ("integer", "number", "money", "date", "time", "name", "choice")
_SCALED = {"minutes": ("duration", 1), "hours": ("duration", 60), "m": ("distance", 1), "km": ("distance", 1000), "percent": ("percent", 1)}


def _value_of_field(field: Field, value: JSON, currency: str) -> Value:
    if field.spec.type == "date":
        return Value("date", str(value))
    if field.spec.type == "time":
        return Value("clock", str(value))
    number = float(cast(float, value))
    if field.spec.type == "money":
        return Value("price", number, (currency, ""))
    unit = getattr(field.spec, "unit", None) or ""
    if unit in _SCALED:
        kind, size = _SCALED[unit]
        return Value(kind, number * size)
    if unit in UNITS:
        return Value("count", number, (unit, UNITS[unit]))
    return Value("text", str(value)) if 1900 <= number <= 2100 else Value("number", number)


_CITY: Mapping[str, str] = {
    **dict.fromkeys(("distance_m", "off_route_m", "mean_m", "max_m", "total_m", "from_origins_m", "walk_m"), "distance"),
    **dict.fromkeys(("duration_min", "delay_min"), "duration"),
    **dict.fromkeys(("price", "average_cost", "toll_yuan", "fare_yuan"), "price"),
    **dict.fromkeys(("reviews", "lights", "seats", "transfers", "stops"), "count"),
    **dict.fromkeys(("high_c", "low_c", "temperature_c"), "temperature"),
    **dict.fromkeys(("rain_percent", "humidity_percent"), "percent"),
    "rating": "rating",
}


def _city_fields(row: Row, language: Language) -> dict[str, Value]:
    ending = "_zh" if language == "zh" else ""
    texts = {"name": f"name{ending}", "address": f"address{ending}", "phone": "phone", "number": "number"}
    found = {place: Value("text", str(row[key])) for place, key in texts.items() if key in row}
    numbers = {"rating": "rating", "distance": "distance_m", "duration": "duration_min", "walk": "walk_m", "rain": "rain_percent"}
    found |= {place: Value(_CITY[key], float(cast(float, row[key]))) for place, key in numbers.items() if key in row}
    for place, key in (("price", "price"), ("price", "average_cost"), ("toll", "toll_yuan"), ("fare", "fare_yuan")):
        if key in row:
            found[place] = Value("price", float(cast(float, row[key])), ("yuan", ""))
    for key in ("reviews", "lights", "seats"):
        if key in row:
            found[key] = Value("count", float(cast(int, row[key])), (key, UNITS[key]))
    ends = ("leaves", "gets_in") if "number" in row else ("departs", "arrives")
    for place, key in zip(ends, ("departure", "arrival"), strict=True):
        if key in row:
            found[place] = Value("clock", str(row[key])[-5:])
    if "hours" in row:
        found |= {"opens": Value("clock", str(row["hours"])[:5]), "closes": Value("clock", str(row["hours"])[-5:])}
    if "date" in row:
        found["date"] = Value("date", str(row["date"]))
    if "ranking" in row:
        rank, _, ranked = str(row["ranking"]).partition(" of ")
        found |= {"rank": Value("text", rank), "ranked": Value("text", ranked)}
        if int(rank) % 100 in (11, 12, 13) or int(rank) % 10 not in (1, 2, 3):
            found["th"] = Value("text", "")
    return found


# ---- drawing -------------------------------------------------------------------------------------------------------------------


def conversations(name: str) -> Iterator[Conversation]:
    """Without end, of all worlds in turn, both languages; of different names hardly ever the same."""
    rng = random.Random(name)
    turn = 0
    while True:
        world = MIX[turn % len(MIX)]
        world = f"gen-{rng.choice(GENERATED)}" if world == "gen" else world
        language: Language = "en" if turn % 2 else "zh"
        found = _drawn(world, language, rng)
        if found is not None:
            turn += 1
            yield found


def _drawn(name: str, language: Language, rng: random.Random) -> Conversation | None:
    seed = rng.randrange(2**20)
    world = make_world(name, seed)
    intent = world.intents[rng.choice(list(world.intents))]
    if intent.refusal is not None and rng.random() > REFUSALS:
        return None
    slots = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < 0.4)
    try:
        frame = Frame(world=name, intent=intent.name, slots=world.draw_slots(intent.name, slots, rng))
        task = admit(
            WORLDS[frame.world],
            frame,
            text=render(WORLDS[frame.world], frame, language, rng),
            language=language,
            seed=seed,
            division="seed",
        )
    except (NotAdmitted, BadInput, ValueError, IndexError):
        return None
    if task.success.refusal is not None and rng.random() > REFUSALS:
        return None
    done = execute(world, task.messages, task.plan.calls, task.plan.answer)
    return Conversation(task, done.messages[:-1], done.changes, world)


def names_of(world: World) -> list[tuple[str, str]]:
    """Names of the individuals of a world, in English and Chinese; of a shop, which names none, their identifiers."""
    if world.name == "retail":
        state = cast(Mapping[str, Mapping[str, JSON]], world.state())
        return [(name, name) for key in ("order", "product") for name in sorted(state[key])]
    pairs = {(en, zh) for en, zh in (found for found in world.known_names().values() if len(found) == 2) if en.isascii()}
    if world.name != "city":
        shown = {str(leaf) for _, _, leaf in leaves(cast(JSON, world.state()))}
        pairs = {pair for pair in pairs if pair[0] in shown}
    return sorted(pair for pair in pairs if not re.match(r"Bus |Metro ", pair[0]))


def names_elsewhere(world: World, rng: random.Random) -> list[tuple[str, str]]:
    """Names in a world of another seed: of the city what a search there shows, of a domain those of another generated one."""
    if world.name == "city":
        other = WORLDS["city"](rng.randrange(2**20))
        query = rng.choice(("hotel", "museum", "bakery", "park", "library", "restaurant", "theatre", "pharmacy", "cafe", "bookstore"))
        found = json.loads(other.call("map_search_places", json.dumps({"query": query, "limit": 20})).content)
        return [(place["name"], place["name_zh"]) for place in found.get("places", ())]
    number = rng.choice([each for each in GENERATED if world.name != f"gen-{each}"])
    own = set(world.known_names())
    return [pair for pair in names_of(make_world(f"gen-{number}", rng.randrange(2**20))) if pair[0] not in own]
