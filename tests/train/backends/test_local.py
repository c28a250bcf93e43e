"""What a launcher tells of a stage that failed; the child itself is tried in tests/train/test_run.py."""

from __future__ import annotations

import pickle

from train.backends.local import StageFailed


def test_a_failure_says_its_kind_in_another_process_too() -> None:
    """Tasks of a flow hand their errors on as pickles."""
    told = pickle.loads(pickle.dumps(StageFailed("stage rl was killed", "memory")))
    assert (str(told), told.kind) == ("stage rl was killed", "memory")
