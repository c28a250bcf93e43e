"""The city: STAgent's ten spatio-temporal tools over a synthetic city that every seed draws anew. Read only.

Names are the same in every seed, everything else is not: crossings, roads, where places lie and what they are like, headways, timetables,
weather, what pages say. All heavy columns are drawn by numpy at `reset` (about 2 ms), the rest when it is first asked for.
Shortest paths are computed, not looked up: a compiled Dijkstra per call.

Source: STAgent (2512.24957) and TravelBench (2512.22673) for tools, parameters, bounds and rules; the data are ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import orjson

from storage.records import JSON, Given, Tool
from synth.text.slot_kinds import SlotKind
from synth.worlds.arguments import BadArgument, compile_checker
from synth.worlds.base import Intent, Observation
from synth.worlds.city.given_names import GivenNames, given_for, names_given
from synth.worlds.city.intents import INTENTS
from synth.worlds.city.map.city_map import City, CityBased, city_of
from synth.worlds.city.map.geometry import COLUMNS, ROWS
from synth.worlds.city.map.place_catalog import NOUNS, catalogue
from synth.worlds.city.map.place_names import CITY_EN, CITY_ZH, LANDMARK_KINDS, STEMS
from synth.worlds.city.map.roads import road_names
from synth.worlds.city.map.timetable import CARRIERS
from synth.worlds.city.slot_values import draw_entities, draw_slots
from synth.worlds.city.tools import routing, search_tools, travel_tools
from synth.worlds.city.tools.tool_signatures import TOOL_WORDS, TOOLS
from synth.worlds.city.vocabulary import KINDS, NOW, TODAY

_RUN: dict[str, Callable[[City, dict[str, Any]], dict[str, Any]]] = {
    "map_search_places": search_tools.search_places,
    "map_compute_routes": routing.compute_routes,
    "map_search_along_route": search_tools.search_along_route,
    "map_search_central_places": search_tools.search_central_places,
    "map_search_ranking_list": search_tools.search_ranking_list,
    "travel_search_flights": travel_tools.search_flights,
    "travel_search_trains": travel_tools.search_trains,
    "weather_current_conditions": travel_tools.current_conditions,
    "weather_forecast_days": travel_tools.forecast_days,
    "web_search": travel_tools.web_search,
}


def _with_nulls(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with default null where it names no default: a tool then has a value for each of its parameters."""
    return {**parameters, "properties": {name: {"default": None, **schema} for name, schema in parameters["properties"].items()}}


_CHECKERS = {tool.name: compile_checker(_with_nulls(tool.parameters), allows_blank=False) for tool in TOOLS}
_UNITS = {
    **dict.fromkeys(("price", "average_cost"), "yuan"),
    **dict.fromkeys(("rating",), "stars"),
    **dict.fromkeys(("reviews", "seats", "stops", "transfers", "lights", "total", "rank", "ranking"), "count"),
}
_NAMED_KINDS = ("place", "district", "city", "line")


def _error(message: str) -> Observation:
    message = message.encode(errors="replace").decode()
    return Observation(orjson.dumps({"error": message}).decode(), is_error=True)


class CityWorld(CityBased):
    name = "city"
    files = Path(__file__).parent
    version = 4
    tools: ClassVar[tuple[Tool, ...]] = TOOLS
    intents: ClassVar[Mapping[str, Intent]] = INTENTS
    kinds: ClassVar[Mapping[str, SlotKind]] = KINDS
    tool_words: ClassVar[Mapping[str, tuple[str, ...]]] = TOOL_WORDS
    units: ClassVar[Mapping[str, str]] = _UNITS
    system_prompt: ClassVar[str] = (
        f"You are the travel assistant of {CITY_EN} ({CITY_ZH}). It is {NOW:%A}, {NOW:%Y-%m-%d}, {NOW:%H:%M}. Timetables and forecasts "
        "reach 15 days ahead. The tools know places by coordinates: look a place up before you use it. If you must refuse, say why."
    )

    @classmethod
    def given_for(cls, intent: str, slots: Mapping[str, JSON]) -> Given:
        return given_for(INTENTS[intent], slots)

    @classmethod
    def names_given(cls, given: Given) -> Mapping[str, tuple[str, ...]]:
        return names_given(given)

    def reset(self, seed: int) -> None:
        self.city = city_of(seed)
        self.names = GivenNames(seed, self.given)

    def own_key(self, kind: str, value: str) -> str:
        return self.names.own.get((kind, value), value)

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        run = _RUN.get(tool)
        if run is None:
            return _error(f"unknown tool '{tool}'; tools are {', '.join(_RUN)}")
        if isinstance(arguments, str):
            try:
                arguments = orjson.loads(arguments)
            except orjson.JSONDecodeError as error:
                return _error(f"arguments are not valid JSON: {error}")
        if not isinstance(arguments, Mapping):
            return _error("arguments must be a JSON object")
        arguments = self.names.with_own_names(arguments)
        try:
            result = run(self.city, _CHECKERS[tool](arguments))
        except BadArgument as problem:
            return Observation(self.names.with_given_names(_error(str(problem)).content), is_error=True)
        return Observation(self.names.with_given_names(orjson.dumps(result).decode()))

    def state(self) -> dict[str, JSON]:
        return {}

    def snapshot(self) -> object:
        return self.city, self.given

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, tuple) and isinstance(snapshot[0], City)
        self.city, self.given = snapshot
        self.names = GivenNames(self.city.seed, self.given)

    def changes(self) -> dict[str, JSON]:
        return {}

    def draw_slots(self, intent: str, slot_names: frozenset[str], rng: random.Random) -> dict[str, JSON]:
        return self.names.to_given(INTENTS[intent], draw_slots(self, INTENTS[intent], slot_names, rng))

    def draw_entities(self, intent: str, slots: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        declared = INTENTS[intent]
        return self.names.to_given(declared, draw_entities(self, declared, self.names.to_own(declared, slots), rng))

    def slot_forms(self, intent: str, slots: Mapping[str, JSON]) -> frozenset[str]:
        """Besides names: ISO dates, local times on each of the days (today without one), and the city's own name."""
        dates, clocks = [], []
        for slot in INTENTS[intent].slots:
            value = slots.get(slot.name)
            if slot.kind == "date" and isinstance(value, int):
                dates.append((TODAY + timedelta(days=value)).isoformat())
            elif slot.kind == "clock" and isinstance(value, str):
                clocks.append(value)
        moments = [f"{day}T{clock}{end}" for day in dates or [TODAY.isoformat()] for clock in clocks for end in ("", ":00")]
        return super().slot_forms(intent, slots) | {*dates, *moments, CITY_EN, CITY_ZH}

    def known_names(self) -> Mapping[str, tuple[str, ...]]:
        """Places, districts, cities, lines, roads and carriers; not the words for kinds of things, which anyone may use."""
        names: dict[str, tuple[str, ...]] = {}
        for place in catalogue():
            names.update(dict.fromkeys((place.en, place.zh), (place.en, place.zh)))
        for kind in _NAMED_KINDS:
            vocabulary = KINDS[kind]
            for spellings in vocabulary.names.values():  # type: ignore[union-attr]
                together = tuple(dict.fromkeys(spellings.values()))
                names.update(dict.fromkeys(together, together))
        for line in range(ROWS + COLUMNS):
            names.update(dict.fromkeys(road_names(line), road_names(line)))
        names |= {carrier: (carrier,) for _, carrier in CARRIERS}
        return {**self.names.without_stand_ins(names), **names_given(self.given)} if self.given else names

    @staticmethod
    def possible_names() -> Mapping[str, tuple[str, ...]]:
        """What the grammar of names (stem and kind) gives beyond the catalogue."""
        kinds = [(en, zh) for en, zh, _ in LANDMARK_KINDS] + [(en, zh) for en, zh, _ in NOUNS.values()]
        generated = ((f"{stem[0]} {kind[0]}", f"{stem[1]}{kind[1]}") for stem in STEMS for kind in kinds)
        return {name: spellings for spellings in generated for name in spellings}
