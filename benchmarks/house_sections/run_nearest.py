"""A script: runs test files with pytest in the order given, until a test fails or the limit is over; collecting them does not count.

    python -P run_nearest.py RESULT LIMIT_S FILE_OR_TEST... [-- PYTEST OPTION...]

RESULT is a JSON file, written before and after every test:
running: id of the test that runs, or null
failed:  id of the first test that failed, or the file that could not be collected, or null
passed:  number of tests that passed
It imports nothing of the project, because it runs in other commits' trees too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest


class Recorder:
    """A pytest plugin."""

    def __init__(self, result: Path, limit_s: float, files: list[str]) -> None:
        self._result, self._limit_s = result, limit_s
        self._position = {(Path.cwd() / file.split("::")[0]).resolve(): number for number, file in enumerate(files)}
        self._state: dict[str, object] = {"running": None, "failed": None, "passed": 0}
        self._passed = 0
        self._write()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._position[item.path.resolve()])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._session, self._ends = session, time.monotonic() + self._limit_s

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._state["running"] = nodeid
        self._write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._fail(report.nodeid)
        self._passed += report.when == "call" and report.passed

    def pytest_runtest_logfinish(self) -> None:
        self._state |= {"running": None, "passed": self._passed}
        self._write()
        if time.monotonic() > self._ends:
            self._session.shouldstop = "no time is left to begin another test"

    def _fail(self, test: str) -> None:
        self._state["failed"] = self._state["failed"] or test
        self._write()

    def _write(self) -> None:
        self._result.write_text(json.dumps(self._state))


def main(result: str, limit_s: str, *arguments: str) -> int:
    border = arguments.index("--") if "--" in arguments else len(arguments)
    files, options = list(arguments[:border]), arguments[border + 1 :]
    return int(pytest.main(["-x", "-q", *options, *files], plugins=[Recorder(Path(result), float(limit_s), files)]))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
