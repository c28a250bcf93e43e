"""Our worlds behind GEM's interface, as ROLL's `ToolCallRunner` calls it; ROLL itself is in `test_proxy_env_manager.py`."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage.errors import BadInput
from storage.records import Task
from storage.releases.export import export
from synth.rollouts.episode import Episode
from synth.tasks.solver import expert_messages
from synth.worlds import WORLDS
from train.backends.roll import gem_environment
from train.backends.roll.failed_groups import FailedGroups
from train.backends.roll.gem_environment import HeadraceEnvironment


@pytest.fixture(scope="module")
def rows(released, tmp_path_factory) -> Path:
    store, release = released
    return export(store, release, tmp_path_factory.mktemp("rows") / "roll", "roll") / "rl.prompts.jsonl"


def task_at(rows: Path, seed: int) -> Task:
    lines = rows.read_text().splitlines()
    return Task.model_validate_json(json.loads(lines[seed % len(lines)])["ground_truth"])


def answers(task: Task) -> list[dict[str, Any]]:
    messages = expert_messages(WORLDS[task.world], task)[len(task.messages) :]
    return [message.to_openai() for message in messages if message.role == "assistant"]


def test_an_expert_has_reward_1_on_every_row_and_each_seed_is_the_next_row(rows):
    environment = HeadraceEnvironment(rows=str(rows))
    count = len(rows.read_text().splitlines())
    for seed in range(count):
        task, rewards, over = task_at(rows, seed), [], False
        opening, info = environment.reset(seed)
        assert info["task_id"] == task.id
        assert [tool["function"]["name"] for tool in info["tools"]] == list(task.tools)
        assert opening == [message.to_openai() for message in task.messages]
        for answer in answers(task):
            assert not over
            _, reward, over, truncated, _ = environment.step(answer)
            assert not truncated
            rewards.append(reward)
        assert over
        assert sum(rewards) == 1.0
    assert environment.reset(count)[1] == environment.reset(0)[1], "seeds go round"


def test_members_of_a_group_have_the_same_row_and_worlds_of_their_own(rows):
    first, second = HeadraceEnvironment(rows=str(rows)), HeadraceEnvironment(rows=str(rows))
    assert first.reset(7) == second.reset(7)
    for answer in answers(task_at(rows, 7)):
        over = first.step(answer)[2]
    assert over
    assert not second.is_over


def test_the_whole_conversation_comes_back_with_the_policys_messages_as_they_came(rows):
    environment = HeadraceEnvironment(rows=str(rows))
    opening, _ = environment.reset(0)
    call = {"id": "call_ab12", "type": "function", "function": {"name": "list_orders", "arguments": '{"user_id": "U-1"}'}}
    message = {"role": "assistant", "content": "<think>which?</think>Let me see.", "tool_calls": [call]}
    messages, reward, over, _, info = environment.step(message)
    assert messages[:-1] == [*opening, message]
    assert messages[-1]["role"] == "tool"
    assert (reward, over, info["metrics"]) == (0.0, False, {"success": 0.0, "world_failed": 0.0})
    messages, *_ = environment.step("That is all.")
    assert messages[-1] == {"role": "assistant", "content": "That is all."}


def test_a_broken_world_has_no_reward_but_a_reason_until_the_next_reset(rows, monkeypatch):
    def broken(*_: Any) -> None:
        raise OSError("the disk is gone")

    environment = HeadraceEnvironment(rows=str(rows))
    environment.reset(0)
    with monkeypatch.context() as patched:
        patched.setattr(Episode, "_call", broken)
        _, reward, over, _, info = environment.step(answers(task_at(rows, 0))[0])
    assert (reward, over, info["metrics"]) == (0.0, True, {"success": 0.0, "world_failed": 1.0})
    assert "the disk is gone" in environment.failure == info["failure"]
    assert environment.figures["outcome"] == "infra_failure"
    environment.reset(0)
    assert environment.failure == ""


def test_an_answer_cut_short_and_a_conversation_that_does_not_fit_are_the_policys_failures(rows):
    environment = HeadraceEnvironment(rows=str(rows))
    environment.reset(0)
    environment.cut_short = True
    assert environment.step("Half an ans")[1:3] == (0.0, True)
    environment.reset(0)
    assert not environment.cut_short
    assert environment.end() == 0.0
    assert environment.is_over
    assert environment.failure == ""
    assert environment.figures["outcome"] == "policy_failure"


def test_a_slow_world_holds_up_its_own_thread_alone(rows, monkeypatch):
    """Given a world whose call waits, another environment plays to its end meanwhile."""
    entered, released, call = threading.Event(), threading.Event(), Episode._call

    def slow(self: Episode, message: Any) -> Any:
        if threading.current_thread().name == "slow":
            entered.set()
            assert released.wait(60)
        return call(self, message)

    monkeypatch.setattr(Episode, "_call", slow)

    def play(environment: HeadraceEnvironment) -> float:
        environment.reset(0)
        return [environment.step(answer)[1] for answer in answers(task_at(rows, 0))][-1]

    waiting, rewards = HeadraceEnvironment(rows=str(rows)), list[float]()
    thread = threading.Thread(target=lambda: rewards.append(play(waiting)), name="slow")
    thread.start()
    assert entered.wait(60)
    assert play(HeadraceEnvironment(rows=str(rows))) == 1.0
    assert not rewards
    released.set()
    thread.join(60)
    assert rewards == [1.0]


def test_a_store_is_read_once_a_process(rows, released, monkeypatch):
    read: list[Path] = []
    monkeypatch.setattr(gem_environment, "register_stored", lambda store: read.append(store.root))
    monkeypatch.setattr(gem_environment, "_registered", set())
    for _ in range(3):
        HeadraceEnvironment(rows=str(rows), store=str(released[0].root), tool_call_parser="qwen25", trajectory_mode="traj")
    assert read == [released[0].root]


def test_rows_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(BadInput, match="every node must see the rendered folder"):
        HeadraceEnvironment(rows=str(tmp_path / "gone.jsonl"))
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(BadInput, match="has no rows"):
        HeadraceEnvironment(rows=str(tmp_path / "empty.jsonl"))


def test_a_group_with_a_failed_rollout_is_refused_and_no_other():
    good, failed = (SimpleNamespace(non_tensor_batch={"failure": [text]}) for text in ("", "world retail: OSError"))
    groups = FailedGroups("config", "workers", "train")
    assert groups.filter(group_id=0, episode_id=0, group=[good, failed])
    assert not groups.filter(group_id=0, episode_id=0, group=[good, None, good])
