"""The setup of a synthesis run: drills with programs are there where one can be run, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.records import CODE_TOOL
from storage.store import Store
from synth.run.config import SynthesisConfig
from synth.run.setup import SynthesisSetup
from synth.worlds import run_python

CONFIG = SynthesisConfig(worlds=("library",), code_share=0.0, drills={"library": 3}, programs={"library": 2})


def _drilled(folder: Path) -> tuple[SynthesisSetup, list[bool]]:
    """The setup, and for each drill whether it needs a program."""
    setup = SynthesisSetup(Store(folder), CONFIG)
    setup.write()
    setup.writer.commit()
    specs = setup.store.query("SELECT spec FROM tasks ORDER BY task_id")["spec"]
    return setup, sorted(CODE_TOOL in spec for spec in specs)


@pytest.mark.skipif(bool(run_python.missing()), reason=f"no sandbox: {run_python.missing()}")
def test_drills_with_programs_are_drilled_beside_the_others(tmp_path: Path) -> None:
    setup, needs_program = _drilled(tmp_path / "store")
    assert needs_program == [False] * 3 + [True] * 2
    assert setup.notes == ()


def test_without_a_sandbox_there_are_no_drills_with_programs_and_the_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_python, "missing", lambda: "no engine answers")
    setup, needs_program = _drilled(tmp_path / "store")
    assert needs_program == [False] * 3
    assert setup.notes == ("run_python is not offered: no sandbox works here (no engine answers)",)
