"""Routing: which task goes where after a probe. What the policy has solved feeds the second SFT, what it is uncertain of feeds RL.

    mastered      second SFT, as replay: a configured share, which is a split of its own too
    certain       second SFT: the policy's own shortest verified trajectory
    uncertain     RL, with fresh siblings; and second SFT too, unless `second` is `certain`
    out of reach  held

The second SFT trains on the seed split's traces and the policy's own verified traces. RL draws its tasks by `weight`: a uniform share
over all probed tasks, the remaining draws over uncertain tasks by learnability potential. No query gets more than a twentieth of the draws,
if there are enough queries. That routing helps was not shown at equal cost (docs/ladder.md), so the uniform share is configurable, and
every release stores its thresholds and its histogram.

This module does not measure (`filters/certainty/certainty.py`) and does not freeze the release (`storage/releases/release.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.certainty.certainty import Region, RegionConfig, histogram
from storage.errors import HeadraceError
from storage.releases.release import ReleaseItem

VERSION = 4
QUERY_SHARE = 0.05
"""Largest share of RL's draws for the siblings of one query, the uniform floor included."""
_TAG_COLUMNS = ("task_id", "region", "learnability", "successes", "k")


class RouteConfig(BaseModel):
    """The routing table's free parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    regions: RegionConfig = Field(
        default_factory=RegionConfig, description="The success rates at which one region of certainty ends and the next begins."
    )
    second: Literal["solved", "certain"] = Field(
        "solved",
        description="Tasks of which the second SFT learns the policy's own trace: every solved one, or certain and mastered ones alone.",
    )
    reprobe: bool = Field(
        False,
        description="Whether a later routed stage has a probe of its own parent; if not, it is routed by the draws of the first.",
    )
    replay_share: float = Field(
        1.0, ge=0, le=1, description="Share of the mastered tasks of which the second SFT replays the policy's own trace."
    )
    rl_uniform: float = Field(
        0.5, ge=0, le=1, description="Share of RL's task draws that is uniform over all probed tasks; 1 switches routing off."
    )


def route(
    seed_traces: Sequence[ReleaseItem],
    tags: pl.DataFrame,
    rollouts: pl.DataFrame,
    queries: Mapping[str, str],
    config: RouteConfig,
) -> dict[str, list[ReleaseItem]]:
    """The splits `sft2`, `rl`, `hold` and `replay` of a release. The last two may be empty, and what is replayed is in `sft2` too.

    Args:
        seed_traces: the items of the seed split, in order.
        tags: rows of `filters.certainty.certainty.certainty` for one policy.
        rollouts: columns rollout_id, task_id, draw, outcome, messages; the rollouts that the tags were measured on.
        queries: the query id of each task that stems from a query.

    Raises:
        HeadraceError: the tags lack a column. Or no task is for the second SFT, or for RL; the message names thresholds and the histogram.
    """
    if missing := [name for name in _TAG_COLUMNS if name not in tags.columns]:
        raise HeadraceError(f"the tags to route lack the column {missing[0]}; pass rows of table `tags` with {', '.join(_TAG_COLUMNS)}")
    regions = [Region.CERTAIN] + ([Region.UNCERTAIN] if config.second == "solved" else [])
    solved = tags.filter(pl.col("region").is_in(regions))
    replayed = tags.filter((pl.col("region") == Region.MASTERED) & _is_replayed(tags["task_id"], config.replay_share))
    own_traces = pl.concat([solved, replayed])
    _refuse_empty("sft2", own_traces, tags, config)
    _refuse_empty("rl", tags.filter(pl.col("region") == Region.UNCERTAIN), tags, config)
    return {
        "sft2": [*seed_traces, *own_trace_items(own_traces["task_id"], rollouts)],
        "rl": _rl_items(tags, queries, config.rl_uniform),
        "replay": own_trace_items(replayed["task_id"], rollouts),
        "hold": [_task_item(task) for task in tags.filter(pl.col("region") == Region.OUT_OF_REACH)["task_id"].sort()],
    }


def _task_item(task_id: str, weight: float = 1.0) -> ReleaseItem:
    return ReleaseItem(kind="task", item_id=task_id, task_id=task_id, weight=weight)


def _is_replayed(task_ids: pl.Series, share: float) -> pl.Series:
    """A fixed pseudo-random `share` of the tasks, by hash of the id."""
    return pl.Series(
        [int(hashlib.sha256(f"replay/{task}".encode()).hexdigest()[:8], 16) < share * 2**32 for task in task_ids], dtype=pl.Boolean
    )


def _refuse_empty(split: str, selected: pl.DataFrame, tags: pl.DataFrame, config: RouteConfig) -> None:
    if selected.is_empty():
        regions = config.regions
        counted = ", ".join(f"{share}: {tasks}" for share, tasks in histogram(tags).items())
        raise HeadraceError(
            f"split {split} would be empty: of {tags.height} probed tasks, tasks by successes/rollouts are {{{counted}}}; regions: "
            f"mastered >= {regions.mastered_rate:g}, certain >= {regions.certain_rate:g}, uncertain >= {regions.uncertain_rate:g}. "
            "Train the seed stage longer or shorter, probe easier or harder tasks, or move the thresholds."
        )


def own_trace_items(task_ids: pl.Series, rollouts: pl.DataFrame) -> list[ReleaseItem]:
    """One verified trajectory of the policy's own a task: the shortest, the earliest draw where several are; equal conversations once."""
    best = (
        rollouts.filter((pl.col("outcome") == "success") & pl.col("task_id").is_in(task_ids.implode()))
        .with_columns(size=pl.col("messages").str.len_bytes())
        .sort("task_id", "size", "draw")
        .unique("task_id", keep="first", maintain_order=True)
        .unique("messages", keep="first", maintain_order=True)
    )
    return [
        ReleaseItem(kind="rollout", item_id=item, task_id=task, weight=1.0)
        for item, task in best.select("rollout_id", "task_id").iter_rows()
    ]


def _rl_items(tags: pl.DataFrame, queries: Mapping[str, str], uniform: float) -> list[ReleaseItem]:
    ordered = tags.sort("task_id")
    weights = rl_weights(ordered, queries, uniform)
    return [_task_item(task, round(weight, 12)) for task, weight in zip(ordered["task_id"], weights, strict=True) if weight > 0]


def rl_weights(tags: pl.DataFrame, queries: Mapping[str, str], uniform: float) -> pl.Series:
    """How often RL draws each task, as shares: `uniform` of the draws over all, the rest over uncertain ones by learnability potential.

    Args:
        tags: columns task_id, region, learnability (both null: not measured). queries: the query id of each task that stems from a query.

    All the same where no task is uncertain.
    """
    potential = pl.when(pl.col("region") == Region.UNCERTAIN).then("learnability").otherwise(0.0)
    if not tags.select(potential.sum()).item():
        uniform, potential = 1.0, pl.lit(1.0)
    weighed = tags.select(
        "task_id",
        query=pl.col("task_id").replace_strict(queries, default=None, return_dtype=pl.String),
        weight=uniform / tags.height + (1 - uniform) * potential / potential.sum(),
    )
    return _cap_weights(weighed)


def _cap_weights(weighed: pl.DataFrame) -> pl.Series:
    """The weights (columns query, weight; they add up to one) with no query above QUERY_SHARE. The excess goes to the other queries in
    proportion, so the total share of queries does not change. Unchanged if there are too few queries."""
    is_counted = pl.col("query").is_not_null() & (pl.col("weight") > 0)
    by_query = weighed.filter(is_counted).group_by("query", maintain_order=True).agg(share=pl.col("weight").sum())
    shares = capped = by_query["share"].to_numpy()
    if shares.sum() > QUERY_SHARE * shares.size:
        return weighed["weight"]
    is_full = np.zeros(shares.size, bool)
    while (is_above := capped > QUERY_SHARE * (1 + 1e-9)).any():
        is_full |= is_above
        left = shares.sum() - QUERY_SHARE * is_full.sum()
        capped = np.where(is_full, QUERY_SHARE, shares * left / shares[~is_full].sum())
    factors = dict(zip(by_query["query"], capped / shares, strict=True))
    return weighed.select(pl.col("weight") * pl.col("query").replace_strict(factors, default=1.0, return_dtype=pl.Float64)).to_series()
