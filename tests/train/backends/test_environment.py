"""The interface that other trainers fill: rows of an export go in, and a played conversation comes out with its reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.errors import BadInput, HeadraceError
from storage.records import Task
from storage.releases.export import export
from synth.conversations.conversation_play import blueprint_of
from synth.rollouts.episode import Episode
from synth.tasks.solver import expert_messages
from synth.worlds import WORLDS
from tests.synth.conversations.conversations import play, tasks
from train.backends.environment import Step, WorldEnvironment, task_of

FORMATS = ("trl", "verl", "roll")


@pytest.fixture(scope="module")
def rows(released, tmp_path_factory) -> dict[str, list[dict[str, Any]]]:
    """The prompts of split `rl`, as each trainer's own loader would hand them over."""
    store, release = released
    folder = tmp_path_factory.mktemp("rows")
    for name in FORMATS:
        export(store, release, folder / name, name)
    return {name: pl.read_parquet(folder / name / "rl.prompts.parquet").to_dicts() for name in FORMATS}


def play_expert(environment: WorldEnvironment, row: dict[str, Any]) -> Step:
    """Plays the expert's messages; the tools must answer as they did the expert."""
    task, _ = task_of(row)
    messages, _ = environment.reset(row)
    following = [message.to_openai() for message in expert_messages(WORLDS[task.world], task)[len(messages) :]]
    step = Step([], None, False)
    while following:
        assert not step.done
        step = environment.step(following.pop(0))
        assert step.messages == following[: len(step.messages)]
        del following[: len(step.messages)]
    return step


@pytest.mark.parametrize("name", FORMATS)
def test_an_expert_who_plays_through_it_has_reward_1_on_every_task(rows, name):
    environment = WorldEnvironment()
    for row in rows[name]:
        assert play_expert(environment, row) == Step([], 1.0, True)


def test_a_user_who_goes_on_speaks_after_each_answer_that_passes():
    """Given a task with several user turns, when the expert plays it, then each of its answers is followed by what the user says next, and
    the last by the reward; an answer that fails ends it without one."""
    task = next(task for task in tasks("retail") if len(blueprint_of(task).turns) == 2 and blueprint_of(task).turns[0].settles)
    row = {"task": task.model_dump_json(), "tools": "[]"}
    environment = WorldEnvironment()
    opening, _ = environment.reset(row)
    following = [message.to_openai() for message in play(task)[0]]
    assert following[: len(opening)] == opening
    del following[: len(opening)]
    said, step = [], Step([], None, False)
    while following:
        step = environment.step(following.pop(0))
        assert step.messages == following[: len(step.messages)]
        said += [message["content"] for message in step.messages if message["role"] == "user"]
        del following[: len(step.messages)]
    assert step == Step([], 1.0, True) and said == [blueprint_of(task).turns[1].text]
    environment.reset(row)
    assert environment.step({"role": "assistant", "content": ""}) == Step([], 0.0, True)


@pytest.mark.parametrize("reward", ["success", "graded"])
def test_doing_nothing_has_reward_0_on_every_task(rows, reward):
    environment = WorldEnvironment(reward=reward)
    for row in rows["verl"]:
        environment.reset(row)
        assert environment.step({"role": "assistant", "content": ""}) == Step([], 0.0, True)


def test_it_opens_with_the_rows_own_prompt_and_tools(rows):
    for trl, verl, roll in zip(*(rows[name] for name in FORMATS), strict=True):
        opened = [WorldEnvironment().reset(row) for row in (trl, verl, roll)]
        assert opened[0] == opened[1] == opened[2]
        messages, tools = opened[0]
        assert messages == json.loads(roll["messages"])
        assert [tool["function"]["name"] for tool in tools] == list(Task.model_validate_json(trl["task"]).tools)
        assert "x-grounded" not in json.dumps(tools)


def test_several_scores_are_weighted_and_collapsed_as_in_our_own_trainer(rows):
    """A refusal to act grounds nothing wrongly and succeeds at nothing."""
    row, scores = rows["verl"][0], {}
    for collapse in ("mean", "least"):
        environment = WorldEnvironment(reward={"success": 3.0, "grounded": 1.0}, collapse=collapse)
        assert play_expert(environment, row).reward == 1.0
        environment.reset(row)
        scores[collapse] = environment.step("I would rather not.").reward
    assert scores == {"mean": 0.25, "least": 0.0}


def test_each_reset_begins_in_a_fresh_world(rows):
    environment = WorldEnvironment()
    changing = next(row for row in rows["verl"] if json.loads(row["extra_info"]["task"])["success"]["changes"])
    rewards = [play_expert(environment, changing).reward for _ in range(2)]
    assert rewards == [1.0, 1.0], "in the world as the first one left it, the tools would answer the second one otherwise"


def test_a_servers_extra_fields_and_arguments_as_an_object_are_taken(rows):
    row = rows["verl"][0]
    call = {"id": "c1", "type": "function", "index": 0, "function": {"name": "list_orders", "arguments": {"user_id": "U-1"}}}
    environment = WorldEnvironment()
    environment.reset(row)
    step = environment.step({"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]})
    assert not step.done
    assert step.reward is None
    assert [message["role"] for message in step.messages] == ["tool"]
    assert step.messages[0]["tool_call_id"] == "c1"


def test_bare_text_is_an_answer_without_calls(rows):
    environment = WorldEnvironment()
    environment.reset(rows["roll"][0])
    assert environment.step("I do not know.").done


def test_an_answer_cut_short_and_a_turn_too_many_end_it_with_0(rows):
    calling = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "list_orders", "arguments": "{}"}}]}
    environment = WorldEnvironment(max_turns=2)
    environment.reset(rows["verl"][0])
    assert environment.step("Half an ans", cut_short=True) == Step([], 0.0, True)
    environment.reset(rows["verl"][0])
    assert not environment.step(calling).done
    assert environment.step(calling) == Step([], 0.0, True)


def test_a_conversation_that_does_not_fit_the_window_any_more_is_closed_with_0(rows):
    environment = WorldEnvironment()
    assert environment.figures == {}
    environment.reset(rows["verl"][0])
    environment.step({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "list_orders", "arguments": "{}"}}]})
    assert (environment.figures["outcome"], environment.figures["success"]) == (None, None)
    assert environment.close() == Step([], 0.0, True)
    task, _ = task_of(rows["verl"][0])
    assert environment.figures == {
        **{"task_id": task.id, "world": task.world, "outcome": "policy_failure", "success": False},
        **{"turns": 1, "calls": 1, "failure": ""},
    }
    with pytest.raises(HeadraceError, match="call reset"):
        environment.close()


def test_what_the_policy_did_not_spoil_has_no_reward(rows, monkeypatch):
    """A world that breaks is nobody's merit: None, never 0."""

    def broken(*_: Any) -> None:
        raise OSError("the disk is gone")

    environment = WorldEnvironment()
    environment.reset(rows["verl"][0])
    monkeypatch.setattr(Episode, "_call", broken)
    step = environment.step({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "list_orders", "arguments": "{}"}}]})
    assert step.done
    assert step.reward is None
    assert "the disk is gone" in step.failure
    assert (environment.figures["outcome"], environment.figures["success"]) == ("infra_failure", None)


def test_nothing_goes_on_before_a_reset_or_after_the_end(rows):
    environment = WorldEnvironment()
    with pytest.raises(HeadraceError, match="call reset"):
        environment.step("hello")
    environment.reset(rows["verl"][0])
    environment.step("bye")
    with pytest.raises(HeadraceError, match="call reset"):
        environment.step("hello again")


@pytest.mark.parametrize("message", [{"role": "user", "content": "hi"}, {"tool_calls": [{"id": "c1"}]}, {"content": ["a list"]}])
def test_what_is_no_assistants_message_is_refused(rows, message):
    environment = WorldEnvironment()
    environment.reset(rows["verl"][0])
    with pytest.raises(BadInput, match=r"message"):
        environment.step(message)


def test_a_row_without_a_task_and_a_world_that_is_not_here_are_refused(rows):
    with pytest.raises(BadInput, match=r"columns answer, prompt carries no task"):
        WorldEnvironment().reset({"prompt": "2 + 2", "answer": "4"})
    with pytest.raises(BadInput, match=r"columns extra_info carries no task"):
        WorldEnvironment().reset({"extra_info": "a text"})
    row = rows["trl"][0]
    gone = Task.model_validate_json(row["task"]).model_copy(update={"world": "bakery@1"})
    with pytest.raises(BadInput, match=r"world bakery@1"):
        WorldEnvironment().reset(row | {"task": gone.model_dump_json()})


def test_a_users_own_world_is_known_once_its_store_is_named(released, rows, monkeypatch):
    """The store is read when the environment is made, whatever worlds it holds."""
    store, _ = released
    assert play_expert(WorldEnvironment(store=Path(store.root)), rows["verl"][0]).reward == 1.0
