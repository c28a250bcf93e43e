"""The verdict: outcome, evidence, grounding, refusals, replay; each with what must not pass."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest

from storage.records import Call, Fact, FunctionCall, Message, RefusalReason, Task, ToolCall
from synth.tasks import verify as verify_module
from synth.tasks.grounding import stated_claims
from synth.tasks.solver import execute, expert_messages
from synth.tasks.verify import Verdict, judge, verify, verify_teacher
from synth.text.refusals import REFUSAL_PHRASES, refusal_reasons
from synth.worlds import WORLDS, make_world
from tests.synth.retail_tasks import task_of, tasks

RetailWorld = WORLDS["retail"]


def attempt(task: Task, calls: Sequence[Call], answer: str) -> Verdict:
    """What a policy gets that makes these calls and says this."""
    done = execute(make_world(task.world, task.world_seed), task.messages, calls, answer)
    assert judge(WORLDS[task.world], task, done.messages, done.changes) == judge(
        WORLDS[task.world], task, list(done.messages), done.changes
    )
    return judge(WORLDS[task.world], task, done.messages, done.changes)


def failed(verdict: Verdict) -> set[str]:
    return {name for name, holds in verdict.checks.items() if not holds}


def test_every_expert_passes_even_as_a_teacher() -> None:
    for task in tasks(4):
        verdict = verify_teacher(WORLDS[task.world], task, expert_messages(WORLDS[task.world], task))
        assert verdict.success, (task.intent, failed(verdict))
        assert verdict.reward == 1.0


def test_idle_and_always_refusing_policies_score_nothing_elsewhere() -> None:
    for task in tasks(4):
        assert not attempt(task, (), "").success
        for reason, phrases in REFUSAL_PHRASES.items():
            if task.success.refusal is None:
                assert not attempt(task, (), f"Sorry, {phrases[0]}.").success
            elif task.success.refusal != reason:
                assert "refusal" in failed(attempt(task, task.plan.calls, f"Sorry, {phrases[0]}."))


def test_naming_every_reason_is_no_refusal() -> None:
    task = task_of("special_service", 0)
    everything = " ".join(phrases[0] for phrases in REFUSAL_PHRASES.values())
    assert failed(attempt(task, (), everything)) == {"refusal"}


@pytest.mark.parametrize(("reason", "phrase"), [(reason, phrase) for reason, phrases in REFUSAL_PHRASES.items() for phrase in phrases])
def test_each_phrase_names_one_reason(reason: RefusalReason, phrase: str) -> None:
    assert refusal_reasons(f"Sorry, {phrase.upper()}.") == {reason}


def test_a_rule_is_not_refused_without_looking() -> None:
    task = task_of("cancel_delivered", 0)
    assert failed(attempt(task, (), task.plan.answer)) == {"evidence"}


def test_an_act_whose_condition_was_not_looked_at_is_luck() -> None:
    task = task_of("close_order", 0)
    assert failed(attempt(task, task.plan.calls[1:], task.plan.answer)) == {"evidence"}


def test_evidence_that_comes_after_the_act_is_late() -> None:
    task = task_of("close_order", 0)
    assert "evidence" in failed(attempt(task, task.plan.calls[::-1], task.plan.answer))


def test_another_way_to_the_goal_is_fine() -> None:
    task = task_of("close_and_buy", 0)
    look, search, close, buy = task.plan.calls
    assert attempt(task, (search, look, close, buy), "All done.").success
    assert attempt(task, (look, close, search, look, buy), "All done.").success
    wide = search.model_copy(update={"arguments": {**search.arguments, "limit": 4}})
    assert attempt(task, (look, wide, close, buy), "All done.").success


def test_a_failed_call_that_is_mended_is_fine_but_not_one_of_an_unknown_tool() -> None:
    task = task_of("close_order", 0)
    order = task.slots["order"]
    bad = Call(tool="exchange_order", arguments={"order": order})
    assert attempt(task, (task.plan.calls[0], bad, task.plan.calls[1]), "Done.").success
    unknown = Call(tool="refund", arguments={"order": order})
    assert failed(attempt(task, (*task.plan.calls, unknown), "Done.")) == {"known_tools"}


def test_what_nobody_said_grounds_nothing() -> None:
    task = task_of("close_order", 0)
    other = "o00" if task.slots["order"] != "o00" else "o01"
    peek = Call(tool="get_order", arguments={"order": other})
    assert failed(attempt(task, (peek, *task.plan.calls), "Done.")) == {"grounded_arguments"}


def test_an_argument_is_grounded_by_slots_in_either_language_and_by_defaults() -> None:
    task = task_of("buy_product", 0)
    frame_slots = {**task.slots, "quantity": 2}
    worded = task.model_copy(
        update={
            "slots": frame_slots,
            "messages": (Message(role="user", content=f"给 {task.slots['user']} 买两个 {task.slots['product']}"),),
        }
    )
    call = Call(tool="buy", arguments={"user": task.slots["user"], "product": task.slots["product"], "quantity": 2})
    assert "grounded_arguments" not in failed(attempt(worded, (call,), "好了。"))
    assert (
        "grounded_arguments" in failed(attempt(worded.model_copy(update={"slots": task.slots}), (call,), "好了。"))
        or task.slots.get("quantity") == 2
    )
    one = call.model_copy(update={"arguments": {**call.arguments, "quantity": 1}})
    assert "grounded_arguments" not in failed(attempt(worded, (one,), "好了。"))


@pytest.mark.parametrize(
    ("answer", "language"),
    [
        ("p99z1 is yours.", "en"),
        ("It costs 9876 dollars.", "en"),
        ("一共9876元。", "zh"),
        ("Delivered at 03:17.", "en"),
        ("2031-01-01", "en"),
    ],
)
def test_the_answer_may_not_invent(answer: str, language: str) -> None:
    task = task_of("close_order", 0)
    assert failed(attempt(task, task.plan.calls, answer)) == {"grounded_answer"}


def test_the_answer_may_not_name_what_was_not_talked_about() -> None:
    task = task_of("order_price", 0)
    shown = json.loads(expert_messages(WORLDS[task.world], task)[-2].content or "{}")
    category = next(name for name in ("lamp", "mug") if name != shown["category"])
    chinese = {"lamp": "台灯", "mug": "马克杯"}[category]
    assert failed(attempt(task, task.plan.calls, f"{task.plan.answer} A {category}.")) == {"grounded_answer"}
    assert failed(attempt(task, task.plan.calls, f"{task.plan.answer}{chinese}。")) == {"grounded_answer"}
    known = RetailWorld.kinds["category"].names[shown["category"]]["zh"]
    assert attempt(task, task.plan.calls, f"{task.plan.answer}{known}。").success, "the other language's name of what was shown"


def test_facts_are_found_in_either_language_and_hedging_is_not_an_answer() -> None:
    task = task_of("order_status", 0)
    fact = task.success.facts[0]
    for word in (fact.value, *fact.alternatives):
        assert attempt(task, task.plan.calls, f"It is {word}.").success
    for rival in fact.rivals:
        assert failed(attempt(task, task.plan.calls, f"{fact.value} or {rival}")) == {"facts"}
    assert failed(attempt(task, task.plan.calls, "It is fine.")) == {"facts"}


def test_a_price_is_told_by_value() -> None:
    task = task_of("price_question", 0)
    price = task.success.facts[0].value
    assert attempt(task, task.plan.calls, f"${price}.00").success
    assert attempt(task, task.plan.calls, f"共{price}元").success
    assert not attempt(task, task.plan.calls, f"{int(price) + 1} dollars").success
    rows = json.loads(expert_messages(WORLDS[task.world], task)[-2].content or "[]")
    other = next(str(row["price"]) for row in rows if str(row["price"]) != price)
    assert failed(attempt(task, task.plan.calls, f"{price} or {other} dollars")) == {"facts"}


def test_a_bound_of_the_request_may_be_said_again() -> None:
    """Given a request with a price limit that another product costs, when the answer repeats the limit, then it is no rival."""
    task = task_of("price_question", 0)
    shown = [str(row["price"]) for row in json.loads(expert_messages(WORLDS[task.world], task)[-2].content or "")]
    rival = next(price for price in shown if price in task.success.facts[0].rivals)
    answer = f"The {task.slots['pick']} one under {rival} dollars: {task.success.facts[0].value} dollars."
    assert failed(attempt(task, task.plan.calls, answer)) == {"facts"}
    bounded = task.model_copy(update={"slots": {**task.slots, "max_price": int(rival)}})
    assert attempt(bounded, task.plan.calls, answer).success


def test_observations_passed_on_are_no_answer() -> None:
    for task in tasks(1):
        observed = [message.content or "" for message in expert_messages(WORLDS[task.world], task) if message.role == "tool"]
        if any("{" in text for text in observed):
            assert "own_words" in failed(attempt(task, task.plan.calls, "Here it is:\n" + "\n".join(observed)))
            assert "own_words" in failed(attempt(task, task.plan.calls, json.dumps([json.loads(text) for text in observed], indent=1)))


def test_a_question_about_the_shop_is_answered_from_the_system_prompt() -> None:
    task = task_of("shop_information", 0)
    assert attempt(task, (), task.plan.answer).success
    assert failed(attempt(task, (), "30 days, 5 dollars, at 09:00")) == {"facts"}


def test_malformed_arguments_and_a_missing_end_fail() -> None:
    task = task_of("call_back", 0)
    call = ToolCall(id="a", function=FunctionCall(name="escalate", arguments="{'user':"))
    messages = [
        *task.messages,
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content='{"error":"x"}', tool_call_id="a"),
    ]
    assert failed(judge(WORLDS[task.world], task, messages, {})) == {"ended_with_text", "well_formed", "end_state"}


def with_call_ids(messages: Sequence[Message], ids: Sequence[str]) -> list[Message]:
    """The conversation with its calls, one a message, named anew."""
    named = list(messages)
    places = [place for place, message in enumerate(messages) if message.tool_calls]
    for place, name in zip(places, ids, strict=True):
        call = messages[place].tool_calls[0].model_copy(update={"id": name})
        named[place] = messages[place].model_copy(update={"tool_calls": (call,)})
        named[place + 1] = messages[place + 1].model_copy(update={"tool_call_id": name})
    return named


class TestReusedCallIds:
    """Ids that come again name the call of their own message."""

    def shipped(self) -> tuple[Task, Call]:
        for task in tasks(12):
            if task.intent == "close_order" and task.plan.calls[-1].tool == "escalate":
                return task, Call(tool="cancel_order", arguments={"order": task.slots["order"]})
        raise AssertionError("no order is shipped")

    def test_an_act_is_not_taken_for_the_error_that_comes_later(self) -> None:
        task, fails = self.shipped()
        look, act = task.plan.calls
        blind = execute(make_world(task.world, task.world_seed), task.messages, (act, look, fails), task.plan.answer)
        for ids in ("abc", "aba"):
            assert failed(verify(WORLDS[task.world], task, with_call_ids(blind.messages, ids))) == {"evidence"}

    def test_an_error_is_not_taken_for_the_act_that_comes_later(self) -> None:
        task, fails = self.shipped()
        look, act = task.plan.calls
        right = execute(make_world(task.world, task.world_seed), task.messages, (fails, look, act), task.plan.answer)
        for ids in ("abc", "aba"):
            assert verify_teacher(WORLDS[task.world], task, with_call_ids(right.messages, ids)).success

    def test_a_call_that_failed_covers_no_plan(self) -> None:
        task, fails = self.shipped()
        planned = task.model_copy(update={"plan": task.plan.model_copy(update={"calls": (fails, *task.plan.calls)})})
        done = execute(make_world(task.world, task.world_seed), task.messages, (fails, *task.plan.calls), task.plan.answer)
        for ids in ("abc", "aba"):
            assert failed(verify_teacher(WORLDS[planned.world], planned, with_call_ids(done.messages, ids))) == {"plan_covered"}


class TestReplay:
    def test_a_tampered_observation_is_refused(self) -> None:
        task = task_of("price_question", 0)
        messages = expert_messages(WORLDS[task.world], task)
        price = task.success.facts[0].value
        tampered = [
            message.model_copy(update={"content": (message.content or "").replace(price, "3")}) if message.role == "tool" else message
            for message in messages
        ]
        assert failed(verify(WORLDS[task.world], task, messages)) == set()
        assert "observations" in failed(verify(WORLDS[task.world], task, tampered))

    def test_another_opening_a_missing_result_and_an_added_one_are_refused(self) -> None:
        task = task_of("close_order", 0)
        messages = expert_messages(WORLDS[task.world], task)
        assert failed(verify(WORLDS[task.world], task, [Message(role="user", content="hi"), *messages[1:]])) >= {"observations"}
        assert "observations" in failed(verify(WORLDS[task.world], task, [message for message in messages if message.role != "tool"]))
        added = Message(role="tool", content="{}", tool_call_id="call_9")
        assert "observations" in failed(verify(WORLDS[task.world], task, [*messages[:-1], added, messages[-1]]))

    def test_a_teacher_must_cover_the_plan_and_a_policy_need_not(self) -> None:
        task = task_of("close_by_category", 0)
        order = next(iter(task.success.evidence)).value
        listed = execute(make_world("retail", task.world_seed), task.messages, task.plan.calls, task.plan.answer)
        again = Call(tool="get_order", arguments={"order": order})
        longer = execute(make_world("retail", task.world_seed), task.messages, (task.plan.calls[0], again, task.plan.calls[1]), "Done.")
        assert verify_teacher(WORLDS[task.world], task, listed.messages).success
        assert verify_teacher(WORLDS[task.world], task, longer.messages).success
        padded = task.model_copy(update={"plan": task.plan.model_copy(update={"calls": (*task.plan.calls, again)})})
        assert failed(verify_teacher(WORLDS[padded.world], padded, listed.messages)) == {"plan_covered"}
        assert verify(WORLDS[padded.world], padded, listed.messages).success


def test_judging_is_cheap() -> None:
    rollouts = [(task, expert_messages(WORLDS[task.world], task)) for task in tasks(4)]
    for task, messages in rollouts:
        judge(WORLDS[task.world], task, messages, {})
    started = time.process_time()
    for _ in range(4):
        for task, messages in rollouts:
            judge(WORLDS[task.world], task, messages, task.success.changes)
    assert (time.process_time() - started) / (4 * len(rollouts)) < 0.6e-3


@pytest.mark.parametrize(
    ("kind", "value", "answers"),
    [
        ("number", "12", ("It takes twelve minutes.", "要十二分钟。", "12 min")),
        ("number", "90", ("It takes an hour and a half.", "一个半小时", "1 h 30")),
        ("time", "07:20", ("It leaves at 7.20am.", "It leaves at seven twenty in the morning.", "早上七点二十发车")),
        ("date", "2026-05-25", ("It is due on 25 May.", "due Monday, May 25", "5月25号到期", "25-May-2026")),
    ],
)
def test_a_fact_may_be_told_as_people_tell_it(kind: str, value: str, answers: tuple[str, ...]) -> None:
    fact = Fact(kind=kind, value=value)
    for answer in answers:
        assert verify_module._is_stated(fact, answer.lower(), stated_claims(answer), frozenset()), answer
    for answer in ("It takes thirteen minutes.", "It leaves at 8.20am.", "It is due on 24 May.", "两个小时"):
        assert not verify_module._is_stated(fact, answer.lower(), stated_claims(answer), frozenset()), answer


def test_a_status_told_of_another_order_is_none() -> None:
    seen = 0
    for task in (task_of("status_by_category", 50 * turn) for turn in range(12)):
        right = expert_messages(WORLDS[task.world], task)
        order = task.plan.answer.split()[0]
        others = [rival for rival in task.success.facts[0].rivals if rival.startswith("o") and rival[1:].isdigit()]
        assert judge(WORLDS[task.world], task, right, {}).success
        for other in others:
            said = (right[-1].content or "").replace(order, other)
            assert not judge(WORLDS[task.world], task, (*right[:-1], Message(role="assistant", content=said)), {}).success
            seen += 1
    assert seen > 5
