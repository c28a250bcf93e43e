"""The level of a row, 1 to 5, by which its stratum is made: measured where there is data, else its static difficulty.

One idea: a run that focuses on failures has read the probe of the policy promoted last. A row whose need or intent was probed has a prior
failure rate (`filters/certainty/difficulty_prior.py`), and its level is the fifth of it: 1 below .2, 5 from .8. Other rows keep static
difficulty, and so do those to be refused (-1) or answered without a call (0). The column `difficulty` does not change.
"""

from __future__ import annotations

import json

import polars as pl

from filters.certainty.difficulty_prior import Basis, difficulty_priors, task_groups
from storage.records import Frame, Task
from storage.store import Store
from synth.run.evolution.failure_targeting import Focus
from synth.tasks.needs import need

LEVELS = 5


def read_evidence(store: Store, focus: Focus) -> pl.DataFrame:
    """The probed tasks of a focus: columns task_id, need, intent, difficulty, successes, k."""
    specs = store.query(
        "SELECT task_id, spec FROM tasks WHERE list_contains(?, task_id) ORDER BY task_id", [focus.rows["task_id"].to_list()]
    )
    groups = task_groups(Task.model_validate_json(spec) for spec in specs["spec"])
    return groups.join(focus.rows.select("task_id", "successes", "k"), on="task_id", maintain_order="left")


def with_level(rows: pl.DataFrame, evidence: pl.DataFrame | None) -> pl.DataFrame:
    """Adds level (Int8; null without a frame) to rows with columns row, world, intent, slots (JSON) and difficulty.

    evidence: as of `read_evidence`; None: every level is the static difficulty.
    """
    level = pl.when(pl.col("intent").is_not_null()).then(pl.col("difficulty").cast(pl.Int8))
    if evidence is None:
        return rows.with_columns(level=level)
    asked = rows.select("row", "world", "slots", "difficulty", name="intent", intent=pl.format("{}/{}", "world", "intent")).filter(
        pl.col("difficulty") >= 1, pl.col("intent").is_in(evidence["intent"].unique().implode())
    )
    frames = asked.select("world", "name", "slots").unique(maintain_order=True)
    needs = [need(Frame(world=world, intent=name, slots=json.loads(slots))) for world, name, slots in frames.iter_rows()]
    named = asked.join(frames.with_columns(pl.Series("need", needs, dtype=pl.String)), on=["world", "name", "slots"], maintain_order="left")
    grouped = named.select("row", "need", "intent", pl.col("difficulty").cast(evidence.schema["difficulty"]))
    priors = difficulty_priors(pl.concat([evidence, grouped], how="diagonal")).filter(
        pl.col("row").is_not_null(), pl.col("prior_basis").is_in([Basis.NEED, Basis.INTENT])
    )
    fifth = (pl.col("difficulty_prior") * LEVELS).floor().clip(0, LEVELS - 1).cast(pl.Int8) + 1
    measured = priors.select("row", measured=fifth)
    return (
        rows.join(measured, on="row", how="left", maintain_order="left").with_columns(level=pl.coalesce("measured", level)).drop("measured")
    )
