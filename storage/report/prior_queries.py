"""What static difficulty and the measured prior say of probed tasks: rows of table `tags`, for the report and the summary tables.

One idea: a prior knows nothing of its own task's draws, so its rank correlation with the measured failure rate is a fair one, and stands
beside that of static difficulty on the same tasks.

It does not make priors (`filters/certainty/difficulty_prior.py`).
"""

from __future__ import annotations

from math import isnan
from typing import Any

import polars as pl

from storage.releases.lineage_graph import LATEST_POLICY_SQL, POLICY_NAME, chain_sql
from storage.store import Store
from storage.tables import CERTAINTY

BASES = ("need", "intent", "static")


def read_priors(store: Store) -> pl.DataFrame:
    """The probed tasks with a prior, of the policies of the latest training in order: columns policy_id, policy, task_id, difficulty,
    failure (measured rate), k, need, difficulty_prior, prior_basis."""
    return store.query(
        f"""{chain_sql(LATEST_POLICY_SQL)}
           SELECT c.policy_id, {POLICY_NAME} AS policy, t.task_id, t.difficulty, 1 - t.rate AS failure, t.k, t.need, t.difficulty_prior,
             t.prior_basis
           FROM chain c JOIN {CERTAINTY} t USING (policy_id) JOIN policies p ON p.policy_id = c.policy_id
             LEFT JOIN stages s ON s.stage_id = p.stage_id
           WHERE t.purpose = 'probe' AND t.difficulty_prior IS NOT NULL
           ORDER BY c.depth DESC, c.policy_id, t.task_id"""
    )


def prior_fits(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """One row a policy: its name, tasks, tasks by basis, and Spearman's correlations with the failure rate, over the tasks of static
    difficulty 1 to 5; None where one side does not vary."""
    return [
        {
            "policy": group["policy"][0],
            "tasks": group.height,
            "bases": {basis: group.filter(prior_basis=basis).height for basis in BASES},
            "static": _spearman(group.filter(pl.col("difficulty") >= 1), "difficulty"),
            "prior": _spearman(group.filter(pl.col("difficulty") >= 1), "difficulty_prior"),
        }
        for _, group in rows.group_by("policy_id", maintain_order=True)
    ]


def _spearman(rows: pl.DataFrame, column: str) -> float | None:
    value = rows.select(pl.corr(column, "failure", method="spearman")).item()
    return None if value is None or isnan(value) else float(value)


def hardest_needs(rows: pl.DataFrame, count: int) -> list[dict[str, Any]]:
    """The needs at which the last policy fails most, those of more tasks first: columns need, tasks, draws, failure (mean over tasks),
    difficulty (mean static)."""
    last = rows.filter(pl.col("policy_id") == rows["policy_id"][-1])
    needs = last.group_by("need").agg(
        tasks=pl.len(), draws=pl.col("k").sum(), failure=pl.col("failure").mean().round(6), difficulty=pl.col("difficulty").mean()
    )
    return needs.sort("failure", "tasks", "need", descending=[True, True, False]).head(count).to_dicts()
