"""The supervisor, process 1 of a box: it starts programs, enforces their limits, and ends all processes that they leave running.

It uses the standard library of Python 3.9 or newer only, because its source is passed to the Python of the box:
`python3 -s -S -c SOURCE CONFIGURATION`. The host uses its stdin and stdout, with one answer per request:
- a request is two lengths (REQUEST), a dict in marshal's version 2, which every Python reads, and a body;
- an answer is flags, an exit code and three lengths (ANSWER), and three byte strings. The host does not trust them.
When its stdin closes, it ends with all processes of the box, so that they do not outlive a killed host.

It does not contain a program: namespaces, limits of the kernel and the filter of system calls do, and they hold before the first request.
"""

from __future__ import annotations

import ctypes
import gc
import marshal
import math
import os
import resource
import select
import stat
import struct
import sys
import time

# Imports of json, pathlib, signal and typing would double the start time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn

    JSON = Any
    Reply = tuple[int, int, tuple[bytes, bytes, bytes]]
    """Flags, exit code, and the parts of an answer."""
else:
    import _signal as signal

REQUEST, ANSWER = ">II", ">Bi3I"
FAILED, TIMED_OUT, LEFT_RUNNING, STDOUT_CUT, STDERR_CUT = 1, 2, 4, 8, 16
ALL_FLAGS = 31
MESSAGE_BYTES = 4_096
DONE = 0, 0, (b"", b"", b"")
WORK_DIR, WORK_MODE = "/tmp", 0o1777
"""The only writable folder of a box, and the working directory of all programs."""
HOST_IN, HOST_OUT = 10, 11
CHUNK = 65_536
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": WORK_DIR,
    "TMPDIR": WORK_DIR,
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
}

libc = ctypes.CDLL(None, use_errno=True)


# ---- getting ready ----------------------------------------------------------------------------------------------------


def check(returned: int, action: str) -> None:
    if returned != 0:
        raise OSError(ctypes.get_errno(), f"{action}: {os.strerror(ctypes.get_errno())}")


def secure(config: dict[str, JSON]) -> None:
    """Drops the privileges of this process and its children, and installs the filter of system calls."""
    without = config["without"]
    os.umask(0o077)
    if config["mount"]:
        flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
        check(libc.mount(b"tmpfs", WORK_DIR.encode(), b"tmpfs", flags, config["mount"].encode()), "mount the work folder")
    if "capabilities" not in without:
        drop_capabilities()
    if "new_privileges" not in without:
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
    if "supervisor" not in without:
        check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "become undumpable")
    if config["filter"]:
        install_filter(config["filter"])


def drop_capabilities() -> None:
    libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    check(libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)), "drop capabilities")


def install_filter(program: bytes) -> None:
    lines = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(lines))
    check(libc.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(fprog), 0, 0), "install the filter of system calls")


def move_connection(is_inheritable: bool) -> None:
    """Moves the connection from descriptors 0 and 1, which a program would inherit."""
    os.dup2(0, HOST_IN, is_inheritable)
    os.dup2(1, HOST_OUT, is_inheritable)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if null > 2:
        os.close(null)


# ---- the connection ---------------------------------------------------------------------------------------------------


def read_exactly(count: int) -> bytes:
    parts = []
    while count:
        part = os.read(HOST_IN, min(count, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive() -> tuple[dict[str, JSON], bytes]:
    header_size, body_size = struct.unpack(REQUEST, read_exactly(struct.calcsize(REQUEST)))
    return marshal.loads(read_exactly(header_size)), read_exactly(body_size)


def send(flags: int, exit_code: int, parts: tuple[bytes, bytes, bytes]) -> None:
    data = memoryview(struct.pack(ANSWER, flags, exit_code, *map(len, parts)) + b"".join(parts))
    while data:
        data = data[os.write(HOST_OUT, data) :]


# ---- programs ---------------------------------------------------------------------------------------------------------


class Stream:
    """The first `limit` bytes that a program writes to a pipe; further bytes are read and discarded."""

    def __init__(self, fd: int, limit: int) -> None:
        self.fd, self.limit = fd, limit
        self.data = bytearray()
        self.is_cut, self.is_open = False, True

    def read(self) -> bool:
        data = os.read(self.fd, CHUNK)
        room = self.limit - len(self.data)
        self.data += data[:room]
        self.is_cut = self.is_cut or len(data) > room
        self.is_open = bool(data)
        return self.is_open


class Supervisor:
    """Serves requests: each public method is an operation."""

    def __init__(self, config: dict[str, JSON]) -> None:
        self._config = config
        self._without = config["without"]
        self._is_init = os.getpid() == 1
        self._wake, wake_w = os.pipe()
        for fd in (self._wake, wake_w):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a handler, process 1 ignores signals from inside the box
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        self._runner: dict[str, JSON] = {}

    def load(self, request: dict[str, JSON], body: bytes) -> Reply:
        """Loads Python source with a function `run(code, fd) -> exit code`, for runs without `argv`."""
        exec(compile(body, "<runner>", "exec"), self._runner)
        gc.freeze()  # these objects stay; frozen, they are not copied in every fork by the collector
        return DONE

    def run(self, request: dict[str, JSON], body: bytes) -> Reply:
        """Runs `argv`, or the loaded runner on `body` in a fork of this interpreter, to its end or a limit."""
        limit = request["output_bytes"] * (2 if "output" in self._without else 1)
        pipes = [os.pipe() for _ in range(3)]
        streams = [Stream(read, limit) for read, _ in pipes]
        ends = time.monotonic() + request["wall_s"] * (3 if "wall" in self._without else 1)
        pid = os.fork()
        if pid == 0:
            self._become(request, body, [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        status, usage, is_late = self._follow(pid, streams, ends)
        is_swept = self._sweep(pid)
        for _ in range(64):
            if not self._collect(streams, 0):
                break
        for stream in streams:
            os.close(stream.fd)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        cpu_s = usage.ru_utime + usage.ru_stime
        is_spent = code == -signal.SIGPROF or (code == -signal.SIGKILL and cpu_s > request["cpu_s"] - 0.2)
        flags = TIMED_OUT * (is_late or is_spent) | LEFT_RUNNING * (not is_swept)
        flags |= STDOUT_CUT * streams[0].is_cut | STDERR_CUT * streams[1].is_cut
        out, err, value = (bytes(stream.data) for stream in streams)
        return flags, code, (out, err, value)

    def _follow(self, pid: int, streams: list[Stream], ends: float) -> tuple[int, resource.struct_rusage, bool]:
        """Reads the output until the program ends; kills it after its wall time."""
        is_late = False
        while True:
            ended, status, usage = os.wait4(-1, os.WNOHANG)  # orphans too: a dead process counts until it is waited for
            if ended == pid:
                return status, usage, is_late
            left_s = ends - time.monotonic()
            if left_s <= 0:
                is_late = True
                self._kill(pid)
            self._collect(streams, 0.0 if ended else 0.01 if is_late else min(left_s, 1.0))

    def _collect(self, streams: list[Stream], timeout_s: float) -> bool:
        """Reads the streams once, waiting at most `timeout_s`. Returns whether anything was read."""
        poll = select.poll()
        by_fd = {stream.fd: stream for stream in streams if stream.is_open}
        for fd in (*by_fd, self._wake):
            poll.register(fd, select.POLLIN)
        poll.register(HOST_IN, 0)
        is_any = False
        for fd, _ in poll.poll(math.ceil(timeout_s * 1000)):
            if fd == HOST_IN:
                os._exit(0)
            elif fd == self._wake:
                os.read(self._wake, CHUNK)
            else:
                is_any = by_fd[fd].read() or is_any
        return is_any

    def _kill(self, pid: int) -> None:
        """Kills all processes of the box but this one; if this is not process 1, the program's process group."""
        try:
            if self._is_init:
                os.kill(-1, signal.SIGKILL)
            else:
                os.killpg(pid, signal.SIGKILL)
        except OSError:
            return

    def _sweep(self, pid: int) -> bool:
        """Ends all processes of the program. Returns whether it succeeded: process 1 inherits all orphans, so no child means no process."""
        if "sweep" in self._without:
            return True
        ends = time.monotonic() + 5.0
        while time.monotonic() < ends:
            self._kill(pid)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return True
            time.sleep(0.001)
        return False

    def _become(self, request: dict[str, JSON], body: bytes, writes: list[int]) -> NoReturn:
        """Runs the program with its limits, in the child. Does not return."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            for position, write in enumerate(writes, 1):
                os.dup2(write, position)
            is_snippet = "argv" not in request
            if "descriptors" not in self._without:
                os.closerange(3 + is_snippet, 1024)
            libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
            self._limit(request)
            os.chdir(WORK_DIR)
            if is_snippet:
                os._exit(self._runner["run"](body.decode(), 3))
            argv = [sys.executable if each is None else each for each in request["argv"]]
            os.execvpe(argv[0], argv, {**ENVIRONMENT, **self._config["environment"]})
        except BaseException as error:
            os.write(2, f"cannot run: {error}\n".encode())
        finally:
            os._exit(127)

    def _limit(self, request: dict[str, JSON]) -> None:
        def at(name: int, value: int) -> None:
            resource.setrlimit(name, (value, value))

        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        # 1, not 0: only at 1 the kernel does not start a crash handler.
        at(resource.RLIMIT_CORE, 2**20 if "core" in self._without else 1)
        if "cpu" not in self._without:
            at(resource.RLIMIT_CPU, request["cpu_s"])
            # Shortly before the limit comes SIGPROF, which identifies this end. A program that ignores it reaches the limit.
            signal.setitimer(signal.ITIMER_PROF, request["cpu_s"] - 0.05)
        at(resource.RLIMIT_NOFILE, request["open_files"] * (2 if "open_files" in self._without else 1))
        if self._config["address_bytes"]:
            at(resource.RLIMIT_AS, self._config["address_bytes"])
        if self._config["processes"]:
            at(resource.RLIMIT_NPROC, self._config["processes"])

    # ---- files --------------------------------------------------------------------------------------------------------

    def put(self, request: dict[str, JSON], body: bytes) -> Reply:
        os.makedirs(os.path.dirname(inside(request["path"])), exist_ok=True)
        fd = os.open(inside(request["path"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        with open(fd, "wb") as file:
            file.write(body)
        return DONE

    def get(self, request: dict[str, JSON], body: bytes) -> Reply:
        fd = os.open(inside(request["path"]), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise OSError("not a plain file")
            if about.st_size > request["size_bytes"]:
                raise OSError(f"has {about.st_size} bytes, the most is {request['size_bytes']}")
            return 0, 0, (file.read(request["size_bytes"]), b"", b"")

    def wipe(self, request: dict[str, JSON], body: bytes) -> Reply:
        """Empties the work folder, however deep: what lies in a folder moves to the top, until there are no folders. The folder itself
        is as it was made afterwards, since a program may own it."""
        if "reset" in self._without:
            return DONE
        if stat.S_IMODE(os.stat(WORK_DIR).st_mode) != WORK_MODE:
            os.chmod(WORK_DIR, WORK_MODE)
        for attribute in os.listxattr(WORK_DIR):
            os.removexattr(WORK_DIR, attribute)
        os.utime(WORK_DIR)
        while names := os.listdir(WORK_DIR):
            for name in names:
                path = os.path.join(WORK_DIR, name)
                if not is_folder(path):
                    os.unlink(path)
                    continue
                os.chmod(path, 0o700)
                for child in os.listdir(path):
                    inner = os.path.join(path, child)
                    if is_folder(inner):
                        os.chmod(inner, 0o700)
                        os.rename(inner, os.path.join(WORK_DIR, f".{os.urandom(16).hex()}"))
                    else:
                        os.unlink(inner)
                os.rmdir(path)
        return DONE


def is_folder(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def inside(path: str) -> str:
    """The path with every link in its folders followed, refused if that leads out of the work folder."""
    whole = os.path.join(WORK_DIR, path)
    folder = os.path.realpath(os.path.dirname(whole))
    if os.path.basename(whole) in ("", ".", "..") or os.path.commonpath([folder, WORK_DIR]) != WORK_DIR:
        raise OSError(f"{path!r} is not a path of a file in the work folder")
    return os.path.join(folder, os.path.basename(whole))


def main() -> NoReturn:
    config = marshal.loads(bytes.fromhex(sys.argv[1]))
    sys.path[:] = [path for path in sys.path if path]  # nothing is imported from the work folder
    move_connection("descriptors" in config["without"])
    secure(config)
    os.chdir(WORK_DIR)
    supervisor = Supervisor(config)
    send(*DONE)
    while True:
        request, body = receive()
        try:
            reply = getattr(supervisor, request["op"])(request, body)
        except Exception as error:
            reply = FAILED, 0, (str(error).encode("utf-8", errors="replace")[:MESSAGE_BYTES], b"", b"")
        send(*reply)


if __name__ == "__main__":
    main()
