"""`derive_turns`: turns, argument sources and reasoning-mode tokens of a conversation."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.conversation import Turn, derive_turns, mentions
from storage.records import FunctionCall, Message, ToolCall, leaves

SEARCH, READ, BUY = "search_products", "get_order", "buy"


def user(text: str) -> Message:
    return Message(role="user", content=text)


def say(text: str) -> Message:
    return Message(role="assistant", content=text)


def step(*calls: tuple[str, str, dict[str, object], object]) -> list[Message]:
    """One assistant message with calls (id, tool, arguments, result), and their observations."""
    made = tuple(ToolCall(id=i, function=FunctionCall(name=tool, arguments=json.dumps(arguments))) for i, tool, arguments, _ in calls)
    observed = [
        Message(role="tool", tool_call_id=i, content=result if isinstance(result, str) else json.dumps(result)) for i, _, _, result in calls
    ]
    return [Message(role="assistant", tool_calls=made), *observed]


def modes(turns: tuple[Turn, ...]) -> str:
    return "|".join("".join(step.mode for step in turn.steps) for turn in turns)


def source(messages: list[Message], name: str) -> str:
    last = [call for turn in derive_turns(messages) for step in turn.steps for call in step.calls][-1]
    return last.sources[name]


@pytest.mark.parametrize(
    "shown", ['{"place":"Blue Café"}', '{"place":"Blue Caf\\u00e9"}', '{"note":"met at BLUE CAFÉ."}', "found Blue Café"]
)
def test_a_result_feeds_a_call_however_it_writes_the_value(shown: str) -> None:
    found = step(("1", READ, {"order": "o17"}, shown))

    assert source([user("go on"), *found, *step(("2", SEARCH, {"near": "blue café"}, {"x": 1}))], "near") == "1"
    assert source([user("go on"), *found, *step(("2", SEARCH, {"near": "blue bar"}, {"x": 1}))], "near") == "const"


# ---- mode tokens ----------------------------------------------------------------------------------------------------


def test_a_chain_is_c_then_s_then_f() -> None:
    talk = [
        user("buy the cheapest shoes for u07"),
        *step(("1", SEARCH, {"category": "shoes"}, [{"product": "p31", "price": 20}])),
        *step(("2", BUY, {"user": "u07", "product": "p31"}, {"bought": 1})),
        say("Bought p31."),
    ]

    assert modes(derive_turns(talk)) == "CSF"


def test_two_independent_calls_in_one_message_are_p_and_dependent_ones_are_s() -> None:
    parallel = [
        user("status of o17 and o18"),
        *step(("1", READ, {"order": "o17"}, {"x": 1}), ("2", READ, {"order": "o18"}, {"x": 2})),
        say("done"),
    ]
    dependent = [
        user("all orders of u01"),
        *step(("1", "list_orders", {"user": "u01"}, [{"order": "o17"}, {"order": "o18"}])),
        *step(("2", READ, {"order": "o17"}, {"x": 1}), ("3", READ, {"order": "o18"}, {"x": 2})),
        say("done"),
    ]

    assert modes(derive_turns(parallel)) == "PF"
    assert modes(derive_turns(dependent)) == "CSF"


def test_a_question_before_the_last_message_is_a_and_a_turn_without_calls_is_n() -> None:
    talk = [
        user("cancel my order"),
        say("Which order?"),
        user("o17"),
        *step(("1", "cancel_order", {"order": "o17"}, {"status": "cancelled"})),
        say("Cancelled."),
        user("now book me a flight"),
        say("I have no tool for that."),
    ]

    assert modes(derive_turns(talk)) == "A|CF|N"


def test_a_whole_conversation_that_ends_in_a_question_refuses() -> None:
    assert modes(derive_turns([user("cancel it"), say("Which order do you mean?")])) == "N"


def test_an_error_makes_the_next_step_a_repair_even_by_another_tool_or_after_a_word_in_between() -> None:
    fault = {"error": "timeout"}
    for tool in (READ, SEARCH):
        talk = [user("o17?"), *step(("1", READ, {"order": "o17"}, fault)), *step(("2", tool, {"order": "o17"}, {"x": 1})), say("ok")]
        assert modes(derive_turns(talk)) == "CRF"
    talk = [
        user("o17?"),
        *step(("1", READ, {"order": "o17"}, fault)),
        say("Let me retry."),
        *step(("2", READ, {"order": "o17"}, {"x": 1})),
        say("ok"),
    ]
    assert modes(derive_turns(talk)) == "CFRF"


def test_a_failure_of_an_earlier_turn_is_repaired_only_by_the_same_tool() -> None:
    start = [
        user("o17?"),
        *step(("1", READ, {"order": "o17"}, {"error": "no such order"})),
        say("Which one is it?"),
        user("o18, and shoes"),
    ]

    same = [*start, *step(("2", READ, {"order": "o18"}, {"x": 1})), say("ok")]
    other = [*start, *step(("2", SEARCH, {"category": "shoes"}, [{"x": 1}])), say("ok")]

    assert modes(derive_turns(same)) == "CA|RF"
    assert modes(derive_turns(other)) == "CA|CF"


def test_a_success_ends_the_repair() -> None:
    talk = [
        user("o17 and o18"),
        *step(("1", READ, {"order": "o17"}, {"error": "x"})),
        *step(("2", READ, {"order": "o17"}, {"x": 1})),
        *step(("3", READ, {"order": "o18"}, {"x": 1})),
        say("ok"),
    ]

    assert modes(derive_turns(talk)) == "CRCF"


def test_the_same_call_again_is_v_if_it_had_succeeded_and_r_if_it_had_failed() -> None:
    again = [user("o17"), *step(("1", READ, {"order": "o17"}, {"x": 1})), *step(("2", READ, {"order": "o17"}, {"x": 1})), say("ok")]
    later = [
        user("o17"),
        *step(("1", READ, {"order": "o17"}, {"error": "x"})),
        *step(("2", SEARCH, {"category": "shoes"}, [{"x": 1}])),
        *step(("3", READ, {"order": "o17"}, {"x": 1})),
        say("ok"),
    ]

    assert modes(derive_turns(again)) == "CVF"
    assert modes(derive_turns(later)) == "CRCF"


def test_the_code_tool_is_x() -> None:
    assert modes(derive_turns([user("2+2"), *step(("1", "run_python", {"code": "2+2"}, "4")), say("4")])) == "XF"


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ("[]", "empty"),
        ("", "empty"),
        ("null", "empty"),
        ("{}", "empty"),
        ('{"count": 0, "places": []}', "empty"),
        ('{"error": "no such order"}', "error"),
        ('{"count": 1, "places": ["x"]}', "ok"),
        ('[{"stock": 0}]', "ok"),
        ("0", "ok"),
        ('{"stock": 0}', "ok"),
        ('{"order": "o17", "items": []}', "ok"),
        ("plain text", "ok"),
    ],
)
def test_status_of_a_result(result: str, status: str) -> None:
    (turn,) = derive_turns([user("x"), *step(("1", READ, {}, result)), say("ok")])

    assert turn.steps[0].calls[0].status == status


def test_a_call_without_observation_is_missing_and_feeds_nothing() -> None:
    call = Message(role="assistant", tool_calls=(ToolCall(id="1", function=FunctionCall(name=READ, arguments="not json")),))

    (turn,) = derive_turns([user("x"), call])

    assert turn.steps[0].calls[0].status == "missing"
    assert turn.steps[0].calls[0].arguments is None


# ---- sources --------------------------------------------------------------------------------------------------------


def test_a_value_comes_from_the_latest_result_that_holds_it() -> None:
    first, second = ("1", SEARCH, {"category": "shoes"}, [{"product": "p31"}]), ("2", READ, {"order": "o17"}, {"product": "p31"})

    talk = [user("u07, o17"), *step(first), *step(second), *step(("3", BUY, {"product": "p31", "user": "u07"}, {"ok": 1}))]

    assert source(talk, "product") == "2"
    assert source(talk, "user") == "user"


def test_a_tool_that_echoes_an_argument_is_no_source_of_it() -> None:
    talk = [
        user("look"),
        *step(("1", READ, {"order": "o17"}, {"order": "o17", "user": "u07"})),
        *step(("2", "cancel_order", {"order": "o17"}, {"ok": 1})),
    ]

    assert source(talk, "order") == "const"
    assert source([user("look at o17"), *talk[1:]], "order") == "user"


def test_names_of_fields_are_no_values_but_data_in_keys_is() -> None:
    talk = [user("x"), *step(("1", SEARCH, {}, {"price": 5, "o17": {"sold": True}}))]

    assert source([*talk, *step(("2", SEARCH, {"sort": "price"}, "[]"))], "sort") == "const"
    assert source([*talk, *step(("2", READ, {"order": "o17"}, "[]"))], "order") == "1"


def test_failed_results_are_no_sources() -> None:
    talk = [user("x"), *step(("1", READ, {}, {"error": "order o17 is unknown"})), *step(("2", READ, {"order": "o17"}, {"x": 1}))]

    assert source(talk, "order") == "const"


def test_booleans_never_come_from_anywhere_and_numbers_do() -> None:
    talk = [user("x"), *step(("1", READ, {}, {"flag": True, "one": 1, "price": 12.5}))]

    assert source([*talk, *step(("2", SEARCH, {"in_stock": True}, "[]"))], "in_stock") == "const"
    assert source([*talk, *step(("2", SEARCH, {"max_price": 12.5}, "[]"))], "max_price") == "1"


def test_system_text_counts_as_said_and_assistant_text_does_not() -> None:
    system = Message(role="system", content="You serve user u07.")

    assert source([system, user("my orders"), *step(("1", READ, {"user": "u07"}, "[]"))], "user") == "user"
    assert (
        source([user("my orders"), say("You are u07, I guess."), user("yes"), *step(("1", READ, {"user": "u07"}, "[]"))], "user") == "const"
    )


def test_nested_arguments_have_dotted_names() -> None:
    talk = [user("from A1 to B2"), *step(("1", SEARCH, {"origins": ["A1", "B2"], "near": {"place": "C3"}}, "[]"))]

    (turn,) = derive_turns(talk)

    assert turn.steps[0].calls[0].sources == {"origins.0": "user", "origins.1": "user", "near.place": "const"}


def test_call_ids_used_again_keep_their_own_results() -> None:
    talk = [
        user("x"),
        *step(("1", READ, {"order": "o17"}, {"a": 1})),
        say("?"),
        user("y"),
        *step(("1", READ, {"order": "o18"}, {"error": "x"})),
        say("ok"),
    ]

    statuses = [call.status for turn in derive_turns(talk) for step in turn.steps for call in step.calls]

    assert statuses == ["ok", "error"]


# ---- mentions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("cancel order o17", "o17", True),
        ("cancel order o17", 17, False),
        ("order o175", "o17", False),
        ("under 1,200 yuan", 1200, True),
        ("[1,2,3]", 3, True),
        ("[1,2,3]", 123, False),
        ("3.0 km", 3, True),
        ("3公里以内", 3, True),
        ("10-20", 20, True),
        ("-5 degrees", -5, True),
        ("订单o17的状态", "o17", True),
        ("version 17.5", "17", False),
        ("costs 17.", "17", True),
        ("去西湖怎么走", "西湖", True),
        ("SHOES please", "shoes", True),
        ("true", True, False),
        ("anything", "", False),
        ("None", None, False),
    ],
)
def test_mentions(text: str, value: object, expected: bool) -> None:
    assert mentions(text, value) is expected


# ---- invariants -----------------------------------------------------------------------------------------------------

_scalars = st.one_of(st.integers(-999, 999), st.sampled_from(["o17", "p31", "西湖", "shoes"]), st.booleans(), st.none())
_calls = st.tuples(
    st.sampled_from([SEARCH, READ, "run_python"]), st.dictionaries(st.sampled_from("ab"), _scalars), st.one_of(_scalars, st.lists(_scalars))
)
_events = st.one_of(st.text(max_size=12).map(user), st.text(max_size=12).map(say), st.lists(_calls, min_size=1, max_size=3))


@given(st.lists(_events, max_size=12))
def test_nothing_is_lost_and_every_source_is_an_earlier_call(events: list[object]) -> None:
    talk: list[Message] = []
    for number, event in enumerate(events):
        if isinstance(event, Message):
            talk.append(event)
        else:
            talk += step(*((f"{number}.{i}", *call) for i, call in enumerate(event)))

    steps = [step for turn in derive_turns(talk) for step in turn.steps]

    assert len(steps) == sum(message.role == "assistant" for message in talk)
    assert [call.call_id for step in steps for call in step.calls] == [call.id for message in talk for call in message.tool_calls]
    earlier: set[str] = set()
    for each in steps:
        assert each.mode in "NARVXSPCF"
        assert bool(each.calls) == (each.mode not in "NAF")
        for call in each.calls:
            assert set(call.sources) == {path for path, _ in leaves(call.arguments)}
            assert set(call.sources.values()) <= earlier | {"user", "const"}
        earlier |= {call.call_id for call in each.calls}


# ---- the quick reading against the plain definition --------------------------------------------------------------------


def plainly_mentions(text: str, value: object) -> bool:
    if isinstance(value, (int, float)):
        numbers = re.findall(r"(?<![A-Za-z0-9_.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", text)
        return any(float(found.replace(",", "")) == value for found in numbers)
    needle = str(value).casefold().strip()
    if not needle or not needle.isascii():
        return bool(needle) and needle in text.casefold()
    return re.search(rf"(?<![A-Za-z0-9])(?<!\d\.){re.escape(needle)}(?![A-Za-z0-9])(?!\.\d)", text.casefold()) is not None


texts = st.text(st.sampled_from("ab1 2.o,-é杭"), max_size=12)
scalars = texts | st.integers(-20, 200) | st.sampled_from([0.5, 1.0, 2.5, 1200.0])


@settings(max_examples=300, deadline=None)
@given(texts, scalars)
def test_a_word_is_found_exactly_where_the_definition_finds_it(text: str, value: object) -> None:
    assert mentions(text, value) == plainly_mentions(text, value)


@settings(max_examples=300, deadline=None)
@given(st.lists(scalars, max_size=4), st.lists(scalars, max_size=2), scalars)
def test_a_result_holds_what_one_of_its_own_values_equals_or_mentions(values: list[object], given_: list[object], wanted: object) -> None:
    def same(left: object, right: object) -> bool:
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return left == right
        return str(left).casefold().strip() == str(right).casefold().strip()

    own = [value for value in values if not any(same(value, known) for known in given_)]
    holds = any(same(value, wanted) or (isinstance(value, str) and plainly_mentions(value, wanted)) for value in own)

    first = ToolCall(id="c1", function=FunctionCall(name="read", arguments=json.dumps({"given": given_})))
    second = ToolCall(id="c2", function=FunctionCall(name="read", arguments=json.dumps({"wanted": wanted})))
    talk = [
        Message(role="assistant", tool_calls=(first,)),
        Message(role="tool", tool_call_id="c1", content=json.dumps({"rows": values, "at": True})),
        Message(role="assistant", tool_calls=(second,)),
    ]

    assert (derive_turns(talk)[0].steps[1].calls[0].sources["wanted"] == "c1") == holds
