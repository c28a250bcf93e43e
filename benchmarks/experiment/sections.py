"""The sections of `make bench evidence`. Their trainings are cells (`cells.py`), so what a killed or timed-out call has done is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.experiment import closed_loop, data_value, diversity, exchange, learnable_worlds, learned
from benchmarks.experiment.cells import WORK, Cells, Result, work
from benchmarks.experiment.diversity import MAIN_SIZE, PRIMARY_SEEDS, RATES, SEEDS, SIZE_SEEDS, Arm, ArmCell
from benchmarks.experiment.ground import BASES, SETTING_SEED, base_of, ground_of
from benchmarks.experiment.held_out import EACH, STRATA
from benchmarks.experiment.routing import arms
from benchmarks.harness import Deadline, Figures, Section
from train.measure.evaluate import Estimate


def _word(stratum: str) -> str:
    return stratum.replace(":", "").replace(" ", "_").replace("-", "_")


_INTERVAL = ("", "_lo95", "_hi95")
_COMPARED: tuple[Arm, ...] = ("coverage_two_thirds", "controller", "quantity", "learned", "matched", "random", "evolved")
_RIVALS: tuple[Arm, ...] = ("coverage_two_thirds", "matched", "quantity")
_COUNTED: tuple[Arm, ...] = ("even", "coverage", "coverage_two_thirds", "learned", "quantity")
_DRAWN: tuple[Arm, ...] = ("coverage", "coverage_two_thirds", "controller", "quantity", "learned")
"""Arms that are compared by strata that count as often as they are drawn, too."""
DIVERSITY_KEYS = (
    "base_act",
    "strata_min_n",
    "power_detectable",
    *(f"coverage_minus_even{end}" for end in (*_INTERVAL, "_sampled", "_sampled_lo95")),
    "coverage_worst_stratum",
    *(f"coverage_minus_even_{_word(stratum)}{end}" for stratum in STRATA for end in _INTERVAL),
    *(f"{arm}_minus_even_as_drawn{end}" for arm in _DRAWN for end in _INTERVAL),
    "shuffled_hi95",
    *(f"coverage_minus_{arm}{end}" for arm in _RIVALS for end in _INTERVAL),
    "coverage_two_thirds_worst_stratum",
    *(f"learned_minus_coverage{rate}{end}" for rate in ("", "_better") for end in _INTERVAL),
    *(f"{arm}_minus_even{rate}{end}" for arm in _COMPARED for rate in ("", "_better") for end in _INTERVAL),
    "even_unmeasured",
    *(f"conversations_{arm}" for arm in _COUNTED),
    *(f"{arm}_{size}" for size in diversity.TRAINING_TOKENS for arm in diversity.CURVE_ARMS),
)


def sections() -> list[Section]:
    return [
        Section("diversity", DIVERSITY_KEYS, measure_diversity, minutes=1),
        Section("value", data_value.KEYS, data_value.measure, minutes=1),
        Section("routing", arms.KEYS, measure_routing, minutes=1),
        Section("price", exchange.KEYS, exchange.measure, minutes=1),
        Section("loop", closed_loop.KEYS, measure_loops, minutes=1),
        Section("worlds", learnable_worlds.KEYS, learnable_worlds.measure, minutes=1),
    ]


@dataclass(frozen=True)
class BaseCell:
    """A base policy, as it is."""

    base: int


def run_base(cell: BaseCell) -> Result:
    from transformers import AutoModelForCausalLM

    ground = ground_of(cell.base)
    return diversity.measured(AutoModelForCausalLM.from_pretrained(ground.base(cell.base)), ground.tokenizer(), cell.base, is_sampled=False)


def prepare(cells: Cells, deadline: Deadline) -> None:
    """Makes what the workers share, and the base policies."""
    ground_of(0).tokenizer()
    bases = [BaseCell(base) for base in range(BASES)]
    missing = [one for one in bases if one not in cells or not (WORK / "main" / "bases" / str(one.base)).exists()]
    work(missing, run_base, cells, deadline, minutes=15, again=True)


def measure_diversity(deadline: Deadline) -> Figures:
    cells = Cells()
    wanted = [*diversity.main_cells(cells, diversity.ARMS), *diversity.size_cells()]
    shares = [diversity.SharesCell(seed) for seed in PRIMARY_SEEDS]
    if any(cell not in cells for cell in (*wanted, *shares)):
        prepare(cells, deadline)
        work(wanted, diversity.run, cells, deadline, minutes=4)
        work(shares, diversity.run_shares, cells, deadline, minutes=2)
    if any(cell not in cells for cell in learned.proxies()):
        ground_of(SETTING_SEED).base(SETTING_SEED)
        work(learned.proxies(), learned.run_proxy, cells, deadline, minutes=2)
    work(diversity.main_cells(cells, ["learned"]), diversity.run, cells, deadline, minutes=4)
    return diversity_figures(cells)


def measure_routing(deadline: Deadline) -> Figures:
    cells = Cells()
    arms.prepare(cells, deadline, arms.routed())
    work(arms.routed(), arms.run_routed, cells, deadline, minutes=6)
    return arms.figures(cells)


def measure_loops(deadline: Deadline) -> Figures:
    cells = Cells()
    if not closed_loop.is_whole(cells):
        prepare(cells, deadline)
        closed_loop.probe_set(0)
    return closed_loop.measure_loops(cells, deadline)


def diversity_figures(cells: Cells) -> Figures:
    """The figures of the section diversity from its cells."""
    act = np.repeat(STRATA, EACH) == "act"
    bases = [diversity.success(cells, BaseCell(base)) for base in range(BASES)]
    coverage, sampled = diversity.worse(cells, "coverage", "even"), diversity.worse(cells, "coverage", "even", "sampled")
    figures: Figures = {
        "base_act": float(np.mean([base[act].mean() for base in bases])),
        "strata_min_n": float(EACH),
        "power_detectable": 2.8 * coverage.standard_error,
        **_with_interval("coverage_minus_even", coverage.estimate),
        "coverage_minus_even_sampled": sampled.estimate.mean,
        "coverage_minus_even_sampled_lo95": sampled.estimate.low,
        "coverage_worst_stratum": min(one.mean for one in coverage.by_stratum.values()),
        "shuffled_hi95": max(
            diversity.difference_to_base(cells, ArmCell("shuffled", MAIN_SIZE, rate, 0), [BaseCell(base_of(seed)) for seed in SEEDS]).high
            for rate in RATES
        ),
    }
    for stratum, estimate in coverage.by_stratum.items():
        figures |= _with_interval(f"coverage_minus_even_{_word(stratum)}", estimate)
    for arm in _COMPARED:
        figures |= _with_interval(f"{arm}_minus_even", diversity.worse(cells, arm, "even").estimate)
        figures |= _with_interval(f"{arm}_minus_even_better", diversity.better(cells, arm, "even").estimate)
    for arm in _DRAWN:
        figures |= _with_interval(f"{arm}_minus_even_as_drawn", diversity.as_drawn(cells, arm, "even"))
    for arm in _RIVALS:
        figures |= _with_interval(f"coverage_minus_{arm}", diversity.worse(cells, "coverage", arm).estimate)
    figures["coverage_two_thirds_worst_stratum"] = min(
        one.mean for one in diversity.worse(cells, "coverage_two_thirds", "even").by_stratum.values()
    )
    figures |= _with_interval("learned_minus_coverage", diversity.worse(cells, "learned", "coverage").estimate)
    figures |= _with_interval("learned_minus_coverage_better", diversity.better(cells, "learned", "coverage").estimate)
    figures["even_unmeasured"] = float(np.mean([cells[diversity.SharesCell(seed)]["unmeasured"] for seed in PRIMARY_SEEDS]))
    for arm in _COUNTED:
        trained = [cells[diversity.arm_cell(cells, arm, RATES[0], seed)] for seed in SEEDS]
        figures[f"conversations_{arm}"] = float(np.mean([one["conversations"] for one in trained]))
    for size in diversity.TRAINING_TOKENS:
        for arm in diversity.CURVE_ARMS:
            rates = [diversity.success(cells, ArmCell(arm, size, RATES[0], seed)).mean() for seed in SIZE_SEEDS]
            figures[f"{arm}_{size}"] = float(np.mean(rates))
    return figures


def _with_interval(key: str, estimate: Estimate) -> Figures:
    return {key: estimate.mean, f"{key}_lo95": estimate.low, f"{key}_hi95": estimate.high}
