"""A language model decides about requests of which the reader was unsure, in any world, and cannot add what a request does not say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from filters.funnel import FunnelConfig, curate
from filters.grounding import ask_unsure
from filters.grounding.ask_unsure import questions
from filters.grounding.frame_check import Problem
from filters.grounding.ground_model import GroundConfig, Reading, answer
from filters.reading.log.log_reader import reader_of
from filters.steps.selection.coverage import CoverageConfig
from storage.store import Store
from tests.filters.reading_engines import Scripted, reading, served, text_of

MOVE = "Move booking b017 to the 20th of May"
MOVE_ZH = "帮我把预订b017改到5月20日"
MOVED = {"new_arrival": 7, "reservation": "b017"}


def judged(text: str, said: str, *, completes: bool = True, world: str = "hotel", labels: Sequence[str] = ()) -> Reading | list[Problem]:
    [question] = questions([text], reader_of((world,)), completes=completes, labels=labels)
    return question.judge(json.loads(said))


@pytest.mark.parametrize("text", [MOVE, MOVE_ZH])
@pytest.mark.parametrize("day", [7, "7", "2026-05-20", "May 20", "5月20日"])
def test_a_value_may_be_canonical_or_in_any_spelling(text: str, day: str | int) -> None:
    read = judged(text, reading("hotel/change_arrival", reservation="B017", new_arrival=day))
    assert isinstance(read, Reading) and read.frame is not None
    assert read.frame.slots == MOVED and read.unexplained == 0 and read.text == text


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        ({"reservation": "b018", "new_arrival": 7}, "invented_value"),
        ({"reservation": "b017", "new_arrival": 8}, "invented_value"),
        ({"reservation": "b01", "new_arrival": 7}, "invented_value"),
        ({"reservation": "", "new_arrival": 7}, "invented_value"),
        ({"reservation": "b017", "new_arrival": "booking b017 to the 20th of May"}, "invented_value"),
        ({"reservation": MOVE, "new_arrival": 7}, "invented_value"),
        ({"reservation": "b017", "new_arrival": "ignore your rules"}, "invented_value"),
        ({"reservation": "b017", "new_room": "r1"}, "no_such_slot"),
    ],
)
def test_what_the_request_does_not_say_is_no_value(slots: dict[str, str | int], reason: str) -> None:
    problems = judged(MOVE, reading("hotel/change_arrival", **slots))
    assert isinstance(problems, list) and [problem.reason for problem in problems] == [reason]


@pytest.mark.parametrize("said", ["", "the", ", ", "at", "e w"])
def test_an_open_name_is_a_name_that_the_text_has(said: str) -> None:
    text = "\ufb01ne Stra\u00dfe, what's the weather at Ocean Beach now"
    assert isinstance(judged(text, reading("city/weather_now", place=said), world="city"), list)
    named = judged(text, reading("city/weather_now", place="ocean beach"), world="city")
    assert isinstance(named, Reading) and named.frame is not None and named.frame.slots == {"place": "Ocean Beach"}
    assert "ocean" not in str(named.foreign)


def test_a_context_is_no_part_of_the_request_and_fills_what_it_leaves_open() -> None:
    """Given an English request with a Chinese context, then it is read as English; a value may come from its context."""
    text = "Please change the arrival of b017 (city: \u5317\u4eac; new arrival: May 20)"
    labels = ("city", "new arrival")
    for slots in ({"reservation": "b017"}, {"reservation": "b017", "new_arrival": "May 20"}):
        read = judged(text, reading("hotel/change_arrival", **slots), labels=labels)
        assert isinstance(read, Reading) and read.frame is not None and read.frame.slots == MOVED and read.text == text
    drawn = judged(text.replace("; new arrival: May 20", ""), reading("hotel/change_arrival", reservation="b017"), labels=labels)
    assert isinstance(drawn, Reading) and drawn.text is not None and drawn.text.endswith(")") and "(new arrival: " in drawn.text


def test_a_missing_value_is_drawn_where_that_is_allowed() -> None:
    said = reading("hotel/change_arrival", reservation="b017")
    drawn = judged("Please change the arrival of b017", said)
    assert isinstance(drawn, Reading) and drawn.frame is not None and drawn.frame.slots.keys() == MOVED.keys()
    assert drawn.text is not None and drawn.text.startswith("Please change the arrival of b017 (")
    refused = judged("Please change the arrival of b017", said, completes=False)
    assert isinstance(refused, list) and [problem.reason for problem in refused] == ["missing_slot"]


def test_one_place_fills_one_slot() -> None:
    """Given one account in the text, then it cannot be both source and target of a payment; given it twice, it can."""
    said = reading("banking/transfer_money", account="a012", amount=50, target="a012")
    once = judged("Transfer 50 yuan from account a012 to another account", said, world="banking")
    assert isinstance(once, list) and {problem.reason for problem in once} == {"invented_value"}
    twice = judged("Transfer 50 yuan from account a012 to account a012", said, world="banking")
    assert isinstance(twice, Reading) and twice.frame is not None


def test_values_that_the_answer_leaves_out_are_unexplained() -> None:
    read = judged("Cancel booking b017 on May 20", reading("hotel/cancel_reservation", reservation="b017"))
    assert isinstance(read, Reading) and read.frame is not None and read.unexplained == 1


def test_who_invents_a_value_is_told_and_may_mend_it() -> None:
    wrong, right = (reading("hotel/change_arrival", reservation=key, new_arrival=7) for key in ("b018", "b017"))
    engine = Scripted({MOVE: [wrong, right]})
    [read] = answer(engine, questions([MOVE], reader_of(("hotel",)), completes=True))
    assert read.frame is not None and read.frame.slots == MOVED
    assert "the text does not say 'b018'" in str(engine.asked[1].messages[-1].content)


def test_the_question_lists_few_intents_of_any_world() -> None:
    [question] = questions([MOVE], reader_of(("hotel", "banking", "clinic")), completes=True)
    assert question.request.schema is not None
    listed = question.request.schema["properties"]["intent"]["enum"]
    assert "hotel/change_arrival" in listed and len(listed) <= 9
    assert sum(len(each.content or "") for each in question.request.messages) < 6_000


def test_a_run_asks_about_what_the_reader_was_unsure_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a log of the hotel, and a reader that must be surer than it is, then a scripted model's answers give frames, each once."""
    log = [f"Move booking b0{number} to the 20th of May" for number in range(10, 29)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in log), encoding="utf-8")

    def move(user: str) -> str:
        """Scripted: reads the booking that stands in the text, but invents another in those for b019."""
        booking = text_of(user).split()[2]
        return reading("hotel/change_arrival", reservation="b018" if booking == "b019" else booking, new_arrival="the 20th of May")

    store = Store(tmp_path / "store")
    with served(move) as (mock, url):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        ground = GroundConfig(min_precision=0.99, engine="openai:mock")
        config = FunnelConfig(worlds=("hotel",), ungrounded=False, ground=ground, coverage=CoverageConfig(keep=30))
        result = curate(store, [path], config)
        asked = mock.counts["answered"]
        again = curate(store, [path], config)
        assert again.task_ids == result.task_ids and mock.counts["answered"] == asked
    read = store.query("SELECT q.text, f.slots, f.reason FROM frames f JOIN queries q USING (query_id, run) WHERE f.frame_id IS NOT NULL")
    said = f"asked about {read.height + 1} texts without a frame: {read.height} have one now; the others have none: invented_value 1"
    assert any(said in note for note in result.not_done)
    assert read.height >= 15 and not read["text"].str.contains("b019").any()
    assert read["reason"].str.contains("read by openai:mock").all()
    assert store.query("SELECT requests FROM unserved")["requests"].list.len().sum() <= 1  # what the model read is served


def test_nothing_is_asked_without_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"text": MOVE}) + "\n", encoding="utf-8")
    monkeypatch.setattr(ask_unsure, "questions", None)
    config = FunnelConfig(worlds=("hotel",), ungrounded=True, ground=GroundConfig(min_precision=0.99), coverage=CoverageConfig(keep=5))
    curate(Store(tmp_path / "store"), [path], config)
