"""Boxes by bubblewrap: separate namespaces for users, processes, network, mounts, IPC, host name and control groups.

The root is an empty read-only file system with the host's /usr, read-only, and five devices, without /etc, /home, /sys and other folders of
the host. Root becomes an unprivileged user first, so that an escape from the namespaces ends in an account without rights. For other users
the box has their rights outside, so their files are not mounted. A control group limits memory, processes and CPU if it can be created
(mostly as root); otherwise memory is limited per process, processes per user namespace, and CPU not at all.
Source of the control groups: the kernel's admin-guide/cgroup-v1 (a folder under each controller) and cgroup-v2 (one folder beside our own).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from synth.sandbox.base import Limits, Protection, SandboxError
from synth.sandbox.box import (
    ENVIRONMENT,
    NOBODY,
    PREFIX,
    Connection,
    is_orphan,
    new_name,
    raised_limits,
    supervisor_command,
    wait_until_ready,
    work_folder,
)
from synth.sandbox.supervisor import WORK_DIR

DEVICES = ("null", "zero", "full", "random", "urandom")
STD_STREAMS = {"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "fd": "/proc/self/fd"}
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
END_S = 5.0
JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'
"""Shell command that enters control groups and then runs its arguments: only a process itself can be put into a group."""
CGROUP_ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "pids", "cpu")
PERIOD_US = 100_000
SWAP = ("memory.swap.max", "memory.memsw.limit_in_bytes")
"""Absent in a kernel without swap accounting."""


class Bubblewrap:
    name = "bubblewrap"

    def __init__(self) -> None:
        self.shown: Path | None = None
        self._homes = cgroup_homes()
        self.limits_whole_box = bool(self._homes)

    def missing(self) -> str:
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
        python, name, limits = _python(), new_name(), raised_limits(limits, without)
        if python is None or shutil.which("bwrap") is None:
            raise SandboxError(self.missing())
        address_bytes = 0 if self._homes else limits.memory_bytes
        command = supervisor_command(
            python, name, without, mount=work_folder(limits), address_bytes=address_bytes, processes=limits.processes
        )
        box = BubblewrapBox(name, [*self._bwrap(without), "--", *command], make_group(name, limits, self._homes))
        wait_until_ready(box)
        return box

    def reap(self) -> int:
        orphans = {path.name for home in self._homes for path in home.glob(f"{PREFIX}-*") if is_orphan(path.name)}
        for name in sorted(orphans):
            ControlGroup(tuple(home / name for home in self._homes)).close()
        return len(orphans)

    def _bwrap(self, without: frozenset[Protection]) -> list[str]:
        is_root = os.geteuid() == 0
        user = 0 if "user" in without and is_root else NOBODY
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if is_root and user else []
        words += ["bwrap", "--unshare-user", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "box"]
        words += ["--uid", str(user), "--gid", str(user), "--info-fd", "INFO_FD", "--new-session", "--clearenv"]
        for variable, value in ENVIRONMENT.items():
            words += ["--setenv", variable, value]
        words += [] if "network" in without else ["--unshare-net"]
        words += [] if "pids" in without else ["--unshare-pid", "--as-pid-1"]
        # The supervisor needs these two to mount the work folder and to drop them for good.
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
        if "mounts" in without and self.shown is not None:
            words += ["--bind", str(self.shown), str(self.shown), "--ro-bind", "/sys", "/sys"]
        return [*words, *([] if "read_only" in without else ["--remount-ro", "/"]), "--chdir", "/"]


class BubblewrapBox:
    """command: words of the bwrap command; INFO_FD stands for the descriptor over which bwrap sends the id of the box's first process."""

    def __init__(self, name: str, command: list[str], group: ControlGroup) -> None:
        self.name, self._group, self.has_runner = name, group, False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        info_r, info_w = os.pipe()
        doors = [str(folder / "cgroup.procs") for folder in group.folders]
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", JOIN, "sh", *doors, "--", *(word.replace("INFO_FD", str(info_w)) for word in command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=(info_w,),
                bufsize=0,
                start_new_session=True,
                cwd="/",
                env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
            )
        except OSError as error:
            os.close(info_r)
            self._errors.close()
            group.close()
            raise SandboxError(f"bubblewrap cannot be started: {error}") from error
        finally:
            os.close(info_w)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._pipes = (self._process.stdin, self._process.stdout)
        self.connection = Connection(*(pipe.fileno() for pipe in self._pipes))
        self._init = _init_process(info_r)

    def complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read(2_000).decode(errors="replace")

    def close(self) -> None:
        self.connection.close()
        for pipe in self._pipes:
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
        self._group.close()


def _python() -> str | None:
    return next((path for path in PYTHONS if os.access(path, os.X_OK)), None)


def _init_process(info: int) -> int | None:
    """A handle of the box's first process, from what bubblewrap says of it; None if it says nothing (and dies)."""
    with open(info, "rb") as file:
        text = file.read()
    try:
        return os.pidfd_open(json.loads(text)["child-pid"])
    except (ValueError, KeyError, ProcessLookupError):
        return None


# ---- control groups ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ControlGroup:
    """folders: one a controller (version 1), one in all (version 2), or none. A process joins by writing its id into `cgroup.procs`."""

    folders: tuple[Path, ...]

    def close(self) -> None:
        """Ends every process in it, and removes it. Raises SandboxError where its processes do not end in 5 s."""
        ends = time.monotonic() + END_S
        for folder in self.folders:
            while folder.exists():
                _kill_members(folder)
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if time.monotonic() > ends:
                        raise SandboxError(f"the control group {folder} cannot be removed: {error}") from error
                    time.sleep(0.002)


def cgroup_homes(root: Path = CGROUP_ROOT, own_group: str | None = None) -> tuple[Path, ...]:
    """The folders in which groups can be created; empty if there are none. own: the content of /proc/self/cgroup."""
    lines = (own_group if own_group is not None else Path("/proc/self/cgroup").read_text()).splitlines()
    paths = {controller: path for _, names, path in (line.split(":", 2) for line in lines) for controller in names.split(",")}
    if (root / "cgroup.controllers").exists():
        parents = [(root / paths.get("", "/").lstrip("/")).parent, root]
        return tuple(parent for parent in parents if parent.is_relative_to(root) and _delegates(parent))[:1]
    homes = []
    for controller in CONTROLLERS:
        mount = root / controller
        inner = mount / paths.get(controller, "/").lstrip("/")
        folder = inner if inner.is_dir() else mount
        if not (folder / "cgroup.procs").exists() or not os.access(folder, os.W_OK):
            return ()
        homes.append(folder)
    return tuple(homes)


def make_group(name: str, limits: Limits, homes: tuple[Path, ...]) -> ControlGroup:
    """A new group in `homes`; bubblewrap's own process counts among its processes. Raises SandboxError if the kernel refuses it."""
    group = ControlGroup(tuple(home / name for home in homes))
    memory_bytes, processes, quota_us = limits.memory_bytes, limits.processes + 1, int(limits.cpus * PERIOD_US)
    if len(homes) == 1:
        quota = f"{quota_us} {PERIOD_US}"
        settings = [{"memory.max": memory_bytes, "memory.swap.max": 0, "pids.max": processes, "cpu.max": quota}]
    else:
        settings = [
            {"memory.limit_in_bytes": memory_bytes, "memory.memsw.limit_in_bytes": memory_bytes},
            {"pids.max": processes},
            {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota_us},
        ]
    try:
        for folder, values in zip(group.folders, settings, strict=False):
            folder.mkdir()
            for file, value in values.items():
                if (folder / file).exists() or file not in SWAP:
                    (folder / file).write_text(str(value))
    except OSError as error:
        group.close()
        raise SandboxError(f"no control group of our own: {error}") from error
    return group


def _delegates(folder: Path) -> bool:
    """Whether groups under this folder of version 2 may have our controllers."""
    try:
        given = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return set(CONTROLLERS) <= set(given) and os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def _kill_members(folder: Path) -> None:
    """Ends the processes of a group; none where another process has removed it meanwhile."""
    with contextlib.suppress(OSError):
        for line in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line), signal.SIGKILL)
