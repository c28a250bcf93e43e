"""Whether stages train on a real Slurm cluster, which this machine starts for itself: on two nodes, past a time limit, past a dead node.

On CPUs: the nodes' GPUs are files, and the processes of a stage meet over gloo. Needs root, Slurm (`tests/train/backends/schedulers/
own_slurm.py` says which packages) and five minutes, because Slurm's shortest time limit is one: called by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.train.backends.schedulers.own_slurm import OwnSlurm, own_slurm
from tests.train.backends.small_stages import SFT, released, spec_of
from train.backends.base import run_stage
from train.backends.cluster import ClusterConfig
from train.backends.schedulers.slurm import SlurmBackend

_MEETING_POINT = "scontrol() { echo 127.0.0.1; }"
"""Both nodes are this machine, whose name server knows neither."""
_DOWN_S = 20.0
_LONG: dict[str, Any] = {"max_steps": 8000, "checkpoint_steps": 100}


def measure() -> dict[str, float]:
    """`slurm_two_nodes_loss_difference` from one process; whether a stage that a time limit, or the death of its node, interrupts has the
    weights of an undisturbed one (`slurm_time_limit_same_weights`, `slurm_dead_node_same_weights`, 1 or 0); their seconds."""
    folder = Path(tempfile.mkdtemp(prefix="own-slurm-", dir="/tmp"))
    try:
        with own_slurm(folder) as cluster:
            os.environ["SLURM_CONF"] = str(cluster.configuration)
            return _measure(cluster, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(cluster: OwnSlurm, folder: Path) -> dict[str, float]:
    alone = _train(folder / "alone", {})
    env = {"ACCELERATE_USE_CPU": "true"}
    spread = _train(folder / "spread", {"nodes": 2, "gpus_per_node": 1, "env": env, "slurm": {"setup": [_MEETING_POINT]}})
    whole = _train(folder / "whole", {}, **_LONG)
    limited = _train(folder / "limited", {"slurm": {"time_limit": "1", "attempts": 6}}, **_LONG)
    killer = threading.Timer(25, cluster.kill_node, ["n2"])
    killer.start()
    survived = _train(folder / "survived", {"slurm": {"attempts": 2, "options": ["--exclude=n1"]}}, cluster, **_LONG)
    return {
        "slurm_two_nodes_loss_difference": abs(spread["metrics"]["loss"] - alone["metrics"]["loss"]),
        "slurm_time_limit_same_weights": float(limited["weights_hash"] == whole["weights_hash"]),
        "slurm_dead_node_same_weights": float(survived["weights_hash"] == whole["weights_hash"]),
        "slurm_alone_s": alone["seconds"],
        "slurm_two_nodes_s": spread["seconds"],
        "slurm_whole_s": whole["seconds"],
        "slurm_time_limit_s": limited["seconds"],
        "slurm_dead_node_s": survived["seconds"],
    }


def _train(folder: Path, section: dict[str, Any], returns: OwnSlurm | None = None, **settings: Any) -> dict[str, Any]:
    """The result of a stage. returns: the cluster whose node n2 comes back when the stage has waited for it for `_DOWN_S`."""
    store, release = released(folder / "store")
    stage = folder / "store" / "models" / "stage-1"
    spec = spec_of(store, release, stage, sft=SFT.model_copy(update=settings))
    down_since: list[float] = []
    has_returned: list[bool] = []

    def progress(done: int, _: int, text: str) -> None:
        if returns is None or not done or not text.startswith("waiting"):
            return
        down_since.append(time.monotonic())
        if not has_returned and time.monotonic() - down_since[0] > _DOWN_S:
            returns.start_node("n2")
            has_returned.append(True)

    begun = time.monotonic()
    result = run_stage(SlurmBackend(ClusterConfig.model_validate(section)), spec, stage, progress)
    return result | {"seconds": time.monotonic() - begun}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
