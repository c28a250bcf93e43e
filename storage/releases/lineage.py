"""Lineage of any id in a store: its ancestors and descendants in the graph of `lineage_graph.py`, as values that print well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from storage.errors import BadInput
from storage.releases.lineage_graph import ORDER, kind_of, origins, uses
from storage.releases.release import ORIGINS, manifest_of
from storage.store import Store

_SHOWN = 4
"""Ids in a line."""


@dataclass(frozen=True)
class Lineage:
    """All ancestors and descendants of one id: frames with columns kind and id.

    splits: for a policy, its splits' names and the origins of their items (`storage.releases.release.manifest_of`).
    base: for a policy, the folder of the base model that it began with; empty if it began as a fresh one.
    """

    id: str
    kind: str
    origins: pl.DataFrame
    uses: pl.DataFrame
    splits: tuple[tuple[str, Mapping[str, int]], ...] = ()
    base: str = ""

    def __str__(self) -> str:
        below = "\n".join(f"  {line}" for line in lines_by_kind(self.origins, reverse=True)) or "  nothing"
        above = "\n".join(f"  {line}" for line in lines_by_kind(self.uses)) or "  nothing"
        learned = "".join(f"\n  {split}: {_shares(origins)}" for split, origins in self.splits)
        learned = f"\nlearned from{learned}" if learned else ""
        learned = f"\nbegan with\n  base model {self.base}{learned}" if self.base else learned
        return f"{self.kind} {self.id}\nmade from\n{below}{learned}\nwent into\n{above}"


def lineage(store: Store, node: str) -> Lineage:
    """Ancestors and descendants of an id, by one SQL query each.

    Raises:
        BadInput: the store does not have this id (the message names the nearest ids), or it is the id of a run, which has no lineage.
    """
    kind = kind_of(store, node)
    if kind not in ORDER:
        raise BadInput(f"{node} is a {kind}, and has no lineage; `headrace explain {node}` says what it did")
    found = origins(store, kind, node)
    if kind != "policy":
        return Lineage(node, kind, found, uses(store, kind, node))
    return Lineage(node, kind, found, uses(store, kind, node), _splits(store, found), _base(store, found))


def _base(store: Store, found: pl.DataFrame) -> str:
    """The model that the first stage among a policy's ancestors began with."""
    rows = store.query(
        "SELECT json_extract_string(spec, '$.model_in') FROM stages WHERE input_policy_id IS NULL AND stage_id IN (SELECT unnest(?))",
        [found.filter(kind="stage")["id"].to_list()],
    )
    return next((folder for (folder,) in rows.iter_rows() if folder is not None), "")


def _splits(store: Store, found: pl.DataFrame) -> tuple[tuple[str, Mapping[str, int]], ...]:
    """Each split among a policy's ancestors, with the origins of its items."""
    splits = [node.rpartition("/") for node in found.filter(kind="split")["id"]]
    manifests = {release: manifest_of(store, release) for release, _, _ in splits}
    return tuple((f"{manifests[release]['name']}/{split}", manifests[release]["splits"][split]["origins"]) for release, _, split in splits)


def _shares(origins: Mapping[str, int]) -> str:
    total = sum(origins.values())
    return ", ".join(f"{count:,} {ORIGINS[origin]} ({count / total:.0%})" for origin, count in origins.items())


def lines_by_kind(nodes: pl.DataFrame, *, reverse: bool = False) -> list[str]:
    """A line for each kind, with the number of its nodes and the first ids. nodes: columns kind and id."""
    by_kind = {kind: nodes.filter(kind=kind)["id"].to_list() for kind in (reversed(ORDER) if reverse else ORDER)}
    return [f"{len(ids)} {_plural(kind, len(ids))}: {shorten(ids)}" for kind, ids in by_kind.items() if ids]


def shorten(ids: list[str]) -> str:
    """The first ids, and the number of the others."""
    return ", ".join(ids[:_SHOWN]) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")


def _plural(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
