"""Weights of sources: which file is one, and that synthesis follows them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from storage.errors import BadInput
from storage.store import Store
from synth.blueprints.blueprint import Bands
from synth.blueprints.cell import mode_family
from synth.blueprints.token_coverage import Coverage
from synth.run.candidates import PlanSettings, candidate_jobs, choose, plan_candidates
from synth.run.config import SynthesisConfig
from synth.run.controller import EvolutionConfig
from synth.run.setup import SynthesisSetup
from synth.run.source_weights import SourceWeights, read_weights
from synth.tasks.split import STANDARD

COVERAGE = EvolutionConfig(objective="coverage")


def test_a_source_that_is_not_named_has_the_weight_of_the_others() -> None:
    weights = SourceWeights(by="world", weights={"library": 2.0, "other": 0.5})
    assert (weights.weight("library"), weights.weight("hotel")) == (2.0, 0.5)
    assert SourceWeights(by="world", weights={"library": 2.0}).weight("hotel") == 1.0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no weights.json"),
        ('{"by": "planet", "weights": {"a": 1}}', "by: Input should be"),
        ('{"by": "world", "weights": {}}', "weights: "),
        ('{"by": "world", "weights": {"a": 0}}', "weights.a: "),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_place(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=said):
        read_weights(path)
    with pytest.raises(BadInput, match="cannot be read"):
        read_weights(tmp_path / "none.json")


def test_what_cannot_steer_synthesis_is_refused() -> None:
    with pytest.raises(ValidationError, match="by teacher steer no synthesis"):
        SynthesisConfig(source_weights=SourceWeights(by="teacher", weights={"a": 2}))
    with pytest.raises(ValidationError, match="by mode need evolution"):
        SynthesisConfig(source_weights=SourceWeights(by="mode", weights={"a": 2}), evolution=EvolutionConfig(objective="rarity"))


def test_a_heavier_world_is_asked_for_more_often_and_a_heavier_mode_chosen_more_often(tmp_path: Path) -> None:
    heavy = SourceWeights(by="world", weights={"hotel": 9.0})
    config = SynthesisConfig(worlds=("hotel", "library"), code_share=0.0, drills={}, evolution=COVERAGE, source_weights=heavy)
    setup = SynthesisSetup(Store(tmp_path / "store"), config)
    assert {weight for domain, weight in setup.domain_weights.items() if any(one.world == "hotel" for one in setup.by_domain[domain])} == {
        9.0
    }

    settings = PlanSettings(Bands(3.0, 7.0), chinese_share=0.0, veiled_share=0.0, code_share=None, divisions=STANDARD)
    jobs = candidate_jobs(setup.by_domain, {}, 120, ("weights",), settings)
    candidates = [one for one in plan_candidates(jobs) if one is not None]
    rare = Counter(mode_family(one.blueprint.mode_coarse) for one in candidates).most_common()[-1][0]

    def chosen_of(family: str, sources: SourceWeights | None) -> int:
        chosen = choose(candidates, Coverage(), 30, Bands(3.0, 7.0), sources=sources)
        return sum(mode_family(one.candidate.blueprint.mode_coarse) == family for one in chosen)

    common = max({mode_family(one.blueprint.mode_coarse) for one in candidates} - {rare}, key=lambda family: chosen_of(family, None))
    assert chosen_of(common, SourceWeights(by="mode", weights={common: 0.01})) < chosen_of(common, None)


def test_what_value_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text(json.dumps({"by": "mode", "weights": {"asks": 1.2, "repairs": 0.8}}))
    assert read_weights(path).weight("asks") == 1.2
