"""The planner that is a language model: it writes what a person wants and says; a program solves and checks it.

The model writes goals with slots and words, not calls. The world's solver plans the calls, sets the criteria of success, and the static
checks of scripted plans apply (`blueprints.static_checks`). Every problem, from an illegal value to the wrong complexity band, is sent back
to the model, which writes the plan again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from storage.records import JSON, Cost, Language, Message
from synth.blueprints.blueprint import Bands, Blueprint
from synth.blueprints.cell import FAMILIES, OTHER, Band, Cell
from synth.blueprints.conversation_template import IntentPool, intent_pool
from synth.blueprints.draft import WORLD_SEEDS, Draft, GoalText, Offer, PlanFailed, may_use, training_filter
from synth.blueprints.phrases import PERSONAS, can_withhold, slots_of
from synth.blueprints.planner import TRIES_BEFORE_MERGING, Planner
from synth.blueprints.schedule import ConversationTemplate, GoalTemplate
from synth.clusters.business_clusters import Cluster
from synth.engines.base import ChatRequest, Engine
from synth.engines.structured import ask
from synth.prompts import prompt
from synth.roles.model_roles import TEMPERATURE, seed_of
from synth.roles.user_script import instruction_problems, mentions, shortest
from synth.tasks.solver import training_seed
from synth.text.claims import has_chinese, normalise
from synth.text.slot_kinds import Date, Identifier, Quantity, SlotKind, Vocabulary
from synth.worlds.base import World

PROMPT = "planner"
MAX_TOKENS = 1500
_REPAIRS = 3
"""How often a plan may be written again."""
_MAX_GOALS, _MAX_INTENTS, _MAX_VALUES, _EXAMPLES = 5, 12, 16, 3
_MAX_URGENT, _MAX_COMPUTING = 3, 3
"""Most intents in the prompt that a policy fails at, and that need a program."""
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
    """Plans conversations in one world, with one cluster of tools each. cost: of all plans so far.

    rules: the scripted planner. Its allowed frames, share of Chinese, bands, factors and (if it is 1) `code_share` apply. Its
        perturbations, `used_modes` and other mode families do not: they belong to scripted wording and templates.
    """

    def __init__(self, engine: Engine, rules: Planner) -> None:
        self._engine, self._rules = engine, rules
        self.cost = Cost()

    def propose(self, cell: Cell, clusters: Sequence[Cluster], failures: int, rng: random.Random) -> tuple[Cluster, Blueprint]:
        """A cluster (the first of those given) and a blueprint that is predicted to lie in the cell. After all repairs, also a feasible
        blueprint of the domain in another cell is returned: it has been paid for.

        failures: how often this cell was missed before; after some failures two clusters of one world are merged.

        Raises:
            PlanFailed: no plan was valid after all repairs (`model_plan`).
            EngineFailure, BudgetSpent: as the engine's `chat`.
        """
        partners = [other for other in clusters[1:2] if other.world == clusters[0].world and failures >= TRIES_BEFORE_MERGING]
        offer = self._rules.offer(clusters[0], *partners)
        plan = _PlanCheck(self._rules, offer, cell, rng)
        seed = seed_of("planner", rng.random())
        request = ChatRequest(plan.messages(), (), TEMPERATURE, MAX_TOKENS, seed, schema=_schema(plan.pool.intents))
        (answer,) = ask(self._engine, [request], repairs=_REPAIRS, check=lambda _, value: plan.problems(value))
        self.cost += answer.cost
        blueprint = plan.blueprint or plan.nearest
        if blueprint is None:
            raise PlanFailed("model_plan", answer.problems[0])
        return offer.cluster, blueprint


class _PlanCheck:
    """The prompt of one plan, and the checks of the model's answers.

    computing: intents of which the plan needs one, because they need a program; empty for no such condition.
    blueprint: of the last valid answer.
    nearest: of the last feasible answer of the domain, whatever its modes, complexity, and need of a program.
    """

    def __init__(self, rules: Planner, offer: Offer, cell: Cell, rng: random.Random) -> None:
        self.rules, self.offer, self.cell, self.rng = rules, offer, cell, rng
        self.pool: IntentPool = intent_pool(offer.world, offer.tools)
        self.language: Language = offer.world.language_near("zh" if rng.random() < rules.chinese_share else "en")
        self.seed = training_seed(rng.randrange(WORLD_SEEDS))
        self.example_seed = rng.random()
        self.computing: frozenset[str] = self.pool.computing if rules.code_share == 1.0 else frozenset()
        self.blueprint: Blueprint | None = None
        self.nearest: Blueprint | None = None
        self.tools = [tool for tool in offer.world.tools if tool.name in offer.tools]

    def messages(self) -> tuple[Message, ...]:
        bands: Bands | None = self.rules.bands
        assert bands is not None
        low, high = {"low": (0.0, bands.low_to), "mid": (bands.low_to, bands.high_from), "high": (bands.high_from, 3 * bands.high_from)}[
            self.cell.band
        ]
        return prompt(PROMPT).messages(
            domain=self.cell.domain,
            language=self.language,
            tools=self.tools,
            intents=list(self._intents()),
            modes=_family_text(self.cell.family),
            low=f"{low:.1f}",
            high=f"{high:.1f}",
            advice=_ADVICE[self.cell.band],
            computing=self._computing(),
        )

    def _computing(self) -> list[str]:
        """The intents of `computing` in the prompt: those of the domain first."""
        intents = self.offer.world.intents
        return sorted(self.computing, key=lambda name: (intents[name].domain != self.cell.domain, name))[:_MAX_COMPUTING]

    def _intents(self) -> Iterator[_IntentText]:
        in_domain = [name for name in self.pool.intents if self.offer.world.intents[name].domain == self.cell.domain]
        others = [name for name in self.pool.intents if name not in in_domain]
        factors = {name: self.rules.factors.get((self.offer.world.name, name), 1.0) for name in in_domain}
        in_domain.sort(key=lambda name: -factors[name])
        urgent = [name for name in in_domain[:_MAX_URGENT] if factors[name] > 1]
        world, rng = self.offer.world(self.seed), random.Random(self.example_seed)
        try:
            for name in list(dict.fromkeys((*self._computing(), *in_domain, *others)))[:_MAX_INTENTS]:
                slots = slots_of(self.offer.world, name)
                texts = tuple(_SlotText(slot.name, slot.is_required, self._legal_text(world.kinds[slot.kind])) for slot in slots.values())
                yield _IntentText(name, name in in_domain, name in urgent, texts, self._examples(world, name, rng))
        finally:
            world.close()

    def _examples(self, world: World, intent: str, rng: random.Random) -> tuple[str, ...]:
        """Allowed values, as JSON: of the required slots alone, and with some optional ones."""
        slots = slots_of(self.offer.world, intent)
        required = frozenset(slot.name for slot in slots.values() if slot.is_required)
        optional = sorted(slots.keys() - required)
        examples = []
        for more in range(_EXAMPLES):
            names = required.union(rng.sample(optional, min(more, len(optional))))
            drawn_slots = world.draw_such(intent, names, rng, lambda slots: may_use(self.rules.is_allowed, self.offer.world, intent, slots))
            examples += [json.dumps(drawn_slots, ensure_ascii=False)] if drawn_slots is not None else []
        return tuple(dict.fromkeys(examples))

    def problems(self, plan: JSON) -> list[str]:
        """The problems of a plan that fits the schema; if there are none, `blueprint` is set."""
        goals = [self._canonical_goal(goal) for goal in plan["goals"]]
        problems = [f"goal {at}: {problem}" for at, goal in enumerate(goals) for problem in self._goal_problems(goal, is_first=at == 0)]
        if problems or (
            problems := [f"goal {at}: {problem}" for at, goal in enumerate(goals) for problem in self._reserved_problems(goal)]
        ):
            return problems
        template = ConversationTemplate(self.offer.world, tuple(_goal_template(goal, self.offer.world) for goal in goals), plan["parallel"])
        goal_texts = [GoalText(goal["slots"], goal["request"], goal["reveal"] or "") for goal in goals]
        is_usable, persona = training_filter(self.rules.is_allowed, self.offer.world), plan["persona"]
        draft = Draft(
            template, self.offer, frozenset(), self.language, is_usable, self.rng, goal_texts=goal_texts, seed=self.seed, persona=persona
        )
        try:
            written = self.rules.check_blueprint(_write(draft), None)
            for at, (goal, done) in enumerate(zip(goals, written.goals, strict=True)):
                if set(done.slots).difference(goal["slots"]) != set(done.hidden):
                    problems.append(
                        f"goal {at}: of a goal that is chained, leave out the one slot that the answer before names, and no other"
                    )
            if problems:
                return problems
            self.nearest = written if written.domain == self.cell.domain else self.nearest
            if self.computing and self.computing.isdisjoint(goal["intent"] for goal in goals):
                return [f"one goal must need run_python: one of these intents: {', '.join(self._computing())}"]
            self.blueprint = self.rules.check_blueprint(written, self.cell)
        except PlanFailed as failed:
            return [_HINTS.get(failed.reason, failed.reason.replace("_", " ")) + (f": {failed.detail}" if failed.detail else "")]
        return []

    def _canonical_goal(self, goal: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """The goal with canonical values: a hash of them decides whether they may be used."""
        slots, kinds = slots_of(self.offer.world, goal["intent"]), self.offer.world.kinds
        values = {name: _canonical(value, kinds[slots[name].kind]) if name in slots else value for name, value in goal["slots"].items()}
        return {**goal, "slots": values}

    def _legal_text(self, kind: SlotKind) -> str:
        """The legal values of a slot, in words."""
        if isinstance(kind, Vocabulary):
            words = {value: names[self.language] for value, names in sorted(kind.names.items())}
            values = [value if value == word else f"{value} ({word})" for value, word in words.items()]
            return f"one of {', '.join(values[:_MAX_VALUES])}" + (" and others" if len(values) > _MAX_VALUES else "")
        if isinstance(kind, Quantity):
            usual = ", ".join(f"{choice:g}" for choice in kind.choices[:4])
            return f"a number from {kind.low:g} to {kind.high:g} ({kind.unit}), usually {usual}"
        if isinstance(kind, Date):
            return f"a whole number of days from {kind.today.isoformat()} on, 0 to {kind.horizon_days}"
        return "an identifier that exists, as in the examples"

    def _reserved_problems(self, goal: Mapping[str, JSON]) -> Iterator[str]:
        """A problem if the goal's combination of values is reserved (for evaluation), with examples of others."""
        intent = goal["intent"]
        if goal["chained"] or may_use(self.rules.is_allowed, self.offer.world, intent, goal["slots"]):
            return
        world = self.offer.world(self.seed)
        try:
            domain_intents = self.pool.by_domain.get(self.cell.domain, ())
            free = [f"{name} {one}" for name in dict.fromkeys((intent, *domain_intents)) for one in self._examples(world, name, self.rng)]
        finally:
            world.close()
        yield f"these values together are kept for another use; take such as {' or '.join(free[:_EXAMPLES])}"

    def _goal_problems(self, goal: Mapping[str, JSON], *, is_first: bool) -> Iterator[str]:
        slots, world = slots_of(self.offer.world, goal["intent"]), self.offer.world
        referenced = {slot.name for slot in slots.values() if goal["chained"] and slot.is_entity}
        missing = [slot.name for slot in slots.values() if slot.is_required and slot.name not in goal["slots"]]
        yield from (f"slot {name} is required" for name in missing if name not in referenced)
        yield from (f"there is no slot {name}; there are {', '.join(slots)}" for name in goal["slots"] if name not in slots)
        for name, value in goal["slots"].items():
            if name in slots and not _is_legal(value, world.kinds[slots[name].kind]):
                yield f"slot {name} may not be {value!r}, but {self._legal_text(world.kinds[slots[name].kind])}"
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
                    yield f"reveal does not say {name}, e.g. {shortest(spellings)!r}"
            elif not mentions(request, spellings):
                yield f"the request does not say {name}, e.g. {shortest(spellings)!r}"
        if has_chinese(request) != (self.language == "zh"):
            yield f"the person writes {'Chinese' if self.language == 'zh' else 'English'}"
        parameters = {name for tool in self.tools for name in tool.parameters.get("properties", {})}
        yield from instruction_problems(f"{request}\n{reveal}", [tool.name for tool in self.tools], parameters)


def _write(draft: Draft) -> Blueprint:
    """The draft's blueprint.

    Raises:
        PlanFailed: as `Draft.write`, or `impossible`: the world's solver failed on slots that no scripted plan has.
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


def _goal_template(goal: Mapping[str, JSON], world: type[World]) -> GoalTemplate:
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
        has_fault=goal["fault"],
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
        "fault": flag,
        "check": {"enum": ["first", "later", None]},
    }
    goals: dict[str, JSON] = {
        "type": "array",
        "minItems": 1,
        "maxItems": _MAX_GOALS,
        "items": {"type": "object", "properties": goal, "required": list(goal), "additionalProperties": False},
    }
    properties: dict[str, JSON] = {"persona": {"enum": sorted(PERSONAS)}, "parallel": flag, "goals": goals}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _family_text(family: str) -> str:
    """A mode family in words."""
    if family == OTHER:
        return "unlike all of these: " + "; ".join(_family_text(other) for other in FAMILIES)
    return ", then ".join(_MODES[mode] for mode in family.split(">"))


def _canonical(value: JSON, kind: SlotKind) -> JSON:
    """The canonical form: identifiers in lower case, quantities with at most one decimal. An illegal value is returned unchanged."""
    if isinstance(kind, Identifier) and isinstance(value, str):
        return normalise(value).strip()
    if isinstance(kind, Quantity) and _is_number(value) and kind.low <= value <= kind.high:
        return kind.canonical(round(float(value), 1) + 0.0)  # no minus zero
    return int(value) if isinstance(kind, Date) and isinstance(value, float) and value.is_integer() else value


def _is_legal(value: JSON, kind: SlotKind) -> bool:
    """Whether a canonical value is legal."""
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
