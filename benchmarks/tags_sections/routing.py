"""Is it worth probing, to decide which task goes to the second SFT and which to RL? Three rules at one budget of rollouts.

`routing_certainty_minus_random`, `_minus_static`: success on held-out siblings (eval_in; temperature 1) of the policy that each rule leaves
after second SFT and RL, paired by seed and task; `_lo95`, `_hi95`: bootstrap over seeds and tasks; `_seed0` .. `_seed2`: each training seed
alone; `_greedy`: of greedy draws. `routing_RULE`, `routing_RULE_sft2`, `routing_sft1`: success itself, at temperature 1.
The budget: every rule may spend `budget` rollouts B, and what it spends before RL it has not for RL:

    certainty   P1 + P2 (two probes of the pool, 8 to 16 draws a task) + 64 S        S = floor((B - P1 - P2) / 64) steps of RL
    the others  T (draws until as many verified traces are found) + 64 S             S = floor((B - T) / 64)

so all totals lie in (B - 64, B]. Equal for all rules of a seed: the seed SFT's policy, the second SFT's steps and number of traces, the
pool, and how RL divides its draws (half of them uniformly over the whole pool, half over what the rule sends to RL).
Settings were chosen on seed 0 and other held-out siblings. Cells are kept (`benchmarks/tags_sections/routing_cells.py`) beside the figures,
in a folder named by the settings: code that changes what they are must raise its VERSION.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from benchmarks.harness import ROOT, Deadline, Figures, Section
from benchmarks.tags_sections.routing_cells import FIRST, RULES, Cell, RoutingSettings, home_of, run_cell
from train.measure.evaluate import paired_difference

KEPT = ROOT / ".cache" / "bench" / "routing"
SEEDS = (0, 1, 2)
RIVALS = ("random", "static")
CELL_MINUTES = 5
_ENDS = ("", "_lo95", "_hi95", *(f"_seed{seed}" for seed in SEEDS), "_greedy", "_greedy_lo95", "_greedy_hi95")
KEYS = (
    *(f"routing_certainty_minus_{rival}{end}" for rival in RIVALS for end in _ENDS),
    *(f"routing_{name}{end}" for name in (FIRST, *RULES) for end in ("", "_greedy")),
    *(f"routing_{rule}_{what}" for rule in RULES for what in ("sft2", "rollouts", "rl_share")),
    "routing_own_traces",
)


def sections() -> list[Section]:
    return [Section("routing", KEYS, measure, minutes=0)]


def measure(deadline: Deadline, *, folder: Path = KEPT, settings: RoutingSettings = RoutingSettings()) -> Figures:  # noqa: B008 (frozen)
    """Raises OutOfTime where cells are missing when the time is up; the next call makes them."""
    home = home_of(folder, settings)
    cells: dict[str, list[Cell]] = {rule: [] for rule in (FIRST, *RULES)}
    for seed in SEEDS:
        for rule, own in cells.items():
            if not (home / f"{rule}-{seed}.json").exists():
                deadline.allows(CELL_MINUTES)
            cell = run_cell(home, rule, seed, settings)
            own.append(cell)
            print(f"    {_told(cell)}", flush=True)
    return figures(cells)


def figures(cells: dict[str, list[Cell]]) -> Figures:
    """Of the cells of every rule, one a seed, in the order of SEEDS."""
    found: Figures = {"routing_own_traces": _mean([cell.own_traces for cell in cells["certainty"]])}
    for rule, own in cells.items():
        found[f"routing_{rule}"] = _mean([_rate(cell.final.sampled) for cell in own])
        found[f"routing_{rule}_greedy"] = _mean([_rate(cell.final.greedy) for cell in own])
        if rule != FIRST:
            totals = [sum(cell.spent.values()) for cell in own]
            found[f"routing_{rule}_rollouts"] = _mean(totals)
            found[f"routing_{rule}_rl_share"] = _mean([cell.spent["rl"] for cell in own]) / _mean(totals)
            found[f"routing_{rule}_sft2"] = _mean([_rate(cell.sft2.sampled) for cell in own if cell.sft2])
    for rival in RIVALS:
        key = f"routing_certainty_minus_{rival}"
        for end, decoding in (("", "sampled"), ("_greedy", "greedy")):
            tables = [[_table(getattr(cell.final, decoding)) for cell in cells[rule]] for rule in (rival, "certainty")]
            estimate = paired_difference(*tables)
            found |= {f"{key}{end}": estimate.mean, f"{key}{end}_lo95": estimate.low, f"{key}{end}_hi95": estimate.high}
        for seed, ours, theirs in zip(SEEDS, cells["certainty"], cells[rival], strict=True):
            found[f"{key}_seed{seed}"] = _rate(ours.final.sampled) - _rate(theirs.final.sampled)
    return found


def _told(cell: Cell) -> str:
    name = f"seed {cell.seed}, {cell.rule}, at {cell.code or 'an unknown commit'}"
    told = f"{name}: {_rate(cell.final.sampled):.3f}, greedy {_rate(cell.final.greedy):.3f}"
    if cell.sft2 is None:
        return told
    spent = ", ".join(f"{what} {count}" for what, count in cell.spent.items())
    return f"{told} (second SFT {_rate(cell.sft2.sampled):.3f}; rollouts: {spent}; {cell.own_traces} own traces; {cell.cpu_s:.0f} CPU-s)"


def _table(rates: dict[str, float]) -> pl.DataFrame:
    return pl.DataFrame({"task_id": list(rates), "rate": list(rates.values())})


def _rate(rates: dict[str, float]) -> float:
    return _mean(list(rates.values()))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
