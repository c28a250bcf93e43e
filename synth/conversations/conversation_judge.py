"""The verdict on a policy's conversation with several user turns, turn by turn; the plan's calls are not required.

At the end of each turn of the assistant these checks must hold:

| check | it holds if |
|---|---|
| state | the changes so far are those of the plan so far: none before the user was asked, none for a dropped goal |
| asked_for | what the user asked for beside the goals was done: a second look, calls at once (`Cue`) |
| question | in a turn that is to ask: the text is a question |
| goal_N.CHECK | a goal that the turn is to answer passes `synth.tasks.verify.judge`, also if the user then asks to look again |

The judge of a goal sees all that was said and observed up to the answer, and the calls that count for the goal; planned faults do not
count. The first turn that fails ends the conversation. The reward R is the mean over all goals that the user did not drop; a goal that was
not reached counts 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from storage.context.context_tools import NOTE_TOOLS, added_tools
from storage.context.settings import PolicyContext
from storage.records import CODE_TOOL, JSON, Message, Task, ToolCall, is_error, parse_arguments
from synth.blueprints.blueprint import Blueprint, TurnPlan
from synth.blueprints.schedule import changing_tools
from synth.roles.observer import goal_task
from synth.roles.world_tools import call_key
from synth.tasks.verify import Verdict, judge
from synth.worlds.base import World


@dataclass(frozen=True, slots=True)
class TurnVerdict:
    """The verdict on one turn.

    checks: name -> whether it holds.
    rewards: R of each goal that the turn answers; all 0 if the state or what was asked for is wrong.
    goals: the verdict on each goal that was judged in the turn.
    """

    checks: dict[str, bool]
    rewards: tuple[float, ...]
    goals: Mapping[int, Verdict] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return all(self.checks.values())


class ConversationJudge:
    """Judges the turns of one conversation.

    world: the blueprint's.
    expected_changes: the changes of the state that the plan has made by the end of each turn.
    context: how the policy saw the world; calls of its tools are no calls of the user's business.
    """

    def __init__(self, world: type[World], blueprint: Blueprint, context: PolicyContext | None = None) -> None:
        self._world, self._blueprint, self._context = world, blueprint, context
        self._own_words = {CODE_TOOL} if context is None else {CODE_TOOL, *NOTE_TOOLS}
        self._context_tools = frozenset(added_tools(context))
        self._changing = changing_tools(world)
        self.expected_changes = _expected_changes(blueprint, self._changing)
        self._planned: dict[str, set[int]] = defaultdict(set)
        for node in blueprint.nodes:
            self._planned[call_key(node.tool, node.values())].add(node.goal)
        self._goals = sum(not goal.is_abandoned for goal in blueprint.goals)

    def judge_turn(
        self, turn: int, messages: Sequence[Message], changes: Mapping[str, JSON], injected: Collection[str] = ()
    ) -> TurnVerdict:
        """The verdict on a turn that the assistant has just ended.

        Args:
            messages: opening included, up to the assistant's text.
            changes: `World.changes()` now.
            injected: ids of the calls whose result was replaced by a planned fault.
        """
        plan = self._blueprint.turns[turn]
        checks = {"state": dict(changes) == self.expected_changes[turn], "asked_for": self._did_what_was_asked(turn, messages)}
        if plan.is_question:
            checks["question"] = (messages[-1].content or "").strip().endswith(("?", "？"))
        rewards, goals = list[float](), dict[int, Verdict]()
        for index in plan.settles or self._answered_before_a_check(turn):
            verdict = judge(self._world, self._goal_task(plan, index), self._messages_for(turn, index, messages, injected), changes)
            goals[index] = verdict
            checks |= {f"goal_{index}.{name}": holds for name, holds in verdict.checks.items()}
            rewards += [verdict.reward] if plan.settles else []
        is_void = not (checks["state"] and checks["asked_for"])
        return TurnVerdict(checks, tuple(0.0 if is_void else reward for reward in rewards), goals)

    def reward(self, verdicts: Sequence[TurnVerdict]) -> float:
        """R of the conversation, from the verdicts on its turns so far, in [0, 1]."""
        return round(sum(reward for verdict in verdicts for reward in verdict.rewards) / self._goals, 6)

    def _goal_task(self, plan: TurnPlan, index: int) -> Task:
        goals, together = self._blueprint.goals, plan.settles or (index,)
        facts = tuple(fact for other in together for fact in goals[other].facts)
        task = goal_task(self._blueprint, goals[index], facts, goals[together[-1]].changes)
        return task if self._context is None else task.model_copy(update={"context": self._context})

    def _answered_before_a_check(self, turn: int) -> tuple[int, ...]:
        """The goals that a turn answers before the user asks to look again."""
        plan = self._blueprint.turns[turn]
        return () if plan.is_question or plan.settles else tuple(sorted(self._goals_in(turn)))

    def _messages_for(self, turn: int, index: int, messages: Sequence[Message], injected: Collection[str]) -> list[Message]:
        """The messages that bear on a goal: all texts of users, all results, this turn's answer, and the calls that count for the goal.

        Those are calls that the plan makes for it, and, since its request, calls that the plan does not make, unless their tool serves
        other goals of that request alone.
        """
        opened, kept, current = self._segment_of(turn), list[Message](), -1
        others = self._tools_of_others(index, opened, turn)
        hidden = set(injected)

        def counts(call: ToolCall) -> bool:
            goals = self._planned.get(call_key(call.function.name, parse_arguments(call.function.arguments)))
            return index in goals if goals else current >= opened and call.function.name not in others

        for message in messages:
            current += message.role == "user"
            if message.role == "assistant" and message.tool_calls:
                calls = tuple(call for call in message.tool_calls if call.id not in hidden and counts(call))
                hidden |= {call.id for call in message.tool_calls if call not in calls and call.function.name in self._own_words}
                if calls:
                    kept.append(message if len(calls) == len(message.tool_calls) else message.model_copy(update={"tool_calls": calls}))
            elif message.role != "assistant" or message is messages[-1]:
                kept += [message] if message.tool_call_id not in hidden else []
        return kept

    def _tools_of_others(self, index: int, opened: int, turn: int) -> set[str]:
        """The tools of the turns from `opened` to `turn` that the plan uses for other goals only."""
        nodes = [self._blueprint.nodes[n] for plan in self._blueprint.turns[opened : turn + 1] for step in plan.steps for n in step]
        return {node.tool for node in nodes} - {node.tool for node in nodes if node.goal == index}

    def _segment_of(self, turn: int) -> int:
        """The turn in which the request that a turn belongs to was made."""
        return max(at for at in range(turn + 1) if at == 0 or self._opens(at))

    def _opens(self, turn: int) -> bool:
        plans = self._blueprint.turns
        return bool(plans[turn - 1].settles) or any(self._blueprint.goals[goal].is_abandoned for goal in self._goals_in(turn - 1))

    def _goals_in(self, turn: int) -> set[int]:
        return {self._blueprint.nodes[n].goal for step in self._blueprint.turns[turn].steps for n in step}

    def _did_what_was_asked(self, turn: int, messages: Sequence[Message]) -> bool:
        """Whether the turn that answers a request, and those before it, did what the user asked for beside the goals; True in other
        turns."""
        plan, opened = self._blueprint.turns[turn], self._segment_of(turn)
        if not plan.settles:
            return True
        steps, cues = _calls_since(messages, opened, self._context_tools), self._blueprint.turns[opened].cues
        is_together = "together" not in cues or any(len({_key(call) for call, _ in step}) > 1 for step in steps)
        if not any(self._blueprint.nodes[n].is_check for step in plan.steps for n in step):
            return is_together
        earlier = 0 if "double_check" in cues else len(steps) - len(_calls_since(messages, turn, self._context_tools))
        return is_together and _looked_twice(steps, earlier, self._changing)


def _expected_changes(blueprint: Blueprint, changing: frozenset[str]) -> list[dict[str, JSON]]:
    """All changes that the plan has made by the end of each turn."""
    expected: list[dict[str, JSON]] = []
    last = -1
    for turn in blueprint.turns:
        nodes = [blueprint.nodes[n] for step in turn.steps for n in step]
        last = max([last, *(node.goal for node in nodes if node.tool in changing)])
        expected.append(dict(blueprint.goals[last].changes) if last >= 0 else {})
    return expected


def _calls_since(messages: Sequence[Message], turn: int, ignored: Collection[str]) -> list[list[tuple[ToolCall, str]]]:
    """The calls of each assistant message from a user turn on, each with its result, without those of the tools to ignore."""
    results = {message.tool_call_id: message.content or "" for message in messages if message.role == "tool"}
    current, steps = -1, list[list[tuple[ToolCall, str]]]()
    for message in messages:
        current += message.role == "user"
        if message.tool_calls and current >= turn:
            steps.append([(call, results.get(call.id, "")) for call in message.tool_calls if call.function.name not in ignored])
    return steps


def _keys(step: Sequence[tuple[ToolCall, str]]) -> dict[str, str]:
    """The calls of a message that succeeded, each once -> their tools."""
    return {_key(call): call.function.name for call, result in step if not is_error(result)}


def _key(call: ToolCall) -> str:
    return call_key(call.function.name, parse_arguments(call.function.arguments))


def _looked_twice(steps: Sequence[Sequence[tuple[ToolCall, str]]], first: int, changing: frozenset[str]) -> bool:
    """Whether, in step `first` or later and after all that was called for the first time, something was read again."""
    earlier, last_new, last_again = set[str](), -1, -1
    for at, step in enumerate(steps):
        keys = _keys(step)
        if keys.keys() - earlier:
            last_new = at
        if any(key in earlier and tool not in changing for key, tool in keys.items()):
            last_again = at
        earlier |= keys.keys()
    return last_again >= first and last_again > last_new
