"""What ties a stage to whoever started it, where no signal shows it; the child itself is tried in tests/train/test_run.py."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from train.backends.local import StageFailed


def test_the_first_process_of_a_container_has_a_parent_too() -> None:
    """The kernel says 0 where a process's parent lies outside its container. Given one of several that share a stage, then it begins."""
    code = "import os; os.getppid = lambda: 0\nfrom train.run import main\nraise SystemExit(main([]))"
    found = subprocess.run([sys.executable, "-c", code], env=os.environ | {"LOCAL_RANK": "0"}, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.split(" ")[0]) == (2, "usage:")


def test_a_failure_says_its_kind_in_another_process_too() -> None:
    """Tasks of a flow hand their errors on as pickles."""
    told = pickle.loads(pickle.dumps(StageFailed("stage rl was killed", "memory")))
    assert (str(told), told.kind) == ("stage rl was killed", "memory")
