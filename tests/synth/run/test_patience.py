"""A run in vain warns after 20 proposals and stops when its patience is over, at the same proposal however often it is called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from storage.errors import HeadraceError
from storage.records import Message
from storage.store import Store
from synth.engines.base import ChatRequest, EngineUnusable
from synth.roles.role_engines import RoleEngines, RolesConfig
from synth.run import proposals
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import EvolutionConfig
from synth.run.proposals import Job, Proposal
from synth.run.result import SynthesisResult
from synth.run.synthesize import synthesize
from tests.synth.scripted_models import Standing

IN_VAIN = SynthesisConfig(
    worlds=("retail",),
    accepted=12,
    calibration=24,
    subsample=12,
    drills={},
    max_proposals=80,
    patience=30,
    evolution=EvolutionConfig(proposals_per_round=12),
)
COUNTS = "SELECT round, count(*) AS n FROM decisions GROUP BY round ORDER BY round"


def run_in_vain(store: Store, warnings: list[str], **changes: object) -> SynthesisResult:
    """Synthesis with an assistant that never makes a call."""
    engine = Standing(lambda _: "Hm.")
    roles = RolesConfig(assistant=engine.name)
    config = IN_VAIN.model_copy(update={"roles": roles, **changes})
    return synthesize(store, config, warn=warnings.append, engines=replace(RoleEngines(roles), assistant=engine))


def stop_of(store: Store, warnings: list[str], **changes: object) -> str:
    with pytest.raises(HeadraceError) as raised:
        run_in_vain(store, warnings, **changes)
    return str(raised.value)


def test_an_engine_that_always_fails_is_warned_of_and_a_second_call_stops_with_the_same_words(tmp_path: Path) -> None:
    store, first, second = Store(tmp_path), list[str](), list[str]()
    stopped = stop_of(store, first)
    done = store.content_hash()

    assert len(first) == 1 and first[0].startswith("none of the first 20 proposals gave an accepted conversation, most often (")
    assert "the run stops after 30 in a row (synthesize.patience)" in first[0]
    assert stopped.startswith("stopped after 30 proposals in a row without an accepted conversation; 0 of 12 are accepted and kept")
    assert "failed check " in stopped and stopped.endswith("raise synthesize.patience") and "\n" not in stopped
    assert store.query(COUNTS).rows() == [(0, 12), (1, 12), (2, 6)], "the last round ends where the run stops"
    example = re.search(r"for example (trajectory-\w+): “", stopped)
    assert example is not None
    assert store.query("SELECT accepted FROM trajectories WHERE trajectory_id = ?", [example[1]]).item() is False

    assert stop_of(store, second) == stopped
    assert store.content_hash() == done
    assert len(second) == 1 and "none of the first 24 proposals" in second[0], "stored rounds are warned of too"


def test_a_run_that_was_cut_off_stops_at_the_same_proposal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = stop_of(Store(tmp_path / "whole"), [])
    made = proposals.make_proposal
    left = 24 + 20

    def dies(job: Job, *more: RoleEngines) -> Proposal:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return made(job, *more)

    with monkeypatch.context() as patch:
        patch.setattr(proposals, "make_proposal", dies)
        with pytest.raises(KeyboardInterrupt):
            run_in_vain(Store(tmp_path / "cut"), [])
    assert stop_of(Store(tmp_path / "cut"), []) == undisturbed
    assert Store(tmp_path / "cut").content_hash() == Store(tmp_path / "whole").content_hash()


def test_a_run_without_patience_goes_on_to_its_last_proposal(tmp_path: Path) -> None:
    result = run_in_vain(Store(tmp_path), [], patience=None, max_proposals=36)
    assert (result.accepted, result.proposals) == (0, 36)
    assert "all 36 proposals are used up" in result.notes[0]


def test_scripted_roles_are_stopped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given worlds in which no plan is found, then the run says so, and names the worlds as the thing to change."""
    real, warnings = proposals.propose, list[str]()

    def unplanned(jobs: Sequence[Job]) -> list[Proposal]:
        steered = [job.cell is not None for job in jobs]
        return [Proposal(job, job.clusters[0], reason="no_recipe") for job in jobs] if all(steered) else real(jobs)

    monkeypatch.setattr("synth.run.synthesize.propose", unplanned)
    with pytest.raises(HeadraceError, match=r"most often \(30 of 30\): no plan \(no template fits .*\. Change the worlds, or raise"):
        synthesize(Store(tmp_path), IN_VAIN, warn=warnings.append)
    assert len(warnings) == 1 and "(20 of 20): no plan" in warnings[0] and "for example blueprint-" in warnings[0]


def test_one_accepted_conversation_begins_the_count_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given one accepted conversation in the second round, then the run stops 30 proposals after it."""
    real, steered = proposals.propose, 0

    def one_good(jobs: Sequence[Job]) -> list[Proposal]:
        nonlocal steered
        out = []
        for one in real(jobs):
            steered += one.job.cell is not None
            is_good = one.job.cell is None or (steered > 14 and one.accepted and not any(each.accepted for each in kept))
            out.append(one if is_good else Proposal(one.job, one.cluster, reason="misfit"))
            kept.extend(out[-1:] if one.job.cell is not None else [])
        return out

    kept: list[Proposal] = []
    monkeypatch.setattr("synth.run.synthesize.propose", one_good)
    with pytest.raises(HeadraceError, match="stopped after 30 proposals in a row without an accepted conversation; 1 of 12 are accepted"):
        synthesize(Store(tmp_path), IN_VAIN)
    good = next(index for index, one in enumerate(kept) if one.accepted)
    assert len(kept) == good + 1 + 30


def test_a_healthy_run_is_not_warned_of(tmp_path: Path) -> None:
    warnings: list[str] = []
    assert synthesize(Store(tmp_path), IN_VAIN.model_copy(update={"accepted": 24}), warn=warnings.append).accepted == 24
    assert warnings == []


def test_another_patience_is_another_run_and_leaves_calibration_as_it_is(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert "stopped after 12 " in stop_of(store, [], patience=12)
    assert "stopped after 20 " in stop_of(store, [], patience=20)
    assert store.query("SELECT count(DISTINCT run) FROM decisions").item() == 2
    assert store.query("SELECT count(*) FROM blueprints WHERE round = -1").item() == 24


def test_an_engine_that_can_no_longer_be_used_stops_the_run_at_once_and_it_goes_on_later(tmp_path: Path) -> None:
    """Given a quota that is used up in the third round, then complete rounds are kept, and the same call goes on."""
    is_paid, asked = False, 0

    def answer(_: ChatRequest) -> Message:
        nonlocal asked
        asked += 1
        if asked > 40 and not is_paid:
            raise EngineUnusable("openai:standing at http://x/v1: the quota is used up")
        return Message(role="assistant", content="Hm.")

    store, engine = Store(tmp_path), Standing(answer)
    roles = RolesConfig(assistant=engine.name, in_flight=1)
    config = IN_VAIN.model_copy(update={"roles": roles, "patience": None, "max_proposals": 36})
    engines = replace(RoleEngines(roles), assistant=engine)
    with pytest.raises(EngineUnusable, match=r"the quota is used up \(stopped in round \d; 0 of 12 conversations are accepted and kept\)"):
        synthesize(store, config, engines=engines)
    assert asked == 41
    rounds = store.query(COUNTS).rows()
    assert rounds and all(count == 12 for _, count in rounds)
    is_paid = True
    assert synthesize(store, config, engines=engines).proposals == 36
    assert store.query(COUNTS).rows()[: len(rounds)] == rounds
