"""A store with releases of real retail tasks, the folder of an 8 B policy (its weights aside), and stages that train it on a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.record_rows import tasks_frame
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store, part_id
from synth.clusters.cluster_store import tools_frame
from synth.conversations.expert import expert_trajectory
from synth.roles.simulate import trajectories_frame
from synth.worlds import WORLDS
from tests.train.tiny_policies import retail_tasks
from train.spec import RLSettings, SFTSettings, StageSpec

QWEN3_8B = {"model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 40960}
SFT = SFTSettings(max_steps=100, batch_size=16, learning_rate=1e-5, gradient_checkpointing=True)
RL = RLSettings(
    max_steps=200,
    tasks_a_step=32,
    draws=8,
    learning_rate=1e-6,
    max_turns=12,
    max_tokens=1024,
    checkpoint_steps=20,
    gradient_checkpointing=True,
)


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    """A store whose release has 32 experts' conversations (`seed`), 32 tasks (`rl`) and four (`few`)."""
    store = Store(tmp_path_factory.mktemp("render") / "store")
    tasks = retail_tasks("order_status", "special_service", "report_problem", "close_order", each=8)
    experts = [expert_trajectory(WORLDS[task.world], task) for task in tasks]
    store.commit(
        [
            store.write("tasks", part_id("tasks", [], {}, 1), tasks_frame(tasks)),
            store.write("trajectories", part_id("trajectories", [], {}, 1), trajectories_frame(experts, tasks)),
            store.write("tools", part_id("tools", [], {}, 1), tools_frame(WORLDS["retail"].tools)),
        ]
    )
    splits = {
        "seed": [ReleaseItem("trajectory", expert.id, expert.task_id) for expert in experts],
        "rl": [ReleaseItem("task", task.id, task.id) for task in tasks],
        "few": [ReleaseItem("task", task.id, task.id) for task in tasks[:4]],
    }
    return store, make_release(store, "rl", splits, {})


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A model folder as far as a renderer looks into it."""
    folder = tmp_path / "qwen3-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN3_8B))
    for name in ("model-00001-of-00004.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")
    (folder / "chat_template.jinja").write_text("<tool_call>")
    return folder


def stage(released: tuple[Store, str], policy: Path | None, **changes: Any) -> StageSpec:
    """An RL stage over split `rl`; with `sft`, an SFT stage over split `seed`."""
    store, release = released
    fields: dict[str, Any] = {"store": store.root, "release_id": release, "model_in": policy, "model_out": Path("/shared/stage/model")}
    fields |= (
        {"name": "sft1", "algorithm": "sft", "split": "seed"}
        if "sft" in changes
        else {"name": "rl", "algorithm": "rl", "split": "rl", "rl": RL}
    )
    return StageSpec(**(fields | changes))
