"""The scripted planner: writes a blueprint for a cell by solving its goals, one after another, in a real world.

It looks at many recipes (`recipes.py`, `sketch.py`) and drafts the few whose sketch lies in the cell: draws slots in the world as
the goals before have left it, has the world's own solver plan each goal, executes the plans to see what feeds what, and puts requests
into words. What recipes as they come do not reach is reached by evolving those that came nearest.

Everything is a function of the random generator that is passed in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from storage.records import JSON, Call, Frame, FunctionCall, Language, Message, ToolCall, canonical_json, content_id, derive_turns
from synth.blueprints import Argument, Bands, Blueprint, Goal, Node, Perturbation, TurnPlan, static_checks
from synth.clusters import Cluster
from synth.evolve import Cell, mode_family
from synth.roles.phrases import (
    PERSONAS,
    can_point_at,
    dressed,
    fault,
    mentioned,
    phrase,
    question,
    request,
    request_without,
    reveal,
    slots_of,
)
from synth.roles.recipes import Kitchen, domain_of, evolved, kitchen, native
from synth.roles.schedule import GoalPlan, GoalRecipe, Move, Recipe, Schedule, Source, Turn, changing_tools, predict, schedule
from synth.roles.sketch import merged_sources, planned, sketch
from synth.solver import draw_seed, is_evaluation_frame, solve
from synth.worlds import WORLDS, make_world
from synth.worlds.base import Solution, Unsolvable, World

VERSION = 1
NATIVES = 32
"""Recipes drawn as they come for one proposal."""
CLIMBS, EVOLUTIONS = 10, 6
"""How many of the nearest are evolved, and by how many operators each; those that lead away from the cell are taken back. A cell that
has not failed yet gets half as many."""
DRAFTS = 6
"""Recipes drafted at most for one proposal."""
SLOT_DRAWS = 12
PLAIN_TRIES = 2
"""Drafts of recipes as they come before evolved ones; failures of a cell before the whole budget goes into it."""

FrameFilter = Callable[[Frame], bool]


class PlanFailed(Exception):
    """No blueprint came of a proposal; `reason` is a short key, counted and stored."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans for clusters.

    is_allowed: which frames may be used (those of other divisions may not).
    chinese_share: of conversations, the rest are English.
    bands: None while calibrating, when there are none yet.
    """

    is_allowed: FrameFilter
    chinese_share: float = 0.3
    bands: Bands | None = None

    def propose(self, cell: Cell, cluster: Cluster, failures: int, rng: random.Random) -> Blueprint:
        """A blueprint that is predicted to lie in the cell.

        failures: how often this cell was missed before.

        Raises:
            PlanFailed: none was found within the budget of sketches and drafts.
        """
        assert self.bands is not None and cluster.world is not None
        pots = kitchen(cluster.world, cluster.tool_names)
        last, drafts = PlanFailed("no_recipe", "no recipe looked like this cell"), 0
        for recipe in self._recipes(cell, pots, failures >= PLAIN_TRIES, rng):
            try:
                return self._checked(recipe, cluster, pots, rng, cell)
            except PlanFailed as failed:
                last, drafts = failed, drafts + 1
            if drafts == DRAFTS:
                break
        raise last

    def _recipes(self, cell: Cell, pots: Kitchen, is_hard: bool, rng: random.Random) -> Iterator[Recipe]:
        """Recipes whose sketch lies in the cell: first as they come, then those that came nearest, evolved towards it."""
        drawn = [native(pots, rng, domain=cell.domain) for _ in range(NATIVES)]
        ranked = sorted(((self._distance(recipe, cell), at) for at, recipe in enumerate(drawn)))
        yield from (drawn[at] for distance, at in ranked[:PLAIN_TRIES] if distance == 0)
        for distance, at in ranked[: CLIMBS if is_hard else CLIMBS // 2]:
            recipe, missing = drawn[at], distance
            for _ in range(EVOLUTIONS):
                if missing == 0:
                    break
                candidate = evolved(recipe, pots, rng)
                changed = self._distance(candidate, cell)
                if changed <= missing:
                    recipe, missing = candidate, changed
            if missing == 0:
                yield recipe

    def unsteered(self, cluster: Cluster, rng: random.Random) -> Blueprint:
        """A blueprint as it comes, for calibration and as the control that steering is compared with.

        Raises:
            PlanFailed: as `propose`.
        """
        assert cluster.world is not None
        pots = kitchen(cluster.world, cluster.tool_names)
        last = PlanFailed("no_recipe")
        for _ in range(DRAFTS):
            try:
                return self._checked(native(pots, rng), cluster, pots, rng, None)
            except PlanFailed as failed:
                last = failed
        raise last

    def _distance(self, recipe: Recipe, cell: Cell) -> float:
        """How far a recipe's sketch lies from the cell: missing tokens of the family's prefix plus the gap to the band; 0 inside."""
        likely = sketch(recipe)
        assert self.bands is not None
        if likely is None or domain_of(recipe) != cell.domain:
            return math.inf
        band = self.bands.band(likely.complexity)
        edge = self.bands.low_to if cell.band == "low" or (cell.band == "mid" and band == "low") else self.bands.high_from
        gap = 0.0 if band == cell.band else min(1.0, 0.1 + abs(likely.complexity - edge) / max(edge, 1.0))
        return gap + _family_distance(likely.coarse, cell.family)

    def _checked(self, recipe: Recipe, cluster: Cluster, pots: Kitchen, rng: random.Random, cell: Cell | None) -> Blueprint:
        language: Language = "zh" if rng.random() < self.chinese_share else "en"
        blueprint = _Draft(recipe, cluster, pots, language, self.is_allowed, rng).write()
        tools = {tool.name: tool for tool in WORLDS[recipe.world].tools if tool.name in cluster.tool_names}
        problems = static_checks(blueprint, tools, bands=self.bands, band=None if cell is None else cell.band)
        if cell is not None and (blueprint.family, blueprint.domain) != (cell.family, cell.domain):
            problems.append(f"predicted modes {blueprint.mode_coarse} are not of family {cell.family}")
        if problems:
            raise PlanFailed("static_checks", problems[0])
        return blueprint


def _family_distance(coarse: str, family: str) -> int:
    if mode_family(coarse) == family:
        return 0
    tokens, wanted = coarse.replace("+", "").split(">"), family.split(">")
    shared = next(
        (at for at, (token, want) in enumerate(zip(tokens, wanted, strict=False)) if token != want), min(len(tokens), len(wanted))
    )
    return max(1, len(wanted) - shared)


@dataclass(slots=True)
class _Solved:
    """One goal in one world: what is asked, what is to be done, and what the world said to it."""

    frame: Frame
    solution: Solution
    calls: tuple[Call, ...]
    text: str
    hidden: tuple[str, ...] = ()
    revealed: str = ""
    changes: dict[str, JSON] = field(default_factory=dict)


class _Draft:
    """The writing of one blueprint."""

    def __init__(
        self, recipe: Recipe, cluster: Cluster, pots: Kitchen, language: Language, is_allowed: FrameFilter, rng: random.Random
    ) -> None:
        self.recipe, self.cluster, self.pots, self.language = recipe, cluster, pots, language
        self.is_allowed, self.rng = is_allowed, rng
        self.changing = changing_tools(recipe.world)
        self.seed = draw_seed(rng, "train")
        self.world: World = make_world(recipe.world, self.seed)
        self.persona = rng.choice(sorted(PERSONAS))
        self.dialogue: list[Message] = [Message(role="system", content=self.world.system_prompt)] if self.world.system_prompt else []

    def write(self) -> Blueprint:
        solved: list[_Solved] = []
        for index, goal in enumerate(self.recipe.goals):
            solved.append(self._solve(index, goal, solved))
        plans = self._plans(solved)
        laid_out = schedule(self.recipe, plans)
        likely = predict(laid_out)
        turns = self._worded(laid_out, solved)
        perturbations = tuple(
            Perturbation(at=at, kind=kind, message=fault(self.rng) if kind == "error" else "") for at, kind in laid_out.disturbances
        )
        used = {move.call.tool for move in laid_out.moves}
        values: dict[str, JSON] = {
            "cluster_id": self.cluster.id,
            "world": self.recipe.world,
            "world_seed": self.seed,
            "domain": domain_of(self.recipe),
            "language": self.language,
            "persona": self.persona,
            "tools": tuple(tool.name for tool in self.world.tools if tool.name in self.cluster.tool_names),
            "goals": tuple(self._goal_record(index, goal, solved[index]) for index, goal in enumerate(self.recipe.goals)),
            "nodes": tuple(_node(move, laid_out.numbers) for move in laid_out.moves),
            "turns": turns,
            "perturbations": perturbations,
            "operators": self.recipe.operators,
            "forbidden_tools": tuple(sorted((self.changing & self.cluster.tool_names) - used)),
            "mode_coarse": likely.coarse,
            "complexity": round(likely.complexity, 6),
        }
        draft = Blueprint(id="", **values)
        return draft.model_copy(update={"id": content_id("blueprint", draft.model_dump(mode="json", exclude={"id"}))})

    # ---- solving ------------------------------------------------------------------------------------------------------

    def _solve(self, index: int, goal: GoalRecipe, before: Sequence[_Solved]) -> _Solved:
        failure = PlanFailed("misfit", f"{goal.intent}: no slots fit")
        for _ in range(SLOT_DRAWS):
            slots = self.world.draw_slots(goal.intent, goal.slots, self.rng)
            hidden = self._point_at(goal, slots, before[-1]) if goal.is_chained and before else ()
            if goal.is_chained and not hidden:
                failure = PlanFailed("nothing_to_point_at", goal.intent)
                continue
            frame = Frame(world=self.recipe.world, intent=goal.intent, slots=slots)
            if not self._may_use(frame):
                failure = PlanFailed("not_allowed", "all frames drawn are kept for another use")
                continue
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
        if strangers := sorted({call.tool for call in calls} - self.cluster.tool_names):
            raise PlanFailed("outside_cluster", strangers[0])
        text, revealed = self._request(goal, frame, hidden)
        solved = _Solved(frame, solution, calls, text, hidden, revealed)
        self.dialogue.append(Message(role="user", content=f"{text} {revealed}"))
        for position, call in enumerate(calls):
            made = ToolCall(id=f"{index}.{position}", function=FunctionCall(name=call.tool, arguments=canonical_json(call.arguments)))
            observation = self.world.call(call.tool, call.arguments)
            if observation.is_error:
                raise PlanFailed("call_refused", observation.content)
            self.dialogue.append(Message(role="assistant", tool_calls=(made,)))
            self.dialogue.append(Message(role="tool", tool_call_id=made.id, content=observation.content))
        self.dialogue.append(Message(role="assistant", content=solution.plan.answer))
        solved.changes = self.world.changes()
        expected = {} if goal.is_dropped else solution.success.changes
        if any(solved.changes.get(path) != value for path, value in expected.items()):
            raise PlanFailed("goals_interfere", goal.intent)
        return solved

    def _request(self, goal: GoalRecipe, frame: Frame, hidden: tuple[str, ...]) -> tuple[str, str]:
        """What the user says of a goal, and what they add when asked."""
        slots = slots_of(frame.world, frame.intent)
        if not hidden and goal.withheld is None:
            return request(frame, self.language, self.rng, self.persona), ""
        open_slot = slots[hidden[0]] if hidden else slots[goal.withheld or ""]
        style = "that" if hidden else "vague"
        text = request_without(frame, open_slot, self.language, self.rng, self.persona, style=style)
        if text is None:
            raise PlanFailed("wording", f"{goal.intent} cannot be said without {open_slot.name}")
        return text, "" if hidden else reveal(frame, open_slot, self.language, self.rng)

    def _plans(self, solved: Sequence[_Solved]) -> list[GoalPlan]:
        sources: dict[str, dict[str, Source]] = {}
        positions: dict[str, tuple[int, int]] = {}
        for call in (call for turn in derive_turns(self.dialogue) for step in turn.steps for call in step.calls):
            goal, position = map(int, call.call_id.split("."))
            found = merged_sources(call.arguments or {}, call.sources, positions)
            sources[call.call_id] = self._with_hidden(found, call.arguments or {}, solved[goal])
            positions[call.call_id] = (goal, position)
        return [
            planned(
                self.recipe.world,
                [(call.tool, call.arguments) for call in one.calls],
                [sources[f"{index}.{position}"] for position in range(len(one.calls))],
            )
            for index, one in enumerate(solved)
        ]

    def _with_hidden(self, found: dict[str, Source], arguments: Mapping[str, JSON], solved: _Solved) -> dict[str, Source]:
        """Arguments that carry a value which nobody has said or shown are marked as such."""
        secret = [solved.frame.slots[name] for name in solved.hidden]
        return {name: "hidden" if source == "const" and arguments[name] in secret else source for name, source in found.items()}

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
            return dressed(text, self.recipe.world, self.language, self.rng, self.persona)
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
