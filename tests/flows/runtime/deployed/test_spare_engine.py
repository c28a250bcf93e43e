"""A spare process becomes a run's process: its environment, folder and output, and its end as the guard sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.runtime.deployed.spare_engine import take_spare
from flows.runtime.locks import lock

SPARE = """
import os, sys, time
from pathlib import Path
from flows.runtime.deployed import spare_engine

def engine(guard_pipe):
    print(os.environ["PREFECT__FLOW_RUN_ID"], os.getcwd(), flush=True)
    if os.environ["PREFECT__FLOW_RUN_ID"] == "long":
        time.sleep(60)
    sys.exit(3)

spare_engine.run_engine = engine
spare_engine.IMPORTED = ("prefect.context",)
spare_engine.run_spare(Path(sys.argv[1]))
"""
GUARD = """
import os, sys
from pathlib import Path
from flows.runtime.deployed.spare_engine import take_spare
taken = take_spare(Path(sys.argv[1]), os.pipe()[0])
print("no spare" if taken is None else taken.wait(), flush=True)
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the lock of a worker, and a short path, as sockets need it."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # has another value when the test begins
    with tempfile.TemporaryDirectory() as folder, lock(Path(folder) / "workers" / "one.lock"):
        yield Path(folder)


@pytest.fixture
def spare(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-P", "-c", SPARE, str(home / "workers" / "one.lock")], start_new_session=True)
    end = time.monotonic() + 60
    while not (home / "spare.sock").exists() and time.monotonic() < end:
        time.sleep(0.05)
    yield process
    process.kill()
    process.wait()


def guard(home: Path, run: str, folder: Path, **more: str) -> list[str]:
    environment = {**os.environ, "PREFECT__FLOW_RUN_ID": run, **more}
    environment.pop("PYTEST_CURRENT_TEST", None)
    command = [sys.executable, "-P", "-c", GUARD, str(home)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_a_spare_becomes_the_process_of_one_run(home: Path, spare: subprocess.Popen[bytes], tmp_path: Path) -> None:
    # its output goes where the guard's goes, and its exit code is the run's
    assert guard(home, "short", tmp_path) == [f"short {tmp_path}", "3"]
    assert spare.wait(10) == 0
    # and there is none for the next run
    assert guard(home, "short", tmp_path) == ["no spare"]


@pytest.mark.slow
def test_a_spare_refuses_a_run_with_another_environment(home: Path, spare: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert guard(home, "short", tmp_path, OMP_NUM_THREADS="7") == ["no spare"]
    assert spare.wait(10) == 0


@pytest.mark.slow
def test_the_guard_sees_that_a_spare_was_killed(
    home: Path, spare: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "long")
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    read_end, write_end = os.pipe()
    taken = take_spare(home, read_end)
    assert taken is not None and taken.pid == spare.pid
    taken.send_signal(signal.SIGKILL)
    assert taken.wait() == -signal.SIGKILL
    os.close(read_end)
    os.close(write_end)
