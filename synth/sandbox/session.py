"""A session: many runs in one box, with its files, until it is closed.

Between runs only the work folder lasts; every process that a run leaves behind is ended. `commit` takes the work folder out as a `State`
from which other sessions start, on any provider. A box that dies ends the session with `BoxDied`, a SandboxError.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from storage.errors import BadInput
from storage.records import JSON
from synth.sandbox.base import PROGRAM_BYTES, Box, BoxDied, Limits, Protection, Result, SandboxError
from synth.sandbox.text import safe_text
from synth.sandbox.wire import HEADER_BYTES

GRACE_S = 20.0
"""How long the guest may take beyond what the program may."""


@dataclass(frozen=True, slots=True)
class State:
    """The work folder at one moment: plain files and folders, no links and nothing that ran."""

    entries: tuple[tuple[str, int], ...] = ()
    """Path within the work folder and size; -1 for a folder."""
    contents: bytes = field(default=b"", repr=False)


class Session:
    """Made by `Sandbox.start`. Not for several threads at once.

    on_close: told, when the session ends, whether its box may serve again.
    """

    def __init__(
        self,
        box: Box,
        limits: Limits,
        on_close: Callable[[Box, bool], None],
        *,
        without: frozenset[Protection] = frozenset(),
    ) -> None:
        self._box, self._limits, self._on_close, self._without = box, limits, on_close, without
        self._is_open, self._process = True, os.getpid()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        program: str | Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
        wanted: Sequence[str] = (),
    ) -> Result:
        """Runs Python source (a string) or a command (its words) in the work folder.

        files: written before it starts, by path within the work folder. wanted: paths of files to bring back.
        limits: its per-run limits; those of the box stay as they are.

        Raises:
            BadInput: a program longer than 120,000 bytes, or a file that the box refused (its path leads out, the disk is full).
            BoxDied: the box failed; the session has ended.
        """
        argv = [None, "-s", "-B", "-c", program] if isinstance(program, str) else list(program)
        if not argv or sum(len((word or "").encode("utf-8", errors="surrogatepass")) for word in argv) > PROGRAM_BYTES:
            raise BadInput(f"a program for the sandbox has 1 to {PROGRAM_BYTES:,} bytes; put longer ones into a file of `files`")
        if any("\0" in (word or "") for word in argv):
            raise BadInput("a program for the sandbox holds a NUL character, which no command line can carry")
        for path, data in (files or {}).items():
            self.put(path, data)
        answer, streams = self._run({"argv": argv}, b"", limits or self._limits)
        brought = {path: self._get(path) for path in wanted}
        result = self._result(answer, streams)
        found = {path: data for path, data in brought.items() if data is not None}
        return replace(result, files=found, missing=tuple(path for path in wanted if path not in found))

    def teach(self, source: str) -> None:
        """Gives the guest Python source with a function `run(text, fd) -> exit code`, for `call`."""
        answer, _ = self._ask({"op": "teach"}, source.encode())
        if "error" in answer:
            raise SandboxError(f"the guest could not take its lesson: {answer['error']}")

    def call(self, text: str, *, limits: Limits | None = None) -> tuple[Result, bytes]:
        """Calls the function that was taught in a fork of the guest's own warm interpreter, which saves the start of one. It is held to
        limits like any program, the work folder is emptied before; what it wrote to `fd` comes back too."""
        answer, streams = self._run({"fresh": True}, text.encode(), limits or self._limits)
        return self._result(answer, streams), streams[2]

    def put(self, path: str, data: bytes) -> None:
        """Writes a file, by its path within the work folder. Raises BadInput where the box refuses it."""
        answer, _ = self._ask({"op": "put", "path": path}, data)
        if "error" in answer:
            raise BadInput(f"the sandbox took no file {path!r}: {answer['error']}")

    def get(self, path: str) -> bytes:
        """A plain file of the work folder. Raises BadInput where there is none, or it is larger than the disk's limit."""
        data = self._get(path)
        if data is None:
            raise BadInput(f"the sandbox has no plain file {path!r} of at most {self._limits.disk_bytes} bytes")
        return data

    def commit(self) -> State:
        """The work folder as it is now. Raises BadInput where its files claim more bytes than the disk's limit (sparse ones may), or their
        names more than a message holds."""
        request = {"op": "pack", "size_bytes": self._limits.disk_bytes, "names_bytes": HEADER_BYTES - 100}
        answer, contents = self._ask(request, body_bytes=self._limits.disk_bytes)
        if "error" in answer:
            raise BadInput(f"the sandbox's files cannot be kept: {answer['error']}")
        return State(tuple((str(path), int(size)) for path, size in answer["entries"]), contents)

    def restore(self, state: State) -> None:
        """The work folder as it was at `state`, whatever it is now."""
        self.wipe()
        if state.entries:
            answer, _ = self._ask({"op": "unpack", "entries": [list(entry) for entry in state.entries]}, state.contents)
            if "error" in answer:
                raise BadInput(f"the sandbox cannot hold the state: {answer['error']}")

    def wipe(self) -> None:
        """Empties the work folder."""
        answer, _ = self._ask({"op": "wipe"})
        if "error" in answer:
            self._fail(f"the work folder cannot be emptied: {answer['error']}")

    def close(self) -> None:
        """Hands the box back, its work folder empty; may be called again."""
        if self._is_open:
            try:
                self.wipe()
            except SandboxError:
                return
            self._is_open = False
            self._on_close(self._box, True)

    def _run(self, request: dict[str, JSON], body: bytes, limits: Limits) -> tuple[dict[str, JSON], list[bytes]]:
        request |= {
            "op": "run",
            "cpu_s": limits.cpu_s,
            "wall_s": limits.wall_s,
            "open_files": limits.open_files,
            "output_bytes": limits.output_bytes,
        }
        wall_s = limits.wall_s * (3 if "wall" in self._without else 1)
        answer, data = self._ask(request, body, body_bytes=6 * limits.output_bytes, wall_s=wall_s)
        if "error" in answer or not _is_whole(answer, len(data)):
            self._fail(f"the guest could not run the program: {answer.get('error', 'its answer makes no sense')}")
        if not answer["swept"]:
            self._fail("the program left processes that could not be ended")
        sizes = answer["sizes"]
        return answer, [data[: sizes[0]], data[sizes[0] : sizes[0] + sizes[1]], data[sizes[0] + sizes[1] :]]

    def _get(self, path: str) -> bytes | None:
        most = self._limits.disk_bytes
        answer, data = self._ask({"op": "get", "path": path, "size_bytes": most}, body_bytes=most)
        return None if "error" in answer else data

    def _result(self, answer: dict[str, JSON], streams: Sequence[bytes]) -> Result:
        return Result(
            exit_code=answer["exit_code"],
            stdout=self._text(streams[0]),
            stderr=self._text(streams[1]),
            stdout_truncated=answer["cut"][0],
            stderr_truncated=answer["cut"][1],
            timed_out=answer["timed_out"],
        )

    def _text(self, data: bytes) -> str:
        return data.decode("utf-8", errors="surrogateescape") if "text" in self._without else safe_text(data)

    def _ask(
        self, header: dict[str, JSON], body: bytes = b"", *, body_bytes: int = 0, wall_s: float = 0.0
    ) -> tuple[dict[str, JSON], bytes]:
        if not self._is_open:
            raise SandboxError("the session is closed")
        if os.getpid() != self._process:
            raise SandboxError("the session belongs to the process that this one was forked from; start a sandbox of its own")
        deadline = time.monotonic() + wall_s + GRACE_S
        try:
            self._box.wire.send(header, body, deadline)
            answer, data = self._box.wire.receive(body_bytes, deadline)
        except SandboxError as error:
            self._fail(str(error))
        if "error" in answer:
            answer["error"] = safe_text(str(answer["error"]).encode("utf-8", errors="replace"))
        return answer, data

    def _fail(self, why: str) -> NoReturn:
        self._is_open = False
        self._on_close(self._box, False)
        raise BoxDied(why)


def _is_whole(answer: dict[str, JSON], size: int) -> bool:
    """Whether what the guest said of a run has the form that it should; its wire is not trusted."""
    sizes, cut = answer.get("sizes"), answer.get("cut")
    if not (isinstance(sizes, list) and isinstance(cut, list) and len(sizes) == len(cut) == 3):
        return False
    return (
        all(isinstance(each, int) and each >= 0 for each in sizes)
        and sum(sizes) == size
        and all(isinstance(each, bool) for each in (*cut, answer.get("timed_out"), answer.get("swept")))
        and isinstance(answer.get("exit_code"), int)
    )
