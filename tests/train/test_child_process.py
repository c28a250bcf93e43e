(
    """A child process dies with its parent; other tests try it where it is used."""
    """A child process dies with its parent; other tests try it where it is used."""
)

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_first_process_of_a_container_has_a_parent_too() -> None:
    """The kernel says 0 where a process's parent lies outside its container. Given one of several that share a stage, then it begins."""
    code = "import os; os.getppid = lambda: 0\nfrom train.run import main\nraise SystemExit(main([]))"
    found = subprocess.run([sys.executable, "-c", code], env=os.environ | {"LOCAL_RANK": "0"}, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.split(" ")[0]) == (2, "usage:")
