"""The step `pool`: selects the rows to encode, by the same quotas as the shortlist (`filters/steps/selection/coverage.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from filters.step import Context, Setup, WholeStep
from filters.steps import combination_counts
from filters.steps.selection import coverage
from filters.steps.selection.coverage import CoverageConfig
from filters.steps.selection.measured_level import read_evidence, with_level
from storage.store import Part, Store
from synth.run.evolution.failure_targeting import Focus, read_focus


@dataclass(frozen=True)
class Inputs:
    """config: of the step.
    rows: number of rows of the log.
    store: where `failures` are written.
    failures: what the last policy fails at; None without `focus`.
    evidence: probed tasks of that policy, as of `read_evidence`; None without `focus`.
    """

    config: CoverageConfig
    rows: int
    store: Store
    failures: Focus | None
    evidence: pl.DataFrame | None

    @property
    def urgency(self) -> Mapping[tuple[str, str], float]:
        """How urgent an intent is, by world and name."""
        return {} if self.failures is None else {intent: stats.urgency for intent, stats in self.failures.by_intent().items()}


def load(setup: Setup) -> Inputs:
    config = setup.config.coverage
    failures = read_focus(setup.store, dict(setup.key)) if config.focus else None
    evidence = read_evidence(setup.store, failures) if failures is not None else None
    return Inputs(config, setup.rows, setup.store, failures, evidence)


def step(rows: pl.DataFrame, inputs: Inputs, context: Context) -> pl.DataFrame:
    counts = context.surveys[combination_counts.NAME]
    represented = context.verdicts.count_represented()[0][rows["row"].to_numpy() - np.uint32(context.index.rows)]
    counted = rows.join(counts, on="combination", how="left", maintain_order="left").with_columns(represented=represented)
    return coverage.pool(with_level(counted, inputs.evidence), inputs.config, inputs.rows, inputs.urgency)


def _parts(inputs: Inputs) -> Sequence[Part]:
    return [inputs.failures.write(inputs.store)] if inputs.failures is not None else []


STEP = WholeStep(
    name="pool",
    needs=(
        *("frame_id", "leaf", "language", "residue", "world", "intent", "slots", "quality", "difficulty", "combination"),
        *("text", "masked"),
    ),
    adds=("level", "asked", "tier", "peers", "extra", "leaf_rows", "pattern", "pattern_rows"),
    reasons=("not_pooled",),
    soft=("not_pooled",),
    config=CoverageConfig,
    load=load,
    made_by=lambda inputs: (inputs.failures.id,) if inputs.failures is not None else (),
    parts=_parts,
    uses=combination_counts.NAME,
    function=step,
)
