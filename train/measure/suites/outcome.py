"""Our verdict on a case that has reference calls and texts that an answer must say: the verifier of all tasks, on a task made of these.

One idea: the reference's calls, executed in a fresh state, give the changes that the task asks for; the facts are what the suite's checker
asks for in words. `synth.tasks.verify.judge` then applies as to any task: the same end state, the facts, and the veto on figures and names
without a source.

Two things differ from a task of ours. All that the policy told the user counts as its answer, as a conversation may end with a farewell.
And the required figures are sources themselves: a suite's tools have no program that adds up, so its totals are computed by the policy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.records import JSON, Call, Fact, Message, Plan, Success, Task, Tool
from synth.tasks.verify import judge
from synth.worlds.base import World

_NUMBER = re.compile(r"[-+]?[$£€]?\d[\d,]*(\.\d+)?%?")
_DATE, _TIME = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d{1,2}:\d\d")


@dataclass(frozen=True)
class Expected:
    """What the reference does.

    changes: of the state, without what the clock decides.
    volatile: paths whose values differ from run to run, such as the time at which a mail was sent; no verdict looks at them.
    errors: of its own calls that fail; it replays cleanly if there are none.
    """

    changes: dict[str, JSON]
    volatile: frozenset[str]
    errors: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not self.errors

    def without_clock(self, changes: Mapping[str, JSON]) -> dict[str, JSON]:
        return {path: value for path, value in changes.items() if path not in self.volatile}


def run_reference(world: World, calls: Sequence[Call], seed: int = 0) -> Expected:
    """Executes the reference, twice if it changes anything, each time from the start state of the seed. Leaves the world as the last run
    left it."""
    results = [(call, world.call(call.tool, call.arguments)) for call in calls]
    errors = tuple(f"{call.tool}: {result.content}" for call, result in results if result.is_error)
    first = world.changes()
    if not first:
        return Expected({}, frozenset(), errors)
    world.reset(seed)
    for call in calls:
        world.call(call.tool, call.arguments)
    second = world.changes()
    volatile = frozenset(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
    return Expected({path: value for path, value in second.items() if path not in volatile}, volatile, errors)


def fact_of(value: str) -> Fact:
    """A required text as a fact: a number by its value, a date, a time, anything else word by word."""
    if _NUMBER.fullmatch(value):
        return Fact(kind="exact", value=value.lstrip("$£€").rstrip("%").replace(",", ""))
    if _DATE.fullmatch(value):
        return Fact(kind="date", value=value)
    return Fact(kind="word", value=value)


def task_of(
    suite: str, case_id: str, opening: Sequence[Message], tools: Sequence[Tool], calls: Sequence[Call], success: Success, answer: str
) -> Task:
    """A case as a task of ours, which is only ever measured on."""
    return Task(
        id=f"{suite}/{case_id}",
        world=suite,
        world_seed=0,
        intent="",
        leaf="",
        frame_id="",
        slots={},
        language="en",
        messages=tuple(opening),
        tools=tuple(tool.name for tool in tools),
        plan=Plan(calls=tuple(calls), answer=answer),
        success=success,
        difficulty=0,
        division="held_out",
        use="eval_out",
    )


def check_ours(world: type[World], task: Task, messages: Sequence[Message], changes: dict[str, JSON]) -> dict[str, bool]:
    """The checks of our verifier. changes: of the world at the conversation's end."""
    said = [message.content for message in messages[len(task.messages) :] if message.role == "assistant" and message.content]
    required = [fact.value for fact in task.success.facts if fact.kind == "exact"]
    context = [Message(role="system", content=" ; ".join(required))] if required else []
    last = messages[-1]
    if last.role == "assistant" and not last.tool_calls:
        last = last.model_copy(update={"content": "\n".join(said)})
    return judge(world, task, [*context, *messages[:-1], last], changes).checks
