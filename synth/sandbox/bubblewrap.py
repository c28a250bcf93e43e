"""Boxes by bubblewrap: namespaces of its own for users, processes, network, mounts, IPC, host name and control groups.

The root is an empty read-only file system with /usr of the host in it, read-only, and five devices; /etc, /home, /sys and all else of
the host is not there. As root we become nobody first, so that a way out of the namespaces leads to an account without rights; as
another user the box has that user's rights outside, which is why its files are not mounted. Memory, processes and CPU are limited by a
control group where we may make one (as root, mostly), else memory per process and processes per user namespace, CPU not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from synth.sandbox import cgroup
from synth.sandbox.base import WORK_DIR, Limits, Protection, SandboxError
from synth.sandbox.owner import new_name
from synth.sandbox.start import GUEST_ENVIRONMENT, NOBODY, guest_command, lifted, wait_until_ready, work_folder
from synth.sandbox.wire import Wire

DEVICES = ("null", "zero", "full", "random", "urandom")
STD_STREAMS = {"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "fd": "/proc/self/fd"}
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
END_S = 5.0
JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'
"""A shell's way into control groups, as they only take processes and not the children to come."""


class BubblewrapBox:
    def __init__(self, name: str, command: list[str], group: cgroup.Group | None) -> None:
        self.name, self._group = name, group
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        about_r, about_w = os.pipe()
        inner = [word.replace("INFO_FD", str(about_w)) for word in command]
        doors = group.doors if group is not None else ()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", JOIN, "sh", *doors, "--", *inner],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=(about_w,),
                bufsize=0,
                start_new_session=True,
                cwd="/",
                env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
            )
        except OSError as error:
            os.close(about_r)
            self._errors.close()
            raise SandboxError(f"bubblewrap cannot be started: {error}") from error
        finally:
            os.close(about_w)
        assert self._process.stdin is not None and self._process.stdout is not None
        self.wire = Wire(self._process.stdin.fileno(), self._process.stdout.fileno())
        self._init = _init_process(about_r)

    def close(self) -> None:
        self.wire.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._init is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            os.close(self._init)
            self._init = None
        try:
            self._process.wait(END_S)  # it ends when its first process has, and buries it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        if self._group is not None:
            self._group.close()

    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read(2_000).decode(errors="replace")


class Bubblewrap:
    """shown: the one folder of the host that a box without the protection `mounts` sees."""

    name = "bubblewrap"

    def __init__(self, *, shown: Path | None = None) -> None:
        self._shown = shown
        self._homes = cgroup.homes()
        self.limits_whole_box = bool(self._homes)

    def showing(self, folder: Path) -> Bubblewrap:
        """The same provider with another `shown`."""
        return Bubblewrap(shown=folder)

    def missing(self) -> str:
        """What bubblewrap needs and this machine has not; empty if nothing."""
        if shutil.which("bwrap") is None:
            return "bubblewrap is not installed: apt-get install -y --no-install-recommends bubblewrap"
        if _python() is None:
            return f"bubblewrap's box has the Python of /usr, and there is none ({', '.join(PYTHONS)}): apt-get install -y python3"
        try:
            self.open(Limits()).close()
        except SandboxError as error:
            switches = "sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces"
            return f"bubblewrap does not work here: {error}. It needs user namespaces ({switches})"
        return ""

    def open(self, limits: Limits, *, without: frozenset[Protection] = frozenset()) -> BubblewrapBox:
        python = _python()
        if python is None or shutil.which("bwrap") is None:
            raise SandboxError(self.missing())
        name = new_name()
        limits = lifted(limits, without)
        guest = guest_command(
            python,
            name,
            without,
            mount=work_folder(limits),
            address_bytes=0 if self._homes else limits.memory_bytes,
            processes=limits.processes,
        )
        group = cgroup.make(name, limits, inside=self._homes) if self._homes else None
        try:
            box = BubblewrapBox(name, [*self._bwrap(without), "--", *guest], group)
        except SandboxError:
            if group is not None:
                group.close()
            raise
        wait_until_ready(box)
        return box

    def reap(self) -> int:
        return cgroup.reap(self._homes)

    def _bwrap(self, without: frozenset[Protection]) -> list[str]:
        is_root = os.geteuid() == 0
        user = 0 if "user" in without and is_root else NOBODY
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if is_root and user else []
        words += ["bwrap", "--unshare-user", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "box"]
        words += ["--uid", str(user), "--gid", str(user), "--info-fd", "INFO_FD", "--new-session", "--clearenv"]
        for variable, value in GUEST_ENVIRONMENT.items():
            words += ["--setenv", variable, value]
        words += [] if "network" in without else ["--unshare-net"]
        words += [] if "pids" in without else ["--unshare-pid", "--as-pid-1"]
        # The guest needs these two to mount the work folder and to drop them for good.
        for capability in ("ALL",) if "capabilities" in without else ("CAP_SYS_ADMIN", "CAP_SETPCAP"):
            words += ["--cap-add", capability]
        words += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dir", "/dev", "--dir", WORK_DIR]
        for folder in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            if Path("/", folder).exists():
                words += ["--symlink", f"usr/{folder}", f"/{folder}"]
        for device in DEVICES:
            words += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
        for link, target in STD_STREAMS.items():
            words += ["--symlink", target, f"/dev/{link}"]
        if "mounts" in without and self._shown is not None:
            words += ["--bind", str(self._shown), str(self._shown), "--ro-bind", "/sys", "/sys"]
        return [*words, *([] if "read_only" in without else ["--remount-ro", "/"]), "--chdir", "/"]


def _python() -> str | None:
    return next((path for path in PYTHONS if os.access(path, os.X_OK)), None)


def _init_process(about: int) -> int | None:
    """A handle of the box's first process, from what bubblewrap says of it; None if it says nothing (and dies)."""
    with open(about, "rb") as file:
        text = file.read()
    try:
        return os.pidfd_open(json.loads(text)["child-pid"])
    except (ValueError, KeyError, ProcessLookupError):
        return None
