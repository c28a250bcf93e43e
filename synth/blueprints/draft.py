"""Writes one blueprint: solves the goals of a template one after another in a world, and words them. Wording is drawn here or given.

Slots are drawn in the world's state after the earlier goals, the world's solver plans each goal, and the plans are executed to find the
sources of their arguments. `planner.py` chooses what to write and checks the result. Everything is a function of the random generator
that is passed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from storage.conversation import ArgumentSources, call_status
from storage.records import CODE_TOOL, JSON, Call, Frame, Language, content_id, frame_id
from synth.blueprints.blueprint import Argument, Blueprint, Goal, Node, Perturbation, TurnPlan
from synth.blueprints.conversation_template import MERGE_CLUSTERS, domain_of
from synth.blueprints.phrases import (
    PERSONAS,
    add_cues,
    add_small_talk,
    can_point_at,
    entities_of,
    fault,
    mentioned_values,
    noise,
    phrase,
    question,
    request,
    request_without,
    reveal,
    self_correction,
    slots_of,
    vague_request,
)
from synth.blueprints.schedule import (
    ConversationTemplate,
    GoalPlan,
    GoalTemplate,
    Move,
    Schedule,
    Source,
    Turn,
    changing_tools,
    predict,
    schedule,
)
from synth.blueprints.sketch import merge_sources, plan_calls
from synth.clusters.business_clusters import Cluster, tool_names
from synth.tasks.solver import are_evaluation_slots, solve, training_seed
from synth.worlds import WORLDS
from synth.worlds.base import WANTED_DRAWS, Solution, Unsolvable, World

SLOT_DRAWS = 12
_MOST_DISTRACTORS = 4
CODE_DISTRACTS = 0.3
"""Share of conversations without need of a program that offer `run_python` all the same, in a world that has it (P10)."""
WORLD_SEEDS = 64
"""Number of training worlds for the conversations of a domain. Opening one costs as much as a plan, so they are few enough to stay in the
cache. Each has a hundred rows or more, so two conversations hardly ever ask for the same thing in the same world."""
_PERSONAS, _CHATTY = tuple(sorted(PERSONAS)), "chatty"

FrameFilter = Callable[[str], bool]
"""Frame id -> whether the frame may be used."""
GoalFilter = Callable[[GoalTemplate, Mapping[str, JSON]], bool]
"""(a goal of a template, slots for it) -> whether the slots may be used."""


def may_use(is_allowed: FrameFilter, world: type[World], intent: str, slots: Mapping[str, JSON]) -> bool:
    """Whether a goal may be planned: its frame is allowed, and its individuals are not set aside for evaluation."""
    return is_allowed(frame_id(world.name, intent, slots)) and not are_evaluation_slots(intent, slots, entities_of(world, intent))


def training_filter(is_allowed: FrameFilter, world: type[World]) -> GoalFilter:
    """The filter of goals by `may_use`."""
    return lambda goal, slots: may_use(is_allowed, world, goal.intent, slots)


class PlanFailed(Exception):
    """A proposal gave no blueprint. reason: a short key; it is counted and stored."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of one conversation.

    partner: a cluster of the same world that is merged with `cluster`.
    has_code: whether `run_python` may be used too.
    """

    cluster: Cluster
    partner: Cluster | None = None
    has_code: bool = False

    @property
    def world(self) -> type[World]:
        assert self.cluster.world is not None
        return WORLDS[self.cluster.world]

    @property
    def tools(self) -> frozenset[str]:
        cluster_tools = _tool_names(self.cluster.tool_ids, self.has_code)
        return cluster_tools if self.partner is None else cluster_tools | _tool_names(self.partner.tool_ids, self.has_code)


@lru_cache(maxsize=8192)
def _tool_names(tool_ids: tuple[str, ...], has_code: bool) -> frozenset[str]:
    return tool_names(tool_ids) | {CODE_TOOL} if has_code else tool_names(tool_ids)


@dataclass(frozen=True, slots=True)
class GoalText:
    """A goal as a language model proposes it.

    slots: slot -> value; a slot that refers to an earlier answer may be missing.
    request: how the user asks for it.
    reveal: the user's reply when asked for the value that the request leaves out.
    """

    slots: Mapping[str, JSON]
    request: str
    reveal: str = ""


@dataclass(frozen=True, slots=True)
class _Solved:
    """One solved goal.

    text: the user's request.
    changes: changes since the start of the conversation, after this goal.
    hidden: slots that refer to the previous answer.
    revealed: the user's reply when asked for the withheld value.
    """

    frame: Frame
    solution: Solution
    plan: GoalPlan
    text: str
    changes: dict[str, JSON]
    hidden: tuple[str, ...] = ()
    revealed: str = ""


class Draft:
    """Writes one blueprint (`write`).

    Args:
        perturbations: operators of `PERTURBATIONS` to apply.
        is_usable: whether a goal may have these slots.
        goal_texts: slots and wording of every goal; empty to draw them here.
        base_slots: slots of every goal, of which only those that name individuals are drawn anew; empty to draw all.
        seed: world seed; None to draw it.
        persona: empty to draw it.
    """

    def __init__(
        self,
        template: ConversationTemplate,
        offer: Offer,
        perturbations: frozenset[str],
        language: Language,
        is_usable: GoalFilter,
        rng: random.Random,
        *,
        goal_texts: Sequence[GoalText] = (),
        base_slots: Sequence[Mapping[str, JSON]] = (),
        seed: int | None = None,
        persona: str = "",
    ) -> None:
        self.template, self.offer, self.language = template, offer, language
        self.is_usable, self.rng = is_usable, rng
        self.tools = offer.tools
        self.changing = changing_tools(template.world)
        self.goal_texts, self.base_slots = goal_texts, base_slots
        self.seed = training_seed(rng.randrange(WORLD_SEEDS)) if seed is None else seed
        self.world: World = template.world(self.seed)
        self.persona = persona or rng.choice(_PERSONAS)
        self.is_vague = "vague_wording" in perturbations
        self.sources = ArgumentSources()
        self.sources.add_message(self.world.system_prompt)
        self.positions: dict[str, tuple[int, int]] = {}
        self.perturbations = perturbations
        self.applied = [name for name in template.operators if name != "tool_outage"]
        """Operators that left a trace."""

    def write(self) -> Blueprint:
        solved: list[_Solved] = []
        for index, goal in enumerate(self.template.goals):
            solved.append(self._solve(index, goal, solved))
        layout = schedule(self.template, [one.plan for one in solved])
        likely = predict(layout)
        turns = self._word_turns(layout, solved)
        perturbations = self._plan_perturbations(layout)
        used = {move.call.tool for move in layout.moves}
        offered = self._offered_tools(used | {call.tool for call, _ in layout.outages.values()})
        if self.offer.partner is not None:
            self.applied.append(MERGE_CLUSTERS)
        draft = Blueprint(
            id="",
            cluster_id=self.offer.cluster.id,
            merged_with=None if self.offer.partner is None else self.offer.partner.id,
            world=self.template.world.name,
            world_seed=self.seed,
            domain=domain_of(self.template),
            language=self.language,
            persona=self.persona,
            tools=offered,
            goals=tuple(self._goal_record(index, goal, solved[index]) for index, goal in enumerate(self.template.goals)),
            nodes=tuple(_node(move, layout.numbers) for move in layout.moves),
            turns=turns,
            perturbations=perturbations,
            operators=tuple(self.applied),
            code_tool=CODE_TOOL in offered,
            template=self.template.goals,
            is_parallel=self.template.is_parallel,
            forbidden_tools=tuple(sorted((self.changing & set(offered)) - used)),
            mode_coarse=likely.coarse,
            complexity=round(likely.complexity, 6),
        )
        return draft.model_copy(update={"id": content_id("blueprint", draft.model_dump_json(exclude={"id"}))})

    def _plan_perturbations(self, layout: Schedule) -> tuple[Perturbation, ...]:
        perturbations = [
            Perturbation(at=at, kind=kind, message=fault(self.rng) if kind == "error" else "") for at, kind in layout.disturbances
        ]
        for at, (call, _) in layout.outages.items():
            tried = Call(tool=call.tool, arguments=dict(call.arguments))
            perturbations.append(Perturbation(at=at, kind="outage", message=fault(self.rng, is_lasting=True), tried=tried))
            self.applied.append("tool_outage")
        if "noisy_tools" in self.perturbations and layout.moves:
            by_tool = {tool: noise(self.rng) for tool in sorted({move.call.tool for move in layout.moves})}
            perturbations += [Perturbation(at=move.n, kind="noise", message=by_tool[move.call.tool]) for move in layout.moves]
            self.applied.append("noisy_tools")
        return tuple(perturbations)

    def _offered_tools(self, used: Set[str]) -> tuple[str, ...]:
        """The tools on offer; sometimes also other tools of the world and `run_python`, as distractors."""
        has_code = CODE_TOOL in used or (self.offer.has_code and self.rng.random() < CODE_DISTRACTS)
        names = [tool.name for tool in self.world.tools if tool.name != CODE_TOOL or has_code]
        others = [name for name in names if name not in self.tools] if "distractors" in self.perturbations else []
        if others:
            others = self.rng.sample(others, min(len(others), self.rng.randint(1, _MOST_DISTRACTORS)))
            self.applied.append("distractors")
        return tuple(name for name in names if name in self.tools or name in others)

    # ---- solving ------------------------------------------------------------------------------------------------------

    def _solve(self, index: int, goal: GoalTemplate, before: Sequence[_Solved]) -> _Solved:
        failure = PlanFailed("misfit", f"{goal.intent}: no slots fit")
        no_frame = PlanFailed("not_allowed", "all frames drawn are kept for another use")

        def check_slots(slots: Mapping[str, JSON]) -> bool:
            nonlocal failure
            is_usable = self.is_usable(goal, slots)
            failure = failure if is_usable else no_frame
            return is_usable

        for _ in range(1 if self.goal_texts else SLOT_DRAWS):
            hidden: tuple[str, ...] = ()
            if self.goal_texts and not goal.is_chained:
                goal_slots = dict(self.goal_texts[index].slots)
                if not check_slots(goal_slots):
                    break
            elif goal.is_chained:
                given_slots = dict(self.goal_texts[index].slots) if self.goal_texts else {}
                goal_slots = self._draw_slots(index, goal) | given_slots
                hidden = self._point_at(goal, goal_slots, before[-1]) if before else ()
                if not hidden:
                    failure = PlanFailed("nothing_to_point_at", goal.intent)
                if not hidden or not check_slots(goal_slots):
                    continue
            else:
                allowed_slots = self._draw_such(index, goal, check_slots)
                if allowed_slots is None:
                    raise failure
                goal_slots = allowed_slots
            frame = Frame(world=self.template.world.name, intent=goal.intent, slots=goal_slots)
            try:
                solution = solve(self.world, frame, self.language)
            except Unsolvable as unsolvable:
                failure = PlanFailed(str(unsolvable.reason), unsolvable.detail)
                continue
            return self._execute(index, goal, frame, solution, hidden)
        raise failure

    def _draw_slots(self, index: int, goal: GoalTemplate) -> dict[str, JSON]:
        if self.base_slots:
            return self.world.draw_entities(goal.intent, self.base_slots[index], self.rng)
        return self.world.draw_slots(goal.intent, goal.slots, self.rng)

    def _draw_such(self, index: int, goal: GoalTemplate, check: Callable[[Mapping[str, JSON]], bool]) -> dict[str, JSON] | None:
        if not self.base_slots:
            return self.world.draw_such(goal.intent, goal.slots, self.rng, check)
        draws = (self._draw_slots(index, goal) for _ in range(WANTED_DRAWS))
        return next((slots for slots in draws if check(slots)), None)

    def _point_at(self, goal: GoalTemplate, slots: dict[str, JSON], previous: _Solved) -> tuple[str, ...]:
        """Puts a value from the previous answer into one of the slots, and returns the slot's name."""
        for name, slot in sorted(slots_of(self.template.world, goal.intent).items()):
            if name not in slots or not slot.is_entity or not can_point_at(self.template.world, slot):
                continue
            mentions = mentioned_values(self.template.world, previous.solution.plan.answer, goal.intent, name, self.language)
            others = [value for value in mentions if value not in previous.frame.slots.values()]
            if others:
                slots[name] = self.rng.choice(others)
                return (name,)
        return ()

    def _execute(self, index: int, goal: GoalTemplate, frame: Frame, solution: Solution, hidden: tuple[str, ...]) -> _Solved:
        calls = solution.plan.calls
        if goal.is_dropped:
            calls = calls[: next((at for at, call in enumerate(calls) if call.tool in self.changing), 0)]
            if not calls:
                raise PlanFailed("nothing_to_drop", goal.intent)
        if outside := sorted({call.tool for call in calls} - self.tools):
            raise PlanFailed("outside_cluster", outside[0])
        given = self.goal_texts[index] if self.goal_texts else None
        text, revealed = (given.request, given.reveal) if given is not None else self._request(goal, frame, hidden)
        self.sources.add_message(f"{text} {revealed}")
        plan = self._run(index, calls, [frame.slots[name] for name in hidden])
        changes = self.world.changes()
        expected = {} if goal.is_dropped else solution.success.changes
        if any(changes.get(path) != value for path, value in expected.items()):
            raise PlanFailed("goals_interfere", goal.intent)
        return _Solved(frame, solution, plan, text, changes, hidden, revealed)

    def _run(self, index: int, calls: Sequence[Call], secret: Sequence[JSON]) -> GoalPlan:
        """Executes the calls of a goal and finds the sources of their arguments. An argument with a value of `secret`, which nothing in the
        conversation states, gets the source `hidden`."""
        sources: list[dict[str, Source]] = []
        for position, call in enumerate(calls):
            observation = self.world.call(call.tool, call.arguments)
            if observation.is_error:
                raise PlanFailed("call_refused", observation.content)
            call_sources = merge_sources(call.arguments, self.sources.sources_of(call.tool, call.arguments), self.positions)
            if secret:
                call_sources = {
                    name: "hidden" if src == "const" and call.arguments[name] in secret else src for name, src in call_sources.items()
                }
            sources.append(call_sources)
            node_key = f"{index}.{position}"
            self.positions[node_key] = (index, position)
            if call_status(observation.content) == "ok":
                self.sources.add_result(call.tool, node_key, observation.content, call.arguments)
        return plan_calls(self.template.world, [(call.tool, call.arguments) for call in calls], sources)

    def _request(self, goal: GoalTemplate, frame: Frame, hidden: tuple[str, ...]) -> tuple[str, str]:
        """The user's request for a goal, and their reply when asked for the withheld value."""
        slots = slots_of(self.template.world, frame.intent)
        if not hidden and goal.withheld is None:
            if self.is_vague:
                self._note("vague_wording")
                return self._correct_value(vague_request(self.template.world, frame, self.language, self.rng), frame, frozenset()), ""
            return self._correct_value(request(self.template.world, frame, self.language, self.rng, self.persona), frame, frozenset()), ""
        open_slot = slots[hidden[0]] if hidden else slots[goal.withheld or ""]
        style = "that" if hidden else "vague"
        text = request_without(self.template.world, frame, open_slot, self.language, self.rng, self.persona, style=style)
        if text is None:
            raise PlanFailed("wording", f"{goal.intent} cannot be said without {open_slot.name}")
        text = self._correct_value(text, frame, frozenset({open_slot.name}))
        return text, "" if hidden else reveal(self.template.world, frame, open_slot, self.language, self.rng)

    def _correct_value(self, text: str, frame: Frame, unsaid: frozenset[str]) -> str:
        """The request with a self-correction, if that perturbation applies and was not used yet."""
        if "self_correction" not in self.perturbations or "self_correction" in self.applied:
            return text
        corrected = self_correction(self.template.world, text, frame, sorted(frame.slots.keys() - unsaid), self.language, self.rng)
        if corrected is None:
            return text
        self._note("self_correction")
        return corrected

    def _note(self, operator: str) -> None:
        if operator not in self.applied:
            self.applied.append(operator)

    # ---- words --------------------------------------------------------------------------------------------------------

    def _goal_record(self, index: int, goal: GoalTemplate, solved: _Solved) -> Goal:
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

    def _word_turns(self, layout: Schedule, solved: Sequence[_Solved]) -> tuple[TurnPlan, ...]:
        return tuple(
            TurnPlan(
                t=t,
                text=add_cues(self._user_text(turn.kind, turn.lead, solved, is_first=t == 0), turn.cues, self.language, self.rng),
                reveals=turn.reveals,
                withholds=turn.withholds,
                steps=turn.steps,
                reply=self._reply(turn, solved),
                is_question=turn.is_question,
                settles=turn.settles,
                cues=turn.cues,
            )
            for t, turn in enumerate(layout.turns)
        )

    def _user_text(self, kind: str, lead: int, solved: Sequence[_Solved], *, is_first: bool) -> str:
        if kind == "reveal":
            return solved[lead].revealed
        if kind in ("agree", "recheck"):
            return phrase("agree" if kind == "agree" else "recheck", self.language, self.rng)
        text = solved[lead].text
        follower = lead + 1
        while follower < len(solved) and self.template.goals[follower].is_joint:
            text = phrase("joint", self.language, self.rng, first=text, second=solved[follower].text)
            follower += 1
        if lead > 0 and self.template.goals[lead - 1].is_dropped:
            return phrase("shift", self.language, self.rng, text=text)
        if is_first and not self.goal_texts:
            return add_small_talk(self.template.world, text, self.language, self.rng, _CHATTY if self.is_vague else self.persona)
        return text if self.goal_texts else phrase("next", self.language, self.rng, text=text)

    def _reply(self, turn: Turn, solved: Sequence[_Solved]) -> str:
        kind, lead = turn.kind, turn.lead
        goal = self.template.goals[lead]
        if turn.is_question and goal.withheld is not None and kind == "open":
            return question(self.template.world, slots_of(self.template.world, goal.intent)[goal.withheld], self.language, self.rng)
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
    return Argument(src="hidden" if source == "hidden" else "user" if source == "user" else "const", value=value)
