"""What a flow run came to, in one line: the message of its state in Prefect's UI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storage.store import Store


def synthesized(result: Mapping[str, Any]) -> str:
    alarms = f"; {len(result['alarms'])} alarms of diversity" if result["alarms"] else ""
    return f"{result['accepted']:,} of {result['proposals']:,} conversations accepted, {result['tasks']:,} tasks{alarms}"


def curated(result: Mapping[str, Any]) -> str:
    if result["run"] is None:
        return "; ".join(result["notes"]) or "nothing was committed"
    return f"{result['kept']:,} of {result['rows']:,} rows kept, {result['tasks']:,} tasks"


def tagged(result: Mapping[str, Any], store: Store) -> str:
    (tasks,) = store.query("SELECT count(*) FROM tasks").row(0)
    policy = result["policy"]
    return f"{tasks:,} tasks; {f'certainty of {policy}' if policy else 'no policy is promoted, so no certainty was measured'}"


def trained(result: Mapping[str, Any]) -> str:
    passed = sum(result["passed"].values())
    return f"{passed} of {len(result['passed'])} stages passed the gate; promoted: {result['promoted'] or 'none'}"


def evaluated(result: Mapping[str, Any], store: Store) -> str:
    rates = store.query(
        "SELECT use, decoding, rate FROM evaluations WHERE policy_id = ? AND facet = 'all' ORDER BY use, decoding", [result["policy"]]
    )
    return f"{result['policy']}: " + ", ".join(f"{use} {decoding} {rate:.0%}" for use, decoding, rate in rates.iter_rows())
