"""Explanation of what training made and read: a policy, a stage, a release, a split, an evaluation."""

from __future__ import annotations

import json
from typing import Any

from storage.conversation import KINDS, mode_in_words
from storage.explanations.store_rows import Details, Facts, count_by, held_out_text, interval_text, policy_name, row_of, rows_of
from storage.releases.headlines import headline
from storage.releases.lineage_graph import IS_ENGINE
from storage.store import Store
from storage.tables import CERTAINTY
from storage.tombstones.withdrawn_rows import SOURCE_KINDS, held_by, read_by, successor_of, taught_by

_EXAMPLES = 3


def explain_policy(store: Store, node: str) -> Details:
    policy = row_of(store, f"SELECT *, {IS_ENGINE} AS is_engine FROM policies p WHERE policy_id = ?", node) or {}
    weights = f" (weights {policy['weights_hash'][:16]})" if policy["weights_hash"] else ""
    kind = "engine" if policy["is_engine"] else "checkpoint"
    details = Details(
        [(kind, f"{policy['path']}{weights}"), *(fact for fact in explain_stage(store, policy["stage_id"]) if fact[0] != "made")]
    )
    details.facts += [("learned from", str(one)) for one in taught_by(store, node)]
    gates = rows_of(store, "SELECT * FROM promotions WHERE policy_id = ? ORDER BY position", node)
    details.facts += [("gate", _gate_text(row)) for row in gates]
    sql = f"SELECT region, count(*) AS n FROM {CERTAINTY} WHERE policy_id = ? AND purpose = 'probe' GROUP BY 1 ORDER BY n DESC, 1"
    details.facts.append(("probed tasks", count_by(rows_of(store, sql, node), "region")))
    details.add("success on held-out tasks", _measurements(store, node))
    details.add("rollouts that it failed", _failures(store, node))
    return details


def _gate_text(row: dict[str, Any]) -> str:
    checks = ", ".join(f"{name.replace('_', ' ')} {'yes' if holds else 'no'}" for name, holds in json.loads(row["checks"] or "{}").items())
    return ("promoted" if row["passed"] else "not promoted") + (f": {checks}" if checks else "")


def _measurements(store: Store, policy: str) -> Facts:
    sql = """SELECT * FROM evaluations WHERE policy_id = ? AND facet IN ('all', 'kind')
             ORDER BY use, decoding, facet, list_position(?, facet_value)"""
    rows = rows_of(store, sql, policy, list(KINDS))
    return [(_measurement_label(row), f"{row['rate']:.3f}{interval_text(row)} on {row['tasks']} tasks") for row in rows]


def _measurement_label(row: dict[str, Any]) -> str:
    if row["facet"] == "kind":
        return f"  {KINDS[row['facet_value']]}"
    return held_out_text(row)


def _failures(store: Store, policy: str) -> Facts:
    """One failed rollout for each purpose: what `explain` shows with the check that failed."""
    rows = rows_of(
        store,
        """SELECT purpose, count(*) AS n, min(rollout_id) AS example FROM rollouts WHERE policy_id = ? AND outcome = 'policy_failure'
           GROUP BY 1 ORDER BY 1""",
        policy,
    )
    return [(row["purpose"], f"{row['n']:,}, such as {row['example']}") for row in rows]


def explain_stage(store: Store, node: str) -> Facts:
    stage = row_of(store, "SELECT * FROM stages WHERE stage_id = ?", node)
    if stage is None:
        return [("stage", node or "none: it came from outside")]
    sql = """SELECT count(*), count(DISTINCT task_id), count(DISTINCT task_id) FILTER (t.query_id IS NOT NULL)
             FROM release_items i LEFT JOIN tasks t USING (task_id) WHERE i.release_id = ? AND i.split = ?"""
    items, tasks, from_queries = store.query(sql, [stage["release_id"], stage["split"]]).row(0)
    read = f"{items} items, {tasks} tasks, {from_queries} of them from raw queries"
    metrics = json.loads(stage["metrics"] or "{}")
    withdrawn = [("withdrawn since", f"{n:,} of its items: {one}") for one, n in read_by(store, node or "")]
    return [
        ("stage", f"{stage['name']} ({stage['algorithm']}, {stage['backend']}), {node}"),
        *withdrawn,
        ("read", f"split {stage['split']} of {stage['release_id']}: {read}"),
        ("started from", policy_name(store, stage["input_policy_id"]) if stage["input_policy_id"] else "scratch"),
        ("made", policy_name(store, stage["output_policy_id"]) if stage["output_policy_id"] else ""),
        ("code", stage["code_hash"] or ""),
        ("took", f"{stage['seconds']:.1f} s" if stage["seconds"] is not None else ""),
        ("last figures", ", ".join(f"{name} {value:.4g}" for name, value in metrics.items() if isinstance(value, (int, float)))),
    ]


def explain_release(store: Store, node: str) -> Details:
    row = row_of(store, "SELECT * FROM releases WHERE release_id = ?", node) or {}
    manifest = json.loads(row["manifest"])
    facts = [("name", row["name"]), *_withdrawn_of(store, node)]
    for split, described in manifest.pop("splits", {}).items():
        facts.append(("split", f"{split}: {described['items']} items, {described['tasks']} tasks, hash {described['hash'][:16]}"))
    decided = [
        (key.replace("_", " "), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for key, value in manifest.items()
    ]
    details = Details([*facts, *(pair for pair in decided if pair[0] != "name" and pair[1] not in ("null", "[]"))])
    details.add("items, with examples", _items(store, node))
    return details


def _withdrawn_of(store: Store, release: str) -> Facts:
    """What was withdrawn of a release, and the release that stands for it since."""
    facts = [("withdrawn since", f"{n:,} item{'s' * (n != 1)}: {one}") for one, n in held_by(store, release)]
    return facts and [*facts, ("replaced by", successor_of(store, release) or "none: nothing else was in it")]


def explain_withdrawal(store: Store, node: str) -> Details:
    row = row_of(store, "SELECT * FROM withdrawals WHERE withdrawal_id = ?", node) or {}
    return Details(
        [
            ("source", f"{SOURCE_KINDS[row['kind']]} {row['source']}"),
            ("reason", row["reason"]),
            ("withdrawn", f"{row['at']} by {row['author']}"),
            *((table, f"{n:,} rows are hidden") for table, n in json.loads(row["rows"]).items()),
        ]
    )


def explain_split(store: Store, node: str) -> Details:
    release, _, split = node.rpartition("/")
    sql = "SELECT kind, count(*) AS n FROM release_items WHERE release_id = ? AND split = ? GROUP BY 1 ORDER BY 1"
    details = Details([("of release", release), ("items", count_by(rows_of(store, sql, release, split), "kind"))])
    details.add("items, with examples", _items(store, release, split))
    return details


def _items(store: Store, release: str, only: str | None = None) -> Facts:
    """The items of each split by kind, with three of each."""
    rows = rows_of(
        store,
        f"""SELECT split, kind, count(*) AS n, list(item_id ORDER BY position)[:{_EXAMPLES}] AS examples FROM release_items
            WHERE release_id = ? AND coalesce(split = ?, true) GROUP BY 1, 2 ORDER BY 1, 2""",
        release,
        only,
    )
    return [
        pair
        for row in rows
        for pair in [
            (row["split"], f"{row['n']:,} x {row['kind']}, such as"),
            *(("", f"{each} “{headline(store, row['kind'], each)}”") for each in row["examples"]),
        ]
    ]


def explain_evaluation(store: Store, node: str) -> Details:
    rows = rows_of(store, "SELECT * FROM evaluations WHERE evaluation_id = ? ORDER BY facet, facet_value", node)
    details = Details(
        [
            ("of policy", policy_name(store, rows[0]["policy_id"])),
            ("on", held_out_text(rows[0])),
        ]
    )
    rates = [
        (
            _facet_text(row["facet"], row["facet_value"] or ""),
            f"{row['rate']:.3f}{interval_text(row)}, {row['tasks']} tasks, {row['samples']} samples",
        )
        for row in rows
    ]
    details.add("success rates", rates)
    return details


def _facet_text(facet: str, value: str) -> str:
    return "all tasks" if facet == "all" else f"{facet} {mode_in_words(value) if facet == 'mode' else value}"
