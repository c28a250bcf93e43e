"""The page of plots, `benchmarks/results/evidence.svg`: one panel a question, each with its intervals; a panel without its cells is empty.

Bars of error are 95 % intervals over seeds and tasks. The file is the same for the same cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiment import closed_loop, diversity, exchange, learnable_worlds
from benchmarks.experiment.cells import Cells, MissingCell
from benchmarks.experiment.diversity import ARMS, CURVE_ARMS, MAIN_SIZE, RATES, SIZE_SEEDS, TRAINING_TOKENS, Arm, ArmCell, arm_cell
from benchmarks.experiment.held_out import EACH, STRATA
from benchmarks.experiment.routing import arms as routing
from benchmarks.harness import ROOT
from train.measure.evaluate import Estimate, bootstrap

PAGE = ROOT / "benchmarks" / "results" / "evidence.svg"
_COLOURS = ("#3b82c4", "#d9822b", "#3d9970", "#a05fb5", "#c94f4f", "#8a7a3c")
_COMPARED: tuple[Arm, ...] = (
    "coverage",
    "coverage_two_thirds",
    "matched",
    "learned",
    "quantity",
    "controller",
    "evolved",
    "random",
    "shuffled",
)


def draw(cells: Cells, path: Path = PAGE) -> None:
    """Writes the page."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update(
        {
            "svg.hashsalt": "headrace",
            "svg.fonttype": "none",
            "font.size": 8,
            "axes.titlesize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    from matplotlib import pyplot as plt

    panels: Sequence[tuple[str, Callable[[Any, Cells], None]]] = (
        (f"Success less that of `even`, {MAIN_SIZE} conversations' worth", _arms),
        ("The same, strata weighted as drawn, worse rate", _as_drawn),
        ("Success by stratum, first learning rate", _strata),
        ("Success by size of the data", _sizes),
        (f"Second SFT x RL at {routing.BUDGET:,} rollouts", _routing),
        ("What is RL worth in expert traces?", _exchange),
        ("Two further rounds: closed loop less open, less other", _loop),
        (f"Gain of RL in {learnable_worlds.GENERATED} generated worlds", _worlds),
    )
    figure, axes = plt.subplots(4, 2, figsize=(11, 14), layout="constrained")
    for axis, (title, fill) in zip(axes.flat, panels, strict=True):
        axis.set_title(title, loc="left", fontweight="bold")
        try:
            fill(axis, cells)
        except MissingCell:
            axis.clear()
            axis.set_title(title, loc="left", fontweight="bold")
            axis.text(0.5, 0.5, "not measured yet", ha="center", va="center", transform=axis.transAxes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _arms(axis: Any, cells: Cells) -> None:
    for at, rate in enumerate(RATES):
        found = [
            diversity.difference(cells, arm_cell(cells, arm, rate, 0), arm_cell(cells, "even", rate, 0), diversity.seeds_of(arm, "even"))
            for arm in _COMPARED
        ]
        _points(axis, [one.estimate for one in found], shift=0.2 * (at - 0.5), label=f"rate {rate:g}", colour=_COLOURS[at])
    axis.set_yticks(range(len(_COMPARED)), _COMPARED)
    axis.invert_yaxis()
    axis.axvline(0, color="grey", linewidth=0.8)
    axis.set_xlabel("difference of success")
    axis.legend(frameon=False)


def _as_drawn(axis: Any, cells: Cells) -> None:
    _points(axis, [diversity.as_drawn(cells, arm, "even") for arm in _COMPARED], shift=0, label=None, colour=_COLOURS[0])
    axis.set_yticks(range(len(_COMPARED)), _COMPARED)
    axis.invert_yaxis()
    axis.axvline(0, color="grey", linewidth=0.8)
    axis.set_xlabel("difference of success")


def _points(axis: Any, found: Sequence[Estimate], *, shift: float, label: str | None, colour: str) -> None:
    places = np.arange(len(found)) + shift
    means = np.array([one.mean for one in found])
    errors = [means - [one.low for one in found], np.array([one.high for one in found]) - means]
    axis.errorbar(means, places, xerr=np.maximum(errors, 0), fmt="o", color=colour, label=label, capsize=2, markersize=4)


def _strata(axis: Any, cells: Cells) -> None:
    arms = (*ARMS, "learned")
    table = np.array(
        [
            np.mean([diversity.success(cells, arm_cell(cells, arm, RATES[0], seed)) for seed in diversity.SEEDS], axis=0)
            .reshape(len(STRATA), EACH)
            .mean(axis=1)
            for arm in arms
        ]
    )
    _heat(axis, table, arms, STRATA)


def _heat(axis: Any, table: Any, rows: Sequence[str], columns: Sequence[str]) -> None:
    axis.imshow(table, cmap="Blues", vmin=0, vmax=max(0.01, float(table.max())), aspect="auto")
    axis.set_yticks(range(len(rows)), rows)
    axis.set_xticks(range(len(columns)), columns, rotation=30, ha="right")
    for row, column in np.ndindex(table.shape):
        dark = table[row, column] > 0.6 * table.max()
        axis.text(column, row, f"{table[row, column]:.2f}", ha="center", va="center", color="white" if dark else "black")


def _sizes(axis: Any, cells: Cells) -> None:
    sizes = sorted(TRAINING_TOKENS)
    for arm, colour in zip(CURVE_ARMS, _COLOURS, strict=False):
        every = [[diversity.success(cells, ArmCell(arm, size, RATES[0], seed)) for seed in SIZE_SEEDS] for size in sizes]
        found = [bootstrap(own) for own in every]
        axis.plot(sizes, [one.mean for one in found], "o-", color=colour, label=arm, markersize=4)
        axis.fill_between(sizes, [one.low for one in found], [one.high for one in found], color=colour, alpha=0.12, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, map(str, sizes))
    axis.set_xlabel("conversations' worth of data, three seeds")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)


def _routing(axis: Any, cells: Cells) -> None:
    arms = (*routing.GRID, *routing.CONTROLS)
    found = [bootstrap([routing.rates(cells, *arm, seed) for seed in routing.SEEDS]) for arm in arms]
    _points(axis, found, shift=0, label=None, colour=_COLOURS[0])
    axis.set_yticks(range(len(arms)), [", ".join(arm) for arm in arms])
    axis.invert_yaxis()
    axis.set_xlabel("success; named by second SFT, then RL")


def _exchange(axis: Any, cells: Cells) -> None:
    config = exchange.CONFIG
    rate = exchange.measured_rate(cells)
    *curve, rl = (rung.success for rung in rate.rungs)
    counts = list(config.traces)
    axis.plot(counts, [one.mean for one in curve], "o-", color=_COLOURS[0], label="imitation of further traces", markersize=4)
    axis.fill_between(counts, [one.low for one in curve], [one.high for one in curve], color=_COLOURS[0], alpha=0.15, linewidth=0)
    axis.axhline(rl.mean, color=_COLOURS[1], label=f"RL, {rate.rollouts:,} rollouts")
    axis.axhspan(rl.low, rl.high, color=_COLOURS[1], alpha=0.15, linewidth=0)
    axis.set_xscale("symlog", linthresh=100)
    axis.set_xticks(counts, map(str, counts), rotation=30)
    axis.set_xlim(0, 1.1 * counts[-1])
    axis.set_xlabel("further expert traces")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)


def _loop(axis: Any, cells: Cells) -> None:
    rivals = closed_loop.RIVALS
    for at, weight in enumerate(closed_loop.WEIGHTS):
        found = [closed_loop.closed_minus(cells, rival, weight) for rival in rivals]
        _points(axis, found, shift=0.2 * (at - 0.5), label=f"weight {weight:g}", colour=_COLOURS[at])
    axis.set_yticks(range(len(rivals)), [f"closed less {rival}" for rival in rivals])
    axis.set_ylim(-0.5, len(rivals) - 0.5)
    axis.legend(frameon=False)
    axis.axvline(0, color="grey", linewidth=0.8)
    axis.set_xlabel("difference of success")


def _worlds(axis: Any, cells: Cells) -> None:
    every = [cells[learnable_worlds.LearnCell(world)] for world in learnable_worlds.generated()]
    bins = np.linspace(-0.2, 0.8, 41)
    axis.hist([one["gain"][0] for one in every], bins=bins, color=_COLOURS[0], alpha=0.8, label="success")
    axis.hist([one["control_gain"][0] for one in every], bins=bins, color=_COLOURS[4], alpha=0.5, label="shuffled rewards")
    axis.set_xlabel("success after RL less before")
    axis.set_ylabel("worlds")
    axis.legend(frameon=False)
