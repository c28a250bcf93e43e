"""Reinforcement learning: fresh tasks at every step, nothing computed for rows that teach nothing, nothing learned from our own faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

import train.batches
import train.rl
from storage.errors import HeadraceError
from storage.records import Outcome, Task
from storage.release import ReleasedItem, ReleaseItem, Setting
from synth.episodes import Episode
from tests.train.tiny_policies import copy_of, digest, expert_conversations, retail_tasks, small_policy
from train.fresh import FreshTasks
from train.rewards import Scorer, of_episodes
from train.rl import IdleRowsDropped, train_rl
from train.sft import train_sft
from train.spec import RLSettings, SFTSettings, StageSpec

TASKS = retail_tasks("special_service", "impossible_wish", "buy_unnamed", "order_status", each=2)
SETTINGS = RLSettings(max_steps=3, tasks_a_step=4, draws=4, learning_rate=1e-3, warmup_steps=0, max_tokens=24)
SCRIPT = [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, None, 0, None], [None, None, None, None], [0, 0, 0, 1]]
"""Rewards of a step's draws, a row a task: mixed, all good, all bad, partly spoilt, wholly spoilt, mixed."""
TOLERANCE = 1e-6
"""Of a gradient, relative to its largest entry: equal sums in another order, in fp32."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> tuple[Any, Any]:
    """Trained just enough that some of its samples succeed and others fail."""
    conversations = expert_conversations(TASKS)
    model, tokenizer = small_policy(conversations)
    half = SFTSettings(max_steps=26, batch_size=8, learning_rate=1e-2, warmup_steps=2)
    train_sft(model, tokenizer, conversations, half, seed=0, scratch=tmp_path_factory.mktemp("sft"))
    return model, tokenizer


class Source:
    """Fresh siblings of the tasks, as a stage draws them, and what was drawn."""

    def __init__(self, tmp_path: Path, seed: int) -> None:
        items = [
            ReleasedItem(ReleaseItem("task", task.id, task.id), Setting(task.world, task.language, task.tools), task, None)
            for task in TASKS
        ]
        spec = StageSpec(
            name="rl",
            algorithm="rl",
            store=tmp_path,
            release_id="r",
            split="rl",
            model_out=tmp_path / "model",
            seed=seed,
            rl=SETTINGS,
        )
        self._fresh, self.drawn = FreshTasks(items, spec, SETTINGS), dict[int, list[Task]]()

    def __call__(self, step: int) -> Sequence[Task]:
        tasks = self._fresh(step)
        assert self.drawn.setdefault(step, tasks) == tasks
        return tasks


def trained(policy: tuple[Any, Any], tmp_path: Path, *, seed: int, tasks_seed: int = 1) -> tuple[str, list[dict[str, float]], Source]:
    """Weights, metrics and tasks of a short run from the same policy."""
    model, source = copy_of(policy[0]), Source(tmp_path, tasks_seed)
    metrics = train_rl(model, policy[1], source, SETTINGS, seed=seed, scratch=tmp_path)
    return digest(model), metrics, source


@pytest.fixture(scope="module")
def run(policy, tmp_path_factory):
    return trained(policy, tmp_path_factory.mktemp("rl"), seed=1)


# ---- a run ---------------------------------------------------------------------------------------------------------------


def test_every_step_has_fresh_tasks_and_no_task_comes_twice(run):
    _, metrics, source = run
    assert [row["step"] for row in metrics] == [1, 2, 3]
    drawn = [task.id for step in range(SETTINGS.max_steps) for task in source.drawn[step]]
    assert len(set(drawn)) == len(drawn) == SETTINGS.max_steps * SETTINGS.tasks_a_step
    assert set(drawn).isdisjoint(task.id for task in TASKS)
    assert {task.use for tasks in source.drawn.values() for task in tasks} == {"train"}


def test_some_draws_succeed_and_some_fail_so_that_there_is_something_to_learn(run, policy):
    weights, metrics, _ = run
    assert any(0 < row["reward"] < 1 and row["idle_share"] < 1 for row in metrics)
    assert weights != digest(policy[0])


def test_equal_seeds_give_equal_weights_and_another_seed_others(run, policy, tmp_path):
    weights, metrics, _ = run
    again = trained(policy, tmp_path, seed=1)
    assert (again[0], again[1]) == (weights, metrics)
    other = trained(policy, tmp_path, seed=2)
    assert other[2].drawn == run[2].drawn
    assert other[0] != weights
    entropies = [[row["entropy"] for row in rows] for rows in (metrics, other[1])]
    assert entropies[0] != pytest.approx(entropies[1], rel=1e-4), "other draws of the same tasks, not only another order of the rows"
    assert trained(policy, tmp_path, seed=1, tasks_seed=2)[0] != weights


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> tuple[Any, Any, list[Task]]:
    """A policy that looks up two prices, and gets one of them right at times; with its tasks."""
    tasks = retail_tasks("price_of_two", each=4)
    conversations = expert_conversations(tasks)
    model, tokenizer = small_policy(conversations)
    half = SFTSettings(max_steps=36, batch_size=8, learning_rate=1e-2, warmup_steps=2)
    train_sft(model, tokenizer, conversations, half, seed=0, scratch=tmp_path_factory.mktemp("reader"))
    return model, tokenizer, tasks


@pytest.mark.parametrize("kind", ["success", "graded"])
def test_a_step_learns_from_the_reward_that_it_is_told_to(kind, reader, tmp_path, monkeypatch):
    """Given a policy that does its tasks in part, then only graded rewards tell these draws from those that brought nothing."""
    model, tasks = copy_of(reader[0]), reader[2]
    seen: list[Episode] = []
    rewards: list[float | None] = []

    def watched(episodes: Sequence[Episode], scorers: Sequence[Scorer]) -> list[float | None]:
        seen.extend(episodes)
        rewards.extend(of_episodes(episodes, scorers))
        return rewards

    monkeypatch.setattr(train.batches, "of_episodes", watched)
    settings = SETTINGS.model_copy(update={"max_steps": 1, "draws": 16, "reward": kind})
    (metrics,) = train_rl(model, reader[1], lambda _: tasks, settings, seed=0, scratch=tmp_path)
    graded, success = [one.reward for one in seen], [float(one.outcome is Outcome.SUCCESS) for one in seen]
    assert any(0 < reward < 1 for reward in graded if reward is not None), graded
    assert rewards == (graded if kind == "graded" else success)
    assert metrics["reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert digest(model) != digest(reader[0])


# ---- one step, with rewards of our choice --------------------------------------------------------------------------------


class Watched(IdleRowsDropped):
    """Keeps what a step was computed from, the gradient of plain GRPO over all rows, and that of the loss under test."""

    seen: dict[str, Any]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        plain = GRPOTrainer._compute_loss(self, model, dict(inputs))
        loss = super()._compute_loss(model, dict(inputs))
        weights = list(model.parameters())
        plain_gradient, gradient = (torch.autograd.grad(value, weights, retain_graph=True) for value in (plain, loss))
        Watched.seen = inputs | {"plain": plain_gradient, "gradient": gradient, "losses": (plain.item(), loss.item())}
        return loss


class ScriptedRollouts:
    """Stands in for the engine: random tokens, prompts and answers of unequal length, a gap of observations, and these rewards.

    TRL shuffles rows: the last token of a prompt is the number of its row.
    """

    rewards: list[list[float | None]]

    tokens: int

    def __init__(self, *_: Any) -> None:
        self._size = self.tokens

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        rng = random.Random(4)
        found: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": []}
        for row, _ in enumerate(prompts):
            length = rng.randint(4, 30)
            found["prompt_ids"].append([rng.randrange(3, self._size) for _ in range(2 + row // SETTINGS.draws)] + [row])
            found["completion_ids"].append([rng.randrange(3, self._size) for _ in range(length)])
            found["logprobs"].append([-1.0] * length)
            found["env_mask"].append([int(not 2 <= place < length // 2) for place in range(length)])
        return found | {"outcome_reward": [reward for rewards in self.rewards for reward in rewards]}


@pytest.fixture(scope="module")
def step(policy, tmp_path_factory):
    """(rewards, a row a task) -> what one step of `train_rl` saw, and the weights that it left."""

    def make(rewards: list[list[float | None]]) -> tuple[dict[str, Any], dict[str, float], Any]:
        model = copy_of(policy[0])
        settings = SETTINGS.model_copy(update={"max_steps": 1, "tasks_a_step": len(rewards)})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(train.rl, "IdleRowsDropped", Watched)
            patch.setattr(train.rl, "_Rollouts", ScriptedRollouts)
            patch.setattr(ScriptedRollouts, "rewards", rewards, raising=False)
            patch.setattr(ScriptedRollouts, "tokens", len(policy[1]), raising=False)
            (metrics,) = train_rl(model, policy[1], lambda _: (), settings, seed=0, scratch=tmp_path_factory.mktemp("step"))
        return Watched.seen, metrics, model

    return make


@pytest.fixture(scope="module")
def scripted(step):
    return step(SCRIPT)


def advantages(seen: dict[str, Any]) -> list[list[float]]:
    """By task and draw."""
    return seen["advantages"][seen["prompt_ids"][:, -1].argsort()].view(-1, SETTINGS.draws).tolist()


def log_likelihoods(model: Any, seen: dict[str, Any]) -> torch.Tensor:
    """Of what the policy wrote, row by row."""
    ids, masks = (torch.cat([seen[f"prompt_{kind}"], seen[f"completion_{kind}"]], dim=1) for kind in ("ids", "mask"))
    with torch.inference_mode():
        logprobs = torch.log_softmax(copy_of(model).eval()(ids, attention_mask=masks).logits, dim=-1)
    start = seen["prompt_ids"].shape[1]
    own = logprobs[:, start - 1 : -1].gather(2, seen["completion_ids"][..., None])[..., 0]
    return (own * seen["completion_mask"] * seen["tool_mask"]).sum(dim=1)


def test_dropping_idle_rows_changes_no_gradient(scripted):
    seen, metrics, _ = scripted
    assert metrics["idle_share"] == pytest.approx(14 / 24)
    assert any(part.abs().max() > 0 for part in seen["plain"])
    for plain, ours in zip(seen["plain"], seen["gradient"], strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=TOLERANCE * plain.abs().max().item())
    assert seen["losses"][1] == pytest.approx(seen["losses"][0], abs=1e-6)


def test_a_step_without_any_advantage_leaves_the_weights_alone(step, policy):
    _, metrics, model = step([[1, 1, 1, 1], [0, 0, 0, 0]])
    assert metrics["idle_share"] == 1.0
    assert digest(model) == digest(policy[0])


def test_a_spoilt_rollout_moves_no_mean_and_is_not_learned_from(scripted):
    """Given rewards 1, spoilt, 0, spoilt, then the mean is that of the rated two; had the spoilt ones been failures, it were not."""
    seen, _, _ = scripted
    good, spoilt, bad, too = advantages(seen)[3]
    assert good == pytest.approx(-bad, rel=1e-5)
    assert good > 0
    assert spoilt == too == 0.0
    assert advantages(seen)[4] == [0.0] * 4


def test_a_failure_is_not_the_same_as_a_spoilt_rollout(step):
    seen, _, _ = step([[0 if reward is None else reward for reward in rewards] for rewards in SCRIPT])
    good, *others = advantages(seen)[3]
    assert others == pytest.approx([-good / 3] * 3, rel=1e-4)


def test_what_succeeded_becomes_likelier_than_what_failed(step, policy):
    seen, _, model = step([[1, 0, 1, 0], [0, 0, 0, 1]])
    gain = log_likelihoods(model, seen) - log_likelihoods(policy[0], seen)
    weighted = (gain * seen["advantages"]).sum().item()
    assert weighted > 0
    assert gain[seen["advantages"] > 0].mean() > gain[seen["advantages"] < 0].mean()


def test_weights_that_are_no_numbers_end_the_training(policy, tmp_path):
    """Given a policy that is spoilt before the first step, or by one, then the stage fails in words."""
    spoilt = copy_of(policy[0])
    with torch.no_grad():
        next(spoilt.parameters())[0, 0] = torch.nan
    with pytest.raises(HeadraceError, match="input policy"):
        train_rl(spoilt, policy[1], Source(tmp_path, 1), SETTINGS, seed=1, scratch=tmp_path)

    class Spoiling(IdleRowsDropped):
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            return super()._compute_loss(model, inputs) * torch.nan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.rl, "IdleRowsDropped", Spoiling)
        with pytest.raises(HeadraceError, match=r"diverged.* after step 1"):
            trained(policy, tmp_path, seed=1)


def test_a_step_whose_rollouts_were_all_spoilt_ends_the_training_and_says_by_what(policy, tmp_path, monkeypatch):
    def spoilt(episode: Episode, _: Any) -> None:
        episode.outcome, episode.failure = Outcome.INFRA_FAILURE, "OSError: no space left on device"

    monkeypatch.setattr(Episode, "step", spoilt)
    with pytest.raises(HeadraceError, match=r"every rollout of step 0 was spoilt .* no space left on device"):
        trained(policy, tmp_path, seed=1)
