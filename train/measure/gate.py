"""The gate: what a new policy must pass to be promoted.

One idea: a policy replaces the promoted one only if its mean on the same held-out tasks is higher by `min_gain` (0: not lower), and no
intent, nor the group of tasks with a program, falls by more than `max_forgotten` below any earlier policy. The first policy passes if it
succeeds at least once. The rule reads the mean alone, so a promotion may be within noise; `train/measure/promotions.py` says so.

What it does not do: evaluate (`train/measure/evaluate.py`), or write the store (`train/cascade.py` records the answer).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from train.config import GateConfig
from train.measure.evaluate import CODE_MODE, Estimate, paired_difference, task_means

_ROUNDING = 1e-9
FEW = "few"


@dataclass(frozen=True)
class GateResult:
    """Result of the gate.

    checks: name -> passed.
    difference: to the promoted policy; None for the first policy.
    forgotten: intent, `code` or `few` (all intents with few tasks) -> its largest fall, if beyond the bound.
    """

    checks: dict[str, bool]
    difference: Estimate | None
    forgotten: dict[str, float]

    @property
    def passed(self) -> bool:
        return all(self.checks.values())


def gate(
    candidate: pl.DataFrame,
    promoted: pl.DataFrame | None,
    tasks: pl.DataFrame,
    config: GateConfig,
    *,
    earlier: Sequence[pl.DataFrame] = (),
) -> GateResult:
    """Judges a candidate's rollouts on eval_in against those of the promoted policy.

    Args:
        candidate, promoted: rollouts, columns task_id and outcome, of the same tasks.
        tasks: `train.measure.evaluate.facets` of them.
        earlier: rollouts of further policies, for the check of forgetting.
    """
    new = task_means(candidate)
    if promoted is None:
        return GateResult({"succeeds_sometimes": bool((new["successes"] > 0).any())}, None, {})
    old = task_means(promoted)
    difference = paired_difference([old], [new])
    forgotten: dict[str, float] = {}
    for policy_means in (old, *map(task_means, earlier)):
        for group, fall in falls(policy_means, new, tasks, config.min_intent_tasks).items():
            if fall > config.max_forgotten:
                forgotten[group] = max(fall, forgotten.get(group, fall))
    return GateResult(
        {"no_loss": difference.mean >= config.min_gain - _ROUNDING, "nothing_forgotten": not forgotten}, difference, forgotten
    )


def falls(old: pl.DataFrame, new: pl.DataFrame, tasks: pl.DataFrame, min_tasks: int) -> dict[str, float]:
    """Fall of the mean rate from `old` to `new` (both `task_means`), by group: an intent (`retail.buy_pick`), all intents with fewer than
    `min_tasks` tasks (`few`), and all tasks with a program (`code`). Groups with fewer than `min_tasks` tasks are left out."""
    both = old.join(new.select("task_id", new="rate"), on="task_id", maintain_order="left")
    both = both.join(tasks.select("task_id", "world", "intent", "mode"), on="task_id", maintain_order="left")
    label = pl.concat_str("world", pl.lit("."), "intent")
    by_intent = both.with_columns(group=pl.when(pl.len().over("world", "intent") >= min_tasks).then(label).otherwise(pl.lit(FEW)))
    by_program = both.filter(pl.col("mode") == CODE_MODE).with_columns(group=pl.lit(CODE_MODE))
    groups = pl.concat([by_intent, by_program]).group_by("group")
    changes = groups.agg(fall=pl.col("rate").mean() - pl.col("new").mean(), tasks=pl.len()).filter(pl.col("tasks") >= min_tasks)
    return dict(changes.sort("group").select("group", "fall").iter_rows())
