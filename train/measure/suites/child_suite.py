"""A suite whose package lies in an environment of its own, behind a child process (`synth/suites/`).

The child gives cases, tools, state and the suite's own checker; our verdict is that of `outcome.py`, in the world of the case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from storage.records import Call, Fact, Message, Success, Task, Tool, content_id
from synth.suites.case_world import CaseWorld, tool_of, world_of_case
from synth.suites.child import Child
from train.measure.suites.outcome import Expected, check_ours, run_reference, task_of
from train.measure.suites.suite import Reference, SuiteCase, Verdicts, in_groups


class ChildSuite:
    """A suite of a child process. A subclass says how its user speaks (`open`) and which facts an answer must state (`facts`)."""

    name: str
    note: str
    max_steps: int

    def __init__(self) -> None:
        self.child = Child(self.name)
        self._expected = dict[str, Expected]()

    def facts(self, row: Mapping[str, Any]) -> tuple[Fact, ...]:
        """What the answer to a case must state. row: of the case, as the child describes it."""
        raise NotImplementedError

    def said(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """What the user says by turn."""
        return (" ".join(row["user"]),)

    @cached_property
    def described(self) -> dict[str, Any]:
        """The child's own description of the suite: cases, tools."""
        described: dict[str, Any] = self.child.request("describe")
        return described

    @property
    def version(self) -> str:
        """A hash of its cases and tools, as the package gives them."""
        return content_id("suite", self.described)

    def cases(self, groups: Sequence[str] = (), limit: int | None = None) -> list[SuiteCase]:
        tools = self.described["tools"]
        by_group = tools if isinstance(tools, dict) else {row["group"]: tools for row in self.described["cases"]}
        made = {group: tuple(tool_of(self.name, tool) for tool in each) for group, each in by_group.items()}
        every = [
            SuiteCase(row["id"], row["group"], self.said(row), made[row["group"]], _reference(row), row) for row in self.described["cases"]
        ]
        return in_groups(every, self.name, groups, limit)

    def expected(self, case: SuiteCase) -> Expected:
        """What the reference of a case changes; executed once."""
        if case.id not in self._expected:
            world = world_of_case(self.child, case.id, case.tools)(0)
            try:
                self._expected[case.id] = run_reference(world, case.reference.calls[0])
            finally:
                world.close()
        return self._expected[case.id]

    def close(self) -> None:
        self.child.close()


class ChildEpisode:
    """A conversation in which the user says one thing; subclasses go on."""

    def __init__(self, suite: ChildSuite, case: SuiteCase) -> None:
        self._suite, self._case = suite, case
        self._kind: type[CaseWorld] = world_of_case(suite.child, case.id, case.tools)
        self._world = self._kind(0)

    def start(self) -> tuple[Message, ...]:
        return (self._system, Message(role="user", content=self._case.said[0]))

    @property
    def _system(self) -> Message:
        return Message(role="system", content=self._case.source["system"])

    def offered(self) -> tuple[Tool, ...]:
        return self._case.tools

    def call(self, name: str, arguments: str) -> str:
        return self._world.call(name, arguments).content

    def reply(self, messages: Sequence[Message]) -> str | None:
        return None

    def verdicts(self, messages: Sequence[Message]) -> Verdicts:
        accepted, reason = self._world.judge_theirs([message.to_openai() for message in messages])
        changes = self._suite.expected(self._case).without_clock(self._world.changes())
        return Verdicts(accepted, reason, check_ours(self._kind, self._task(messages), messages, changes))

    def _task(self, messages: Sequence[Message]) -> Task:
        suite, case = self._suite, self._case
        opened = next(place for place, message in enumerate(messages) if message.role == "user") + 1
        success = Success(changes=suite.expected(case).changes, facts=suite.facts(case.source))
        answer = case.reference.answers[-1]
        return task_of(suite.name, case.id, messages[:opened], case.tools, case.reference.calls[0], success, answer)

    def close(self) -> None:
        self._world.close()


def _reference(row: Mapping[str, Any]) -> Reference:
    calls = tuple(Call(tool=call["tool"], arguments=call["arguments"]) for call in row["calls"])
    return Reference((calls,), (row["answer"] or "Done.",))
