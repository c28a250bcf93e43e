"""What a policy is worth that knows nothing of its task: nothing, on every task that is admitted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from storage.records import Call, Message, RefusalReason, Success, Task, leaves, parse_arguments
from synth import solver
from synth.mutations import draw_tasks
from synth.refusals import REFUSALS
from synth.solver import NotAdmitted, check_admission, execute
from synth.tricks import ALWAYS_REFUSE, MOST_CALLS, tricks
from synth.verify import Verdict, judge
from synth.worlds import make_world
from tests.synth.retail_tasks import task_of

NAMES = {"no_op", "copy_the_prompt", "answer_everything", ALWAYS_REFUSE}


def attempt(task: Task, calls: Sequence[Call], answer: str) -> Verdict:
    done = execute(make_world(task.world, task.world_seed), task.messages, calls, answer)
    return judge(task, done.messages, done.changes)


def tried(task: Task) -> list[tuple[str, Sequence[Call], str]]:
    def look(calls: Sequence[Call]) -> Sequence[Message]:
        return execute(make_world(task.world, task.world_seed), task.messages, calls, "").messages[len(task.messages) :]

    return list(tricks(task, look))


def every_trick(task: Task) -> list[tuple[str, Sequence[Call], str]]:
    """Those too that are left out because they have no chance."""
    return tried(task.model_copy(update={"success": Success(refusal=task.success.refusal)}))


WORLDS_TRIED = (
    "retail",
    "city",
    "library",
    "banking",
    "clinic",
    "helpdesk",
    "hotel",
    "logistics",
    "school",
    "telecom",
    "gen-1",
    "gen-2",
    "gen-3",
)


@pytest.mark.parametrize("world", WORLDS_TRIED)
def test_no_trick_is_worth_anything_on_a_task_that_was_admitted(world: str) -> None:
    """Given 1,040 tasks of thirteen worlds, then no trick succeeds, nor is any part of what it does worth something."""
    names: Counter[str] = Counter()
    for task in draw_tasks(world, 80, random.Random(world)):
        for name, calls, answer in every_trick(task):
            names[name] += 1
            verdict = attempt(task, calls, answer)
            is_luck = name == ALWAYS_REFUSE and task.success.refusal is not None
            assert verdict.reward == 0 or is_luck, (name, verdict, task.messages[-1].content)
            assert verdict.success == (verdict.reward > 0)
    assert set(names) == NAMES


def test_what_the_tricks_do_is_worth_something_where_it_is_right() -> None:
    """Given what answer_everything looks up, and the expert's answer to it, then there is a reward: the calls are not at fault."""
    task = task_of("order_status", 1)
    (calls,) = [calls for name, calls, _ in every_trick(task) if name == "answer_everything"]
    assert attempt(task, calls, task.plan.answer).reward > 0.5


@pytest.mark.parametrize("intent", ["order_status", "price_of_two", "close_order"])
def test_a_conversation_that_has_begun_gives_no_trick_a_chance(intent: str) -> None:
    """Given an opening in which what is to be looked at was shown, then repeating its last call, or anything else, is worth nothing."""
    task = task_of(intent, 1)
    shown = execute(make_world(task.world, task.world_seed), task.messages, task.plan.calls[:1], "").messages[:-1]
    begun = task.model_copy(update={"messages": (*shown, Message(role="user", content="so?"))})
    assert {name for name, _, _ in tried(begun)} >= ({"repeat_last_call"} if task.success.changes else {"repeat_last_call", *NAMES})
    assert [attempt(begun, calls, answer).reward for _, calls, answer in every_trick(begun)] == [0.0] * 8


def test_lookups_are_what_the_request_lets_one_look_up() -> None:
    """An order that is named is looked up, and all that is found is said."""
    task = task_of("order_status", 1)
    (everything,) = [one for one in tried(task) if one[0] == "answer_everything"]
    _, calls, answer = everything
    assert task.plan.calls[0] in calls and len(calls) <= MOST_CALLS
    assert task.success.facts[0].value in answer
    assert [name for name, holds in attempt(task, calls, answer).checks.items() if not holds] == ["to_the_point"]


@pytest.mark.parametrize(
    "asked", ["What became of {}.", "请问{}的状态？", "订单:{}，谢谢", "状态{}３"], ids=["a full stop", "unspaced", "a colon", "wide"]
)
def test_a_word_is_looked_up_whatever_stands_around_it(asked: str) -> None:
    task = task_of("order_status", 1)
    (call,) = task.plan.calls
    said = Message(role="user", content=asked.format(call.arguments["order"]))
    (calls,) = [calls for name, calls, _ in tried(task.model_copy(update={"messages": (said,)})) if name == "answer_everything"]
    assert (call in calls) == ("３" not in asked), "a longer number is another order's"


def test_an_answer_may_say_more_than_was_asked_but_not_everything() -> None:
    task = task_of("order_status", 1)
    done = execute(make_world(task.world, task.world_seed), task.messages, task.plan.calls, "")
    (seen,) = [message.content or "" for message in done.messages if message.role == "tool"]
    values = [str(value) for _, value in leaves(parse_arguments(seen))]
    assert len(values) > 5
    assert not attempt(task, task.plan.calls, "; ".join(values)).checks["to_the_point"]
    assert attempt(task, task.plan.calls, f"{task.plan.answer} {'; '.join(values[:3])}").checks["to_the_point"]


def test_a_refusal_is_no_answer_to_what_can_be_done() -> None:
    task = task_of("order_status", 1)
    answer = f"{task.plan.answer} {REFUSALS[RefusalReason.MISSING_TOOL]['en']}"
    assert [name for name, holds in attempt(task, task.plan.calls, answer).checks.items() if not holds] == ["refusal"]
    polite = f"{task.plan.answer} Please tell me if you need more."
    assert attempt(task, task.plan.calls, polite).success


def test_a_task_that_a_trick_passes_is_not_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("close_order", 1)
    check_admission(task, make_world(task.world, task.world_seed))
    monkeypatch.setattr(solver, "tricks", lambda *_: [("luck", task.plan.calls, task.plan.answer)])
    with pytest.raises(NotAdmitted, match="reward_hack: luck"):
        check_admission(task, make_world(task.world, task.world_seed))


def test_a_task_that_a_trick_does_in_part_is_not_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("price_of_two", 1)
    half = ("luck", task.plan.calls, f"It is {task.success.facts[0].value}.")
    assert not attempt(task, *half[1:]).success
    monkeypatch.setattr(solver, "tricks", lambda *_: [half])
    with pytest.raises(NotAdmitted, match="reward_hack: luck"):
        check_admission(task, make_world(task.world, task.world_seed))
