"""A release of synthesised data, for users who train outside Headrace.

Split `sft` has every accepted conversation once, `rl` the tasks for rollouts, and `eval` the held-out tasks, if there are any. What a
person dropped by hand is left out, and what a judge alone rejected comes in if a person keeps it. Near duplicates (`near.py`, on messages
and calls of user and assistant) are removed here, not at acceptance, so that the figures of a synthesis run cover all its conversations;
the conversation that was accepted first stays.

The release uses no policy (`route.py` does) and no tasks from raw queries. Only a store without conversations gives all its tasks, those of
raw queries too.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from filters.dedup import near
from filters.normalised_text import normalise_text
from storage.by_hand.hand_rows import admissible
from storage.errors import BadInput
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store

NAME = "synthesized"
TASKS = "tasks"
"""Name of the release of a store that has tasks and no conversations."""
VERSION = 1


def collect(store: Store) -> str:
    """Freezes all accepted conversations of the store, or all tasks if there are none, and returns the release id; equal content gives an
    equal id.

    Raises:
        BadInput: the store has neither.
    """
    config = near.NearConfig()
    conversations = store.query(
        f"""SELECT trajectory_id, task_id, messages FROM trajectories JOIN blueprints USING (blueprint_id)
           WHERE {admissible("trajectories")} AND round >= 0 AND trajectories.cluster_id IS NOT NULL ORDER BY round, trajectory_id"""
    )
    if conversations.is_empty():
        return _collect_tasks(store)
    texts = pl.Series("text", [_spoken_text(json.loads(messages)) for messages in conversations["messages"]], dtype=pl.String)
    rows = texts.to_frame().select(norm=normalise_text(pl.col("text"))).with_row_index("row")
    distinct = conversations.filter(near.step(rows, config)["reason"].is_null())
    tasks = store.query("SELECT task_id, use FROM tasks WHERE blueprint_id IS NOT NULL AND query_id IS NULL ORDER BY task_id")
    splits = {
        "sft": [ReleaseItem("trajectory", item, task) for item, task in distinct.select("trajectory_id", "task_id").iter_rows()],
        **_splits_of(tasks),
    }
    manifest = {
        "accepted": conversations.height,
        "near_duplicates": conversations.height - distinct.height,
        "near": config.model_dump(),
        "version": VERSION,
    }
    return make_release(store, NAME, {split: items for split, items in splits.items() if items}, manifest)


def _collect_tasks(store: Store) -> str:
    tasks = store.query("SELECT task_id, use FROM tasks ORDER BY task_id")
    if tasks.is_empty():
        kept = store.query("SELECT count(*) FROM verdicts WHERE kept").item()
        next_step = "`headrace export --queries` writes the queries that were kept" if kept else "run `headrace synthesize` first"
        raise BadInput(f"{store.root} has no accepted conversation and no task; {next_step}")
    manifest = {"tasks": tasks.height, "version": VERSION}
    return make_release(store, TASKS, {split: items for split, items in _splits_of(tasks).items() if items}, manifest)


def _splits_of(tasks: pl.DataFrame) -> dict[str, list[ReleaseItem]]:
    """The splits for rollouts: tasks to train on, and held-out ones."""
    chosen = {"rl": tasks.filter(pl.col("use") == "train"), "eval": tasks.filter(pl.col("use") != "train")}
    return {split: [ReleaseItem("task", task, task) for task in rows["task_id"]] for split, rows in chosen.items()}


def _spoken_text(messages: list[dict[str, Any]]) -> str:
    """What user and assistant said and called, without what tools answered."""
    lines = []
    for message in messages:
        if message["role"] in ("user", "assistant"):
            lines.append(message.get("content") or "")
            lines += [f"{call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls") or ()]
    return "\n".join(lines)
