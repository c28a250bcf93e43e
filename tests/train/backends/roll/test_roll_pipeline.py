"""A stage for ROLL: nothing is written that ROLL would ignore, evaluate, or assert away after its start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from storage.errors import BadInput
from tests.train.backends.stages import RL, SFT, stage
from train.backends.cluster_shape import ClusterShape
from train.backends.render_stage import render
from train.backends.roll import roll_pipeline as roll
from train.backends.roll.roll_keys import devices

MANAGER = "team.proxy_env_manager.HeadraceManager"
EXPECTED = Path(__file__).parents[1] / "expected"


def content(released, policy, loss="lite_ppo", **changes):
    spec = stage(released, policy, rl=RL.model_copy(update={"loss": loss}))
    found = roll.keys(spec, ClusterShape(), folder=Path("/shared/stage"), adapter=MANAGER)
    return roll.with_overrides(found, changes)


def test_an_8b_policy_on_2_x_8_gpus_renders_as_expected(released, policy):
    found = render("roll", stage(released, policy), ClusterShape(), adapter=MANAGER)
    text = found.files["pipeline.yaml"].replace(str(policy), "/shared/qwen3-8b").replace(str(released[0].root), "/shared/store")
    assert text == (EXPECTED / "roll_rl.yaml").read_text()
    assert "ROLL itself is not asked" in found.checked


@pytest.mark.parametrize(
    ("loss", "norm", "aggregation", "ratio", "clips"),
    [
        ("grpo", ("group", "group"), "seq-mean-token-mean", "token", (0.2, 0.2)),
        ("dapo", ("group", "group"), "token-mean", "token", (0.2, 0.28)),
        ("dr_grpo", ("group", None), "seq-mean-token-sum-norm", "token", (0.2, 0.2)),
        ("gspo", ("group", "group"), "seq-mean-token-mean", "segment", (3e-4, 4e-4)),
        ("lite_ppo", ("group", "batch"), "token-mean", "token", (0.2, 0.2)),
    ],
)
def test_every_loss_says_how_it_normalises_and_sums(released, policy, loss, norm, aggregation, ratio, clips):
    found = content(released, policy, loss)
    roll.check(found)
    normalization = found["reward_normalization"]
    assert (normalization["norm_mean_type"], normalization["norm_std_type"]) == norm
    assert (found["loss_agg_mode"], found["ratio_type"]) == (aggregation, ratio)
    assert (found["pg_clip_low"], found["pg_clip_high"]) == clips
    assert found["use_pg_clip_range"] is True, "without it ROLL ignores both clips"
    assert found["init_kl_coef"] == 0, "ROLL's default adds a penalty of 0.2"


def test_a_manager_for_whom_roll_starts_no_server_is_refused(released, policy):
    with pytest.raises(BadInput, match=r"team\.envs\.Manager has no proxy_env_manager in its dotted path"):
        render("roll", stage(released, policy), ClusterShape(), adapter="team.envs.Manager")


def test_sft_is_refused_with_the_reason(released, policy):
    with pytest.raises(BadInput, match=r"ROLL's SFT takes single-turn rows without tools"):
        render("roll", stage(released, policy, sft=SFT), ClusterShape(), adapter=MANAGER)


@pytest.mark.parametrize("key", ["token_level_loss", "actor_train.training_args.learning_rat", "flash_attn", "custom_envs.other.max_steps"])
def test_a_key_that_roll_would_ignore_is_named(released, policy, key):
    with pytest.raises(BadInput, match=key):
        render("roll", stage(released, policy), ClusterShape(), adapter=MANAGER, overrides={key: 1})


def test_a_key_inside_that_the_model_does_not_know_is_named_too(released, policy):
    found = content(released, policy)
    found["actor_train"]["model_args"]["flash_attn"] = "fa2"
    with pytest.raises(BadInput, match=r"actor_train\.model_args\.flash_attn"):
        roll.check(found)


@pytest.mark.parametrize(
    "mapping",
    [
        "__import__('os').system('true')",
        "list(range(0,16)) or exit()",
        "list(range(0,16))\n",
        " list(range(0,16))",
        "list(range(0,0o20))",
        "[0,1,2]",
        "list(range(0,-1))",
        "list(range(00,16))",
        "list(range(0,999999999))",
    ],
)
def test_no_text_but_a_plain_range_reaches_rolls_eval(released, policy, mapping):
    with pytest.raises(BadInput, match=r"actor_train\.device_mapping"):
        roll.check(content(released, policy, **{"actor_train.device_mapping": mapping}))


def test_a_plain_range_is_read_as_roll_reads_it():
    assert list(devices("list(range(8,16))")) == eval("list(range(8,16))")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rollout_batch_size": 100}, "rollout_batch_size 100 is not a multiple of train_env_manager.group_size 8"),
        ({"rollout_batch_size": 264}, "not a multiple of the 256 environments"),
        ({"actor_train.training_args.gradient_accumulation_steps": 5}, "not a multiple of 80, the rows of one update"),
        ({"train_env_manager.num_groups_partition": [16]}, "add up to num_env_groups"),
        ({"val_env_manager.group_size": 2}, "val_batch_size 1 is not a multiple of the 2 environments"),
        ({"actor_infer.strategy_args.strategy_config.tensor_parallel_size": 3}, "tensor_parallel_size 3 does not divide"),
        ({"actor_infer.device_mapping": "list(range(0,12))"}, "does not fill whole nodes of 8 GPUs"),
        ({"actor_infer.device_mapping": "list(range(4,20))"}, "does not fill whole nodes of 8 GPUs"),
        ({"actor_infer.device_mapping": "list(range(4,4))"}, "does not fill whole nodes"),
        ({"actor_infer.strategy_args.strategy_config.max_model_len": 4096}, "max_model_len is less than sequence_length"),
        ({"prompt_length": 16384}, "leaves nothing of sequence_length"),
        ({"train_env_manager.tags": ["shop"]}, "custom_envs has no shop"),
        ({"use_pg_clip_range": False}, "use_pg_clip_range"),
        ({"max_steps": "200"}, "max_steps"),
    ],
)
def test_batches_devices_and_values_that_do_not_fit_are_refused(released, policy, changes, says):
    with pytest.raises(BadInput, match=says):
        roll.check(content(released, policy, **changes))


def test_lite_ppo_with_groups_of_one_is_refused_because_every_advantage_would_be_0(released, policy):
    one = {"train_env_manager.group_size": 1, "rollout_batch_size": 32, "actor_train.training_args.gradient_accumulation_steps": 2}
    with pytest.raises(BadInput, match="every advantage would be 0"):
        roll.check(content(released, policy, **one))


def test_lite_ppo_with_contradictory_normalisation_is_refused(released, policy):
    with pytest.raises(BadInput, match="normalises a second time"):
        roll.check(content(released, policy, whiten_advantages=True))
    with pytest.raises(BadInput, match="without a baseline"):
        roll.check(content(released, policy, **{"reward_normalization.norm_mean_type": None}))


def test_rollouts_that_the_gpus_cannot_share_are_refused(released, policy):
    with pytest.raises(BadInput, match=r"256 rollouts a step .* cannot be shared by 24 GPUs"):
        render("roll", stage(released, policy), ClusterShape(nodes=3), adapter=MANAGER)


@pytest.mark.parametrize(("changes", "says"), [({"beta": 0.01}, "rl.beta is 0.01"), ({"resample_rounds": 1}, "rl.resample_rounds is 1")])
def test_what_roll_cannot_do_as_it_is_rendered_is_refused(released, policy, changes, says):
    with pytest.raises(BadInput, match=says):
        render("roll", stage(released, policy, rl=RL.model_copy(update=changes)), ClusterShape(), adapter=MANAGER)


@pytest.mark.parametrize(("gpus", "code"), [(8, 0), (0, 2), (None, 2)])
def test_the_command_refuses_a_driver_without_the_nodes_gpus_and_names_the_yaml_relative_to_examples(
    released, policy, tmp_path, gpus, code
):
    """`nvidia-smi` and `python3` are scripts here: one lists GPUs, the other prints its arguments. gpus: None: no `nvidia-smi`."""
    found = render("roll", stage(released, policy), ClusterShape(), adapter=MANAGER)
    tools, stage_folder, checkout = tmp_path / "bin", tmp_path / "stage", tmp_path / "ROLL"
    for folder in (tools, stage_folder, checkout / "examples"):
        folder.mkdir(parents=True)
    (stage_folder / "entrypoint.sh").write_text(found.files["entrypoint.sh"])
    scripts = {"python3": 'printf "%s\\n" "$@"'} | ({} if gpus is None else {"nvidia-smi": "\n".join(["echo GPU"] * gpus)})
    for name, text in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "ROLL_HOME": str(checkout)}
    ran = subprocess.run(["bash", str(stage_folder / "entrypoint.sh")], capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == code, ran.stderr
    if code:
        assert "start it on a node with 8, here are 0" in ran.stderr
    else:
        script, flag, path, *_ = ran.stdout.splitlines()
        assert (script, flag) == ("examples/start_agentic_pipeline.py", "--config_path")
        assert (checkout / "examples" / path).resolve() == stage_folder
    assert "--entrypoint-num-gpus" not in found.files["submit.sh"]


def test_the_yaml_that_is_written_is_the_content_that_was_checked(released, policy):
    found = content(released, policy)
    assert yaml.safe_load(roll.files(found, stage(released, policy), ClusterShape())["pipeline.yaml"]) == found
