"""What a benchmark's measurements may be mixed with: only those of the same code; how a call ends whose time is up; what a process tree
costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import Deadline, Section, code_mark, run_sections


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, as the one that is measured."""
    (tmp_path / "synth").mkdir()
    (tmp_path / "synth" / "a.py").write_text("a = 1\n")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "a")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    return tmp_path


def mark() -> str:
    code_mark.cache_clear()
    return code_mark()


@pytest.fixture(autouse=True)
def fresh_mark() -> None:
    code_mark.cache_clear()


def test_every_change_of_the_code_has_a_mark_of_its_own(repository: Path) -> None:
    clean = mark()
    assert "+" not in clean
    (repository / "README.md").write_text("words\n")
    (repository / "benchmarks" / "results" / "spine.json").write_text("{}")
    assert mark() == clean
    (repository / "synth" / "a.py").write_text("a = 2\n")
    changed = mark()
    (repository / "synth" / "b.py").write_text("b = 1\n")
    added = mark()
    (repository / "synth" / "b.py").write_text("b = 2\n")
    assert len({clean, changed, added, mark()}) == 4
    assert all(each.startswith(f"{clean}+changes-") for each in (changed, added))


def test_a_call_without_time_stops_between_pieces_and_the_next_one_goes_on(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def first(_: Deadline) -> dict[str, float]:
        done.append("first")
        return {"a_s": 1.0}

    def second(deadline: Deadline) -> dict[str, float]:
        deadline.allows(1)
        done.append("second")
        return {"b_s": 2.0}

    sections = [Section("one", ("a_s",), first, minutes=0), Section("two", ("b_s",), second, minutes=0)]
    result = repository / "benchmarks" / "results" / "x.json"
    monkeypatch.setattr(harness, "BUDGET_S", 30)
    assert run_sections("x", sections) == 3
    assert "out of time; left: two" in capsys.readouterr().out
    assert done == ["first"] and not result.exists()
    monkeypatch.setattr(harness, "BUDGET_S", 300)
    monkeypatch.setattr(harness, "PACKAGES", ())
    assert run_sections("x", sections) == 0
    assert done == ["first", "second"]
    assert json.loads(result.read_text())["figures"] == {"a_s": 1.0, "b_s": 2.0}
    # and other code is measured from the beginning
    (repository / "synth" / "a.py").write_text("a = 2\n")
    code_mark.cache_clear()
    assert run_sections("x", sections) == 0
    assert done == ["first", "second"] * 2


def test_a_process_tree_is_measured_with_its_orphans() -> None:
    """Given a command that ends with code 3 and leaves a child, which holds 200 MiB and works for half a second of CPU, then the child is
    waited for and counted. (In a process of its own, which adopts the child.)"""
    child = "import time; held = bytearray(200 << 20)\nwhile time.process_time() < 0.5: pass\ntime.sleep(0.5)"
    command = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); sys.exit(3)"
    measure = (
        "import dataclasses, json, sys; from benchmarks.harness import run_tree\n"
        f"print(json.dumps(dataclasses.asdict(run_tree([sys.executable, '-c', {command!r}]))))"
    )
    done = subprocess.run([sys.executable, "-c", measure], cwd=harness.ROOT, capture_output=True, text=True, check=True)
    usage = json.loads(done.stdout)
    assert usage["returncode"] == 3
    assert 0.5 < usage["cpu_s"] < 5
    assert 0.19 < usage["peak_gib"] < 1


def test_work_of_children_that_nobody_waits_for_is_seen() -> None:
    """Given a command that lets the kernel forget its child, which works for two seconds of CPU, then that is counted."""
    child = "import time\nwhile time.process_time() < 2: pass"
    command = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\nwhile child.poll() is None: time.sleep(0.1)"
    )
    measure = f"import sys; from benchmarks.harness import run_tree\nprint(run_tree([sys.executable, '-c', {command!r}]).cpu_s)"
    done = subprocess.run([sys.executable, "-c", measure], cwd=harness.ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert float(done.stdout) > 1.5


def test_a_child_from_before_is_neither_waited_for_nor_counted() -> None:
    """Given a process with a child that sleeps on, holding 200 MiB, when it runs a command, then it has the answer and the child lives."""
    child = "held = bytearray(200 << 20)\nprint(flush=True)\nimport time; time.sleep(600)"
    measure = (
        "import subprocess, sys; from benchmarks.harness import run_tree\n"
        f"other = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE); other.stdout.readline()\n"
        "usage = run_tree([sys.executable, '-c', 'import time; time.sleep(1)'])\n"
        "print(other.poll() is None and usage.peak_gib < 0.15); other.kill()"
    )
    done = subprocess.run([sys.executable, "-c", measure], cwd=harness.ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "True"
