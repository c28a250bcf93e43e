"""The gate's decisions that a store records, in words.

One idea: the gate promotes by the mean difference (`train/measure/gate.py`). A reader also needs to know whether chance explains that
difference. So each decision is read with the paired difference to the policy that was the promoted one then, from the same rollouts.

What it does not do: decide, or write.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import polars as pl

from storage.releases.lineage_graph import LATEST_POLICY_SQL, POLICY_NAME, chain_sql
from storage.store import Store
from train.measure.evaluate import Estimate, describe_difference, paired_difference, task_means


@dataclass(frozen=True)
class Promotion:
    """A decision of the gate.

    policy, rival: names of the judged policy and of the promoted one at that time; rival is None for the first policy.
    checks: name -> passed.
    difference: success rate of `policy` less that of `rival` on the same tasks of eval_in; None without a rival or common tasks.
    """

    policy: str
    rival: str | None
    passed: bool
    checks: dict[str, bool]
    difference: Estimate | None

    def describe(self) -> str:
        """`rl is promoted over sft2: the gain of 1.2 points is within noise (95 %: -3.0 to +5.4)`."""
        if self.rival is None:
            why = "it is the first policy, and it solved a task" if self.passed else "it solved no task"
            return f"{self.policy} is {'' if self.passed else 'not '}promoted: {why}"
        reasons = [describe_difference(self.difference)] if self.difference is not None else []
        if not self.checks.get("nothing_forgotten", True):
            reasons.append("it lost a kind of task that an earlier policy solved")
        verdict = f"promoted over {self.rival}" if self.passed else f"not promoted, and {self.rival} stays"
        return f"{self.policy} is {verdict}: {', and '.join(reasons) or 'see the checks of the gate in the report'}"


def read_promotions(store: Store) -> list[Promotion]:
    """The decisions about the policies of the latest training, in their order."""
    rows = store.query(
        f"""{chain_sql(LATEST_POLICY_SQL)}
            SELECT g.policy_id, {POLICY_NAME} AS policy, g.passed, g.checks, g.policy_id IN (SELECT policy_id FROM trained) AS is_latest
            FROM promotions g JOIN parts ON parts.part_id = g.part_id JOIN policies p ON p.policy_id = g.policy_id
              LEFT JOIN stages s ON s.stage_id = p.stage_id
            ORDER BY parts.committed_at, g.position, g.policy_id"""
    )
    decisions: list[Promotion] = []
    rival: tuple[str, str] | None = None
    for policy_id, policy, passed, checks, is_latest in rows.iter_rows():
        if is_latest:
            difference = read_difference(store, rival[0], policy_id) if rival is not None else None
            decisions.append(Promotion(policy, rival[1] if rival else None, passed, json.loads(checks or "{}"), difference))
        rival = (policy_id, policy) if passed else rival
    return decisions


def read_difference(store: Store, first: str, second: str) -> Estimate | None:
    """Success rate of policy `second` less that of `first` (both ids), paired over the tasks of eval_in, sampled; None: no common task."""
    sql = "SELECT task_id, outcome FROM rollouts WHERE policy_id = ? AND purpose = 'eval_in'"
    old, new = (task_means(store.query(sql, [policy])) for policy in (first, second))
    common = old.join(new, on="task_id", how="semi")
    return paired_difference([common], [new.filter(pl.col("task_id").is_in(common["task_id"].to_list()))]) if common.height else None
