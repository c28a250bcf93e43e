"""Versions of the taxonomy in a store (table `taxonomies`): a list of trees, of which the last is in use.

A store without versions has the built-in tree; the first saved version is stored after it, so every change stays visible. A version has its
parent, its origin and its statistics. If two writers follow the same version, only one of them succeeds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import polars as pl

from filters.taxonomy.annotate import is_other
from filters.taxonomy.built_in import built_in
from filters.taxonomy.evolve import EvolveConfig, Evolved
from filters.taxonomy.tree import Tree
from filters.taxonomy.yaml_form import dump, parse
from storage.errors import BadInput
from storage.records import canonical_json
from storage.store import Part, Store, part_id

VERSION = 1
Origin = Literal["built_in", "induced", "refined", "edited"]


@dataclass(frozen=True)
class Version:
    """position: 1, 2, 3 ...; parent: id of the tree that it came from, None for the first; statistics: see `statistics_of`, empty unless
    the tree was evolved."""

    position: int
    tree: Tree
    parent: str | None
    origin: Origin
    statistics: dict[str, Any] = field(default_factory=dict)


def versions(store: Store) -> list[Version]:
    """All versions of a store, the first one first; the built-in tree alone where it has none."""
    return _read(store, "") or [Version(1, built_in(), None, "built_in")]


def newest(store: Store) -> Version:
    """The version that counts."""
    rows = _read(store, "WHERE position = (SELECT max(position) FROM taxonomies)")
    return rows[0] if rows else versions(store)[-1]


def version(store: Store, position: int | None) -> Version:
    """A version by its position; None for the newest.

    Raises:
        BadInput: the store has no such version.
    """
    last = newest(store)
    if position is None or position == last.position:
        return last
    rows = _read(store, "WHERE position = ?", position)
    if not rows:
        raise BadInput(f"{store.root} has no version {position} of the taxonomy; it has 1 to {last.position}")
    return rows[0]


def _read(store: Store, where: str, *params: int) -> list[Version]:
    rows = store.query(f"SELECT position, parent_id, origin, tree, statistics FROM taxonomies {where} ORDER BY position", params)
    return [
        Version(position, parse(tree, f"version {position} in {store.root}"), parent, origin, json.loads(statistics))
        for position, parent, origin, tree, statistics in rows.iter_rows()
    ]


def save_version(store: Store, tree: Tree, origin: Origin, statistics: dict[str, Any] | None = None) -> Version:
    """The tree as the store's newest version; what is the newest already is only read.

    Raises:
        HeadraceError: somebody else kept another version meanwhile; the store cannot be written.
    """
    last = newest(store)
    if last.tree.id == tree.id:
        return last
    new_version = Version(last.position + 1, tree, last.tree.id, origin, statistics or {})
    store.commit([_part(store, each) for each in (last, new_version)])
    return new_version


def statistics_of(evolved: Evolved, config: EvolveConfig) -> dict[str, Any]:
    """What is noted of a tree that was evolved: rows, agreement and share of `other` in the end, rows by label, rounds, configuration."""
    last = evolved.rounds[-1]
    return {
        "rows": len(evolved.annotation.labels),
        "agreement": round(last.agreement, 4),
        "other": round(last.other, 4),
        "counts": evolved.counts,
        "rounds": [asdict(each) for each in evolved.rounds],
        "stopped": evolved.stopped,
        "config": config.model_dump(mode="json"),
        "open_labels": _open_labels(evolved),
    }


def _open_labels(evolved: Evolved) -> dict[str, list[str]]:
    """For every `other` some of what its rows are about."""
    by_label: dict[str, dict[str, None]] = {}
    for label, open_label in zip(evolved.annotation.labels, evolved.annotation.open_labels, strict=True):
        if is_other(label) and open_label and len(by_label.setdefault(label, {})) < 10:
            by_label[label][open_label] = None
    return {label: list(open_labels) for label, open_labels in sorted(by_label.items())}


def _part(store: Store, stored_version: Version) -> Part:
    name = part_id("taxonomies", [stored_version.tree.id], {"position": stored_version.position, "parent": stored_version.parent}, VERSION)
    row = {
        "position": stored_version.position,
        "taxonomy_id": stored_version.tree.id,
        "parent_id": stored_version.parent,
        "origin": stored_version.origin,
        "tree": dump(stored_version.tree),
        "statistics": canonical_json(stored_version.statistics),
    }
    return store.find(name) or store.write(
        "taxonomies", name, pl.DataFrame([row], schema_overrides={"position": pl.Int32, "parent_id": pl.String})
    )
