"""The artifact of a run's progress tells the pace of the step at work."""

from __future__ import annotations

from uuid import uuid4

import pytest

from flows.runtime.deployed import progress_artifact


@pytest.mark.parametrize("again_from", [0, 40])
def test_a_step_that_is_tried_again_does_not_count_the_wait(again_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a step that failed at 50, when it begins again 120 s later, then its pace is that of the new try."""
    clock = [0.0]
    monkeypatch.setattr(progress_artifact.time, "monotonic", lambda: clock[0])
    artifact = progress_artifact.ProgressArtifact("train", uuid4())
    for seconds, done in ((0.0, 0), (10.0, 50), (130.0, again_from), (140.0, 60)):
        clock[0] = seconds
        artifact.report("stage sft1", done, 100)
    left = 10 * 40 / (60 - again_from)
    assert artifact.describe() == (60.0, f"stage sft1: 60 of 100, 10 s, about {left:.0f} s left")
