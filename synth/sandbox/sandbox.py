"""Runs untrusted programs, one at a time or several in a session, in reusable boxes.

One idea: starting a box takes far longer than emptying one, and a box without processes whose one writable folder is empty is as good as
new. So a used box waits for the next session. A box that failed in any way is closed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from storage.errors import BadInput
from storage.outside.safe_text import safe_text
from storage.records import JSON
from synth.sandbox import snippet, supervisor
from synth.sandbox.base import PROGRAM_BYTES, BoxDied, Limits, Protection, Result, SandboxError
from synth.sandbox.box import Answer, Box, Provider

MOST_WAITING = 4
"""Most boxes that wait for the next session; further ones are closed."""
GRACE_S = 20.0
"""Time for a supervisor's answer beyond the program's wall time."""
RUNNER = Path(snippet.__file__).read_bytes()


class Sandbox:
    """Runs programs in boxes of a provider. Thread-safe. Close it, or use it in a `with`; its boxes end with its process in any case.

    without: protections that are off; for the escape tests only.
    """

    def __init__(self, provider: Provider, limits: Limits | None = None, *, without: frozenset[Protection] = frozenset()) -> None:
        self.provider, self.limits, self._without = provider, limits or Limits(), without
        self._lock = threading.Lock()
        self._boxes: set[Box] = set()
        self._waiting: list[Box] = []
        self._is_open, self._process = True, os.getpid()
        self._close_boxes = weakref.finalize(self, _close_all, self._boxes, self._process)
        provider.reap()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: str | Sequence[str], *, limits: Limits | None = None) -> Result:
        """`Session.run` in a new session. A program whose box dies runs again in a fresh box; if that dies too, the program has failed.

        Raises:
            BadInput: as `Session.run` does.
            SandboxError: no box could be started.
        """
        return self._run_twice(lambda session: session.run(program, limits=limits))

    def run_snippet(self, code: str, *, limits: Limits | None = None) -> Result:
        """`Session.run_snippet`, in the same way."""
        return self._run_twice(lambda session: session.run_snippet(code, limits=limits))

    def start(self, *, is_fresh: bool = False) -> Session:
        """A session in a box with an empty work folder. is_fresh: in a new box.

        Raises:
            SandboxError: no box could be started.
        """
        with self._lock:
            if os.getpid() != self._process:
                raise SandboxError("the sandbox belongs to the process that this one was forked from; create another one")
            if not self._is_open:
                raise SandboxError("the sandbox is closed")
            box = self._waiting.pop() if self._waiting and not is_fresh else None
        return Session(box or self._open_box(), self.limits, self._take_back, without=self._without)

    def close(self) -> None:
        """Closes all boxes, also those of open sessions; may be called again. Does nothing in a fork of its process."""
        if os.getpid() == self._process:
            with self._lock:
                self._is_open = False
            self._close_boxes()

    def _run_twice(self, act: Callable[[Session], Result]) -> Result:
        with self.start() as session, contextlib.suppress(SandboxError):
            return act(session)
        with self.start(is_fresh=True) as session:
            try:
                return act(session)
            except BoxDied as error:
                return Result(exit_code=-signal.SIGKILL, stdout="", stderr=f"the program ended its box: {error}\n", ended_box=True)

    def _open_box(self) -> Box:
        box = self.provider.open(self.limits, without=self._without)
        with self._lock:
            if self._is_open:
                self._boxes.add(box)
                return box
        box.close()
        raise SandboxError("the sandbox is closed")

    def _take_back(self, box: Box, is_clean: bool) -> None:
        with self._lock:
            if is_clean and self._is_open and len(self._waiting) < MOST_WAITING:
                self._waiting.append(box)
                return
        try:
            self._boxes.remove(box)
        except KeyError:  # `close` has taken it, and closes it
            return
        box.close()


def _close_all(boxes: set[Box], process: int) -> None:
    """Closes all boxes, also after one fails to close. Does nothing in a fork of `process`."""
    with ExitStack() as stack, contextlib.suppress(KeyError):
        while os.getpid() == process:
            stack.callback(boxes.pop().close)


class Session:
    """Several runs in one box, opened by `Sandbox.start`. Not thread-safe.

    Between runs only the files of the work folder persist; all processes of a run are ended. If the box dies, the session ends.

    on_close: called at the end of the session with the box, and with whether the box can be used again.
    """

    def __init__(self, box: Box, limits: Limits, on_close: Callable[[Box, bool], None], *, without: frozenset[Protection]) -> None:
        self._box, self._limits, self._on_close, self._without = box, limits, on_close, without
        self._is_open, self._process = True, os.getpid()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: str | Sequence[str], *, limits: Limits | None = None) -> Result:
        """Runs Python source (a string) or a command (its words) in the work folder.

        limits: those of the run; those of the box cannot change.

        Raises:
            BadInput: a program longer than 120,000 bytes, or with a NUL character.
            BoxDied: the box failed; the session has ended.
        """
        argv = [None, "-s", "-B", "-c", program] if isinstance(program, str) else list(program)
        words = [word or "" for word in argv]
        if not words or sum(len(word.encode("utf-8", errors="surrogatepass")) for word in words) > PROGRAM_BYTES:
            raise BadInput(f"a program for the sandbox has 1 to {PROGRAM_BYTES:,} bytes; put a longer one into a file of the work folder")
        if any("\0" in word for word in words):
            raise BadInput("a program for the sandbox holds a NUL character, which no command line can carry")
        return self._run({"argv": argv}, b"", limits)

    def run_snippet(self, code: str, *, limits: Limits | None = None) -> Result:
        """Runs Python source in a fork of the supervisor's interpreter, which saves the start of another. `snippet.py` says what
        the source may do. The limits are those of other programs.

        Raises:
            BoxDied: the box failed while the snippet ran; the session has ended.
            SandboxError: the box failed before; the session has ended.
        """
        if not self._box.has_runner:
            try:
                answer = self._ask({"op": "load"}, RUNNER)
            except BoxDied as error:
                raise SandboxError(f"the box died before the snippet ran: {error}") from error
            if answer.error is not None:
                raise SandboxError(f"the box could not load the runner of snippets: {answer.error}")
            self._box.has_runner = True
        return self._run({}, code.encode(), limits)

    def put(self, path: str, data: bytes) -> None:
        """Writes a file. path: in the work folder. Raises BadInput if the path leads out of the folder, or the disk is full."""
        answer = self._ask({"op": "put", "path": path}, data)
        if answer.error is not None:
            raise BadInput(f"the sandbox took no file {path!r}: {answer.error}")

    def get(self, path: str) -> bytes:
        """The content of a plain file of the work folder. Raises BadInput if it does not exist, or is larger than the disk's limit."""
        most = self._limits.disk_bytes
        answer = self._ask({"op": "get", "path": path, "size_bytes": most}, most_bytes=most)
        if answer.error is not None:
            raise BadInput(f"the sandbox has no plain file {path!r} of at most {most} bytes: {answer.error}")
        return answer.parts[0]

    def wipe(self) -> None:
        """Empties the work folder."""
        answer = self._ask({"op": "wipe"})
        if answer.error is not None:
            self._fail(f"the work folder cannot be emptied: {answer.error}")

    def close(self) -> None:
        """Empties the work folder and returns the box; may be called again."""
        if self._is_open:
            try:
                self.wipe()
            except SandboxError:
                return
            self._is_open = False
            self._on_close(self._box, True)

    def _run(self, request: dict[str, JSON], body: bytes, limits: Limits | None) -> Result:
        limits = limits or self._limits
        request |= {name: getattr(limits, name) for name in ("cpu_s", "wall_s", "open_files", "output_bytes")} | {"op": "run"}
        wall_s = limits.wall_s * (3 if "wall" in self._without else 1)
        answer = self._ask(request, body, most_bytes=6 * limits.output_bytes, wall_s=wall_s)
        if answer.error is not None:
            self._fail(f"the supervisor could not run the program: {answer.error}")
        if answer.flags & supervisor.LEFT_RUNNING:
            self._fail("the program left processes that could not be ended")
        stdout, stderr, value = (
            part.decode("utf-8", errors="surrogateescape") if "text" in self._without else safe_text(part) for part in answer.parts
        )
        return Result(
            exit_code=answer.exit_code,
            stdout=stdout,
            stderr=stderr,
            value=value,
            stdout_truncated=bool(answer.flags & supervisor.STDOUT_CUT),
            stderr_truncated=bool(answer.flags & supervisor.STDERR_CUT),
            timed_out=bool(answer.flags & supervisor.TIMED_OUT),
        )

    def _ask(self, request: dict[str, JSON], body: bytes = b"", *, most_bytes: int = 0, wall_s: float = 0.0) -> Answer:
        if not self._is_open:
            raise SandboxError("the session is closed")
        if os.getpid() != self._process:
            raise SandboxError("the session belongs to the process that this one was forked from; create another sandbox")
        deadline = time.monotonic() + wall_s + GRACE_S
        try:
            self._box.connection.send(request, body, deadline)
            return self._box.connection.receive(most_bytes, deadline)
        except BoxDied as error:
            self._fail(str(error))

    def _fail(self, why: str) -> NoReturn:
        self._is_open = False
        self._on_close(self._box, False)
        raise BoxDied(why)
