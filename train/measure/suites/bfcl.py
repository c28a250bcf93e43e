"""The multi-turn cases of the Berkeley function-calling leaderboard, each in its world (`synth/worlds/bfcl_world.py`).

A case fixes the user's message of every turn. Our verdict is `judge_conversation`, turn by turn against the reference: `synth.tasks.verify`
judges a single end, and BFCL asks for no words in an answer. Theirs is `multi_turn_checker` of bfcl-eval, on the calls that were made.

Source: bfcl-eval 2026.3.23; 20 steps per turn as in its `MAXIMUM_STEP_LIMIT`. Its checker evaluates calls as Python text and keeps every
state in its module, so it gets names that are tools of the case, values that `repr` wrote, and its states are removed after each case.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from storage.records import Call, Message, Tool, parse_arguments
from synth.worlds.bfcl_files import ANSWERS, files
from synth.worlds.bfcl_world import BFCLWorld, Case, cases, judge_conversation
from train.measure.suites.suite import Reference, SuiteCase, Verdicts, in_groups

_NUMBERS = itertools.count()
_UNKNOWN = "no_such_tool()"


class BFCLSuite:
    """BFCL's 800 multi-turn cases in four categories."""

    name = "bfcl"
    note = ""
    max_steps = 20

    @property
    def version(self) -> str:
        """The package's."""
        try:
            return version("bfcl-eval")
        except PackageNotFoundError:
            return ""

    def cases(self, groups: Sequence[str] = (), limit: int | None = None) -> list[SuiteCase]:
        files(ANSWERS)  # says how to install it, before a category is called unknown
        every = [
            SuiteCase(case.id, case.category, tuple(turn.said for turn in case.turns), case.tools, _reference(case), case)
            for case in cases()
        ]
        return in_groups(every, self.name, groups, limit)

    def open(self, case: SuiteCase) -> BFCLEpisode:
        return BFCLEpisode(case.source)

    def close(self) -> None:
        """There is nothing to end."""


class BFCLEpisode:
    def __init__(self, case: Case) -> None:
        self._case, self._turn, self._world = case, 0, BFCLWorld(case)

    def start(self) -> tuple[Message, ...]:
        return (Message(role="user", content=self._case.turns[0].said),)

    def offered(self) -> tuple[Tool, ...]:
        return tuple(tool for tool in self._case.tools if tool.name in self._case.turns[self._turn].tools)

    def call(self, name: str, arguments: str) -> str:
        return self._world.call(name, arguments).content

    def reply(self, messages: Sequence[Message]) -> str | None:
        self._turn += 1
        return self._case.turns[self._turn].said if self._turn < len(self._case.turns) else None

    def verdicts(self, messages: Sequence[Message]) -> Verdicts:
        steps = steps_by_turn(messages)
        accepted, reason = check_theirs(self._case, steps)
        made = [[call for step in turn for call in step] for turn in steps]
        return Verdicts(accepted, reason, judge_conversation(self._case, made))

    def close(self) -> None:
        self._world.close()


def _reference(case: Case) -> Reference:
    return Reference(tuple(turn.calls for turn in case.turns), tuple("Done." for _ in case.turns))


def steps_by_turn(messages: Sequence[Message]) -> list[list[list[Call]]]:
    """The calls of a conversation: by the user's turns, by the policy's messages."""
    turns: list[list[list[Call]]] = []
    for message in messages:
        if message.role == "user":
            turns.append([])
        elif message.role == "assistant" and message.tool_calls:
            calls = ((call.function.name, parse_arguments(call.function.arguments) or {}) for call in message.tool_calls)
            turns[-1].append([Call(tool=name, arguments=arguments) for name, arguments in calls])
    return turns


def check_theirs(case: Case, steps: Sequence[Sequence[Sequence[Call]]]) -> tuple[bool, str]:
    """The verdict of the leaderboard's checker, and its reason. steps: calls by turn and message, as many turns as the case has."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    names = {tool.name for tool in case.tools}
    name = f"headrace{next(_NUMBERS)}"
    made = [[[_as_text(call, names) for call in step] for step in turn] for turn in steps]
    expected = [[_as_text(call, names) for call in turn.calls] for turn in case.turns]
    entry: dict[str, Any] = {"id": case.id, "initial_config": dict(case.config), "involved_classes": list(case.classes)}
    try:
        verdict = multi_turn_checker(made, expected, entry, case.id.rsplit("_", 1)[0], name)
    finally:
        states = vars(multi_turn_utils)
        for key in [key for key in list(states) if re.match(rf"{name}(_ground_truth)?_eval_", key)]:
            del states[key]
    return verdict["valid"], "" if verdict["valid"] else verdict["error_type"].removeprefix("multi_turn:")


def _as_text(call: Call, names: set[str]) -> str:
    """A call as the checker reads it: Python text, which it evaluates. A tool that the case has not becomes one that nothing has."""
    return f"{call.tool}(**{call.arguments!r})" if call.tool in names else _UNKNOWN
