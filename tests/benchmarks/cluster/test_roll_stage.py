"""Which checkout of ROLL the benchmark and the tests take, and what they say of another one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.cluster.roll_sections import roll_stage
from benchmarks.harness import ROOT
from train.backends.roll.roll_pipeline import COMMIT


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that ROLL_HOME names; `.venv-roll` is taken as installed."""
    (tmp_path / "ROLL" / "roll").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLL_HOME", "ROLL")
    monkeypatch.setattr(roll_stage, "PYTHON", tmp_path)
    return tmp_path / "ROLL"


def test_the_commit_is_that_of_the_makefile_and_of_the_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLL_HOME", raising=False)
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^ROLL := (\w+)$", makefile, re.MULTILINE) == [roll_stage.PINNED]
    assert roll_stage.PINNED.startswith(COMMIT)
    assert "\n.cache/roll-$(ROLL)/.ready:\n" in makefile
    assert roll_stage.checkout() == ROOT / ".cache" / f"roll-{roll_stage.PINNED}"


def test_a_checkout_of_another_commit_is_refused_in_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["init", "--quiet"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", "-C", str(place), *words], check=True)
    commit = subprocess.run(["git", "-C", str(place), "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    reason = roll_stage.missing()
    assert f"at {place} is at commit {commit[:7]}: check out 8eb27cc there" in reason and "\n" not in reason
    monkeypatch.setattr(roll_stage, "PINNED", commit)
    assert roll_stage.missing() == ""


def test_a_checkout_of_which_git_cannot_tell_the_commit_is_taken(place: Path) -> None:
    assert roll_stage.checkout() == place
    assert roll_stage.missing() == ""
    (place / ".git").write_text("gitdir: /nowhere")
    assert roll_stage.missing() == ""
    (place / "roll").rmdir()
    assert roll_stage.missing().startswith("no checkout of ROLL at")
