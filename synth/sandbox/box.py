"""The host's side of a box: the interface of providers, the start of a box, the connection to its supervisor, and the mark of its owner.

The supervisor (`supervisor.py`, process 1 of the box) gets requests and sends answers over its stdin and stdout, in the format given in its
file. Answers are not trusted: their lengths are checked before their bytes are read, and every read and write has a deadline. Docker
wraps the output of a container in frames (a byte for the stream, 4 for the length), which `is_framed` removes.

The name of a box contains its owner's mark, so that the boxes of killed processes can be recognised. A mark is the owner's place (boot of
the kernel, and process namespace), its process id, and its start time in clock ticks, because ids are reused. A box marked elsewhere is
never an orphan here, because one engine can serve several machines and containers.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import marshal
import os
import platform
import select
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from storage.outside.safe_text import safe_text
from storage.records import JSON
from synth.sandbox import seccomp, supervisor
from synth.sandbox.base import BoxDied, Limits, Protection, SandboxError

PREFIX = "headrace"
READY_S = 30.0
STDERR_BYTES = 4_096
NOBODY = 65_534
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
SOURCE = Path(supervisor.__file__).read_text(encoding="utf-8")
_counter = itertools.count()


class Box(Protocol):
    """A started container or namespace with its supervisor.

    has_runner: whether the supervisor has loaded the runner of snippets.
    """

    name: str
    connection: Connection
    has_runner: bool

    def complaints(self) -> str:
        """The beginning of what the box wrote to stderr while it started."""
        ...

    def close(self) -> None:
        """Ends all processes of the box and removes it; may be called again. Raises SandboxError if that fails."""
        ...


class Provider(Protocol):
    """A way to start boxes.

    limits_whole_box: whether memory and CPU are limited for all processes of a box together, not for each.
    shown: the folder of the host that a box without the protection `mounts` can see.
    """

    name: str
    limits_whole_box: bool
    shown: Path | None

    def open(self, limits: Limits, *, without: frozenset[Protection] = frozenset()) -> Box:
        """Starts a box and waits until its supervisor is ready. Raises SandboxError if that fails."""
        ...

    def missing(self) -> str:
        """The requirement that this machine lacks, and how to install it; empty if the provider works."""
        ...

    def reap(self) -> int:
        """Removes the boxes of dead owners. Returns their number."""
        ...


# ---- starting a box ---------------------------------------------------------------------------------------------------


def supervisor_command(
    python: str, name: str, without: frozenset[Protection], *, mount: str = "", address_bytes: int = 0, processes: int = 0
) -> list[str]:
    """The command line of a box's process 1. It ends with the box's name, which a list of processes then shows.

    mount: options of the work folder's file system, if the supervisor is to mount it.
    address_bytes, processes: limits of each process and of the user, without a control group; 0 for none.
    """
    try:
        program = b"" if "seccomp" in without else seccomp.program(platform.machine())
    except ValueError as error:
        raise SandboxError(str(error)) from error
    configuration = {
        "without": sorted(without),
        # Without no_new_privs an unprivileged process may install no filter: these two go together.
        "filter": b"" if "new_privileges" in without else program,
        "mount": mount,
        "address_bytes": address_bytes,
        "processes": processes,
        "environment": {name: value for name, value in os.environ.items() if "environment" in without and name.startswith("HEADRACE_")},
    }
    return [python, "-s", "-S", "-c", SOURCE, marshal.dumps(configuration, 2).hex(), name]


def raised_limits(limits: Limits, without: frozenset[Protection]) -> Limits:
    """The limits of a box, doubled for protections that are off, so that a successful escape does bounded harm."""
    names = {"memory": "memory_bytes", "processes": "processes", "disk": "disk_bytes", "inodes": "inodes"}
    return replace(limits, **{name: 2 * getattr(limits, name) for protection, name in names.items() if protection in without})


def work_folder(limits: Limits) -> str:
    """Mount options of the tmpfs that is the work folder."""
    return f"size={limits.disk_bytes},nr_inodes={limits.inodes},mode=1777"


def wait_until_ready(box: Box) -> None:
    """Waits for the supervisor. If it does not start, closes the box and raises SandboxError."""
    try:
        box.connection.receive(0, time.monotonic() + READY_S)
    except SandboxError as error:
        complaint = " ".join(box.complaints().split())
        box.close()
        raise SandboxError(f"the box {box.name} did not start: {error}{f'; it said: {complaint}' if complaint else ''}") from error


# ---- the connection ---------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """flags: bits of `supervisor.py`. parts: stdout, stderr and value of a run; a file's contents; an error's message."""

    flags: int
    exit_code: int
    parts: tuple[bytes, bytes, bytes]

    @property
    def error(self) -> str | None:
        """Message of the supervisor's failure, safe to show; None if there was none."""
        return safe_text(self.parts[0]) if self.flags & supervisor.FAILED else None


class Connection:
    """The connection to a supervisor.

    to_box, from_box: descriptors, the same for a socket; they become non-blocking. The caller closes them.
    """

    def __init__(self, to_box: int, from_box: int, *, is_framed: bool = False) -> None:
        self._out, self._in, self._is_framed = to_box, from_box, is_framed
        self._buffer = bytearray()
        self.stderr = bytearray()
        """The beginning of what the supervisor wrote to stderr (framed connections only)."""
        self._is_open, self._lock = True, threading.Lock()
        for fd in {to_box, from_box}:
            os.set_blocking(fd, False)

    def close(self) -> None:
        """Stops all reads and writes. Call it before the descriptors are closed, because their numbers may be reused."""
        with self._lock:
            self._is_open = False

    def send(self, request: Mapping[str, JSON], body: bytes, deadline: float) -> None:
        """Sends a request. deadline: on the monotonic clock, here and below. Raises BoxDied."""
        header = marshal.dumps(dict(request), 2)
        data = memoryview(struct.pack(supervisor.REQUEST, len(header), len(body)) + header + body)
        while data:
            self._wait(self._out, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError), self._in_use():
                data = data[os.write(self._out, data[: 1 << 16]) :]

    def receive(self, most_bytes: int, deadline: float) -> Answer:
        """The next answer. most_bytes: limit of its parts together. Raises BoxDied after the deadline, if the box ended, or if the data are
        no answer."""
        flags, exit_code, *sizes = struct.unpack(supervisor.ANSWER, self._read_exactly(struct.calcsize(supervisor.ANSWER), deadline))
        if flags > supervisor.ALL_FLAGS or sum(sizes) > (supervisor.MESSAGE_BYTES if flags & supervisor.FAILED else most_bytes):
            raise BoxDied(f"the box announced an answer of {sizes} bytes with flags {flags}; a program tampered with its connection")
        out, err, value = (self._read_exactly(size, deadline) for size in sizes)
        return Answer(flags, exit_code, (out, err, value))

    def _read_exactly(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            if self._is_framed:
                stream, size = struct.unpack(">BxxxI", self._read_raw(8, deadline))
                data = self._read_raw(size, deadline)
                if stream == 1:
                    self._buffer += data
                else:
                    self.stderr += data[: STDERR_BYTES - len(self.stderr)]
            else:
                self._buffer += self._read_some(1 << 16, deadline)
        content = bytes(self._buffer[:count])
        del self._buffer[:count]
        return content

    def _read_raw(self, count: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            parts += self._read_some(count - len(parts), deadline)
        return bytes(parts)

    def _read_some(self, most_bytes: int, deadline: float) -> bytes:
        while True:
            self._wait(self._in, select.POLLIN, deadline)
            with contextlib.suppress(BlockingIOError), self._in_use():
                data = os.read(self._in, most_bytes)
                if not data:
                    raise BoxDied("the box ended")
                return data

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._lock:
            if not self._is_open:
                raise BoxDied("the box is closed")
            try:
                yield
            except BlockingIOError:
                raise
            except OSError as error:
                raise BoxDied(f"the box hung up: {error}") from error

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise BoxDied("the box stopped answering")


# ---- the mark of its owner --------------------------------------------------------------------------------------------


def new_name(prefix: str = PREFIX) -> str:
    """A name that no other box of this machine has, with the mark of this process."""
    return f"{prefix}-{mark(os.getpid())}-{next(_counter)}"


def mark(pid: int) -> str:
    """`place-pid-start time` of a living process; start time 0 without /proc, or if the process does not exist."""
    return f"{_place()}-{pid}-{_start_time(pid)}"


def is_orphan(name: str, prefix: str = PREFIX) -> bool:
    """Whether a box of this name has lost its owner; False for names of other programs and other places."""
    parts = name.removeprefix(f"{prefix}-").split("-")
    if not name.startswith(f"{prefix}-") or len(parts) != 4 or parts[0] != _place() or not all(part.isdigit() for part in parts[1:]):
        return False
    return mark(int(parts[1])) != "-".join(parts[:3])


@cache
def _place() -> str:
    try:
        boot, namespace = Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot, namespace = "", ""
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:8]


def _start_time(pid: int) -> int:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if after_name[0] in "ZX" else int(after_name[19])
