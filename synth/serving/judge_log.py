"""Judges the episodes of a server's log by the verifier: every call is replayed in a fresh world of the task.

The log holds no answers (`synth/serving/call_log.py`). Without one, only the checks of calls and state are made: they can show that a task
was not solved, and never alone that it was, because saying nothing is no answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from storage.errors import BadInput
from storage.records import JSON, FunctionCall, Message, Task, ToolCall, plain_json
from synth.tasks.verify import verify
from synth.worlds import WORLDS

OF_ANSWERS = frozenset({"ended_with_text", "own_words", "facts", "grounded_answer", "to_the_point", "refusal"})
"""The checks that need the answer to the user."""


@dataclass(frozen=True)
class JudgedEpisode:
    """solved: None if no check failed, and the answer is not known. failed: names of the checks that failed."""

    episode: str
    calls: int
    solved: bool | None
    failed: tuple[str, ...]


def judge_log(path: Path, task: Task, episode: str | None = None, answer: str | None = None) -> list[JudgedEpisode]:
    """The verdicts on the episodes of a task, in the order in which they began.

    episode: the only one to judge; None: all.
    answer: the text with which that episode ended.

    Raises:
        BadInput: the file is no log of such an episode, or an answer is given for several episodes.
    """
    found = read_calls(path, task)
    chosen = {name: calls for name, calls in found.items() if episode in (None, name)}
    if not chosen:
        raise BadInput(f"{path} has no episode {episode!r} of task {task.id}; it has {', '.join(list(found)[:5])}")
    if answer is not None and len(chosen) > 1:
        raise BadInput(f"{path} has {len(chosen)} episodes of task {task.id}; name the one of the answer with --episode")
    return [_judge(task, name, calls, answer) for name, calls in chosen.items()]


def _judge(task: Task, episode: str, calls: list[Message], answer: str | None) -> JudgedEpisode:
    verdict = verify(WORLDS[task.world], task, [*task.messages, *calls, Message(role="assistant", content=answer or "")])
    checks = {name: holds for name, holds in verdict.checks.items() if answer is not None or name not in OF_ANSWERS}
    failed = tuple(name for name, holds in checks.items() if not holds)
    return JudgedEpisode(episode, len(calls) // 2, False if failed else True if answer is not None else None, failed)


def read_calls(path: Path, task: Task) -> dict[str, list[Message]]:
    """Of a log, the calls and observations of each episode of a task, as messages. A name that begins anew is a further episode, `NAME#2`.

    Raises:
        BadInput: the file is no such log, or has no episode of the task.
    """
    episodes: dict[str, list[Message]] = {}
    begun: dict[str, int] = {}
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); name a file that `headrace serve --log` wrote") from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            name, of_task, first, messages = str(row["episode"]), row["task"], row["call"] == 1, _messages(row)
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}, line {number}: no call that `headrace serve --log` wrote") from None
        if of_task == task.id:
            begun[name] = begun.get(name, 0) + first
            episodes.setdefault(name if begun[name] < 2 else f"{name}#{begun[name]}", []).extend(messages)
    if not episodes:
        raise BadInput(f"{path} has no call of task {task.id}, as `headrace serve --task {task.id}` would log it")
    return episodes


def _messages(row: Mapping[str, JSON]) -> tuple[Message, Message]:
    """The assistant's call and the tool's answer."""
    id_ = f"call_{int(row['call'])}"
    call = ToolCall(id=id_, function=FunctionCall(name=row["tool"], arguments=plain_json(row["arguments"])))
    return Message(role="assistant", tool_calls=(call,)), Message(role="tool", tool_call_id=id_, content=row["observation"])
