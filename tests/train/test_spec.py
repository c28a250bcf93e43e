"""A stage's spec: known names, batches that divide, and everything that its loss needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from train.spec import RLSettings, StageSpec, TinyConfig


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": "ppo"}, ["loss", "lite_ppo", "grpo", "dapo", "dr_grpo", "gspo", "rft"]),
        ({"ratio": "word"}, ["ratio", "token", "sequence", "unweighted"]),
        ({"credit": "gae"}, ["credit", "uniform", "errors_unrewarded"]),
        ({"collapse": "max"}, ["collapse", "mean", "least"]),
        ({"reward": "speed"}, ["reward", "success", "graded", "shuffled"]),
        ({"reward": {"speed": 1}}, ["reward", "success", "graded", "presentation"]),
        ({"reward": {"success": 0}}, ["reward", "greater than 0"]),
        ({"reward": {}}, ["reward", "at least 1"]),
        ({"reward": {"shuffled": 1}}, ["reward"]),
        ({"clip_low": 0}, ["clip_low"]),
        ({"updates_a_batch": 0}, ["updates_a_batch"]),
        ({"credit_gamma": 0}, ["credit_gamma", "greater than 0"]),
        ({"start": "rollback", "staleness": 1}, ["start rollback", "set staleness to 0, or start to task"]),
        ({"tasks_a_step": 6, "draws": 4, "micro_batch_size": 5}, ["micro_batch_size 5 does not divide tasks_a_step x draws = 24"]),
        ({"start": "rollback", "follow_tags": True}, ["set follow_tags to false, or start to task"]),
        ({"rollout_workers": 0, "staleness": 1}, ["rollout_workers", "greater than or equal to 1"]),
        ({"rollout_workers": 2}, ["rollout_workers play while the trainer learns: set staleness to 1 or more"]),
        ({"rollout_workers": 2, "staleness": 1, "draws": 4, "first_draws": 2}, ["set first_draws to null, or rollout_workers to null"]),
        ({"rollout_workers": 2, "staleness": 1, "max_rollouts": 9}, ["max_rollouts needs staleness 0"]),
        ({"rollout_workers": 2, "staleness": 1, "rollouts": "vllm"}, ["set staleness to 0, or rollouts to hf"]),
        ({"rollout_workers": 2, "staleness": 1, "lora": {}}, ["set staleness to 0, or lora to null"]),
        ({"rollout_workers": 2, "staleness": 1, "reward_url": "host:8700"}, ["reward_url host:8700 is no URL", "http://HOST:PORT"]),
        ({"staleness": 1, "reward_url": "http://host:8700"}, ["set rollout_workers, or reward_url to null"]),
        ({"micro_batch_size": 128}, ["micro_batch_size 128 does not divide tasks_a_step x draws = 64"]),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_those_that_would(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        RLSettings(**settings)
    for word in words:
        assert word in str(refused.value)


def test_rollout_workers_and_their_reward_service_are_set_together_with_staleness() -> None:
    settings = RLSettings(rollout_workers=2, staleness=1, reward_url="https://rewards.example/verdicts")
    assert (settings.rollout_workers, settings.staleness, settings.reward_url) == (2, 1, "https://rewards.example/verdicts")
    assert (RLSettings().rollout_workers, RLSettings().reward_url) == (None, None)


def test_a_policy_is_held_near_the_one_it_came_from_only_if_there_is_one() -> None:
    fields: dict[str, Any] = {"name": "rl", "algorithm": "rl", "store": Path("s"), "release_id": "r", "split": "rl", "model_out": Path("m")}
    with pytest.raises(ValidationError, match="model_in, or set beta to 0"):
        StageSpec(**fields, rl=RLSettings(beta=1e-3))
    assert StageSpec(**fields, model_in=Path("in"), rl=RLSettings(beta=1e-3)).rl is not None


def test_a_stage_does_not_overwrite_the_policy_that_it_comes_from() -> None:
    fields: dict[str, Any] = {"name": "rl", "algorithm": "rl", "store": Path("s"), "release_id": "r", "split": "rl", "rl": RLSettings()}
    with pytest.raises(ValidationError, match="model_out is model_in"):
        StageSpec(**fields, model_in=Path("m"), model_out=Path("m"))


@pytest.mark.parametrize("shape", [{"width": 97}, {"width": 32}, {"width": 27}])
def test_a_width_that_does_not_divide_among_heads_is_refused(shape: dict[str, int]) -> None:
    """97 and 32 do not divide by three; 27 does, into heads of an odd size, whose positions cannot be turned."""
    with pytest.raises(ValidationError, match=r"does not divide among 3 heads of an even size: give a multiple of 6"):
        TinyConfig(**shape)
