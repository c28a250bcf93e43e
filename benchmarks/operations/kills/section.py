"""kill -9 at seeded moments: of the flow, the Prefect server, the trainer, the worker of deployments, Ray's workers, and a model server.

kills: how many. recoveries_equal_hash: kills after which the same command or deployment (for a worker of Ray: the command that was running)
ended with the content hash of an undisturbed one. left_processes: processes in a folder that were alive ten seconds after its last command
had ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.harness import Deadline, Figures
from benchmarks.operations.kills.of_deployments import kill_workers_of_deployments
from benchmarks.operations.kills.of_model_servers import kill_model_servers
from benchmarks.operations.kills.of_ray import kill_workers_of_ray
from benchmarks.operations.kills.of_whole_runs import kill_in_whole_run
from benchmarks.operations.kills.processes import Killed
from benchmarks.operations.whole_runs import Pieces, undisturbed

KEYS = ("kills", "recoveries_equal_hash", "left_processes")
MINUTES = 10.0
KILLS = 50
APART: dict[str, Callable[[random.Random], Killed]] = {
    "ray": kill_workers_of_ray,
    "deployments": kill_workers_of_deployments,
    "model servers": kill_model_servers,
}


def measure(deadline: Deadline) -> Figures:
    """Ten kills of Ray's workers and six each of workers and model servers; then whole runs, each killed up to ten times on its way."""
    _, expected = undisturbed()
    pieces = Pieces("kills")
    for name, kill in APART.items():
        if name not in pieces.kept:
            deadline.allows(MINUTES)
            _keep(pieces, name, kill(random.Random(7)))
    while (kills := pieces.total("kills")) < KILLS:
        deadline.allows(MINUTES)
        name = f"killed-{len(pieces.kept)}"
        _keep(pieces, name, kill_in_whole_run(name, expected, random.Random(len(pieces.kept)), most=int(KILLS - kills)))
    return {key: pieces.total(figure) for key, figure in zip(KEYS, ("kills", "recovered", "left"), strict=True)}


def _keep(pieces: Pieces, name: str, killed: Killed) -> None:
    pieces.keep(name, kills=killed.kills, recovered=killed.recovered, left=killed.left)
    print(f"    {name}: {killed.kills} kills, {killed.recovered} recovered, {killed.left} processes left", flush=True)
