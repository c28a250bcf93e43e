"""Candidates of coverage: what is chosen covers more per token, shares are kept, and a run resumes with the same choices."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from storage.store import Store
from synth.blueprints.blueprint import Bands
from synth.blueprints.token_coverage import Coverage, estimated_tokens, features
from synth.run.config import SynthesisConfig
from synth.run.evolution.candidates import Candidate, PlanSettings, candidate_jobs, choose, plan_candidates
from synth.run.evolution.controller import EvolutionConfig
from synth.run.setup import SynthesisSetup
from synth.run.synthesize import _Run, synthesize
from synth.tasks.split import STANDARD

BANDS = Bands(3.0, 7.0)
CONFIG = SynthesisConfig(
    worlds=("retail", "library", "banking"),
    accepted=40,
    calibration=30,
    code_share=0.0,
    drills={},
    evolution=EvolutionConfig(objective="coverage", proposals_per_round=20),
)


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> list[Candidate]:
    setup = SynthesisSetup(Store(tmp_path_factory.mktemp("candidates")), CONFIG)
    jobs = candidate_jobs(
        setup.by_domain,
        {},
        150,
        ("test",),
        PlanSettings(BANDS, chinese_share=0.3, veiled_share=0.0, code_share=None, divisions=STANDARD),
    )
    return [one for one in plan_candidates(jobs) if one is not None]


def gain_per_token(chosen: list[Candidate]) -> float:
    coverage = Coverage()
    gained = 0.0
    for one in chosen:
        gained += coverage.gain(features(one.blueprint))
        coverage.add(features(one.blueprint))
    return gained / sum(estimated_tokens(one.blueprint) for one in chosen)


def test_the_choice_covers_more_per_token_than_the_first_candidates(candidates: list[Candidate]) -> None:
    chosen = [one.candidate for one in choose(candidates, Coverage(), 30, BANDS)]

    assert len({one.blueprint.id for one in chosen}) == 30
    assert gain_per_token(chosen) > 1.3 * gain_per_token(candidates[:30])


def test_languages_keep_their_shares(candidates: list[Candidate]) -> None:
    chosen = choose(candidates, Coverage(), 40, BANDS)

    offered = Counter(one.blueprint.language for one in candidates)
    got = Counter(one.candidate.blueprint.language for one in chosen)
    assert got.total() == 40
    assert all(abs(got[language] - 40 * count / offered.total()) <= 1 for language, count in offered.items())


def test_what_is_covered_already_is_chosen_less(candidates: list[Candidate]) -> None:
    covered = Coverage()
    retail = [one for one in candidates if one.blueprint.world == "retail"]
    for _ in range(50):
        for one in retail:
            covered.add(features(one.blueprint))

    fresh, late = (
        Counter(one.candidate.blueprint.world for one in choose(candidates, state, 30, BANDS)) for state in (Coverage(), covered)
    )

    assert late["retail"] < fresh["retail"]


def test_a_wanted_domain_is_chosen_more(candidates: list[Candidate]) -> None:
    domain = Counter(one.blueprint.domain for one in candidates).most_common(1)[0][0]

    def chosen(factor: float) -> int:
        wanted = choose(candidates, Coverage(), 30, BANDS, lambda one: factor if one.blueprint.domain == domain else 1.0)
        return sum(one.cell.domain == domain for one in wanted)

    assert chosen(16.0) > chosen(1.0)


def test_a_gain_is_what_a_choice_adds_to_those_before_it(candidates: list[Candidate]) -> None:
    english = [one for one in candidates if one.blueprint.language == "en"]
    coverage = Coverage()

    for one in choose(english, Coverage(), 20, BANDS):
        covered = features(one.candidate.blueprint)
        assert one.gain == pytest.approx(coverage.gain(covered))
        coverage.add(covered)


def test_a_run_says_why_each_blueprint_was_chosen(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    synthesize(store, CONFIG)
    rows = store.query("SELECT * FROM decisions ORDER BY round, position")

    assert rows["gain"].min() > 0
    assert rows["tokens"].min() > 0
    assert rows["probability"].null_count() == rows.height
    assert rows.filter(rows["status"] == "accepted").height == 40


def test_a_killed_run_goes_on_with_the_same_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, killed = Store(tmp_path / "whole"), Store(tmp_path / "killed")
    synthesize(whole, CONFIG)
    play = _Run._make_round

    def kill_in_round_one(run: _Run, number: int, *rest: Any) -> None:
        if number == 1:
            raise KeyboardInterrupt
        play(run, number, *rest)

    monkeypatch.setattr(_Run, "_make_round", kill_in_round_one)
    with pytest.raises(KeyboardInterrupt):
        synthesize(killed, CONFIG)
    monkeypatch.setattr(_Run, "_make_round", play)

    synthesize(killed, CONFIG)

    assert killed.content_hash() == whole.content_hash()
