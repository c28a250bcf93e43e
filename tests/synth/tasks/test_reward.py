"""The graded reward: its formula by hand, what every mark is taken from, and what is worth nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.audits.mutations import draw_tasks
from storage.records import Call, FunctionCall, Message, Task, ToolCall
from synth.tasks.reward import WEIGHTS, Marks, kind_of, presentation, quarters, reward
from synth.tasks.solver import execute, expert_messages
from synth.tasks.verify import Verdict, judge, verify, verify_teacher
from synth.worlds import WORLDS, make_world
from tests.synth.retail_tasks import task_of, tasks

LOOKUP, TWO_PRICES, ACT, TWO_BUYS, REFUSAL = (
    task_of(intent, 1) for intent in ("order_status", "price_of_two", "close_order", "buy_two", "special_service")
)
ADVICE = LOOKUP.model_copy(update={"leaf": "planning_and_decision.solution_comparison.poi"})
TRIP = LOOKUP.model_copy(update={"leaf": "planning_and_decision.itinerary_planning.day_trip"})
FULL = Marks(grounded=1, plan=1, fidelity=1, presentation=1, failed=0)
MIXED = replace(FULL, plan=0.5, fidelity=0.25, presentation=0.5, failed=0.2)


def attempt(task: Task, calls: Sequence[Call], answer: str) -> Verdict:
    done = execute(make_world(task.world, task.world_seed), task.messages, calls, answer)
    return judge(WORLDS[task.world], task, done.messages, done.changes)


# ---- the formula -----------------------------------------------------------------------------------------------------------------


def test_a_tasks_intent_says_of_what_kind_it_is() -> None:
    kinds = [kind_of(task) for task in (ACT, TRIP, LOOKUP, ADVICE, REFUSAL)]
    assert kinds == ["planning", "planning", "retrieval", "consult", "refusal"]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (ACT, (0.5 * 0.5 + 0.3 * 0.25 + 0.2 * 0.5) * 0.8),
        (TRIP, (0.5 * 0.5 + 0.3 * 0.25 + 0.2 * 0.5) * 0.8),
        (LOOKUP, (0.2 * 0.5 + 0.6 * 0.25 + 0.2 * 0.5) * 0.8),
        (ADVICE, (0.2 * 0.5 + 0.3 * 0.25 + 0.5 * 0.5) * 0.8),
    ],
    ids=["act", "trip", "lookup", "advice"],
)
def test_the_formula_by_hand(task: Task, expected: float) -> None:
    assert reward(task, MIXED, success=False) == pytest.approx(expected)
    assert reward(task, FULL, success=True) == 1.0
    assert reward(task, replace(FULL, grounded=0), success=False) == 0.0
    assert reward(task, replace(FULL, plan=0), success=False) == 0.0, "what is said of nothing done"


def test_a_fact_must_be_told_unless_something_was_to_be_done() -> None:
    silent = replace(FULL, fidelity=0)
    assert reward(LOOKUP, silent, success=False) == reward(ADVICE, silent, success=False) == 0.0
    assert reward(ACT, silent, success=False) == pytest.approx(0.7)


def test_a_refusal_is_right_or_worth_nothing() -> None:
    assert [reward(REFUSAL, MIXED, success=success) for success in (True, False)] == [1.0, 0.0]
    assert [reward(REFUSAL, FULL, success=success) for success in (True, False)] == [1.0, 0.0]


MARK = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@given(
    task=st.sampled_from([ACT, LOOKUP, ADVICE]), marks=st.builds(Marks, st.sampled_from([0.0, 1.0]), MARK, MARK, MARK, st.floats(0, 0.99))
)
def test_the_reward_is_a_share_and_1_for_full_marks_alone(task: Task, marks: Marks) -> None:
    found = reward(task, marks, success=False)
    assert 0 <= found <= 1
    assert (found == 1) == (astuple(marks)[:4] == (1, 1, 1, 1) and marks.failed < 1e-6)


def test_weights_add_up() -> None:
    assert {kind: sum(weights) for kind, weights in WEIGHTS.items()} == dict.fromkeys(("planning", "retrieval", "consult"), 1.0)


@given(st.floats(0, 1))
def test_shares_are_rounded_down_to_quarters(share: float) -> None:
    assert quarters(share) in (0, 0.25, 0.5, 0.75, 1)
    assert quarters(share) <= share + 1e-8 and share < quarters(share) + 0.25


# ---- full marks ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", ["retail", "city", "library", "banking", "gen-1"])
def test_every_expert_has_full_marks(world: str) -> None:
    for task in draw_tasks(WORLDS[world], 48, random.Random(world)):
        verdict = verify_teacher(WORLDS[task.world], task, expert_messages(WORLDS[task.world], task))
        assert (verdict.success, verdict.reward) == (True, 1.0), (task.intent, verdict.marks)


def test_success_on_the_way_to_which_a_call_failed_is_worth_less() -> None:
    bad = Call(tool="exchange_order", arguments={"order": ACT.slots["order"]})
    verdict = attempt(ACT, (ACT.plan.calls[0], bad, ACT.plan.calls[1]), "Done.")
    assert verdict.success and verdict.reward == pytest.approx(2 / 3)


def test_success_is_worth_something_even_where_every_call_failed() -> None:
    task = next(task for task in tasks(4) if task.intent == "shop_information" and not task.plan.calls)
    assert attempt(task, (), task.plan.answer).reward == 1.0
    verdict = attempt(task, (Call(tool="get_order"),), task.plan.answer)
    assert verdict.success and verdict.reward == 0.5


# ---- partial success -------------------------------------------------------------------------------------------------------------


def test_half_of_the_facts_are_half_of_fidelity() -> None:
    first, second = TWO_PRICES.success.facts
    verdict = attempt(TWO_PRICES, TWO_PRICES.plan.calls, f"It is {first.value}.")
    assert verdict.marks == replace(FULL, fidelity=0.5)
    assert not verdict.success and verdict.reward == pytest.approx(0.2 + 0.6 * 0.5 + 0.2)
    assert attempt(TWO_PRICES, TWO_PRICES.plan.calls, f"They are {first.value} and {second.value}.").reward == 1.0


def test_half_of_the_changes_are_half_of_the_plan_and_the_answer_is_worth_no_more() -> None:
    verdict = attempt(TWO_BUYS, TWO_BUYS.plan.calls[:-1], TWO_BUYS.plan.answer)
    assert verdict.marks == replace(FULL, plan=0.5, fidelity=0.5)
    assert verdict.reward == pytest.approx(0.25 + 0.15 + 0.2)


def test_a_change_that_nobody_wanted_spoils_all() -> None:
    again = attempt(TWO_BUYS, (*TWO_BUYS.plan.calls, TWO_BUYS.plan.calls[-1]), TWO_BUYS.plan.answer)
    assert again.marks is not None and (again.marks.plan, again.reward) == (0.0, 0.0)


def test_an_act_without_a_look_and_a_look_without_an_act_are_worth_nothing() -> None:
    assert attempt(ACT, ACT.plan.calls[1:], ACT.plan.answer).reward == 0.0
    assert attempt(ACT, ACT.plan.calls[:1], ACT.plan.answer).reward == 0.0


def test_an_act_that_is_not_reported_lacks_fidelity_and_presentation() -> None:
    assert attempt(ACT, ACT.plan.calls, "").reward == pytest.approx(0.5)


def test_looking_up_is_worth_nothing_where_nothing_right_is_told() -> None:
    for answer in ("", "Done.", "I cannot say."):
        assert attempt(LOOKUP, LOOKUP.plan.calls, answer).reward == 0.0


def test_a_right_answer_out_of_the_blue_is_worth_nothing() -> None:
    assert attempt(LOOKUP, (), LOOKUP.plan.answer).reward == 0.0


def test_an_answer_that_hedges_tells_nothing() -> None:
    (fact,) = LOOKUP.success.facts
    assert attempt(LOOKUP, LOOKUP.plan.calls, f"It is {fact.value} or {fact.rivals[0]}.").reward == 0.0


def test_one_invented_number_takes_all() -> None:
    """Given an answer that is right but for a number that nobody has shown, then it is worth nothing, however right the rest is."""
    first, second = TWO_PRICES.success.facts
    said = f"They are {first.value} and {second.value}"
    assert attempt(TWO_PRICES, TWO_PRICES.plan.calls, f"{said}.").reward == 1.0
    assert attempt(TWO_PRICES, TWO_PRICES.plan.calls, f"{said}, with 98765 reviews.").reward == 0.0
    assert attempt(TWO_PRICES, TWO_PRICES.plan.calls, f"It is {first.value}, with 98765 reviews.").reward == 0.0


def test_data_are_no_answer() -> None:
    done = execute(make_world(LOOKUP.world, LOOKUP.world_seed), LOOKUP.messages, LOOKUP.plan.calls, "")
    seen = next(message.content or "" for message in done.messages if message.role == "tool")
    assert attempt(LOOKUP, LOOKUP.plan.calls, seen).reward == 0.0


def test_an_argument_that_nobody_has_said_takes_the_fidelity() -> None:
    peek = Call(tool="get_order", arguments={"order": "o00" if ACT.slots["order"] != "o00" else "o01"})
    verdict = attempt(ACT, (peek, *ACT.plan.calls), "Done.")
    assert verdict.marks is not None and verdict.marks.fidelity == 0.0 and verdict.reward < 0.8


def test_a_call_of_a_tool_that_is_not_on_offer_has_failed() -> None:
    offered = tuple(tool for tool in LOOKUP.tools if tool != LOOKUP.plan.calls[0].tool)
    verdict = attempt(LOOKUP.model_copy(update={"tools": offered}), LOOKUP.plan.calls, LOOKUP.plan.answer)
    assert not verdict.success and verdict.reward == 0.5


def test_a_call_that_got_no_answer_has_failed() -> None:
    asked = Message(role="assistant", tool_calls=(ToolCall(id="c", function=FunctionCall(name="list_products", arguments="{}")),))
    opening, rest = len(ACT.messages), expert_messages(WORLDS[ACT.world], ACT)
    verdict = judge(WORLDS[ACT.world], ACT, [*rest[:opening], asked, *rest[opening:]], ACT.success.changes)
    assert verdict.marks is not None and verdict.marks.failed == pytest.approx(1 / 3)


def test_only_the_policys_own_calls_count() -> None:
    """Given an opening in which a call failed, then it is not held against the policy."""
    call = ToolCall(id="c", function=FunctionCall(name="get_order", arguments="{}"))
    before = (
        Message(role="user", content="hello"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="c", content='{"error": "no order"}'),
    )
    task = LOOKUP.model_copy(update={"messages": (*before, *LOOKUP.messages)})
    assert attempt(task, task.plan.calls, task.plan.answer).reward == 1.0


def test_a_fact_that_the_request_says_itself_earns_nothing_alone() -> None:
    """Given a request that says one of two prices, then telling that one is no news, telling the other is, and both are all."""
    first, second = TWO_PRICES.success.facts
    opening = (*TWO_PRICES.messages[:-1], Message(role="user", content=f"{TWO_PRICES.messages[-1].content} (one is {first.value})"))
    task = TWO_PRICES.model_copy(update={"messages": opening})
    told = [attempt(task, task.plan.calls, answer).reward for answer in (first.value, second.value, f"{first.value} and {second.value}")]
    assert told == [0.0, pytest.approx(0.7), 1.0]


def test_what_was_not_really_observed_is_worth_nothing() -> None:
    messages = expert_messages(WORLDS[LOOKUP.world], LOOKUP)
    tampered = [replaced(message) if message.role == "tool" else message for message in messages]
    assert verify(WORLDS[LOOKUP.world], LOOKUP, messages).reward == 1.0
    assert verify(WORLDS[LOOKUP.world], LOOKUP, tampered).reward == 0.0
    assert verify(WORLDS[LOOKUP.world], LOOKUP, []) == Verdict(False, 0.0, {"observations": False})


def replaced(message: Message) -> Message:
    return message.model_copy(update={"content": (message.content or "")[:-1] + ', "note": 1}'})


# ---- presentation ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("It is delivered.", "en", 1.0),
        ("已送达。", "zh", 1.0),
        ("已送达。", "en", 0.5),
        ("It is delivered.", "zh", 0.5),
        ("42 o17", "zh", 1.0),
        ("", "en", 0.0),
        ("  \n", "en", 0.0),
        ("It is {status}.", "en", 0.0),
        ("It is None.", "en", 0.0),
        ("It is nan.", "en", 0.0),
        ("so " * 700, "en", 0.0),
    ],
)
def test_presentation(text: str, language: str, expected: float) -> None:
    assert presentation(text, "zh" if language == "zh" else "en") == expected


def test_an_answer_in_another_language_loses_half_of_its_presentation() -> None:
    verdict = attempt(ACT, ACT.plan.calls, "好了。")
    assert verdict.success and verdict.reward == pytest.approx(0.9)
