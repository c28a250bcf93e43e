"""The time that is left: planned, then corrected by the steps that ended; results that are read again count as no step."""

from __future__ import annotations

import pytest

from flows.config import Config
from flows.dry_run import schedule
from flows.runtime import time_left
from flows.runtime.time_left import Planned, TimeLeft

PLAN = [
    Planned("haystack", ("haystack",), 1.0),
    Planned("curate", (), 20.0),
    Planned("sft1", ("stage sft1",), 10.0),
    Planned("gate of sft1", ("sft1: eval",), 10.0),
    Planned("probe of sft1", ("sft1: probe",), 10.0),
    Planned("rl", ("stage rl",), 10.0),
    Planned("tag", (": probe",), 10.0, is_last=True),
]


class Run:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, plan: list[Planned]) -> None:
        self.now, self.lines = 0.0, list[str]()
        monkeypatch.setattr(time_left.time, "monotonic", lambda: self.now)
        self.display = TimeLeft(plan, self.lines.append)

    def see(self, label: str, at: float) -> list[str]:
        """The lines that are written when this label is reported at this second."""
        self.now, before = at, len(self.lines)
        self.display(label, 1, 2)
        return self.lines[before:]


def test_every_step_that_ends_corrects_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, PLAN)
    assert run.see("haystack", 0) == [] and run.see("near bands", 1) == [], "a step under two seconds is not worth a line"
    assert run.see("rules", 30) == [], "the same step"
    (line,) = run.see("stage sft1", 41)
    ratio = (5 + 1 + 40) / (5 + 1 + 20)
    assert line == f"curate: done in 40 s (planned 20 s); then about {50 * ratio:.0f} s"
    assert [run.see(label, at) for label, at in (("sft1: eval_in", 61), ("sft1: probe", 71))] == [
        ["sft1: done in 20 s (planned 10 s); then about 73 s"],
        ["gate of sft1: done in 10 s (planned 10 s); then about 50 s"],
    ]


def test_results_that_are_read_again_end_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the gate of a later stage, which reads the measurements of an earlier policy, then neither is taken for the last step."""
    run = Run(monkeypatch, PLAN)
    run.see("stage sft1", 0)
    assert run.see("sft1: eval_in", 10) and run.see("sft2: probe", 11) == [] and run.see("haystack", 12) == []
    assert run.see("stage rl", 30) == ["gate of sft1: done in 20 s (planned 10 s); then about 28 s"]
    assert run.see("rl: probe", 50) == ["rl: done in 20 s (planned 10 s); then about 16 s"]


def test_the_schedule_has_every_second_of_the_plan_once_in_the_order_of_work() -> None:
    planned = schedule(Config(), ("synthesize", "haystack", "curate", "train", "tag", "report"))
    assert [step.name for step in planned] == [
        *("synthesize", "haystack", "curate", "sft1", "gate of sft1", "probe of sft1", "sft2", "gate of sft2", "rl", "gate of rl", "tag")
    ]
    assert [step.name for step in planned if step.is_last] == ["tag"], "its labels are those of a probe between stages"
    training = schedule(Config(), ("train",))
    assert sum(step.seconds for step in planned) > sum(step.seconds for step in training) > 0
