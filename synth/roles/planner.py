"""The scripted planner: writes a blueprint for a cell by solving its goals, one after another, in a real world.

Recipes that lie in the cell it finds in a cookbook (`cookbook.py`), and drafts one: draws slots in the world as the goals before have left
it, has the world's own solver plan each goal, executes the plans to see what feeds what, and puts requests into words. Where no cluster
has a recipe for a cell that failed before, two clusters of one world are merged; where that does not help, the blueprint is of the same
domain and band, and of another mode family that is wanted. Veils (`recipes.VEILS`) are put over a share of the drafts.

Everything is a function of the random generator that is passed in.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache

from storage.records import CODE_TOOL, JSON, Call, Frame, Language, content_id
from storage.turns import ArgumentSources, call_status
from synth.blueprints import Argument, Bands, Blueprint, Goal, Node, Perturbation, TurnPlan, static_checks
from synth.clusters import Cluster
from synth.evolve import Cell
from synth.roles.cookbook import TRIES_A_VOLUME, Cookbook, cookbook, shelf_of
from synth.roles.phrases import (
    PERSONAS,
    can_point_at,
    corrected,
    dressed,
    fault,
    mentioned,
    noise,
    phrase,
    question,
    request,
    request_without,
    reveal,
    slots_of,
    vague_request,
)
from synth.roles.recipes import MERGE_CLUSTERS, VEILS, Kitchen, domain_of, evolved, kitchen, native
from synth.roles.schedule import GoalPlan, GoalRecipe, Move, Recipe, Schedule, Source, Turn, changing_tools, predict, schedule
from synth.roles.sketch import merged_sources, planned
from synth.solver import is_evaluation_frame, solve, training_seed
from synth.worlds import WORLDS, make_world
from synth.worlds.base import Solution, Unsolvable, Vocabulary, World

VERSION = 3
DRAFTS = 6
"""Recipes drafted at most for one kitchen."""
SLOT_DRAWS = 12
TRIES_BEFORE_MERGING = 2
"""Failures of a cell before clusters are merged for it."""
_MOST_DISTRACTORS = 4
CODE_DISTRACTS = 0.3
"""Of conversations that need no program, those in whose world `run_python` can be called: that offer it all the same (P10)."""
_NATIVES = 24
"""Recipes as they come that are looked at for one that may be used, and that needs a program, or none."""
_MOST_ENUMERATED = 64
"""Frames of one kind that are all looked at."""
WORLD_SEEDS = 64
"""Training worlds that the conversations of a domain are drawn from: opening one costs as much as a plan, so they are few enough to stay
open. With a hundred rows or more in each, two conversations hardly ever ask for the same thing of the same world."""
_PERSONAS, _CHATTY = tuple(sorted(PERSONAS)), "chatty"

FrameFilter = Callable[[Frame], bool]


class PlanFailed(Exception):
    """No blueprint came of a proposal; `reason` is a short key, counted and stored."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of one conversation. partner: a cluster of the same world that is merged with the first. has_code: whether `run_python`
    may be used beside them."""

    cluster: Cluster
    partner: Cluster | None = None
    has_code: bool = False

    @property
    def world(self) -> str:
        assert self.cluster.world is not None
        return self.cluster.world

    @property
    def tools(self) -> frozenset[str]:
        own = _tool_names(self.cluster, self.has_code)
        return own if self.partner is None else own | _tool_names(self.partner, self.has_code)


@lru_cache(maxsize=8192)
def _tool_names(cluster: Cluster, has_code: bool) -> frozenset[str]:
    return cluster.tool_names | {CODE_TOOL} if has_code else cluster.tool_names


@lru_cache(maxsize=8192)
def offers_code(world: str) -> bool:
    """Whether `run_python` is among the tools of a world."""
    return any(tool.name == CODE_TOOL for tool in WORLDS[world].tools)


@lru_cache(maxsize=65536)
def _is_usable(is_allowed: FrameFilter, world: str, intent: str, slots: frozenset[str]) -> bool:
    """Whether any frame with these slots may be used: False where there are few, of words alone, and all are kept for other uses."""
    named = [(slot, WORLDS[world].kinds[slot.kind]) for name, slot in slots_of(world, intent).items() if name in slots]
    values = [tuple(kind.names) for slot, kind in named if isinstance(kind, Vocabulary) and not slot.is_entity]
    if len(values) < len(named) or math.prod(map(len, values)) > _MOST_ENUMERATED:
        return True
    names = [slot.name for slot, _ in named]
    drawn = (dict(zip(names, said, strict=True)) for said in itertools.product(*values))
    return any(is_allowed(Frame(world=world, intent=intent, slots=slots)) for slots in drawn)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans for clusters.

    is_allowed: which frames may be used (those of other divisions may not); what it says of few frames is remembered by function.
    chinese_share: of conversations, the rest are English.
    bands: None while calibrating, when there are none yet.
    veiled_share: of steered conversations, those that a veil is put over.
    tries: how often the domain was asked for before; its cookbooks grow with them.
    used_modes: conversations there are by their sequence of modes; recipes for the least used come first.
    code_share: of conversations, those that are to need a program; None where none can be run, so that `run_python` is not on offer.
    """

    is_allowed: FrameFilter
    chinese_share: float = 0.3
    bands: Bands | None = None
    veiled_share: float = 0.0
    tries: int = 0
    used_modes: Mapping[str, int] = field(default_factory=dict)
    code_share: float | None = None

    def propose(
        self,
        cell: Cell,
        clusters: Sequence[Cluster],
        failures: int,
        rng: random.Random,
        else_families: Sequence[str] = (),
    ) -> tuple[Cluster, Blueprint]:
        """A blueprint that is predicted to lie in the cell, or else in its domain and band; and its cluster.

        clusters: to be tried in this order. failures: how often this cell was missed before. else_families: mode families that will do
        where the cell cannot be had, in this order. A conversation that is to need a program rather has another mode family than none.

        Raises:
            PlanFailed: none was found within the budget of drafts.
        """
        last = PlanFailed("no_recipe", "no recipe looked like this cell")
        offers = [self._offer(cluster) for cluster in clusters]
        if failures >= TRIES_BEFORE_MERGING:
            offers += [self._offer(clusters[0], other) for other in clusters[1:2] if other.world == clusters[0].world]
        computes = (True, False) if self._computes(rng) else (False,)
        families = (cell.family, *(family for family in else_families if family != cell.family))
        for is_computing, family, offer in itertools.product(computes, families, offers):
            aim = Cell(cell.domain, family, cell.band)
            for recipe in self._recipes(aim, offer, rng, is_computing):
                try:
                    return offer.cluster, self.draft(recipe, offer, rng, aim)
                except PlanFailed as failed:
                    last = failed
        raise last

    def _offer(self, cluster: Cluster, partner: Cluster | None = None) -> Offer:
        assert cluster.world is not None
        return Offer(cluster, partner, self.code_share is not None and offers_code(cluster.world))

    def _computes(self, rng: random.Random) -> bool:
        return self.code_share is not None and rng.random() < self.code_share

    def _book(self, offer: Offer, domain: str) -> Cookbook:
        assert self.bands is not None
        return cookbook(offer.world, offer.tools, domain, self.bands, self.tries // TRIES_A_VOLUME)

    def _recipes(self, cell: Cell, offer: Offer, rng: random.Random, is_computing: bool) -> Iterator[Recipe]:
        """Recipes of the cell that need a program, or none, of the least used sequences of modes first, every other one changed by an
        operator that leaves it where it is."""
        assert self.bands is not None
        pots, found = kitchen(offer.world, offer.tools), self._book(offer, cell.domain).get((cell.family, cell.band), {})
        shelf = {modes: recipes for modes, recipes in found.items() if ("X" in modes) == is_computing}
        drawn = sorted(rng.sample(list(shelf), len(shelf)), key=lambda modes: self.used_modes.get(modes, 0))
        usable = ([recipe for recipe in shelf[modes] if self._may_use(recipe)] for modes in drawn)
        for recipe in itertools.islice((rng.choice(recipes) for recipes in usable if recipes), DRAFTS):
            changed = evolved(recipe, pots, rng) if rng.random() < 0.5 else recipe
            is_same = changed is recipe or pots.computes(changed) != is_computing or not self._may_use(changed)
            place = None if is_same else shelf_of(changed, cell.domain, self.bands)
            yield changed if place is not None and place[0] == (cell.family, cell.band) else recipe

    def unsteered(self, cluster: Cluster, rng: random.Random, *, domain: str | None = None) -> Blueprint:
        """A blueprint as it comes, for calibration and as the control that steering is compared with.

        domain: of its first goal; None for any that the cluster serves.

        Raises:
            PlanFailed: as `propose`.
        """
        offer, last = self._offer(cluster), PlanFailed("no_recipe")
        for _ in range(DRAFTS):
            try:
                return self.draft(self._native(kitchen(offer.world, offer.tools), rng, domain), offer, rng)
            except PlanFailed as failed:
                last = failed
        raise last

    def _native(self, pots: Kitchen, rng: random.Random, domain: str | None) -> Recipe:
        """A recipe as it comes, as often with a program as is wanted."""
        recipe = native(pots, rng, domain=domain)
        computes = self._computes(rng) if pots.computing else False
        for _ in range(_NATIVES):
            if pots.computes(recipe) == computes and self._may_use(recipe):
                break
            recipe = native(pots, rng, domain=domain)
        return recipe

    def _may_use(self, recipe: Recipe) -> bool:
        return all(_is_usable(self.is_allowed, recipe.world, goal.intent, goal.slots) for goal in recipe.goals)

    def draft(self, recipe: Recipe, offer: Offer, rng: random.Random, cell: Cell | None = None) -> Blueprint:
        """The blueprint of a recipe, checked; in the cell, if one is given.

        Raises:
            PlanFailed: the recipe fits no slots, or what came of it is not what it seemed.
        """
        language: Language = "zh" if rng.random() < self.chinese_share else "en"
        veils = frozenset(rng.sample(VEILS, rng.randint(1, 2))) if self.veiled_share and rng.random() < self.veiled_share else frozenset()
        blueprint = _Draft(recipe, offer, veils, language, self.is_allowed, rng).write()
        tools = {tool.name: tool for tool in WORLDS[recipe.world].tools if tool.name in blueprint.tools}
        problems = static_checks(blueprint, tools, bands=self.bands, band=None if cell is None else cell.band)
        if cell is not None and (blueprint.family, blueprint.domain) != (cell.family, cell.domain):
            problems.append(f"predicted modes {blueprint.mode_coarse} are not of family {cell.family}")
        if problems:
            raise PlanFailed("static_checks", problems[0])
        return blueprint


@dataclass(frozen=True, slots=True)
class _Solved:
    """One goal in one world: what is asked, what is to be done, and what has changed since the start once it is."""

    frame: Frame
    solution: Solution
    plan: GoalPlan
    text: str
    changes: dict[str, JSON]
    hidden: tuple[str, ...] = ()
    revealed: str = ""


class _Draft:
    """The writing of one blueprint."""

    def __init__(
        self, recipe: Recipe, offer: Offer, veils: frozenset[str], language: Language, is_allowed: FrameFilter, rng: random.Random
    ) -> None:
        self.recipe, self.offer, self.language = recipe, offer, language
        self.is_allowed, self.rng = is_allowed, rng
        self.tools = offer.tools
        self.changing = changing_tools(recipe.world)
        self.seed = training_seed(rng.randrange(WORLD_SEEDS))
        self.world: World = make_world(recipe.world, self.seed)
        self.persona = rng.choice(_PERSONAS)
        self.is_vague = "vague_wording" in veils
        self.sources = ArgumentSources()
        self.sources.hear(self.world.system_prompt)
        self.positions: dict[str, tuple[int, int]] = {}
        self.veils = veils
        self.applied = [name for name in recipe.operators if name != "tool_outage"]
        """Operators that left a trace."""

    def write(self) -> Blueprint:
        solved: list[_Solved] = []
        for index, goal in enumerate(self.recipe.goals):
            solved.append(self._solve(index, goal, solved))
        laid_out = schedule(self.recipe, [one.plan for one in solved])
        likely = predict(laid_out)
        turns = self._worded(laid_out, solved)
        perturbations = self._perturbations(laid_out)
        used = {move.call.tool for move in laid_out.moves}
        offered = self._offered(used | {call.tool for call, _ in laid_out.outages.values()})
        if self.offer.partner is not None:
            self.applied.append(MERGE_CLUSTERS)
        draft = Blueprint(
            id="",
            cluster_id=self.offer.cluster.id,
            merged_with=None if self.offer.partner is None else self.offer.partner.id,
            world=self.recipe.world,
            world_seed=self.seed,
            domain=domain_of(self.recipe),
            language=self.language,
            persona=self.persona,
            tools=offered,
            goals=tuple(self._goal_record(index, goal, solved[index]) for index, goal in enumerate(self.recipe.goals)),
            nodes=tuple(_node(move, laid_out.numbers) for move in laid_out.moves),
            turns=turns,
            perturbations=perturbations,
            operators=tuple(self.applied),
            code_tool=CODE_TOOL in offered,
            forbidden_tools=tuple(sorted((self.changing & set(offered)) - used)),
            mode_coarse=likely.coarse,
            complexity=round(likely.complexity, 6),
        )
        return draft.model_copy(update={"id": content_id("blueprint", draft.model_dump_json(exclude={"id"}))})

    def _perturbations(self, laid_out: Schedule) -> tuple[Perturbation, ...]:
        found = [Perturbation(at=at, kind=kind, message=fault(self.rng) if kind == "error" else "") for at, kind in laid_out.disturbances]
        for at, (call, _) in laid_out.outages.items():
            tried = Call(tool=call.tool, arguments=dict(call.arguments))
            found.append(Perturbation(at=at, kind="outage", message=fault(self.rng, is_lasting=True), tried=tried))
            self.applied.append("tool_outage")
        if "noisy_tools" in self.veils and laid_out.moves:
            by_tool = {tool: noise(self.rng) for tool in sorted({move.call.tool for move in laid_out.moves})}
            found += [Perturbation(at=move.n, kind="noise", message=by_tool[move.call.tool]) for move in laid_out.moves]
            self.applied.append("noisy_tools")
        return tuple(found)

    def _offered(self, used: Set[str]) -> tuple[str, ...]:
        """The tools on offer; as distractors, some that the world has beside them, and `run_python` now and then."""
        has_code = CODE_TOOL in used or (self.offer.has_code and self.rng.random() < CODE_DISTRACTS)
        names = [tool.name for tool in self.world.tools if tool.name != CODE_TOOL or has_code]
        others = [name for name in names if name not in self.tools] if "distractors" in self.veils else []
        if others:
            others = self.rng.sample(others, min(len(others), self.rng.randint(1, _MOST_DISTRACTORS)))
            self.applied.append("distractors")
        return tuple(name for name in names if name in self.tools or name in others)

    # ---- solving ------------------------------------------------------------------------------------------------------

    def _solve(self, index: int, goal: GoalRecipe, before: Sequence[_Solved]) -> _Solved:
        failure = PlanFailed("misfit", f"{goal.intent}: no slots fit")
        kept = PlanFailed("not_allowed", "all frames drawn are kept for another use")

        def may_use(slots: Mapping[str, JSON]) -> bool:
            nonlocal failure
            is_free = self._may_use(Frame(world=self.recipe.world, intent=goal.intent, slots=dict(slots)))
            failure = failure if is_free else kept
            return is_free

        for _ in range(SLOT_DRAWS):
            hidden: tuple[str, ...] = ()
            if goal.is_chained:
                drawn = self.world.draw_slots(goal.intent, goal.slots, self.rng)
                hidden = self._point_at(goal, drawn, before[-1]) if before else ()
                if not hidden:
                    failure = PlanFailed("nothing_to_point_at", goal.intent)
                if not hidden or not may_use(drawn):
                    continue
            else:
                such = self.world.draw_such(goal.intent, goal.slots, self.rng, may_use)
                if such is None:
                    raise failure
                drawn = such
            frame = Frame(world=self.recipe.world, intent=goal.intent, slots=drawn)
            try:
                solution = solve(self.world, frame, self.language)
            except Unsolvable as unsolvable:
                failure = PlanFailed(str(unsolvable.reason), unsolvable.detail)
                continue
            return self._execute(index, goal, frame, solution, hidden)
        raise failure

    def _may_use(self, frame: Frame) -> bool:
        entities = frozenset(name for name, slot in slots_of(frame.world, frame.intent).items() if slot.is_entity)
        return not is_evaluation_frame(frame, entities) and self.is_allowed(frame)

    def _point_at(self, goal: GoalRecipe, slots: dict[str, JSON], previous: _Solved) -> tuple[str, ...]:
        """Puts something that the previous answer named into one of the slots, and says into which."""
        for name, slot in sorted(slots_of(self.recipe.world, goal.intent).items()):
            if name not in slots or not slot.is_entity or not can_point_at(self.recipe.world, slot):
                continue
            named = mentioned(previous.solution.plan.answer, self.recipe.world, goal.intent, name, self.language)
            named = [value for value in named if value not in previous.frame.slots.values()]
            if named:
                slots[name] = self.rng.choice(named)
                return (name,)
        return ()

    def _execute(self, index: int, goal: GoalRecipe, frame: Frame, solution: Solution, hidden: tuple[str, ...]) -> _Solved:
        calls = solution.plan.calls
        if goal.is_dropped:
            calls = calls[: next((at for at, call in enumerate(calls) if call.tool in self.changing), 0)]
            if not calls:
                raise PlanFailed("nothing_to_drop", goal.intent)
        if strangers := sorted({call.tool for call in calls} - self.tools):
            raise PlanFailed("outside_cluster", strangers[0])
        text, revealed = self._request(goal, frame, hidden)
        self.sources.hear(f"{text} {revealed}")
        plan = self._run(index, calls, [frame.slots[name] for name in hidden])
        changes = self.world.changes()
        expected = {} if goal.is_dropped else solution.success.changes
        if any(changes.get(path) != value for path, value in expected.items()):
            raise PlanFailed("goals_interfere", goal.intent)
        return _Solved(frame, solution, plan, text, changes, hidden, revealed)

    def _run(self, index: int, calls: Sequence[Call], secret: Sequence[JSON]) -> GoalPlan:
        """The calls of a goal, made, with what feeds them. Arguments that carry one of the `secret` values, which nobody has said or
        shown, are marked as such."""
        sources: list[dict[str, Source]] = []
        for position, call in enumerate(calls):
            observation = self.world.call(call.tool, call.arguments)
            if observation.is_error:
                raise PlanFailed("call_refused", observation.content)
            found = merged_sources(call.arguments, self.sources.of(call.tool, call.arguments), self.positions)
            if secret:
                found = {name: "hidden" if src == "const" and call.arguments[name] in secret else src for name, src in found.items()}
            sources.append(found)
            made = f"{index}.{position}"
            self.positions[made] = (index, position)
            if call_status(observation.content) == "ok":
                self.sources.show(call.tool, made, observation.content, call.arguments)
        return planned(self.recipe.world, [(call.tool, call.arguments) for call in calls], sources)

    def _request(self, goal: GoalRecipe, frame: Frame, hidden: tuple[str, ...]) -> tuple[str, str]:
        """What the user says of a goal, and what they add when asked."""
        slots = slots_of(frame.world, frame.intent)
        if not hidden and goal.withheld is None:
            if self.is_vague:
                self._note("vague_wording")
                return self._corrected(vague_request(frame, self.language, self.rng), frame, frozenset()), ""
            return self._corrected(request(frame, self.language, self.rng, self.persona), frame, frozenset()), ""
        open_slot = slots[hidden[0]] if hidden else slots[goal.withheld or ""]
        style = "that" if hidden else "vague"
        text = request_without(frame, open_slot, self.language, self.rng, self.persona, style=style)
        if text is None:
            raise PlanFailed("wording", f"{goal.intent} cannot be said without {open_slot.name}")
        text = self._corrected(text, frame, frozenset({open_slot.name}))
        return text, "" if hidden else reveal(frame, open_slot, self.language, self.rng)

    def _corrected(self, text: str, frame: Frame, unsaid: frozenset[str]) -> str:
        """The request with a value put right, where that veil is over the conversation and was not used yet."""
        if "self_correction" not in self.veils or "self_correction" in self.applied:
            return text
        put_right = corrected(text, frame, sorted(frame.slots.keys() - unsaid), self.language, self.rng)
        if put_right is None:
            return text
        self._note("self_correction")
        return put_right

    def _note(self, operator: str) -> None:
        if operator not in self.applied:
            self.applied.append(operator)

    # ---- words --------------------------------------------------------------------------------------------------------

    def _goal_record(self, index: int, goal: GoalRecipe, solved: _Solved) -> Goal:
        success = solved.solution.success
        return Goal(
            intent=solved.frame.intent,
            leaf=self.world.intents[solved.frame.intent].leaf,
            frame_id=solved.frame.id,
            slots=solved.frame.slots,
            hidden=solved.hidden,
            facts=() if goal.is_dropped else success.facts,
            evidence=() if goal.is_dropped else success.evidence,
            refusal=None if goal.is_dropped else success.refusal,
            changes=solved.changes,
            answer="" if goal.is_dropped else solved.solution.plan.answer,
            is_abandoned=goal.is_dropped,
        )

    def _worded(self, laid_out: Schedule, solved: Sequence[_Solved]) -> tuple[TurnPlan, ...]:
        out = []
        for t, turn in enumerate(laid_out.turns):
            text = self._user_text(turn.kind, turn.lead, solved, is_first=t == 0)
            out.append(
                TurnPlan(
                    t=t,
                    text=text,
                    reveals=turn.reveals,
                    withholds=turn.withholds,
                    steps=turn.steps,
                    reply=self._reply(turn, solved),
                    is_question=turn.is_question,
                    settles=turn.settles,
                )
            )
        return tuple(out)

    def _user_text(self, kind: str, lead: int, solved: Sequence[_Solved], *, is_first: bool) -> str:
        if kind == "reveal":
            return solved[lead].revealed
        if kind in ("agree", "recheck"):
            return phrase("agree" if kind == "agree" else "recheck", self.language, self.rng)
        text = solved[lead].text
        follower = lead + 1
        while follower < len(solved) and self.recipe.goals[follower].is_joint:
            text = phrase("joint", self.language, self.rng, first=text, second=solved[follower].text)
            follower += 1
        if lead > 0 and self.recipe.goals[lead - 1].is_dropped:
            return phrase("shift", self.language, self.rng, text=text)
        if is_first:
            return dressed(text, self.recipe.world, self.language, self.rng, _CHATTY if self.is_vague else self.persona)
        return phrase("next", self.language, self.rng, text=text)

    def _reply(self, turn: Turn, solved: Sequence[_Solved]) -> str:
        kind, lead = turn.kind, turn.lead
        goal = self.recipe.goals[lead]
        if turn.is_question and goal.withheld is not None and kind == "open":
            return question(self.recipe.world, slots_of(self.recipe.world, goal.intent)[goal.withheld], self.language, self.rng)
        if turn.is_question:
            return phrase("confirm", self.language, self.rng)
        answers = [solved[index].solution.plan.answer for index in (turn.settles or (lead,))]
        answer = ("" if self.language == "zh" else " ").join(answers)
        return phrase("rechecked", self.language, self.rng, answer=answer) if kind == "recheck" else answer


def _node(move: Move, numbers: Mapping[tuple[int, int], int]) -> Node:
    sources = move.call.sources
    arguments = {name: _argument(value, sources[name], numbers) for name, value in move.call.arguments.items()}
    return Node(n=move.n, goal=move.goal, tool=move.call.tool, arguments=arguments, after=move.after, is_check=move.is_check)


def _argument(value: JSON, source: Source, numbers: Mapping[tuple[int, int], int]) -> Argument:
    if isinstance(source, tuple):
        return Argument(src="node", value=value, node=numbers[source])
    return Argument(src="user" if source == "user" else "hidden" if source == "hidden" else "const", value=value)
