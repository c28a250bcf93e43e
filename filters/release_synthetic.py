"""A release of what was synthesised, as it stands: for whoever trains elsewhere, without a cascade of ours.

One idea: split `sft` holds every accepted conversation once (near duplicates go here, not when a conversation is accepted, so that a
run's figures are of all that it made), `rl` the tasks to draw rollouts on, `eval` the held-out ones, if there are any.
Duplicates are told as everywhere in the house (`near.py`), on what was said and called; of alike conversations the one that was accepted
first stays.

What it does not do: look at a policy (`route.py` does), or at tasks that came of raw queries.
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


def collect(store: Store, config: near.NearConfig | None = None) -> str:
    """Freezes everything that the store's syntheses accepted, and returns the release id; the same content is the same release.

    Raises:
        BadInput: nothing was synthesised yet.
    """
    config = config or near.NearConfig()
    conversations = store.query(
        """SELECT trajectory_id, task_id, messages FROM trajectories JOIN blueprints USING (blueprint_id)
           WHERE accepted AND round >= 0 ORDER BY round, trajectory_id"""
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
