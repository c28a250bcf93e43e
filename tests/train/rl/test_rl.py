"""Reinforcement learning: fresh tasks at every step, nothing computed for rows that teach nothing, nothing learned from our own faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import train.rl.rewards
import train.rl.rl
from storage.errors import HeadraceError
from storage.records import Outcome, Task
from storage.releases.release import ReleasedItem, ReleaseItem, Setting
from synth.rollouts.episode import Episode
from tests.train.scripted_steps import Rewards, Step, assert_close, rows_of, take_step
from tests.train.tiny_policies import copy_of, digest, expert_conversations, retail_tasks, small_policy
from train.rl.rewards import score_episodes
from train.rl.rl import PolicyTrainer, train_rl
from train.rl.rollout_batches import Batch
from train.rl.task_sampler import FreshTasks
from train.sft.sft import train_sft
from train.spec import RLSettings, SFTSettings, StageSpec

TASKS = retail_tasks("special_service", "impossible_wish", "buy_unnamed", "order_status", each=2)
SETTINGS = RLSettings(max_steps=3, tasks_a_step=4, draws=4, learning_rate=1e-3, warmup_steps=0, max_tokens=24)
SCRIPT = [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, None, 0, None], [None, None, None, None], [0, 0, 0, 1]]
"""Rewards of a step's draws, a row a task: mixed, all good, all bad, partly spoilt, wholly spoilt, mixed."""


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["success", "graded"])
def test_a_step_learns_from_the_reward_that_it_is_told_to(kind, reader, tmp_path, monkeypatch):
    """Given a policy that does its tasks in part, then only graded rewards tell these draws from those that brought nothing."""
    model, tasks = copy_of(reader[0]), reader[2]
    seen: list[Episode] = []
    rewards: list[float | None] = []

    def watched(episodes: Sequence[Episode], *arguments: Any) -> list[float | None]:
        seen.extend(episodes)
        rewards.extend(score_episodes(episodes, *arguments))
        return rewards

    monkeypatch.setattr(train.rl.rewards, "score_episodes", watched)
    settings = SETTINGS.model_copy(update={"max_steps": 1, "draws": 16, "reward": kind})
    (metrics,) = train_rl(model, reader[1], lambda step, again=0: tasks, settings, seed=0, scratch=tmp_path)
    graded, success = [one.reward for one in seen], [float(one.outcome is Outcome.SUCCESS) for one in seen]
    assert any(0 < reward < 1 for reward in graded if reward is not None), graded
    assert rewards == (graded if kind == "graded" else success)
    assert metrics["reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert digest(model) != digest(reader[0])


# ---- one step, with rewards of our choice --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def step(policy, tmp_path_factory):
    """(rewards) -> one step with them."""

    def make(rewards: Rewards, **settings: Any) -> Step:
        rows = rows_of(rewards, len(policy[1]))
        return take_step(policy, rows, SETTINGS.model_copy(update=settings), tmp_path_factory.mktemp("step"))

    return make


@pytest.fixture(scope="module")
def scripted(step):
    return step(SCRIPT)


def by_task(found: Step) -> list[list[float]]:
    """Advantages by task and draw."""
    return torch.tensor(found.advantages).view(-1, SETTINGS.draws).tolist()


def log_likelihoods(model: Any, seen: dict[str, Any]) -> torch.Tensor:
    """Of what the policy wrote, row by row."""
    ids, masks = (torch.cat([seen[f"prompt_{kind}"], seen[f"completion_{kind}"]], dim=1) for kind in ("ids", "mask"))
    with torch.inference_mode():
        logprobs = torch.log_softmax(copy_of(model).eval()(ids, attention_mask=masks).logits, dim=-1)
    start = seen["prompt_ids"].shape[1]
    own = logprobs[:, start - 1 : -1].gather(2, seen["completion_ids"][..., None])[..., 0]
    return (own * seen["completion_mask"] * seen["tool_mask"]).sum(dim=1)


def test_leaving_idle_rows_out_changes_no_gradient(scripted):
    assert scripted.metrics["idle_share"] == pytest.approx(14 / 24)
    assert_close(scripted.ours[0], scripted.trls[0])
    assert scripted.losses[0][0] == pytest.approx(scripted.losses[0][1], abs=1e-6)


def test_a_step_without_any_advantage_leaves_the_weights_alone(step, policy):
    found = step([[1, 1, 1, 1], [0, 0, 0, 0]])
    assert found.metrics["idle_share"] == 1.0
    assert digest(found.model) == digest(policy[0])


def test_a_spoilt_rollout_moves_no_mean_and_is_not_learned_from(scripted):
    """Given rewards 1, spoilt, 0, spoilt, then the mean is that of the rated two; had the spoilt ones been failures, it were not."""
    good, spoilt, bad, too = by_task(scripted)[3]
    assert good == pytest.approx(-bad, rel=1e-5)
    assert good > 0
    assert spoilt == too == 0.0
    assert by_task(scripted)[4] == [0.0] * 4


def test_a_failure_is_not_the_same_as_a_spoilt_rollout(step):
    good, *others = by_task(step([[0 if reward is None else reward for reward in rewards] for rewards in SCRIPT]))[3]
    assert others == pytest.approx([-good / 3] * 3, rel=1e-4)


def test_what_succeeded_becomes_likelier_than_what_failed(step, policy):
    found = step([[1, 0, 1, 0], [0, 0, 0, 1]])
    advantages = found.inputs["advantages"]
    gain = log_likelihoods(found.model, found.inputs) - log_likelihoods(policy[0], found.inputs)
    assert (gain * advantages).sum() > 0
    assert gain[advantages > 0].mean() > gain[advantages < 0].mean()


# ---- several updates of a batch ------------------------------------------------------------------------------------------


def test_a_batch_may_be_learned_from_again_by_the_log_probabilities_that_it_was_sampled_with(policy, tmp_path, monkeypatch):
    """Given two updates a batch, then tasks and rollouts are as many as ever, the first update has no ratio, and the second the one to the
    policy before it."""
    seen: list[tuple[int, bool, float]] = []

    class Watched(PolicyTrainer):
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            loss = super()._compute_loss(model, inputs)
            drift = self._metrics["train"]["sampled_kl"][-1]
            seen.append((self.state.global_step, "old_per_token_logps" in inputs, drift))
            return loss

    monkeypatch.setattr(train.rl.rl, "PolicyTrainer", Watched)
    batches: list[Batch] = []
    model, source, settings = copy_of(policy[0]), Source(tmp_path, 1), SETTINGS.model_copy(update={"updates_a_batch": 2})
    metrics = train_rl(model, policy[1], source, settings, seed=1, scratch=tmp_path, watch=batches.append)
    assert [row["step"] for row in metrics] == [1, 2, 3]
    assert list(source.drawn) == [0, 1, 2]
    assert [(batch.step, batch.updates) for batch in batches] == [(0, 0), (1, 1), (2, 2)]
    assert [(update, is_stale) for update, is_stale, _ in seen] == [(update, update % 2 == 1) for update in range(6)]
    fresh, stale = ([drift for _, is_stale, drift in seen if is_stale == wanted] for wanted in (False, True))
    assert max(fresh) < 1e-6, "what the engine sampled with is what the trainer computes, until the first update"
    assert max(stale) > 1e-5
    assert any(row["mean_ratio"] != pytest.approx(1.0, abs=1e-4) for row in metrics)


def test_weights_that_are_no_numbers_end_the_training(policy, tmp_path):
    """Given a policy that is spoilt before the first step, or by one, then the stage fails in words."""
    spoilt = copy_of(policy[0])
    with torch.no_grad():
        next(spoilt.parameters())[0, 0] = torch.nan
    with pytest.raises(HeadraceError, match="input policy"):
        train_rl(spoilt, policy[1], Source(tmp_path, 1), SETTINGS, seed=1, scratch=tmp_path)

    class Spoiling(PolicyTrainer):
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            return super()._compute_loss(model, inputs) * torch.nan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.rl.rl, "PolicyTrainer", Spoiling)
        with pytest.raises(HeadraceError, match=r"diverged.* after step 1"):
            trained(policy, tmp_path, seed=1)


def test_a_step_whose_rollouts_were_all_spoilt_ends_the_training_and_says_by_what(policy, tmp_path, monkeypatch):
    def spoilt(episode: Episode, _: Any) -> None:
        episode.outcome, episode.failure = Outcome.INFRA_FAILURE, "OSError: no space left on device"

    monkeypatch.setattr(Episode, "step", spoilt)
    with pytest.raises(HeadraceError, match=r"no rollout of step 0 could be rated, .* no space left on device"):
        trained(policy, tmp_path, seed=1)


def test_groups_that_end_early_are_learned_from_and_the_stage_ends_with_its_rollouts(policy, tmp_path):
    """Given groups that are drawn out only where the first rollouts differ, then fewer are made, each step says how many, and the stage
    ends with the step that reaches the most that it may make."""
    settings = SETTINGS.model_copy(update={"first_draws": 2, "max_steps": 50, "max_rollouts": 40})
    metrics = train_rl(copy_of(policy[0]), policy[1], Source(tmp_path, 1), settings, seed=1, scratch=tmp_path)
    made = [row["rollouts"] for row in metrics]
    assert sum(made) >= 40 > sum(made[:-1])
    assert all(SETTINGS.tasks_a_step * 2 <= count <= SETTINGS.tasks_a_step * SETTINGS.draws for count in made)
    assert any(count < SETTINGS.tasks_a_step * SETTINGS.draws for count in made)
