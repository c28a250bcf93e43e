"""Explanation of any id in a store.

`explain` says what the tables hold on an id: why a row was kept or dropped (and which row it repeats), its difficulty, its region for each
policy, its splits, the policies trained on it, and its lineage. It returns plain values that print well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from storage.releases.lineage import lines_by_kind, shorten
from storage.releases.lineage_graph import IS_ENGINE, ORDER, POLICY_NAME, kind_of, origins, uses
from storage.store import Store
from storage.tables import CERTAINTY

_CHECKS_TEXT = 120
"""Most characters of a gate's checks."""

Facts = list[tuple[str, str]]


@dataclass(frozen=True)
class Explanation:
    """Explanation of one id. facts: (label, text) pairs in reading order."""

    id: str
    kind: str
    facts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max((len(label) for label, _ in self.facts), default=0)
        lines, last = [f"{self.kind} {self.id}"], ""
        for label, text in self.facts:
            for line in text.splitlines():
                lines.append(f"  {label if label != last else '':<{width}}  {_printable(line)}")
                last = label
        return "\n".join(lines)


def explain(store: Store, node: str) -> Explanation:
    """Origin, verdict, difficulty, region and splits of an id, and the policies trained on it.

    Raises:
        BadInput: the store does not have this id; the message names the nearest ids.
    """
    kind = kind_of(store, node)
    facts = _EXPLAINERS[kind](store, node)
    if kind in ORDER:
        made_from, went_into = origins(store, kind, node), uses(store, kind, node)
        facts += [("made from", line) for line in lines_by_kind(made_from, reverse=True)]
        facts += [("went into", line) for line in lines_by_kind(went_into.filter(pl.col("kind") != "policy"))]
        trained = went_into.filter(pl.col("kind") == "policy")["id"].to_list()
        if kind not in ("policy", "stage", "evaluation"):
            facts.append(("trained on by", ", ".join(_policy_name(store, policy) for policy in trained) or "no policy yet"))
    return Explanation(node, kind, tuple((label, text) for label, text in facts if text))


# ---- rows to text ---------------------------------------------------------------------------------------------------------


def _rows(store: Store, sql: str, *params: Any) -> list[dict[str, Any]]:
    return store.query(sql, params).to_dicts()


def _row(store: Store, sql: str, *params: Any) -> dict[str, Any] | None:
    return next(iter(_rows(store, sql, *params)), None)


def _printable(text: str) -> str:
    """The text without control characters, which a terminal would execute."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _policy_name(store: Store, policy: str) -> str:
    row = _row(store, f"SELECT {POLICY_NAME} AS name FROM policies p LEFT JOIN stages s USING (stage_id) WHERE policy_id = ?", policy)
    return f"{policy} ({row['name']})" if row and row["name"] != policy else policy


def _counts(rows: list[dict[str, Any]], label: str) -> str:
    return ", ".join(f"{row['n']} {row[label] if row[label] is not None else 'unknown'}" for row in rows)


def _with_reason(text: str, reason: str | None) -> str:
    return f"{text}: {reason}" if reason else text


def _interval(row: Mapping[str, Any]) -> str:
    return f" [{row['low']:.3f}, {row['high']:.3f}]" if row["low"] is not None else ""


def _outcome(row: Mapping[str, Any]) -> str:
    failed = _failed_checks(row["checks"])
    reward = f", reward {row['reward']:g}" if row["reward"] is not None else ""
    return f"{row['outcome']}{reward}" + (f"; failed checks: {failed}" if failed else "")


def _failed_checks(checks: str | None) -> str:
    return ", ".join(name for name, passed in json.loads(checks or "{}").items() if not passed)


def _difficulty(row: dict[str, Any]) -> str:
    return f"{row['difficulty']} (tool load {row['s_tool']}, chain depth {row['s_chain']}, constraints {row['s_constraints']})"


# ---- one function a kind -----------------------------------------------------------------------------------------------------


def _explain_query(store: Store, node: str) -> Facts:
    query = _row(store, "SELECT * FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", node) or {}
    times = f", {query['occurrences']} times" if (query["occurrences"] or 1) > 1 else ""
    facts = [("text", query["text"] or "(not decodable)"), ("read from", f"{query['source']}, row {query['row']}{times}")]
    verdicts = _rows(store, "SELECT * FROM verdicts WHERE query_id = ? ORDER BY run", node)
    facts += [(f"verdict of {verdict['run']}", _verdict(store, verdict)) for verdict in verdicts]
    for frame in _rows(store, "SELECT * FROM frames WHERE query_id = ? ORDER BY run", node):
        facts += _frame_facts(frame)
    return facts


def _verdict(store: Store, verdict: dict[str, Any]) -> str:
    if verdict["kept"]:
        return f"kept (last step: {verdict['step']})" + (f", {verdict['reason']}" if verdict["reason"] else "")
    text = f"dropped at {verdict['step']}: {verdict['reason']}"
    if verdict["duplicate_of"]:
        other = _row(store, "SELECT text FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", verdict["duplicate_of"])
        sql = "SELECT kept, step FROM verdicts WHERE query_id = ? ORDER BY run <> ?, run LIMIT 1"
        fate = _row(store, sql, verdict["duplicate_of"], verdict["run"])
        similarity = f", similarity {verdict['similarity']:.3f}" if verdict["similarity"] is not None else ""
        text += f"\nrepeats {verdict['duplicate_of']}{similarity}"
        text += f", itself {'kept' if fate['kept'] else 'dropped at ' + fate['step']}" if fate else ""
        text += f"\n“{other['text']}”" if other else ""
    leak = _row(store, "SELECT * FROM contaminated WHERE query_id = ? AND run = ?", verdict["query_id"], verdict["run"])
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
        ("about", frame["leaf"] or ""),
        ("difficulty", _difficulty(frame) if frame["difficulty"] is not None else ""),
        ("measured level", str(frame["level"]) if frame["level"] != frame["difficulty"] and frame["level"] is not None else ""),
        ("quality", f"{frame['quality']:.3f}" if frame["quality"] is not None else ""),
        ("status", _with_reason(f"{frame['status']}", frame["reason"])),
        ("nearest tool", tool),
        ("rank in its stratum", str(frame["stratum_rank"]) if frame["stratum_rank"] is not None else ""),
    ]


def _explain_frame(store: Store, node: str) -> Facts:
    facts: Facts = []
    rows = _rows(store, "SELECT * FROM frames WHERE frame_id = ? ORDER BY run, query_id", node)
    if rows:
        facts += _frame_facts(rows[0])
        facts.append(("asked by", shorten([row["query_id"] for row in rows])))
    task = _row(store, "SELECT DISTINCT world, intent, division FROM tasks WHERE frame_id = ?", node)
    if task:
        if not rows:
            facts.append(("understood as", f"{task['world']}/{task['intent']}"))
        facts.append(("division", f"{task['division']}, by hash of the frame"))
    return facts


def _explain_task(store: Store, node: str) -> Facts:
    task = _row(store, "SELECT * FROM tasks WHERE task_id = ?", node) or {}
    spec = json.loads(task["spec"])
    user = next((message["content"] for message in spec["messages"] if message["role"] == "user"), "")
    facts = [
        ("asks", user),
        ("world", f"{task['world']}, seed {task['world_seed']}, intent {task['intent']} ({task['leaf']}), in {task['language']}"),
    ]
    if task["query_id"]:
        query = _row(store, "SELECT text, source, row FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", task["query_id"])
        facts.append(("from query", task["query_id"] + (f", row {query['row']} of {query['source']}\n“{query['text']}”" if query else "")))
    if task["blueprint_id"]:
        facts.append(("from blueprint", task["blueprint_id"]))
    rated = "SELECT * FROM frames WHERE frame_id = ? AND difficulty IS NOT NULL ORDER BY run, query_id LIMIT 1"
    frame = _row(store, rated, task["frame_id"])
    facts.append(("difficulty", _difficulty(frame) if frame and frame["difficulty"] == task["difficulty"] else f"{task['difficulty']}"))
    facts.append(("division", f"{task['division']}, by hash of its frame {task['frame_id']}; used for {task['use']}"))
    for tag in _rows(store, _TAGS_SQL, node):
        facts += [("certainty", _tag(store, tag)), ("prior", _prior(tag)), *_draws(store, tag)]
    for row in _rows(store, "SELECT release_id, split, kind, item_id, weight FROM release_items WHERE task_id = ? ORDER BY ALL", node):
        facts.append(("in split", f"{row['split']} of {row['release_id']} as {row['kind']} {row['item_id']}, weight {row['weight']:.6g}"))
    return facts


def _tag(store: Store, tag: dict[str, Any]) -> str:
    measured_on = "the last rollouts of its siblings while it was in training" if tag["purpose"] == "rl" else tag["purpose"]
    return (
        f"{tag['region']} for {_policy_name(store, tag['policy_id'])}: {tag['successes']} of {tag['k']} "
        f"({tag['rate']:.2f}, 95 % interval {tag['wilson_low']:.2f} to {tag['wilson_high']:.2f}), {measured_on}"
    )


def _prior(tag: dict[str, Any]) -> str:
    if tag["difficulty_prior"] is None:
        return ""
    basis = "static difficulty" if tag["prior_basis"] == "static" else tag["prior_basis"]
    return f"failure rate {tag['difficulty_prior']:.2f} expected, by {tag['prior_draws']} rollouts of other tasks of its {basis}"


_TAGS_SQL = f"""SELECT * FROM {CERTAINTY} JOIN parts USING (part_id) WHERE task_id = ? AND policy_id IS NOT NULL
ORDER BY committed_at, policy_id, purpose"""


def _draws(store: Store, tag: dict[str, Any]) -> Facts:
    """The rollouts that a tag was measured on: outcome and failed checks of each."""
    sql = """SELECT rollout_id, draw, outcome, checks, attempts, failure FROM rollouts
             WHERE task_id = ? AND policy_id = ? AND purpose = ? ORDER BY draw"""
    rows = _rows(store, sql, tag["task_id"], tag["policy_id"], tag["purpose"])
    return [("draw", f"{row['draw']}: {_draw(row)} ({row['rollout_id']})") for row in rows]


def _draw(row: dict[str, Any]) -> str:
    failed, attempts = _failed_checks(row["checks"]), row["attempts"] or 1
    why = f"failed {failed}" if failed else row["failure"] or ""
    again = f"begun {attempts} times" if attempts > 1 else ""
    return "; ".join([row["outcome"].replace("_", " "), *filter(None, (why, again))])


def _item_splits(store: Store, node: str) -> Facts:
    rows = _rows(store, "SELECT release_id, split, weight FROM release_items WHERE item_id = ? ORDER BY ALL", node)
    return [("in split", f"{row['split']} of {row['release_id']}, weight {row['weight']:.6g}") for row in rows]


def _explain_trajectory(store: Store, node: str) -> Facts:
    row = _row(store, "SELECT * EXCLUDE (messages) FROM trajectories WHERE trajectory_id = ?", node) or {}
    tokens = f"{row['prompt_tokens'] or 0} + {row['completion_tokens'] or 0} tokens"
    return [
        ("about", f"task {row['task_id']} ({row['domain']}, {row['language']}, world {_world(row)})"),
        ("made by", f"{row['teacher']}, {tokens}, {row['cost_usd'] or 0:.4f} USD"),
        ("outcome", _outcome(row)),
        ("verdict", _with_reason("accepted" if row["accepted"] else "rejected", row["reason"])),
        ("mode", f"{row['mode_coarse']} ({row['mode_fine']})" if row["mode_coarse"] else ""),
        ("complexity", f"{row['complexity']:.2f} ({row['complexity_band']})" if row["complexity"] is not None else ""),
        ("tools used", ", ".join(row["tools_used"] or [])),
        *_item_splits(store, node),
    ]


def _world(row: Mapping[str, Any]) -> str:
    return "none" if row["world"] is None else f"{row['world']}, seed {row['world_seed']}"


def _explain_rollout(store: Store, node: str) -> Facts:
    row = _row(store, "SELECT * EXCLUDE (messages, turns) FROM rollouts WHERE rollout_id = ?", node) or {}
    return [
        ("about", f"task {row['task_id']}, draw {row['draw']}, for {row['purpose']}"),
        ("made by", _policy_name(store, row["policy_id"])),
        ("outcome", _outcome(row) + (f"; {row['failure']}" if row["failure"] else "")),
        *_item_splits(store, node),
    ]


def _explain_policy(store: Store, node: str) -> Facts:
    policy = _row(store, f"SELECT *, {IS_ENGINE} AS is_engine FROM policies p WHERE policy_id = ?", node) or {}
    weights = f" (weights {policy['weights_hash']})" if policy["weights_hash"] else ""
    kind = "engine" if policy["is_engine"] else "checkpoint"
    facts = [(kind, f"{policy['path']}{weights}"), *_explain_stage(store, policy["stage_id"])]
    measured = _rows(store, "SELECT * FROM evaluations WHERE policy_id = ? AND facet = 'all' ORDER BY use, decoding", node)
    facts += [
        ("evaluated", f"{row['use']} {row['decoding']}: {row['rate']:.3f}{_interval(row)} on {row['tasks']} tasks") for row in measured
    ]
    gates = _rows(store, "SELECT * FROM promotions WHERE policy_id = ? ORDER BY position", node)
    facts += [("gate", ("promoted" if row["passed"] else "not promoted") + f": {row['checks'] or ''}"[:_CHECKS_TEXT]) for row in gates]
    sql = f"SELECT region, count(*) AS n FROM {CERTAINTY} WHERE policy_id = ? AND purpose = 'probe' GROUP BY 1 ORDER BY n DESC, 1"
    return [*facts, ("probed tasks", _counts(_rows(store, sql, node), "region"))]


def _explain_stage(store: Store, node: str) -> Facts:
    stage = _row(store, "SELECT * FROM stages WHERE stage_id = ?", node)
    if stage is None:
        return [("stage", node or "none: it came from outside")]
    sql = """SELECT count(*), count(DISTINCT task_id), count(DISTINCT task_id) FILTER (t.query_id IS NOT NULL)
             FROM release_items i LEFT JOIN tasks t USING (task_id) WHERE i.release_id = ? AND i.split = ?"""
    items, tasks, from_queries = store.query(sql, [stage["release_id"], stage["split"]]).row(0)
    read = f"{items} items, {tasks} tasks, {from_queries} of them from raw queries"
    return [
        ("stage", f"{stage['name']} ({stage['algorithm']}, {stage['backend']}), {node}"),
        ("read", f"split {stage['split']} of {stage['release_id']}: {read}"),
        ("started from", _policy_name(store, stage["input_policy_id"]) if stage["input_policy_id"] else "scratch"),
        ("code", stage["code_hash"] or ""),
        ("took", f"{stage['seconds']:.1f} s" if stage["seconds"] is not None else ""),
    ]


def _explain_release(store: Store, node: str) -> Facts:
    row = _row(store, "SELECT * FROM releases WHERE release_id = ?", node) or {}
    manifest = json.loads(row["manifest"])
    facts = [("name", row["name"])]
    for split, described in manifest.pop("splits", {}).items():
        facts.append(("split", f"{split}: {described['items']} items, {described['tasks']} tasks, hash {described['hash'][:16]}"))
    return facts + [(key, json.dumps(value, ensure_ascii=False)) for key, value in manifest.items() if key != "name"]


def _explain_split(store: Store, node: str) -> Facts:
    release, _, split = node.rpartition("/")
    sql = "SELECT kind, count(*) AS n FROM release_items WHERE release_id = ? AND split = ? GROUP BY 1 ORDER BY 1"
    return [("of release", release), ("items", _counts(_rows(store, sql, release, split), "kind"))]


def _explain_blueprint(store: Store, node: str) -> Facts:
    row = _row(store, "SELECT * FROM blueprints WHERE blueprint_id = ?", node) or {}
    outcomes = _rows(store, "SELECT outcome, count(*) AS n FROM trajectories WHERE blueprint_id = ? GROUP BY 1 ORDER BY n DESC, 1", node)
    return [
        ("status", _with_reason(row["status"], row["reason"])),
        ("cell", f"{row['domain']} x {row['mode_family']} x {row['complexity_band']}, round {row['round']}" if row["world"] else ""),
        ("world", _world(row)),
        ("trajectories", _counts(outcomes, "outcome")),
    ]


def _explain_cluster(store: Store, node: str) -> Facts:
    row = _row(store, "SELECT * FROM clusters WHERE cluster_id = ?", node) or {}
    statuses = _rows(store, "SELECT status, count(*) AS n FROM blueprints WHERE cluster_id = ? GROUP BY 1 ORDER BY n DESC, 1", node)
    return [
        ("domain", f"{row['domain']}, world {row['world'] or 'none: not executable'}"),
        ("tools", ", ".join(row["tool_ids"] or [])),
        ("blueprints", _counts(statuses, "status")),
    ]


def _explain_tool(store: Store, node: str) -> Facts:
    row = _row(store, "SELECT * FROM tools WHERE tool_id = ?", node) or {}
    used = _row(store, "SELECT count(*) AS n FROM trajectories WHERE list_contains(tools_used, ?)", row["name"]) or {"n": 0}
    return [
        ("what it does", row["description"] or ""),
        ("belongs to", f"server {row['server']}, domain {row['domain']}, world {row['world'] or 'none: not executable'}"),
        ("changes state", "yes" if row["changes_state"] else "no"),
        ("called in", f"{used['n']} trajectories"),
    ]


def _explain_run(store: Store, node: str) -> Facts:
    steps = _rows(store, "SELECT * FROM funnel WHERE run = ? ORDER BY position", node)
    facts = [
        (step["step"], f"{step['rows_in']:,} in, {step['kept']:,} kept, {step['dropped']:,} dropped {step['reasons'] or ''}")
        for step in steps
    ]
    measured = _rows(store, "SELECT metric, value, n FROM diversity WHERE run = ? QUALIFY round = max(round) OVER () ORDER BY metric", node)
    return facts + [(row["metric"], f"{row['value']:.4g} (n {row['n']})") for row in measured if row["value"] is not None]


def _explain_evaluation(store: Store, node: str) -> Facts:
    rows = _rows(store, "SELECT * FROM evaluations WHERE evaluation_id = ? ORDER BY facet, facet_value", node)
    facts = [("of policy", _policy_name(store, rows[0]["policy_id"])), ("on", f"{rows[0]['use']}, {rows[0]['decoding']}")]
    for row in rows:
        rate = f"{row['rate']:.3f}{_interval(row)}, {row['tasks']} tasks, {row['samples']} samples"
        facts.append((f"{row['facet']} {row['facet_value'] or ''}".strip(), rate))
    return facts


_EXPLAINERS: dict[str, Callable[[Store, str], Facts]] = {
    "query": _explain_query,
    "frame": _explain_frame,
    "task": _explain_task,
    "trajectory": _explain_trajectory,
    "rollout": _explain_rollout,
    "policy": _explain_policy,
    "stage": _explain_stage,
    "release": _explain_release,
    "split": _explain_split,
    "blueprint": _explain_blueprint,
    "cluster": _explain_cluster,
    "tool": _explain_tool,
    "run": _explain_run,
    "evaluation": _explain_evaluation,
}
