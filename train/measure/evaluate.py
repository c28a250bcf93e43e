"""Statistics of held-out rollouts: pass@1, pass^k, intervals, and differences between policies.

One idea: tasks are resampled, not samples. The samples of a task are averaged first. With several training seeds, seeds are resampled too,
so that an interval covers both sources of variance. Policies are compared on the same tasks (paired), because tasks differ more than
policies.
pass^k is the chance that k independent samples of a task all succeed (tau-bench, Yao et al. 2024, section 3), estimated without bias by
C(successes, k) / C(samples, k).

What it does not do: roll out (`synth/rollouts/draws.py`) or promote (`train/measure/gate.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from storage.records import Task
from synth.blueprints.cell import mode_family
from synth.conversations.expert import expert_profile
from synth.intervals import wilson
from synth.worlds import WORLDS

VERSION = 5
RESAMPLES = 2000
FACETS = ("kind", "world", "language", "difficulty", "mode", "intent")
POWERS = (2, 4, 8)
"""The k of pass^k; pass^1 is the rate."""
CODE_MODE = "code"


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def describe_difference(difference: Estimate) -> str:
    """`the gain of 1.2 points is within noise (95 %: -3.0 to +5.4)`: a difference of two success rates, in words."""
    points = 100 * difference.mean
    interval = f"(95 %: {100 * difference.low:+.1f} to {100 * difference.high:+.1f})"
    if abs(points) < 0.05:
        return f"there is no difference {interval}"
    verdict = "is more than noise" if difference.is_clear else "is within noise"
    return f"the {'gain' if points > 0 else 'loss'} of {abs(points):.1f} points {verdict} {interval}"


def bootstrap(means_by_seed: Sequence[NDArray[np.float64]], *, seed: int = 0) -> Estimate:
    """The mean over seeds and tasks, with a percentile interval; seeds and tasks are resampled (crossed: all seeds have the same tasks).

    With few seeds that really differ, the interval is too narrow: simulated with three seeds and 150 tasks, the nominal 95 % cover 94 % if
    the effect's standard deviation between seeds is .03, 89 % at .064, 85 % at .1. If all values are equal, the interval has no width
    (`evaluation_rows` then uses Wilson's).

    Args:
        means_by_seed: one array per training seed, shape [tasks], in the same order of tasks; each value is a mean over a task's samples.

    Raises:
        ValueError: no seed, no task, or seeds with different numbers of tasks.
    """
    if not means_by_seed or len({len(values) for values in means_by_seed}) != 1 or len(means_by_seed[0]) == 0:
        raise ValueError(f"every seed needs the same tasks, at least one; here are {[len(values) for values in means_by_seed]} of them")
    values = np.stack(means_by_seed)
    seeds, tasks = values.shape
    rng = np.random.default_rng(seed)
    seed_shares = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    task_shares = rng.multinomial(tasks, np.full(tasks, 1 / tasks), RESAMPLES) / tasks
    low, high = np.quantile(((seed_shares @ values) * task_shares).sum(axis=1), (0.025, 0.975))
    return Estimate(float(values.mean()), float(low), float(high))


def paired_difference(first: Sequence[pl.DataFrame], second: Sequence[pl.DataFrame], *, seed: int = 0) -> Estimate:
    """Mean of `second` minus `first` on the same tasks; both hold one table of `task_means` per training seed.

    If all differences are equal, resampling gives no width. Then, as in Wilson's interval for a rate of 1, a share w = z^2 / (n + z^2) of
    tasks like these n may differ by one in either direction.

    Raises:
        ValueError: different numbers of seeds, no common task, or different tasks between seeds.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} seeds against {len(second)}")
    differences = []
    for one, other in zip(first, second, strict=True):
        both = one.join(other.select("task_id", other="rate"), on="task_id").sort("task_id")
        differences.append(both.select("task_id", difference=pl.col("other") - pl.col("rate")))
    if any(not table["task_id"].equals(differences[0]["task_id"]) for table in differences):
        raise ValueError("the seeds were not measured on the same tasks")
    values = [table["difference"].to_numpy() for table in differences]
    estimate = bootstrap(values, seed=seed)
    if np.ptp(values) > 0:
        return estimate
    otherwise = 1 - wilson(len(values[0]), len(values[0]))[0]
    shrunk_mean = estimate.mean * (1 - otherwise)
    return Estimate(estimate.mean, max(-1.0, shrunk_mean - otherwise), min(1.0, shrunk_mean + otherwise))


def task_means(rollouts: pl.DataFrame) -> pl.DataFrame:
    """task_id, samples, successes and rate over the rated rollouts (columns task_id, outcome), sorted by task."""
    return (
        rollouts.filter(pl.col("outcome").is_in(("success", "policy_failure")))
        .group_by("task_id")
        .agg(samples=pl.len(), successes=(pl.col("outcome") == "success").sum())
        .with_columns(rate=pl.col("successes") / pl.col("samples"))
        .sort("task_id")
    )


def pass_hat(means: pl.DataFrame, k: int) -> Estimate | None:
    """pass^k over the tasks of `task_means` with at least k samples; None if there are none."""
    counts = means.filter(pl.col("samples") >= k).select("successes", "samples").iter_rows()
    shares = np.array([math.comb(hits, k) / math.comb(samples, k) for hits, samples in counts])
    return _interval(shares) if len(shares) else None


def _powers(means: pl.DataFrame) -> dict[str, tuple[float, float, float]]:
    estimates = {str(k): estimate for k in POWERS if (estimate := pass_hat(means, k)) is not None}
    return {k: (round(one.mean, 6), round(one.low, 6), round(one.high, 6)) for k, one in estimates.items()}


def facets(tasks: Sequence[Task]) -> pl.DataFrame:
    """Columns task_id, kind, world, language, difficulty, mode and intent.

    kind: what a solution does: `act` changes the state, `look-up` only answers, `refusal` declines.
    mode: family of the reasoning modes of the executed expert plan; `code` for a plan with a program, which is not executed."""
    derived = {"kind": [task_kind(task) for task in tasks], "mode": [_mode(task) for task in tasks]}
    columns = {name: derived.get(name) or [getattr(task, name) for task in tasks] for name in FACETS}
    return pl.DataFrame({"task_id": [task.id for task in tasks], **columns})


def task_kind(task: Task) -> str:
    """A key of `storage.report.evaluation_queries.KINDS`."""
    if task.difficulty == -1 or task.success.refusal is not None:
        return "refusal"
    return "act" if task.success.changes else "look-up"


def _mode(task: Task) -> str:
    profile = expert_profile(WORLDS[task.world], task)
    return mode_family(profile.coarse) if profile is not None else CODE_MODE


def evaluation_rows(
    rollouts: pl.DataFrame, tasks: pl.DataFrame, *, evaluation_id: str, policy_id: str, use: str, decoding: str
) -> pl.DataFrame:
    """Rows of table `evaluations`: over all tasks, then by value of every facet. `pass_k` is JSON: k -> [pass^k, low, high].

    Intervals: bootstrap over tasks; if all tasks have the same rate, Wilson's. Tasks with fewer than k rated rollouts are left out of
    pass^k.

    Args:
        rollouts: columns task_id, outcome.
        tasks: `facets` of them.
        use: `eval_in` or `eval_out`. decoding: `sampled` or `greedy`.

    Raises:
        ValueError: no rollout was rated.
    """
    means = task_means(rollouts).join(
        tasks.select("task_id", *(pl.col(facet).cast(pl.String) for facet in FACETS)), on="task_id", how="left", maintain_order="left"
    )
    groups: list[tuple[str, str, pl.DataFrame]] = [("all", "all", means)]
    for facet in FACETS:
        groups += [(facet, str(value), group) for (value,), group in sorted(means.group_by(facet), key=lambda item: str(item[0]))]
    rows = []
    for facet, value, group in groups:
        estimate = _interval(group["rate"].to_numpy())
        rows.append(
            {
                "evaluation_id": evaluation_id,
                "policy_id": policy_id,
                "use": use,
                "decoding": decoding,
                "facet": facet,
                "facet_value": value,
                "tasks": group.height,
                "samples": int(group["samples"].sum()),
                "rate": estimate.mean,
                "low": estimate.low,
                "high": estimate.high,
                "pass_k": json.dumps(_powers(group)),
            }
        )
    return pl.DataFrame(rows, schema_overrides={"tasks": pl.Int32, "samples": pl.Int32})


def _interval(rates: NDArray[np.float64]) -> Estimate:
    """Interval of one seed's task means: bootstrap, or Wilson's with tasks as trials if all means are equal."""
    if len(rates) == 0 or rates.min() < rates.max():
        return bootstrap([rates])
    rate = float(rates[0])
    low, high = wilson(rate * len(rates), len(rates))
    return Estimate(rate, min(low, rate), max(high, rate))
