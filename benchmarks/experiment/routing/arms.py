"""Is it worth knowing what a policy is certain of? Second SFT x RL, every rollout charged.

All arms of a seed start from one seed SFT and may spend `BUDGET` rollouts; RL ends with the step that reaches it. What an arm spends before
RL (the probe, or the draws that gave it traces) it has not for RL. RL draws groups in two stages: three rollouts, and five more where these
differ.

    second SFT   certain   own traces of tasks of which the probe's draws succeed in 3 of 4 or more
                 solved    an own trace of every solved task
                 hardest   own traces of the harder half of the solved tasks
                 random    as many traces as `certain`, of tasks tried in a drawn order until each succeeds, up to 8 times; no probe
    RL           uniform   every task of the pool alike
                 weighted  a tenth alike, the rest by the share of the need's groups that are mixed, by the probe's draws
                 online    a tenth alike, the rest by that share among the need's latest groups, which begin with the probe's
    bounds       permuted  weighted, with the tags permuted among the tasks
                 oracle    weighted, by 64 draws of every task by the policy that RL starts from, which cost nothing

The probe draws each task 3 times, and 5 times more where these differ. The policy that RL starts from is not probed again.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.experiment.cells import DRILLS, VERSION, WORK, Cells, Result, check_drills, work
from benchmarks.experiment.routing.lab import Lab, RoutingSettings
from benchmarks.harness import Deadline, Figures
from filters.certainty.certainty import Region
from filters.certainty.difficulty_prior import difficulty_priors, task_groups
from filters.certainty.mixed_groups import mixed_share
from filters.certainty.route import RouteConfig, own_trace_items, rl_weights
from storage.errors import HeadraceError
from storage.releases.release import ReleaseItem
from synth.rollouts.draws import Draws
from train.backends.base import run_stage
from train.backends.local import LocalBackend
from train.measure.evaluate import Estimate, bootstrap
from train.policies import Policy
from train.spec import METRICS, RLSettings

Floats = NDArray[np.float64]
Second = Literal["certain", "solved", "hardest", "random"]
Rule = Literal["uniform", "weighted", "online", "permuted", "oracle"]
SECONDS: tuple[Second, ...] = ("certain", "solved", "hardest")
RULES: tuple[Rule, ...] = ("uniform", "weighted", "online")
GRID: tuple[tuple[Second, Rule], ...] = tuple((second, rule) for second in SECONDS for rule in RULES)
CONTROLS: tuple[tuple[Second, Rule], ...] = (("random", "uniform"), ("solved", "permuted"), ("solved", "oracle"))
SEEDS = (0, 1, 2, 3, 4)
BUDGET = 20_000
ORACLE_DRAWS, TRACE_DRAWS = 64, 8
FLOOR = 0.1
"""Share of RL's draws that is uniform in `weighted` and `online`."""
CERTAIN = 0.75
FIRST_DRAWS, GROUP, TASKS_A_STEP = 3, 8, 16
_LEAST_A_STEP = TASKS_A_STEP * FIRST_DRAWS
_HOME = WORK / f"routing-{VERSION}"


@dataclass(frozen=True)
class SeedCell:
    """The seed SFT of a seed, and its probe."""

    seed: int
    drills: int = DRILLS


@dataclass(frozen=True)
class SecondCell:
    """The second SFT by one rule."""

    second: Second
    seed: int
    drills: int = DRILLS


@dataclass(frozen=True)
class RoutedCell:
    """Second SFT by one rule, then RL by another."""

    second: Second
    rule: Rule
    seed: int
    drills: int = DRILLS


def two_stage() -> Draws:
    """3 draws, and 8 where these differ."""
    return Draws(
        (FIRST_DRAWS, GROUP),
        lambda successes, rated, left: successes in (0, rated),
        {"first": FIRST_DRAWS, "then": GROUP, "where": "they differ"},
    )


def home_of(cell: SeedCell | SecondCell | RoutedCell) -> Path:
    """The folder of a seed, or of what is trained from it: each has a store of its own, so that processes never share one."""
    return _HOME / "-".join(map(str, reversed(astuple(cell))))


def lab_of(home: Path, seed: int) -> Lab:
    return Lab(home, seed, RoutingSettings(), partial(run_stage, LocalBackend()))


def _copied(source: Path, home: Path) -> Path:
    """The folder, begun as a copy of another one."""
    if not home.exists():
        draft = home.with_name(f".draft-{home.name}")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(source, draft)
        draft.rename(home)
    return home


def run_seed(cell: SeedCell) -> Result:
    """Trains the seed SFT and probes it; its success, and what the probe cost."""
    check_drills(cell.drills)
    lab = lab_of(home_of(cell), cell.seed)
    first = lab.first()
    _, rollouts = probe(lab, first)
    return _measured(lab, first) | {"probe": rollouts.height}


def probe(lab: Lab, policy: Policy) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Columns task_id, need, intent, difficulty, successes, k of the pool's tasks, and the rollouts."""
    rollouts = lab.rollouts(policy, lab.pool(), two_stage(), "probe")
    return _counted(lab, rollouts), rollouts


def _counted(lab: Lab, rollouts: pl.DataFrame) -> pl.DataFrame:
    counts = rollouts.group_by("task_id").agg(successes=(pl.col("outcome") == "success").sum().cast(pl.Int64), k=pl.len().cast(pl.Int64))
    groups = task_groups(lab.pool()).join(counts, on="task_id", how="left", maintain_order="left")
    return groups.with_columns(pl.col("successes", "k").fill_null(0)).sort("task_id")


def run_second(cell: SecondCell) -> Result:
    """Trains the second SFT; what its traces cost, and how many there are."""
    check_drills(cell.drills)
    lab = lab_of(_copied(home_of(SeedCell(cell.seed)), home_of(cell)), cell.seed)
    _, traces, spent = _second(lab, cell)
    return {"traces": len(traces), "spent": spent}


def _second(lab: Lab, cell: SecondCell | RoutedCell) -> tuple[Policy, list[ReleaseItem], int]:
    first = lab.first()
    counted, rollouts = probe(lab, first)
    spent = rollouts.height
    rates = counted.filter(pl.col("successes") > 0).with_columns(rate=pl.col("successes") / pl.col("k"))
    certain = rates.filter(pl.col("rate") >= CERTAIN)
    if cell.second == "random":
        traces, spent = _found_traces(lab, first, len(own_trace_items(certain["task_id"], rollouts)))
    else:
        harder = rates.join(difficulty_priors(counted).select("task_id", "difficulty_prior"), on="task_id", how="left")
        harder = harder.sort("rate", -pl.col("difficulty_prior"), "task_id").head((rates.height + 1) // 2)
        chosen = {"certain": certain, "solved": rates, "hardest": harder}[cell.second]
        traces = own_trace_items(chosen["task_id"], rollouts)
    split = {"sft2": [*lab.experts(), *traces]}
    return lab.stage(f"{cell.second}-sft2", first, split, lab.config.stage("sft2").settings), traces, spent


def _found_traces(lab: Lab, policy: Policy, wanted: int) -> tuple[list[ReleaseItem], int]:
    """So many different traces of tasks in a drawn order, and how many rollouts it took to find them."""
    pool = sorted(lab.pool(), key=lambda task: task.id)
    random.Random(f"order/{lab.seed}").shuffle(pool)
    until = Draws((1, 2, 4, TRACE_DRAWS), lambda successes, rated, left: successes > 0, {"until": "success", "most": TRACE_DRAWS})
    made = lab.rollouts(policy, pool, until, "traces")  # of a task that is not reached, nothing is charged
    places = {task.id: place for place, task in enumerate(pool)}
    counts = made.group_by("task_id").agg(cost=pl.len(), solved=(pl.col("outcome") == "success").any())
    order = counts.with_columns(place=pl.col("task_id").replace_strict(places)).sort("place")
    return first_traces(order, made, wanted)


def first_traces(order: pl.DataFrame, made: pl.DataFrame, wanted: int) -> tuple[list[ReleaseItem], int]:
    """The first `wanted` different traces, and the rollouts up to the task that gives the last: equal ones count once, so it can take more
    solved tasks than traces.

    Args:
        order: columns task_id, cost, solved, in the order of the tries.

    Raises:
        HeadraceError: there are fewer.
    """
    for solved in range(wanted, int(order["solved"].sum()) + 1):
        reached = order.filter(pl.col("solved").cum_sum() - pl.col("solved") < solved)
        traces = own_trace_items(reached.filter(pl.col("solved"))["task_id"], made)
        if len(traces) >= wanted:
            return traces, int(reached["cost"].sum())
    raise HeadraceError(f"fewer than {wanted} different traces were found; make the pool larger")


def run_routed(cell: RoutedCell) -> Result:
    """RL with what is left of the budget; success on the held-out tasks, rollouts of each kind, and how many taught nothing."""
    check_drills(cell.drills)
    lab = lab_of(_copied(home_of(SecondCell(cell.second, cell.seed)), home_of(cell)), cell.seed)
    policy, traces, spent = _second(lab, cell)
    settings = rl_settings(lab, BUDGET - spent, follows=cell.rule == "online")
    manifest = {"routing": RouteConfig(rl_uniform=FLOOR).model_dump(), "probed_policy": lab.first().id}
    final = lab.stage(f"{cell.second}-{cell.rule}", policy, {"rl": _rl_items(lab, cell, policy)}, settings, manifest)
    steps = [json.loads(line) for line in (final.path.parent / METRICS).read_text().splitlines()]
    made = sum(step["rollouts"] for step in steps)
    taught = sum((1 - step["idle_share"]) * TASKS_A_STEP * GROUP for step in steps)
    result = _measured(lab, final)
    shutil.rmtree(home_of(cell))
    return result | {"spent": spent, "rl": int(made), "steps": len(steps), "idle": 1 - taught / made, "traces": len(traces)}


def rl_settings(lab: Lab, rollouts: int, *, follows: bool) -> RLSettings:
    """Of a stage that ends after so many rollouts. The learning rate stays, because the number of steps is not known before."""
    settings = lab.config.stage("rl").settings
    assert isinstance(settings, RLSettings)
    groups = {"tasks_a_step": TASKS_A_STEP, "draws": GROUP, "first_draws": FIRST_DRAWS, "follow_tags": follows}
    ends = {"max_rollouts": rollouts, "max_steps": rollouts // _LEAST_A_STEP + 1, "final_rate_share": 0.999}
    return RLSettings.model_validate(settings.model_dump() | groups | ends)


def _rl_items(lab: Lab, cell: RoutedCell, policy: Policy) -> list[ReleaseItem]:
    """RL's tasks with their weights."""
    counted, _ = probe(lab, lab.first())
    weights = pl.Series([1 / counted.height] * counted.height)
    if cell.rule == "oracle":
        counted = _counted(lab, lab.rollouts(policy, lab.pool(), ORACLE_DRAWS, "oracle"))
    if cell.rule in ("weighted", "permuted", "oracle"):
        potential = known_share(counted) if cell.rule == "oracle" else probed_share(counted)
        if cell.rule == "permuted":
            potential = potential.shuffle(seed=cell.seed)
        tags = counted.select("task_id", region=pl.lit(Region.UNCERTAIN), learnability=potential)
        weights = rl_weights(tags, {}, FLOOR)
    return [
        ReleaseItem("task", task, task, round(weight, 12)) for task, weight in zip(counted["task_id"], weights, strict=True) if weight > 0
    ]


def probed_share(counted: pl.DataFrame) -> pl.Series:
    """The share of mixed groups of each task's need, by the probe's draws: a group of each task."""
    mixed = pl.col("successes").is_between(1, pl.col("k") - 1).cast(pl.Int64)
    return mixed_share(counted.with_columns(mixed=mixed, groups=(pl.col("k") > 1).cast(pl.Int64)))


def known_share(counted: pl.DataFrame) -> pl.Series:
    """The same by success rates that are known: the mean over the need's tasks of the chance that `FIRST_DRAWS` draws differ."""
    rate = pl.col("successes") / pl.col("k")
    return counted.select(share=(1 - rate**FIRST_DRAWS - (1 - rate) ** FIRST_DRAWS).mean().over("need"))["share"]


def _measured(lab: Lab, policy: Policy) -> Result:
    success = lab.success(policy)
    tasks = sorted(success.sampled)
    sampled, greedy = [success.sampled[task] for task in tasks], [success.greedy[task] for task in tasks]
    return {"sampled": sampled, "greedy": greedy, "sampled_mean": float(np.mean(sampled)), "greedy_mean": float(np.mean(greedy))}


# ---- figures --------------------------------------------------------------------------------------------------------------------


def rates(cells: Cells, second: Second, rule: Rule, seed: int, decoding: str = "sampled") -> Floats:
    return np.array(cells[RoutedCell(second, rule, seed)][decoding])


def difference(cells: Cells, of: tuple[Second, Rule], to: tuple[Second, Rule], decoding: str = "sampled") -> Estimate:
    return bootstrap([rates(cells, *of, seed, decoding) - rates(cells, *to, seed, decoding) for seed in SEEDS])


def seconds_difference(cells: Cells, of: Second, to: Second) -> Estimate:
    """Of two second SFTs, each the mean over the grid's rules of RL."""
    return bootstrap([np.mean([rates(cells, of, rule, seed) - rates(cells, to, rule, seed) for rule in RULES], axis=0) for seed in SEEDS])


def rules_difference(cells: Cells, of: Rule, to: Rule) -> Estimate:
    """Of two rules of RL, each the mean over the grid's second SFTs."""
    return bootstrap([np.mean([rates(cells, one, of, seed) - rates(cells, one, to, seed) for one in SECONDS], axis=0) for seed in SEEDS])


def best_by_the_others(cells: Cells) -> Mapping[int, tuple[Second, Rule]]:
    """For each seed the arm of the grid with the highest mean over the *other* seeds, so that no seed chooses what it is measured by."""
    means = {arm: {seed: float(rates(cells, *arm, seed).mean()) for seed in SEEDS} for arm in GRID}
    return {seed: max(GRID, key=lambda arm: sum(mean for other, mean in means[arm].items() if other != seed)) for seed in SEEDS}


def best_minus_random(cells: Cells, decoding: str = "sampled") -> Estimate:
    chosen = best_by_the_others(cells)
    return bootstrap([rates(cells, *chosen[seed], seed, decoding) - rates(cells, "random", "uniform", seed, decoding) for seed in SEEDS])


def mean_over(cells: Cells, arms: Sequence[tuple[Second, Rule]], name: str) -> float:
    return float(np.mean([cells[RoutedCell(*arm, seed)][name] for arm in arms for seed in SEEDS]))


def routed() -> list[RoutedCell]:
    return [RoutedCell(*arm, seed) for seed in SEEDS for arm in (*GRID, *CONTROLS)]


def prepare(cells: Cells, deadline: Deadline, wanted: Sequence[RoutedCell]) -> None:
    """Makes the seed SFTs and the second SFTs that the wanted cells start from, where they are missing."""
    undone = [cell for cell in wanted if cell not in cells]
    first = [SeedCell(seed) for seed in dict.fromkeys(cell.seed for cell in undone)]
    second = list(dict.fromkeys(SecondCell(cell.second, cell.seed) for cell in undone))
    work([cell for cell in first if cell not in cells or not home_of(cell).exists()], run_seed, cells, deadline, minutes=4, again=True)
    work([cell for cell in second if cell not in cells or not home_of(cell).exists()], run_second, cells, deadline, minutes=3, again=True)


def figures(cells: Cells) -> Figures:
    compared = {
        "routing_best_minus_random": best_minus_random(cells),
        "routing_best_minus_random_greedy": best_minus_random(cells, "greedy"),
        "tags_minus_permuted": difference(cells, ("solved", "weighted"), ("solved", "permuted")),
        "oracle_minus_uniform": difference(cells, ("solved", "oracle"), ("solved", "uniform")),
        "solved_minus_certain": seconds_difference(cells, "solved", "certain"),
        "solved_minus_hardest": seconds_difference(cells, "solved", "hardest"),
        "weighted_minus_uniform": rules_difference(cells, "weighted", "uniform"),
        "online_minus_uniform": rules_difference(cells, "online", "uniform"),
    }
    found: Figures = {
        **{f"{key}{end}": value for key, estimate in compared.items() for end, value in _interval(estimate).items()},
        "routing_seed_sft": float(np.mean([cells[SeedCell(seed)]["sampled_mean"] for seed in SEEDS])),
        "idle_rows": mean_over(cells, [("solved", "online")], "idle"),
        "idle_rows_uniform": mean_over(cells, [("solved", "uniform")], "idle"),
        "idle_rows_oracle": mean_over(cells, [("solved", "oracle")], "idle"),
        **{f"routing_traces_{second}": mean_over(cells, [(second, "uniform")], "traces") for second in (*SECONDS, "random")},
    }
    for second, rule in (*GRID, *CONTROLS):
        found[f"routing_{second}_{rule}"] = mean_over(cells, [(second, rule)], "sampled_mean")
        found[f"routing_{second}_{rule}_greedy"] = mean_over(cells, [(second, rule)], "greedy_mean")
    return found


def _interval(estimate: Estimate) -> Figures:
    return {"": estimate.mean, "_lo95": estimate.low, "_hi95": estimate.high}


_COMPARED = (
    "routing_best_minus_random",
    "routing_best_minus_random_greedy",
    "tags_minus_permuted",
    "oracle_minus_uniform",
    "solved_minus_certain",
    "solved_minus_hardest",
    "weighted_minus_uniform",
    "online_minus_uniform",
)
KEYS = (
    *(f"{key}{end}" for key in _COMPARED for end in ("", "_lo95", "_hi95")),
    "routing_seed_sft",
    "idle_rows",
    "idle_rows_uniform",
    "idle_rows_oracle",
    *(f"routing_traces_{second}" for second in (*SECONDS, "random")),
    *(f"routing_{second}_{rule}{end}" for second, rule in (*GRID, *CONTROLS) for end in ("", "_greedy")),
)
