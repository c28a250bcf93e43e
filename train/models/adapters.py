"""LoRA: low-rank adapters on the linear layers of a policy, by peft.

One idea: stages exchange whole model folders, so a stage adds fresh adapters to the policy that it begins with, and merges them into its
weights at the end. A checkpoint in between holds the adapters alone.
Source: LoRA, arXiv 2106.09685, section 4.1.
"""

from __future__ import annotations

from typing import Any

from train.spec import LoRASettings


def add_adapters(model: Any, settings: LoRASettings, seed: int) -> Any:
    """The model with adapters on all linear layers except the output head; only they are trained. They change nothing at first."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def without_wrapper(model: Any) -> Any:
    """The model itself, adapters included in its layers: what an engine samples from."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def merge_adapters(model: Any) -> Any:
    """The model with its adapters merged into the weights; a model without adapters is returned as it is."""
    return model.merge_and_unload() if hasattr(model, "peft_config") else model
