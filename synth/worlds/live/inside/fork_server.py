"""Starts a Python server again and again in milliseconds: its modules are imported once, and every copy is a fork.

`python fork_server.py CONTROL_FD COMMAND...`: COMMAND is `SCRIPT ARGUMENTS...`, where SCRIPT is a Python file, or `-m MODULE ARGUMENTS...`.
What the script imports at its top is imported here; a fork then runs it as `python SCRIPT` would. The host sends over the socket CONTROL_FD
- `fork`, with three descriptors: stdin, stdout and stderr of the new copy; the answer is `forked`;
- `end`: all processes of the box but this one are killed, and /tmp is emptied; the answer is `ended STATUS`, of `os.waitpid`, or -1 if the
  copy still ran.

It must be the only server in a process namespace of its own, because `end` kills all that it may. It uses the standard library only.
"""

import ast
import contextlib
import importlib
import importlib.util
import os
import runpy
import shutil
import signal
import socket
import sys

OLD_STREAMS = []
USUAL = ("anyio._backends._asyncio", "mcp.server.stdio", "mcp.server.fastmcp", "mcp.server.lowlevel.server", "asyncio.runners")
"""Modules that servers import only when they run, where their packages are in use."""


def source_of(command):
    """The file that the command runs; None where it is not found."""
    if command[0] != "-m":
        return command[0]
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(command[1])
        if spec is not None and spec.submodule_search_locations:
            spec = importlib.util.find_spec(command[1] + ".__main__")
        return spec.origin if spec is not None else None
    return None


def import_first(command):
    """Imports what the command's file imports at its top; what fails will fail again, and be told, in the copy."""
    path = source_of(command)
    if path is None:
        return
    import_all(path, command)
    for name in USUAL:
        if name.partition(".")[0] in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def import_all(path, command):
    with contextlib.suppress(OSError, SyntaxError, ValueError), open(path, "rb") as file:
        tree = ast.parse(file.read())
        for node in tree.body:
            for name in imported_names(node, command):
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


def imported_names(node, command):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = command[1].rpartition(".")[0] or command[1] if command[0] == "-m" else ""
        name = "." * node.level + (node.module or "")
        return [importlib.util.resolve_name(name, package) if node.level else name]
    return []


def run(command):
    """Runs the command as Python would; never returns."""
    code = 0
    try:
        if command[0] == "-m":
            sys.argv = ["-m", *command[2:]]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        if isinstance(ended.code, str):
            sys.stderr.write(ended.code + "\n")
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def start_copy(control, descriptors, command):
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid
    control.close()
    os.setsid()
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    renew_streams()
    run(command)
    raise AssertionError


def renew_streams():
    """Streams remember whether their descriptor could seek, so the copy gets new ones. The old ones are kept: one that ends closes its
    descriptor."""
    OLD_STREAMS.extend((sys.stdin, sys.stdout, sys.stderr))
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)


def end_copy(pid):
    """Kills all processes of the box but this one. Returns the status of the copy if it had ended before, else -1."""
    status = -1
    with contextlib.suppress(ChildProcessError):
        ended, its_status = os.waitpid(pid, os.WNOHANG) if pid else (0, 0)
        status = its_status if ended else -1
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    for folder in ("/tmp", "/dev/shm"):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
    return status


def main():
    control = socket.socket(fileno=int(sys.argv[1]))
    command = sys.argv[2:]
    sys.path.insert(0, "") if command[0] == "-m" else None
    import_first(command)
    pid = 0
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 64, 3)
        if request == b"fork":
            pid = start_copy(control, descriptors, command)
            control.send(b"forked")
        elif request == b"end":
            control.send(b"ended %d" % end_copy(pid))
        else:
            end_copy(pid)
            return


if __name__ == "__main__":
    main()
