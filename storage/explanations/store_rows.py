"""What explanations of all kinds share: rows of a query as dicts, and facts in the same words everywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.releases.lineage_graph import POLICY_NAME
from storage.releases.text_layout import Section
from storage.store import Store

Facts = list[tuple[str, str]]
"""(label, text) pairs in reading order; those without a text are left out."""
HELD_OUT_IN_SENTENCES = {"eval_in": "held-out tasks", "eval_out": "held-out tasks with needs that training does not have"}
HELD_OUT_IN_TABLES = {"eval_in": "known needs", "eval_out": "new needs"}
"""A held-out set in few words: training has tasks with the needs (P10) of its tasks, or has none."""


PURPOSES = {
    "probe": "probe",
    "probe_again": "second probe",
    "eval_in": "evaluation, known needs, sampled",
    "eval_in_greedy": "evaluation, known needs, greedy",
    "eval_out": "evaluation, new needs, sampled",
    "eval_out_greedy": "evaluation, new needs, greedy",
    "rl": "RL: the last rollouts of its siblings",
}
"""Purpose of rollouts -> in words."""


def purpose_in_words(purpose: str) -> str:
    """A purpose of rollouts as pages show it."""
    return PURPOSES.get(purpose, purpose.replace("_", " "))


def held_out_text(row: Mapping[str, Any]) -> str:
    """`known needs, sampled` of a row of `evaluations`."""
    return f"{HELD_OUT_IN_TABLES.get(row['use'], row['use'])}, {row['decoding']}"


@dataclass
class Details:
    """What the tables hold on one node: short facts, then sections such as the conversation itself."""

    facts: Facts
    sections: list[Section] = field(default_factory=list)

    def add(self, title: str, rows: Facts) -> None:
        """Adds a section, unless it is empty."""
        if rows:
            self.sections.append(Section(title, tuple(rows)))


def rows_of(store: Store, sql: str, *params: Any) -> list[dict[str, Any]]:
    return store.query(sql, params).to_dicts()


def row_of(store: Store, sql: str, *params: Any) -> dict[str, Any] | None:
    return next(iter(rows_of(store, sql, *params)), None)


def policy_name(store: Store, policy: str) -> str:
    """The id of a policy, with the name of its stage or engine."""
    row = row_of(store, f"SELECT {POLICY_NAME} AS name FROM policies p LEFT JOIN stages s USING (stage_id) WHERE policy_id = ?", policy)
    return f"{policy} ({row['name']})" if row and row["name"] != policy else policy


def count_by(rows: list[dict[str, Any]], label: str) -> str:
    """`3 accepted, 1 rejected` of rows with columns n and `label`."""
    return ", ".join(f"{row['n']:,} {str(row[label] if row[label] is not None else 'unknown').replace('_', ' ')}" for row in rows)


def with_reason(text: str, reason: str | None) -> str:
    return f"{text}: {reason}" if reason else text


def failed_names(checks: str | None) -> list[str]:
    """The checks that failed, of a stored `{check: holds}`."""
    return [name for name, holds in json.loads(checks or "{}").items() if not holds]


def outcome_text(row: Mapping[str, Any]) -> str:
    """Outcome, reward and failed checks of a row of `trajectories` or `rollouts`."""
    failed = ", ".join(failed_names(row["checks"]))
    reward = f", reward {row['reward']:g}" if row["reward"] is not None else ""
    return f"{row['outcome'].replace('_', ' ')}{reward}" + (f"; failed checks: {failed}" if failed else "")


def world_text(row: Mapping[str, Any]) -> str:
    return "none" if row["world"] is None else f"{row['world']}, seed {row['world_seed']}"


def interval_text(row: Mapping[str, Any]) -> str:
    return f" [{row['low']:.3f}, {row['high']:.3f}]" if row["low"] is not None else ""


def difficulty_in_words(level: int) -> str:
    """A level of static difficulty, -1 to 5; the two without a call are explained."""
    return {-1: "-1 (to be refused)", 0: "0 (no call is needed)"}.get(level, f"{level}")


def difficulty_text(row: Mapping[str, Any]) -> str:
    by = ", guessed by cues in its words" if row.get("difficulty_by") == "cues" else ""
    return f"{row['difficulty']} (tool load {row['s_tool']}, chain depth {row['s_chain']}, constraints {row['s_constraints']}{by})"
