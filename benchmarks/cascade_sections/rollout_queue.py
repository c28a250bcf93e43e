"""Playing and learning at once: what RL gains in wall time by it, and what it learns, at bounds of staleness 0, 1, 2 and 4.

async_speedup       wall time of a whole RL stage, its start included, in turn (bound 0), over that of the same stage with a player of its
                    own (bound 1); two processes of one thread each, on two quiet cores. async2_, async4_: at bounds 2 and 4
async_step_speedup  the same of a step, starts aside: the difference between stages of two lengths, by the difference of their steps

Stages of each length take turns at all bounds, `ROUNDS` times; a figure is that of medians. Printed beside: steps and rollouts a second,
what each process waited for, what was stale or dropped, the reward at the end, and how long a hand-over of weights takes.
`run_bound` runs any RL stage at any bound: whether success on held-out tasks differs by the bound is for whoever has full stages and an
evaluation (`async_result_difference`); the stages here are of the fixed policy of `policy.py`, and short.
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
from typing import TYPE_CHECKING

from benchmarks.harness import Deadline, Figures, Section, run_tree

if TYPE_CHECKING:
    from train.spec import StageSpec

BOUNDS = (0, 1, 2, 4)
STEPS = (20, 120)
ROUNDS = 2
NAMES = {1: "async", 2: "async2", 4: "async4"}
"""How figures of a bound begin."""
POOL = 240
"""Tasks whose siblings are drawn."""


@dataclass(frozen=True)
class Stage:
    """A stage that has ended. metrics: a row a step. wall_s, cpu_s: from its start, of all its processes."""

    wall_s: float
    cpu_s: float
    weights_hash: str
    metrics: Sequence[Mapping[str, float]]

    def mean(self, name: str) -> float:
        """Of a metric, over all steps but the first, which waits for the start of the player; 0 where there is none."""
        return statistics.fmean(row.get(name, 0.0) for row in self.metrics[1:])

    @property
    def reward(self) -> float:
        """Mean of the last quarter of the steps."""
        return statistics.fmean(row["reward"] for row in self.metrics[-max(1, len(self.metrics) // 4) :])


def sections() -> list[Section]:
    keys = tuple(f"{name}{end}" for name in NAMES.values() for end in ("_speedup", "_step_speedup"))
    return [Section("async", keys, measure, minutes=20)]


def run_bound(spec: StageSpec, bound: int, folder: Path) -> Stage:
    """Runs an RL stage anew at a bound, in a process of its own; the folder receives its model, metrics and log."""
    assert spec.rl is not None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ours = spec.model_copy(update={"model_out": folder / "model", "rl": spec.rl.model_copy(update={"staleness": bound})})
    (folder / "spec.json").write_text(ours.model_dump_json())
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    usage = run_tree(
        [sys.executable, "-P", "-m", "train.run", str(folder / "spec.json")],
        log=folder / "log.txt",
        environment=os.environ | threads | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    if usage.returncode != 0:
        raise RuntimeError(f"the stage at bound {bound} ended with code {usage.returncode}: see {folder / 'log.txt'}")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return Stage(usage.wall_s, usage.cpu_s, json.loads((folder / "result.json").read_text())["weights_hash"], rows)


def measure(deadline: Deadline) -> Figures:
    with tempfile.TemporaryDirectory(prefix="headrace-async-") as scratch:
        return figures(fixed_stage(Path(scratch)), Path(scratch), STEPS, ROUNDS)


def fixed_stage(folder: Path) -> Callable[[int], StageSpec]:
    """RL of the fixed policy, on siblings of tasks that it was probed on: steps -> the spec."""
    from benchmarks.tags_sections import policy as tags_policy
    from storage.record_rows import tasks_frame
    from storage.releases.release import ReleaseItem, make_release
    from storage.store import Store, part_id
    from train.spec import RLSettings, StageSpec

    policy, tasks, store = tags_policy.policy(), tags_policy.probe_tasks(POOL), Store(folder / "store")
    store.commit([store.write("tasks", part_id("tasks", [task.id for task in tasks], {}, 1), tasks_frame(tasks))])
    release = make_release(store, "rl", {"rl": [ReleaseItem("task", task.id, task.id) for task in tasks]}, {})
    return lambda steps: StageSpec(
        name="rl",
        algorithm="rl",
        store=store.root,
        release_id=release,
        split="rl",
        model_in=policy,
        model_out=folder / "model",
        worlds=tuple(tags_policy.DRILLS),
        rl=RLSettings(max_steps=steps, checkpoint_steps=0),
    )


def figures(stage: Callable[[int], StageSpec], folder: Path, lengths: tuple[int, int], rounds: int) -> Figures:
    """Of so many stages of each length at each bound."""
    found: dict[tuple[int, int], list[Stage]] = {(bound, steps): [] for bound in BOUNDS for steps in lengths}
    for number in range(rounds):
        for (bound, steps), stages in found.items():
            stages.append(run_bound(stage(steps), bound, folder / f"{bound}-{steps}-{number}"))
            print(f"    {_told(bound, steps, stages[-1])}; load {os.getloadavg()[0]:.1f}", flush=True)
    same = all(len({one.weights_hash for one in stages}) == 1 for stages in found.values())
    print(f"    equal specs gave equal weights: {same}")
    _print_hand_over(stage(1).model_in)
    (short, long), told = lengths, stage(1).rl
    assert told is not None
    wall = {key: statistics.median(one.wall_s for one in stages) for key, stages in found.items()}
    a_step = {bound: (wall[bound, long] - wall[bound, short]) / (long - short) for bound in BOUNDS}
    for bound, seconds in a_step.items():
        rate = f"{1 / seconds:.2f} steps and {told.tasks_a_step * told.draws / seconds:.0f} rollouts a second"
        print(f"    bound {bound}: {seconds:.3f} s a step, starts aside: {rate}", flush=True)
    speedups = {f"{name}_speedup": wall[0, long] / wall[bound, long] for bound, name in NAMES.items()}
    return speedups | {f"{name}_step_speedup": a_step[0] / a_step[bound] for bound, name in NAMES.items()}


def _told(bound: int, steps: int, stage: Stage) -> str:
    waits = f"waited a step: trainer {stage.mean('wait_for_rollouts_s'):.3f} s, player {stage.mean('wait_for_updates_s'):.3f} s"
    stale = f"stale {stage.mean('stale_share'):.2f}, dropped {stage.mean('dropped'):.0f}"
    return f"bound {bound}, {steps} steps: wall {stage.wall_s:.1f} s, CPU {stage.cpu_s:.1f} s; {waits}; {stale}; reward {stage.reward:.3f}"


def _print_hand_over(policy: Path | None) -> None:
    """What it takes to write a version, and to read it in another process."""
    import torch
    from safetensors.torch import load_model, save_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(policy)
    size = sum(weights.numel() for weights in model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        draft, file = Path(folder) / "draft", Path(folder) / "version"
        spent: dict[str, list[float]] = {"written": [], "read": []}
        for _ in range(20):
            begun = time.perf_counter()
            save_model(model, str(draft))
            draft.rename(file)
            written = time.perf_counter()
            load_model(model, file)
            spent["written"].append(written - begun)
            spent["read"].append(time.perf_counter() - written)
    told = ", ".join(f"{what} in {1000 * statistics.median(times):.1f} ms" for what, times in spent.items())
    print(f"    hand-over of {size / 1e6:.2f} M weights: {told}", flush=True)


def main() -> int:
    for key, value in measure(Deadline(time.monotonic() + 3600)).items():
        print(f"{key} = {value:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
