"""A small store with a release, and the spec of a stage that learns from it in a few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from storage.record_rows import tasks_frame
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store, part_id
from synth.conversations.expert import expert_trajectory
from synth.roles.simulate import trajectories_frame
from synth.worlds import WORLDS
from tests.train.tiny_policies import SMALL, retail_tasks
from train.spec import SFTSettings, StageSpec

TASKS = retail_tasks("order_status", "special_service", each=2)
SFT = SFTSettings(max_steps=6, batch_size=4, learning_rate=1e-2, warmup_steps=0)


def released(root: Path) -> tuple[Store, str]:
    """A store with experts' conversations as a release with the split `seed`, and its id."""
    store, experts = Store(root), [expert_trajectory(WORLDS[task.world], task) for task in TASKS]
    store.commit(
        [
            store.write("tasks", part_id("tasks", [], {}, 1), tasks_frame(TASKS)),
            store.write("trajectories", part_id("trajectories", [], {}, 1), trajectories_frame(experts, TASKS)),
        ]
    )
    items = [ReleaseItem("trajectory", expert.id, expert.task_id) for expert in experts]
    return store, make_release(store, "seed", {"seed": items}, {})


def is_alive(process: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def spec_of(store: Store, release: str, folder: Path, **changes: Any) -> StageSpec:
    fields: dict[str, Any] = {"name": "sft1", "algorithm": "sft", "store": store.root, "release_id": release, "split": "seed"}
    return StageSpec(**(fields | {"model_out": folder / "model", "tiny": SMALL, "seed": 3, "sft": SFT} | changes))
