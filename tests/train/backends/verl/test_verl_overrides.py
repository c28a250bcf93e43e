"""A stage for verl: every key stands in verl's own schema, the rules that it lacks are ours, and a wrong key is named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import BadInput
from tests.train.backends.stages import RL, SFT, stage
from train.backends.cluster_shape import ClusterShape
from train.backends.render_stage import render
from train.backends.verl import verl_overrides as verl

LOOP = "team.loops.HeadraceLoop"
EXPECTED = Path(__file__).parents[1] / "expected"

needs_schema = pytest.mark.skipif(
    not (verl.SCHEMA / "verl").is_dir(), reason=f"no schema of verl in {verl.SCHEMA}: pip install --no-deps --target there"
)


def values(spec, **changes):
    rendered = verl.overrides(spec, ClusterShape(), folder=Path("/shared/stage"), adapter=LOOP)
    return rendered | changes


@needs_schema
def test_an_8b_policy_on_2_x_8_gpus_renders_as_expected(released, policy):
    found = render("verl", stage(released, policy), ClusterShape(), adapter=LOOP)
    assert found.checked == verl.CHECKED
    text = found.files["entrypoint.sh"].replace(str(policy), "/shared/qwen3-8b")
    assert text == (EXPECTED / "verl_rl.sh").read_text()
    assert yaml.safe_load(found.files["agent_loop.yaml"]) == [
        {
            "name": "headrace",
            "_target_": LOOP,
            "max_turns": 12,
            "max_tokens": 1024,
            "reward": "success",
            "collapse": "mean",
            "store": str(released[0].root),
            "rollouts": "/shared/stage/rollouts",
        }
    ]


@needs_schema
@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "gspo", "lite_ppo"])
def test_every_loss_is_composed_by_verls_schema(released, policy, loss):
    found = render("verl", stage(released, policy, rl=RL.model_copy(update={"loss": loss})), ClusterShape(), adapter=LOOP)
    composed = yaml.safe_load(found.files["composed.yaml"])
    actor, algorithm = composed["actor_rollout_ref"]["actor"], composed["algorithm"]
    assert {
        "grpo": (algorithm["adv_estimator"], actor["loss_agg_mode"]) == ("grpo", "seq-mean-token-mean"),
        "dapo": algorithm["filter_groups"]["enable"] and actor["clip_ratio_high"] == 0.28 and actor["loss_agg_mode"] == "token-mean",
        "dr_grpo": not algorithm["norm_adv_by_std_in_grpo"] and actor["loss_scale_factor"] == 12288,
        "gspo": actor["policy_loss"]["loss_mode"] == "gspo" and actor["clip_ratio_low"] == 3e-4,
        "lite_ppo": (algorithm["adv_estimator"], actor["loss_agg_mode"]) == ("reinforce_plus_plus_baseline", "token-mean"),
    }[loss]
    assert actor["use_kl_loss"] is False


@needs_schema
def test_a_divergence_and_several_updates_of_a_batch_are_those_of_the_settings(released, policy):
    settings = RL.model_copy(update={"beta": 0.01, "updates_a_batch": 2})
    composed = yaml.safe_load(render("verl", stage(released, policy, rl=settings), ClusterShape(), adapter=LOOP).files["composed.yaml"])
    actor = composed["actor_rollout_ref"]["actor"]
    assert (actor["use_kl_loss"], actor["kl_loss_coef"], actor["kl_loss_type"]) == (True, 0.01, "low_var_kl")
    assert (actor["ppo_epochs"], actor["ppo_mini_batch_size"]) == (2, 32)


@needs_schema
def test_an_sft_stage_reads_conversations_through_the_callers_dataset(released, policy):
    found = render("verl", stage(released, policy, sft=SFT), ClusterShape(), adapter="team.rows.Conversations")
    composed = yaml.safe_load(found.files["composed.yaml"])
    assert composed["data"]["train_files"] == ["/shared/stage/data/seed.conversations.parquet"]
    assert composed["data"]["custom_cls"] == {"path": "pkg://team.rows", "name": "Conversations"}
    assert composed["trainer"]["total_training_steps"] == 100
    assert "agent_loop.yaml" not in found.files
    assert "verl.trainer.sft_trainer_ray" in found.files["entrypoint.sh"]


@pytest.mark.slow
@needs_schema
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("actor_rollout_ref.actor.ppo_minibatch_size", 8, "ppo_minibatch_size"),
        ("trainer.total_stepz", 8, "trainer.total_stepz"),
        ("data.train_batch_size", "many", "data.train_batch_size is 'many'"),
        ("actor_rollout_ref.actor.use_dynamic_bsz", 3, "use_dynamic_bsz is 3"),
    ],
)
def test_a_key_or_a_kind_of_value_that_verl_lacks_is_named(released, policy, key, value, says):
    with pytest.raises(BadInput, match=says):
        render("verl", stage(released, policy), ClusterShape(), adapter=LOOP, overrides={key: value})


@pytest.mark.slow
@needs_schema
def test_hydras_prefixes_are_no_way_past_the_schema_and_the_rules(released, policy):
    """Hydra itself adds what stands behind +, forces what stands behind ++, and removes what stands behind ~."""

    def refusal(key, value):
        with pytest.raises(BadInput) as refused:
            render("verl", stage(released, policy), ClusterShape(), adapter=LOOP, overrides={key: value})
        return str(refused.value)

    assert refusal("trainer.total_stepz", 8).endswith("Could not override 'trainer.total_stepz'."), "Hydra would advise to add it"
    assert refusal("+trainer.total_stepz", 8).startswith("trainer.total_stepz is no key of verl 0.9.1")
    assert refusal("+total_stepz", 8).startswith("total_stepz is no key of verl 0.9.1")
    assert refusal("++data.train_batch_size", 30) == (
        "++data.train_batch_size: name a key as verl has it, without ++, so that it can be checked"
    )
    assert refusal("~trainer.save_freq", 100).startswith("~trainer.save_freq: name a key as verl has it")
    open_to_all = "+actor_rollout_ref.rollout.engine_kwargs.vllm.max_num_seqs"
    found = render("verl", stage(released, policy), ClusterShape(), adapter=LOOP, overrides={open_to_all: 64})
    composed = yaml.safe_load(found.files["composed.yaml"])
    assert composed["actor_rollout_ref"]["rollout"]["engine_kwargs"]["vllm"]["max_num_seqs"] == 64


@needs_schema
def test_the_schema_alone_takes_a_mini_batch_larger_than_the_batch_so_the_rule_is_ours(released, policy):
    spec = stage(released, policy)
    wrong = values(spec, **{"actor_rollout_ref.actor.ppo_mini_batch_size": 64})
    assert verl.compose(wrong, "rl") is not None
    with pytest.raises(BadInput, match=r"ppo_mini_batch_size 64 is larger than data.train_batch_size 32"):
        verl.check_rules(wrong)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"actor_rollout_ref.actor.ppo_mini_batch_size": 12}, "data.train_batch_size is 32, which .*mini_batch_size 12 does not divide"),
        ({"trainer.n_gpus_per_node": 6}, "train_batch_size x rollout.n is 256, which the number of GPUs 12 does not divide"),
        ({"actor_rollout_ref.actor.ppo_mini_batch_size": 1}, "mini_batch_size x rollout.n is 8, which the number of GPUs 16"),
        ({"actor_rollout_ref.rollout.n": 1, "data.train_batch_size": 32}, "a group of one"),
        ({"actor_rollout_ref.rollout.tensor_model_parallel_size": 3}, "n_gpus_per_node is 8, which .*tensor_model_parallel_size 3"),
        ({"actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 8192}, "less than the longest conversation, 16384"),
        ({"actor_rollout_ref.rollout.max_model_len": 8192}, "less than the longest conversation, 16384"),
        ({"data.train_batch_size": 0}, "data.train_batch_size is 0"),
        ({"actor_rollout_ref.model.lora_rank": 1024}, "lora_rank is 1024, and vLLM takes 512 at most"),
        ({"trainer.use_v1": False}, "trainer.use_v1 is false: .* cannot drop a rollout whose world failed"),
    ],
)
def test_batches_and_devices_that_do_not_fit_are_refused(released, policy, changes, says):
    spec = stage(released, policy)
    verl.check_rules(values(spec))
    with pytest.raises(BadInput, match=says):
        verl.check_rules(values(spec, **changes))


def test_a_batch_of_conversations_that_the_gpus_cannot_share_is_refused(released, policy):
    spec = stage(released, policy, sft=SFT.model_copy(update={"batch_size": 24}))
    with pytest.raises(BadInput, match=r"data.train_batch_size is 24, which the number of GPUs 16 does not divide"):
        verl.check_rules(values(spec))


def test_without_verl_it_says_that_only_our_rules_were_checked(released, policy, monkeypatch, tmp_path):
    monkeypatch.setattr(verl, "SCHEMA", tmp_path / "nothing")
    found = render("verl", stage(released, policy), ClusterShape(), adapter=LOOP)
    assert found.checked == verl.UNCHECKED
    assert "only our own rules hold" in found.files["notes.txt"]
    assert "composed.yaml" not in found.files
    with pytest.raises(BadInput, match=r"larger than data\.train_batch_size"):
        render(
            "verl",
            stage(released, policy),
            ClusterShape(),
            adapter=LOOP,
            overrides={"actor_rollout_ref.actor.ppo_mini_batch_size": 64},
        )


@needs_schema
def test_the_shell_hands_verl_each_override_as_it_was_checked(released, policy, tmp_path):
    """`python3` is a script here that prints what it is given, one argument a line."""
    odd = {"trainer.experiment_name": "a 'quoted' name, $HOME [x] = 1"}
    found = render("verl", stage(released, policy), ClusterShape(), adapter=LOOP, overrides=odd)
    fake = tmp_path / "python3"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = subprocess.run(["bash", "-c", found.files["entrypoint.sh"]], capture_output=True, text=True, check=True, env={"PATH": path})
    spec = stage(released, policy)
    expected = verl.overrides(spec, ClusterShape(), folder=Path("/shared/stage"), adapter=LOOP) | odd
    assert said.stdout.splitlines() == ["-m", "verl.trainer.main_ppo", *(verl.line(key, value) for key, value in expected.items())]
    assert yaml.safe_load(found.files["composed.yaml"])["trainer"]["experiment_name"] == odd["trainer.experiment_name"]


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20)


@needs_schema
@settings(max_examples=200)
@given(
    st.one_of(
        TEXTS, st.sampled_from(["null", "True", "1e3", "0x1", "a,b", "007", "1_000", "NaN", "inf", "~", "a:b", "-", "a\\", "a\\\\'b"])
    )
)
def test_hydra_reads_every_text_back_as_the_same_text(text):
    """The values that a path or a name may hold; Hydra's own parser is asked."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(verl.line("a.b", text)).value()
    said = getattr(parsed, "text", parsed)  # what was quoted carries its text
    assert isinstance(said, str)
    assert said == text


def test_no_epochs_cut_the_steps_short_unless_they_are_asked_for(released, policy):
    """verl ends after `total_epochs` too, and an epoch may have a single step: prompts that are too long are left out of it."""
    spec, steps, epochs = stage(released, policy), "trainer.total_training_steps", "trainer.total_epochs"
    assert values(spec)[epochs] == values(spec)[steps] == 200

    def rendered(changes):
        return verl.overrides(spec, ClusterShape(), folder=Path("/shared/stage"), adapter=LOOP, changes=changes)

    assert rendered({steps: 1000})[epochs] == 1000
    assert rendered({epochs: 3})[epochs] == 3
