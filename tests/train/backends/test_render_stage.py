"""What is refused before anything is rendered, whatever the engine; and what a submission is called."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import pytest

from storage.errors import BadInput
from tests.train.backends.stages import RL, SFT, stage
from train.backends.cluster_shape import RENDERED_LOSSES, ClusterShape
from train.backends.render_stage import ADAPTERS, render
from train.backends.roll import roll_pipeline as roll
from train.backends.verl import verl_overrides as verl
from train.rl.losses import LOSSES
from train.spec import LoRASettings, RLSettings, SFTSettings

ENGINES = ("verl", "roll")
CLASS = "team.proxy_env_manager.Worlds"


@pytest.fixture(autouse=True)
def without_schema(monkeypatch, tmp_path) -> None:
    """Nothing here is about verl's own keys, and composing takes seconds."""
    monkeypatch.setattr(verl, "SCHEMA", tmp_path / "nothing")


@pytest.fixture(params=ENGINES)
def refused(request):
    """Renders with either engine and returns what it was refused with."""

    def ask(spec, shape=ClusterShape(), adapter=CLASS):  # noqa: B008 (frozen)
        with pytest.raises(BadInput) as refusal:
            render(request.param, spec, shape, adapter=adapter)
        return str(refusal.value)

    return ask


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("tokenizer.json", "holds no tokenizer"),
        ("chat_template.jinja", "has no chat template"),
        ("config.json", "is no Hugging Face model folder"),
        ("model-00001-of-00004.safetensors", "holds no weights"),
    ],
)
def test_a_policys_folder_that_lacks_something(released, policy, refused, missing, says):
    (policy / missing).unlink()
    assert says in refused(stage(released, policy))


def test_a_policy_whose_calls_the_rendered_parsers_do_not_read(released, policy, refused):
    (policy / "chat_template.jinja").write_text("<|python_tag|>")
    assert f"the chat template of {policy} writes calls in another form than <tool_call>" in refused(stage(released, policy))
    render("verl", stage(released, policy, sft=SFT), ClusterShape(), adapter=CLASS)  # SFT reads no calls


def test_no_policy_to_begin_with(released, refused):
    assert "only the backend local makes a fresh tiny policy" in refused(stage(released, None))


def test_a_release_or_a_split_that_is_not_there_or_holds_less_than_a_batch(released, policy, refused):
    assert "has no release release-0" in refused(stage(released, policy, release_id="release-0"))
    assert "has no split 'sft2'" in refused(stage(released, policy, split="sft2"))
    assert "split few of release" in (said := refused(stage(released, policy, split="few")))
    assert "has 4 tasks, and a step of stage rl takes 32" in said
    assert "has 0 tasks" in refused(stage(released, policy, split="seed"))


def test_tasks_where_conversations_are_due(released, policy):
    with pytest.raises(BadInput, match="has 0 conversations, and a step of stage sft1 takes 16"):
        render("verl", stage(released, policy, sft=SFT, split="rl"), ClusterShape(), adapter=CLASS)


def test_lengths_and_layouts_that_the_model_cannot_have(released, policy, refused):
    spec = stage(released, policy)
    assert "may have 53248 tokens" in refused(spec, ClusterShape(response_tokens=49152))
    assert "tensor_parallel 3 does not divide the 32 attention heads" in refused(spec, ClusterShape(tensor_parallel=3, gpus_per_node=6))
    assert "tensor_parallel 16 does not divide gpus_per_node 8" in refused(spec, ClusterShape(tensor_parallel=16))
    short = stage(released, policy, rl=RL.model_copy(update={"max_tokens": 20_000}))
    assert "one answer may have 20000 tokens" in refused(short)


OTHER: dict[str, Any] = {
    "max_steps": 7,
    "batch_size": 32,
    "micro_batch_size": 1,
    "gradient_checkpointing": False,
    "precision": "fp32",
    "lora": LoRASettings(rank=8, alpha=16),
    "pack_tokens": 4096,
    "leave_out": "nothing",
    "learning_rate": 2e-6,
    "warmup_steps": 3,
    "final_rate_share": 0.2,
    "weight_decay": 0.02,
    "adam_beta2": 0.97,
    "max_grad_norm": 0.5,
    "plateau_window": 9,
    "tasks_a_step": 16,
    "draws": 4,
    "temperature": 0.7,
    "max_turns": 3,
    "max_tokens": 99,
    "reward": {"success": 3.0, "plan": 1.0},
    "collapse": "least",
    "loss": "gspo",
    "credit": "errors_unrewarded",
    "ratio": "sequence",
    "clip_low": 0.15,
    "clip_high": 0.35,
    "beta": 0.02,
    "updates_a_batch": 2,
    "resample_rounds": 1,
    "start": "rollback",
    "staleness": 1,
    "checkpoint_steps": 11,
    "follow_tags": True,
    "first_draws": 2,
    "max_rollouts": 1_000,
    "rollouts": "hf",
}
"""Setting -> another value than the stages have."""
OURS_ALONE = {
    "plateau_gain",
    "tag_window",
    "vllm_memory_share",
    "rollout_workers",
    "reward_url",
    "rollout_timeout_s",
    "credit_gamma",
    "rollback_mastered",
    "rollback_imitation",
}
"""What only says more of a setting that is itself noted or refused."""


@pytest.mark.parametrize(
    ("engine", "section", "name"),
    [
        (engine, section, name)
        for engine, section, model in (("verl", "sft", SFTSettings), ("verl", "rl", RLSettings), ("roll", "rl", RLSettings))
        for name in model.model_fields
        if name not in OURS_ALONE and (engine, name) != ("roll", "final_rate_share")
    ],
)
def test_every_setting_of_a_stage_changes_what_is_rendered_or_is_refused(released, policy, engine, section, name):
    """None is left out silently. (ROLL has no final rate share, and its notes say so of every stage.)"""
    settings = {"sft": SFT, "rl": RL}[section]
    assert getattr(settings, name) != OTHER[name]
    before = render(engine, stage(released, policy, **{section: settings}), ClusterShape(), adapter=CLASS).files
    changed = stage(released, policy, **{section: settings.model_copy(update={name: OTHER[name]})})
    try:
        after = render(engine, changed, ClusterShape(), adapter=CLASS).files
    except BadInput as error:
        assert f"{section}.{name}" in str(error)
    else:
        assert after != before


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("rl", "loss", "rft"),
        ("rl", "credit", "errors_unrewarded"),
        ("rl", "ratio", "unweighted"),
        ("rl", "loss", "ipa"),
        ("rl", "credit", "chunk_return"),
        ("rl", "ratio", "chunk"),
        ("rl", "start", "rollback"),
        ("rl", "reward", "shuffled"),
        ("rl", "follow_tags", True),
        ("rl", "rollouts", "hf"),
    ],
)
def test_a_setting_that_only_our_own_trainer_has_is_refused_by_name(released, policy, section, name, value):
    settings = {"sft": SFT, "rl": RL}[section].model_copy(update={name: value})
    with pytest.raises(BadInput, match=rf"{section}\.{name} is {str(value).lower()}, which only our own trainer has"):
        render("verl", stage(released, policy, **{section: settings}), ClusterShape(), adapter=CLASS)


@pytest.mark.parametrize("loss", RENDERED_LOSSES)
def test_every_loss_has_the_clips_the_ratio_and_the_average_of_our_own(released, policy, tmp_path, loss):
    own, spec = LOSSES[loss], stage(released, policy, rl=RL.model_copy(update={"loss": loss}))
    of_verl = verl.overrides(spec, ClusterShape(), folder=tmp_path, adapter=CLASS)
    of_roll = roll.keys(spec, ClusterShape(), folder=tmp_path, adapter=CLASS)
    actor = "actor_rollout_ref.actor."
    clips = (own.clip_low, own.clip_high)
    assert (
        (of_verl[f"{actor}clip_ratio_low"], of_verl[f"{actor}clip_ratio_high"])
        == clips
        == (of_roll["pg_clip_low"], of_roll["pg_clip_high"])
    )
    assert of_verl[f"{actor}policy_loss.loss_mode"] == {"token": "vanilla", "sequence": "gspo"}[own.ratio]
    assert of_roll["ratio_type"] == {"token": "token", "sequence": "segment"}[own.ratio]
    average = {"tokens": "token-mean", "rows": "seq-mean-token-mean", "constant": "seq-mean-token-sum-norm"}[own.average]
    assert of_verl[f"{actor}loss_agg_mode"] == average == of_roll["loss_agg_mode"]
    assert of_verl["algorithm.filter_groups.enable"] is (own.resample_rounds > 0)
    assert of_roll["reward_normalization"]["norm_std_type"] == {"none": None}.get(own.scale, own.scale)
    assert of_verl["algorithm.norm_adv_by_std_in_grpo"] is (own.scale != "none")
    assert of_verl["algorithm.adv_estimator"] == ("reinforce_plus_plus_baseline" if own.scale == "batch" else "grpo")


@pytest.mark.parametrize("adapter", ["", "Loop", "team..Loop", "team.Loop; rm", "team.Loop\n"])
def test_an_adapter_that_is_no_dotted_path(released, policy, refused, adapter):
    assert "is no dotted path of a class" in refused(stage(released, policy), adapter=adapter)


@pytest.mark.parametrize(
    ("engine", "section", "file"), [("verl", "rl", "agent_loop.yaml"), ("verl", "sft", "entrypoint.sh"), ("roll", "rl", "pipeline.yaml")]
)
def test_the_adapter_is_headraces_own_unless_another_is_named(released, policy, engine, section, file):
    spec = stage(released, policy, **{section: {"sft": SFT, "rl": RL}[section]}, **({"split": "seed"} if section == "sft" else {}))
    module, _, name = ADAPTERS[engine][section].rpartition(".")
    assert {module, name} <= set(re.findall(r"[\w.]+", render(engine, spec, ClusterShape()).files[file].replace(f".{name}", f" {name}")))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tiny_policys_learning_rate_for_a_large_one_is_noted(released, policy, engine):
    hot = stage(released, policy, rl=RL.model_copy(update={"learning_rate": 6e-4}))
    assert any("probably far too high" in note for note in render(engine, hot, ClusterShape(), adapter=CLASS).notes)
    assert not any("too high" in note for note in render(engine, stage(released, policy), ClusterShape(), adapter=CLASS).notes)
    (policy / "config.json").write_text(json.dumps({"hidden_size": 96, "num_attention_heads": 4}))
    assert not any("too high" in note for note in render(engine, hot, ClusterShape(), adapter=CLASS).notes)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_stage_has_the_same_submission_and_another_one_another(released, policy, engine):
    def submission(**changes):
        return render(engine, stage(released, policy, **changes), ClusterShape(), adapter=CLASS).files["submit.sh"]

    assert submission() == submission()
    assert submission(seed=1) != submission()


def test_a_submission_that_failed_is_made_again_under_another_id(released, policy, tmp_path):
    """`ray` is a script here that prints its arguments; Ray itself takes an id once."""
    (tmp_path / "submit.sh").write_text(render("verl", stage(released, policy), ClusterShape(), adapter=CLASS).files["submit.sh"])
    (tmp_path / "ray").write_text('#!/bin/sh\necho "$6"\n')
    (tmp_path / "ray").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY_ADDRESS": "http://head:8265"}

    def submitted(*words):
        return subprocess.check_output(["bash", str(tmp_path / "submit.sh"), *words], text=True, env=environment).strip()

    assert submitted().startswith("headrace-rl-")
    assert submitted("2") == f"{submitted()}-2"


@pytest.mark.parametrize(("engine", "module"), [("verl", verl), ("roll", roll)])
def test_a_loss_that_an_engine_has_no_rules_for_is_refused_by_name(released, policy, monkeypatch, engine, module) -> None:
    monkeypatch.setattr(module, "_RULES_OF_LOSS", {"grpo": {}, "dapo": {}})
    with pytest.raises(BadInput, match=r"^rl.loss is dr_grpo, which is not rendered for (verl|ROLL): set one of grpo, dapo$"):
        render(engine, stage(released, policy, rl=RL.model_copy(update={"loss": "dr_grpo"})), ClusterShape(), adapter=CLASS)
