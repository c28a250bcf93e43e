"""One process at a time works on a store. Flows of one process share the lock; another process is refused, or waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.config import Config
from flows.runtime.locks import is_held, lock
from flows.runtime.notes.run_records import notes_folder
from flows.runtime.store_lock import hold_store, work_on_store
from storage.errors import HeadraceError
from storage.store import Store
from tests.storage.health.test_damage_and_repair import part_file, work

OTHER = """
import sys
from pathlib import Path
from flows.runtime.store_lock import hold_store
with hold_store("curate", Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that works on the store in `tmp_path` until it reads a line from stdin."""
    command = [sys.executable, "-P", "-c", OTHER, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_look_whether_a_flow_works_refuses_no_flow(tmp_path: Path) -> None:
    """Given somebody who looks at the lock for a moment, when a flow begins in that moment, then it begins."""
    path = notes_folder(tmp_path) / "flow.lock"
    path.parent.mkdir()
    path.touch()
    looks = threading.Event()

    def look() -> None:
        with lock(path, shared=True):
            looks.set()
            time.sleep(0.2)

    looker = threading.Thread(target=look)
    looker.start()
    assert looks.wait(5)
    with hold_store("curate", tmp_path):
        assert is_held(path)
    looker.join()


def test_flows_of_one_process_share_its_lock(tmp_path: Path) -> None:
    with hold_store("pipeline", tmp_path):
        with hold_store("synthesize", tmp_path), hold_store("curate", tmp_path):
            pass
        assert is_held(tmp_path / ".headrace" / "flow.lock")
    assert not is_held(tmp_path / ".headrace" / "flow.lock")


def test_a_command_is_refused_with_the_name_of_the_holder(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    for _ in range(2):
        says = rf"is being worked on by curate \(process {other.pid} on .*\); wait until it ends"
        with pytest.raises(HeadraceError, match=says), hold_store("tag", tmp_path):
            pass
    with hold_store("tag", tmp_path / "another"):
        pass
    # and a killed process holds no lock
    other.kill()
    other.wait()
    with hold_store("tag", tmp_path):
        pass


def test_a_run_of_a_deployment_waits_for_the_lock(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    waiter = subprocess.Popen(
        [sys.executable, "-P", "-u", "-c", OTHER.replace('Path(sys.argv[1])', 'Path(sys.argv[1]), wait=True'), str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiter.stdout is not None
    first = waiter.stdout.readline().strip()
    assert first == f"waiting for curate (process {other.pid} on {os.uname().nodename}), which works on {tmp_path}"
    time.sleep(0.5)
    assert waiter.poll() is None
    other.communicate("\n")
    output, _ = waiter.communicate("\n", timeout=30)
    assert output.splitlines() == ["in"]


@pytest.mark.parametrize("is_logged", [True, False])
def test_a_flow_refuses_a_damaged_store_before_it_begins(tmp_path: Path, is_logged: bool) -> None:
    """Given a part that is gone, then the flow names it and the command that helps; also where the log of commits was lost."""
    store = Store(tmp_path / "store")
    work(store)
    part_file(store.root).unlink()
    if not is_logged:
        store.log.path.write_bytes(b"")
    with (
        pytest.raises(HeadraceError, match=r"is damaged: lake/rollouts/.* is missing.*headrace store repair"),
        work_on_store("curate", Config(store=store.root)),
    ):
        raise AssertionError("the flow began")
