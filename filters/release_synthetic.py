"""A release of synthesised data, for users who train outside Headrace.

Split `sft` has every accepted conversation once, `rl` the tasks for rollouts, and `eval` the held-out tasks, if there are any. Near
duplicates (`near.py`, on messages and calls of user and assistant) are removed here, not at acceptance, so that the figures of a synthesis
run cover all its conversations; the conversation that was accepted first stays.

The release uses no policy (`route.py` does) and no tasks from raw queries.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from filters.dedup import near
from filters.normalised_text import normalise_text
from storage.errors import BadInput
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store

NAME = "synthesized"
VERSION = 1


def collect(store: Store) -> str:
    """Freezes all accepted conversations of the store, and returns the release id; equal content gives an equal id.

    Raises:
        BadInput: the store has no synthesised conversation.
    """
    config = near.NearConfig()
    conversations = store.query(
        """SELECT trajectory_id, task_id, messages FROM trajectories JOIN blueprints USING (blueprint_id)
           WHERE accepted AND round >= 0 AND trajectories.cluster_id IS NOT NULL ORDER BY round, trajectory_id"""
    )
    if conversations.is_empty():
        raise BadInput(f"{store.root} holds no synthesised conversation; run `headrace synthesize` first")
    texts = pl.Series("text", [_spoken_text(json.loads(messages)) for messages in conversations["messages"]], dtype=pl.String)
    rows = texts.to_frame().select(norm=normalise_text(pl.col("text"))).with_row_index("row")
    distinct = conversations.filter(near.step(rows, config)["reason"].is_null())
    tasks = store.query("SELECT task_id, use FROM tasks WHERE blueprint_id IS NOT NULL AND query_id IS NULL ORDER BY task_id")
    splits = {
        "sft": [ReleaseItem("trajectory", item, task) for item, task in distinct.select("trajectory_id", "task_id").iter_rows()],
        "rl": [ReleaseItem("task", task, task) for task in tasks.filter(pl.col("use") == "train")["task_id"]],
        "eval": [ReleaseItem("task", task, task) for task in tasks.filter(pl.col("use") != "train")["task_id"]],
    }
    manifest = {
        "accepted": conversations.height,
        "near_duplicates": conversations.height - distinct.height,
        "near": config.model_dump(),
        "version": VERSION,
    }
    return make_release(store, NAME, {split: items for split, items in splits.items() if items}, manifest)


def _spoken_text(messages: list[dict[str, Any]]) -> str:
    """What user and assistant said and called, without what tools answered."""
    lines = []
    for message in messages:
        if message["role"] in ("user", "assistant"):
            lines.append(message.get("content") or "")
            lines += [f"{call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls") or ()]
    return "\n".join(lines)
