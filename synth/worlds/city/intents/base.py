"""What every intent of the city shares: slots, shapes, constraint counts, and how a plan is really executed while it is written.

One idea: an intent's `report` runs its calls in the world through a `Script`, which records them, and says its answer sentence by
sentence, each with the facts in it; nothing is known to the expert that an observation did not show.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from storage.records import JSON, Language, Plan, RefusalReason, Success
from synth.worlds.base import Intent, Shape, Slot, Solution, World
from synth.worlds.city.plan_recorder import Script

SEARCH = "map_search_places"
ROUTES = "map_compute_routes"
ALONG = "map_search_along_route"
CENTRAL = "map_search_central_places"
RANKING = "map_search_ranking_list"
FLIGHTS = "travel_search_flights"
TRAINS = "travel_search_trains"
CONDITIONS = "weather_current_conditions"
FORECAST = "weather_forecast_days"
WEB = "web_search"

Given = frozenset[str]

_ENTITY_KINDS = frozenset({"place", "district", "city", "line"})
_CONFLICTS = (frozenset({"min_rating", "price_max"}), frozenset({"radius", "price_max"}))


def required(**kinds: str) -> tuple[Slot, ...]:
    """Required slots, name = kind; a slot that names a place, district, city or line is an entity."""
    return tuple(Slot(name, kind, True, kind in _ENTITY_KINDS) for name, kind in kinds.items())


def optional(**kinds: str) -> tuple[Slot, ...]:
    """Optional slots, as `required`."""
    return tuple(Slot(name, kind, False, kind in _ENTITY_KINDS) for name, kind in kinds.items())


class Steps:
    """A shape under construction: `add` returns the index of the new call."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, tuple[int, ...]]] = []

    def add(self, tool: str, *parents: int) -> int:
        self._calls.append((tool, tuple(sorted(set(parents)))))
        return len(self._calls) - 1

    def locate(self, count: int) -> list[int]:
        """`count` searches for named places, none of which needs another."""
        return [self.add(SEARCH) for _ in range(count)]

    @property
    def shape(self) -> Shape:
        return Shape(tuple(self._calls))


class CityIntent(Intent):
    """An intent that is done by calls."""

    objects: ClassVar[frozenset[str]] = frozenset()
    """Slots that say what the job is about; every other given slot is a constraint on it (P6)."""

    def constraints(self, slot_names: Given) -> int:
        return len(slot_names - self.objects)

    def has_conflict(self, slot_names: Given) -> bool:
        return any(pair <= slot_names for pair in _CONFLICTS)

    def solve(self, world: World, slots: Mapping[str, JSON], language: Language) -> Solution:
        script = Script(world, language)
        self.report(script, slots)
        return script.solution()

    @abstractmethod
    def report(self, script: Script, slots: Mapping[str, JSON]) -> None:
        """Executes the plan and says the answer.

        Raises:
            Unsolvable: the seed has no answer for these slots.
        """


class RefusalIntent(Intent):
    """An intent that can never be done: the plan is the answer that says why."""

    refusal: RefusalReason | None
    detail_en: ClassVar[str]
    detail_zh: ClassVar[str]
    domain = "map"

    def shape(self, slot_names: Given) -> Shape:
        return Shape(())

    def constraints(self, slot_names: Given) -> int:
        return 0

    def solve(self, world: World, slots: Mapping[str, JSON], language: Language) -> Solution:
        assert self.refusal is not None
        return Solution(Plan(answer=self.detail_en if language == "en" else self.detail_zh), Success(refusal=self.refusal))
