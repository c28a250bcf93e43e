"""What RL can learn from a need: the expected variance of success, from the latest rollouts of all its tasks.

One idea: a group of rollouts teaches only if some succeed and some fail, and tasks of one need (`synth/tasks/needs.py`) are about equally
hard. So the rollouts of all tasks of a need say where the next group is likely to be mixed, without a probe of any. A need with few
rollouts is taken to be like its intent, an intent like all.

This module does not hold rollouts (`running_tags.py`) and does not weigh tasks (`route.py`).
"""

from __future__ import annotations

import polars as pl

STRENGTH = 2.0
"""Rollouts that the wider group counts for."""


def needs_learnability(tasks: pl.DataFrame) -> pl.Series:
    """E[p (1 - p)] of each task, 0 to .25, in order: p, the success rate of its need, has a Beta posterior.

        m(all) = (s + 1) / (k + 2);    m(intent) = (s + 2 m(all)) / (k + 2)
        a = s + 2 m(intent),  b = k - s + 2 (1 - m(intent));    E[p (1 - p)] = a b / ((a + b) (a + b + 1))

    with the successes s and rated rollouts k of all, of the intent, and of the need.

    Args:
        tasks: columns need, intent, successes, k.
    """
    successes, draws = pl.col("successes").cast(pl.Float64), pl.col("k").cast(pl.Float64)
    of_all = (successes.sum() + 1) / (draws.sum() + 2)
    of_intent = (successes.sum().over("intent") + STRENGTH * of_all) / (draws.sum().over("intent") + STRENGTH)
    hits = successes.sum().over("need") + STRENGTH * of_intent
    misses = (draws - successes).sum().over("need") + STRENGTH * (1 - of_intent)
    total = hits + misses
    return tasks.select(learnability=hits * misses / (total * (total + 1)))["learnability"]
