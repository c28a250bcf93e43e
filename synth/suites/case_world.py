"""The world of one case of a suite: the suite's own state behind the one interface of worlds, so that our verifier judges it as any other.

One idea: a case fixes the start state, so every case has a class of its own (the verifier takes a class) and the seed means nothing. The
state opens in the child process at the first call. A snapshot is the calls so far, and restoring replays them: the packages do not copy
states, and a case is short.

What it does not do: draw tasks. A suite has no intents, and nothing of it is trained on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, ClassVar

from storage.errors import HeadraceError
from storage.records import JSON, Tool, canonical_json, parse_arguments
from synth.suites.child import Child, SuiteFailure
from synth.text.slot_kinds import SlotKind
from synth.worlds.base import Intent, Observation, World


class CaseWorld(World):
    """The world of a case; `world_of_case` makes the class. handle: of the open state in the child, None before the first call."""

    version = 1
    intents: ClassVar[Mapping[str, Intent]] = {}
    kinds: ClassVar[Mapping[str, SlotKind]] = {}
    languages = ("en",)
    child: ClassVar[Child]
    case: ClassVar[str]
    handle: int | None = None

    def reset(self, seed: int) -> None:
        """The start state of the case, whatever the seed."""
        self.close()
        self._calls: list[tuple[str, dict[str, JSON]]] = []

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        """Executes one call. Raises SuiteFailure: the suite's program failed, which is no answer to the call."""
        values = parse_arguments(arguments) if isinstance(arguments, str) else dict(arguments)
        if tool not in {each.name for each in self.tools}:
            return _error(f"there is no tool {tool}")
        if values is None:
            return _error("the arguments are no JSON object")
        handle = self.open()
        self._calls.append((tool, values))
        answer = self.child.request("call", handle=handle, tool=tool, arguments=values)
        return _error(answer["content"]) if answer["is_error"] else Observation(answer["content"])

    def open(self) -> int:
        """The handle of the state in the child process."""
        if self.handle is None:
            self.handle = self.child.request("open", case=self.case)
        assert self.handle is not None
        return self.handle

    def state(self) -> dict[str, JSON]:
        state: dict[str, JSON] = self.child.request("state", handle=self.open())
        return state

    def changes(self) -> dict[str, JSON]:
        """Paths of the state with their new values; None where something is gone."""
        changes: dict[str, JSON] = self.child.request("changes", handle=self.open())
        return changes

    def snapshot(self) -> object:
        return tuple((tool, canonical_json(values)) for tool, values in self._calls)

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, tuple)
        self.reset(0)
        for tool, values in snapshot:
            self.call(tool, json.loads(values))

    def draw_slots(self, intent: str, slot_names: frozenset[str], rng: random.Random) -> dict[str, JSON]:
        raise HeadraceError(f"{self.name} is a suite to be measured on; no tasks are drawn from it")

    def slot_forms(self, intent: str, slots: Mapping[str, JSON]) -> frozenset[str]:
        return frozenset()

    def judge_theirs(self, messages: list[dict[str, JSON]]) -> tuple[bool, str]:
        """What the suite's own checker says of the conversation that was held in this state, and its reason."""
        verdict = self.child.request("judge", handle=self.open(), messages=messages)
        return verdict["accepted"], verdict["reason"]

    def close(self) -> None:
        if self.handle is not None:
            handle, self.handle = self.handle, None
            try:
                self.child.request("close", handle=handle)
            except SuiteFailure:
                return  # the program ended, and its states with it


def world_of_case(child: Child, case: str, tools: tuple[Tool, ...]) -> type[CaseWorld]:
    """The class of a case's world."""
    return type("CaseWorldOf", (CaseWorld,), {"name": child.suite, "child": child, "case": case, "tools": tools})


def tool_of(suite: str, described: Mapping[str, Any]) -> Tool:
    """A tool as a suite's program describes it."""
    return Tool(
        name=described["name"],
        description=described.get("description") or "",
        parameters={"properties": {}, **described["parameters"]},
        server=suite,
        domain=suite,
        changes_state=described.get("changes_state", False),
    )


def _error(text: str) -> Observation:
    return Observation(canonical_json({"error": text}), is_error=True)
