"""What the cells say together: the table, the gain, the ceilings, and whether there was any power to say it.

One idea: without power nothing is claimed, but all figures are still written. Power means that a policy trained on the held-out domains
themselves can do their tasks (`least_power`), and that the best arm can do some (`least_arm`): else the experiment could not tell a good
set of conversations from a bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.experiment.cells import Cell
from benchmarks.experiment.config import ABOUT, TAKES_WHAT_COMES, Arm, DiversityExperimentConfig
from benchmarks.experiment.curves import Floats, ceiling, gain, rate
from train.measure.evaluate import Estimate

_NOTHING = Estimate(0.0, 0.0, 0.0)
_UNKNOWN_GAIN = Estimate(0.0, -1.0, 1.0)
_CONTROL: Arm = "shuffled"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: an arm at a size, over the seeds that were run.

    proposals_per_kept: what was proposed for each conversation that was trained on, counted in tokens: an arm that selects looks at
    `oversample` times the tokens that it keeps, and what it does not keep was paid for too.
    """

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
    proposals_per_kept: float


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """power: success of the policy trained on the held-out domains; base_code: code pass@1 of what all arms start from.

    gains: over random at the same size and seeds, by arm, at the largest size that the arm shares with random. over_even: the
    controller's over random_even. control: of the control over the base policy of its seed. All by seed and task; 0 with interval [-1, 1]
    where there is nothing to compare. ceilings: by arm that ran over all sizes. curves: a, b, c of the fit, or null. missing: cells that
    were not run. minutes: of all calls together.
    """

    rows: tuple[Row, ...]
    power: Estimate
    base_success: Estimate
    base_code: Estimate
    has_power: bool
    gains: Mapping[str, Estimate]
    over_even: Estimate
    control: Estimate
    ceilings: Mapping[str, Estimate]
    curves: Mapping[str, tuple[float, float, float] | None]
    forgetting: Mapping[str, Estimate]
    missing: int
    minutes: float

    @property
    def says(self) -> str:
        """The outcome in a sentence, and what all arms could do before."""
        base = f"the base policy reaches {self.base_success.mean:.3f}"
        found = self.gains["controller"]
        if not self.has_power:
            reached = f"a policy trained on the held-out domains reaches {self.power.mean:.3f}, the best arm {self.best_arm:.3f}"
            return f"no power: {reached}, {base}; nothing is claimed"
        more = "more" if found.low > 0 else "less" if found.high < 0 else "neither more nor less, as far as can be told,"
        return f"the controller's data gives {more} success than random: {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]; {base}"

    @property
    def best_arm(self) -> float:
        """Success of the best arm, the control left out."""
        return _best(self.rows)


def summarise(cells: Sequence[Cell], config: DiversityExperimentConfig, *, minutes: float) -> ExperimentResult:
    """The result of the cells that there are."""
    by_place = {(cell.arm, cell.size, cell.seed): cell for cell in cells}
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        if cell.arm in ABOUT:
            groups.setdefault((cell.arm, cell.size), []).append(cell)
    rows = tuple(_row(arm, size, groups[arm, size], config) for arm in ABOUT for size in config.sizes if (arm, size) in groups)
    power, base = [cell for cell in cells if cell.arm == "power"], [cell for cell in cells if cell.arm == "base"]
    reached = rate([_tasks(cell) for cell in power]) if power else _NOTHING
    fitted = {arm: _ceiling(arm, by_place, config) for arm in config.full_arms}
    return ExperimentResult(
        rows=rows,
        power=reached,
        base_success=rate([_tasks(cell) for cell in base]) if base else _NOTHING,
        base_code=rate([_code(cell) for cell in base]) if base else _NOTHING,
        has_power=reached.mean >= config.least_power and _best(rows) >= config.least_arm,
        gains={arm: _gain(arm, "random", by_place, config) for arm in ABOUT if arm != "random"},
        over_even=_gain("controller", "random_even", by_place, config),
        control=_over(base, groups.get((_CONTROL, config.ablated_size), [])),
        ceilings={arm: found[0] for arm, found in fitted.items()},
        curves={arm: found[1] for arm, found in fitted.items()},
        forgetting={row.arm: _over(groups[row.arm, row.size], base, _code) for row in rows},
        missing=len([place for place in config.cells() if place not in by_place]),
        minutes=minutes,
    )


def figures(result: ExperimentResult) -> dict[str, float]:
    """The flat figures of a result, for a benchmark table. shuffled_gain: of the control over the base policy."""
    found = {
        "experiment_power": float(result.has_power),
        "experiment_minutes": result.minutes,
        "power_check": result.power.mean,
        "best_arm": result.best_arm,
        "base_success": result.base_success.mean,
        "code_pass_base": result.base_code.mean,
        **_with_interval("diversity_gain", result.gains["controller"]),
        **_with_interval("gain_over_even", result.over_even),
        **_with_interval("shuffled_gain", result.control),
    }
    for arm in ("random", "controller"):
        found |= _with_interval(f"ceiling_{arm}", result.ceilings[arm])
        found[f"forgetting_{arm}"] = result.forgetting.get(arm, _UNKNOWN_GAIN).mean
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


def _best(rows: Sequence[Row]) -> float:
    return max((row.success.mean for row in rows if row.arm != _CONTROL), default=0.0)


def _row(arm: Arm, size: int, cells: Sequence[Cell], config: DiversityExperimentConfig) -> Row:
    looked_at = 1.0 if arm in TAKES_WHAT_COMES else config.oversample
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
        proposals_per_kept=looked_at * _mean([cell.proposals_per_talk for cell in cells]),
    )


Places = Mapping[tuple[str, int, int], Cell]


def _gain(arm: Arm, over: Arm, cells: Places, config: DiversityExperimentConfig) -> Estimate:
    """At the largest size that both arms have, over the seeds that both have there."""
    for size in sorted(config.sizes, reverse=True):
        before, after = ([cells[name, size, seed] for seed in config.seeds if (name, size, seed) in cells] for name in (over, arm))
        if {cell.seed for cell in before} & {cell.seed for cell in after}:
            return _over(before, after)
    return _UNKNOWN_GAIN


def _over(before: Sequence[Cell], after: Sequence[Cell], of: Callable[[Cell], Floats] = _tasks) -> Estimate:
    """How much higher `after` is, by task, on the seeds that both have."""
    was = {cell.seed: of(cell) for cell in before}
    pairs = [(was[cell.seed], of(cell)) for cell in after if cell.seed in was]
    return gain([first for first, _ in pairs], [second for _, second in pairs]) if pairs else _UNKNOWN_GAIN


def _ceiling(arm: str, cells: Places, config: DiversityExperimentConfig) -> tuple[Estimate, tuple[float, float, float] | None]:
    """Over the sizes that every seed which has all of the arm's has."""
    sizes = sorted({size for name, size, _ in cells if name == arm})
    seeds = [seed for seed in config.seeds if all((arm, size, seed) in cells for size in sizes)]
    if not sizes or not seeds:
        return Estimate(1.0, 0.0, 1.0), None
    success = np.stack([np.stack([_tasks(cells[arm, size, seed]) for seed in seeds]) for size in sizes])
    estimate, curve = ceiling(sizes, success)
    return estimate, (curve.a, curve.b, curve.c) if curve else None
