"""The planner that is a language model: it decides what a person wants and how they say it; a program solves it, and says what is wrong.

What it writes is no plan of calls, which it could get wrong unseen, but goals with slots and words. The world's own solver plans the
calls in a real world, the same static checks hold as for scripted plans (`blueprints.static_checks`), and the criteria of success are the
solver's. Everything that is wrong, from an illegal value to the wrong complexity band, is told to the model, which writes again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from storage.records import JSON, Cost, Language, Message
from synth.blueprints.blueprint import Bands, Blueprint, Goal
from synth.blueprints.cell import FAMILIES, OTHER, Band, Cell
from synth.blueprints.conversation_template import IntentPool, intent_pool
from synth.blueprints.draft import WORLD_SEEDS, Draft, Offer, PlanFailed, Said, may_use
from synth.blueprints.phrases import PERSONAS, can_withhold, slots_of
from synth.blueprints.planner import TRIES_BEFORE_MERGING, Planner
from synth.blueprints.schedule import ConversationTemplate, GoalTemplate
from synth.clusters.business_clusters import Cluster
from synth.engines.base import ChatRequest, Engine
from synth.engines.structured import ask
from synth.prompts import prompt
from synth.roles.model_roles import TEMPERATURE, seed_of
from synth.roles.user_script import instruction_problems, mentions
from synth.tasks.solver import training_seed
from synth.text.claims import has_chinese, normalise
from synth.text.slot_kinds import Date, Identifier, Quantity, SlotKind, Vocabulary
from synth.worlds.base import World

PROMPT = "planner"
MAX_TOKENS = 1500
_MOST_GOALS, _MOST_INTENTS, _MOST_VALUES, _EXAMPLES = 5, 12, 16, 3
_MOST_URGENT = 3
"""Intents that the model is asked to plan for, of those that a policy fails at."""
_MOST_COMPUTING = 3
"""Intents that it is offered, of those that need a program, where one is to be needed."""
_MODES: Mapping[str, str] = {
    "N": "the assistant answers without a call",
    "A": "the assistant asks the person",
    "C": "a call",
    "P": "several calls at once",
    "S": "a call that uses an earlier result",
    "R": "a call again, because it failed",
    "V": "reads again what was read before",
    "F": "the answer",
}
_ADVICE: Mapping[Band, str] = {
    "low": "One simple goal will do.",
    "mid": "One goal of several calls, or two simple goals.",
    "high": "Two to four goals, with constraints, things that follow from each other, or a disturbance.",
}


@dataclass(frozen=True, slots=True)
class _SlotText:
    name: str
    is_required: bool
    values: str


@dataclass(frozen=True, slots=True)
class _IntentText:
    name: str
    is_own: bool
    is_urgent: bool
    slots: tuple[_SlotText, ...]
    examples: tuple[str, ...]


class ModelPlanner:
    """Plans for clusters with a world.

    Args:
        rules: which frames may be used, the share of Chinese, the bands, what is wanted most, and, where `code_share` is 1, that a program
            is needed: as for the scripted planner. Not its veils, which are put over requests that a program words, nor `used_modes`, by
            which it chooses among recipes, nor other families than the cell's (`propose`): the model is asked for the cell alone.
        repairs: how often a plan may be written again.
    """

    def __init__(self, engine: Engine, rules: Planner, *, repairs: int = 3) -> None:
        self._engine, self._rules, self._repairs = engine, rules, repairs
        self.cost = Cost()
        """Of all plans so far."""

    def propose(self, cell: Cell, clusters: Sequence[Cluster], failures: int, rng: random.Random) -> tuple[Cluster, Blueprint]:
        """A blueprint that is predicted to lie in the cell, and its cluster, the first of those given; or, after all repairs, one that can
        be done and is at least of the domain: it has been paid for.

        failures: how often this cell was missed before; after some of them two clusters of one world are merged.

        Raises:
            PlanFailed: no plan was right after all repairs (`model_plan`).
            EngineFailure, BudgetSpent: as the engine's `chat`.
        """
        partners = [other for other in clusters[1:2] if other.world == clusters[0].world and failures >= TRIES_BEFORE_MERGING]
        offer = self._rules.offer(clusters[0], *partners)
        desk = _Desk(self._rules, offer, cell, rng)
        request = ChatRequest(
            desk.messages(), (), TEMPERATURE, MAX_TOKENS, seed_of("planner", rng.random()), schema=_schema(desk.menu.intents)
        )
        found = ask(self._engine, [request], repairs=self._repairs, check=lambda _, plan: desk.problems(plan))[0]
        self.cost += found.cost
        blueprint = desk.blueprint or desk.nearest
        if blueprint is None:
            raise PlanFailed("model_plan", found.problems[0])
        return offer.cluster, blueprint


class _Desk:
    """One plan in the making."""

    def __init__(self, rules: Planner, offer: Offer, cell: Cell, rng: random.Random) -> None:
        self.rules, self.offer, self.cell, self.rng = rules, offer, cell, rng
        self.menu: IntentPool = intent_pool(offer.world, offer.tools)
        self.language: Language = "zh" if rng.random() < rules.chinese_share else "en"
        self.seed = training_seed(rng.randrange(WORLD_SEEDS))
        self.draws = rng.random()
        self.computing: frozenset[str] = self.menu.computing if rules.code_share == 1.0 else frozenset()
        """Intents of which one is to be planned, because it needs a program; any will do where there are none."""
        self.blueprint: Blueprint | None = None
        self.nearest: Blueprint | None = None
        """The last plan that can be done, and is of the domain, whatever its modes, its complexity, and whether it needs a program."""

    def messages(self) -> tuple[Message, ...]:
        bands: Bands | None = self.rules.bands
        assert bands is not None
        low, high = {"low": (0.0, bands.low_to), "mid": (bands.low_to, bands.high_from), "high": (bands.high_from, 3 * bands.high_from)}[
            self.cell.band
        ]
        return prompt(PROMPT).messages(
            domain=self.cell.domain,
            language=self.language,
            tools=[tool for tool in self.offer.world.tools if tool.name in self.offer.tools],
            intents=list(self._intents()),
            modes=_described(self.cell.family),
            low=f"{low:.1f}",
            high=f"{high:.1f}",
            advice=_ADVICE[self.cell.band],
            computing=self._computing(),
        )

    def _computing(self) -> list[str]:
        """Those of the intents that need a program, where one is to be needed, that the model is told of: of the domain first."""
        intents = self.offer.world.intents
        return sorted(self.computing, key=lambda name: (intents[name].domain != self.cell.domain, name))[:_MOST_COMPUTING]

    def _intents(self) -> Iterator[_IntentText]:
        own = [name for name in self.menu.intents if self.offer.world.intents[name].domain == self.cell.domain]
        others = [name for name in self.menu.intents if name not in own]
        factors = {name: self.rules.factors.get((self.offer.world.name, name), 1.0) for name in own}
        own.sort(key=lambda name: -factors[name])
        urgent = [name for name in own[:_MOST_URGENT] if factors[name] > 1]
        world, rng = self.offer.world(self.seed), random.Random(self.draws)
        try:
            for name in list(dict.fromkeys((*self._computing(), *own, *others)))[:_MOST_INTENTS]:
                slots = slots_of(self.offer.world, name)
                told = tuple(_SlotText(slot.name, slot.is_required, self._legal(world.kinds[slot.kind])) for slot in slots.values())
                yield _IntentText(name, name in own, name in urgent, told, self._examples(world, name, rng))
        finally:
            world.close()

    def _examples(self, world: World, intent: str, rng: random.Random) -> tuple[str, ...]:
        """Values that may be used: of the required slots, and with some of the others."""
        slots = slots_of(self.offer.world, intent)
        required = frozenset(slot.name for slot in slots.values() if slot.is_required)
        optional = sorted(slots.keys() - required)
        found = []
        for more in range(_EXAMPLES):
            names = required.union(rng.sample(optional, min(more, len(optional))))
            drawn = world.draw_such(intent, names, rng, lambda slots: may_use(self.rules.is_allowed, self.offer.world, intent, slots))
            found += [json.dumps(drawn, ensure_ascii=False)] if drawn is not None else []
        return tuple(dict.fromkeys(found))

    def problems(self, plan: JSON) -> list[str]:
        """What is wrong with a plan of the schema; where nothing is, its blueprint is kept."""
        goals = [self._canonical(goal) for goal in plan["goals"]]
        found = [f"goal {at}: {problem}" for at, goal in enumerate(goals) for problem in self._goal_problems(goal, is_first=at == 0)]
        if found or (found := [f"goal {at}: {problem}" for at, goal in enumerate(goals) for problem in self._kept(goal)]):
            return found
        recipe = ConversationTemplate(self.offer.world, tuple(_recipe(goal, self.offer.world) for goal in goals), plan["parallel"])
        said = [Said(goal["slots"], goal["request"], goal["reveal"] or "") for goal in goals]
        draft = Draft(
            recipe,
            self.offer,
            frozenset(),
            self.language,
            self.rules.is_allowed,
            self.rng,
            said=said,
            seed=self.seed,
            persona=plan["persona"],
        )
        try:
            written = self.rules.checked(_written(draft), None)
            if wrong := [f"goal {at}: {_POINTING}" for at, goal in enumerate(goals) if not _is_all_said(goal, written.goals[at])]:
                return wrong
            self.nearest = written if written.domain == self.cell.domain else self.nearest
            if self.computing and self.computing.isdisjoint(goal["intent"] for goal in goals):
                return [f"one goal must need run_python: one of these intents: {', '.join(self._computing())}"]
            self.blueprint = self.rules.checked(written, self.cell)
        except PlanFailed as failed:
            return [_HINTS.get(failed.reason, failed.reason.replace("_", " ")) + (f": {failed.detail}" if failed.detail else "")]
        return []

    def _canonical(self, goal: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """The goal with its values as frames hold them: whether one may be used is decided by a hash of them."""
        slots, kinds = slots_of(self.offer.world, goal["intent"]), self.offer.world.kinds
        found = {name: _canonical(value, kinds[slots[name].kind]) if name in slots else value for name, value in goal["slots"].items()}
        return {**goal, "slots": found}

    def _legal(self, kind: SlotKind) -> str:
        """What a slot's value may be, in words."""
        if isinstance(kind, Vocabulary):
            said = {value: names[self.language] for value, names in sorted(kind.names.items())}
            values = [value if value == word else f"{value} ({word})" for value, word in said.items()]
            return f"one of {', '.join(values[:_MOST_VALUES])}" + (" and others" if len(values) > _MOST_VALUES else "")
        if isinstance(kind, Quantity):
            usual = ", ".join(f"{choice:g}" for choice in kind.choices[:4])
            return f"a number from {kind.low:g} to {kind.high:g} ({kind.unit}), usually {usual}"
        if isinstance(kind, Date):
            return f"a whole number of days from {kind.today.isoformat()} on, 0 to {kind.horizon_days}"
        return "an identifier that exists, as in the examples"

    def _kept(self, goal: Mapping[str, JSON]) -> Iterator[str]:
        """Whether the goal's combination of values is kept for another use, and which may be taken instead."""
        intent = goal["intent"]
        if goal["chained"] or may_use(self.rules.is_allowed, self.offer.world, intent, goal["slots"]):
            return
        world = self.offer.world(self.seed)
        try:
            own = self.menu.by_domain.get(self.cell.domain, ())
            free = [f"{name} {one}" for name in dict.fromkeys((intent, *own)) for one in self._examples(world, name, self.rng)]
        finally:
            world.close()
        yield f"these values together are kept for another use; take such as {' or '.join(free[:_EXAMPLES])}"

    def _goal_problems(self, goal: Mapping[str, JSON], *, is_first: bool) -> Iterator[str]:
        slots, world = slots_of(self.offer.world, goal["intent"]), self.offer.world
        pointed = {slot.name for slot in slots.values() if goal["chained"] and slot.is_entity}
        missing = [slot.name for slot in slots.values() if slot.is_required and slot.name not in goal["slots"]]
        yield from (f"slot {name} is required" for name in missing if name not in pointed)
        yield from (f"there is no slot {name}; there are {', '.join(slots)}" for name in goal["slots"] if name not in slots)
        for name, value in goal["slots"].items():
            if name in slots and not _is_legal(value, world.kinds[slots[name].kind]):
                yield f"slot {name} may not be {value!r}, but {self._legal(world.kinds[slots[name].kind])}"
        if is_first and (goal["chained"] or goal["joint"]):
            yield "the first goal has none before it to follow from or be joined to"
        withheld = goal["withheld"]
        if withheld is not None and goal["joint"]:
            yield "a goal that is joint withholds nothing: nobody would ask for it"
        if withheld is not None and (withheld not in goal["slots"] or not goal["reveal"]):
            yield f"slot {withheld} is withheld, so it must be among the slots, and reveal must say it"
        elif withheld in slots and not can_withhold(self.offer.world, slots[withheld]):
            askable = [name for name in goal["slots"] if name in slots and can_withhold(self.offer.world, slots[name])]
            yield f"the assistant cannot ask for {withheld}; withhold {' or '.join(askable) or 'nothing'}"
        legal = {name: value for name, value in goal["slots"].items() if name in slots and _is_legal(value, world.kinds[slots[name].kind])}
        yield from self._word_problems(goal, legal)

    def _word_problems(self, goal: Mapping[str, JSON], slots: Mapping[str, JSON]) -> Iterator[str]:
        request, reveal, withheld = goal["request"], goal["reveal"] or "", goal["withheld"]
        world = self.offer.world(self.seed)
        try:
            forms = {name: {normalise(form) for form in world.slot_forms(goal["intent"], {name: value})} for name, value in slots.items()}
        finally:
            world.close()
        for name, spellings in forms.items():
            if name == withheld:
                if mentions(request, spellings):
                    yield f"the request says {name}, which is withheld"
                if not mentions(reveal, spellings):
                    yield f"reveal does not say {name}, e.g. {min(spellings, key=len)!r}"
            elif not mentions(request, spellings):
                yield f"the request does not say {name}, e.g. {min(spellings, key=len)!r}"
        if has_chinese(request) != (self.language == "zh"):
            yield f"the person writes {'Chinese' if self.language == 'zh' else 'English'}"
        tools = [tool for tool in self.offer.world.tools if tool.name in self.offer.tools]
        parameters = {name for tool in tools for name in tool.parameters.get("properties", {})}
        yield from instruction_problems(f"{request}\n{reveal}", [tool.name for tool in tools], parameters)


def _written(draft: Draft) -> Blueprint:
    """The draft, written.

    Raises:
        PlanFailed: as `Draft.write`, or `impossible`: the world's solver broke at what it was given, which only a model would think of.
    """
    try:
        return draft.write()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise PlanFailed("impossible") from error


_HINTS: Mapping[str, str] = {
    "impossible": "this cannot be done with these values",
    "misfit": "this cannot be done in this world with these values; take others",
    "not_allowed": "what follows from the answer before is kept for another use; let something else follow",
    "nothing_to_point_at": "the answer before names nothing that this goal could point at",
    "nothing_to_drop": "nothing is read before it is changed, so there is no moment to change one's mind",
    "outside_cluster": "the goal needs a tool that is not on offer",
    "goals_interfere": "the goals undo each other",
    "static_checks": "the conversation would not be what is wanted",
}


_POINTING = "of a goal that is chained, leave out the one slot that the answer before names, and no other"


def _is_all_said(goal: Mapping[str, JSON], written: Goal) -> bool:
    """Whether the slots are those of the plan, and beside them just the one that is pointed at."""
    return set(written.slots).difference(goal["slots"]) == set(written.hidden)


def _recipe(goal: Mapping[str, JSON], world: type[World]) -> GoalTemplate:
    slots = frozenset(goal["slots"])
    if goal["chained"]:
        slots |= {slot.name for slot in slots_of(world, goal["intent"]).values() if slot.is_entity and slot.is_required}
    return GoalTemplate(
        intent=goal["intent"],
        slots=slots,
        withheld=goal["withheld"],
        is_chained=goal["chained"],
        is_joint=goal["joint"],
        asks_first=goal["asks_first"],
        is_dropped=goal["dropped"],
        fault=goal["fault"],
        check=goal["check"],
    )


def _schema(intents: Sequence[str]) -> dict[str, JSON]:
    flag: dict[str, JSON] = {"type": "boolean"}
    text: dict[str, JSON] = {"type": ["string", "null"], "maxLength": 600}
    goal: dict[str, JSON] = {
        "intent": {"enum": list(intents)},
        "slots": {"type": "object", "additionalProperties": {"type": ["string", "number", "integer", "boolean"]}},
        "request": {"type": "string", "minLength": 2, "maxLength": 1000},
        "withheld": text,
        "reveal": text,
        "chained": flag,
        "joint": flag,
        "asks_first": flag,
        "dropped": flag,
        "fault": {"enum": ["error", "empty", None]},
        "check": {"enum": ["self", "asked", None]},
    }
    goals: dict[str, JSON] = {
        "type": "array",
        "minItems": 1,
        "maxItems": _MOST_GOALS,
        "items": {"type": "object", "properties": goal, "required": list(goal), "additionalProperties": False},
    }
    properties: dict[str, JSON] = {"persona": {"enum": sorted(PERSONAS)}, "parallel": flag, "goals": goals}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _described(family: str) -> str:
    """A mode family in words."""
    if family == OTHER:
        return "unlike all of these: " + "; ".join(_described(known) for known in FAMILIES)
    return ", then ".join(_MODES[mode] for mode in family.split(">"))


def _canonical(value: JSON, kind: SlotKind) -> JSON:
    """A value as frames hold it: identifiers in lower case, quantities with at most one decimal. What is no such value stays."""
    if isinstance(kind, Identifier) and isinstance(value, str):
        return normalise(value).strip()
    if isinstance(kind, Quantity) and _is_number(value) and kind.low <= value <= kind.high:
        return kind.canonical(round(float(value), 1) + 0.0)  # no minus zero
    return int(value) if isinstance(kind, Date) and isinstance(value, float) and value.is_integer() else value


def _is_legal(value: JSON, kind: SlotKind) -> bool:
    """Whether a canonical value is one of the kind's."""
    if isinstance(kind, Vocabulary):
        return isinstance(value, str) and value in kind.names
    if isinstance(kind, Identifier):
        return isinstance(value, str) and value in kind.choices
    if isinstance(kind, Quantity):
        is_one = isinstance(value, int) or kind.unit != "count" or kind.has_decimals
        return _is_number(value) and is_one and kind.low <= value <= kind.high
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= kind.horizon_days


def _is_number(value: JSON) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
