"""The log of a server's calls: JSON Lines, one line a call, from which a verifier can judge an episode later.

One idea: a line holds what a replay needs (world, seed, task, tool, arguments) and what the client saw (observation). A line is on disk
before its client gets the answer. Calls of several episodes are interleaved; `call` counts those of one episode from 1.
A call in which the world failed has a `failure` and no observation: its episode ended there, by no fault of the policy.
The log does not hold the text with which a model answers its user: an MCP server never sees it.
Every program that may write the file can forge it; `synth/serving/judge_log.py` finds observations that no world gave, but not calls that
were left out.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from storage.errors import BadInput, HeadraceError
from storage.records import JSON
from synth.worlds.base import Observation


class LogFailed(HeadraceError):
    """The log cannot be written: a full disk, or the file was removed."""


class CallLog:
    """Appends to a file. Safe for several threads. That it cannot be written is said once on stderr, not at every call."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput: the file cannot be written."""
        try:
            self._file = path.open("ab", buffering=0)  # a line is one write, so lines of several processes do not mix
        except OSError as error:
            raise BadInput(f"{path}: cannot be written ({error.strerror}); name another file with --log") from None
        self._path, self._lock = path, threading.Lock()
        self._unwritten = b""
        """What the disk did not take; it is written before anything else, so that no line is torn where there is space again."""
        self._was_told = False

    def check(self) -> None:
        """Raises LogFailed: the log cannot be written, so no call may be executed."""
        with self._lock:
            self._put(b"")

    def write(
        self, about: Mapping[str, JSON], tool: str, arguments: Mapping[str, JSON], observation: Observation | None, failure: str = ""
    ) -> None:
        """Writes the line of a call.

        about: episode, world, seed, task and number of the call.
        observation: None if the world failed; `failure` says how.

        Raises:
            LogFailed: the line is not on disk; the episode is marked as failed once there is space.
        """
        line = {
            **about,
            "tool": tool,
            "arguments": arguments,
            "observation": None if observation is None else observation.content,
            "is_error": observation is None or observation.is_error,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        with self._lock:
            try:
                self._put(_line_of(line | ({"failure": failure} if failure else {})))
            except LogFailed as failed:
                self._unwritten += _line_of({**line, "observation": None, "is_error": True, "failure": str(failed)})
                raise

    def close(self) -> None:
        self._file.close()

    def _put(self, data: bytes) -> None:
        self._unwritten += data
        try:
            if os.fstat(self._file.fileno()).st_nlink == 0:
                raise OSError(0, "the file was removed")
            while self._unwritten:
                self._unwritten = self._unwritten[self._file.write(self._unwritten) or 0 :]
        except OSError as error:
            failed = LogFailed(f"the call log cannot be written ({error.strerror}), so calls are refused")
            if not self._was_told:
                self._was_told = True
                print(f"headrace: {self._path}: {failed}; free space, or start anew with another --log", file=sys.stderr, flush=True)
            raise failed from None
        self._was_told = False


def _line_of(row: Mapping[str, JSON]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"
