"""What the fixed policy of the benchmark is trained on, and what it is probed on."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.tags_sections import policy
from benchmarks.tags_sections.policy import probe_tasks, sources
from filters.steps.selection.coverage import QUOTAS


@pytest.fixture(autouse=True)
def few_drills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "DRILLS", {"retail": 120, "library": 60})


def test_no_frame_is_practised_and_probed() -> None:
    practised = {source.frame.id for source in sources("seed")}
    probed = {source.frame.id for source in sources("probe")}
    assert practised and probed and not practised & probed


def test_tasks_are_probed_in_the_shares_of_the_funnel() -> None:
    tasks = probe_tasks(120)
    assert len({task.id for task in tasks}) == len(tasks)
    assert {task.division for task in tasks} == {"probe"}
    levels = Counter(task.difficulty for task in tasks)
    assert levels[3] / levels[1] == pytest.approx(QUOTAS[3] / QUOTAS[1], rel=0.35)
    assert {task.world for task in tasks} == {"retail", "library"}
    assert {task.world for task in probe_tasks(40, worlds=("retail",))} == {"retail"}
