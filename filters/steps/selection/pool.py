"""The step `pool`: of all that is left, what is worth encoding (`filters/steps/selection/coverage.py`, where the same quotas draw the
shortlist)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from filters.step import Context, Setup, WholeStep
from filters.steps import combination_counts
from filters.steps.selection import coverage
from filters.steps.selection.coverage import CoverageConfig
from storage.store import Part, Store
from synth.run.failure_targeting import Focus, read_focus


@dataclass(frozen=True)
class Given:
    """config: of the step. rows: of the log. store, failures: what the last policy fails at, where rows like it are to weigh more."""

    config: CoverageConfig
    rows: int
    store: Store
    failures: Focus | None

    @property
    def urgency(self) -> Mapping[tuple[str, str], float]:
        """How urgent an intent is, by world and name."""
        return {} if self.failures is None else {intent: standing.urgency for intent, standing in self.failures.by_intent().items()}


def load(setup: Setup) -> Given:
    config = setup.config.coverage
    return Given(config, setup.rows, setup.store, read_focus(setup.store, dict(setup.key)) if config.focus else None)


def step(rows: pl.DataFrame, given: Given, context: Context) -> pl.DataFrame:
    counts = context.surveys[combination_counts.NAME]
    counted = rows.join(counts, on="combination", how="left", maintain_order="left")
    return coverage.pool(counted, given.config, given.rows, given.urgency)


def _parts(given: Given) -> Sequence[Part]:
    return [given.failures.write(given.store)] if given.failures is not None else []


STEP = WholeStep(
    name="pool",
    needs=("frame_id", "leaf", "language", "residue", "world", "intent", "quality", "difficulty", "combination"),
    adds=("asked", "tier", "peers", "extra", "leaf_rows"),
    reasons=("not_pooled",),
    config=CoverageConfig,
    load=load,
    made_by=lambda given: (given.failures.id,) if given.failures is not None else (),
    parts=_parts,
    uses=combination_counts.NAME,
    function=step,
)
