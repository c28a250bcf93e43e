"""The box of a live server: a command in bubblewrap (or Docker) with a private folder, no network unless named, and limits.

One idea: the server sees `/data` (its private folder, a folder of the host), `/usr`, the folders that its command needs, and nothing else;
it is an unprivileged user without capabilities, under the sandbox's filter of system calls (`synth/sandbox/seccomp.py`). A Python server
runs behind a fork server (`inside/fork_server.py`), so that another copy costs a fork.

Covered: the network, files of the host, processes of the host, memory and processes (by a control group where one can be made), the size
of a file, the size of the folder (watched by `live_server.py`), the size of an answer, and time. Not covered: a kernel's bugs; without a
control group, memory and processes are not limited; `isolation: none` covers nothing.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from storage.errors import BadInput
from synth.sandbox import seccomp
from synth.sandbox.base import Limits as BoxLimits
from synth.sandbox.box import NOBODY, new_name
from synth.sandbox.bwrap import JOIN, ControlGroup, cgroup_homes, make_group
from synth.worlds.live.copies.copy_errors import ServerDied
from synth.worlds.live.live_spec import DATA, Limits, LiveSpec

FORK_SERVER = Path(__file__).parents[1] / "inside" / "fork_server.py"
INSIDE = "/run/headrace"
"""Where a box sees the folder `inside/`."""
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
ENVIRONMENT |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "TZ": "UTC", "NO_COLOR": "1"}
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki")
TMP_BYTES = 64 * 2**20
END_S = 2.0
FAKETIME = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")
LIMITED = 'ulimit -c 0; ulimit -f "$1"; ulimit -n 1024; shift; ' + JOIN


@dataclass(frozen=True)
class Pipes:
    """The host's ends of a copy's stdin, stdout and stderr."""

    stdin: int
    stdout: int
    stderr: int

    def close(self) -> None:
        for descriptor in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def missing_box(spec: LiveSpec) -> str:
    """What this machine lacks for the isolation of a spec, and how to install it; empty if nothing."""
    if spec.is_remote or spec.isolation == "none":
        return ""
    tool = "bwrap" if spec.isolation == "bubblewrap" else "docker"
    if shutil.which(tool) is None:
        return (
            "bubblewrap is not installed (apt-get install -y --no-install-recommends bubblewrap); "
            "`isolation: none` runs the server unprotected"
            if tool == "bwrap"
            else "the command `docker` is not installed"
        )
    if spec.clock and faketime() is None:
        return "`clock` needs libfaketime: apt-get install -y --no-install-recommends libfaketime"
    return ""


@cache
def _spawner(pid: int) -> ThreadPoolExecutor:
    """The thread in which this process starts boxes."""
    return ThreadPoolExecutor(1, thread_name_prefix="boxes")


@cache
def faketime() -> str | None:
    """The path of libfaketime; None where it is not installed."""
    return next((str(path) for pattern in FAKETIME for path in Path("/").glob(pattern[1:])), None)


class Box:
    """A server's box. `start` gives the pipes of a new copy of the server; the copy before it ends.

    The kernel ends a box with the thread that made it (bubblewrap's `--die-with-parent`), so all are made in one thread that stays.
    """

    def __init__(self, spec: LiveSpec, command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        self._spec, self._command, self._folder = spec, list(command), folder
        self._variables = {**ENVIRONMENT, **variables}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._group = ControlGroup(())
        self._forks = spec.isolation == "bubblewrap" and (words := python_words(self._command)) is not None
        self._words = words if self._forks else None
        self.name = ""

    @property
    def forks(self) -> bool:
        """Whether another copy is a fork."""
        return self._forks

    def start(self) -> Pipes:
        """Raises ServerDied where nothing can be started."""
        ours, theirs = _pipes()
        try:
            if self._forks:
                self._fork(theirs)
            else:
                self.close()
                self._open(theirs, ())
        except ServerDied as error:
            said = " ".join(os.read(ours.stderr, 4096).decode(errors="replace").split()) if _is_readable(ours.stderr) else ""
            ours.close()
            raise ServerDied(f"{error}{f'; it said: {said[-300:]}' if said else ''}") from error
        finally:
            theirs.close()
        return ours

    def end(self) -> str:
        """Ends the copy; says how it had ended if it had (`exit code 3`, `signal 9`), else ''."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.settimeout(END_S)
                self._control.send(b"end")
                answer = self._control.recv(64).decode().split()
                if answer[:1] == ["ended"]:
                    return _ending(int(answer[1]))
            self._close_box()
            return ""
        status = self._process.poll() if self._process is not None else None
        self._close_box()
        return "" if status is None else _ending_of_code(status)

    def close(self) -> None:
        self._close_box()

    def signal(self, number: int) -> None:
        """Sends a signal to all processes of the box; used to try what happens when a server hangs or dies."""
        assert self._process is not None
        for pid in descendants(self._process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _fork(self, theirs: Pipes) -> None:
        if self._control is None:
            control, inner = socket.socketpair()
            control.settimeout(self._spec.limits.start_s)
            try:
                with Path(os.devnull).open("rb+") as null:
                    nothing = Pipes(null.fileno(), null.fileno(), theirs.stderr)
                    self._open(nothing, (inner.fileno(),))
            finally:
                inner.close()
            self._control = control
        self._control.settimeout(self._spec.limits.start_s)
        try:
            socket.send_fds(self._control, [b"fork"], [theirs.stdin, theirs.stdout, theirs.stderr])
            answer = self._control.recv(64)
        except OSError as error:
            self._close_box()
            raise ServerDied(f"the server's Python does not start in its box: {error}") from error
        if answer != b"forked":
            self._close_box()
            raise ServerDied(f"the server's Python does not start in its box: {self._words}")

    def _open(self, theirs: Pipes, kept: tuple[int, ...]) -> None:
        limits = self._spec.limits
        self.name = new_name()  # Docker removes an ended container in its own time, and holds the name until then
        words = self._inner_words(kept)
        passed = list(kept)
        command = words
        if self._spec.isolation == "bubblewrap":
            command, files = self._bubblewrap(words)
            passed += files
            self._group = make_group(self.name, _box_limits(limits), cgroup_homes())
            doors = [str(folder / "cgroup.procs") for folder in self._group.folders]
            command = ["/bin/sh", "-c", LIMITED, "sh", str(limits.disk_mib * 2048), *doors, "--", *command]
        elif self._spec.isolation == "docker":
            command = self._docker(words)
        variables = self._variables if self._spec.isolation == "none" else {"PATH": os.environ.get("PATH", ENVIRONMENT["PATH"])}
        try:
            started = _spawner(os.getpid()).submit(
                subprocess.Popen,
                command,
                stdin=theirs.stdin,
                stdout=theirs.stdout,
                stderr=theirs.stderr,
                pass_fds=passed,
                start_new_session=True,
                cwd=str(self._folder) if self._spec.isolation == "none" else "/",
                env={**os.environ, **self._variables, **variables} if self._spec.isolation == "docker" else variables,
            )
            self._process = started.result()
        except OSError as error:
            self._group.close()
            raise ServerDied(f"{command[0]} cannot be started: {error.strerror}") from error
        finally:
            for descriptor in passed[len(kept) :]:
                os.close(descriptor)

    def _inner_words(self, kept: tuple[int, ...]) -> list[str]:
        if not kept:
            return self._command
        assert self._words is not None
        return [self._words[0], f"{INSIDE}/{FORK_SERVER.name}", str(kept[0]), *self._words[1:]]

    def _bubblewrap(self, words: Sequence[str]) -> tuple[list[str], list[int]]:
        """The command line of the box, and descriptors that it reads."""
        is_root = os.geteuid() == 0
        made = ["bwrap", "--unshare-ipc", "--unshare-uts", "--unshare-pid", "--unshare-cgroup-try", "--hostname", "box"]
        made += ["--new-session", "--die-with-parent", "--clearenv"]
        made += [] if self._spec.network else ["--unshare-net"]
        capabilities = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
        made += [word for name in capabilities for word in ("--cap-add", name)] if is_root else ["--unshare-user"]
        made += [] if is_root else ["--uid", str(NOBODY), "--gid", str(NOBODY)]
        settings = [word for variable, value in self._variables.items() for word in ("--setenv", variable, value)]
        environment = _as_file("".join(f"{word}\0" for word in settings).encode())  # not in the command line, which all users can read
        made += ["--args", str(environment), "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
        for folder in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            if Path("/", folder).exists():
                made += ["--symlink", f"usr/{folder}", f"/{folder}"]
        for folder in ("/tmp", "/dev/shm"):
            made += ["--perms", "1777", "--size", str(TMP_BYTES), "--tmpfs", folder]
        seen = {mount: mount for mount in _mounts(self._command, self._spec.mounts)}
        if is_root:
            _check_readable(seen)
        seen |= {file: file for file in NETWORK_FILES if self._spec.network and Path(file).exists()}
        seen |= {INSIDE: str(FORK_SERVER.parent)}
        parents = {str(parent) for path in (*seen, "/etc/passwd") for parent in Path(path).parents} - {"/", "/tmp"}
        made += [word for parent in sorted(parents) for word in ("--perms", "0755", "--dir", parent)]
        made += [word for place, path in seen.items() for word in ("--ro-bind", path, place)]
        made += ["--bind", str(self._folder), DATA, "--chdir", DATA]
        users = _as_file(f"nobody:x:{NOBODY}:{NOBODY}:nobody:/tmp:/usr/sbin/nologin\n".encode())
        rules = _as_file(seccomp.program(platform.machine()))
        made += ["--perms", "0444", "--ro-bind-data", str(users), "/etc/passwd", "--seccomp", str(rules), "--remount-ro", "/", "--"]
        if is_root:
            made += ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
            made += ["--inh-caps=-all", "--bounding-set=-all"]
        clock = _clock_variables(self._spec)
        made += ["env", *(f"{variable}={value}" for variable, value in clock.items())] if clock else []
        return [*made, *words], [users, rules, environment]

    def _docker(self, words: Sequence[str]) -> list[str]:
        limits = self._spec.limits
        made = ["docker", "run", "--rm", "--interactive", "--name", self.name, "--read-only", "--cap-drop", "ALL"]
        made += ["--security-opt", "no-new-privileges", "--user", f"{NOBODY}:{NOBODY}", "--pids-limit", str(limits.processes)]
        made += [
            "--memory",
            f"{limits.memory_mib}m",
            "--memory-swap",
            f"{limits.memory_mib}m",
            "--tmpfs",
            f"/tmp:size={TMP_BYTES},mode=1777",
        ]
        made += [] if self._spec.network else ["--network", "none"]
        made += ["--volume", f"{self._folder}:{DATA}", "--workdir", DATA, "--volume", f"{FORK_SERVER.parent}:{INSIDE}:ro"]
        for mount in self._spec.mounts:
            made += ["--volume", f"{mount}:{mount}:ro"]
        for variable in self._variables:
            made += ["--env", variable] if variable != "PATH" else []
        return [*made, self._spec.image, *words]

    def _close_box(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        process, self._process = self._process, None
        if process is not None:
            if self._spec.isolation == "docker":
                subprocess.run(["docker", "rm", "--force", self.name], capture_output=True, check=False)
            if self._spec.isolation == "bubblewrap":  # the first process inside ends, and bubblewrap buries it
                for pid in descendants(process.pid)[:1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        self._group.close()
        self._group = ControlGroup(())


def python_words(command: Sequence[str]) -> list[str] | None:
    """The interpreter, and what it runs, of a command that is a Python program: `[python, -m, module, ...]`, `[python, file, ...]`, or a
    script that says so in its first line. None for any other."""
    name = Path(command[0]).name
    if name.startswith("python"):
        rest = list(command[1:])
        is_plain = bool(rest) and (rest[0] == "-m" or not rest[0].startswith("-")) and len(rest) > (rest[0] == "-m")
        return [command[0], *rest] if is_plain else None
    path = shutil.which(command[0])
    with contextlib.suppress(OSError), Path(path or command[0]).open("rb") as file:
        first = file.readline(300).decode(errors="replace").strip()
        if first.startswith("#!") and "python" in first.rsplit("/", 1)[-1] and " " not in first:
            return [first[2:], str(path), *command[1:]]
    return None


# ---- parts -----------------------------------------------------------------------------------------------------------------


def _box_limits(limits: Limits) -> BoxLimits:
    return BoxLimits(memory_bytes=limits.memory_mib * 2**20, processes=limits.processes, cpus=2.0)


def _clock_variables(spec: LiveSpec) -> dict[str, str]:
    library = faketime() if spec.clock else None
    if library is None:
        return {}
    return {"LD_PRELOAD": library, "FAKETIME": str(spec.clock), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


def _mounts(command: Sequence[str], named: Sequence[str]) -> list[str]:
    """The folders and files of this machine that a box must see, the outermost first; `/usr` and what lies in others are left out."""
    wanted = {str(Path(each).absolute()) for each in named} | set(needed_paths(command))
    kept: list[str] = []
    for path in sorted(wanted, key=len):
        if not path.startswith("/usr/") and not any(path == each or path.startswith(each + "/") for each in kept):
            kept.append(path)
    return kept


def _check_readable(mounts: Iterable[str]) -> None:
    """Raises BadInput where the box's user, who is not root, cannot read what it must see."""
    for mount in mounts:
        is_folder = Path(mount).is_dir()
        wanted = stat.S_IROTH | stat.S_IXOTH if is_folder else stat.S_IROTH
        if Path(mount).stat().st_mode & wanted != wanted:
            raise BadInput(f"{mount}: the box's user, who is not root, cannot read it: chmod {'o+rx' if is_folder else 'o+r'} {mount}")


def needed_paths(command: Sequence[str]) -> list[str]:
    """Folders that a command needs: the environment of its program (a virtual environment and the Python that it was made from, a
    `node_modules`), and the files and folders that its words name.

    Raises:
        BadInput: the program is not there.
    """
    program = shutil.which(command[0])
    if program is None:
        raise BadInput(f"{command[0]}: no such command; give its path, or install it first")
    found = _environment_of(Path(program))
    for word in command[1:]:
        path = Path(word)
        if path.is_absolute() and path.exists() and len(path.parts) > 2 and not path.is_relative_to(DATA):
            found += _environment_of(path)
    return [each for each in dict.fromkeys(found) if Path(each).exists()]


def _environment_of(path: Path) -> list[str]:
    """The paths that go with a file: its virtual environment, its `node_modules`, what its links lead to; or itself."""
    path = path.absolute()
    for parent in (path, *path.parents):
        if (parent / "pyvenv.cfg").is_file():
            home = next(
                (line.split("=", 1)[1].strip() for line in (parent / "pyvenv.cfg").read_text().splitlines() if line.startswith("home")), ""
            )
            return [str(parent), *([str(Path(home).parent)] if home else []), *_links(path)]
        if parent.name == "node_modules":
            return [str(parent)]
    first = _first_line(path)
    inner = _environment_of(Path(first)) if first else []
    prefix = [str(Path(sys.base_prefix))] if path.is_relative_to(sys.base_prefix) else [str(path)]
    return [*prefix, *_links(path), *inner]


def _links(path: Path) -> list[str]:
    real = path.resolve()
    if real == path:
        return []
    prefix = real.parent.parent
    is_prefix = real.parent.name == "bin" and (prefix / "lib").is_dir() and prefix not in (Path("/"), Path.home())
    return [str(prefix if is_prefix else real)]


def _first_line(path: Path) -> str:
    """The interpreter that a script names in its first line; empty if none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        line = file.readline(300).decode(errors="replace").strip()
    word = line[2:].split()[0] if line.startswith("#!") and len(line) > 2 else ""
    return word if word and Path(word).name != "env" and Path(word).exists() else ""


def _pipes() -> tuple[Pipes, Pipes]:
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    return Pipes(stdin[1], stdout[0], stderr[0]), Pipes(stdin[0], stdout[1], stderr[1])


def _is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0.1)[0])


def _as_file(data: bytes) -> int:
    """A descriptor from which the data can be read."""
    descriptor = os.memfd_create("headrace")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _ending(status: int) -> str:
    return "" if status < 0 else _ending_of_code(os.waitstatus_to_exitcode(status))


def _ending_of_code(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found
