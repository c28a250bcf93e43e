"""What a policy is worth that knows nothing of its task: nothing, on every task that is admitted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from storage.records import Call, Message, RefusalReason, Task, leaves, parse_arguments
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


@pytest.mark.parametrize("world", ["retail", "city", "library", "banking", "gen-1"])
def test_no_trick_passes_a_task_that_was_admitted(world: str) -> None:
    names: Counter[str] = Counter()
    for task in draw_tasks(world, 60, random.Random(world)):
        for name, calls, answer in tried(task):
            names[name] += 1
            passes = attempt(task, calls, answer).success
            assert not passes or (name == ALWAYS_REFUSE and task.success.refusal is not None), (name, task.messages[-1].content)
    assert set(names) == NAMES


@pytest.mark.parametrize("world", ["retail", "library"])
def test_a_trick_that_is_left_out_has_no_chance(world: str) -> None:
    for task in draw_tasks(world, 60, random.Random(world)):
        asked = task.messages[-1].content or ""
        if task.success.changes or task.success.evidence:
            for answer in ("Done.", asked, *(texts[task.language] for texts in REFUSALS.values())):
                assert not attempt(task, (), answer).success


def test_lookups_are_what_the_request_lets_one_look_up() -> None:
    """An order that is named is looked up, and all that is found is said."""
    task = task_of("order_status", 1)
    (everything,) = [one for one in tried(task) if one[0] == "answer_everything"]
    _, calls, answer = everything
    assert task.plan.calls[0] in calls and len(calls) <= MOST_CALLS
    assert task.success.facts[0].value in answer
    assert [name for name, holds in attempt(task, calls, answer).checks.items() if not holds] == ["to_the_point"]


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
