"""The queue of trajectories against batch mode, with tools that take time and one world whose tools take ten times as long.

async_speedup_4            wall of a whole RL stage in batch mode (`staleness`, whole batches by one process), over that of the same stage
                           with four rollout workers; two cores, one thread a process
async_speedup_4_in_turn    the same against a stage that plays and learns in turn (`staleness: 0`)
async_difference           success on held-out tasks after the stage with four workers, minus that after the stage in turn; mean of `SEEDS`
async_difference_lo95      lower end of its 95 % interval, over seeds and tasks (bootstrap)
simulated_vs_measured      relative difference between the wall of that stage and what a simulation says (`queue_simulation.py`)

Every call of a tool waits 20 ms, in the straggler world 200 ms (`slow_worlds.py`). In batch mode the calls that fall into one round of
tokens run side by side. A fifth of the tasks is in the straggler world. The stages with workers and in turn run with every seed of `SEEDS`
(walls: their medians); batch mode runs once, with the first seed, because it is only timed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cluster.queue_sections.slow_calls import CALL_S, STRAGGLER
from benchmarks.harness import Deadline, Figures, run_tree
from train.rl.trajectories.queue_journal import JOURNAL
from train.spec import StageSpec

if TYPE_CHECKING:
    from storage.records import Task

KEYS = ("async_speedup_4", "async_speedup_4_in_turn", "async_difference", "async_difference_lo95", "simulated_vs_measured")
MINUTES = 40
SEEDS = (0, 1, 2)
STEPS, BOUND, WORKERS = 40, 4, 4
SLOW_WORLD, SLOW_SHARE, POOL = "library", 0.2, 240
HELD_OUT = 400
"""Tasks on which success is compared."""
CALL_SECONDS = 0.02
ARMS: Mapping[str, Mapping[str, Any]] = {
    "in turn": {"staleness": 0},
    "batches": {"staleness": BOUND},
    "trajectories": {"staleness": BOUND, "rollout_workers": WORKERS},
}


@dataclass(frozen=True)
class Stage:
    """A stage that has ended. wall_s, cpu_s: of all its processes, from its start. metrics: a row a step."""

    folder: Path
    wall_s: float
    cpu_s: float
    metrics: Sequence[Mapping[str, float]]

    def mean(self, name: str) -> float:
        """Of a metric, over all steps but the first; 0 where there is none."""
        return statistics.fmean(row.get(name, 0.0) for row in self.metrics[1:])


def measure(deadline: Deadline) -> Figures:
    from benchmarks.cluster.queue_sections.queue_costs import simulated_wall

    with tempfile.TemporaryDirectory(prefix="headrace-queue-") as scratch:
        make = slow_stage(Path(scratch))
        stages = {arm: [run_arm(make, arm, seed, Path(scratch)) for seed in seeds] for arm, seeds in _seeds().items()}
        walls = {arm: statistics.median(one.wall_s for one in runs) for arm, runs in stages.items()}
        difference, low = _difference(stages["trajectories"], stages["in turn"])
        simulated = simulated_wall(make, stages, Path(scratch))
        told = ", ".join(f"{arm} {wall:.1f} s (runs: {len(stages[arm])})" for arm, wall in walls.items())
        print(f"    walls: {told}; simulated {simulated:.1f} s", flush=True)
        return {
            "async_speedup_4": walls["batches"] / walls["trajectories"],
            "async_speedup_4_in_turn": walls["in turn"] / walls["trajectories"],
            "async_difference": difference,
            "async_difference_lo95": low,
            "simulated_vs_measured": abs(simulated / walls["trajectories"] - 1),
        }


def _seeds() -> dict[str, Sequence[int]]:
    """Of each arm. Batch mode is only timed, so it runs once."""
    return {"trajectories": SEEDS, "in turn": SEEDS, "batches": SEEDS[:1]}


def slow_stage(folder: Path) -> Callable[..., StageSpec]:
    """RL of the fixed policy on tasks of a usual world and a fifth of the straggler's; (settings) -> the spec."""
    from benchmarks.tags_sections import policy as tags_policy
    from storage.record_rows import tasks_frame
    from storage.releases.release import ReleaseItem, make_release
    from storage.store import Store, part_id
    from train.spec import RLSettings

    others = [world for world in tags_policy.DRILLS if world != SLOW_WORLD]
    slow = round(SLOW_SHARE * POOL)
    tasks = tags_policy.probe_tasks(slow, worlds=[SLOW_WORLD]) + tags_policy.probe_tasks(POOL - slow, worlds=others)
    store = Store(folder / "store")
    store.commit([store.write("tasks", part_id("tasks", [task.id for task in tasks], {}, 1), tasks_frame(tasks))])
    release = make_release(store, "rl", {"rl": [ReleaseItem("task", task.id, task.id) for task in tasks]}, {})

    def make(seed: int = 0, **settings: Any) -> StageSpec:
        return StageSpec(
            name="rl",
            algorithm="rl",
            store=store.root,
            release_id=release,
            split="rl",
            model_in=tags_policy.policy(),
            model_out=folder / "model",
            worlds=tuple(tags_policy.DRILLS),
            seed=seed,
            rl=RLSettings(**{"max_steps": STEPS, "checkpoint_steps": 0, **settings}),
        )

    return make


def run_arm(make: Callable[..., StageSpec], arm: str, seed: int, scratch: Path, **settings: Any) -> Stage:
    """Runs a stage anew, in a process of its own."""
    return run_spec(make(seed, **ARMS[arm], **settings), scratch / f"{arm.replace(' ', '-')}-{seed}", f"{arm}, seed {seed}")


def run_spec(spec: StageSpec, folder: Path, name: str, journal: Path | None = None) -> Stage:
    """Runs a stage in a new folder. journal: to repeat."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if journal is not None:
        shutil.copyfile(journal, folder / JOURNAL)
    spec = spec.model_copy(update={"model_out": folder / "model"})
    (folder / "spec.json").write_text(spec.model_dump_json())
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    usage = run_tree(
        [sys.executable, "-P", "-m", "benchmarks.cluster.queue_sections.slow_worlds", str(folder / "spec.json")],
        log=folder / "log.txt",
        environment={**os.environ, **threads, "HF_HUB_OFFLINE": "1", STRAGGLER: SLOW_WORLD, CALL_S: str(CALL_SECONDS)},
    )
    if usage.returncode != 0:
        raise RuntimeError(f"the stage {name} ended with code {usage.returncode}: {(folder / 'log.txt').read_text()[-2000:]}")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    stage = Stage(folder, usage.wall_s, usage.cpu_s, rows)
    told = ", ".join(f"{figure} {stage.mean(figure):.2f}" for figure in ("staleness", "dropped", "resumed", "wait_for_rollouts_s"))
    print(f"    {name}: wall {stage.wall_s:.1f} s, CPU {stage.cpu_s:.1f} s; {told}; load {os.getloadavg()[0]:.1f}", flush=True)
    return stage


def repeat(make: Callable[..., StageSpec], recorded: Stage, scratch: Path) -> Stage:
    """Runs a stage again from its journal: it learns and plays nothing."""
    spec = StageSpec.model_validate_json((recorded.folder / "spec.json").read_text())
    return run_spec(spec, scratch / "repeated", "repeated", recorded.folder / JOURNAL)


def _difference(ours: Sequence[Stage], theirs: Sequence[Stage]) -> tuple[float, float]:
    """Mean difference of success on held-out tasks, seed by seed, and the lower end of its interval over seeds and tasks."""
    from benchmarks.tags_sections import policy as tags_policy
    from train.data.task_pool import draw

    tasks = draw(tags_policy.sources("held_out"), HELD_OUT, use="train", language="en", fewest=0)
    rates = [[success(stage.folder / "model", tasks) for stage in pair] for pair in zip(ours, theirs, strict=True)]
    pairs = np.array([one - other for one, other in rates])
    rng = np.random.default_rng(0)
    means = []
    for _ in range(2000):
        seeds = rng.integers(len(pairs), size=len(pairs))
        chosen = rng.integers(pairs.shape[1], size=pairs.shape[1])
        means.append(pairs[seeds][:, chosen].mean())
    print(f"    difference by seed: {', '.join(f'{value:+.3f}' for value in pairs.mean(axis=1))}", flush=True)
    return float(pairs.mean()), float(np.quantile(means, 0.025))


def success(model: Path, tasks: Sequence[Task], draws: int = 2) -> np.ndarray:
    """Mean success of a few draws of each task at temperature 1: shape [tasks]."""
    import torch

    from storage.records import Outcome
    from synth.engines.local.hf import HFEngine
    from synth.rollouts.episode import Episode, play

    torch.set_num_threads(1)
    episodes = [Episode(task, draw, 8) for task in tasks for draw in range(draws)]
    play(HFEngine(model), episodes, temperature=1.0, seed=1)
    outcomes = np.array([one.outcome is Outcome.SUCCESS for one in episodes], dtype=np.float64)
    return outcomes.reshape(len(tasks), draws).mean(axis=1)


def main() -> int:
    for key, value in measure(Deadline(time.monotonic() + 7200)).items():
        print(f"{key} = {value:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
