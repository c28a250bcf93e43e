"""The flow `synthesize` tells in events what it has committed, also when it fails, and never twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flows import synthesize as flow_module
from flows.config import Config
from flows.runtime import events
from storage.errors import HeadraceError
from synth.roles.role_engines import RoleEngines, RolesConfig
from synth.run import proposals
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import EvolutionConfig
from synth.run.proposals import Job, Proposal
from synth.run.synthesize import synthesize
from tests.synth.scripted_models import Standing

SMALL = SynthesisConfig(
    worlds=("retail",),
    accepted=8,
    calibration=12,
    subsample=10,
    drills={},
    max_proposals=40,
    patience=8,
    evolution=EvolutionConfig(proposals_per_round=6),
)
Told = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Told]:
    """A run of the deployment, without a server; returns what it has told."""
    told: Told = []
    monkeypatch.setattr(events, "is_root_of_a_deployment", lambda: True)
    monkeypatch.setattr(events, "emit", lambda event, _config, **payload: told.append((event, payload)))
    monkeypatch.setattr(flow_module, "retried", lambda task: task.fn)
    monkeypatch.setattr(flow_module, "publish_table", lambda _: None)
    monkeypatch.setattr(flow_module, "publish_report", lambda _: None)

    def run() -> Told:
        told.clear()
        try:
            flow_module.synthesize.fn(Config(store=tmp_path / "store", synthesize=SMALL))
        except HeadraceError as error:
            return [*told, ("raised", {"error": str(error)})]
        return list(told)

    return run


def test_a_run_in_vain_tells_the_operator_once_and_wakes_nothing(night: Callable[[], Told], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Standing(lambda _: "Hm.")
    roles = RolesConfig(assistant=engine.name)
    engines = replace(RoleEngines(roles), assistant=engine)

    def in_vain(store: Any, config: SynthesisConfig, **more: Any) -> Any:
        return synthesize(store, config.model_copy(update={"roles": roles}), engines=engines, **more)

    monkeypatch.setattr(flow_module.synthesis, "synthesize", in_vain)
    (event, payload), (_, raised) = night()
    assert event == events.FAILURES_HIGH and payload["share"] > 0.5
    assert raised["error"].startswith("stopped after 8 proposals in a row without an accepted conversation")
    assert night() == [("raised", raised)]


def test_a_run_that_fails_tells_its_complete_rounds_and_one_that_finds_all_tells_nothing(
    night: Callable[[], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, left = proposals.make_proposal, 12 + 9

    def fail_late(job: Job, *more: RoleEngines) -> Proposal:
        nonlocal left
        left -= 1
        if left < 0:
            raise HeadraceError("the disk is full")
        return made(job, *more)

    with monkeypatch.context() as patched:
        patched.setattr(proposals, "make_proposal", fail_late)
        (event, first), raised = night()
    assert (event, raised) == (events.TRAJECTORIES_COMMITTED, ("raised", {"error": "the disk is full"}))
    assert 0 < first["accepted"] <= 6
    ((event, second),) = night()
    assert event == events.TRAJECTORIES_COMMITTED and second == {"run": first["run"], "accepted": 8}
    assert night() == []


def test_a_spent_budget_is_told_also_if_nothing_was_committed(night: Callable[[], Told], monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {"run": "r", "accepted": 0, "proposals": 0, "tasks": 0, "rejected": {}, "is_spent": True, "notes": ["spent"], "alarms": []}
    monkeypatch.setattr(flow_module, "make_trajectories", type("Task", (), {"fn": partial(dict, spent)}))
    monkeypatch.setattr(flow_module, "retried", lambda task: lambda _: task.fn())
    assert night() == [(events.BUDGET_SPENT, {"notes": ["spent"]})]
