"""What the cells say together: the table, the gain, the ceilings, and whether there was any power to say it.

One idea: without power nothing is claimed, but all figures are still written. Power means that a policy trained on the held-out domains
themselves can do their tasks (`least_power`), and that the best arm can do some (`least_arm`): else the experiment could not tell a good
set of conversations from a bad one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from train.evaluate import Estimate
from train.experiment.cells import Cell
from train.experiment.config import ABOUT, DiversityExperimentConfig
from train.experiment.curves import Floats, ceiling, gain, rate

_NOTHING = Estimate(0.0, 0.0, 0.0)
_CONTROL = "shuffled"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: an arm at a size, over the seeds that were run."""

    arm: str
    size: int
    seeds: int
    success: Estimate
    code: Estimate
    domain_bits: float
    mode_bits: float
    complexity: float
    conversations: float
    tokens: float
    proposals_per_talk: float


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """power: success of the policy trained on the held-out domains; base_code: code pass@1 of what all arms start from.

    gains: over random at the same size and seeds, by arm, at the largest size that the arm shares with random. ceilings: by arm that ran
    over all sizes. curves: a, b, c of the fit, or null. missing: cells that were not run. minutes: of all calls together.
    """

    rows: tuple[Row, ...]
    power: Estimate
    base_success: Estimate
    base_code: Estimate
    has_power: bool
    gains: Mapping[str, Estimate]
    ceilings: Mapping[str, Estimate]
    curves: Mapping[str, tuple[float, float, float] | None]
    forgetting: Mapping[str, Estimate]
    missing: int
    minutes: float

    @property
    def says(self) -> str:
        """The outcome in a sentence."""
        found = self.gains["controller"]
        if not self.has_power:
            return (
                f"no power: a policy trained on the held-out domains reaches {self.power.mean:.2f}, the best arm "
                f"{max((row.success.mean for row in self.rows if row.arm != _CONTROL), default=0.0):.2f}; nothing is claimed"
            )
        more = "more" if found.low > 0 else "less" if found.high < 0 else "neither more nor less, as far as can be told,"
        return f"the controller's data gives {more} success than random: {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def summarise(cells: Sequence[Cell], config: DiversityExperimentConfig, *, minutes: float) -> ExperimentResult:
    """The result of the cells that there are."""
    by_place = {(cell.arm, cell.size, cell.seed): cell for cell in cells}
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        if cell.arm in ABOUT:
            groups.setdefault((cell.arm, cell.size), []).append(cell)
    rows = tuple(_row(arm, size, groups[arm, size]) for arm in ABOUT for size in config.sizes if (arm, size) in groups)
    power, base = [cell for cell in cells if cell.arm == "power"], [cell for cell in cells if cell.arm == "base"]
    reached = rate([_tasks(cell) for cell in power]) if power else _NOTHING
    best = max((row.success.mean for row in rows if row.arm != _CONTROL), default=0.0)
    fitted = {arm: _ceiling(arm, by_place, config) for arm in config.full_arms}
    return ExperimentResult(
        rows=rows,
        power=reached,
        base_success=rate([_tasks(cell) for cell in base]) if base else _NOTHING,
        base_code=rate([_code(cell) for cell in base]) if base else _NOTHING,
        has_power=reached.mean >= config.least_power and best >= config.least_arm,
        gains={arm: _gain(arm, by_place, config) for arm in ABOUT if arm != "random"},
        ceilings={arm: found[0] for arm, found in fitted.items()},
        curves={arm: found[1] for arm, found in fitted.items()},
        forgetting={row.arm: _forgotten(base, groups[row.arm, row.size]) for row in rows},
        missing=len([place for place in config.cells() if place not in by_place]),
        minutes=minutes,
    )


def figures(result: ExperimentResult) -> dict[str, float]:
    """The flat figures of a result, for a benchmark table. shuffled_gain: of the control over the policy that nothing was taught."""
    found = {
        "experiment_power": float(result.has_power),
        "experiment_minutes": result.minutes,
        "power_check": result.power.mean,
        "best_arm": max((row.success.mean for row in result.rows if row.arm != _CONTROL), default=0.0),
        "code_pass_base": result.base_code.mean,
        **_with_interval("diversity_gain", result.gains["controller"]),
    }
    for arm in ("random", "controller"):
        found |= _with_interval(f"ceiling_{arm}", result.ceilings[arm])
        found[f"forgetting_{arm}"] = result.forgetting.get(arm, _NOTHING).mean
    control = [row.success for row in result.rows if row.arm == _CONTROL]
    found["shuffled_gain"] = control[-1].mean - result.base_success.mean if control else 0.0
    return found


def as_json(result: ExperimentResult) -> dict[str, Any]:
    """Everything that `results.json` says: the figures, the table, the curves."""
    return {
        **figures(result),
        "says": result.says,
        "missing": result.missing,
        "gains": {arm: asdict(each) for arm, each in result.gains.items()},
        "curves": {arm: curve and list(curve) for arm, curve in result.curves.items()},
        "forgetting": {arm: asdict(each) for arm, each in result.forgetting.items()},
        "table": [asdict(row) for row in result.rows],
    }


def _with_interval(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.mean, f"{name}_lo95": estimate.low, f"{name}_hi95": estimate.high}


def _tasks(cell: Cell) -> Floats:
    return np.array([cell.tasks[task] for task in sorted(cell.tasks)], dtype=np.float64)


def _code(cell: Cell) -> Floats:
    return np.array(cell.code, dtype=np.float64)


def _mean(values: Sequence[float | None]) -> float:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else 0.0


def _row(arm: str, size: int, cells: Sequence[Cell]) -> Row:
    return Row(
        arm=arm,
        size=size,
        seeds=len(cells),
        success=rate([_tasks(cell) for cell in cells]),
        code=rate([_code(cell) for cell in cells]),
        domain_bits=_mean([cell.domain_bits for cell in cells]),
        mode_bits=_mean([cell.mode_bits for cell in cells]),
        complexity=_mean([cell.complexity for cell in cells]),
        conversations=_mean([cell.conversations for cell in cells]),
        tokens=_mean([cell.tokens for cell in cells]),
        proposals_per_talk=_mean([cell.proposals_per_talk for cell in cells]),
    )


Places = Mapping[tuple[str, int, int], Cell]


def _gain(arm: str, cells: Places, config: DiversityExperimentConfig) -> Estimate:
    """Over random, at the largest size that both have, over the seeds that both have there."""
    for size in sorted(config.sizes, reverse=True):
        seeds = [seed for seed in config.seeds if (arm, size, seed) in cells and ("random", size, seed) in cells]
        if seeds:
            before, after = ([_tasks(cells[name, size, seed]) for seed in seeds] for name in ("random", arm))
            return gain(before, after)
    return _NOTHING


def _ceiling(arm: str, cells: Places, config: DiversityExperimentConfig) -> tuple[Estimate, tuple[float, float, float] | None]:
    """Over the sizes that every seed which has all of the arm's has."""
    sizes = sorted({size for name, size, _ in cells if name == arm})
    seeds = [seed for seed in config.seeds if all((arm, size, seed) in cells for size in sizes)]
    if not sizes or not seeds:
        return Estimate(1.0, 0.0, 1.0), None
    success = np.stack([np.stack([_tasks(cells[arm, size, seed]) for seed in seeds]) for size in sizes])
    estimate, curve = ceiling(sizes, success)
    return estimate, (curve.a, curve.b, curve.c) if curve else None


def _forgotten(base: Sequence[Cell], cells: Sequence[Cell]) -> Estimate:
    """How much lower code pass@1 is than that of the base policies of the same seeds."""
    before = {cell.seed: _code(cell) for cell in base}
    pairs = [(_code(cell), before[cell.seed]) for cell in cells if cell.seed in before]
    return gain([after for after, _ in pairs], [was for _, was in pairs]) if pairs else _NOTHING
