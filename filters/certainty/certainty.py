"""Certainty: the tag of a task from k rollouts of a policy (definition P7).

Only rated outcomes count (`success`, `policy_failure`); a rollout that failed through the infrastructure is no evidence against a policy. A
task with too few rated rollouts gets no tag until the next policy is probed. The verifier's yes or no gives the success rate, its Wilson
interval and the region. The graded reward R gives mean, variance and the learnability potential. With k = 8 a label is noisy (standard
error of the rate up to 0.18); the interval shows it, and so does a second, independent probe (`headrace tag --again`).

A task is drawn again only if its region could still change, or if it has no tag and can still get one (`DrawsConfig.is_settled`). The rate
is then that of a sequential test: a task that stopped early after successes looks slightly better than it is, without effect on regions.

This module does not roll out (`synth/rollouts/draws.py`) and does not route (`filters/certainty/route.py`).
"""

from __future__ import annotations

from enum import StrEnum

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.tables import TABLES
from synth.intervals import wilson

VERSION = 3
RATED = ("success", "policy_failure")


class Region(StrEnum):
    MASTERED = "mastered"
    CERTAIN = "certain"
    UNCERTAIN = "uncertain"
    OUT_OF_REACH = "out_of_reach"


class RegionConfig(BaseModel):
    """Where one region ends and the next begins, as rates, so that the table holds for every k."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mastered_rate: float = Field(1.0, gt=0, le=1, description="Success rate (0 to 1) from which a task is mastered.")
    certain_rate: float = Field(
        0.75, gt=0, le=1, description="Success rate from which a task is certain, if it is not mastered (6 or 7 of 8)."
    )
    uncertain_rate: float = Field(
        1e-9, ge=0, le=1, description="Success rate from which a task is uncertain, if it is not certain; below it, a task is out of reach."
    )
    min_rated: float = Field(
        0.75,
        gt=0,
        le=1,
        description="Share of a task's rollouts that must be rated (6 of 8); with fewer the task gets no tag until the next probe.",
    )

    @model_validator(mode="after")
    def _check_order(self) -> RegionConfig:
        if not self.uncertain_rate <= self.certain_rate <= self.mastered_rate:
            raise ValueError("thresholds must rise: uncertain_rate <= certain_rate <= mastered_rate")
        return self

    def region(self, rate: float) -> Region:
        if rate >= self.mastered_rate:
            return Region.MASTERED
        if rate >= self.certain_rate:
            return Region.CERTAIN
        return Region.UNCERTAIN if rate >= self.uncertain_rate else Region.OUT_OF_REACH


class DrawsConfig(BaseModel):
    """How often a task is rolled out before its region is taken for known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k: int = Field(8, ge=2, description="Rollouts of every task; one that always or never succeeded is then settled.")
    most: int = Field(16, ge=2, description="Most rollouts of a task; the same number as k gives every task k.")
    step: int = Field(2, ge=1, description="Rollouts that an unsettled task gets at a time.")

    @model_validator(mode="after")
    def _check_order(self) -> DrawsConfig:
        if self.most < self.k:
            raise ValueError(f"most, {self.most}, is below k, {self.k}")
        return self

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of draws after which the result is checked: from `k` on, the last is `most`."""
        return (*range(self.k, self.most, self.step), self.most)

    def is_settled(self, successes: int, rated: int, left: int, regions: RegionConfig) -> bool:
        """Whether the `left` further draws, after k or more, are not needed: no outcome changes the region, or all or none of the rated
        ones succeeded, or so many are unrated that the task gets no tag in any case."""
        if (rated + left) / self.most < regions.min_rated:
            return True
        if rated / (self.most - left) < regions.min_rated:
            return False
        lowest, highest = successes / (rated + left), (successes + left) / (rated + left)
        return successes in (0, rated) or regions.region(lowest) == regions.region(highest)


def certainty(rollouts: pl.DataFrame, difficulty: pl.DataFrame, regions: RegionConfig, *, purpose: str) -> pl.DataFrame:
    """One row of table `tags` a task and policy; columns of the prior are null (`filters/certainty/difficulty_prior.py` fills them).

    Args:
        rollouts: columns task_id, policy_id, outcome, reward; all draws of a task, unrated ones too.
        difficulty: columns task_id, difficulty.
        purpose: what the rollouts were made for, e.g. `probe`.

    Tasks of which less than `regions.min_rated` of the draws are rated get no row. Sorted by task and policy.
    """
    is_rated = pl.col("outcome").is_in(RATED)
    rated = rollouts.filter(is_rated, is_rated.mean().over("task_id", "policy_id") >= regions.min_rated)
    per_task = (
        rated.group_by("task_id", "policy_id")
        .agg(
            k=pl.len().cast(pl.Int32),
            successes=(pl.col("outcome") == "success").sum().cast(pl.Int32),
            reward_mean=pl.col("reward").mean(),
            reward_variance=pl.col("reward").var(ddof=0),
        )
        .with_columns(rate=pl.col("successes") / pl.col("k"), learnability=pl.col("reward_variance") * pl.col("reward_mean"))
        .join(difficulty.select("task_id", pl.col("difficulty").cast(pl.Int32)), on="task_id", how="left")
        .sort("task_id", "policy_id")
    )
    bounds = [wilson(successes, k) for successes, k in per_task.select("successes", "k").iter_rows()]
    return per_task.with_columns(
        pl.Series("wilson_low", [low for low, _ in bounds], dtype=pl.Float64),
        pl.Series("wilson_high", [high for _, high in bounds], dtype=pl.Float64),
        pl.Series("region", [regions.region(rate).value for rate in per_task["rate"]], dtype=pl.String),
        purpose=pl.lit(purpose),
        need=pl.lit(None, pl.String),
        difficulty_prior=pl.lit(None, pl.Float64),
        prior_basis=pl.lit(None, pl.String),
        prior_draws=pl.lit(None, pl.Int32),
    ).select(list(TABLES["tags"].columns))


def histogram(tags: pl.DataFrame) -> dict[str, int]:
    """Number of tasks by successes of rated rollouts (`8/16`), from the lowest rate, for messages and reports."""
    counts = tags.group_by("successes", "k").len().sort(pl.col("successes") / pl.col("k"), "k")
    return {f"{successes}/{k}": count for successes, k, count in counts.iter_rows()}
