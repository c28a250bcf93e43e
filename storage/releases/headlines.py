"""The content of a node in a few words: the text of a query, the request of a task, what the user says first in a conversation."""

from __future__ import annotations

import json

from storage.releases.lineage_graph import POLICY_NAME
from storage.store import Store

_LENGTH = 160
_SQL: dict[str, str] = {
    "tool": "SELECT description FROM tools WHERE tool_id = ?",
    "cluster": "SELECT domain || ', ' || len(tool_ids) || ' tools' FROM clusters WHERE cluster_id = ?",
    "blueprint": "SELECT json_extract_string(spec, '$.turns[0].text') FROM blueprints WHERE blueprint_id = ?",
    "query": "SELECT text FROM queries WHERE query_id = ? ORDER BY run",
    "frame": "SELECT world || '/' || intent || ' ' || coalesce(slots, '') FROM frames WHERE frame_id = ? ORDER BY run, query_id",
    "task": "SELECT json_extract_string(spec, '$.messages[#-1].content') FROM tasks WHERE task_id = ?",
    "release": "SELECT name FROM releases WHERE release_id = ?",
    "stage": "SELECT name || ' (' || algorithm || ')' FROM stages WHERE stage_id = ?",
    "policy": f"SELECT {POLICY_NAME} FROM policies p LEFT JOIN stages s USING (stage_id) WHERE policy_id = ?",
    "withdrawal": "SELECT source || ': ' || reason FROM withdrawals WHERE withdrawal_id = ?",
    "evaluation": "SELECT use || ', ' || decoding FROM evaluations WHERE evaluation_id = ?",
}
_CONVERSATIONS = {"trajectory": "trajectories", "rollout": "rollouts"}


def headline(store: Store, kind: str, node: str) -> str:
    """One line of content; empty if this kind has none."""
    if table := _CONVERSATIONS.get(kind):
        messages = json.loads(_first(store, f"SELECT messages FROM {table} WHERE {kind}_id = ?", node) or "[]")
        text = next((message.get("content") for message in messages if message["role"] == "user"), None)
    else:
        text = _first(store, _SQL[kind], node) if kind in _SQL else None
    line = " ".join((text or "").split())
    return line if len(line) <= _LENGTH else f"{line[:_LENGTH]}…"


def _first(store: Store, sql: str, node: str) -> str | None:
    rows = store.query(f"{sql} LIMIT 1", [node])
    return None if rows.is_empty() else rows.item()
