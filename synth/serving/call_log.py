"""The log of a server's calls: JSON Lines, one line a call, from which a verifier can judge an episode later.

One idea: a line holds what a replay needs (world, seed, task, tool, arguments) and what the client saw (observation). A line is on disk
before its client gets the answer. Calls of several episodes are interleaved; `call` counts those of one episode from 1.
The log does not hold the text with which a model answers its user: an MCP server never sees it.
Every program that may write the file can forge it; `synth/serving/judge_log.py` finds observations that no world gave, but not calls that
were left out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from storage.errors import BadInput
from storage.records import JSON
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
