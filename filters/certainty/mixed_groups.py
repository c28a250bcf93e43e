"""Which needs give groups that teach: the share of a need's groups of rollouts in which some succeed and some fail.

One idea: a group teaches only if its rollouts differ, so that is what is counted, by need (`synth/tasks/needs.py`): RL draws no task twice,
but siblings of it, which have its need. The success rate of a need says less: tasks of one need may be all or nothing, each with its own
individuals. A need with few groups is taken to be like its intent, an intent like all.

This module does not hold rollouts (`running_tags.py`) and does not weigh tasks (`route.py`).
"""

from __future__ import annotations

import polars as pl

STRENGTH = 2.0
"""Groups that the wider set counts for."""


def mixed_share(tasks: pl.DataFrame) -> pl.Series:
    """The expected share of mixed groups of each task's need, 0 to 1, in order:

        m(all) = (x + 1) / (n + 2);    m(intent) = (x + 2 m(all)) / (n + 2);    m(need) = (x + 2 m(intent)) / (n + 2)

    with x of n groups mixed, of all, of the intent, and of the need.

    Args:
        tasks: columns need, intent, mixed, groups.
    """
    mixed, groups = pl.col("mixed").cast(pl.Float64), pl.col("groups").cast(pl.Float64)
    of_all = (mixed.sum() + 1) / (groups.sum() + 2)
    of_intent = (mixed.sum().over("intent") + STRENGTH * of_all) / (groups.sum().over("intent") + STRENGTH)
    return tasks.select(share=(mixed.sum().over("need") + STRENGTH * of_intent) / (groups.sum().over("need") + STRENGTH))["share"]
