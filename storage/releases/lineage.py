"""Lineage of any id in a store: its ancestors and descendants in the graph of `lineage_graph.py`, as values that print well.

One idea: a list of ids says little, so each kind of ancestor or descendant has one example with its content (`headlines.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from storage.errors import BadInput
from storage.releases.headlines import headline
from storage.releases.lineage_graph import ORDER, origins, uses
from storage.releases.node_ids import find_node
from storage.releases.release import ORIGINS, manifest_of
from storage.releases.text_layout import layout_rows
from storage.store import Store

_SHOWN = 4
"""Ids in a line."""
_SHOWN_BY_CONTENT = ("query", "task", "trajectory", "rollout", "blueprint")


@dataclass(frozen=True)
class Lineage:
    """All ancestors and descendants of one id: frames with columns kind and id.

    headline: its content in one line.
    examples: kind -> the first id of that kind, with its content.
    splits: for a policy, its splits' names and the origins of their items (`storage.releases.release.manifest_of`).
    base: for a policy, the folder of the base model that it began with; empty if it began as a fresh one.
    """

    id: str
    kind: str
    origins: pl.DataFrame
    uses: pl.DataFrame
    headline: str = ""
    examples: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    splits: tuple[tuple[str, Mapping[str, int]], ...] = ()
    base: str = ""

    def __str__(self) -> str:
        lines = [f"{self.kind} {self.id}", *layout_rows([("", f"“{self.headline}”")] if self.headline else [])]
        lines += ["made from", *self._list(self.origins, reverse=True)]
        if self.base:
            lines += ["began with", f"  base model {self.base}"]
        if self.splits:
            lines += ["learned from", *layout_rows([("", f"{split}: {_shares(origins)}") for split, origins in self.splits])]
        lines += ["went into", *self._list(self.uses)]
        return "\n".join([*lines, f"show one: headrace explain {self.id}"])

    def _list(self, nodes: pl.DataFrame, *, reverse: bool = False) -> list[str]:
        kinds = [kind for kind in (reversed(ORDER) if reverse else ORDER) if nodes.filter(kind=kind).height]
        lines = []
        for kind, line in zip(kinds, lines_by_kind(nodes, reverse=reverse), strict=True):
            lines += layout_rows([("", line)])
            ids = set(nodes.filter(kind=kind)["id"])
            if kind in self.examples and self.examples[kind][0] in ids:
                node, text = self.examples[kind]
                lines += layout_rows([("such as", f"{node} “{text}”")], indent=6)
        return lines or ["  nothing"]


def lineage(store: Store, name: str) -> Lineage:
    """Ancestors and descendants of an id, by one SQL query each. name: as in `find_node`.

    Raises:
        BadInput: the store does not have this id (the message names the nearest ids), or it is of a kind without lineage, such as a run.
    """
    kind, node = find_node(store, name)
    if kind not in ORDER:
        raise BadInput(f"{node} is a {kind}, and has no lineage; `headrace explain {node}` shows what it is")
    below, above = origins(store, kind, node), uses(store, kind, node)
    found = Lineage(node, kind, below, above, headline(store, kind, node), _examples(store, below, above))
    return found if kind != "policy" else replace(found, splits=_splits(store, below), base=_base(store, below))


def _examples(store: Store, *nodes: pl.DataFrame) -> dict[str, tuple[str, str]]:
    firsts = pl.concat(nodes).group_by("kind").agg(pl.col("id").min()).filter(pl.col("kind").is_in(_SHOWN_BY_CONTENT))
    return {kind: (node, text) for kind, node in firsts.iter_rows() if (text := headline(store, kind, node))}


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
