"""The scripted user, assistant and judge: programs that play their parts for nothing, the same bytes every time.

The user says its turns in order, whatever the assistant answers; it has goals and a turn plan, and knows no tools. The assistant executes a
blueprint's plan turn by turn, and retries a call once that failed, or that found nothing where the plan says that there is something; a
tool that is down it tries where it is to, and then goes the plan's way. It is handed its plan, because it cannot think of one; it reads the
dialogue only to see where it is and what the last calls returned. The judge grades by rule, 1 to 5, what a language model would be asked
for where rules cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.conversation import call_status
from storage.records import JSON, Cost, Language, Message, Tool, plain_json
from synth.blueprints.blueprint import Blueprint, TurnPlan
from synth.roles.base import Grades
from synth.tasks.reward import presentation

TEACHER = "scripted"
"""As stored in `teacher`."""
LEAST_GRADE = 4
"""What every grade of an accepted trajectory must reach."""


class ScriptedUser:
    cost = Cost()

    def __init__(self, turns: Sequence[TurnPlan]) -> None:
        self._texts = [turn.text for turn in turns]
        self._said = 0

    @property
    def turns(self) -> tuple[int, int]:
        return self._said, self._said

    def speak(self, dialogue: Sequence[Message]) -> str | None:
        said = sum(message.role == "user" for message in dialogue)
        if said >= len(self._texts):
            return None
        self._said = said + 1
        return self._texts[said]


class ScriptedAssistant:
    name = TEACHER
    cost = Cost()

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._in_vain = {p.at: p.tried for p in blueprint.perturbations if p.tried is not None}
        self._emptied = {p.at for p in blueprint.perturbations if p.kind == "empty"}
        self._pending: list[tuple[int, ...]] = []
        self._last: tuple[int, ...] = ()
        self._is_retry = False
        self._made = 0

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        turn = self._blueprint.turns[sum(message.role == "user" for message in dialogue) - 1]
        if dialogue[-1].role == "user":
            self._pending, self._last, self._is_retry = list(turn.steps), (), False
        failed = self._failed(dialogue) if self._last and not self._is_retry else ()
        if failed:
            self._is_retry = True
            return self._call(failed)
        self._is_retry = False
        if self._pending:
            tried = next((self._in_vain.pop(n) for n in self._pending[0] if n in self._in_vain), None)
            if tried is not None:
                self._last = ()
                return self._calls([(tried.tool, tried.arguments)])
            self._last = self._pending.pop(0)
            return self._call(self._last)
        return Message(role="assistant", content=turn.reply)

    def _failed(self, dialogue: Sequence[Message]) -> tuple[int, ...]:
        """Those of the last step's calls that came back with an error, or with nothing where the plan expects something."""
        statuses = [call_status(result.content) for result in dialogue[-len(self._last) :]]
        return tuple(
            node
            for node, status in zip(self._last, statuses, strict=True)
            if status == "error" or (status == "empty" and node in self._emptied)
        )

    def _call(self, nodes: Sequence[int]) -> Message:
        planned = [self._blueprint.nodes[n] for n in nodes]
        return self._calls([(node.tool, node.values()) for node in planned])

    def _calls(self, calls: Sequence[tuple[str, Mapping[str, JSON]]]) -> Message:
        made = []
        for tool, arguments in calls:
            made.append({"id": f"call_{self._made}", "function": {"name": tool, "arguments": plain_json(arguments)}})
            self._made += 1
        return Message.model_validate({"role": "assistant", "tool_calls": made})  # at once: cheaper than a record for every call


class ScriptedJudge:
    """Grades one conversation. observations: the observer's checks; extra_calls: as `observer.extra_calls`.

    planning: a point off for every call beyond the plan (retries of planned faults are no extras), 1 where the plan is not covered.
    fidelity: 5 where every answer holds only what was said or shown, else 1. presentation: the replies are in the user's language, and none
    is empty, overlong, or still holds a placeholder.
    """

    def __init__(self, language: Language, observations: Mapping[str, bool], extra_calls: int | None) -> None:
        self._language, self._observations, self._extra_calls = language, observations, extra_calls

    def grade(self, dialogue: Sequence[Message]) -> Grades:
        grounded = all(holds for name, holds in self._observations.items() if name.endswith(("grounded_answer", "grounded_arguments")))
        planning = 1 if self._extra_calls is None else max(1, 5 - self._extra_calls)
        return Grades(planning=planning, fidelity=5 if grounded else 1, presentation=self._presentation(dialogue))

    def _presentation(self, dialogue: Sequence[Message]) -> int:
        texts = [message.content or "" for message in dialogue if message.role == "assistant" and not message.tool_calls]
        return round(1 + 4 * min((presentation(text, self._language) for text in texts), default=0.0))
