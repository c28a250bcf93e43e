"""Does every stage of the default cascade add success? The cascade of configs/ladder.yaml, with conversations, for three seeds.

Other than in configs/ladder.yaml, half of the seed split is synthesised conversations, the second SFT learns from every solved task, and
one probe, of 1,600 tasks, routes all stages: what a run without settings does. Held-out tasks, a third of which are conversations with a
simulated user, are the same for all; differences are of success at temperature 1 (four draws a task), with a bootstrap over seeds, then
tasks. `rl_minus_more_sft`: against SFT on the second SFT's split for RL's CPU seconds. cascade_cpu_min: of the seed that took most, probes
and evaluations included. Cells are those of benchmarks/cascade.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.cascade import LADDER, SEEDS, Cells, difference
from benchmarks.cascade_sections.arms import Measured, home_of
from benchmarks.harness import ROOT, Deadline, Figures
from flows.config import Config, read

KEPT = ROOT / ".cache" / "bench" / "links" / "ladder"
PROBE_TASKS = 1600
RUNGS = ("sft1", "sft2", "rl")
COMPARED = (("sft2_minus_sft1", "sft2", "sft1"), ("rl_minus_sft2", "rl", "sft2"), ("rl_minus_more_sft", "rl", "more_sft"))
KEYS = (
    *(f"ladder_{rung}{end}" for rung in RUNGS for end in ("", "_greedy", "_fresh")),
    *(f"{name}{end}" for name, *_ in COMPARED for end in ("", "_lo95", "_hi95")),
    "cascade_cpu_min",
)


def configuration() -> Config:
    config = read(LADDER)
    changes = {"synthesised_share": 0.5, "probe_tasks": PROBE_TASKS, "route": type(config.train.route)()}
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


def measure(deadline: Deadline) -> Figures:
    config = configuration()
    cells = Cells(home_of(KEPT, config), config, deadline)
    ladders = [cells("cascade", seed) for seed in SEEDS]
    found: Figures = {"cascade_cpu_min": max(cell.told["cascade_cpu_s"] for cell in ladders) / 60}
    policies = [cell.policies | cells("more_sft", seed).policies for seed, cell in zip(SEEDS, ladders, strict=True)]
    for rung in RUNGS:
        of_rung = [one[rung] for one in policies]
        for end, rates in {"": "eval_in", "_greedy": "eval_in_greedy", "_fresh": "fresh"}.items():
            found[f"ladder_{rung}{end}"] = sum(_rate(getattr(one, rates)) for one in of_rung) / len(of_rung)
    for name, policy, other in COMPARED:
        estimate = difference(_tables(policies, policy), _tables(policies, other))
        found |= {name: estimate.mean, f"{name}_lo95": estimate.low, f"{name}_hi95": estimate.high}
    return found


def _tables(policies: list[Mapping[str, Measured]], name: str) -> list[dict[str, float]]:
    return [one[name].eval_in for one in policies]


def _rate(rates: Mapping[str, float]) -> float:
    return sum(rates.values()) / len(rates)
