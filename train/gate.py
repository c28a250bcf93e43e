"""The gate: what a new policy must pass to be promoted.

One idea: a policy replaces the promoted one only if its mean on the same held-out tasks is higher by `min_gain` (0: no lower), and it
forgets nothing: no intent may fall by more than a stated amount. The first policy passes if it can do anything at all.

What it does not do: evaluate (`train/evaluate.py`), or write the store (`train/cascade.py` records the answer).
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from train.evaluate import Estimate, paired_difference, task_means

_ROUNDING = 1e-9


class GateConfig(BaseModel):
    """What counts as worse, and as forgotten."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_gain: float = Field(0.0, ge=-1, le=1, description="The mean paired difference on eval_in must be at least this.")
    max_forgotten: float = Field(0.25, ge=0, le=1, description="No intent's rate may fall by more than this against the promoted policy.")
    min_intent_tasks: int = Field(8, ge=1, description="Intents with fewer held-out tasks than this are too noisy to be judged apart.")


@dataclass(frozen=True)
class GateResult:
    """`checks` by name; `difference` to the promoted policy, None for the first; `forgotten`: intent -> fall, of those beyond the bound."""

    checks: dict[str, bool]
    difference: Estimate | None
    forgotten: dict[str, float]

    @property
    def passed(self) -> bool:
        return all(self.checks.values())


def gate(candidate: pl.DataFrame, promoted: pl.DataFrame | None, tasks: pl.DataFrame, config: GateConfig) -> GateResult:
    """Judges a candidate's rollouts on eval_in against those of the promoted policy.

    Args:
        candidate, promoted: rollouts, columns task_id and outcome, of the same tasks.
        tasks: columns task_id, intent.
    """
    new = task_means(candidate)
    if promoted is None:
        return GateResult({"succeeds_sometimes": bool((new["successes"] > 0).any())}, None, {})
    old = task_means(promoted)
    difference = paired_difference([old], [new])
    forgotten = _forgotten(new, old, tasks, config)
    return GateResult(
        {"no_loss": difference.mean >= config.min_gain - _ROUNDING, "nothing_forgotten": not forgotten}, difference, forgotten
    )


def _forgotten(new: pl.DataFrame, old: pl.DataFrame, tasks: pl.DataFrame, config: GateConfig) -> dict[str, float]:
    by_intent = (
        old.join(new.select("task_id", new="rate"), on="task_id", maintain_order="left")
        .join(tasks.select("task_id", "intent"), on="task_id", maintain_order="left")
        .group_by("intent")
        .agg(fall=pl.col("rate").mean() - pl.col("new").mean(), tasks=pl.len())
        .filter((pl.col("tasks") >= config.min_intent_tasks) & (pl.col("fall") > config.max_forgotten))
        .sort("intent")
    )
    return dict(by_intent.select("intent", "fall").iter_rows())
