"""Prior of difficulty: the failure rate that a policy's measured tasks lead us to expect of another task.

One idea: tasks of one need (`synth/tasks/needs.py`) are about equally hard. So the prior of a task is the mean failure rate of the *other*
measured tasks of its need, shrunk to that of its intent, that to its static difficulty's, and that to the mean of all. A task's own draws
never enter its own prior, so a prior can be compared with what was measured. docs/definitions.md has the formula.

Every task counts once, however often it was drawn: draws of one task say little about another, and an adaptive probe draws most where the
policy wavers. This module measures nothing (`train/measure/probe.py`) and routes nothing (`filters/certainty/route.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import polars as pl

from storage.records import Task
from synth.conversations.conversation_task import goal_frames
from synth.tasks.needs import need

STRENGTH = 1.0
"""Tasks that the wider group counts for in a group's mean. The correlation with failure hardly depends on it: from 0.25 to 4 it changes by
some .01 (`benchmarks/links_sections/difficulty.py`)."""


class Basis(StrEnum):
    """The closest group in which another task was measured; `static` also where only the mean of all is known (no draws)."""

    NEED = "need"
    INTENT = "intent"
    STATIC = "static"


_GROUPS = {Basis.STATIC: "difficulty", Basis.INTENT: "intent", Basis.NEED: "need"}
"""Column of each group, the widest first."""


def task_groups(tasks: Iterable[Task]) -> pl.DataFrame:
    """Columns task_id, need, intent, difficulty (static). A conversation has the needs and the intents of all its goals, in order."""
    rows = []
    for task in tasks:
        frames = goal_frames(task)
        needs, intents = " + ".join(map(need, frames)), " + ".join(f"{frame.world}/{frame.intent}" for frame in frames)
        rows.append((task.id, needs, intents, task.difficulty))
    names = {"task_id": pl.String, "need": pl.String, "intent": pl.String, "difficulty": pl.Int32}
    return pl.DataFrame(rows, schema=names, orient="row")


def difficulty_priors(tasks: pl.DataFrame, *, strength: float = STRENGTH) -> pl.DataFrame:
    """The tasks with three columns more:

        difficulty_prior: expected failure rate, 0 to 1; null if no other task was measured.
        prior_basis: as in `Basis`; null where the prior is.
        prior_draws: rated draws of the other tasks of this basis; null where the prior is.

    Args:
        tasks: columns task_id, need, intent, difficulty, successes and k (rated draws), the last two null where none was measured.
    """
    is_measured = pl.col("k").fill_null(0) > 0
    rate = pl.when(is_measured).then(1 - pl.col("successes") / pl.col("k")).otherwise(0.0)
    draws = pl.when(is_measured).then(pl.col("k").cast(pl.Int64)).otherwise(0)
    rows = tasks.with_columns(_measured=is_measured.cast(pl.Int64), _rate=rate, _draws=draws, _all=pl.lit(0))

    def others(value: str, group: str) -> pl.Expr:
        return pl.col(value).sum().over(group) - pl.col(value)

    prior = others("_rate", "_all") / others("_measured", "_all")
    basis, behind = pl.lit(Basis.STATIC.value), others("_draws", "difficulty")
    for level, group in _GROUPS.items():
        known = others("_measured", group)
        prior = (others("_rate", group) + strength * prior) / (known + strength)
        basis = pl.when(known > 0).then(pl.lit(level.value)).otherwise(basis)
        behind = pl.when(known > 0).then(others("_draws", group)).otherwise(behind)
    has_prior = others("_measured", "_all") > 0
    return rows.with_columns(
        difficulty_prior=pl.when(has_prior).then(prior.clip(0, 1).round(6)),
        prior_basis=pl.when(has_prior).then(basis),
        prior_draws=pl.when(has_prior).then(behind.cast(pl.Int32)),
    ).drop("_measured", "_rate", "_draws", "_all")


def add_priors(tags: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """The rows of table `tags` of one policy and purpose, with need and prior.

    groups: as `task_groups` gives; of all tasks that are tagged.
    """
    columns = tags.columns
    grouped = tags.drop("need", "difficulty_prior", "prior_basis", "prior_draws").join(
        groups.select("task_id", "need", "intent"), on="task_id", how="left", maintain_order="left"
    )
    return difficulty_priors(grouped).select(columns)
