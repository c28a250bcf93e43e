"""A conversation taken up again: the replay gives what was recorded, what follows is real, and the judge is the task's."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from storage.errors import BadInput
from storage.records import CODE_TOOL, Message, Task
from synth.conversations.conversation_play import blueprint_of
from synth.rollouts.conversation_fork import ConversationFork
from synth.tasks.solver import execute
from synth.worlds import WORLDS, make_world
from tests.synth.conversations.conversations import accepted, play, tasks
from tests.synth.retail_tasks import task_of


def expert(task: Task) -> Sequence[Message]:
    return execute(make_world(task.world, task.world_seed), task.messages, task.plan.calls, task.plan.answer).messages


def forked(task: Task, recorded: Sequence[Message], turn: int) -> ConversationFork:
    return ConversationFork(WORLDS[task.world], task, recorded, turn, lambda: None)


def test_a_replay_to_the_end_passes_as_the_expert_did() -> None:
    task = task_of("close_order", 0)
    fork = forked(task, expert(task), 99)

    assert fork.replayed and all(one.is_equal for one in fork.replayed)
    assert fork.changes() == task.success.changes == fork.expected_changes()
    assert fork.is_over and all(fork.checks().values())


def test_from_an_earlier_turn_the_same_calls_by_hand_lead_to_the_same_end() -> None:
    task = task_of("close_order", 0)
    fork = forked(task, expert(task), 1)
    rest = task.plan.calls[len(fork.replayed) :]

    assert fork.changes() == {} and not fork.is_over and rest
    for call in rest:
        assert "error" not in fork.call(call.tool, json.dumps(call.arguments))
    assert fork.checks()["end_state"]
    assert fork.answer(task.plan.answer) is None
    assert fork.is_over and all(fork.checks().values())


def test_other_calls_by_hand_fail_the_end_state() -> None:
    task = task_of("close_order", 0)
    fork = forked(task, expert(task), 0)

    assert fork.replayed == [] and [message.role for message in fork.messages] == [message.role for message in task.messages]
    assert '"error"' in fork.call("get_order", '{"order": "o9999"}')
    assert not fork.checks()["end_state"]


def test_the_first_result_that_differs_from_the_record_shows() -> None:
    task = task_of("order_price", 0)
    spoilt = [message.model_copy(update={"content": "{}"}) if message.role == "tool" else message for message in expert(task)]

    (one, *_) = forked(task, spoilt, 99).replayed

    assert (one.is_equal, one.recorded) == (False, "{}")
    assert "price" in one.result


def test_in_a_planned_conversation_the_user_goes_on_after_an_answer_that_passes() -> None:
    task = next(one for one in tasks("retail") if len(blueprint_of(one).turns) > 1)
    recorded, _ = play(task)
    first = next(at for at, message in enumerate(recorded) if message.role == "assistant" and not message.tool_calls)
    done = sum(message.role == "assistant" for message in recorded[:first])
    said = recorded[first].content or ""

    fork = forked(task, recorded, done)

    assert fork.checks()["state"]
    assert fork.answer(said) == blueprint_of(task).turns[1].text
    assert fork.messages == list(recorded[: first + 2])
    assert not fork.is_over


def test_a_conversation_of_a_blueprint_is_replayed_with_its_planned_faults() -> None:
    blueprint, simulated = next(pair for pair in accepted("retail") if any(one.kind == "error" for one in pair[0].perturbations))

    fork = ConversationFork(WORLDS["retail"], blueprint, simulated.trajectory.messages, 99, lambda: None)

    assert any('"error"' in one.result for one in fork.replayed)
    assert all(one.is_equal for one in fork.replayed)
    assert all(fork.checks().values())


def test_programs_are_not_run() -> None:
    task = task_of("order_price", 0)
    fork = forked(task, expert(task), 0)
    with pytest.raises(BadInput, match="none is run here"):
        fork.call(CODE_TOOL, '{"code": "1"}')

    by_program = [
        message.model_copy(
            update={
                "tool_calls": tuple(
                    one.model_copy(update={"function": one.function.model_copy(update={"name": CODE_TOOL})}) for one in message.tool_calls
                )
            }
        )
        for message in expert(task)
    ]
    replayed = forked(task, by_program, 99).replayed
    assert replayed and all(one.is_equal and not one.is_rerun for one in replayed)


def test_time_is_checked_before_every_call() -> None:
    task = task_of("close_order", 0)
    checked = list[int]()
    fork = ConversationFork(WORLDS[task.world], task, expert(task), 99, lambda: checked.append(1))
    assert len(checked) == len(fork.replayed) > 0
