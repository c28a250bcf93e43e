"""The log of a server's calls: JSON Lines, one line a call, from which a verifier can judge an episode later.

One idea: a line holds what a replay needs (world, seed, task, tool, arguments) and what the client saw (observation). A line is on disk
before its client gets the answer. Calls of several episodes are interleaved; `call` counts those of one episode from 1.
The log does not hold the text with which a model answers its user: an MCP server never sees it.
Whoever may write the file can forge it; a replay finds observations that no world gave, but not calls that were left out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from storage.errors import BadInput
from storage.records import JSON, FunctionCall, Message, Task, ToolCall, plain_json
from synth.worlds.base import Observation


class CallLog:
    """Appends to a file. Safe for several threads."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput: the file cannot be written."""
        try:
            self._file = path.open("ab", buffering=0)  # a line is one write, so lines of several processes do not mix
        except OSError as error:
            raise BadInput(f"{path}: cannot be written ({error.strerror}); name another file with --log") from None
        self._lock = threading.Lock()

    def write(self, about: Mapping[str, JSON], tool: str, arguments: Mapping[str, JSON], observation: Observation) -> None:
        """about: episode, world, seed, task and number of the call."""
        line = {
            **about,
            "tool": tool,
            "arguments": arguments,
            "observation": observation.content,
            "is_error": observation.is_error,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        with self._lock:
            self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def read_calls(path: Path, task: Task) -> dict[str, list[Message]]:
    """Of a log, the calls and observations of each episode of this task, as messages.

    Raises:
        BadInput: the file is no such log, or has no episode of the task.
    """
    episodes: dict[str, list[Message]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); name a file that `headrace serve --log` wrote") from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if row["task"] == task.id:
                episodes.setdefault(str(row["episode"]), []).extend(_messages(row))
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}, line {number}: no call that `headrace serve --log` wrote") from None
    if not episodes:
        raise BadInput(f"{path} has no call of task {task.id}; it is served with `headrace serve --task {task.id} --log {path}`")
    return episodes


def _messages(row: Mapping[str, JSON]) -> tuple[Message, Message]:
    """The assistant's call and the tool's answer."""
    id_ = f"call_{int(row['call'])}"
    call = ToolCall(id=id_, function=FunctionCall(name=row["tool"], arguments=plain_json(row["arguments"])))
    return Message(role="assistant", tool_calls=(call,)), Message(role="tool", tool_call_id=id_, content=row["observation"])
