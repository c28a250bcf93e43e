"""What policies did with one task: every draw, whose fault each failure was, and the measured success from policy to policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from storage.explanations.store_rows import PURPOSES, failed_names, purpose_in_words, rows_of
from storage.records import Outcome
from storage.releases.lineage_graph import POLICY_NAME
from storage.report.charts import SERIES, apply_style, plain
from storage.store import Store
from synth.intervals import wilson

FAULTS = {
    "policy_failure": "the policy's",
    "user_failure": "the simulated user's",
    "tool_failure": "a tool's",
    "judge_failure": "the judge's",
    "infra_failure": "the infrastructure's",
}
"""Outcome -> whose fault it was. No other outcome is a failure."""
_DRAWS_SQL = f"""SELECT r.rollout_id, r.policy_id, {POLICY_NAME} AS policy, r.purpose, r.draw, r.outcome, r.reward, r.checks, r.failure
FROM rollouts r LEFT JOIN policies p USING (policy_id) LEFT JOIN stages s USING (stage_id) LEFT JOIN parts ON parts.part_id = p.part_id
WHERE r.task_id = ? ORDER BY parts.rowid, r.policy_id, r.purpose, r.draw"""
_RL_TAG_SQL = f"""SELECT t.policy_id, coalesce({POLICY_NAME}, t.policy_id) AS policy, t.purpose, t.k, t.successes
FROM tags t LEFT JOIN policies p USING (policy_id) LEFT JOIN stages s USING (stage_id)
WHERE t.task_id = ? AND t.purpose = 'rl' ORDER BY t.k DESC LIMIT 1"""
"""RL stores the successes of the last rollouts of a task's siblings, and not the rollouts."""
_EXPERTS_SQL = """SELECT trajectory_id, teacher, outcome, reward, accepted, checks FROM trajectories WHERE task_id = ?
ORDER BY teacher, trajectory_id"""


def draws(store: Store, task_id: str) -> list[dict[str, Any]]:
    """A row for each rollout, policies in the order of their training: rollout_id, policy_id, policy, purpose (in words), draw, outcome,
    reward, fault (empty if it is no failure), why."""
    rows = rows_of(store, _DRAWS_SQL, task_id)
    for row in rows:
        row["purpose"] = purpose_in_words(row["purpose"])
        row["fault"] = FAULTS.get(row["outcome"], "")
        row["why"] = row.pop("failure") or ", ".join(failed_names(row.pop("checks")))
    return rows


def experts(store: Store, task_id: str) -> list[dict[str, Any]]:
    """Conversations of teachers and of the solver on the task: trajectory_id, teacher, outcome, reward, accepted, fault, why."""
    rows = rows_of(store, _EXPERTS_SQL, task_id)
    return [row | {"fault": FAULTS.get(row["outcome"], ""), "why": ", ".join(failed_names(row.pop("checks")))} for row in rows]


def measurements(store: Store, task_id: str, drawn: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rated draws and successes by policy and purpose, with Wilson's 95 % interval: policy_id, policy, purpose, n, successes, rate, low,
    high. Failures that are not the policy's are no rated draws. drawn: as from `draws`."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for row in drawn:
        group = groups.setdefault(
            (row["policy_id"], row["purpose"]), {key: row[key] for key in ("policy_id", "policy", "purpose")} | {"n": 0, "successes": 0}
        )
        group["n"] += Outcome(row["outcome"]).is_rated
        group["successes"] += row["outcome"] == Outcome.SUCCESS
    found = [group for group in groups.values() if group["n"]]
    found += [tag | {"n": tag["k"], "purpose": PURPOSES["rl"]} for tag in rows_of(store, _RL_TAG_SQL, task_id)]
    for group in found:
        low, high = wilson(group["successes"], group["n"])
        group.update(rate=group["successes"] / group["n"], low=low, high=high)
    return found


def success_chart(measured: Sequence[dict[str, Any]]) -> go.Figure:
    """Success rates with 95 % intervals, a line for each purpose, policies from left to right in the order of `measured`."""
    places = {policy: place for place, policy in enumerate(dict.fromkeys(row["policy_id"] for row in measured))}
    names = {row["policy_id"]: plain(row["policy"]) for row in measured}
    purposes = list(dict.fromkeys(row["purpose"] for row in measured))
    figure = go.Figure()
    for number, purpose in enumerate(purposes):
        rows = [row for row in measured if row["purpose"] == purpose]
        shift = (number - (len(purposes) - 1) / 2) * 0.08
        figure.add_scatter(
            x=[places[row["policy_id"]] + shift for row in rows],
            y=[row["rate"] for row in rows],
            name=plain(purpose),
            mode="lines+markers",
            line={"color": SERIES[number % len(SERIES)], "width": 2},
            marker={"size": 10},
            hovertext=[f"{row['successes']} of {row['n']} succeeded" for row in rows],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [row["high"] - row["rate"] for row in rows],
                "arrayminus": [row["rate"] - row["low"] for row in rows],
                "thickness": 1.4,
            },
        )
    figure.update_xaxes(tickvals=list(places.values()), ticktext=[names[policy] for policy in places], range=[-0.5, len(places) - 0.5])
    figure.update_yaxes(range=[0, 1.02], title="success rate", tickformat=".0%")
    return apply_style(figure, 300).update_layout(showlegend=True)
