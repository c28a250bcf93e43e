"""Wording: what a template shows, what follows it, and which files of wordings are refused."""

import random
from pathlib import Path

import pytest

from storage.errors import BadInput
from storage.records import Frame
from synth.haystack.generate import wordings
from synth.tasks.wording import LANGUAGES, load_templates, parse_template, render
from synth.text.slot_kinds import Vocabulary
from synth.worlds import WITH_LEXICON, WORLDS


def frame(**slots: object) -> Frame:
    return Frame(world="retail", intent="buy_pick", slots={"user": "u07", "category": "lamp", "pick": "cheapest", **slots})


def test_a_part_in_brackets_appears_only_with_all_its_slots() -> None:
    # given a canonical template with optional parts, when slots are missing and when they are there
    plain = render(WORLDS["retail"], frame(), "en", random.Random(0), canonical=True)
    full = render(WORLDS["retail"], frame(colour="red", max_price=30, in_stock="in_stock"), "en", random.Random(0), canonical=True)
    # then
    assert plain == "buy the cheapest lamp for u07"
    assert full == "buy the cheapest red lamp for u07 under 30 dollars in stock"


def test_what_a_template_leaves_out_follows_in_its_own_words(tmp_path: Path) -> None:
    # given a wording that names only the required slots
    file = tmp_path / "families.yaml"
    file.write_text(
        'retail: {intents: {buy_pick: {en: ["{user} buys the {pick} {category}{*}!"], zh: ["{user}买{pick}{category}"]}}}', encoding="utf-8"
    )
    families = load_templates(WORLDS["retail"], file)
    # when
    english = render(WORLDS["retail"], frame(max_price=30), "en", random.Random(3), families)
    chinese = render(WORLDS["retail"], frame(max_price=30), "zh", random.Random(3), families)
    # then the price stands at {*}, or at the end
    assert english.startswith("u07 buys the ") and english.endswith("!") and "30" in english
    assert chinese.startswith("u07买") and "30" in chinese.split("，")[-1]


@pytest.mark.parametrize("world", WITH_LEXICON)
def test_every_intent_can_be_worded_with_and_without_its_optional_slots(world: str) -> None:
    rng = random.Random(1)
    kinds = WORLDS[world].kinds
    for name, intent in WORLDS[world].intents.items():
        for slots in (intent.slots, [slot for slot in intent.slots if slot.is_required]):
            values = {}
            for slot in slots:
                kind = kinds[slot.kind]
                values[slot.name] = next(iter(kind.names)) if isinstance(kind, Vocabulary) else getattr(kind, "choices", (1,))[0]
            for language in LANGUAGES:
                for canonical in (False, True):
                    text = render(WORLDS[world], Frame(world=world, intent=name, slots=values), language, rng, canonical=canonical)
                    assert text and not set("{}[]*") & set(text)


def test_canonical_wordings_of_the_shop_are_short() -> None:
    families = load_templates(WORLDS["retail"])
    for name in families.intents:
        for template in families.canonical[name]["en"]:
            assert (
                len(
                    "".join(piece.text for piece in parse_template(template) if len(piece.slots) == 0 or piece.text.startswith("{")).split()
                )
                <= 14
            )


def test_equal_seeds_give_equal_words() -> None:
    assert render(WORLDS["retail"], frame(), "en", random.Random(5)) == render(WORLDS["retail"], frame(), "en", random.Random(5))
    assert len({render(WORLDS["retail"], frame(), "en", random.Random(seed)) for seed in range(40)}) > 10


def test_articles_and_doubled_particles_are_put_right() -> None:
    texts = {
        render(WORLDS["city"], Frame(world="city", intent="opening_rule", slots={"venue": "aquarium"}), "en", random.Random(seed))
        for seed in range(30)
    }
    assert any("an aquarium" in text for text in texts) and not any("a aquarium" in text for text in texts)
    assert not any("的的" in render(WORLDS["retail"], frame(pick="dearest"), "zh", random.Random(seed)) for seed in range(40))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("nowhere: {}", "'nowhere' is no world"),
        ("retail: {phrases: {}}", "'phrases'"),
        ("retail: {intents: {fly: {en: [x], zh: [y]}}}", "no such intent"),
        ("retail: {intents: {close_order: {en: [], zh: [y]}}}", "non-empty lists"),
        ('retail: {intents: {close_order: {en: ["close {ordr}"], zh: ["关{order}"]}}}', "'ordr'"),
        ('retail: {intents: {close_order: {en: ["close it"], zh: ["关{order}"]}}}', "leaves out the slot 'order'"),
        ('retail: {intents: {close_order: {en: ["close [{order}"], zh: ["关{order}"]}}}', "brackets do not match"),
        ("retail: {intents: [a]}", "retail.intents: expected names"),
        ("retail: {segments: a}", "retail.segments: expected names"),
        ("retail: {canonical: {fly: {en: [x], zh: [y]}}}", "canonical.fly: no such intent"),
        ('retail: {canonical: {close_order: {en: ["close {ordr}"]}}}', "canonical.close_order: 'close {ordr}' names the slot 'ordr'"),
        ("retail: {segments: {color: {en: [in red]}}}", "segments.color: no intent has such a slot"),
        ('retail: {segments: {colour: {en: ["in {color}"]}}}', "segments.colour: 'in {color}': only {colour} can be put in"),
        ('retail: {segments: {colour: {en: ["in {colour"]}}}', "only {colour} can be put in"),
        ("retail: {kinds: [order]}", "retail.kinds: expected slot kinds"),
        ("retail: {kinds: {order: {ask: {en: [x], zh: [y]}, when: {en: [x], zh: [y]}}}}", "not 'when'"),
        ("retail: {kinds: {car: {ask: {en: [x], zh: [y]}}}}", "no such slot kind"),
        ("retail: {kinds: {order: {ask: {en: [x]}}}}", "kinds.order.ask: expected texts in en and in zh"),
        ("- a\n- b", "keys and values"),
        ("retail: {intents: {close_order: [", "not readable as YAML"),
    ],
)
def test_a_bad_file_of_wordings_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "families.yaml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=r"families\.yaml") as refused:
        wordings(file)
    assert complaint in str(refused.value)


def test_canonical_wordings_in_one_language_leave_the_other_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "families.yaml"
    file.write_text('retail: {canonical: {close_order: {en: ["shut {order}"]}}}', encoding="utf-8")
    families, shut = load_templates(WORLDS["retail"], file), Frame(world="retail", intent="close_order", slots={"order": "o17"})
    assert render(WORLDS[shut.world], shut, "en", random.Random(0), families, canonical=True) == "shut o17"
    assert render(WORLDS[shut.world], shut, "zh", random.Random(0), families, canonical=True) == load_templates(WORLDS["retail"]).intents[
        "close_order"
    ]["zh"][0].format(order="o17")


def test_a_missing_file_of_wordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        load_templates(WORLDS["retail"], tmp_path / "none.yaml")


def test_a_pick_that_holds_for_two_acts_is_said_of_both() -> None:
    families = load_templates(WORLDS["retail"])
    for language in LANGUAGES:
        assert all(template.count("{pick}") == 2 for template in families.canonical["exchange_and_buy"][language])
