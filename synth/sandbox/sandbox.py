"""The sandbox as its users meet it: one-off runs and sessions in boxes that are started ahead.

One idea: starting a box costs far more than emptying one, and a box whose processes are all ended and whose one writable folder is empty
is as good as new. So boxes wait, ready, until somebody needs one, and go back when he is done; a box that failed in any way is
thrown away, so is one after 1,000 users, and those that nobody needed for a minute are closed.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack

from synth.sandbox.base import Box, BoxDied, Limits, Protection, Provider, Result, SandboxError
from synth.sandbox.session import Session, State

USERS_A_BOX = 1_000


class Sandbox:
    """Safe for several threads at once; `close` it, or use it in a `with`. Nothing is left behind when its process is killed.

    ahead: boxes to start in the background at once, and again when one is taken. idle_s: how long a box waits that nobody needs.
    clock: monotonic seconds. without: for the escape suite alone.
    """

    def __init__(
        self,
        provider: Provider,
        limits: Limits | None = None,
        *,
        ahead: int = 0,
        idle_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        without: frozenset[Protection] = frozenset(),
    ) -> None:
        self.provider, self.limits = provider, limits or Limits()
        self._ahead, self._idle_s, self._clock, self._without = ahead, idle_s, clock, without
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, Box]] = []
        self._coming: list[Future[Box]] = []
        self._taken: set[Box] = set()
        self._users: dict[str, int] = {}
        self._timer: threading.Timer | None = None
        self._is_open, self._process = True, os.getpid()
        self._workers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="sandbox")
        self._at_exit = weakref.WeakMethod(self.close)
        atexit.register(_close, self._at_exit)
        provider.reap()
        self._start_ahead()

    def __enter__(self) -> Sandbox:
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
        """One run in a box of its own; arguments as `Session.run` has them. Of `limits`, those of a box too: others than the sandbox's
        cost the start of a box. A program whose box dies runs again in one that nobody has used, and is killed if that dies too.

        Raises:
            BadInput: as `Session.run` does. SandboxError: no box could be started.
        """
        why = ""
        for is_fresh in (False, True):
            with self.start(limits=limits, is_fresh=is_fresh) as session:
                try:
                    return session.run(program, files=files, wanted=wanted)
                except BoxDied as error:
                    why = str(error)
        return Result(exit_code=-signal.SIGKILL, stdout="", stderr=f"the program ended its box: {why}\n", missing=tuple(wanted))

    def start(self, state: State | None = None, *, limits: Limits | None = None, is_fresh: bool = False) -> Session:
        """A session, its work folder as `state` has it, or empty. is_fresh: in a box that nobody has used; so
        it is where a box that waited turns out to be dead when it gets the state.

        Raises:
            SandboxError: no box could be started. BadInput: the box cannot hold the state.
        """
        limits = limits or self.limits
        is_ours = limits.of_box == self.limits.of_box
        box = self._take(limits, may_wait=is_ours and not is_fresh)
        session = Session(box, limits, self._give_back if is_ours else self._end, without=self._without)
        if state is not None:
            try:
                session.restore(state)
            except BoxDied:
                if is_fresh:
                    raise
                return self.start(state, limits=limits, is_fresh=True)
            except BaseException:
                session.close()
                raise
        return session

    def start_soon(self, state: State | None = None, *, limits: Limits | None = None) -> Future[Session]:
        """`start` in the background."""
        return self._workers.submit(self.start, state, limits=limits)

    def expire(self) -> int:
        """Closes the boxes that have waited too long; returns how many. Happens by itself."""
        with self._lock:
            now = self._clock()
            old = [box for since, box in self._waiting if now - since >= self._idle_s]
            self._waiting = [(since, box) for since, box in self._waiting if now - since < self._idle_s]
            for box in old:
                self._users.pop(box.name, None)
            self._wind()
        _close_all(old)
        return len(old)

    def close(self) -> None:
        """Closes every box, those of open sessions too; may be called again. In a fork of its process it does nothing."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._is_open = False
            if self._timer is not None:
                self._timer.cancel()
        self._workers.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            boxes = [*(box for _, box in self._waiting), *self._taken]
            self._waiting, self._taken = [], set()
        atexit.unregister(self._at_exit)
        _close_all(boxes)

    def _take(self, limits: Limits, *, may_wait: bool) -> Box:
        """may_wait: whether it may be a box that waits, or comes already."""
        with self._lock:
            if not self._is_open:
                raise SandboxError("the sandbox is closed")
            if os.getpid() != self._process:
                raise SandboxError("the sandbox belongs to the process that this one was forked from; make one of its own")
            box = self._waiting.pop()[1] if may_wait and self._waiting else None
            future = self._coming.pop(0) if may_wait and box is None and self._coming else None
        if may_wait:
            self._start_ahead()
        try:
            if box is None:
                box = future.result() if future is not None else self.provider.open(limits, without=self._without)
        except CancelledError as error:
            raise SandboxError("the sandbox is closed") from error
        with self._lock:
            is_open = self._is_open
            if is_open:
                self._taken.add(box)
                self._users[box.name] = self._users.get(box.name, 0) + 1
        if not is_open:
            box.close()
            raise SandboxError("the sandbox is closed")
        return box

    def _start_ahead(self) -> None:
        with self._lock:
            missing = self._ahead - len(self._waiting) - len(self._coming)
            new = [
                self._workers.submit(self.provider.open, self.limits, without=self._without) for _ in range(missing if self._is_open else 0)
            ]
            self._coming += new
        for future in new:
            future.add_done_callback(self._arrive)

    def _arrive(self, future: Future[Box]) -> None:
        """A box that came and that nobody has claimed waits like any other."""
        with self._lock:
            if future in self._coming:
                self._coming.remove(future)
                if not future.cancelled() and future.exception() is None:
                    self._waiting.append((self._clock(), future.result()))
                    self._wind()

    def _give_back(self, box: Box, is_clean: bool) -> None:
        with self._lock:
            is_fit = is_clean and self._is_open and self._users[box.name] < USERS_A_BOX
            if is_fit:
                self._taken.discard(box)
                self._waiting.append((self._clock(), box))
                self._wind()
        if not is_fit:
            self._end(box, is_clean)

    def _end(self, box: Box, is_clean: bool) -> None:
        with self._lock:
            is_open = box in self._taken  # else `close` has it
            self._taken.discard(box)
            self._users.pop(box.name, None)
        if is_open:
            box.close()

    def _wind(self) -> None:
        """Sets the timer for the box that has waited longest; the lock is held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._is_open:
            left_s = self._waiting[0][0] + self._idle_s - self._clock()
            self._timer = threading.Timer(max(left_s, 0.01), self.expire)
            self._timer.daemon = True
            self._timer.start()


def _close_all(boxes: Sequence[Box]) -> None:
    """One that fails keeps none of the others open."""
    with ExitStack() as stack:
        for box in boxes:
            stack.callback(box.close)


def _close(close: weakref.WeakMethod[Callable[[], None]]) -> None:
    method = close()
    if method is not None:
        method()
