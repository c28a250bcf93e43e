"""A stage with LoRA trains small adapters, samples from the adapted policy, and leaves a whole policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from synth.engines.local.qwen3 import Qwen3Decoder
from tests.train.rl_stages import SFT, rl_stages
from train.metrics_log import LiveMetrics
from train.models.adapters import add_adapters, merge_adapters, without_wrapper
from train.run import run
from train.spec import CHECKPOINTS, METRICS, LoRASettings, RLSettings, StageSpec

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.slow]

LORA = LoRASettings(rank=4, alpha=8)


class Killed(BaseException):
    """Stands in for SIGKILL where the process must go on: nothing of the project catches it."""


@pytest.fixture(scope="module")
def make_rl(tmp_path_factory) -> Callable[..., StageSpec]:
    return rl_stages(tmp_path_factory.mktemp("stages"))


def supervised(rl: StageSpec, **settings: Any) -> StageSpec:
    """An SFT stage with adapters from the same policy."""
    sft = SFT.model_copy(update={"max_steps": 5, "checkpoint_steps": 2, "lora": LORA} | settings)
    return rl.model_copy(update={"name": "sft2", "algorithm": "sft", "split": "seed", "sft": sft, "rl": None})


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def weights(spec: StageSpec) -> dict[str, torch.Tensor]:
    run(spec)
    tensors: dict[str, torch.Tensor] = load_file(spec.model_out / "model.safetensors")
    return tensors


def test_fresh_adapters_change_nothing_and_merged_ones_change_nothing_either(make_rl, tmp_path):
    model, ids = load(make_rl(tmp_path).model_in), torch.tensor([[5, 9, 3, 7]])
    before = model(ids).logits
    adapted = add_adapters(model, LORA, seed=0)
    assert torch.equal(adapted(ids).logits, before)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.1)
    after = adapted(ids).logits.detach()
    assert not torch.allclose(after, before, atol=1e-2)
    assert not Qwen3Decoder.fits(without_wrapper(adapted)), "it reads the weights without their adapters"
    torch.testing.assert_close(merge_adapters(adapted)(ids).logits, after, atol=1e-4, rtol=1e-4)


def test_a_stage_changes_linear_layers_alone_and_leaves_a_whole_policy(make_rl, tmp_path):
    spec = supervised(make_rl(tmp_path))
    before, after = load_file(spec.model_in / "model.safetensors"), weights(spec)
    changed = {name.split(".")[-2] for name in after if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert changed == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


LARGE = {
    "adapters": {},
    "packs in bf16": {"lora": None, "precision": "bf16", "pack_tokens": 256, "batch_size": 2, "micro_batch_size": 1},
    "checkpointing": {"gradient_checkpointing": True},
}


@pytest.mark.parametrize("settings", LARGE.values(), ids=LARGE)
def test_a_killed_stage_goes_on_from_its_last_checkpoint(make_rl, tmp_path, settings):
    whole = weights(supervised(make_rl(tmp_path / "whole"), checkpoint_steps=0, **settings))
    spec, plain = supervised(make_rl(tmp_path / "killed"), **settings), LiveMetrics.on_log

    def on_log(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        plain(self, args, state, control, **more)
        if state.global_step == 3:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(LiveMetrics, "on_log", on_log)
        run(spec)
    (checkpoint,) = (spec.model_out.parent / CHECKPOINTS).glob("step-*")
    assert checkpoint.name == "step-000000002"
    assert (checkpoint / "adapter_model.safetensors").exists() == (spec.sft.lora is not None)
    resumed = weights(spec)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


@pytest.mark.parametrize("settings", [{}, {"gradient_checkpointing": True}], ids=["plain", "gradient checkpointing"])
def test_rl_samples_from_the_adapted_policy(make_rl, tmp_path, settings):
    """Given adapters that each step changes, then sampled log-probabilities are those of the trainer at every step."""
    spec = make_rl(tmp_path, lora=LORA, learning_rate=2e-2, checkpoint_steps=0, **settings)
    changed = weights(spec)
    divergences = [json.loads(line)["sampled_kl"] for line in (tmp_path / METRICS).read_text().splitlines()]
    assert len(divergences) == spec.rl.max_steps and max(divergences) < 1e-5
    before = load_file(spec.model_in / "model.safetensors")
    assert max(float((before[name] - changed[name]).abs().max()) for name in before) > 1e-3


def test_stale_batches_are_played_by_whole_weights():
    with pytest.raises(ValidationError, match="set staleness to 0, or lora to null"):
        RLSettings(lora=LORA, staleness=1)


def test_a_fresh_policy_has_nothing_to_adapt(make_rl, tmp_path):
    with pytest.raises(ValidationError, match="name a model to begin with"):
        StageSpec.model_validate(supervised(make_rl(tmp_path)).model_dump() | {"model_in": None})
