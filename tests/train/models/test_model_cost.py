"""What training a model takes, from its shape: what every setting that saves memory saves."""

from __future__ import annotations

import pytest

from train.models.model_cost import ModelShape, gpu_seconds, memory_gib, tokens_at_once
from train.spec import LoRASettings, SFTSettings

EIGHT = ModelShape(8_190_735_360, hidden=4096, inner=12_288, layers=36, vocabulary=151_936, window=40_960)
"""As Qwen3-8B."""
ONE_AT_A_TIME = SFTSettings(batch_size=64, micro_batch_size=1)


def memory(settings: SFTSettings, *, processes: int = 8, is_sharded: bool = True) -> float:
    return memory_gib(EIGHT, settings, processes=processes, is_sharded=is_sharded, in_bf16=True)


def test_weights_gradients_and_moments_take_sixteen_bytes_a_parameter() -> None:
    """Given hardly any tokens, then little else counts; sharding divides it."""
    settings = ONE_AT_A_TIME.model_copy(update={"pack_tokens": 2})
    assert memory(settings, is_sharded=False) == pytest.approx(16 * EIGHT.parameters / 2**30, rel=1e-3)
    assert memory(settings) == pytest.approx(2 * EIGHT.parameters / 2**30, rel=1e-2)


@pytest.mark.parametrize(
    "change",
    [{"lora": LoRASettings(rank=16)}, {"gradient_checkpointing": True}, {"pack_tokens": 1024}],
    ids=["lora", "checkpointing", "short"],
)
def test_each_setting_saves(change: dict[str, object]) -> None:
    assert memory(ONE_AT_A_TIME.model_copy(update=change)) < 0.9 * memory(ONE_AT_A_TIME)


def test_an_adapter_has_as_many_weights_as_peft_makes() -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from train.models.adapters import add_adapters
    from train.models.model_cost import adapter_parameters

    config = Qwen3Config(
        hidden_size=64, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, head_dim=16
    )
    shape = ModelShape(0, config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.vocab_size, 4096)
    with torch.device("meta"):
        adapted = add_adapters(Qwen3ForCausalLM(config), LoRASettings(rank=8), seed=0)
    made = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    assert adapter_parameters(shape, 8) == made


def test_time_is_in_proportion_to_tokens_and_shrinks_with_gpus() -> None:
    assert tokens_at_once(EIGHT, SFTSettings(batch_size=16), 8) == 2 * 4096
    assert gpu_seconds(EIGHT, ONE_AT_A_TIME, 8) == pytest.approx(gpu_seconds(EIGHT, ONE_AT_A_TIME, 1) / 8)
