"""A reading holds if the text says every value of it: true frames hold, and nothing can be brought in that is not said."""

from __future__ import annotations

import random

import pytest

from filters.grounding.frame_check import Supported, check_frame, legal_value, mentions
from filters.lexicon_worlds import lexicon_worlds
from filters.taxonomy.agreement import Known, generate_requests
from storage.records import canonical_json
from synth.haystack.usual_values import usual_values
from synth.tasks.wording import slot_kinds
from synth.text.slot_kinds import Vocabulary
from synth.worlds import WITH_LEXICON, WORLDS

WORLDS_READ = lexicon_worlds()
TEXT = "find a coffee shop near willow park within 1.5 km"
SLOTS = {"category": "cafe", "place": "Willow Park", "radius": 1500}


def reasons(intent: str, text: str, **slots: str | float) -> list[str]:
    """What is wrong with a reading; nothing where it holds."""
    found = check_frame(intent, list(slots.items()), mentions([text], WORLDS_READ)[0], WORLDS_READ)
    return [problem.reason for problem in found] if isinstance(found, list) else []


@pytest.fixture(scope="module")
def asked() -> list[Known]:
    return [one for one in generate_requests(400, seed=1) if one.frame]


def test_true_frames_hold(asked: list[Known]) -> None:
    """Given texts that were worded from frames, then these frames are what the texts say, and nothing is left over."""
    said = mentions([one.norm for one in asked], WORLDS_READ)
    for one, own in zip(asked, said, strict=True):
        assert one.frame
        found = check_frame(f"{one.frame.world}/{one.frame.intent}", list(one.frame.slots.items()), own, WORLDS_READ)
        assert isinstance(found, Supported), (one, found)
        assert found.frame.id == one.frame.id
        assert found.unexplained == 0, one


def test_no_value_can_be_brought_in(asked: list[Known]) -> None:
    """Given true frames with one value swapped for another legal one of its kind, then none holds, unless the text says that one too."""
    rng, tried, held = random.Random(3), 0, []
    for one, said in zip(asked, mentions([one.norm for one in asked], WORLDS_READ), strict=True):
        assert one.frame
        world, intent, slots = one.frame.world, one.frame.intent, dict(one.frame.slots)
        for slot, kind in slot_kinds(WORLDS[world], intent).items():
            others = [value for value in usual_values(world, kind) if slot in slots and value != slots[slot]]
            if others:
                tried += 1
                swapped = slots | {slot: rng.choice(others)}
                found = check_frame(f"{world}/{intent}", list(swapped.items()), said, WORLDS_READ)
                held += [(one.norm, swapped)] if isinstance(found, Supported) else []
    assert tried > 500
    assert held == []


def test_a_reading_is_canonical_however_its_values_are_told() -> None:
    found = check_frame("city/poi_search_near", list(SLOTS.items()), mentions([TEXT], WORLDS_READ)[0], WORLDS_READ)
    assert isinstance(found, Supported)
    assert found.frame.slots == {"category": "cafe", "place": "willow_park", "radius": 1500}
    words = {"category": "coffee_shop", "place": "willow_park", "radius": "1.5 km"}
    again = check_frame("city/poi_search_near", list(words.items()), mentions([TEXT], WORLDS_READ)[0], WORLDS_READ)
    assert isinstance(again, Supported) and again.frame == found.frame


@pytest.mark.parametrize(
    ("intent", "slots", "reason"),
    [
        ("city/teleport", SLOTS, "no_such_intent"),
        ("mars/poi_search_near", SLOTS, "no_such_intent"),
        ("city/poi_search_near", {**SLOTS, "colour": "red"}, "no_such_slot"),
        ("city/poi_search_near", {"category": "cafe"}, "missing_slot"),
        ("city/poi_search_near", {**SLOTS, "radius": 99_999_999}, "illegal_value"),
        ("city/poi_search_near", {**SLOTS, "radius": 10**400}, "illegal_value"),
        ("city/poi_search_near", {**SLOTS, "place": "Mount Doom"}, "illegal_value"),
        ("city/poi_search_near", {**SLOTS, "place": "willow park or lotus park"}, "illegal_value"),
        ("city/poi_search_near", {**SLOTS, "place": ""}, "illegal_value"),
        ("city/poi_search_near", {**SLOTS, "place": "Lotus Park"}, "invented_value"),
        ("city/poi_search_near", {**SLOTS, "sort": "best rated"}, "invented_value"),
        ("city/route_between", {"origin": "willow_park", "destination": "willow_park"}, "invented_value"),
    ],
)
def test_what_is_wrong_has_a_reason(intent: str, slots: dict[str, str | float], reason: str) -> None:
    if intent == "city/route_between":
        intent = next(
            f"city/{name}"
            for name, one in WORLDS["city"].intents.items()
            if {slot.name for slot in one.slots if slot.is_required} == {"origin", "destination"}
        )
    assert reason in reasons(intent, TEXT, **slots)


def test_a_slot_that_stands_twice_is_refused() -> None:
    found = check_frame("retail/close_order", [("order", "o17"), ("order", "o17")], mentions(["close o17"], WORLDS_READ)[0], WORLDS_READ)
    assert isinstance(found, list) and found[0].reason == "no_such_slot"


def test_what_has_no_place_in_the_frame_is_counted() -> None:
    said = mentions(["find a coffee shop near willow park and 50 dollars, lotus park"], WORLDS_READ)[0]
    found = check_frame("city/poi_search_near", [("category", "cafe"), ("place", "willow_park")], said, WORLDS_READ)
    assert isinstance(found, Supported) and found.unexplained == 2


@pytest.mark.slow
def test_the_names_that_a_model_is_told_are_understood() -> None:
    for world in WITH_LEXICON:
        for kind in {slot.kind for intent in WORLDS[world].intents.values() for slot in intent.slots}:
            declared = WORLDS[world].kinds[kind]
            if isinstance(declared, Vocabulary) and len(declared.names) <= 6:
                for value, names in declared.names.items():
                    assert {legal_value(WORLDS[world], kind, name, WORLDS_READ) for name in names.values()} == {canonical_json(value)}
