"""What the measured prior says of tasks that were not probed, beside static difficulty and beside the mean of the intent.

Three seeds, each with the seed SFT of `second.py`. Half of the probe tasks, by a coin, are probed as a cascade does; the other tasks are
unseen: each is drawn DRAWS times, and compared with the prior that the probed ones give it. All figures are Spearman's rank correlations
with the unseen tasks' failure rates, over those with a probed relative of the same need, and means over the seeds.

difficulty_spearman          of the prior; `_lo95`: lower end of the bootstrap over needs, of the seed where it is lowest
difficulty_spearman_static   of static difficulty; `_intent`: of the prior without the need
difficulty_spearman_permuted of the prior by probed tasks whose outcomes are permuted among them, mean of PERMUTATIONS: must be near 0
difficulty_spearman_ceiling  of a perfect prior: sqrt(2 r / (1 + r)), r between the two halves of the draws (Spearman and Brown)
difficulty_spearman_calls    of the prior over tasks of static difficulty 1 to 5, as a refusal is no degree of it; `_static_calls` likewise
difficulty_prior_share       unseen tasks with a probed relative of the same need / unseen tasks
unsolved_solved_later        of unseen tasks without a success in the first 8 draws and with a prior below `train.teacher.HOPELESS`: those
                             with one in the others; `_hopeless`: of the other tasks without one
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import Deadline, Figures, code_mark
from benchmarks.links_sections import second
from benchmarks.tags_sections.certainty import interval, spearman
from filters.certainty.certainty import RATED
from filters.certainty.difficulty_prior import Basis, difficulty_priors, task_groups
from storage.records import Task
from train.teacher import HOPELESS

KEYS = (
    *("difficulty_spearman", "difficulty_spearman_lo95", "difficulty_spearman_static", "difficulty_spearman_intent"),
    *("difficulty_spearman_permuted", "difficulty_spearman_ceiling", "difficulty_spearman_calls", "difficulty_spearman_static_calls"),
    *("difficulty_prior_share", "unsolved_solved_later", "unsolved_solved_later_hopeless"),
)
MINUTES = 4
"""Of one seed."""
DRAWS, FIRST = 32, 8
PERMUTATIONS = 50
STRENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
Floats = NDArray[np.float64]


def measure(deadline: Deadline) -> Figures:
    found: list[Figures] = []
    for seed in second.SEEDS:
        deadline.allows(MINUTES)
        found.append(figures_of(*_draws(seed), seed))
        print(f"    seed {seed}: { {name: round(value, 3) for name, value in found[-1].items()} }", flush=True)
    means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    return means | {"difficulty_spearman_lo95": min(one["difficulty_spearman_lo95"] for one in found)}


def _draws(seed: int) -> tuple[list[Task], pl.DataFrame, pl.DataFrame]:
    """The tasks; rollouts of the probed ones; rollouts of the unseen ones. What a killed call has drawn is found again."""
    lab = second.lab_of(second.KEPT / code_mark() / str(seed), seed)
    policy, pool = lab.first(), lab.pool()
    order = np.random.default_rng(seed).permutation(len(pool))
    probed, unseen = ([pool[at] for at in sorted(half)] for half in (order[::2], order[1::2]))
    return (
        pool,
        lab.rollouts(policy, probed, lab.prober.draws(), "probe"),
        lab.rollouts(policy, unseen, DRAWS, "unseen"),
    )


def figures_of(tasks: Sequence[Task], probed: pl.DataFrame, unseen: pl.DataFrame, seed: int) -> Figures:
    """The figures of one seed.

    Args:
        tasks: all.
        probed, unseen: columns task_id, draw, outcome; rollouts of different tasks.
    """
    probed, unseen = (rollouts.filter(pl.col("outcome").is_in(RATED)) for rollouts in (probed, unseen))
    known = task_groups(tasks).join(counts(probed), on="task_id", how="left", maintain_order="left")
    failures = unseen.group_by("task_id").agg(failure=(pl.col("outcome") != "success").mean())
    drawn = difficulty_priors(known).join(failures, on="task_id", maintain_order="left")
    covered = drawn.filter(prior_basis=Basis.NEED)
    calls = covered.filter(pl.col("difficulty") >= 1)
    failure = covered["failure"].to_numpy()
    prior = covered["difficulty_prior"].to_numpy()
    for strength in STRENGTHS:
        print(f"    seed {seed}, strength {strength}: {spearman(_priors(known, covered, strength), failure):.3f}", flush=True)
    return {
        "difficulty_spearman": spearman(prior, failure),
        "difficulty_spearman_lo95": interval(lambda at: spearman(prior[at], failure[at]), covered["need"].to_list())[0],
        "difficulty_spearman_static": spearman(as_floats(covered, "difficulty"), failure),
        "difficulty_spearman_intent": spearman(_priors(known.with_columns(need="task_id"), covered), failure),
        "difficulty_spearman_permuted": _permuted(known, covered, failure, seed),
        "difficulty_spearman_ceiling": ceiling(unseen.filter(pl.col("task_id").is_in(covered["task_id"].implode()))),
        "difficulty_spearman_calls": spearman(as_floats(calls, "difficulty_prior"), as_floats(calls, "failure")),
        "difficulty_spearman_static_calls": spearman(as_floats(calls, "difficulty"), as_floats(calls, "failure")),
        "difficulty_prior_share": covered.height / drawn.height,
        **_unsolved(covered, unseen),
    }


def counts(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Columns task_id, successes, k."""
    return rollouts.group_by("task_id").agg(successes=(pl.col("outcome") == "success").sum().cast(pl.Int32), k=pl.len().cast(pl.Int32))


def as_floats(rows: pl.DataFrame, column: str) -> Floats:
    return rows[column].cast(pl.Float64).to_numpy()


def _priors(known: pl.DataFrame, of: pl.DataFrame, strength: float | None = None) -> Floats:
    """Priors of the tasks `of`."""
    priors = difficulty_priors(known) if strength is None else difficulty_priors(known, strength=strength)
    return as_floats(of.select("task_id").join(priors, on="task_id", maintain_order="left"), "difficulty_prior")


def _permuted(known: pl.DataFrame, covered: pl.DataFrame, failure: Floats, seed: int) -> float:
    rng = np.random.default_rng(seed)
    measured, others = known.filter(pl.col("k").is_not_null()), known.filter(pl.col("k").is_null())
    outcomes = measured.select("successes", "k")
    shuffled = (measured.with_columns(outcomes[rng.permutation(measured.height)]) for _ in range(PERMUTATIONS))
    return float(np.mean([spearman(_priors(pl.concat([one, others]), covered), failure) for one in shuffled]))


def ceiling(rollouts: pl.DataFrame) -> float:
    halves = [counts(rollouts.filter(pl.col("draw") % 2 == half)).sort("task_id") for half in (0, 1)]
    between = spearman(as_floats(halves[0], "successes"), as_floats(halves[1], "successes"))
    return float(np.sqrt(2 * between / (1 + between)))


def _unsolved(covered: pl.DataFrame, unseen: pl.DataFrame) -> Figures:
    first, later = (counts(unseen.filter(of)) for of in (pl.col("draw") < FIRST, pl.col("draw") >= FIRST))
    unsolved = covered.select("task_id", "difficulty_prior").join(first.filter(successes=0).select("task_id"), on="task_id")
    rows = unsolved.join(later, on="task_id").with_columns(is_solved=(pl.col("successes") > 0).cast(pl.Float64))
    is_hopeless = pl.col("difficulty_prior") >= HOPELESS
    hopeful, hopeless = rows.filter(~is_hopeless), rows.filter(is_hopeless)
    print(
        f"    without a success in {FIRST} draws: {hopeful.height} tasks below the prior {HOPELESS}, {hopeless.height} others", flush=True
    )
    return {
        "unsolved_solved_later": float(as_floats(hopeful, "is_solved").mean()),
        "unsolved_solved_later_hopeless": float(as_floats(hopeless, "is_solved").mean()),
    }
