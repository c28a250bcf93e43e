"""FSDP2: weights, gradients and optimiser states of a stage are divided among its processes, by accelerate.

One idea: whether a stage is sharded is decided by what starts its processes (`accelerate launch --use_fsdp`, which sets a variable), not by
its spec: the loss is the same up to rounding. Process 0 alone reads the weights, and alone gets the whole of them back in the end.
Accelerate shards on GPUs only; `Sharded` also does on CPUs (gloo), so that tests can compare sharded and plain training.

What it does not do: RL, which plays and learns in one process.
"""

from __future__ import annotations

import os
from typing import Any

from transformers import Trainer


def is_sharded() -> bool:
    """Whether several processes train together, each with its part of the weights."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true" and int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_processes() -> None:
    """Connects the processes of a sharded stage. Weights that are loaded afterwards are read by process 0 alone."""
    import torch
    from accelerate import PartialState

    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "true"
    PartialState(cpu=not torch.cuda.is_available())


def sharding_arguments() -> dict[str, Any]:
    """Arguments for Transformers' trainers; none if the stage is not sharded."""
    if not is_sharded():
        return {}
    config = {"version": 2, "reshard_after_forward": True, "cpu_ram_efficient_loading": True, "state_dict_type": "SHARDED_STATE_DICT"}
    return {"fsdp": True, "fsdp_config": config}


class Sharded(Trainer):
    """A trainer whose model accelerate shards, on CPUs too."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        state = self.accelerator.state
        if not is_sharded() or getattr(state, "fsdp_plugin", None) is not None:
            return
        from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

        plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
        if self.accelerator.mixed_precision != "no":
            plugin.set_mixed_precision(self.accelerator.mixed_precision)
        state.fsdp_plugin, state.distributed_type = plugin, DistributedType.FSDP
        self.is_fsdp_enabled = True


def whole_weights(model: Any) -> dict[str, Any]:
    """All weights of a sharded model by name, on the CPU of process 0; empty in the other processes. All must call it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    weights: dict[str, Any] = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return weights
