"""The answers that the grounding veto is measured by are what they are called, and the figures tell a veto from none."""

import random
import re
from functools import cache

import pytest

from benchmarks.tags_sections.veto import CHECK, KEYS, Result, by_making, failed_checks, figures_of, judged
from benchmarks.tags_sections.veto_cases import DEVELOPMENT, Case, made_of, read
from benchmarks.tags_sections.veto_values import Value, chinese, english, forms_of, seen_in, told
from storage.records import Message


@cache
def few(family: str = "development") -> tuple[Case, ...]:
    return tuple(made_of(family, faithful=12, each=4, swapped=2))


@cache
def results() -> tuple[Result, ...]:
    return tuple(judged(few()))


def test_as_many_answers_of_every_kind_as_are_wanted_half_of_them_chinese() -> None:
    kinds = [case.kind for case in few()]
    assert [kinds.count(kind) for kind in ("faithful", "number", "time", "price", "name")] == [12, 4, 4, 4, 4]
    languages = [case.conversation.language for case in few()]
    assert languages.count("en") == languages.count("zh") == 14
    assert sum(case.made[0].startswith("swapped") for case in few()) == 2
    assert sum("another seed" in case.made[0] for case in few()) == 2


def test_the_same_answers_every_time() -> None:
    again = made_of("development", faithful=12, each=4, swapped=2)
    assert [case.answer for case in again] == [case.answer for case in few()]


@pytest.mark.slow
def test_the_families_share_neither_sentences_nor_conversations() -> None:
    measured = read("measure")
    for family in DEVELOPMENT:
        for language in ("en", "zh"):
            mine, theirs = sentences(read(family)[language]), sentences(measured[language])
            assert len(mine) > 60 and len(theirs) > 60
            assert not mine & theirs
        ids = [{case.conversation.task.id for case in few(each)} for each in (family, "measure")]
        assert not ids[0] & ids[1]


def sentences(wordings: dict[str, object]) -> set[str]:
    """Every template of some length in a family, without the styles of values."""

    def inside(value: object) -> list[str]:
        if isinstance(value, dict):
            return [text for inner in value.values() for text in inside(inner)]
        return [text for inner in value for text in inside(inner)] if isinstance(value, list) else [str(value)]

    return {text for name, value in wordings.items() if name != "styles" for text in inside(value) if len(re.sub(r"\{\w+\}", "", text)) > 2}


def test_no_invented_fact_was_seen_and_every_name_is_new() -> None:
    for case in few():
        if case.kind != "faithful":
            assert case.invented and case.invented in case.answer
            assert case.invented not in case.conversation.seen.text


def test_with_the_invented_fact_taken_out_nothing_is_vetoed() -> None:
    for case in few():
        if case.kind != "faithful":
            assert CHECK not in failed_checks(case, case.conversation.answer), case.conversation.answer


def test_without_a_conversation_every_answer_with_a_number_is_vetoed() -> None:
    """An observation that says it all is what a faithful answer lives by."""
    for case in few():
        if case.kind == "faithful" and re.search(r"\d{2}", re.sub(r"^\S*[.)、] ?", "", case.answer, flags=re.M)):
            one = case.conversation
            bare = one.task.model_copy(update={"messages": (Message(role="user", content="hello"),), "slots": {}})
            alone = Case(case.kind, type(one)(bare, bare.messages, {}, one.world), case.answer, case.made)
            assert CHECK in failed_checks(alone, case.answer), case.answer


def test_figures_are_shares_of_their_own_kind() -> None:
    figures = figures_of(results())
    assert set(figures) == set(KEYS)
    assert all(0 <= share <= 1 for share in figures.values())
    invented = [Result(case, frozenset({CHECK})) if case.kind != "faithful" else Result(case, frozenset()) for case in few()]
    assert figures_of(invented) | {"veto_recall": 1.0, "veto_false": 0.0, "veto_false_any": 0.0} == figures_of(invented)
    none = figures_of([Result(case, frozenset({"facts"}) if case.kind == "faithful" else frozenset()) for case in few()])
    assert (none["veto_recall"], none["veto_false"], none["veto_false_any"]) == (0.0, 0.0, 1.0)
    assert all(" of " in line for line in by_making(results()))


@pytest.mark.parametrize(("metres", "has_one_decimal"), [(1493, True), (1500, True), (1449, False), (1552, False)])
def test_a_distance_is_rounded_only_where_that_is_less_than_one_percent_off(metres: int, has_one_decimal: bool) -> None:
    assert ("km1" in forms_of(Value("distance", metres), "en")) == has_one_decimal


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (Value("duration", 90), "{and_a_half}个半小时", "一个半小时"),
        (Value("duration", 125), "{h}h{mm}", "2h05"),
        (Value("clock", "00:00"), "midnight{is_midnight}", "midnight"),
        (Value("clock", "12:00"), "{h12}{ampm}{on_hour}", "12pm"),
        (Value("clock", "14:45"), "{part}{h12_word}点{on_hour}", None),
        (Value("clock", "12:00"), "noon{is_noon}", "noon"),
        (Value("date", "2026-03-02"), "{month} {ord}", "March 2nd"),
        (Value("date", "2026-03-02"), "{mo}月{d}日{weekday}", "3月2日星期一"),
        (Value("price", 1250, ("yuan", "")), "{sym}{n_sep}", "¥1,250"),
        (Value("count", 2, ("items", "件")), "{n_word}{unit_zh}", "两件"),
        (Value("duration", 2), "{n_word}分钟", "两分钟"),
    ],
)
def test_a_style_is_taken_where_the_value_has_its_forms(value: Value, style: str, text: str | None) -> None:
    made, _ = told(value, "zh", {value.kind: [style, "-"]} if text is None else {value.kind: [style]}, random.Random(0))
    assert made == (text or "-")


def test_numbers_in_words() -> None:
    assert [english(number) for number in (0, 19, 40, 42, 105, 1893)] == [
        "zero", "nineteen", "forty", "forty-two", "one hundred and five", "one thousand eight hundred and ninety-three",
    ]  # fmt: skip
    assert [chinese(number) for number in (0, 10, 12, 40, 105, 112, 120, 1005, 1015, 1893)] == [
        "零", "十", "十二", "四十", "一百零五", "一百一十二", "一百二十", "一千零五", "一千零一十五", "一千八百九十三",
    ]  # fmt: skip


def test_what_was_seen_is_known_by_its_kind_and_with_a_margin() -> None:
    messages = (
        Message(role="user", content="两个小时之内，晚上8点半前"),
        Message(
            role="tool", content='{"distance_m": 1500, "price": 22, "hours": "09:00-18:00", "address": "3 Elm Road"}', tool_call_id="c"
        ),
    )
    kinds = {"distance_m": ("distance", 1.0), "price": ("price", 1.0)}
    seen = seen_in(messages, "", lambda key, _: kinds.get(key, ("", 1.0)))
    assert seen.typed == {"distance": {1500.0}, "price": {22.0}}
    assert seen.has_number(1.5) and seen.has_number(1510) and seen.has_number(120) and not seen.has_number(700)
    assert seen.has_of_kind(22, "price") and not seen.has_of_kind(22, "duration")
    assert seen.has_time("18:05") and seen.has_time("20:30") and not seen.has_time("16:20")
    assert seen.has_name(("Elm Road", "榆树路")) and not seen.has_name(("Oak Road",))
