"""How many expert traces are worth as much as RL with 17,920 rollouts? As `headrace price` measures it, with larger numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.experiment.cells import DRILLS, Cells, Result, check_drills, work
from benchmarks.harness import Deadline, Figures
from train.proxy.exchange_rate import ExchangeConfig, ExchangeRate, points_of, summarise, train_point

WORLD = "retail"
CONFIG = ExchangeConfig(
    frames=480, experts=240, held_out=400, traces=(0, 100, 200, 400, 800, 1_600, 4_800), trace_tokens=900_000, steps=280, seeds=5
)
TRACE_PRICES = (1, 10, 100, 1_000)
"""Prices of a trace, in rollouts."""
KEYS = (
    "start_success",
    *(f"rl_price_traces{end}" for end in ("", "_lo95", "_hi95")),
    *(f"rl_break_even_price{end}" for end in ("", "_lo95", "_hi95")),
    "rl_gain",
    "no_traces_success",
    *(f"traces_gain_{count}" for count in CONFIG.traces[1:]),
    *(f"rl_is_cheaper_at_{price}" for price in TRACE_PRICES),
)


@dataclass(frozen=True)
class ExchangeCell:
    """A point of `headrace price`: a seed, and a number of further traces; -1 is RL, -2 the policy that all begin with."""

    seed: int
    traces: int
    drills: int = DRILLS


def run(cell: ExchangeCell) -> Result:
    check_drills(cell.drills)
    rates = train_point(WORLD, CONFIG, cell.seed, cell.traces)
    return {"rates": rates, "mean": float(np.mean(rates))}


def measure(deadline: Deadline) -> Figures:
    cells = Cells()
    work([ExchangeCell(*point) for point in points_of(CONFIG)], run, cells, deadline, minutes=6)
    return figures(cells)


def measured_rate(cells: Cells) -> ExchangeRate:
    return summarise(CONFIG, {point: np.array(cells[ExchangeCell(*point)]["rates"]) for point in points_of(CONFIG)})


def figures(cells: Cells) -> Figures:
    """`rl_break_even_price`: rollouts that bring as much as a trace. `rl_is_cheaper_at_P`: 1 if RL's gain costs less than that of as many
    traces where a trace costs P rollouts, else 0."""
    rate = measured_rate(cells)
    gains = {(rung.name, rung.amount): rung.gain.mean for rung in rate.rungs}
    most = float(CONFIG.traces[-1])
    return {
        "rl_price_traces": min(rate.traces, most),
        "rl_price_traces_lo95": min(rate.low, most),
        "rl_price_traces_hi95": min(rate.high, most),
        "rl_break_even_price": _price(rate, rate.traces),
        "rl_break_even_price_lo95": _price(rate, rate.high),
        "rl_break_even_price_hi95": _price(rate, rate.low),
        "start_success": rate.start.mean,
        "no_traces_success": next(rung.success.mean for rung in rate.rungs if rung.amount == 0),
        "rl_gain": gains["RL", rate.rollouts],
        **{f"traces_gain_{count}": gains["traces", count] for count in CONFIG.traces[1:]},
        **{f"rl_is_cheaper_at_{price}": float(rate.traces > 0 and price > rate.break_even()) for price in TRACE_PRICES},
    }


def _price(rate: ExchangeRate, traces: float) -> float:
    """Rollouts for a trace, if RL is worth so many traces: between those of the whole curve and all of RL's."""
    return rate.rollouts / min(max(traces, 1.0), float(CONFIG.traces[-1]))
