"""Grounding: what is worded is read back, what is not there is not read into it, and batches do not matter."""

import json
import random
from collections.abc import Iterator

import polars as pl
import pytest

from filters import normalised_text
from filters.grounding import ground
from filters.lexicon_worlds import lexicon_worlds
from storage.records import Frame
from synth.haystack.usual_values import usual_values
from synth.tasks.wording import LANGUAGES, load_templates, render
from synth.worlds import WITH_LEXICON, WORLDS


def rows_of(texts: list[str]) -> pl.DataFrame:
    return normalised_text.step(pl.DataFrame({"row": range(len(texts)), "text": texts}, schema={"row": pl.UInt32, "text": pl.String})).drop(
        "reason"
    )


def read(text: str) -> dict[str, object]:
    return ground.step(rows_of([text]), lexicon_worlds(), ungrounded=True).to_dicts()[0]


def frames(count: int, seed: int) -> Iterator[Frame]:
    """`count` frames of every intent, each with a third of its optional slots; two slots of one kind differ."""
    rng = random.Random(seed)
    for world in WITH_LEXICON:
        for name, intent in WORLDS[world].intents.items():
            for _ in range(count):
                slots: dict[str, object] = {}
                for slot in intent.slots:
                    if slot.is_required or rng.random() < 1 / 3:
                        same = {value for other, value in slots.items() if _kind(intent, other) == slot.kind}
                        slots[slot.name] = rng.choice([value for value in usual_values(world, slot.kind) if value not in same])
                if name != "long_trip" or slots["category"] != "hotel":
                    yield _canonical(Frame(world=world, intent=name, slots=slots))


def _kind(intent: object, slot: str) -> str:
    return next(one.kind for one in intent.slots if one.name == slot)


def _canonical(frame: Frame) -> Frame:
    return frame.model_copy(
        update={"slots": {name: float(value) if name == "min_rating" else value for name, value in frame.slots.items()}}
    )


def test_a_permuted_batch_gets_its_own_frames() -> None:
    rows = rows_of(["close order o17", "find a coffee shop near Willow Park", "明天昆明天气怎么样"])
    there, back = (ground.step(batch, lexicon_worlds()).sort("row") for batch in (rows, rows.reverse()))
    assert there.equals(back)


@pytest.fixture(scope="module")
def worded() -> tuple[list[Frame], list[str], pl.DataFrame]:
    """Frames, their wordings in both languages with small talk around half of them, and what grounding made of these."""
    rng = random.Random(2)
    asked, texts = [], []
    for frame in frames(8, seed=3):
        families = load_templates(WORLDS[frame.world])
        for language in LANGUAGES:
            text = render(WORLDS[frame.world], frame, language, rng, families)
            comma = "，" if language == "zh" else ", "
            if rng.random() < 0.5:
                text = comma.join([rng.choice(families.openers[language]), text, rng.choice(families.closers[language])])
            asked.append(frame)
            texts.append(text)
    return asked, texts, ground.step(rows_of(texts), lexicon_worlds(), ungrounded=True)


def _right(asked: list[Frame], grounded: pl.DataFrame) -> pl.Series:
    return pl.Series([frame.id for frame in asked]) == grounded["frame_id"].fill_null("")


def test_clean_text_is_read_back(worded: tuple[list[Frame], list[str], pl.DataFrame]) -> None:
    asked, _, grounded = worded
    right = _right(asked, grounded)
    for language in LANGUAGES:
        assert right.filter(grounded["language"] == language).mean() >= 0.98
    wrong_intents = {frame.intent for frame, is_right in zip(asked, right, strict=True) if not is_right}
    assert all(right.filter(pl.Series([frame.intent == name for frame in asked])).mean() >= 0.75 for name in wrong_intents)


def test_a_grounded_row_is_the_frame_that_records_make_of_it(worded: tuple[list[Frame], list[str], pl.DataFrame]) -> None:
    _, _, grounded = worded
    for row in grounded.filter(pl.col("frame_id").is_not_null()).head(200).to_dicts():
        frame = Frame(world=row["world"], intent=row["intent"], slots=json.loads(row["slots"]))
        assert (frame.id, frame.combination) == (row["frame_id"], row["combination"])
        assert row["shape"] == str(WORLDS[frame.world].intents[frame.intent].shape(frozenset(frame.slots)))


def test_meaning_is_in_the_words_and_their_order(worded: tuple[list[Frame], list[str], pl.DataFrame]) -> None:
    """Negative control: with the words of English texts shuffled, far fewer are read as what they were."""
    asked, texts, grounded = worded
    rng = random.Random(4)
    chosen = [index for index, language in enumerate(grounded["language"]) if language == "en"]
    shuffled = [" ".join(rng.sample(words, len(words))) for index in chosen if (words := texts[index].split())]
    after = _right([asked[index] for index in chosen], ground.step(rows_of(shuffled), lexicon_worlds(), ungrounded=True))
    assert after.mean() < 0.5


def test_the_result_does_not_depend_on_batches(worded: tuple[list[Frame], list[str], pl.DataFrame]) -> None:
    _, texts, grounded = worded
    rows = rows_of(texts)
    pieces = [ground.step(rows[start : start + 97], lexicon_worlds(), ungrounded=True) for start in reversed(range(0, rows.height, 97))]
    assert pl.concat(pieces[::-1]).equals(grounded)


@pytest.mark.slow
def test_long_batches_are_read_in_slices(worded: tuple[list[Frame], list[str], pl.DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    _, texts, grounded = worded
    read, sizes = ground.read, list[int]()
    monkeypatch.setattr(ground, "_READ_BYTES", 1000)
    monkeypatch.setattr(ground, "read", lambda rows, worlds: sizes.append(int(rows["norm"].str.len_bytes().sum())) or read(rows, worlds))
    assert ground.step(rows_of(texts), lexicon_worlds(), ungrounded=True).equals(grounded)
    assert len(sizes) > 10 and max(sizes) < 2000
    long = rows_of(["close order o17 please " * 100, "close order o17 please", "hello " * 500])
    assert ground.step(long, lexicon_worlds(), ungrounded=True)["intent"].to_list()[1] == "close_order"


@pytest.mark.parametrize(
    ("text", "intent", "slots"),
    [
        ("get rid of o17 will you", "close_order", {"order": "o17"}),
        (
            "u07 would like to buy the priciest mug in blue, 2 pieces",
            "buy_pick",
            {"user": "u07", "category": "mug", "pick": "dearest", "colour": "blue", "quantity": 2},
        ),
        ("trade o42 for your most affordable yellow one", "exchange_item", {"order": "o42", "pick": "cheapest", "colour": "yellow"}),
        ("what's the lowest-priced headset going for, how much", "price_question", {"category": "headphones", "pick": "cheapest"}),
        (
            "which route, cycling from Crane Museum to Willow Park",
            "route",
            {"origin": "crane_museum", "destination": "willow_park", "mode": "bicycling"},
        ),
        ("I'd like to go to Willow Park from Crane Museum, which way?", "route", {"origin": "crane_museum", "destination": "willow_park"}),
        (
            "垂柳公园周围两公里内评分4.5以上的咖啡厅",
            "poi_search_near",
            {"category": "cafe", "place": "willow_park", "radius": 2000, "min_rating": 4.5},
        ),
        ("tomorrow, will it be raining in Kunming?", "weather_in_city", {"city": "kunming", "date": 1}),
    ],
)
def test_wordings_of_no_template_are_understood(text: str, intent: str, slots: dict[str, object]) -> None:
    row = read(text)
    assert (row["ungrounded"], row["intent"]) == (None, intent)
    assert json.loads(str(row["slots"])) == slots


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("grandma sings in the shower and I wonder about it", "not_actionable"),
        ("write me a poem about autumn leaves", "not_actionable"),
        ("close order o17 and order o18", "unparsed"),
        ("a lamp and a mug and a red chair", "unknown"),
        ("how much is the cheapest red lamp and the most expensive mug", "ambiguous"),
    ],
)
def test_what_no_world_can_execute_says_why(text: str, why: str) -> None:
    row = read(text)
    assert (row["frame_id"], row["world"]) == (None, None)
    assert row["ungrounded"] == why


def test_without_the_option_ungrounded_rows_are_dropped_for_that_reason() -> None:
    rows = rows_of(["close order o17", "write me a poem about autumn leaves"])
    assert ground.step(rows, lexicon_worlds())["reason"].to_list() == [None, "not_actionable"]
    assert ground.step(rows, lexicon_worlds(), ungrounded=True)["reason"].to_list() == [None, None]


def test_unread_words_are_kept_as_residue() -> None:
    assert read("cncel order o17 because of the zorgblat")["residue"] == "cncel zorgblat"
    assert read("close order o17")["residue"] == ""


def test_an_empty_batch_stays_empty() -> None:
    assert ground.step(rows_of([]), lexicon_worlds()).height == 0


def test_a_request_is_read_in_the_worlds_that_are_passed_and_in_no_other() -> None:
    rows = rows_of(["close order o17", "which way from Willow Park to Crane Museum"])
    for names, worlds in ((("retail",), ["retail", None]), (("city",), [None, "city"]), (("city", "retail"), ["retail", "city"])):
        passed = tuple(WORLDS[name] for name in names)
        assert ground.step(rows, passed, ungrounded=True)["world"].to_list() == worlds
