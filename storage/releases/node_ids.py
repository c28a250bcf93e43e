"""From what a user types to an id of a store: a whole id, a unique beginning of one, or a name that tables print.

One idea: each kind of id is one SELECT. Names of policies and releases, and the hash of a policy's weights, lead to the last one that has
them. What is not found is refused with the nearest ids and the kinds that there are.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.errors import BadInput
from storage.store import Store
from storage.tombstones.withdrawn_rows import tombstone_of

_IDS: dict[str, str] = {
    "tool": "SELECT tool_id FROM tools",
    "cluster": "SELECT cluster_id FROM clusters",
    "world": "SELECT world FROM tools UNION ALL SELECT world FROM worlds UNION ALL SELECT world FROM tasks",
    "domain": "SELECT domain FROM tools UNION ALL SELECT domain FROM clusters",
    "taxonomy": "SELECT taxonomy_id FROM taxonomies",
    "blueprint": "SELECT blueprint_id FROM blueprints",
    "frame": "SELECT frame_id FROM frames UNION ALL SELECT frame_id FROM tasks",
    "task": "SELECT task_id FROM tasks",
    "release": "SELECT release_id FROM releases",
    "split": "SELECT release_id || '/' || split FROM release_items",
    "stage": "SELECT stage_id FROM stages",
    "policy": "SELECT policy_id FROM policies",
    "evaluation": "SELECT evaluation_id FROM evaluations",
    "withdrawal": "SELECT withdrawal_id FROM withdrawals",
    "run": "SELECT run FROM funnel UNION ALL SELECT run FROM diversity",
    "trajectory": "SELECT trajectory_id FROM trajectories",
    "rollout": "SELECT rollout_id FROM rollouts",
    "query": "SELECT query_id FROM queries",
}
"""Kind of a node -> where its ids are; small tables first."""

_NAMES: tuple[tuple[str, str], ...] = (
    ("policy", "policies p JOIN stages s USING (stage_id) JOIN parts ON parts.part_id = p.part_id WHERE s.name = ?"),
    ("policy", "policies p JOIN parts USING (part_id) WHERE p.path = ?"),
    ("release", "releases JOIN parts USING (part_id) WHERE name = ?"),
    ("tool", "tools JOIN parts USING (part_id) WHERE name = ?"),
)
"""Kind -> FROM and WHERE that find a name that tables print; the row committed last counts."""
_LEAST_PREFIX = 3
_HASH_LENGTH = 8
"""Least characters of the hash of a policy's weights."""
_NEAREST = 2
_SHOWN = 3


class Node(NamedTuple):
    kind: str
    id: str


def find_node(store: Store, text: str) -> Node:
    """The node that a user means: by its id, its name, or a beginning of three characters or more that no other id has.

    Raises:
        BadInput: several ids begin so, or none; the message has some of them, or the nearest ids and the kinds that there are.
    """
    return _exact(store, text) or _named(store, text) or _withdrawn(store, text) or _by_prefix(store, text)


def _exact(store: Store, text: str) -> Node | None:
    beginning = text.partition("-")[0]
    likely = "query" if beginning == "q" else beginning
    for kind in sorted(_IDS, key=lambda kind: kind != likely):  # most ids begin with their kind, and a look into a large table takes time
        ids = _IDS[kind]
        if store.query(f"SELECT 1 FROM ({ids}) AS known(id) WHERE id = ? LIMIT 1", [text]).height:
            return Node(kind, text)
    return None


def _named(store: Store, text: str) -> Node | None:
    for kind, source in _NAMES:
        rows = store.query(f"SELECT {kind}_id FROM {source} ORDER BY committed_at DESC, {kind}_id DESC LIMIT 1", [text])
        if rows.height:
            return Node(kind, rows.item())
    if len(text) >= _HASH_LENGTH:
        rows = store.query("SELECT DISTINCT policy_id FROM policies WHERE starts_with(weights_hash, ?)", [text])
        if rows.height == 1:
            return Node("policy", rows.item())
    return None


def _withdrawn(store: Store, text: str) -> Node | None:
    """The node of a whole id whose row was withdrawn."""
    buried = tombstone_of(store, text)
    return Node(buried[0], text) if buried else None


def _by_prefix(store: Store, text: str) -> Node:
    release, _, split = text.partition("/")
    if split and (node := _exact(store, f"{find_node(store, release).id}/{split}")):
        return node
    every = " UNION ".join(f"SELECT '{kind}' AS kind, id FROM ({ids}) AS known(id)" for kind, ids in _IDS.items())
    begun = store.query(
        f"SELECT DISTINCT id FROM ({every}) WHERE starts_with(id, ?) AND kind <> 'split' ORDER BY id LIMIT ?", [text, _SHOWN + 1]
    )["id"]
    if len(begun) == 1 and len(text) >= _LEAST_PREFIX and (node := _exact(store, begun[0])):
        return node
    if len(begun) > 1 and text:
        more = ", and more" if len(begun) > _SHOWN else ""
        raise BadInput(f"several ids in {store.root} begin with {text!r}: {', '.join(begun[:_SHOWN])}{more}; write more of the id")
    near = store.query(f"SELECT DISTINCT id FROM ({every}) WHERE id IS NOT NULL ORDER BY levenshtein(id, ?), id LIMIT {_NEAREST}", [text])
    if near.is_empty():
        raise BadInput(f"nothing in {store.root} has the id {text!r}; the store is empty")
    raise BadInput(
        f"nothing in {store.root} has the id {text!r}; the nearest ids are {', '.join(near['id'])}. "
        f"This store has ids of: {', '.join(_kinds(store))}"
    )


def _kinds(store: Store) -> list[str]:
    """The kinds that the store has."""
    return [kind for kind, ids in _IDS.items() if store.query(f"SELECT id FROM ({ids}) AS known(id) WHERE id IS NOT NULL LIMIT 1").height]
