"""The cascade: what each of the three default stages adds, compared with controls of equal cost. `make bench cascade`.

The store is that of `headrace synthesize` and `headrace curate` by configs/ladder.yaml; every seed trains its own cascade in a copy of it.
Differences are of success at temperature 1 (mean of 4 draws a task) on the same held-out tasks (`eval_in`), `_greedy` of greedy draws,
`_fresh` on a second held-out set that no setting was chosen on; `_lo95`, `_hi95`: bootstrap over seeds, then tasks; `_seed0` ..: each seed.
The sections `one seed` and of asynchronous RL measure seed 0 alone.

forget_delta: RL's success less the seed SFT's, over the tasks of all intents that the seed split has, and over those that need a program;
the lower of the two (mean over seeds); gains of one intent offset losses of another. forget_worst: the largest fall of an intent with 8
tasks or more; chance contributes to it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from benchmarks.cascade_sections import rollout_queue, steps
from benchmarks.cascade_sections.arms import RUNGS, Cell, Measured, home_of, run_cell
from benchmarks.harness import ROOT, Deadline, Figures, Section, run_sections
from flows.config import Config, read
from train.measure.evaluate import CODE_MODE, Estimate, paired_difference
from train.measure.gate import FEW, falls

LADDER = ROOT / "configs" / "ladder.yaml"
KEPT = ROOT / ".cache" / "bench" / "cascade"
SEEDS = (0, 1, 2)
CELL_MINUTES = 12
ALIKE = 0.98
"""Share of tasks that two policies must both have been measured on."""
DEMANDED = (
    ("sft2_minus_sft1", "cascade", "sft2", "cascade", "sft1"),
    ("rl_minus_sft2", "cascade", "rl", "cascade", "sft2"),
    ("sft2_minus_longer_sft1", "cascade", "sft2", "longer_sft1", "longer_sft1"),
    ("rl_minus_more_sft", "cascade", "rl", "more_sft", "more_sft"),
    ("rl_random_reward", "shuffled", "shuffled", "cascade", "sft2"),
)
"""Figure, then arm and policy of what is compared, and of what it is compared with: three seeds."""
REPORTED = (
    ("rl_minus_rft", "cascade", "rl", "rft", "rft"),
    ("rl_minus_more_experts", "cascade", "rl", "more_experts", "more_experts"),
    ("rl_uniform_minus_routed", "rl_uniform", "rl_uniform", "cascade", "rl"),
    ("lite_ppo_minus_grpo", "cascade", "rl", "grpo", "grpo"),
    ("gspo_minus_grpo", "gspo", "gspo", "grpo_twice", "grpo_twice"),
    ("async_result_difference", "staleness1", "staleness1", "cascade", "rl"),
    ("async2_result_difference", "staleness2", "staleness2", "cascade", "rl"),
    ("async4_result_difference", "staleness4", "staleness4", "cascade", "rl"),
)
"""The same of seed 0 alone. GSPO and GRPO with two updates a batch: with one, both ratios are 1."""
_ENDS = ("", "_lo95", "_hi95", "_greedy", "_fresh", "_fresh_lo95", "_fresh_hi95")


def sections() -> list[Section]:
    seeds = tuple(f"_seed{seed}" for seed in SEEDS)
    demanded = tuple(f"{name}{end}" for name, *_ in DEMANDED for end in (*_ENDS, *seeds))
    rates = tuple(f"{rung}{end}" for rung in RUNGS for end in ("", "_greedy", "_fresh", "_eval_out"))
    return [
        *steps.sections(),
        Section("ladder", (*rates, *demanded, "forget_delta", "forget_code", "forget_worst", "cascade_cpu_min"), measure_ladder, 0),
        Section("one seed", (*(f"{name}{end}" for name, *_ in REPORTED for end in _ENDS), "async_stale_share"), measure_one_seed, 0),
        *rollout_queue.sections(),
    ]


# ---- cells ---------------------------------------------------------------------------------------------------------------------


class Cells:
    """Cells of one configuration, each made once and told once; a call that has no time left for the next one ends. They are kept whatever
    the code becomes: each is told with the commit that it was finished at."""

    def __init__(self, home: Path, config: Config, deadline: Deadline) -> None:
        self._home, self._config, self._deadline = home, config, deadline
        self._known: dict[tuple[str, int], Cell] = {}

    def __call__(self, arm: str, seed: int) -> Cell:
        if (arm, seed) not in self._known:
            self._known[arm, seed] = self._found(arm, seed)
        return self._known[arm, seed]

    def _found(self, arm: str, seed: int) -> Cell:
        if not (self._home / f"{arm}-{seed}.json").exists():
            self._deadline.allows(CELL_MINUTES)
        cell = run_cell(self._home, arm, seed, self._config.train, self._base)
        told = ", ".join(f"{name} {_rate(one.eval_in):.3f} greedy {_rate(one.eval_in_greedy):.3f}" for name, one in cell.policies.items())
        print(f"    seed {seed}, {arm}, at {cell.code}: {told} ({cell.cpu_s:.0f} CPU-s) {cell.told or ''}", flush=True)
        return cell

    def _base(self) -> Path:
        """A store with tasks to train on, before any training."""
        root = self._home / "base"
        done = self._home / "base.done"
        if not done.exists():
            for step in ("synthesize", "curate"):
                command = [sys.executable, "-m", "flows.cli.main", step, "--config", str(LADDER), "--store", str(root)]
                subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            done.touch()
        return root


def measure_ladder(deadline: Deadline) -> Figures:
    config = read(LADDER)
    cells = Cells(home_of(KEPT, config), config, deadline)
    ladders = [cells("cascade", seed) for seed in SEEDS]
    found = {f"{rung}{end}": _mean(ladders, rung, measured) for rung in RUNGS for end, measured in _RATES.items()}
    found |= {f"{rung}_eval_out": sum(cell.told[f"{rung}_eval_out"] for cell in ladders) / len(ladders) for rung in RUNGS}
    for figure in DEMANDED:
        found |= _compared(cells, figure, SEEDS)
    return found | forgotten(ladders) | {"cascade_cpu_min": max(cell.told["cascade_cpu_s"] for cell in ladders) / 60}


def measure_one_seed(deadline: Deadline) -> Figures:
    config = read(LADDER)
    cells = Cells(home_of(KEPT, config), config, deadline)
    found: Figures = {"async_stale_share": cells("staleness1", SEEDS[0]).told["stale_share"]}
    for figure in REPORTED:
        found |= _compared(cells, figure, SEEDS[:1])
    return {key: value for key, value in found.items() if not key.endswith("_seed0")}


# ---- figures -------------------------------------------------------------------------------------------------------------------

_RATES: Mapping[str, Callable[[Measured], dict[str, float]]] = {
    "": lambda one: one.eval_in,
    "_greedy": lambda one: one.eval_in_greedy,
    "_fresh": lambda one: one.fresh,
}


def _compared(cells: Callable[[str, int], Cell], figure: tuple[str, str, str, str, str], seeds: Sequence[int]) -> Figures:
    name, arm, policy, other_arm, other = figure
    pairs = [(cells(arm, seed).policies[policy], cells(other_arm, seed).policies[other]) for seed in seeds]
    found: Figures = {}
    for end, rates in _RATES.items():
        estimate = difference([rates(one) for one, _ in pairs], [rates(against) for _, against in pairs])
        found[f"{name}{end}"] = estimate.mean
        if end != "_greedy":
            found |= {f"{name}{end}_lo95": estimate.low, f"{name}{end}_hi95": estimate.high}
    each = {f"{name}_seed{seed}": _rate(one.eval_in) - _rate(against.eval_in) for seed, (one, against) in zip(seeds, pairs, strict=True)}
    return found | each


def difference(ours: Sequence[dict[str, float]], theirs: Sequence[dict[str, float]]) -> Estimate:
    """How much higher `ours` is; of each a table a seed: task id -> rate.

    Raises:
        ValueError: they were measured on different tasks; of one here and there, no draw may have been rated.
    """
    for seed, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if len(one.keys() & other.keys()) < ALIKE * len(one.keys() | other.keys()):
            raise ValueError(
                f"seed {seed}: {len(one)} tasks against {len(other)}, of which {len(one.keys() & other.keys())} are the same: "
                "one of the two cells was made from another store; delete its file and make it again"
            )
    return paired_difference([_table(rates) for rates in theirs], [_table(rates) for rates in ours])


def forgotten(ladders: Sequence[Cell]) -> Figures:
    """Raises ValueError where no task needs a program: the store is then of another configuration."""
    known, programs, worst = [], [], []
    for cell in ladders:
        before, after = (_table(cell.policies[rung].eval_in) for rung in ("sft1", "rl"))
        tasks = pl.DataFrame(cell.tasks)
        seen = tasks.filter(pl.col("is_earlier"))
        known.append(-_fall(before, after, seen["task_id"]))
        with_program = tasks.filter(pl.col("mode") == CODE_MODE)["task_id"]
        if with_program.is_empty():
            raise ValueError("no task of eval_in needs a program: forgetting of code tasks cannot be measured")
        programs.append(-_fall(before, after, with_program))
        by_intent = {name: fall for name, fall in falls(before, after, seen, 8).items() if name not in (FEW, CODE_MODE)}
        worst.append(-max(by_intent.values(), default=0.0))
    each = [sum(values) / len(values) for values in (known, programs, worst)]
    return {"forget_delta": min(each[:2]), "forget_code": each[1], "forget_worst": each[2]}


def _fall(before: pl.DataFrame, after: pl.DataFrame, chosen: pl.Series) -> float:
    means = [table.filter(pl.col("task_id").is_in(chosen.implode()))["rate"].mean() for table in (before, after)]
    return float(means[0]) - float(means[1])  # type: ignore[arg-type]


def _table(rates: Mapping[str, float]) -> pl.DataFrame:
    return pl.DataFrame({"task_id": list(rates), "rate": list(rates.values())})


def _rate(rates: Mapping[str, float]) -> float:
    return sum(rates.values()) / len(rates)


def _mean(cells: Sequence[Cell], policy: str, measured: Callable[[Measured], dict[str, float]]) -> float:
    return sum(_rate(measured(cell.policies[policy])) for cell in cells) / len(cells)


if __name__ == "__main__":
    raise SystemExit(run_sections("cascade", sections()))
