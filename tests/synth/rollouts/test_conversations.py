"""Rollouts of tasks in which the user goes on: each answer is judged, and the user speaks again only where it passed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage.records import Message, Outcome, Rollout, Task
from synth.conversations.conversation_play import blueprint_of
from synth.engines.base import ChatAnswer, ChatRequest
from synth.rollouts.draws import rollout
from synth.text.refusals import REFUSALS
from tests.synth.conversations.conversations import play, tasks

TASKS = [task for task in tasks("retail", 40) if len(blueprint_of(task).turns) > 1][:8]


class Replaying:
    """Says what the scripted assistant said; from message `wrong_at` of a conversation on, something else.

    heard: the messages of each request.
    """

    name = "replaying"

    def __init__(self, known: Sequence[Task], wrong: Message | None = None, wrong_turn: int = 99) -> None:
        self._said = {task.messages: play(task)[0] for task in known}
        self._wrong, self._wrong_turn = wrong, wrong_turn
        self.heard: list[tuple[Message, ...]] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.heard += [request.messages for request in requests]
        return [ChatAnswer(self._next(request.messages), "stop") for request in requests]

    def _next(self, messages: tuple[Message, ...]) -> Message:
        said = next(said for opening, said in self._said.items() if messages[: len(opening)] == opening)
        turn = sum(message.role == "user" for message in messages) - 1
        return self._wrong if self._wrong is not None and turn >= self._wrong_turn else said[len(messages)]


def roll(task: Task, engine: Replaying, **options: object) -> Rollout:
    (made,) = rollout(engine, [task], 1, policy_id="p", seed=0, **options)
    return made


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id[-4:])
def test_the_expert_goes_through_all_turns_to_a_success(task: Task) -> None:
    made = roll(task, Replaying([task]))
    assert made.outcome is Outcome.SUCCESS and made.messages == play(task)[0]
    assert made.reward is not None and made.reward > 0 and all(made.checks.values())
    assert {name.partition(".")[0] for name in made.checks} == {f"turn_{n}" for n in range(len(blueprint_of(task).turns))}


def test_after_a_turn_that_failed_the_user_says_no_more() -> None:
    task = next(task for task in TASKS if blueprint_of(task).turns[0].settles == (0,) and not blueprint_of(task).goals[0].refusal)
    engine = Replaying([task], Message(role="assistant", content=REFUSALS["missing_tool"]["en"]), wrong_turn=0)
    made = roll(task, engine)
    assert made.outcome is Outcome.POLICY_FAILURE and made.reward == 0
    assert sum(message.role == "user" for message in made.messages) == 1 and len(engine.heard) == 1


def test_the_limit_of_turns_is_that_of_one_request() -> None:
    """Given a conversation with more answers than a rollout may have in a turn, then it is played to its end; calls without end are not."""
    task = max(TASKS, key=lambda task: len(play(task)[0]))
    answers = sum(message.role == "assistant" for message in play(task)[0])
    per_turn = max(sum(len(turn.steps) for turn in [turn]) + 2 for turn in blueprint_of(task).turns)
    assert answers > per_turn
    assert roll(task, Replaying([task]), max_turns=per_turn).outcome is Outcome.SUCCESS
    call = next(message for message in play(task)[0] if message.tool_calls)
    endless = roll(task, Replaying([task], call, wrong_turn=0), max_turns=5)
    assert endless.outcome is Outcome.POLICY_FAILURE and endless.checks == {"ended_in_time": False} and len(endless.turns) == 5


def test_a_judge_that_breaks_is_not_held_against_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("judge")

    engine = Replaying(TASKS[:1])
    monkeypatch.setattr("synth.conversations.conversation_judge.judge", breaks)
    settles = [turn.t for turn in blueprint_of(TASKS[0]).turns if turn.settles]
    made = roll(TASKS[0], engine)
    assert settles and made.outcome is Outcome.JUDGE_FAILURE and made.reward is None and "judge" in made.failure
