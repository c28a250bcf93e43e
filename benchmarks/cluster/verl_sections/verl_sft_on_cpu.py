"""verl's real FSDP SFT trainer on a CPU:
`torchrun --nproc_per_node=1 benchmarks/cluster/verl_sections/verl_sft_on_cpu.py FOLDER KEY=VALUE ...`.

FOLDER is a rendered SFT stage. verl has platforms for GPUs and NPUs alone, but takes others: here one is registered whose device is the CPU
and whose collectives are gloo. Its own `run_sft` names two back ends for the same device then, so the process group is made here. Flash
attention is CUDA's, and verl's packing without padding needs it: give `trainer.device=cpu`, `engine.strategy=fsdp2`,
`model.use_remove_padding=false` and `model.override_config.attn_implementation=sdpa`. All else is verl's: `SFTTrainer` and its FSDP engine,
over the stage's own configuration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

os.environ |= {"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda"}

import torch
from omegaconf import DictConfig, OmegaConf
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _CPU:
    """`torch.cpu`, and 0 for what only a GPU's module counts, such as reserved memory."""

    def mem_get_info(self) -> tuple[int, int]:
        return 0, 0

    def get_device_name(self, *_: Any) -> str:
        return "CPU"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *_, **__: 0)


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):  # type: ignore[misc]
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _CPU()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "CPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return SimpleNamespace()


def main(folder: str, changes: list[str]) -> None:
    from verl.trainer.sft_trainer import SFTTrainer

    torch.distributed.init_process_group("gloo")
    config = OmegaConf.merge(OmegaConf.load(f"{folder}/composed.yaml"), OmegaConf.from_dotlist(changes))
    assert isinstance(config, DictConfig)
    SFTTrainer(config=config).fit()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
