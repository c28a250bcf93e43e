"""RL stages for tests: a store with a policy that succeeds now and then, and tasks to train it on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage.releases.release import ReleaseItem, make_release
from tests.train.tiny_policies import SMALL, expert_store, retail_tasks
from train.run import run
from train.spec import RLSettings, SFTSettings, StageSpec, TinyConfig

TASKS = retail_tasks("special_service", "impossible_wish", "buy_unnamed", "order_status", each=2)
SFT = SFTSettings(max_steps=26, batch_size=8, learning_rate=1e-2, warmup_steps=2)
RL = RLSettings(max_steps=5, tasks_a_step=3, draws=4, learning_rate=2e-3, warmup_steps=0, max_tokens=24, checkpoint_steps=2)
"""Checkpoints after steps 2, 4 and, the last, 5."""


def rl_stages(root: Path, shape: TinyConfig = SMALL) -> Callable[..., StageSpec]:
    """Makes the store and the policy of this shape; (folder, settings) -> the spec of the RL stage there."""
    store, experts = expert_store(root / "store", TASKS)
    splits = {
        "seed": [ReleaseItem("trajectory", expert.id, expert.task_id) for expert in experts],
        "rl": [ReleaseItem("task", task.id, task.id) for task in TASKS],
    }
    common: dict[str, Any] = {"store": store.root, "release_id": make_release(store, "all", splits, {}), "tiny": shape, "seed": 3}
    sft = StageSpec(name="sft2", algorithm="sft", split="seed", model_out=root / "sft" / "model", sft=SFT, **common)
    sft.model_out.parent.mkdir()
    run(sft)

    def make(folder: Path, **settings: Any) -> StageSpec:
        return StageSpec(
            name="rl",
            algorithm="rl",
            split="rl",
            model_in=sft.model_out,
            model_out=folder / "model",
            rl=RL.model_copy(update=settings),
            **common,
        )

    return make
