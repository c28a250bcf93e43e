"""Similarity of worlds: 1 for a renamed copy, low for different businesses."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.generate import generate
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.similarity import Signatures, signatures_of, similarity
from tests.synth.scripted_writer import RENAMED, WORKSHOP
from tests.synth.worlds.declarative.test_errors import TEXT


def signatures(raw: Any) -> Signatures:
    return signatures_of(compile_spec(raw))


def test_a_copy_is_alike_under_other_names_and_in_another_style_of_tools() -> None:
    """Given the starter, when everything is renamed, or its tools are called in camel case with other verbs, then it is still the same."""
    starter, renamed = signatures(parse_text(TEXT)), signatures(parse_text(RENAMED))
    restyled = parse_text(TEXT) | {"naming": {"case": "camel", "order": "noun_first", "get": "fetch", "ids": "entity_id"}}
    assert similarity(starter, starter) == similarity(starter, renamed) == similarity(starter, signatures(restyled)) == 1
    assert len(starter.named & renamed.named) < len(starter.named) / 3


def test_a_renamed_copy_with_an_action_and_a_value_more_is_still_alike() -> None:
    raw = parse_text(RENAMED)
    raw["actions"]["mend"] = {
        "verb": "mend / 修理",
        "on": "vehicle",
        "needs": [{"if": "vehicle.status == broken"}],
        "sets": {"vehicle.status": "free"},
    }
    raw["entities"]["vehicle"]["fields"]["kind"]["values"]["plane"] = "plane / 刨子"
    assert 0.7 < similarity(signatures(parse_text(TEXT)), signatures(raw)) < 1


def test_unlike_businesses_are_unlike_hand_written_ones_too() -> None:
    worlds = {name: signatures_of(WORLDS[name]) for name in WORLDS.names() if "@" not in name}
    worlds["workshop"] = signatures(parse_text(WORKSHOP))
    assert max(similarity(one, other) for one, other in combinations(worlds.values(), 2)) < 0.5
    assert similarity(worlds["city"], worlds["retail"]) < 0.2


def test_similarity_is_the_same_from_both_sides() -> None:
    one, other = signatures(generate(1)), signatures(generate(3))
    assert similarity(one, other) == similarity(other, one) > 0
