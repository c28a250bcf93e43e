"""The one interface of every world, and what a world declares of the jobs that can be done in it.

A world is deterministic given its seed; it snapshots and restores exactly; it validates arguments before anything else, so that a
bad call is an error *observation* (a JSON object with the key `error`), never an exception; its state is a plain JSON value.
A world also declares its intents: name, slots, plan shape, taxonomy leaf, and how to solve one. Haystack, taxonomy, grounding,
blueprints and tasks all read them here; nothing else knows what a world is about.

Wording is data: templates in `families.yaml`, cue words and synonyms in `grounding.yaml`, in the folders of city and retail. Every other
compiled world generates its wording from its spec.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

from storage.records import JSON, Given, Language, Plan, RefusalReason, Success, Tool
from synth.text.slot_kinds import SlotKind, Vocabulary

WANTED_DRAWS = 12
"""Draws of slots before `World.draw_such` gives up."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a call returned: `content` is JSON text; `is_error` says that the call was refused or failed (content has the key `error`)."""

    content: str
    is_error: bool = False


class Unsolvable(Exception):
    """No plan exists for these slots in this state of the world; other slots or another seed may have one.

    reason: a short key, such as `misfit`.
    detail: why, in words.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def misfit(detail: str) -> Unsolvable:
    """The error for slots that do not fit the state."""
    return Unsolvable("misfit", detail)


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of an intent.

    kind: the name of a slot kind of the world (`World.kinds`): two slots may share one (origin and destination are both `place`).
    is_entity: the slot names one individual (an order, a user, a place); siblings draw it anew.
    """

    name: str
    kind: str
    is_required: bool = True
    is_entity: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a plan, known from the frame alone: (tool, indices of the earlier calls whose results it uses) per call."""

    calls: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def depth(self) -> int:
        """Calls on the longest chain of dependent calls; 0 for an empty plan."""
        depths: list[int] = []
        for _, parents in self.calls:
            depths.append(1 + max((depths[parent] for parent in parents), default=0))
        return max(depths, default=0)

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(tool for tool, _ in self.calls)

    def __str__(self) -> str:
        return ">".join(f"{tool}[{','.join(map(str, parents))}]" for tool, parents in self.calls)


@dataclass(frozen=True, slots=True)
class Solution:
    plan: Plan
    success: Success


class Intent(ABC):
    """A kind of job in a world. Stateless; one instance an intent."""

    name: str
    """Unique within the world, e.g. `poi_search`."""
    leaf: str
    """Dotted leaf of the taxonomy, e.g. `discovery.poi_search.constrained_poi_search`."""
    domain: str
    slots: tuple[Slot, ...]
    refusal: RefusalReason | None = None
    """Set where the intent can never be done and the right act is to refuse (difficulty -1)."""
    needs_no_tool: bool = False
    """Set where the request is answered from the conversation alone, without a call (difficulty 0)."""

    @abstractmethod
    def shape(self, slot_names: frozenset[str]) -> Shape:
        """The plan shape for these given slots, without a world."""

    @abstractmethod
    def constraints(self, slot_names: frozenset[str]) -> int:
        """How many checkable constraints a query with these slots states (P6)."""

    @abstractmethod
    def solve(self, world: World, slots: Mapping[str, JSON], language: Language) -> Solution:
        """A minimal expert plan and success criteria in `world`, which is left as it was found.

        Raises:
            Unsolvable: these slots have no plan in this state.
        """

    def has_conflict(self, slot_names: frozenset[str]) -> bool:
        """Whether two of the constraints pull against each other and need joint optimisation (P6)."""
        return False


NOTHING: Given = MappingProxyType({})


class World(ABC):
    """An executable, stateful tool environment with a seeded state."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Raise it by hand when the same seed and calls give other output. It is part of every part id."""
    tools: ClassVar[tuple[Tool, ...]]
    intents: ClassVar[Mapping[str, Intent]]
    kinds: ClassVar[Mapping[str, SlotKind]]
    languages: ClassVar[tuple[Language, ...]] = ("en", "zh")
    """The languages that its requests can be in."""
    system_prompt: ClassVar[str] = ""
    """What every conversation of this world opens with; empty for none."""
    tools_are_given: ClassVar[bool] = False
    """Whether its tools are those of a catalogue, by name and signature."""
    has_seeded_names: ClassVar[bool] = False
    """Whether `known_names` differ from seed to seed."""
    wording: ClassVar[Mapping[str, Any] | None] = None
    """How requests are worded, in the form of a `families.yaml`, with `synonyms` of slot values as in a `grounding.yaml`; None where
    these files lie in `files`."""
    files: ClassVar[Path | None] = None
    """The folder of the world's `families.yaml` and `grounding.yaml`, where it has these."""
    units: ClassVar[Mapping[str, str]] = {}
    """What the numbers of a result's field are numbers of, by its name: a unit of `quantities.UNITS` (`m`, `minutes`, `yuan`, `count`),
    where the name itself does not end with it."""
    tool_words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Per tool, the words (both languages, lower case) with which people name what it does outright: what makes a query explicit (P6)."""
    caches: ClassVar[dict[Callable[..., Any], Callable[..., Any]]]
    """Cached functions of this class (`cached_per_world`)."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.caches = {}

    def __init__(self, seed: int, given: Given = NOTHING) -> None:
        """given: only what `given_for` returns."""
        self.given = given
        self.reset(seed)

    @classmethod
    def given_for(cls, intent: str, slots: Mapping[str, JSON]) -> Given:
        """What a world must be given beside its seed so that it holds what these slots name; nothing if any seed may hold it."""
        return NOTHING

    @classmethod
    def names_given(cls, given: Given) -> Mapping[str, tuple[str, ...]]:
        """The proper names in what a world is given; as `known_names`."""
        return {}

    @classmethod
    def language_near(cls, preferred: Language) -> Language:
        """The preferred language if the world has it, else the world's first."""
        return preferred if preferred in cls.languages else cls.languages[0]

    @classmethod
    def jobs(cls) -> tuple[Intent, ...]:
        """The intents whose tasks this machine can execute; all by default."""
        return tuple(cls.intents.values())

    @abstractmethod
    def reset(self, seed: int) -> None:
        """The state of `seed`, whatever happened before."""

    @abstractmethod
    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        """Executes one call. An unknown tool, malformed JSON, a missing, unknown or out-of-range argument, or a business rule in the way
        give an error observation and change nothing."""

    @abstractmethod
    def state(self) -> dict[str, JSON]:
        """The mutable state, as JSON; immutable surroundings (the road network) are left out."""

    @abstractmethod
    def snapshot(self) -> object:
        """An opaque, immutable copy of the state."""

    @abstractmethod
    def restore(self, snapshot: object) -> None:
        """Exactly the state at `snapshot`, which may be restored any number of times."""

    @abstractmethod
    def changes(self) -> dict[str, JSON]:
        """The difference between the state now and the state after `reset`, as `Success.changes` has it."""

    @abstractmethod
    def draw_slots(self, intent: str, slot_names: frozenset[str], rng: random.Random) -> dict[str, JSON]:
        """Values for these slots of an intent, such that the intent is usually solvable in *this* seed (an order that exists and whose
        status suits, two places that differ). Used for siblings, blueprints and the haystack."""

    def draw_such(
        self, intent: str, slot_names: frozenset[str], rng: random.Random, is_wanted: Callable[[Mapping[str, JSON]], bool]
    ) -> dict[str, JSON] | None:
        """`draw_slots`, repeated until `is_wanted` accepts the values; None if a limited number of draws gives none."""
        candidates = (self.draw_slots(intent, slot_names, rng) for _ in range(WANTED_DRAWS))
        return next((slots for slots in candidates if is_wanted(slots)), None)

    def draw_entities(self, intent: str, slots: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        """`slots` with those that name individuals drawn anew, the others kept; usually solvable in this seed."""
        redrawn = self.draw_slots(intent, frozenset(slots), rng)
        entities = {slot.name for slot in self.intents[intent].slots if slot.is_entity}
        return {name: redrawn[name] if name in entities else value for name, value in slots.items()}

    def draw_rest(self, intent: str, slots: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        """These slots, with values for all others that the intent needs; where this seed has such, values that go together."""
        required = {slot.name for slot in self.intents[intent].slots if slot.is_required}
        return {**self.draw_slots(intent, frozenset(required | slots.keys()), rng), **slots}

    def slot_forms(self, intent: str, slots: Mapping[str, JSON]) -> frozenset[str]:
        """Every spelling in which a call may carry what these slots say: canonical values and both languages' names.

        What a request says in words ("tomorrow", "1.5 km") reaches a call in a canonical form; this is what makes it grounded.
        Worlds with other forms (an ISO date for a count of days) add them.
        """
        forms = {str(value) for value in slots.values()}
        for slot in self.intents[intent].slots:
            kind = self.kinds[slot.kind]
            if isinstance(kind, Vocabulary) and slots.get(slot.name) in kind.names:
                forms.update(kind.names[slots[slot.name]].values())
        return frozenset(forms)

    def known_names(self) -> Mapping[str, tuple[str, ...]]:
        """Names that an answer may contain only if the conversation contains them before it: spelling -> all spellings of the same thing.

        By default the values of all vocabularies; worlds add the names of what they hold.
        """
        names: dict[str, tuple[str, ...]] = {}
        for kind in self.kinds.values():
            if isinstance(kind, Vocabulary):
                for value, spellings in kind.names.items():
                    together = tuple(dict.fromkeys((*spellings.values(), value)))
                    names.update(dict.fromkeys(together, together))
        return names

    @staticmethod
    def possible_names() -> Mapping[str, tuple[str, ...]]:
        """Names that any world of this kind may draw, whether this one holds them or not; as `known_names`. None by default."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Releases what the world holds outside memory; nothing by default."""


P = ParamSpec("P")
R = TypeVar("R")


def cached_per_world(
    maxsize: int | None = None,
) -> Callable[[Callable[Concatenate[type[World], P], R]], Callable[Concatenate[type[World], P], R]]:
    """Caches the results of a function of a world's class in that class, so that they go when the class goes.

    maxsize: results that are kept of each world, the last used ones; None for all.
    """

    def decorate(function: Callable[Concatenate[type[World], P], R]) -> Callable[Concatenate[type[World], P], R]:
        @wraps(function)
        def cached(world: type[World], /, *arguments: P.args, **keywords: P.kwargs) -> R:
            cached_function: Callable[P, R] | None = world.caches.get(function)
            if cached_function is None:
                cached_function = cast("Callable[P, R]", lru_cache(maxsize)(partial(function, world)))
                world.caches[function] = cached_function
            return cached_function(*arguments, **keywords)

        return cached

    return decorate
