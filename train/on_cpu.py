"""What TRL's trainers must be told to be fast and quiet on one CPU core: fp32 (bf16 is emulated, four times slower), no recomputation of
activations, nothing reported, saved or drawn by themselves."""

from __future__ import annotations

from typing import Any

CPU_ARGUMENTS: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": [],
    "save_strategy": "no",
    "disable_tqdm": True,
    "log_level": "error",
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": False,
    "skip_memory_metrics": True,
}


def linear_schedule(learning_rate: float, warmup_steps: int, final_share: float, max_steps: int) -> dict[str, Any]:
    """Arguments for a linear warm-up (of half the steps at most), then a linear decay to `final_share` of the peak."""
    return {
        "learning_rate": learning_rate,
        "warmup_steps": min(warmup_steps, max_steps // 2),
        "lr_scheduler_type": "polynomial",
        "lr_scheduler_kwargs": {"lr_end": learning_rate * final_share, "power": 1.0},
    }
