"""The scripted engine of the tests: follows plans, fails at a given rate, and refuses unknown conversations."""

import pytest

from storage.records import Frame, Message, Outcome, Task
from synth.engines.base import ChatRequest, Engine, EngineFailure
from synth.rollouts.draws import rollout
from synth.tasks.solver import admit_any
from synth.worlds import WORLDS
from tests.synth.scripted_engine import ScriptedEngine


@pytest.fixture(scope="module")
def task() -> Task:
    frame = Frame(world="retail", intent="buy_pick", slots={"user": "u07", "category": "lamp", "pick": "cheapest"})
    return admit_any(WORLDS[frame.world], frame, text="buy the cheapest lamp for u07", language="en", seeds=range(20), division="seed")


def test_it_is_an_engine_and_its_plans_succeed(task: Task) -> None:
    engine = ScriptedEngine([task])

    assert isinstance(engine, Engine)
    assert [draw.outcome for draw in rollout(engine, [task], 4)] == [Outcome.SUCCESS] * 4


def test_without_skill_every_sampled_conversation_fails_and_a_greedy_one_does_not(task: Task) -> None:
    engine = ScriptedEngine([task], skill=0.0)

    assert {draw.outcome for draw in rollout(engine, [task], 12)} == {Outcome.POLICY_FAILURE}
    assert rollout(engine, [task], 1, temperature=0.0)[0].outcome is Outcome.SUCCESS


def test_skill_is_the_share_of_successes_and_draws_repeat(task: Task) -> None:
    engine = ScriptedEngine([task], skill=0.5)
    first, second = rollout(engine, [task], 60, seed=3), rollout(engine, [task], 60, seed=3)

    rate = sum(draw.outcome is Outcome.SUCCESS for draw in first) / 60
    assert 0.3 < rate < 0.7
    assert [draw.outcome for draw in first] == [draw.outcome for draw in second]


def test_an_unknown_conversation_is_the_engines_failure(task: Task) -> None:
    with pytest.raises(EngineFailure, match="knows no task"):
        ScriptedEngine([task]).chat([ChatRequest((Message(role="user", content="hello"),))])


def test_tasks_that_open_alike_but_go_on_differently_are_refused(task: Task) -> None:
    ScriptedEngine([task, task.model_copy(update={"id": "same"})])
    other = task.model_copy(update={"id": "other", "plan": task.plan.model_copy(update={"answer": "No."})})
    with pytest.raises(ValueError, match=f"tasks {task.id} and other open with the same words"):
        ScriptedEngine([task, other])
