"""A child process dies with its parent (other tests try it where it is used), and workers share work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from train.child_process import run_in_workers


@pytest.mark.slow
def test_the_first_process_of_a_container_has_a_parent_too() -> None:
    """The kernel says 0 where a process's parent lies outside its container. Given one of several that share a stage, then it begins."""
    code = "import os; os.getppid = lambda: 0\nfrom train.run import main\nraise SystemExit(main([]))"
    found = subprocess.run([sys.executable, "-c", code], env=os.environ | {"LOCAL_RANK": "0"}, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.split(" ")[0]) == (2, "usage:")


def _write(path: Path) -> str:
    if path.name == "0":
        raise ValueError("the first job fails")
    time.sleep(0.2)
    path.touch()
    return path.name


def test_work_in_workers_comes_back_by_job(tmp_path: Path) -> None:
    jobs = {str(number): (tmp_path / str(number),) for number in (1, 2, 3)}

    assert dict(run_in_workers(_write, jobs, 2)) == {"1": "1", "2": "2", "3": "3"}
    assert dict(run_in_workers(_write, {}, 2)) == {}


def test_an_error_drops_the_jobs_that_have_not_begun(tmp_path: Path) -> None:
    jobs = {number: (tmp_path / str(number),) for number in range(12)}

    with pytest.raises(ValueError, match="the first job fails"):
        list(run_in_workers(_write, jobs, 1))

    assert len(list(tmp_path.iterdir())) < 4
