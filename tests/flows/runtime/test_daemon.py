"""`headrace down` stops a keeper at whatever moment of its life it is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flows.runtime.daemon import down
from flows.runtime.locks import is_held

STARTING = """
import time
from pathlib import Path
from flows.runtime.daemon import _note
from flows.runtime.locks import lock
import os
folder = Path(".prefect")
with lock(folder / "keeper.lock"):
    print(1, flush=True)
    time.sleep(1)
    _note(folder, pid=os.getpid())
    time.sleep(60)
"""
ENDING = """
import time
from pathlib import Path
from flows.runtime.locks import lock
with lock(Path(".prefect/keeper.lock")):
    print(1, flush=True)
    time.sleep(1)
"""


@pytest.mark.parametrize(("keeper", "code"), [(STARTING, -15), (ENDING, 0)])
def test_down_waits_for_the_word_of_a_keeper_that_is_starting_and_for_the_end_of_one_that_is_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeper: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    process = subprocess.Popen([sys.executable, "-P", "-c", keeper], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    said: list[str] = []
    down(said.append)
    assert not is_held(tmp_path / ".prefect" / "keeper.lock")
    assert process.wait(5) == code
    assert said[-1].startswith("stopped the worker")
    down(said.append)
    assert said[-1] == "nothing is running"
