"""Releases: frozen, content-addressed selections of tasks and conversations, in named splits, that training reads.

One idea: a release's id is a hash of its splits and of what decided them (thresholds, budgets: the manifest), so the same selection is the
same release, and nothing can be moved in or out of one afterwards. Rows stay where they are: a release names them.
What a person dropped by hand goes into no release.
A split that is empty, an item that the store does not have, and a held-out task in a split that is trained on are errors, not warnings.

What it does not do: choose (`filters/`), remove duplicate trajectories (there too), write files for other trainers
(`storage/releases/export.py`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from storage.by_hand.hand_rows import withheld
from storage.errors import BadInput, HeadraceError
from storage.records import JSON, Cost, Language, Rollout, Task, Trajectory, canonical_json, content_id
from storage.store import Store, part_id
from storage.tombstones.withdrawn_rows import refuse_release

VERSION = 1
EVALUATION_SPLITS = "eval"
"""Prefix of the names of splits with held-out tasks. Such a split has only held-out tasks, and no other split has one."""

RELEASED_AT_SQL = "(SELECT parts.rowid FROM releases JOIN parts USING (part_id) WHERE release_id = ?)"
"""SQL: rowid of a release in `parts`; parameter: the release id. Rowids follow the order of commits, independent of the clock."""
BEFORE_SQL = f"(SELECT part_id FROM parts WHERE rowid < {RELEASED_AT_SQL})"
"""SQL: the parts committed before a release, which never change afterwards. Parameter: the release id."""

Kind = Literal["task", "trajectory", "rollout"]
GENERAL = "general"
"""World, in name, of general conversations, which use no tools."""
ORIGINS = {
    "query": "from raw queries",
    "conversation": "from synthesised conversations",
    "goal": "from single blueprint goals",
    GENERAL: "from general data",
}
"""Origins of items, in words."""
_IDS = {"item_id": pl.String, "task_id": pl.String}
_ITEM_COLUMNS = {"split": pl.String, "position": pl.Int32, "kind": pl.String, **_IDS, "weight": pl.Float64}


@dataclass(frozen=True)
class ReleaseItem:
    """One item of a split: a task to draw rollouts on, or a conversation (`item_id` is its id; for kind `task`, the task's own).

    task_id: None for a trajectory that is not about one task: a conversation with several goals.
    weight: relative, > 0: how often RL draws it; 1 for SFT.
    """

    kind: Kind
    item_id: str
    task_id: str | None
    weight: float = 1.0


@dataclass(frozen=True)
class Setting:
    """World and language of an item, and the names of the offered tools in the order of the prompt."""

    world: str
    language: Language
    tools: tuple[str, ...]


@dataclass(frozen=True)
class ReleasedItem:
    """An item with the records it names; `conversation` is None for kind `task`, `task` for a conversation with several goals."""

    item: ReleaseItem
    setting: Setting
    task: Task | None
    conversation: Trajectory | Rollout | None


def make_release(store: Store, name: str, splits: Mapping[str, Sequence[ReleaseItem]], manifest: Mapping[str, JSON]) -> str:
    """Freezes the splits in their order and returns the release id. The same release a second time changes nothing.

    Args:
        splits: what was dropped by hand (`storage/by_hand/`) is left out of them.
        manifest: what decided the selection: thresholds, budgets, ids of policies. No times, no paths.
            Counts and hashes of the splits are added to what is stored of it.

    Raises:
        HeadraceError: no splits, an empty one, a split's name that cannot name a file, an item twice in a split, an item or task that is
            not committed, a task under another's id, a weight that is not positive and finite, or a held-out task where it would be
            trained on.
    """
    _check(store, name, splits := _without_dropped(store, splits))
    rows = pl.DataFrame(
        [
            (split, position, item.kind, item.item_id, item.task_id, float(item.weight))
            for split, items in splits.items()
            for position, item in enumerate(items)
        ],
        schema=_ITEM_COLUMNS,
        orient="row",
    )
    hashes = {split: _hash(items) for split, items in splits.items()}
    origins = {split: _count_origins(store, items) for split, items in splits.items()}
    release_id = content_id("release", name, hashes, dict(manifest))
    described = {
        **manifest,
        "name": name,
        "splits": {split: _describe(items) | {"origins": origins[split], "hash": hashes[split]} for split, items in splits.items()},
    }
    header = pl.DataFrame({"release_id": [release_id], "name": [name], "manifest": [canonical_json(described)]})
    store.commit(
        [
            store.write("releases", part_id("releases", [release_id], {}, VERSION), header),
            store.write(
                "release_items",
                part_id("release_items", [release_id], {}, VERSION),
                rows.select(pl.lit(release_id).alias("release_id"), pl.all()),
            ),
        ]
    )
    return release_id


def _without_dropped(store: Store, splits: Mapping[str, Sequence[ReleaseItem]]) -> dict[str, Sequence[ReleaseItem]]:
    """The splits without what was dropped by hand. Raises HeadraceError: all items of a split were."""
    items, tasks = withheld(store)
    left: dict[str, Sequence[ReleaseItem]] = {}
    for split, of_split in splits.items():
        left[split] = [one for one in of_split if one.item_id not in items and one.task_id not in tasks]
        if of_split and not left[split]:
            raise HeadraceError(f"all {len(of_split):,} items of split {split} were dropped by hand; withdraw some of these verdicts")
    return left


def manifest_of(store: Store, release_id: str) -> dict[str, Any]:
    """The manifest as stored: what decided the selection, and per split `items`, `tasks`, `kinds`, `origins` and `hash`.

    origins: number of items that come of raw queries (`query`), of synthesised conversations (`conversation`), of single blueprint goals
    (`goal`), and of general data (`general`).

    Raises:
        BadInput: the release does not exist.
    """
    rows = store.query("SELECT manifest FROM releases WHERE release_id = ?", [release_id])
    if rows.is_empty():
        names = store.query("SELECT release_id, name FROM releases JOIN parts USING (part_id) ORDER BY committed_at DESC LIMIT 5")
        hint = ", ".join(f"{other} ({name})" for other, name in names.iter_rows()) or "none yet"
        raise BadInput(f"{store.root} has no release {release_id}; the latest are {hint}")
    manifest: dict[str, Any] = json.loads(rows.item())
    return manifest


def load_split(store: Store, release_id: str, split: str) -> list[ReleasedItem]:
    """The items of a split in their order, with their records.

    Raises:
        BadInput: the release or split does not exist, or a source of its rows was withdrawn.
    """
    manifest = manifest_of(store, release_id)
    refuse_release(store, release_id)
    if split not in manifest["splits"]:
        raise BadInput(f"release {release_id} has no split {split!r}; it has {', '.join(manifest['splits'])}")
    rows = store.query(
        """SELECT i.kind, i.item_id, i.task_id, i.weight, t.spec FROM release_items i LEFT JOIN tasks t USING (task_id)
           WHERE i.release_id = ? AND i.split = ? ORDER BY i.position""",
        [release_id, split],
    )
    conversations, settings = _conversations(store, release_id, split), _settings(store, release_id, split)
    items = []
    for kind, item, task_id, weight, spec in rows.iter_rows():
        task = None if spec is None else Task.model_validate_json(spec)
        setting = settings.get(item)
        if setting is None:
            assert task is not None
            setting = Setting(task.world, task.language, task.tools)
        items.append(ReleasedItem(ReleaseItem(kind, item, task_id, weight), setting, task, conversations[item] if kind != "task" else None))
    return items


def trajectory_of(row: Mapping[str, Any]) -> Trajectory:
    """The record in a row of table `trajectories`."""
    return Trajectory(
        id=row["trajectory_id"],
        task_id=row["task_id"] or "",
        messages=json.loads(row["messages"]),
        outcome=row["outcome"],
        reward=row["reward"],
        checks=json.loads(row["checks"] or "{}"),
        teacher=row["teacher"] or "",
        cost=Cost(prompt_tokens=row["prompt_tokens"] or 0, completion_tokens=row["completion_tokens"] or 0, usd=row["cost_usd"] or 0.0),
    )


def rollout_of(row: Mapping[str, Any]) -> Rollout:
    """The record in a row of table `rollouts`; its cost and its engine are not stored there."""
    return Rollout(
        id=row["rollout_id"],
        task_id=row["task_id"],
        policy_id=row["policy_id"],
        draw=row["draw"],
        messages=json.loads(row["messages"]),
        outcome=row["outcome"],
        reward=row["reward"],
        checks=json.loads(row["checks"] or "{}"),
        turns=json.loads(row["turns"] or "[]"),
        attempts=row["attempts"] or 1,
        failure=row["failure"] or "",
    )


def _conversations(store: Store, release_id: str, split: str) -> dict[str, Trajectory | Rollout]:
    query = "SELECT item_id FROM release_items WHERE release_id = ? AND split = ? AND kind = ?"
    trajectories = store.query(f"SELECT * FROM trajectories WHERE trajectory_id IN ({query})", [release_id, split, "trajectory"])
    rollouts = store.query(f"SELECT * FROM rollouts WHERE rollout_id IN ({query})", [release_id, split, "rollout"])
    by_id: dict[str, Trajectory | Rollout] = {row["trajectory_id"]: trajectory_of(row) for row in trajectories.iter_rows(named=True)}
    return by_id | {row["rollout_id"]: rollout_of(row) for row in rollouts.iter_rows(named=True)}


def _settings(store: Store, release_id: str, split: str) -> dict[str, Setting]:
    """Id -> setting of simulated conversations, from their blueprints, and of general ones."""
    rows = store.query(
        """SELECT i.item_id, c.world, c.language, json_extract(b.spec, '$.tools')::VARCHAR FROM release_items i
           JOIN trajectories c ON c.trajectory_id = i.item_id JOIN blueprints b USING (blueprint_id)
           WHERE i.release_id = ? AND i.split = ? AND i.kind = 'trajectory' AND c.cluster_id IS NOT NULL
             AND json_exists(b.spec, '$.tools')
           UNION ALL SELECT i.item_id, c.world, c.language, '[]' FROM release_items i JOIN trajectories c ON c.trajectory_id = i.item_id
           WHERE i.release_id = ? AND i.split = ? AND i.kind = 'trajectory' AND c.world = ?""",
        [release_id, split, release_id, split, GENERAL],
    )
    return {item: Setting(world, language, tuple(json.loads(tools))) for item, world, language, tools in rows.iter_rows()}


def _hash(items: Sequence[ReleaseItem]) -> str:
    return hashlib.sha256(
        canonical_json([[item.kind, item.item_id, item.task_id, float(item.weight)] for item in items]).encode()
    ).hexdigest()


def _describe(items: Sequence[ReleaseItem]) -> dict[str, JSON]:
    return {
        "items": len(items),
        "tasks": len({item.task_id for item in items if item.task_id is not None}),
        "kinds": dict(sorted(Counter(item.kind for item in items).items())),
    }


def _count_origins(store: Store, items: Sequence[ReleaseItem]) -> dict[str, JSON]:
    """Origin -> number of items."""
    ids = pl.DataFrame({"item_id": [item.item_id for item in items], "task_id": [item.task_id for item in items]}, schema_overrides=_IDS)
    tasks = store.query(
        "SELECT task_id, any_value(query_id) AS query_id, any_value(json_type(spec, '$.conversation')) AS conversation FROM tasks "
        "WHERE task_id IN (SELECT unnest(?)) GROUP BY task_id",
        [ids["task_id"].drop_nulls().unique().sort().to_list()],
    )
    trajectories = store.query(
        "SELECT trajectory_id AS item_id, cluster_id IS NOT NULL AS simulated, world FROM trajectories WHERE trajectory_id IN "
        "(SELECT unnest(?))",
        [[item.item_id for item in items if item.kind == "trajectory"]],
    )
    joined = ids.join(tasks.cast({"task_id": pl.String}), on="task_id", how="left").join(
        trajectories.cast({"item_id": pl.String}), on="item_id", how="left"
    )
    is_conversation = pl.col("simulated") | (pl.col("conversation") == "OBJECT")
    origin = pl.when(pl.col("world") == GENERAL).then(pl.lit(GENERAL)).when(is_conversation).then(pl.lit("conversation"))
    origin = origin.when(pl.col("query_id").is_not_null()).then(pl.lit("query"))
    counts = joined.select(origin=origin.otherwise(pl.lit("goal")))["origin"].value_counts()
    return dict(sorted(counts.iter_rows()))


def _check(store: Store, name: str, splits: Mapping[str, Sequence[ReleaseItem]]) -> None:
    if not splits:
        raise HeadraceError(f"release {name} has no splits; nothing was selected")
    empty = [split for split, items in splits.items() if not items]
    if empty:
        raise HeadraceError(f"split {empty[0]} of release {name} is empty; move the thresholds, or give it more tasks")
    for split, items in splits.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", split):
            raise HeadraceError(f"split {split!r} of release {name} cannot name a file; use letters, digits, - and _")
        _check_items(name, split, items)
        _check_tasks(store, name, split, items)
        _check_conversations(store, name, split, items)


def _check_items(name: str, split: str, items: Sequence[ReleaseItem]) -> None:
    """The checks of a split that need no query."""
    bad = next((item for item in items if not (item.weight > 0 and math.isfinite(item.weight))), None)
    if bad:
        raise HeadraceError(f"{bad.item_id} in split {split} of release {name} has weight {bad.weight}; weights are positive and finite")
    foreign = next((item for item in items if item.kind == "task" and item.item_id != item.task_id), None)
    if foreign:
        raise HeadraceError(f"task {foreign.task_id} in split {split} of release {name} stands there as {foreign.item_id}")
    free = next((item for item in items if item.task_id is None), None)
    if free and (free.kind != "trajectory" or split.startswith(EVALUATION_SPLITS)):
        raise HeadraceError(
            f"{free.kind} {free.item_id} in split {split} of release {name} is about no task; only trajectories to train on may be"
        )
    doubled = next((item for item, count in Counter((item.kind, item.item_id) for item in items).items() if count > 1), None)
    if doubled:
        raise HeadraceError(f"{' '.join(doubled)} stands in split {split} of release {name} more than once; give it a weight instead")


def _check_tasks(store: Store, name: str, split: str, items: Sequence[ReleaseItem]) -> None:
    task_ids = sorted({item.task_id for item in items if item.task_id is not None})
    uses = dict(store.query("SELECT task_id, use FROM tasks WHERE task_id IN (SELECT unnest(?))", [task_ids]).iter_rows())
    missing = next((task for task in task_ids if task not in uses), None)
    if missing:
        raise HeadraceError(f"task {missing} in split {split} of release {name} is not in the store; commit it first")
    is_evaluation = split.startswith(EVALUATION_SPLITS)
    astray = next((task for task in task_ids if (uses[task] != "train") != is_evaluation), None)
    if astray:
        problem = "is trained on elsewhere" if is_evaluation else "is held out for evaluation"
        raise HeadraceError(f"task {astray} (use {uses[astray]}) {problem} and may not stand in split {split} of release {name}")


def _check_conversations(store: Store, name: str, split: str, items: Sequence[ReleaseItem]) -> None:
    for kind, table, key in (("trajectory", "trajectories", "trajectory_id"), ("rollout", "rollouts", "rollout_id")):
        pairs = sorted({(item.item_id, item.task_id) for item in items if item.kind == kind}, key=str)
        if pairs:
            existing = set(
                store.query(
                    f"SELECT {key}, task_id FROM {table} WHERE {key} IN (SELECT unnest(?))", [[item for item, _ in pairs]]
                ).iter_rows()
            )
            missing = next((pair for pair in pairs if pair not in existing), None)
            if missing:
                raise HeadraceError(
                    f"{kind} {missing[0]} of task {missing[1] or '(none)'} in split {split} of release {name} is not in the store; "
                    "commit it first"
                )
    leaks = store.query(_LEAKS_SQL, [[item.item_id for item in items if item.kind == "trajectory"]])
    if leaks.height:
        trajectory, frame = leaks.row(0)
        raise HeadraceError(
            f"trajectory {trajectory} in split {split} of release {name} asks for frame {frame}, which is held out for evaluation"
        )


_LEAKS_SQL = """SELECT trajectory_id, frame_id FROM (
    SELECT trajectory_id, unnest(json_extract_string(b.spec, '$.goals[*].frame_id')) AS frame_id
    FROM trajectories JOIN blueprints b USING (blueprint_id) WHERE trajectory_id IN (SELECT unnest(?)))
WHERE frame_id IN (SELECT frame_id FROM tasks WHERE division = 'held_out' UNION ALL
    SELECT json_extract_string(goal, '$.frame_id') FROM (
        SELECT unnest(json_extract(spec, '$.conversation.goals[*]')) AS goal FROM tasks WHERE division = 'held_out')
    WHERE json_array_length(goal, '$.hidden') = 0) ORDER BY ALL LIMIT 1"""
"""Trajectories whose blueprint has a goal that is held out, with the frame of the goal; parameter: their ids."""
