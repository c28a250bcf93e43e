"""The sample run: what it takes, and whether RL ends above its second SFT.

run_wall_s, run_cpu_s: of `headrace run --config configs/sample.yaml` in an empty folder, all its processes together.
rl_above_sft_seeds: of `SEEDS` seeds of training, in how many the policy of RL solves more of the held-out tasks than the one that it was
trained from, outside the 95 % interval over tasks. rl_gain_least, rl_gain_mean: that difference of success rates, over the seeds.
All seeds share the conversations and tasks of the first run: each trains in a copy of the store as it is before training.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness import ROOT, Deadline, Figures, code_mark, run_tree
from storage.store import Store
from train.measure.evaluate import Estimate, paired_difference, task_means
from train.policies import known_policy

KEYS = ("run_wall_s", "run_cpu_s", "rl_above_sft_seeds", "rl_gain_least", "rl_gain_mean")
MINUTES = 7
"""Of one seed, or of the whole run."""
SEEDS = 5
SAMPLE = ROOT / "configs" / "sample.yaml"
KEPT = ROOT / ".cache" / "bench" / "hour" / "sample"


def measure(deadline: Deadline) -> Figures:
    deadline.allows(MINUTES)
    folder = KEPT / code_mark()
    shutil.rmtree(folder / "run", ignore_errors=True)
    (folder / "run").mkdir(parents=True)
    usage = run_tree([sys.executable, "-m", "flows.cli.main", "run", "--config", str(SAMPLE)], cwd=folder / "run", log=folder / "run.log")
    gains = [gain_of(folder, seed, deadline) for seed in range(SEEDS)]
    for seed, gain in enumerate(gains):
        print(f"    seed {seed}: RL less SFT {100 * gain.mean:+.1f} points ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})", flush=True)
    return {
        "run_wall_s": usage.wall_s,
        "run_cpu_s": usage.cpu_s,
        "rl_above_sft_seeds": float(sum(gain.low > 0 for gain in gains)),
        "rl_gain_least": min(gain.mean for gain in gains),
        "rl_gain_mean": statistics.fmean(gain.mean for gain in gains),
    }


def gain_of(folder: Path, seed: int, deadline: Deadline) -> Estimate:
    """Success on held-out tasks of the policy of RL less that of its parent, after training with a seed; a seed is trained once."""
    store = folder / f"seed-{seed}" / "store"
    if not (store.parent / "done").exists():
        deadline.allows(MINUTES)
        shutil.rmtree(store.parent, ignore_errors=True)
        shutil.copytree(_untrained(folder), store)
        _headrace("train", store, {"seed": seed})
        (store.parent / "done").touch()
    opened = Store(store)
    means = [
        task_means(
            opened.query(
                "SELECT task_id, outcome FROM rollouts WHERE purpose = 'eval_in' AND policy_id = ?", [known_policy(opened, name).id]
            )
        )
        for name in ("sft2", "rl")
    ]
    return paired_difference(means[:1], means[1:])


def _untrained(folder: Path) -> Path:
    """A store with the sample's conversations and tasks, and no policy."""
    store = folder / "untrained" / "store"
    if not (store.parent / "done").exists():
        shutil.rmtree(store.parent, ignore_errors=True)
        _headrace("synthesize", store, {})
        _headrace("curate", store, {})
        (store.parent / "done").touch()
    return store


def _headrace(command: str, store: Path, train: dict[str, Any]) -> None:
    """Runs a command on the sample's configuration, with another store, and some keys of `train` changed."""
    settings = yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))
    settings["train"] |= train
    settings["store"] = str(store)
    store.parent.mkdir(parents=True, exist_ok=True)
    file = store.parent / "sample.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    with (store.parent / f"{command}.log").open("w") as log:
        call = [sys.executable, "-m", "flows.cli.main", command, "--config", str(file)]
        subprocess.run(call, cwd=ROOT, check=True, stdout=log, stderr=log)
