"""Which intent explains a text best, which symbol fills which slot, and when none does."""

import polars as pl
import pytest

from filters import normalised_text
from filters.grounding import parser
from filters.grounding.intent_index import nearest, rules
from filters.grounding.parser import Parse, classes_of
from filters.grounding.tagger import read, token_value
from filters.lexicon_worlds import lexicon_worlds
from synth.tasks.wording import load_grounding
from synth.worlds import WITH_LEXICON, WORLDS

WORLDS_READ = lexicon_worlds()


def symbols(text: str) -> tuple[object, ...]:
    rows = normalised_text.step(pl.DataFrame({"row": [0], "text": [text]}, schema={"row": pl.UInt32, "text": pl.String}))
    symbols_of_rows = read(rows, WORLDS_READ)
    return classes_of(symbols_of_rows.codes.tolist(), symbols_of_rows.lexicon.classes)


def slots(text: str) -> dict[str, str]:
    """Slot name -> canonical value as JSON text."""
    rows = normalised_text.step(pl.DataFrame({"row": [0], "text": [text]}, schema={"row": pl.UInt32, "text": pl.String}))
    found = read(rows, WORLDS_READ)
    parsed = parser.parse(classes_of(found.codes.tolist(), found.lexicon.classes), WORLDS_READ)
    assert isinstance(parsed, Parse), parsed
    kinds = {slot.name: slot.kind for slot in WORLDS[parsed.world].intents[parsed.intent].slots}
    return {name: token_value(found, int(found.tokens[at]), (parsed.world, kinds[name])) for name, at in parsed.slots}


def test_roles_decide_between_slots_of_one_kind_whatever_their_order() -> None:
    for text in (
        "which way from Willow Park to Crane Museum",
        "which way to Crane Museum from Willow Park",
        "从垂柳公园到白鹤博物馆怎么走",
    ):
        assert slots(text) == {"origin": '"willow_park"', "destination": '"crane_museum"'}


def test_bounds_keep_apart() -> None:
    found = slots("a cafe near Willow Park from 50 yuan upwards, but not over 100 yuan")
    assert (found["price_min"], found["price_max"]) == ("50", "100")


def test_a_colour_belongs_to_what_it_stands_beside() -> None:
    first = slots("buy the cheapest lamp and the cheapest blue mug for u07")
    second = slots("buy the cheapest blue lamp and the cheapest mug for u07")
    assert (first.get("colour"), first.get("colour_2")) == (None, '"blue"')
    assert (second.get("colour"), second.get("colour_2")) == ('"blue"', None)


def test_a_mere_number_is_a_value_only_in_its_role() -> None:
    assert "limit" not in slots("is 3 a cafe near Willow Park")
    assert slots("show me 3 cafes near Willow Park")["limit"] == "3"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not_actionable"),
        ("zorgblat", "not_actionable"),
        ("Willow Park", "unknown"),
        ("天气", "unknown"),
        ("how is the traffic around Willow Park", "missing_information"),
        ("close order o17 and u07", "unparsed"),
        ("how much is the cheapest lamp u07 o17", "unparsed"),
    ],
)
def test_what_cannot_be_explained_says_why(text: str, reason: str) -> None:
    assert parser.parse(symbols(text), WORLDS_READ) == reason


def test_the_best_explanation_does_not_depend_on_the_order_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["close order o17", "which way from Willow Park to Crane Museum", "明天昆明天气怎么样", "buy the cheapest lamp for u07"]
    before = [parser.parse(symbols(text), WORLDS_READ) for text in texts]
    ordinary = parser.possible_rules

    def reversed_rules(worlds, cues: int, kinds: int):
        found, is_short = ordinary(worlds, cues, kinds)
        return tuple((-order, *rest) for order, *rest in reversed(found)), is_short

    monkeypatch.setattr(parser, "possible_rules", reversed_rules)
    assert [parser.parse(symbols(text), WORLDS_READ) for text in texts] == before


def test_every_intent_has_a_rule_and_every_rule_names_cues_that_exist() -> None:
    assert {(rule.world, rule.intent) for rule in rules(WORLDS_READ)} == {
        (world, name) for world in WITH_LEXICON for name in WORLDS[world].intents
    }
    for world in WITH_LEXICON:
        grounding = load_grounding(WORLDS[world])
        named = {cue for given in grounding.intents.values() for key in given if key != "last" for cue in given[key]}
        named |= {cue for roles in grounding.roles.values() for side in ("before", "after") for cue in roles.get(side, ())}
        assert named <= set(grounding.cues)
        assert set(grounding.intents) <= set(WORLDS[world].intents)


def test_synonyms_name_values_that_exist() -> None:
    for world in WITH_LEXICON:
        grounding = load_grounding(WORLDS[world])
        for source in (grounding.synonyms, grounding.readings):
            for kind, by_value in source.items():
                assert set(by_value) <= set(WORLDS[world].kinds[kind].names)


def test_incomplete_requests_are_near_something() -> None:
    leaf_of = {f"{rule.world}/{rule.intent}": rule.leaf for rule in rules(WORLDS_READ)}
    assert nearest(symbols("directions please"), leaf_of, WORLDS_READ) == "planning_and_decision.route_planning"
    assert nearest(symbols("directions please"), {}, WORLDS_READ) is None
    assert nearest(symbols("zorgblat"), leaf_of, WORLDS_READ) is None
