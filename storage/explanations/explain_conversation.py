"""Explanation of what was played: a task, a trajectory, a rollout, a blueprint. It shows the conversation, and the plan beside it.

One idea: what happened is derived from the messages, and what was planned from the blueprint or the task, so both can be read side by
side. Why a check failed needs the world, which this folder does not know: the caller passes a function that replays it (`Diagnose`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.conversation import mode_in_words
from storage.explanations.conversation_text import TEXT, PlannedCall, call_text, conversation_rows, parse_messages, plan_rows
from storage.explanations.store_rows import (
    Details,
    Facts,
    count_by,
    difficulty_in_words,
    difficulty_text,
    failed_names,
    outcome_text,
    policy_name,
    row_of,
    rows_of,
    with_reason,
    world_text,
)
from storage.records import JSON
from storage.releases.text_layout import cut
from storage.store import Store
from storage.tables import CERTAINTY

STATUSES = {
    "accepted": "accepted",
    "rejected": "not accepted",
    "calibration": "calibration: it only measured which complexity is low and high, and is not trained on",
}
"""Status of a blueprint -> words."""
_RATED = "SELECT * FROM frames WHERE frame_id = ? AND difficulty IS NOT NULL ORDER BY run, query_id LIMIT 1"
_TAGS_SQL = f"""SELECT * FROM {CERTAINTY} JOIN parts USING (part_id) WHERE task_id = ? AND policy_id IS NOT NULL
ORDER BY committed_at, policy_id, purpose"""
_EXAMPLES = 3


@dataclass(frozen=True)
class FailedCheck:
    """A check that a conversation failed. demand: what must hold; expected, found: texts, empty if there is nothing to say."""

    check: str
    demand: str
    expected: str = ""
    found: str = ""


Diagnose = Callable[[Store, Mapping[str, Any]], Sequence[FailedCheck]]
"""(store, row of `trajectories` or `rollouts`) -> its failed checks, with what was expected and what was there."""


def list_names(_: Store, row: Mapping[str, Any]) -> list[FailedCheck]:
    """The failed checks without a replay: their names alone."""
    return [FailedCheck(name, "") for name in failed_names(row["checks"])]


# ---- tasks ------------------------------------------------------------------------------------------------------------------


def explain_task(store: Store, node: str, full: bool, _: Diagnose) -> Details:
    task = row_of(store, "SELECT * FROM tasks WHERE task_id = ?", node) or {}
    spec = json.loads(task["spec"])
    said = [(message["role"], message["content"]) for message in spec["messages"] if message["content"]]
    details = Details(
        [
            ("asks", cut(next((text for role, text in said if role == "user"), ""), None if full else TEXT)),
            ("world", f"{world_text(task)}, intent {task['intent']} ({task['leaf']}), in {task['language']}"),
            *_task_origin(store, task),
        ]
    )
    for tag in rows_of(store, _TAGS_SQL, node):
        details.facts += [("certainty", _tag_text(store, tag)), ("prior", _prior_text(tag))]
    for row in rows_of(store, "SELECT release_id, split, kind, item_id, weight FROM release_items WHERE task_id = ? ORDER BY ALL", node):
        details.facts.append(
            ("in split", f"{row['split']} of {row['release_id']} as {row['kind']} {row['item_id']}, weight {row['weight']:.6g}")
        )
    if spec.get("conversation"):
        details.add("plan of the conversation", blueprint_rows(spec["conversation"]))
    else:
        plan = spec["plan"]
        calls = [("call", call_text(call["tool"], call["arguments"])) for call in plan["calls"]]
        details.add("expert plan", [*calls, ("answer", plan["answer"])] if plan["answer"] else calls)
        details.add("it is solved if", success_rows(spec["success"]))
    details.add("draws of policies", _draws(store, node))
    return details


def _task_origin(store: Store, task: Mapping[str, Any]) -> Facts:
    facts: Facts = []
    if task["query_id"]:
        query = row_of(store, "SELECT text, source, row FROM queries WHERE query_id = ? ORDER BY run LIMIT 1", task["query_id"])
        facts.append(("from query", task["query_id"] + (f", row {query['row']} of {query['source']}\n“{query['text']}”" if query else "")))
    if task["blueprint_id"]:
        facts.append(("from blueprint", task["blueprint_id"]))
    frame = row_of(store, _RATED, task["frame_id"])
    is_rated = frame and frame["difficulty"] == task["difficulty"]
    facts.append(("difficulty", difficulty_text(frame) if frame and is_rated else difficulty_in_words(task["difficulty"])))
    facts.append(("division", f"{task['division']}, by hash of its frame {task['frame_id']}; used for {task['use']}"))
    return facts


def _tag_text(store: Store, tag: Mapping[str, Any]) -> str:
    measured_on = "the last rollouts of its siblings while it was in training" if tag["purpose"] == "rl" else tag["purpose"]
    return (
        f"{tag['region']} for {policy_name(store, tag['policy_id'])}: {tag['successes']} of {tag['k']} "
        f"({tag['rate']:.2f}, 95 % interval {tag['wilson_low']:.2f} to {tag['wilson_high']:.2f}), {measured_on}"
    )


def _prior_text(tag: Mapping[str, Any]) -> str:
    if tag["difficulty_prior"] is None:
        return ""
    basis = "static difficulty" if tag["prior_basis"] == "static" else tag["prior_basis"]
    return f"failure rate {tag['difficulty_prior']:.2f} expected, by {tag['prior_draws']} rollouts of other tasks of its {basis}"


def _draws(store: Store, node: str) -> Facts:
    """All rollouts of a task, by policy and purpose: outcome, failed checks and id of each."""
    rows = rows_of(
        store,
        """SELECT rollout_id, policy_id, purpose, draw, outcome, checks, attempts, failure FROM rollouts WHERE task_id = ?
           ORDER BY policy_id, purpose, draw""",
        node,
    )
    facts: Facts = []
    for policy, purpose in dict.fromkeys((row["policy_id"], row["purpose"]) for row in rows):
        drawn = [row for row in rows if (row["policy_id"], row["purpose"]) == (policy, purpose)]
        successes = sum(row["outcome"] == "success" for row in drawn)
        facts.append((purpose, f"{policy_name(store, policy)}: {successes} of {len(drawn)} succeeded"))
        facts += [(f"draw {row['draw']}", f"{_draw_text(row)} ({row['rollout_id']})") for row in drawn]
    return facts


def _draw_text(row: Mapping[str, Any]) -> str:
    failed, attempts = ", ".join(failed_names(row["checks"])), row["attempts"] or 1
    why = f"failed {failed}" if failed else row["failure"] or ""
    again = f"begun {attempts} times" if attempts > 1 else ""
    return "; ".join([row["outcome"].replace("_", " "), *filter(None, (why, again))])


def success_rows(success: Mapping[str, JSON]) -> Facts:
    """The conditions of success of a task, or of a goal of a blueprint (same keys)."""
    changes = [("changes", f"{path} becomes {json.dumps(value, ensure_ascii=False)}") for path, value in success["changes"].items()]
    seen = ", ".join(fact["value"] for fact in success["evidence"])
    stated = ", ".join(f"{fact['value']} ({fact['kind']})" for fact in success["facts"])
    return [
        *(changes or [("changes", "nothing changes")]),
        *([("shown before it acts", seen)] if seen else []),
        *([("answer states", stated)] if stated else []),
        *([("refuses", success["refusal"].replace("_", " "))] if success["refusal"] else []),
    ]


# ---- conversations ----------------------------------------------------------------------------------------------------------


def _in_splits(store: Store, node: str) -> Facts:
    rows = rows_of(store, "SELECT release_id, split, weight FROM release_items WHERE item_id = ? ORDER BY ALL", node)
    return [("in split", f"{row['split']} of {row['release_id']}, weight {row['weight']:.6g}") for row in rows]


def explain_trajectory(store: Store, node: str, full: bool, diagnose: Diagnose) -> Details:
    row = row_of(store, "SELECT * FROM trajectories WHERE trajectory_id = ?", node) or {}
    return _with_conversation(store, Details(trajectory_facts(store, row)), row, full, diagnose)


def trajectory_facts(store: Store, row: Mapping[str, Any]) -> Facts:
    """row: of `trajectories`."""
    tokens = f"{row['prompt_tokens'] or 0} + {row['completion_tokens'] or 0} tokens"
    verdict = "accepted" if row["accepted"] else with_reason("not accepted", STATUSES.get(row["reason"] or "", row["reason"]))
    about = f"task {row['task_id']}" if row["task_id"] else f"blueprint {row['blueprint_id']}"
    about = about if row["task_id"] or row["blueprint_id"] else "no task"
    return [
        ("about", f"{about} ({row['domain']}, {row['language']}, world {world_text(row)})"),
        ("made by", f"{row['teacher']}, {tokens}, {row['cost_usd'] or 0:.4f} USD"),
        ("outcome", outcome_text(row)),
        ("verdict", verdict),
        ("mode", f"{mode_in_words(row['mode_coarse'])}\n{row['mode_fine']}" if row["mode_coarse"] else ""),
        (
            "complexity",
            f"{row['complexity']:.2f}" + (f" ({row['complexity_band']})" if row["complexity_band"] else "")
            if row["complexity"] is not None
            else "",
        ),
        ("tools used", ", ".join(row["tools_used"] or [])),
        *_provenance(store, row["trajectory_id"]),
        *_in_splits(store, row["trajectory_id"]),
    ]


def _provenance(store: Store, node: str) -> Facts:
    row = row_of(store, "SELECT * FROM provenance WHERE trajectory_id = ?", node)
    if row is None:
        return []
    grades = [(name, row[name]) for name in ("planning", "fidelity", "presentation") if row[name] is not None]
    return [
        ("roles", ", ".join(f"{role} {engine}" for role, engine in json.loads(row["roles"] or "{}").items())),
        ("user", f"{row['user_adhered']} of {row['user_turns']} turns followed the script at the first try" if row["user_turns"] else ""),
        ("judge's grades", ", ".join(f"{name} {grade}" for name, grade in grades)),
        ("failure", row["failure"] or ""),
    ]


def explain_rollout(store: Store, node: str, full: bool, diagnose: Diagnose) -> Details:
    row = row_of(store, "SELECT * EXCLUDE (turns) FROM rollouts WHERE rollout_id = ?", node) or {}
    return _with_conversation(store, Details(rollout_facts(store, row)), row, full, diagnose)


def rollout_facts(store: Store, row: Mapping[str, Any]) -> Facts:
    """row: of `rollouts`."""
    return [
        ("about", f"task {row['task_id']}, draw {row['draw']}, for {row['purpose']}"),
        ("made by", policy_name(store, row["policy_id"])),
        ("outcome", outcome_text(row) + (f"; {row['failure']}" if row["failure"] else "")),
        *_in_splits(store, row["rollout_id"]),
    ]


def _with_conversation(store: Store, details: Details, row: Mapping[str, Any], full: bool, diagnose: Diagnose) -> Details:
    """Adds why checks failed, the conversation, and the plan beside what happened."""
    messages = parse_messages(row["messages"])
    if failed_names(row["checks"]):
        details.add("failed checks: expected, and found", [pair for each in diagnose(store, row) for pair in _failed_rows(each)])
    details.add("conversation", conversation_rows(messages, full=full))
    details.add("plan, and what happened", plan_rows(planned_calls(store, row), messages, full=full))
    return details


def _failed_rows(failed: FailedCheck) -> Facts:
    rows = [(failed.check, failed.demand or "failed"), ("  expected", failed.expected), ("  found", failed.found)]
    return [(label, text) for label, text in rows if text]


def planned_calls(store: Store, row: Mapping[str, Any]) -> list[PlannedCall]:
    """The calls of the plan: of its blueprint, of the conversation that its task holds, or of the task."""
    blueprint = row_of(store, "SELECT spec FROM blueprints WHERE blueprint_id = ?", row.get("blueprint_id"))
    task = row_of(store, "SELECT spec FROM tasks WHERE task_id = ?", row["task_id"])
    spec = json.loads(task["spec"]) if task else {}
    for plan in (spec.get("conversation"), json.loads(blueprint["spec"] or "{}") if blueprint else None):
        if plan and "nodes" in plan:
            return _blueprint_calls(plan)
    return [PlannedCall(call["tool"], call["arguments"]) for call in spec["plan"]["calls"]] if spec else []


# ---- blueprints -------------------------------------------------------------------------------------------------------------


def _blueprint_calls(blueprint: Mapping[str, JSON]) -> list[PlannedCall]:
    """The planned calls of a blueprint, in the order of its turns."""
    notes = {
        each["at"]: {"error": "its first result is an error, by plan", "noise": "its result has extra fields, by plan"}.get(
            each["kind"], ""
        )
        for each in blueprint["perturbations"]
    }
    return [
        PlannedCall(node["tool"], {name: value["value"] for name, value in node["arguments"].items()}, turn["t"] + 1, notes.get(number, ""))
        for turn in blueprint["turns"]
        for step in turn["steps"]
        for number in step
        for node in [blueprint["nodes"][number]]
    ]


def blueprint_rows(blueprint: Mapping[str, JSON]) -> Facts:
    """The plan of a conversation: what the user says, the calls and the reply of every turn, then what each goal needs."""
    calls = _blueprint_calls(blueprint)
    rows: Facts = []
    for turn in blueprint["turns"]:
        number = turn["t"] + 1
        rows.append((f"user {number}", turn["text"]))
        rows += [
            ("call", call_text(call.tool, call.arguments) + (f" ({call.note})" if call.note else ""))
            for call in calls
            if call.turn == number
        ]
        rows.append(("assistant", turn["reply"]))
    for number, goal in enumerate(blueprint["goals"], 1):
        needs = [("goal", "the user drops it")] if goal["is_abandoned"] else success_rows(goal)
        rows += [
            (f"goal {number}", f"{goal['intent']} {json.dumps(goal['slots'], ensure_ascii=False)}"),
            *((f"  {name}", text) for name, text in needs),
        ]
    return rows


def explain_blueprint(store: Store, node: str, _: bool, __: Diagnose) -> Details:
    row = row_of(store, "SELECT * FROM blueprints WHERE blueprint_id = ?", node) or {}
    played = rows_of(store, "SELECT trajectory_id, outcome FROM trajectories WHERE blueprint_id = ? ORDER BY trajectory_id", node)
    outcomes = rows_of(store, "SELECT outcome, count(*) AS n FROM trajectories WHERE blueprint_id = ? GROUP BY 1 ORDER BY n DESC, 1", node)
    cell = [f"domain {row['domain']}", *(row[name] for name in ("mode_family", "complexity_band") if row[name])]
    status = STATUSES.get(row["status"], row["status"])
    details = Details(
        [
            ("status", with_reason(status, row["reason"])),
            (
                "cell",
                " x ".join(cell) + (f", round {row['round']}" if (row["round"] or 0) >= 0 and row["round"] is not None else "")
                if row["world"]
                else "",
            ),
            ("mode family", mode_in_words(row["mode_family"]) if row["mode_family"] else ""),
            ("world", world_text(row)),
            ("cluster", row["cluster_id"] or ""),
            ("trajectories", count_by(outcomes, "outcome")),
            *(("shown by", f"headrace explain {each['trajectory_id']}") for each in played[:_EXAMPLES]),
        ]
    )
    spec = json.loads(row["spec"] or "{}")
    if "nodes" in spec:
        details.add("plan", blueprint_rows(spec))
    elif "plan" in spec:
        calls = [("call", call_text(call["tool"], call["arguments"])) for call in spec["plan"]["calls"]]
        details.add(
            "plan of its one goal",
            [("goal", call_text(spec["goal"]["intent"], spec["goal"]["slots"])), *calls, ("answer", spec["plan"]["answer"])],
        )
    return details
