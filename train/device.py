"""Arguments for TRL's trainers that fit the device.

Precision `auto` is fp32 on a CPU (bf16 is emulated there and four times slower) and bf16 on a GPU. Always: no reports, no saving and no
progress bars by TRL; a NaN loss is logged as NaN. Several processes (`accelerate launch`, `torchrun`) share a batch.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from storage.errors import BadInput
from train.models.sharding import is_sharded, join_processes, sharding_arguments
from train.spec import ModelSettings, Precision, RLSettings, SFTSettings

Result = TypeVar("Result")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_PLAIN = ModelSettings()


def processes() -> int:
    """Number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this process writes the files."""
    return int(os.environ.get("RANK", "0")) == 0


def wait_for_all() -> None:
    """Waits until all training processes arrive here."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()


def of_main(find: Callable[[], Result]) -> Result:
    """What the main process finds, in all training processes."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return find()
    found: list[Any] = [find() if is_main() else None]
    distributed.broadcast_object_list(found)
    return cast("Result", found[0])


def settle() -> None:
    """Sets one thread, no progress bars and, on a CPU, deterministic operations; on a GPU some operations have no deterministic form.

    Torch then fills new memory, for code that reads what nothing was written to; without it, a step of the tiny policy takes 8 % less.
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    keep_freed_memory()
    torch.set_num_threads(1)
    if is_sharded():
        join_processes()
    torch.use_deterministic_algorithms(not torch.cuda.is_available())
    torch.utils.deterministic.fill_uninitialized_memory = False


def uses_bf16(precision: Precision) -> bool:
    """Whether forward and backward passes compute in bf16 on this machine."""
    import torch

    return torch.cuda.is_available() if precision == "auto" else precision == "bf16"


def autocast(precision: Precision) -> Any:
    """A context in which a model computes as in training."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.autocast(device, dtype=torch.bfloat16, enabled=uses_bf16(precision))


def device_arguments(settings: ModelSettings = _PLAIN) -> dict[str, Any]:
    """Arguments for the device of this machine."""
    import torch

    has_gpu = torch.cuda.is_available()
    return {
        "use_cpu": not has_gpu,
        "bf16": uses_bf16(settings.precision),
        "gradient_checkpointing": settings.gradient_checkpointing,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_nan_inf_filter": False,
        "log_level": "error",
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": has_gpu,
        "skip_memory_metrics": True,
    }


def batch_arguments(batch_size: int, rows_at_once: int | None) -> dict[str, int]:
    """Arguments for batches of `batch_size` rows over all processes. rows_at_once: rows in a forward pass; None: a process's share.

    Raises:
        BadInput: the batch does not divide.
    """
    together = processes()
    if batch_size % together:
        raise BadInput(f"a batch of {batch_size} rows does not divide among {together} processes: change batch_size, or start fewer")
    share = batch_size // together
    at_once = min(rows_at_once or share, share)
    if share % at_once:
        raise BadInput(
            f"micro_batch_size {at_once} does not divide the {share} rows of a process's share of the batch ({batch_size} in all)"
        )
    return {"per_device_train_batch_size": at_once, "gradient_accumulation_steps": share // at_once}


@cache
def keep_freed_memory() -> None:
    """Makes glibc keep freed memory, because torch on a CPU frees and allocates it again at every step.

    Measured on SFT of the tiny policy: half of its CPU time was the kernel's, mapping the same pages again; 4 % afterwards.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def trainer_arguments(
    settings: SFTSettings | RLSettings, seed: int, scratch: Path, draft: Path | None, updates_a_step: int = 1
) -> dict[str, Any]:
    """Arguments that SFT and RL share: device, optimiser, schedule, seeds, logging and checkpoints.

    scratch: folder for the trainer's files. draft: folder for its checkpoints; None: no checkpoints.
    updates_a_step: the trainer's steps (optimiser updates) per step of ours.
    """
    updates = settings.max_steps * updates_a_step
    saving = {"save_strategy": "steps", "save_steps": settings.checkpoint_steps * updates_a_step} if draft else {}
    return {
        **device_arguments(settings),
        **sharding_arguments(),
        **saving,
        **linear_schedule(settings.learning_rate, settings.warmup_steps * updates_a_step, settings.final_rate_share, updates),
        "output_dir": str(draft or scratch),
        "max_steps": updates,
        "weight_decay": settings.weight_decay,
        "adam_beta1": 0.9,
        "adam_beta2": settings.adam_beta2,
        "max_grad_norm": settings.max_grad_norm,
        "seed": seed,
        "data_seed": seed,
        "logging_steps": updates_a_step,
    }


def linear_schedule(learning_rate: float, warmup_steps: int, final_share: float, max_steps: int) -> dict[str, Any]:
    """Arguments for a linear warm-up (of half the steps at most), then a linear decay to `final_share` of the peak."""
    return {
        "learning_rate": learning_rate,
        "warmup_steps": min(warmup_steps, max_steps // 2),
        "lr_scheduler_type": "polynomial",
        "lr_scheduler_kwargs": {"lr_end": learning_rate * final_share, "power": 1.0},
    }
