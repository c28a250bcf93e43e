"""A suite's child process, as its caller sees it: start, request, time limit, end.

One idea: a suite's pins never enter our environment. Its packages lie in `.venv-suite-NAME` (`make suites`), and `program.py` runs there
without our packages, our secrets or our working folder. A child that dies or hangs is the infrastructure's failure: every conversation that
it held is lost and may be begun again, in a new child.

What it does not do: shut the program in a box. It runs the packages' own code, as pip installed them, with the arguments of a policy's
calls; the tools of these suites change their own state alone, in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from storage.errors import BadInput, HeadraceError
from storage.records import JSON

PROGRAM = Path(__file__).with_name("program.py")
ENVIRONMENTS = {"tau2-retail": "tau2", "tau2-airline": "tau2", "agentdojo": "agentdojo"}
"""Suite -> NAME of its environment `.venv-suite-NAME`."""
FOLDER_VARIABLE = "HEADRACE_SUITES"
"""Environment variable: the folder that holds the environments; the working folder by default."""
START_S, CALL_S = 60.0, 60.0


class SuiteFailure(HeadraceError):
    """A suite's program ended, hung or raised: no fault of the policy."""


def environment_of(suite: str) -> Path:
    """The environment of a suite. Raises BadInput: it is not installed."""
    name = f".venv-suite-{ENVIRONMENTS[suite]}"
    folder = Path(os.environ.get(FOLDER_VARIABLE, ".")) / name
    if not (folder / "bin" / "python").exists():
        raise BadInput(f"suite {suite} is not here: `make suites` installs it into {name} (or name its folder in {FOLDER_VARIABLE})")
    return folder


def is_installed(suite: str) -> bool:
    with contextlib.suppress(BadInput):
        return environment_of(suite).is_dir()
    return False


class Child:
    """The program of one suite; safe to use from several threads, which take turns. A context manager that ends it.

    Raises BadInput if the suite's environment is not installed; the process starts at the first request.
    """

    def __init__(self, suite: str, *, call_s: float = CALL_S) -> None:
        self.suite = suite
        self._call_s = call_s
        self._python = (environment_of(suite) / "bin" / "python").absolute()
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def request(self, op: str, **arguments: JSON) -> Any:
        """The answer of one request.

        Raises:
            SuiteFailure: the program raised, ended, or gave no answer in time; after the last two, the next request starts a new one.
        """
        with self._mutex:
            is_new = self._process is None
            process = self._process or self._start()
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
                process.stdin.flush()
                line = self._lines.get(timeout=self._call_s + is_new * START_S)
            except (OSError, queue.Empty) as error:
                self._stop()
                problem = "ended" if isinstance(error, OSError) else f"gave no answer in {self._call_s:g} s"
                raise SuiteFailure(f"the program of suite {self.suite} {problem} at {op}") from None
            if line is None:
                self._stop()
                raise SuiteFailure(f"the program of suite {self.suite} ended at {op}; `{self._python} -P {PROGRAM} {self.suite}` says why")
        answer = json.loads(line)
        if "error" in answer:
            raise SuiteFailure(f"suite {self.suite}, {op}: {answer['error']}")
        return answer["result"]

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [self._python, "-P", PROGRAM, self.suite],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._python.parent,
            env={"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            text=True,
        )
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            with contextlib.suppress(ValueError):  # closed by `_stop`
                for line in process.stdout:
                    lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        self._process, self._lines = process, lines
        return process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        self._process = None

    def close(self) -> None:
        """Ends the program."""
        with self._mutex:
            self._stop()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
