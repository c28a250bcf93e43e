"""A gate that is taught on the log lets requests of the worlds through, and the surest readings are kept."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from filters.grounding.ground_model import GroundConfig
from filters.reading.complete import draw_missing
from filters.reading.log.log_reader import LogReading, are_sure, best_texts, gate_of, read_chunk, reader_of, sample_texts, teach_gate
from filters.reading.of_world import requests_of
from storage.records import Frame
from synth.text.claims import has_chinese
from synth.worlds import WORLDS as ALL_WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.new_spec import new_spec

WORLDS = ("hotel",)
HOTEL_REQUESTS = [text for texts in requests_of(ALL_WORLDS["hotel"]) for text in texts]
OURS = ("please cancel reservation b0{n}", "what is the status of room r0{n}", "extend reservation b0{n} by 2 nights")
OTHERS = ("play some jazz in the kitchen for {n} minutes", "why is my parcel {n} late", "solve equation number {n}", "who won race {n}")


def rows(count: int, share: float) -> tuple[pl.DataFrame, list[bool]]:
    rng = random.Random(7)
    ours = [rng.random() < share for _ in range(count)]
    texts = [rng.choice(OURS if is_ours else OTHERS).format(n=number) for number, is_ours in enumerate(ours)]
    frame = pl.DataFrame({"norm": texts, "text": [text.capitalize() for text in texts]})
    return frame.with_columns(language=pl.lit("en"), ungrounded=pl.lit("unknown")), ours


def read_them(texts: Sequence[str]) -> list[LogReading]:
    return read_chunk(texts, WORLDS)


def test_the_gate_finds_the_rare_requests_that_a_world_serves() -> None:
    """Given one request in twenty that is the hotel's, then nearly all of these are among as many texts as it may pass."""
    log, ours = rows(4000, 0.05)
    gate = gate_of(teach_gate([log[:2000], log[2000:]], read_them, HOTEL_REQUESTS, per_round=100))
    passed = set(best_texts([log[:2000], log[2000:]], gate, sum(ours))["norm"])
    found = [text in passed for text, is_ours in zip(log["norm"], ours, strict=True) if is_ours]
    assert sum(found) >= 0.9 * len(found)


def test_a_gate_that_begins_with_requests_finds_what_a_sample_does_not_show() -> None:
    """Given one request in three hundred that is the hotel's, then they pass with a twentieth of the log; without a beginning,
    and with a sample that has none, fewer do."""
    log, ours = rows(6000, 1 / 300)
    wanted = {text for text, is_ours in zip(log["norm"], ours, strict=True) if is_ours}

    def found(requests: Sequence[str]) -> float:
        gate = gate_of(teach_gate([log], read_them, requests, per_round=20))
        return len(wanted.intersection(best_texts([log], gate, 300)["norm"])) / len(wanted)

    assert found(HOTEL_REQUESTS) >= 0.9 > found([])


def test_texts_with_a_frame_are_not_read() -> None:
    log, _ = rows(20, 1.0)
    framed = log.with_columns(ungrounded=pl.lit(None, pl.String))
    assert sample_texts([framed]).is_empty()
    assert best_texts([framed], gate_of(teach_gate([log], read_them, [])), 10).is_empty()


def test_each_text_is_read_in_its_language() -> None:
    english, chinese, mixed, neither = read_chunk(
        ["Please cancel reservation b012", "请取消订单b012", "cancel一下我的订单b012", "¿?"], WORLDS
    )
    assert english.frame is not None and chinese.frame is not None and neither.frame is None
    assert english.frame == chinese.frame
    assert mixed.frame is None or mixed.frame.intent.startswith("cancel")


def test_what_is_drawn_is_said_in_the_language_of_the_request() -> None:
    (read,) = read_chunk(["我是g012，请取消我的订单"], WORLDS)
    assert read.frame is not None and read.frame.slots["guest"] == "g012"
    assert read.text.startswith("我是g012，请取消我的订单 （") and has_chinese(read.text[-8:])


def test_a_sample_does_not_depend_on_the_order_of_pieces() -> None:
    log, _ = rows(300, 0.5)
    forward, backward = sample_texts([log[:100], log[100:]], 50), sample_texts([log[200:], log[:200]], 50)
    assert forward.equals(backward) and forward.height == 50


def test_a_request_without_a_required_value_has_no_frame() -> None:
    texts = ["Please cancel reservation b012", "Please cancel my reservation"]
    whole, short = read_chunk(texts, WORLDS, completes=False)
    assert whole.frame is not None and whole.frame.slots == {"reservation": "b012"}
    assert short.frame is None


def test_a_required_value_that_is_not_said_is_drawn_and_said() -> None:
    first, again, other = read_chunk(["Please cancel my reservation", "cancel my reservation please", "cancel my reservation #9"], WORLDS)
    assert first.frame is not None and again.frame is not None
    key = first.frame.slots["reservation"]
    assert first.text == f"Please cancel my reservation (reservation: {key})"
    assert again.frame.slots == first.frame.slots
    assert other.frame is None, "what it names is unread"


def test_a_request_is_not_made_up_of_what_is_drawn() -> None:
    hotel = ALL_WORLDS["hotel"]
    assert draw_missing(hotel, "cancel_reservation", {}) is not None
    assert draw_missing(hotel, "book_room", {}) is None
    some = draw_missing(hotel, "book_room", {"nights": 2, "people": 2})
    assert some is not None and set(some) == {"guest", "room", "arrival"}


def test_what_is_asked_for_is_not_drawn() -> None:
    texts = ["Please tell me about room r012", "what is the price per night of room r012"]
    frames = [reading.frame for reading in read_chunk(texts, WORLDS)]
    assert all(frame is None or frame.slots.get("aspect", "price") == "price" for frame in frames)
    assert frames[1] is not None and frames[1].slots["aspect"] == "price"


@pytest.mark.parametrize(("least", "count"), [(0.3, 4), (0.5, 3), (0.92, 2), (0.97, 0)])
def test_frames_are_kept_that_are_right_with_enough_probability(least: float, count: int) -> None:
    frame = Frame(world="hotel", intent="cancel_reservation", slots={"reservation": "b012"})
    trusts = [(0.7, True), (0.96, True), (0.99, False), (0.3, True), (0.92, True)]
    kept = are_sure([LogReading(frame if has_frame else None, "", trust, 0) for trust, has_frame in trusts], least)
    assert int(np.sum(kept)) == count and not kept[2], "without a frame there is nothing to keep"


def test_identifiers_of_the_users_own_stand_for_those_that_the_world_has() -> None:
    """Given identifiers in the user's form, then the frame and the text have one of the world's in place of each, always the same."""
    texts = [
        "please cancel reservation #803",
        "cancel reservation #803 now",
        "please cancel reservation #77",
        "please cancel reservation b9999",
    ]
    first, again, other, unknown = read_chunk(texts, WORLDS, ("#[0-9]+",))
    assert first.frame is not None and again.frame is not None and other.frame is not None and unknown.frame is not None
    key = str(first.frame.slots["reservation"])
    assert key.startswith("b0") and first.text == f"please cancel reservation {key}" and again.text == f"cancel reservation {key} now"
    assert other.frame.slots["reservation"] != key
    assert unknown.frame.slots["reservation"] != "b9999" and "b9999" not in unknown.text
    (without,) = read_chunk(texts[:1], WORLDS)
    assert without.frame is None


@pytest.mark.parametrize(
    "text",
    [
        "Cancel reservation b012 and extend reservation b013 by 2 nights",
        "extend reservation b012 by 2 nights and change its arrival to May 20",
        "check in reservation b012 then book me a taxi",
        "取消预订b012，再帮我把预订b013延长2晚",
        "把预订b012延长2晚然后帮我叫个出租车",
    ],
)
def test_several_wishes_in_one_message_are_refused(text: str) -> None:
    [several] = read_chunk([text], ("hotel",))
    assert several.frame is None or several.confidence < GroundConfig().min_precision


def test_a_single_wish_is_not_refused() -> None:
    for text in ("Please cancel reservation b012", "请把预订b012延长2晚"):
        [one] = read_chunk([text], ("hotel",))
        assert one.frame is not None and one.confidence >= GroundConfig().min_precision


@pytest.fixture(scope="module")
def inn() -> Iterator[str]:
    """A copy of the hotel under another name."""
    world = compile_spec(parse_text(new_spec(("en", "zh"), "hotel", Path("inn.yaml"))))
    ALL_WORLDS.register(world)
    yield world.name
    ALL_WORLDS.forget(world.name)


@pytest.mark.parametrize("text", ["please cancel reservation b012", "请把预订b012延长2晚"])
def test_twin_worlds_do_not_lower_the_confidence_in_either(inn: str, text: str) -> None:
    [alone], [both] = (reader_of(worlds).read([text]) for worlds in (("hotel",), ("hotel", inn)))
    assert {both.world, *(world for world, _ in both.twins)} == {"hotel", inn}
    assert both.intent == alone.intent and both.confidence > 0.9 * alone.confidence
