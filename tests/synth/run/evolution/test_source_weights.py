"""Weights of sources: which file is one, and that synthesis follows them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from storage.errors import BadInput
from storage.store import Store
from synth.blueprints.cell import mode_family
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import EvolutionConfig
from synth.run.evolution.source_weights import SourceWeights, read_weights
from synth.run.setup import SynthesisSetup
from synth.run.synthesize import synthesize

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


def test_a_heavier_world_is_asked_for_more_often(tmp_path: Path) -> None:
    heavy = SourceWeights(by="world", weights={"hotel": 9.0})
    config = SynthesisConfig(worlds=("hotel", "library"), code_share=0.0, drills={}, evolution=COVERAGE, source_weights=heavy)
    setup = SynthesisSetup(Store(tmp_path / "store"), config)
    of_hotel = [domain for domain, clusters in setup.by_domain.items() if any(one.world == "hotel" for one in clusters)]
    assert {setup.domain_weights[domain] for domain in of_hotel} == {9.0} < set(setup.domain_weights.values())


def test_a_lighter_mode_is_chosen_less_often(tmp_path: Path) -> None:
    """Given a run, and one in which its commonest mode family has a hundredth of the weight, then fewer of the second's are of it."""

    def modes(name: str, sources: SourceWeights | None) -> Counter[str]:
        config = {"worlds": ["hotel", "library"], "accepted": 60, "calibration": 24, "code_share": 0.0, "drills": {}, "evolution": COVERAGE}
        store = Store(tmp_path / name)
        synthesize(store, SynthesisConfig.model_validate(config | {"source_weights": sources}))
        accepted = store.query("SELECT mode_coarse FROM trajectories JOIN blueprints USING (blueprint_id) WHERE accepted AND round >= 0")
        return Counter(map(mode_family, accepted["mode_coarse"]))

    plain = modes("plain", None)
    family, count = plain.most_common(1)[0]
    assert modes("weighed", SourceWeights(by="mode", weights={family: 0.01}))[family] < 0.7 * count


def test_what_value_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text(json.dumps({"by": "mode", "weights": {"asks": 1.2, "repairs": 0.8}}))
    assert read_weights(path).weight("asks") == 1.2
