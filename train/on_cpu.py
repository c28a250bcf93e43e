"""What TRL's trainers must be told to be fast and quiet on one CPU core: fp32 (bf16 is emulated, four times slower), no recomputation of
activations, nothing reported, saved or drawn by themselves; a loss that is no number is logged as such."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

CPU_ARGUMENTS: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": [],
    "save_strategy": "no",
    "disable_tqdm": True,
    "logging_nan_inf_filter": False,
    "log_level": "error",
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": False,
    "skip_memory_metrics": True,
}


@cache
def keep_freed_memory() -> None:
    """Tells glibc to keep freed memory instead of handing it back: torch on a CPU frees and asks again at every step.

    Measured on SFT of the tiny policy: half of its CPU time was the kernel's, mapping the same pages again; 4 % afterwards.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def linear_schedule(learning_rate: float, warmup_steps: int, final_share: float, max_steps: int) -> dict[str, Any]:
    """Arguments for a linear warm-up (of half the steps at most), then a linear decay to `final_share` of the peak."""
    return {
        "learning_rate": learning_rate,
        "warmup_steps": min(warmup_steps, max_steps // 2),
        "lr_scheduler_type": "polynomial",
        "lr_scheduler_kwargs": {"lr_end": learning_rate * final_share, "power": 1.0},
    }
