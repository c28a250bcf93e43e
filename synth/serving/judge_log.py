"""Judges the episodes of a server's log by the verifier: every call is replayed in a fresh world of the task.

The log holds no answers (`synth/serving/call_log.py`). Without one, only the checks of calls and state are made: they can show that a task
was not solved, and never alone that it was, because saying nothing is no answer. An episode that ended because the world or the log failed
is not judged: that is not the policy's fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from storage.errors import BadInput
from storage.records import JSON, FunctionCall, Message, Task, ToolCall, plain_json
from synth.tasks.verify import verify
from synth.worlds import WORLDS

OF_ANSWERS = frozenset({"ended_with_text", "own_words", "facts", "grounded_answer", "to_the_point", "refusal"})
"""The checks that need the answer to the user."""


@dataclass(frozen=True)
class JudgedEpisode:
    """solved: None if no check failed, and the answer is not known; or if the infrastructure failed. failed: names of the checks that
    failed. failure: what failed through no fault of the policy; empty: nothing."""

    episode: str
    calls: int
    solved: bool | None
    failed: tuple[str, ...]
    failure: str = ""


@dataclass
class LoggedCalls:
    """The calls of an episode with their observations, as messages. failure: as in `JudgedEpisode`."""

    messages: list[Message] = field(default_factory=list)
    failure: str = ""


def judge_log(path: Path, task: Task, episode: str | None = None, answer: str | None = None) -> list[JudgedEpisode]:
    """The verdicts on the episodes of a task, in the order in which they began.

    episode: the only one to judge, by its name, with or without its kind (`named:run7`, `run7`); None: all.
    answer: the text with which that episode ended.

    Raises:
        BadInput: the file is no log of such an episode, or an answer is given for several episodes.
    """
    found = read_calls(path, task)
    chosen = found if episode is None else {name: found[name] for name in _called(episode, found)}
    if not chosen:
        raise BadInput(f"{path} has no episode {episode!r} of task {task.id}; it has {', '.join(list(found)[:5])}")
    if answer is not None and len(chosen) > 1:
        raise BadInput(f"{path} has {len(chosen)} episodes of task {task.id}; name the one of the answer with --episode")
    return [_judge(task, name, calls, answer) for name, calls in chosen.items()]


def _called(name: str, found: Iterable[str]) -> list[str]:
    """The episodes that a name stands for: the one with that whole name, else those whose name is that after their kind."""
    names = list(found)
    return [name] if name in names else [each for each in names if each.partition(":")[2] == name]


def _judge(task: Task, episode: str, logged: LoggedCalls, answer: str | None) -> JudgedEpisode:
    if logged.failure:
        return JudgedEpisode(episode, len(logged.messages) // 2, None, (), logged.failure)
    calls = logged.messages
    verdict = verify(WORLDS[task.world], task, [*task.messages, *calls, Message(role="assistant", content=answer or "")])
    checks = {name: holds for name, holds in verdict.checks.items() if answer is not None or name not in OF_ANSWERS}
    failed = tuple(name for name, holds in checks.items() if not holds)
    return JudgedEpisode(episode, len(calls) // 2, False if failed else True if answer is not None else None, failed)


def read_calls(path: Path, task: Task) -> dict[str, LoggedCalls]:
    """Of a log, the calls of each episode of a task. A name that begins anew is a further episode, `NAME#2`.

    Raises:
        BadInput: the file is no such log, or has no episode of the task.
    """
    episodes: dict[str, LoggedCalls] = {}
    begun: dict[str, int] = {}
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); name a file that `headrace serve --log` wrote") from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            name, of_task, first, failure = str(row["episode"]), row["task"], row["call"] == 1, str(row.get("failure") or "")
            messages = () if failure else _messages(row)
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}, line {number}: no call that `headrace serve --log` wrote") from None
        if of_task == task.id:
            begun[name] = begun.get(name, 0) + first
            logged = episodes.setdefault(name if begun[name] < 2 else f"{name}#{begun[name]}", LoggedCalls())
            logged.messages.extend(messages)
            logged.failure = logged.failure or failure
    if not episodes:
        raise BadInput(f"{path} has no call of task {task.id}, as `headrace serve --task {task.id}` would log it")
    return episodes


def _messages(row: Mapping[str, JSON]) -> tuple[Message, Message]:
    """The assistant's call and the tool's answer."""
    id_ = f"call_{int(row['call'])}"
    call = ToolCall(id=id_, function=FunctionCall(name=row["tool"], arguments=plain_json(row["arguments"])))
    return Message(role="assistant", tool_calls=(call,)), Message(role="tool", tool_call_id=id_, content=row["observation"])
