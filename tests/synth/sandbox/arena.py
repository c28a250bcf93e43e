"""Where the programs of the escape suite are let loose, and what is looked at afterwards.

Beside the sandbox under attack the arena holds what an escape would harm: listeners, a folder with a secret and a victim, a process of
the host (the canary) under the user that programs run as, and a neighbour's session with a file. Everything is the arena's own; no
public address is contacted.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from synth.sandbox import Limits, Provider, Result, Sandbox, SandboxError
from synth.sandbox.base import Protection
from synth.sandbox.box import NOBODY
from synth.sandbox.seccomp import AUDIT_ARCH, CLONE, CLONE3, REFUSED
from tests.synth.sandbox.escape_programs import PRELUDE, Escape

LIMITS = Limits(
    memory_bytes=64 * 2**20,
    processes=40,
    disk_bytes=8 * 2**20,
    inodes=400,
    cpu_s=1,
    wall_s=6.0,
    open_files=40,
    output_bytes=20_000,
)
SECRET, VICTIM = "a secret of the host", "as it was"
PROBE = """
import os, resource
about = os.stat('.')
print(oct(about.st_mode), about.st_mtime > 1e9, os.listxattr('.'), os.listdir('.'))
open('probe', 'w').write('xx'); os.unlink('probe')
print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)))
print([resource.getrlimit(number) for number in range(16)])
"""
"""What a user of a box finds; the same for each."""
PIDS = ["sh", "-c", 'for p in /proc/[0-9]*; do case $p in /proc/1 | /proc/$$) ;; *) echo "$p" ;; esac; done']
"""Processes of a box but its first and this one; by a shell, which starts in a tenth of Python's time."""
TOKEN = secrets.token_bytes(16)
"""By which the listeners know the arena's own call from an escape's."""
ANSWER_S = 30.0
"""What answers by itself does so in this time."""


@dataclass(frozen=True)
class Seen:
    """What became of one program. harmed: it did what it was out to do. damage: what the arena found broken or left over besides."""

    harmed: bool
    damage: tuple[str, ...]
    result: Result | None
    said: str


class Arena:
    """Boxes without the protection `mounts` see its folder `shown`."""

    def __init__(self, provider: Provider) -> None:
        # Not under /tmp, which in a box is the work folder.
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-arena-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.shown = self.folder / "shown"
        self.shown.mkdir()
        self.shown.chmod(0o777)
        os.environ["HEADRACE_CANARY"] = "a secret of the host's environment"
        self.provider = copy.copy(provider)
        self.provider.shown = self.shown
        self.machine = os.uname().machine
        self.heard: list[str] = []
        self._silences = threading.Semaphore(0)
        self.limits_whole_box = self.provider.limits_whole_box
        self._sockets = self._listen()
        self._canary: subprocess.Popen[bytes] | None = None
        self.sandbox = Sandbox(self.provider, LIMITS)
        self._controls: dict[Protection, Sandbox] = {}
        self.neighbour = self.sandbox.start()
        self.neighbour.put("mine.txt", b"untouched")
        self._reset()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.neighbour.close()
        for sandbox in (self.sandbox, *self._controls.values()):
            sandbox.close()
        for each in self._sockets:
            each.close()
        if self._canary is not None:
            self._end(self._canary)
        os.environ.pop("HEADRACE_CANARY", None)
        shutil.rmtree(self.folder)

    def attack(self, escape: Escape) -> Seen:
        """Lets the program loose in a protected sandbox."""
        return self._let_loose(escape, self.sandbox)

    def control(self, escape: Escape) -> Seen:
        """Lets it loose in a sandbox where the one protection is missing that the escape is held by."""
        if escape.off not in self._controls:
            self._controls[escape.off] = Sandbox(self.provider, LIMITS, without=frozenset({escape.off}))
        return self._let_loose(escape, self._controls[escape.off])

    def _let_loose(self, escape: Escape, sandbox: Sandbox) -> Seen:
        self._reset()
        result, session, why, over = None, None, "", threading.Event()
        try:
            session = sandbox.start()
            before = session.run(PROBE).stdout if escape.judge == "next user" else ""
            process_1 = session.run(["sh", "-c", "echo $PPID"]).stdout.strip() if "«SUPERVISOR»" in escape.program else ""
            waiting = self._call_port(over) if escape.judge == "reached" else None
            result = session.run(PRELUDE + self._filled(escape.program, process_1), limits=replace(LIMITS, **escape.limits))
            over.set()
            if waiting is not None:
                waiting.join()
            sees_host = escape.off == "pids" and sandbox is not self.sandbox
            left = "" if sees_host else session.run(PIDS).stdout.strip()
        except SandboxError as error:
            why, left = str(error), ""
        finally:
            over.set()
        harmed = self._harmed(escape, result, why, left)
        if escape.judge == "next user" and session is not None:
            session.close()
            with sandbox.start() as session:
                harmed = bool(why) or session.run(PROBE).stdout != before
            if harmed and sandbox is not self.sandbox:
                self._controls.pop(escape.off).close()
        damage = self._damage(left)
        if session is not None:
            if left and sandbox is not self.sandbox:  # a control's: its box goes with all that is in it
                sandbox.close()
                self._controls.pop(escape.off)
            else:
                session.close()
        said = why or (f"{result.exit_code} {result.stdout[:300]} {result.stderr[-300:]}" if result is not None else "")
        return Seen(harmed, damage, result, said)

    def _harmed(self, escape: Escape, result: Result | None, why: str, left: str) -> bool:
        if escape.judge == "box died":
            return bool(why)
        if result is None:
            return False
        match escape.judge:
            case "printed":
                return "ESCAPED" in result.stdout
            case "received" | "reached":
                self._wait_for_listeners()
                return bool(self.heard)
            case "left":
                return bool(left)
            case "too much output":
                return max(len(result.stdout), len(result.stderr)) > LIMITS.output_bytes
            case "unsafe text":
                unsafe = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]|\u0301{50}")
                return bool(unsafe.search(result.stdout))
            case _:
                return escape.judge in self._canary_trouble()
        raise ValueError(escape.judge)

    def _damage(self, left: str) -> tuple[str, ...]:
        """What is not as it should be, on the host and next door."""
        self._wait_for_listeners()
        found = [*self._canary_trouble(), *(["host's listeners heard something"] if self.heard else [])]
        victim = self.shown / "victim"
        if (
            not victim.exists()
            or victim.read_text() != VICTIM
            or {each.name for each in self.shown.iterdir()} != {"secret", "socket", "victim"}
        ):
            found.append("host's files changed")
        if left:
            found.append(f"processes {left} left running")
        try:
            if self.neighbour.get("mine.txt") != b"untouched" or self.neighbour.run(PIDS).stdout.strip():
                found.append("neighbour was touched")
        except SandboxError as error:
            found.append(f"neighbour: {error}")
        return tuple(found)

    def _canary_trouble(self) -> list[str]:
        """What happened to the process of the host. It answers, or has died or stopped: so no signal is on its way to it."""
        assert self._canary is not None and self._canary.stdin is not None and self._canary.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._canary.stdin.write(b".")
        ends = time.monotonic() + ANSWER_S
        while not (is_stopped := self._state_of_canary() == "T") and not select.select([self._canary.stdout], [], [], 0.01)[0]:
            assert time.monotonic() < ends, "the canary neither answers nor is it stopped"
        if not is_stopped and not self._canary.stdout.read(1):
            return ["canary died"]
        slowed = ["canary slowed"] if os.getpriority(os.PRIO_PROCESS, self._canary.pid) > os.getpriority(os.PRIO_PROCESS, 0) else []
        limited = ["canary limited"] if re.search("Max open files +3 ", Path(f"/proc/{self._canary.pid}/limits").read_text()) else []
        return [*(["canary stopped"] if is_stopped else []), *slowed, *limited]

    def _state_of_canary(self) -> str:
        assert self._canary is not None
        return Path(f"/proc/{self._canary.pid}/stat").read_text().rpartition(")")[2].split()[0]

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        with process:  # closes its pipes and waits for it
            pass

    def _reset(self) -> None:
        """Everything as it was before any program ran."""
        if self._canary is None or self._canary_trouble():
            if self._canary is not None:
                self._end(self._canary)
            as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
            self._canary = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **as_nobody)
        for name, text in (("secret", SECRET), ("victim", VICTIM)):
            path = self.shown / name
            path.write_text(text)
            path.chmod(0o666)
        (self.shown / "hard").unlink(missing_ok=True)
        self.heard.clear()

    def _listen(self) -> list[socket.socket]:
        """Listeners of every kind; whatever reaches one is heard."""
        self.abstract = f"headrace-{secrets.token_hex(8)}"
        tcp = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("::1", 0), family=socket.AF_INET6)]
        udp = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)]
        udp[0].bind(("127.0.0.1", 0))
        udp[1].bind(("::1", 0))
        unix = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        unix[0].bind(f"\0{self.abstract}")
        unix[1].bind(str(self.shown / "socket"))
        (self.shown / "socket").chmod(0o777)
        for each in unix:
            each.listen()
        ports = [each.getsockname()[1] for each in (*tcp, *udp)]
        with socket.create_server(("127.0.0.1", 0)) as free:
            free_port = free.getsockname()[1]
        self.words = dict(zip(("TCP4", "TCP6", "UDP4", "UDP6"), map(str, ports), strict=True)) | {"FREE": str(free_port)}
        self._listeners = [(each.family, each.type, each.getsockname()) for each in (*tcp, *udp, *unix)]
        for each in (*tcp, *unix):
            threading.Thread(target=self._hear, args=(each, True), daemon=True).start()
        for each in udp:
            threading.Thread(target=self._hear, args=(each, False), daemon=True).start()
        return [*tcp, *udp, *unix]

    def _hear(self, listener: socket.socket, is_stream: bool) -> None:
        while True:
            try:
                caller = listener.accept()[0] if is_stream else None
                said = b"" if caller else listener.recv(100)
            except OSError:
                return
            if caller:
                with caller, contextlib.suppress(OSError):
                    caller.settimeout(ANSWER_S)
                    said = caller.recv(100)
            if said == TOKEN:
                self._silences.release()
            else:
                self.heard.append("somebody")

    def _wait_for_listeners(self) -> None:
        """Returns when each listener has heard all that was sent to it before."""
        for family, kind, address in self._listeners:
            with socket.socket(family, kind) as caller:
                caller.connect(address)
                caller.send(TOKEN)
        for _ in self._listeners:
            assert self._silences.acquire(timeout=ANSWER_S), "a listener does not hear"

    def _call_port(self, over: threading.Event) -> threading.Thread:
        """Tries to reach the port on which the program may listen, until it is over."""

        def call() -> None:
            while not over.wait(0.02) and not self.heard:
                with socket.socket() as caller:
                    if caller.connect_ex(("127.0.0.1", int(self.words["FREE"]))) == 0:
                        self.heard.append("somebody")

        thread = threading.Thread(target=call)
        thread.start()
        return thread

    def _filled(self, program: str, process_1: str) -> str:
        assert self._canary is not None
        column = list(AUDIT_ARCH).index(self.machine)
        words = self.words | {
            "ABSTRACT": self.abstract,
            "SHOWN": str(self.shown),
            "CANARY": str(self._canary.pid),
            "SUPERVISOR": process_1,
            "MEMORY": str(LIMITS.memory_bytes),
            "NETNS": str(Path("/proc/self/ns/net").readlink()),
            "CLONE": str(CLONE[column]),
            "CLONE3": str(CLONE3[column]),
        }
        program = re.sub("«NR ([a-z0-9_]+)»", lambda found: str(REFUSED[found[1]][column]), program)
        return re.sub("«([A-Z0-9]+)»", lambda found: words[found[1]], program)
