"""What every intent of the city shares: slots, steps, constraint counts, and how a plan is executed while it is written.

One idea: an intent's `report` makes its calls in the world through a `Script`, which records them, and writes its answer sentence by
sentence, each with the facts in it; so the expert states nothing that no observation showed. `steps` declares the same calls without a
world; a test compares the two.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Set
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
CURRENT_WEATHER = "weather_current_conditions"
FORECAST = "weather_forecast_days"
WEB = "web_search"

SlotNames = frozenset[str]

_ENTITY_KINDS = frozenset({"place", "district", "city", "line"})
_CONFLICTS = (frozenset({"min_rating", "price_max"}), frozenset({"radius", "price_max"}))


def required(**kinds: str) -> tuple[Slot, ...]:
    """Required slots, name = kind; a slot that names a place, district, city or line is an entity."""
    return tuple(Slot(name, kind, True, kind in _ENTITY_KINDS) for name, kind in kinds.items())


def optional(**kinds: str) -> tuple[Slot, ...]:
    """Optional slots, as `required`."""
    return tuple(Slot(name, kind, False, kind in _ENTITY_KINDS) for name, kind in kinds.items())


class Step:
    """One call of a plan, known from the frame alone.

    parents: positions in the intent's `steps` of the calls whose results this one uses; steps that are not taken do not count.
    when: slots that must all be given for the call to be made.
    """

    def __init__(self, tool: str, *parents: int, when: Set[str] = frozenset()) -> None:
        self.tool, self.parents, self.when = tool, parents, when


LOCATE_TWO_OR_THREE = (Step(SEARCH), Step(SEARCH), Step(SEARCH, when={"place_c"}))


class CityIntent(Intent):
    """An intent that is done by calls."""

    objects: ClassVar[frozenset[str]] = frozenset()
    """Slots that say what the job is about; every other given slot is a constraint on it (P6)."""
    steps: ClassVar[tuple[Step, ...]] = ()
    """The calls that `report` makes, in order."""

    def shape(self, slot_names: SlotNames) -> Shape:
        places: dict[int, int] = {}
        calls: list[tuple[str, tuple[int, ...]]] = []
        for position, step in enumerate(self.steps):
            if step.when <= slot_names:
                places[position] = len(calls)
                calls.append((step.tool, tuple(places[parent] for parent in step.parents if parent in places)))
        return Shape(tuple(calls))

    def constraints(self, slot_names: SlotNames) -> int:
        return len(slot_names - self.objects)

    def has_conflict(self, slot_names: SlotNames) -> bool:
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
    """A request that can never be done: the plan is the answer that says why.

    answers: English, Chinese.
    """

    refusal: RefusalReason

    def __init__(
        self, name: str, leaf: str, slots: tuple[Slot, ...], refusal: RefusalReason, answers: tuple[str, str], domain: str = "map"
    ) -> None:
        self.name, self.leaf, self.slots, self.refusal, self.domain = name, leaf, slots, refusal, domain
        self._answers = answers

    def shape(self, slot_names: SlotNames) -> Shape:
        return Shape(())

    def constraints(self, slot_names: SlotNames) -> int:
        return 0

    def solve(self, world: World, slots: Mapping[str, JSON], language: Language) -> Solution:
        return Solution(Plan(answer=self._answers[0 if language == "en" else 1]), Success(refusal=self.refusal))
