"""Clusters of tools from anywhere, kept in a store and read from it again.

One idea: the same tools and settings make the same build, and a build the same parts, so a second one finds them and does nothing. A store
may hold several builds; what is listed is the one that it got last, and each cluster is shown with the tools of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storage.errors import BadInput, HeadraceError
from storage.execution import Progress
from storage.records import Tool, canonical_json
from storage.store import Part, Store, part_id
from storage.tables import LAST_BUILD
from synth.clusters.business_clusters import Cluster, ClusterConfig, build_id, cluster_tools
from synth.clusters.catalog import joined
from synth.clusters.edges import Edge
from synth.worlds.stored_worlds import worlds_frame

VERSION = 2
_NAMED = 3


@dataclass(frozen=True)
class Kept:
    """Clusters of a store, best first. is_new: they were found now, not before."""

    clusters: tuple[Cluster, ...]
    is_new: bool


def keep_clusters(store: Store, tools: Sequence[Tool], *, progress: Progress | None = None) -> Kept:
    """Finds the clusters of these tools and commits them with the tools; where the store has them already, only reads them.

    Raises:
        BadInput: two tools that are not the same have one id.
        HeadraceError: no tool feeds another, so that there is no cluster; the store cannot be written.
    """
    config = ClusterConfig()
    tools = joined(tools)
    part = _clusters_part(tools, config)
    if store.query("SELECT 1 FROM parts WHERE part_id = ?", [part]).height:
        return Kept(tuple(_read(store, "part_id = ?", part)), is_new=False)
    found = cluster_tools(tools, config, progress=progress)
    if not found:
        raise HeadraceError(
            f"of these {len(tools):,} tools no {config.min_tools} that feed each other make a cluster; "
            "lower edge_threshold or min_tools, or add tools"
        )
    parts = build_parts(store, tools, config, found)
    own = worlds_frame(tool.world for tool in tools if tool.world is not None)
    if own.height:
        name = part_id("worlds", [part], {}, VERSION)
        parts.append(store.find(name) or store.write("worlds", name, own))
    store.commit(parts)
    return Kept(tuple(found), is_new=True)


def build_parts(store: Store, tools: Sequence[Tool], config: ClusterConfig, found: Sequence[Cluster]) -> list[Part]:
    """The parts of a build, written where they are not there: its tools, its clusters."""
    clusters = _clusters_part(tools, config)
    own = _tools_part(clusters)
    return [
        store.find(own) or store.write("tools", own, tools_frame(tools)),
        store.find(clusters) or store.write("clusters", clusters, clusters_frame(found)),
    ]


def _clusters_part(tools: Sequence[Tool], config: ClusterConfig) -> str:
    return part_id("clusters", [build_id(tools, config)], {}, VERSION)


def _tools_part(clusters_part: str) -> str:
    return part_id("tools", [clusters_part], {}, VERSION)


def stored_clusters(store: Store, *, domain: str | None = None) -> list[Cluster]:
    """The clusters of a store's last build, or those of one domain (in any case), in the order of their ranks."""
    named = [] if domain is None else [domain]
    return _read(store, f"part_id = {LAST_BUILD}" + " AND lower(domain) = lower(?)" * len(named), *named)


def stored_cluster(store: Store, name: str) -> tuple[Cluster, list[Tool]]:
    """The cluster of this id, or whose id alone begins so, and its tools.

    Raises:
        BadInput: there is none, or more than one.
    """
    start = name if name.startswith("cluster-") else f"cluster-{name}"
    found = _read(store, "starts_with(cluster_id, ?)", start)
    if len(found) != 1:
        known = ", ".join(cluster.id for cluster in (found or stored_clusters(store))[:_NAMED])
        what = "no cluster" if not found else f"{len(found)} clusters"
        raise BadInput(f"{store.root} has {what} {name}; {f'for example {known}' if known else 'it has none: build some first'}")
    (part,) = store.query("SELECT part_id FROM clusters WHERE cluster_id = ?", [found[0].id])["part_id"]
    return found[0], _tools_of(store, part, found[0].tool_ids)


def stored_tools(store: Store) -> list[Tool]:
    """The tools of a store's last build, those in no cluster too.

    Raises:
        BadInput: there is no build, or its tools were not kept.
    """
    parts = store.query(f"SELECT {LAST_BUILD} AS part_id")["part_id"].drop_nulls()
    if parts.is_empty():
        raise BadInput(f"{store.root} has no clusters: build some first")
    return _tools_of(store, parts[0])


def _tools_of(store: Store, part: str, named: Sequence[str] | None = None) -> list[Tool]:
    """The tools of a build (its part of `clusters`), or those of these ids."""
    own = store.find(_tools_part(part))
    if own is None:
        raise BadInput(f"{store.root}: its clusters are of another version of Headrace, which kept no tools; build them again")
    rows = pl.read_parquet(store.root / own.path)
    return [
        Tool(
            **{key: row[key] for key in ("name", "description", "server", "domain", "world", "changes_state")},
            parameters=json.loads(row["parameters"]),
            output=None if row["output"] is None else json.loads(row["output"]),
        )
        for row in (rows if named is None else rows.filter(pl.col("tool_id").is_in(named))).to_dicts()
    ]


def _read(store: Store, where: str, *values: str) -> list[Cluster]:
    rows = store.query(
        f"SELECT cluster_id, domain, world, tool_ids, edges, rank FROM clusters WHERE {where} ORDER BY rank, cluster_id", list(values)
    )
    return [
        Cluster(
            row["cluster_id"],
            row["domain"],
            row["world"],
            tuple(row["tool_ids"]),
            tuple(Edge(**edge) for edge in json.loads(row["edges"])),
            row["rank"],
        )
        for row in rows.to_dicts()
    ]


# ---- rows of the store ----------------------------------------------------------------------------------------------


def tools_frame(tools: Sequence[Tool]) -> pl.DataFrame:
    """Rows of table `tools`; schemas as JSON text."""
    return pl.DataFrame(
        [
            {
                "tool_id": tool.id,
                "server": tool.server,
                "name": tool.name,
                "description": tool.description,
                "domain": tool.domain,
                "world": tool.world,
                "parameters": canonical_json(tool.parameters),
                "output": None if tool.output is None else canonical_json(tool.output),
                "changes_state": tool.changes_state,
            }
            for tool in tools
        ],
        schema_overrides={"world": pl.String, "output": pl.String},
        infer_schema_length=None,
    )


def clusters_frame(clusters: Sequence[Cluster]) -> pl.DataFrame:
    """Rows of table `clusters`; edges as JSON text: a list of source, target, score, entity."""
    return pl.DataFrame(
        {
            "cluster_id": [cluster.id for cluster in clusters],
            "domain": [cluster.domain for cluster in clusters],
            "world": [cluster.world for cluster in clusters],
            "tool_ids": [list(cluster.tool_ids) for cluster in clusters],
            "edges": [
                canonical_json([{"source": e.source, "target": e.target, "score": e.score, "entity": e.entity} for e in cluster.edges])
                for cluster in clusters
            ],
            "rank": [cluster.rank for cluster in clusters],
        },
        schema={
            "cluster_id": pl.String,
            "domain": pl.String,
            "world": pl.String,
            "tool_ids": pl.List(pl.String),
            "edges": pl.String,
            "rank": pl.Int32,
        },
    )
