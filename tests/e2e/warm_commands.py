"""`headrace` forked from a process in which its modules are imported already: that saves four CPU-seconds a command.

with warm_commands() as call:
    done = call(["doctor"], folder, environment)
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

IMPORTED = ("flows.cli.main", "flows.pipeline", "synth.serving", "storage.releases.export", "torch")
Call = Callable[[Sequence[str], Path, Mapping[str, str]], "subprocess.CompletedProcess[str]"]


@contextmanager
def warm_commands() -> Iterator[Call]:
    """A function that calls `headrace` with arguments, in a folder and an environment. Prefect's settings are those of now."""
    command = [sys.executable, "-P", "-m", "tests.e2e.warm_commands"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        asked, answered = server.stdin, server.stdout
        assert asked is not None and answered is not None

        def call(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
            with tempfile.TemporaryDirectory() as scratch:
                paths = [f"{scratch}/out", f"{scratch}/err"]
                asked.write(json.dumps([list(arguments), str(folder), dict(environment), *paths]) + "\n")
                asked.flush()
                code = int(answered.readline())
                return subprocess.CompletedProcess(arguments, code, *(Path(path).read_text() for path in paths))

        yield call


def serve() -> None:
    """Forks a process for each request of stdin, one after another, and writes its exit code to stdout."""
    for module in IMPORTED:
        importlib.import_module(module)
    for line in sys.stdin:
        process = os.fork()
        if not process:
            _become(*json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def _become(arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> None:
    """Be the command."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY | os.O_CREAT), (2, err, os.O_WRONLY | os.O_CREAT)):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["headrace", *arguments]
    from flows.cli.main import main

    main()


if __name__ == "__main__":
    serve()
