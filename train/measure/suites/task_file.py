"""A suite of the user's own: a file with a task a line (JSON Lines), in any world that Headrace knows.

A line is a task of a store (column `spec` of table `tasks`, as `storage.records.Task`), or its shortest form:

    {"world": "retail", "seed": 3, "request": "Where is order o17?", "changes": {}, "facts": ["delivered"]}

world: a name, or a YAML spec. changes: the end state as differences from the start, "/"-joined paths; or `calls`: reference calls,
`[{"tool": ..., "arguments": {...}}]`, which give the changes by execution. facts: what the answer must state. tools: those on offer
(default: all of the world). id: default the line's number.

"Theirs" is the bare expectation: the end state, and every fact found in the answer. Ours is our verifier on the same task. What differs
between two runs of the reference `calls`, such as the time of a note, counts in neither.
A task with a context is played in it: with shortened results, `read_more` and notes.
What it does not do: tasks in which the user goes on (`Task.conversation`) are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from storage.errors import BadInput
from storage.records import JSON, Call, Message, Success, Task, Tool, content_id, parse_arguments
from synth.context.offered_tools import tools_of
from synth.context.view import open_world
from synth.tasks.solver import expert_messages
from synth.tasks.verify import judge
from synth.text.claims import normalise
from synth.worlds import WORLDS, WorldName
from synth.worlds.base import World
from train.measure.suites.outcome import check_ours, fact_of, run_reference, task_of
from train.measure.suites.suite import Reference, SuiteCase, Verdicts, in_groups

_WORLD_NAME: TypeAdapter[str] = TypeAdapter(WorldName)


class ShortTask(BaseModel):
    """A task in its shortest form; see the module."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: WorldName
    request: str = Field(min_length=1)
    seed: int = 0
    id: str = ""
    changes: dict[str, JSON] | None = None
    calls: tuple[Call, ...] = ()
    facts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileTask:
    """A task of a file. volatile: paths of the state at which no verdict looks, as they differ from run to run."""

    task: Task
    volatile: frozenset[str] = frozenset()


class TaskFileSuite:
    """The tasks of a file."""

    note = "theirs: the end state and the facts that the file asks for, without our other checks"
    max_steps = 20

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @cached_property
    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{self.path}: the file cannot be read ({error})") from None

    @property
    def version(self) -> str:
        return content_id("tasks", self._text)

    def cases(self, groups: Sequence[str] = (), limit: int | None = None) -> list[SuiteCase]:
        every = list[SuiteCase]()
        for number, line in enumerate(self._text.split("\n"), start=1):
            if line.strip():
                every.append(self._case(line, number))
        if not every:
            raise BadInput(f"{self.path}: no task in it; give a JSON object a line (docs/suites.md)")
        doubled = sorted({case.id for case in every if sum(case.id == other.id for other in every) > 1})
        if doubled:
            raise BadInput(f"{self.path}: task id {doubled[0]!r} stands there more than once")
        return in_groups(every, self.name, groups, limit)

    def _case(self, line: str, number: int) -> SuiteCase:
        where = f"{self.path}, line {number}"
        try:
            row = json.loads(line)
            row = json.loads(row["spec"]) if isinstance(row, dict) and isinstance(row.get("spec"), str) else row
            is_whole = isinstance(row, dict) and "messages" in row
            source = FileTask(Task.model_validate(row)) if is_whole else self._short(row, number, where)
        except json.JSONDecodeError as error:
            raise BadInput(f"{where}: no JSON ({error.msg}, column {error.colno})") from None
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "the line"
            raise BadInput(f"{where}: {field}: {first['msg'].removeprefix('Value error, ')}") from None
        task = source.task
        if task.conversation is not None:
            raise BadInput(f"{where}: a task in which the user goes on; a suite takes tasks with one request")
        if task.world not in WORLDS:
            raise BadInput(f"{where}: no world is called {task.world!r}; there are {WORLDS.listed()}")
        try:
            tools = tools_of(WORLDS[task.world], task)
        except LookupError as error:
            raise BadInput(f"{where}: world {task.world}: {error}") from None
        request = next((message.content or "" for message in task.messages if message.role == "user"), "")
        reference = Reference((_reference_calls(task),), (task.plan.answer or "Done.",))
        return SuiteCase(task.id, task.world, (request,), tools, reference, source)

    def _short(self, row: Any, number: int, where: str) -> FileTask:
        short = ShortTask.model_validate(row)
        if short.changes is None and not short.calls and not short.facts:
            raise BadInput(f"{where}: nothing is expected; give changes, calls or facts")
        world = WORLDS[short.world]
        changes, volatile = short.changes or {}, frozenset[str]()
        if short.calls:
            done = run_reference(world(short.seed), short.calls, short.seed)
            if not done.is_clean:
                raise BadInput(f"{where}: a reference call fails: {done.errors[0][:200]}")
            changes = done.changes if short.changes is None else changes
            volatile = done.volatile.difference(changes)
        opening = (*([Message(role="system", content=world.system_prompt)] if world.system_prompt else []),)
        opening += (Message(role="user", content=short.request),)
        named = set(short.tools or (tool.name for tool in world.tools))
        tools = [tool for tool in world.tools if tool.name in named]
        if strange := sorted(named - {tool.name for tool in tools}):
            raise BadInput(f"{where}: world {short.world} has no tool {strange[0]!r}")
        success = Success(changes=changes, facts=tuple(map(fact_of, short.facts)))
        answer = " ".join(["Done.", *short.facts])
        task = task_of(short.world, short.id or str(number), opening, tools, short.calls, success, answer)
        return FileTask(task.model_copy(update={"id": short.id or str(number), "world_seed": short.seed}), volatile)

    def open(self, case: SuiteCase) -> TaskEpisode:
        return TaskEpisode(case)

    def close(self) -> None:
        """There is nothing to end."""


class TaskEpisode:
    def __init__(self, case: SuiteCase) -> None:
        self._case = case
        source: FileTask = case.source
        self._task, self._volatile = source.task, source.volatile
        self._kind: type[World] = WORLDS[self._task.world]
        self._world = open_world(self._kind, self._task)

    def start(self) -> tuple[Message, ...]:
        return self._task.messages

    def offered(self) -> tuple[Tool, ...]:
        return self._case.tools

    def call(self, name: str, arguments: str) -> str:
        return self._world.call(name, arguments).content

    def reply(self, messages: Sequence[Message]) -> str | None:
        return None

    def verdicts(self, messages: Sequence[Message]) -> Verdicts:
        changes = {path: value for path, value in self._world.changes().items() if path not in self._volatile}
        missing = _missing(self._task, changes, messages[-1].content or "")
        # a task of a store names its intent, whose slots the verifier reads; a short one has none
        ours = judge(self._kind, self._task, messages, changes).checks if self._task.intent else self._check(messages, changes)
        return Verdicts(not missing, "; ".join(missing), ours)

    def _check(self, messages: Sequence[Message], changes: dict[str, JSON]) -> dict[str, bool]:
        return check_ours(_without_slots(self._kind), self._task, messages, changes)

    def close(self) -> None:
        self._world.close()


def _reference_calls(task: Task) -> tuple[Call, ...]:
    """The calls of the plan; in a context also those that show what the plan needs."""
    if task.context is None:
        return task.plan.calls
    called = [call.function for message in expert_messages(WORLDS[task.world], task) for call in message.tool_calls]
    return tuple(Call(tool=function.name, arguments=parse_arguments(function.arguments) or {}) for function in called)


def _missing(task: Task, changes: Mapping[str, JSON], answer: str) -> list[str]:
    """What the file asks for and the conversation has not."""
    problems = [] if dict(changes) == task.success.changes else ["the end state is another"]
    said = normalise(answer)
    unsaid = [fact.value for fact in task.success.facts if not any(normalise(text) in said for text in (fact.value, *fact.alternatives))]
    return problems + ([f"the answer does not say {', '.join(unsaid)}"] if unsaid else [])


def _no_forms(world: World, intent: str, slots: Mapping[str, JSON]) -> frozenset[str]:
    return frozenset()


_WITHOUT_SLOTS: dict[type[World], type[World]] = {}


def _without_slots(kind: type[World]) -> type[World]:
    """The world for a task without an intent: no slots, so no canonical forms of them."""
    if kind not in _WITHOUT_SLOTS:
        _WITHOUT_SLOTS[kind] = type(f"{kind.__name__}WithoutSlots", (kind,), {"slot_forms": _no_forms})
    return _WITHOUT_SLOTS[kind]
