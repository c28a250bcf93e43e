"""Policies that know nothing of a task: what they solve is counted, and on admitted tasks they solve nothing."""

from __future__ import annotations

from collections import Counter

from benchmarks.tags_sections.trivial import Tally, draw, scores
from storage.records import RefusalReason, Success, Task
from synth.tasks.exploits import ALWAYS_REFUSE
from tests.synth.retail_tasks import task_of


def tallied(*tasks: Task) -> Tally:
    tally = Tally()
    for task in tasks:
        tally.add(task)
    return tally


def test_a_task_that_is_solved_by_doing_nothing_is_counted() -> None:
    """Given a task that wants nothing changed, told or refused, as no admission would let pass."""
    honest = task_of("order_status", 1)
    idle = honest.model_copy(update={"id": "task-idle", "success": Success()})
    found = tallied(honest, idle)
    assert (found.tasks, found.solved) == (2, 1)
    ((task_id, names),) = found.passed
    assert task_id == "task-idle" and "no_op" in names


def test_a_task_whose_answer_is_in_its_request_is_counted() -> None:
    task = task_of("order_status", 1)
    (fact,) = task.success.facts
    told = task.messages[-1].model_copy(update={"content": f"{task.messages[-1].content}, is it {fact.value}?"})
    leaking = task.model_copy(update={"messages": (*task.messages[:-1], told), "success": task.success.model_copy(update={"evidence": ()})})
    assert "copy_the_prompt" in tallied(leaking).passed[0][1]


def test_refusing_a_refusal_task_for_its_reason_counts_apart() -> None:
    task = task_of("special_service", 1)
    found = tallied(task, task_of("impossible_wish", 1))
    assert found.solved == 0
    assert found.refused == {RefusalReason.MISSING_TOOL: 1, RefusalReason.NOT_ACTIONABLE: 1}
    assert found.refuse_rate == 0.5


def test_admitted_tasks_are_worth_nothing_to_any_trick_whatever_was_done_before() -> None:
    """Some are asked for after another request, whose last call can then be repeated."""
    refused: Counter[str] = Counter()
    found = tallied(*draw("retail", 60, refused))
    assert found.tasks > 50 and 5 < found.refusals < found.tasks
    assert found.solved == 0
    assert found.played["no_op"] == found.tasks > found.played["repeat_last_call"] > 3
    assert 0 < found.refuse_rate < 0.7


def test_tricks_that_admission_leaves_out_as_hopeless_are_played_too() -> None:
    task = task_of("close_order", 1)
    assert task.success.changes
    played = {name: score for name, _, score in scores(task)}
    assert {"no_op", "copy_the_prompt", "answer_everything", ALWAYS_REFUSE} <= set(played)
    assert set(played.values()) == {0.0}
