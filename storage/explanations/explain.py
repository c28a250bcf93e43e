"""Explanation of any id in a store.

`explain` shows the thing itself and what the tables hold on it: a conversation with its plan and the checks that failed, why a query was
kept or dropped (and which row it repeats), its difficulty, its region for each policy, its splits, the policies trained on it, and its
lineage. It returns plain values that print well on 80 columns. Each kind has a function here, in `explain_conversation.py`,
`explain_tools.py` or `explain_training.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from storage.explanations import explain_conversation, explain_tools, explain_training
from storage.explanations.conversation_text import RESULT, TEXT
from storage.explanations.explain_conversation import Diagnose, list_names
from storage.explanations.funnel_reasons import reason_in_words
from storage.explanations.store_rows import Details, Facts, difficulty_text, policy_name, row_of, rows_of, with_reason
from storage.releases.lineage import lines_by_kind, shorten
from storage.releases.lineage_graph import ORDER, origins, uses
from storage.releases.node_ids import Node, find_node
from storage.releases.text_layout import Section, cut, is_cut, layout_rows, layout_sections
from storage.store import Store
from storage.tombstones.withdrawn_rows import tombstone_of


@dataclass(frozen=True)
class Explanation:
    """Explanation of one id. facts: (label, text) pairs in reading order; sections: the conversation, the plan and other blocks."""

    id: str
    kind: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.kind} {self.id}", *layout_rows(self.facts, repeat_labels=False), *layout_sections(self.sections)]
        texts = (text for rows in (self.facts, *(section.rows for section in self.sections)) for _, text in rows)
        return "\n".join(lines if not any(map(is_cut, texts)) else [*lines, "", "`--full` shows long texts whole."])


def explain(
    store: Store, name: str | Node, *, full: bool = False, diagnose: Diagnose = list_names, with_lineage: bool = True
) -> Explanation:
    """What a node is, its origin, verdict, difficulty, region and splits, and the policies trained on it.

    Args:
        name: an id, a unique beginning of one, or a name that tables print; or the node, where it is known.
        full: long texts are not cut.
        with_lineage: what it was made from and went into, and who trained on it, which take most of the time.
        diagnose: says of each failed check what was expected and what was there; without it the checks are only named.

    Raises:
        BadInput: the store does not have this id; the message names the nearest ids and the kinds that there are.
    """
    kind, node = name if isinstance(name, Node) else find_node(store, name)
    buried = tombstone_of(store, node)
    details = Details([("withdrawn", str(buried[1]))]) if buried else _explain(store, kind, node, full, diagnose)
    if with_lineage:
        _add_lineage(store, kind, node, details, is_buried=buried is not None)
    facts = details.facts
    return Explanation(node, kind, tuple((label, text) for label, text in facts if text), tuple(details.sections))


def explain_lineage(store: Store, name: str) -> Explanation:
    """What `explain` says of the lineage of a node alone.

    Raises:
        BadInput: as `explain` does.
    """
    kind, node = find_node(store, name)
    details = Details([])
    _add_lineage(store, kind, node, details, is_buried=tombstone_of(store, node) is not None)
    return Explanation(node, kind, tuple((label, text) for label, text in details.facts if text), tuple(details.sections))


def _add_lineage(store: Store, kind: str, node: str, details: Details, *, is_buried: bool) -> None:
    if kind in ORDER:
        made_from, went_into = _origins(store, kind, node), uses(store, kind, node)
        trained = went_into.filter(pl.col("kind") == "policy")["id"].to_list()
        if kind not in ("policy", "stage", "evaluation"):
            none = "" if is_buried else "no policy yet"  # what a withdrawn request went into is not known any more
            details.facts.append(("trained on by", ", ".join(policy_name(store, policy) for policy in trained) or none))
        details.add("made from", [("", line) for line in lines_by_kind(made_from, reverse=True)])
        details.add("went into", [("", line) for line in lines_by_kind(went_into.filter(pl.col("kind") != "policy"))])


def _origins(store: Store, kind: str, node: str) -> pl.DataFrame:
    """As in the lineage; of a rollout, only what its task was made from, and not all that its policy learned from."""
    if kind != "rollout" or tombstone_of(store, node):
        return origins(store, kind, node)
    task = store.query("SELECT task_id FROM rollouts WHERE rollout_id = ?", [node]).item()
    return pl.concat([pl.DataFrame({"kind": ["task"], "id": [task]}), origins(store, "task", task)])


def _explain(store: Store, kind: str, node: str, full: bool, diagnose: Diagnose) -> Details:
    if kind in _WITH_CONVERSATION:
        return _WITH_CONVERSATION[kind](store, node, full, diagnose)
    details = _WITH_LONG_TEXTS[kind](store, node, full) if kind in _WITH_LONG_TEXTS else _EXPLAINERS[kind](store, node)
    return details if isinstance(details, Details) else Details(details)


# ---- queries and frames -----------------------------------------------------------------------------------------------------


def _explain_query(store: Store, node: str, full: bool) -> Facts:
    query = row_of(store, "SELECT * FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", node) or {}
    times = f", {query['occurrences']} times" if (query["occurrences"] or 1) > 1 else ""
    text = cut(query["text"] or "(not decodable)", None if full else TEXT)
    facts = [("text", text), ("read from", f"{query['source']}, row {query['row']}{times}")]
    verdicts = rows_of(store, "SELECT * FROM verdicts WHERE query_id = ? ORDER BY run", node)
    facts += [(f"verdict of {verdict['run']}", _verdict(store, verdict)) for verdict in verdicts]
    for frame in rows_of(store, "SELECT * FROM frames WHERE query_id = ? ORDER BY run", node):
        facts += _frame_facts(frame)
    stored = row_of(store, "SELECT fields FROM query_fields WHERE query_id = ? ORDER BY run LIMIT 1", node)
    own = json.loads(stored["fields"]) if stored else {}
    of_text = next((key for key, value in own.items() if value == query["text"]), None)
    own = {key: value for key, value in own.items() if key != of_text}
    shown = {key: cut(json.dumps(value, ensure_ascii=False), None if full else RESULT) for key, value in own.items()}
    return [*facts, ("other columns", "\n".join(f"{key}: {value}" for key, value in shown.items()))]


def _verdict(store: Store, verdict: dict[str, Any]) -> str:
    if verdict["kept"]:
        return f"kept (last step: {verdict['step']})" + (f", {reason_in_words(verdict['reason'])}" if verdict["reason"] else "")
    text = f"dropped at {verdict['step']}: {reason_in_words(verdict['reason'])}"
    if verdict["duplicate_of"]:
        other = row_of(store, "SELECT text FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", verdict["duplicate_of"])
        sql = "SELECT kept, step FROM verdicts WHERE query_id = ? ORDER BY run <> ?, run LIMIT 1"
        fate = row_of(store, sql, verdict["duplicate_of"], verdict["run"])
        similarity = f", similarity {verdict['similarity']:.3f}" if verdict["similarity"] is not None else ""
        text += f"\nrepeats {verdict['duplicate_of']}{similarity}"
        text += f", itself {'kept' if fate['kept'] else 'dropped at ' + fate['step']}" if fate else ""
        text += f"\n“{other['text']}”" if other else ""
    leak = row_of(store, "SELECT * FROM contaminated WHERE query_id = ? AND run = ?", verdict["query_id"], verdict["run"])
    if leak:
        text += f"\nis like row {leak['held_out_row']} of the held-out set {leak['held_out']}"
        text += f" ({leak['found_by']}, similarity {leak['similarity']:.3f})"
    return text


def _frame_facts(frame: dict[str, Any]) -> Facts:
    tool = f"{frame['tool_id']} of {frame['cluster_id'] or 'no cluster'}, cosine {frame['nearness']:.2f}" if frame["tool_id"] else ""
    understood = [
        ("understood as", f"{frame['world']}/{frame['intent']} {frame['slots']}"),
        ("frame", f"{frame['frame_id']}, combination {frame['combination']}"),
        ("plan shape", frame["shape"] or ""),
    ]
    return [
        *(understood if frame["frame_id"] else [("understood as", "nothing that a world here executes")]),
        ("topic", frame["topic"] or ""),
        ("about", frame["leaf"] or ""),
        ("difficulty", difficulty_text(frame) if frame["difficulty"] is not None else ""),
        ("measured level", str(frame["level"]) if frame["level"] != frame["difficulty"] and frame["level"] is not None else ""),
        ("quality", f"{frame['quality']:.3f}" if frame["quality"] is not None else ""),
        *_status_facts(frame),
        ("nearest tool", tool),
        (
            "rank in its stratum" if frame["frame_id"] else "rank in its topic",
            str(frame["stratum_rank"]) if frame["stratum_rank"] is not None else "",
        ),
    ]


def _status_facts(frame: dict[str, Any]) -> Facts:
    """Status and reason in words; what a reason adds in parentheses stays as it is. Of a row without a frame, the reason says why no world
    reads it, whatever became of the row."""
    status = {"admitted": "a task", "ungrounded": "kept, no task"}.get(frame["status"], str(frame["status"]).replace("_", " "))
    why, _, by = (frame["reason"] or "").partition(" (")
    words = reason_in_words(why) + (f" ({by}" if by else "")
    if frame["frame_id"]:
        return [("status", with_reason(status, words))]
    return [("status", status), ("no task, because", words)]


def _explain_frame(store: Store, node: str) -> Facts:
    facts: Facts = []
    rows = rows_of(store, "SELECT * FROM frames WHERE frame_id = ? ORDER BY run, query_id", node)
    if rows:
        facts += _frame_facts(rows[0])
        facts.append(("asked by", shorten([row["query_id"] for row in rows])))
    task = row_of(store, "SELECT DISTINCT world, intent, division FROM tasks WHERE frame_id = ?", node)
    if task:
        if not rows:
            facts.append(("understood as", f"{task['world']}/{task['intent']}"))
        facts.append(("division", f"{task['division']}, by hash of the frame"))
    return facts


def _explain_run(store: Store, node: str) -> Facts:
    steps = rows_of(store, "SELECT * FROM funnel WHERE run = ? ORDER BY position", node)
    facts = [
        (step["step"], f"{step['rows_in']:,} in, {step['kept']:,} kept, {step['dropped']:,} dropped{_dropped_text(step['reasons'])}")
        for step in steps
    ]
    measured = rows_of(
        store, "SELECT metric, value, n FROM diversity WHERE run = ? QUALIFY round = max(round) OVER () ORDER BY metric", node
    )
    return facts + [(row["metric"], f"{row['value']:.4g} (n {row['n']})") for row in measured if row["value"] is not None]


def _dropped_text(reasons: str | None) -> str:
    """A line for each reason of a step, the most frequent first. reasons: JSON, reason -> rows."""
    counts = sorted(json.loads(reasons or "{}").items(), key=lambda item: -item[1])
    return "".join(f"\n{count:,}: {reason_in_words(reason)}" for reason, count in counts)


_WITH_CONVERSATION: dict[str, Callable[[Store, str, bool, Diagnose], Details]] = {
    "task": explain_conversation.explain_task,
    "trajectory": explain_conversation.explain_trajectory,
    "rollout": explain_conversation.explain_rollout,
    "blueprint": explain_conversation.explain_blueprint,
}
_WITH_LONG_TEXTS: dict[str, Callable[[Store, str, bool], Details | Facts]] = {
    "query": _explain_query,
    "cluster": explain_tools.explain_cluster,
    "world": explain_tools.explain_world,
    "domain": explain_tools.explain_domain,
}
_EXPLAINERS: dict[str, Callable[[Store, str], Details | Facts]] = {
    "frame": _explain_frame,
    "run": _explain_run,
    "tool": explain_tools.explain_tool,
    "taxonomy": explain_tools.explain_taxonomy,
    "policy": explain_training.explain_policy,
    "stage": explain_training.explain_stage,
    "release": explain_training.explain_release,
    "split": explain_training.explain_split,
    "evaluation": explain_training.explain_evaluation,
    "withdrawal": explain_training.explain_withdrawal,
}
