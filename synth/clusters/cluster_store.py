"""Writes clusters and their tools to a store, and reads them.

One idea: equal tools and settings give the same build, and a build the same parts, so a second build finds its parts and does nothing. A
store may hold several builds: lists show the last one, and each cluster is shown with the tools of its build. A cluster of a catalogue is
executable as soon as the store has a world that was made for all its tools (`signatures` of its spec).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import polars as pl

from storage.errors import BadInput, HeadraceError
from storage.execution import Progress
from storage.parts import read_part
from storage.records import Tool, canonical_json
from storage.store import Part, Store, part_id
from storage.tables import LAST_BUILD, TABLES
from synth.clusters.business_clusters import Cluster, ClusterConfig, build_id, cluster_tools
from synth.clusters.catalog import merge_tools
from synth.clusters.edges import Edge
from synth.worlds.stored_worlds import worlds_frame

VERSION = 2
_EXAMPLES = 3
"""Ids of clusters that an error message names."""
_PLAIN_COLUMNS = ("name", "description", "server", "domain", "world", "changes_state")
"""Columns of `tools` that are fields of `Tool`."""


@dataclass(frozen=True)
class SavedClusters:
    """Clusters of a store, best first. is_new: whether this call built them."""

    clusters: tuple[Cluster, ...]
    is_new: bool


def save_clusters(store: Store, tools: Sequence[Tool], *, progress: Progress | None = None) -> SavedClusters:
    """Builds the clusters of these tools and commits them with the tools; only reads them if the store has this build.

    Raises:
        BadInput: two different tools have the same id.
        HeadraceError: there is no cluster, because too few tools feed each other; the store cannot be written.
    """
    config = ClusterConfig()
    tools = merge_tools(tools)
    part = _clusters_part(tools, config)
    if store.query("SELECT 1 FROM parts WHERE part_id = ?", [part]).height:
        return SavedClusters(tuple(_read(store, "part_id = ?", part)), is_new=False)
    clusters = cluster_tools(tools, config, progress=progress)
    if not clusters:
        raise HeadraceError(
            f"of these {len(tools):,} tools no {config.min_tools} that feed each other make a cluster; "
            "lower edge_threshold or min_tools, or add tools"
        )
    parts = write_build(store, tools, config, clusters)
    worlds = worlds_frame(tool.world for tool in tools if tool.world is not None)
    if worlds.height:
        worlds_part = part_id("worlds", [part], {}, VERSION)
        parts.append(store.find(worlds_part) or store.write("worlds", worlds_part, worlds))
    store.commit(parts)
    return SavedClusters(tuple(clusters), is_new=True)


def write_build(store: Store, tools: Sequence[Tool], config: ClusterConfig, clusters: Sequence[Cluster]) -> list[Part]:
    """The parts of a build, `tools` and `clusters`; writes those that the store does not have. Does not commit them."""
    clusters_part = _clusters_part(tools, config)
    tools_part = _tools_part(clusters_part)
    return [
        store.find(tools_part) or store.write("tools", tools_part, tools_frame(tools)),
        store.find(clusters_part) or store.write("clusters", clusters_part, clusters_frame(clusters)),
    ]


def _clusters_part(tools: Sequence[Tool], config: ClusterConfig) -> str:
    return part_id("clusters", [build_id(tools, config)], {}, VERSION)


def _tools_part(clusters_part: str) -> str:
    return part_id("tools", [clusters_part], {}, VERSION)


def read_clusters(store: Store, *, domain: str | None = None) -> list[Cluster]:
    """The clusters of a store's last build by rank; with `domain` (in upper or lower case) only those of this domain."""
    if domain is None:
        return _read(store, f"part_id = {LAST_BUILD}")
    return _read(store, f"part_id = {LAST_BUILD} AND lower(domain) = lower(?)", domain)


def read_cluster(store: Store, name: str) -> tuple[Cluster, list[Tool]]:
    """The cluster with this id, or with the only id that starts so, and its tools. The prefix `cluster-` may be omitted.

    Raises:
        BadInput: no cluster matches, or more than one does.
    """
    start = name if name.startswith("cluster-") else f"cluster-{name}"
    matches = _read(store, "starts_with(cluster_id, ?)", start)
    if len(matches) != 1:
        examples = ", ".join(cluster.id for cluster in (matches or read_clusters(store))[:_EXAMPLES])
        count_text = "no cluster" if not matches else f"{len(matches)} clusters"
        raise BadInput(
            f"{store.root} has {count_text} {name}; {f'for example {examples}' if examples else 'it has none: build some first'}"
        )
    (part,) = store.query("SELECT part_id FROM clusters WHERE cluster_id = ?", [matches[0].id])["part_id"]
    return matches[0], _tools_of(store, part, matches[0].tool_ids)


def read_tools(store: Store) -> list[Tool]:
    """All tools of a store's last build, also those in no cluster.

    Raises:
        BadInput: the store has no build, or the build's tools are missing.
    """
    parts = store.query(f"SELECT {LAST_BUILD} AS part_id")["part_id"].drop_nulls()
    if parts.is_empty():
        raise BadInput(f"{store.root} has no clusters: build some first")
    return _tools_of(store, parts[0])


def _tools_of(store: Store, clusters_part: str, ids: Sequence[str] | None = None) -> list[Tool]:
    """The tools of the build with this part of `clusters`; with `ids` only the tools with these ids."""
    part = store.find(_tools_part(clusters_part))
    if part is None:
        raise BadInput(f"{store.root}: another version of Headrace built its clusters, without their tools; build them again")
    rows = read_part(store.root, part.path)
    return [
        Tool(
            **{key: row[key] for key in _PLAIN_COLUMNS},
            parameters=json.loads(row["parameters"]),
            output=None if row["output"] is None else json.loads(row["output"]),
        )
        for row in (rows if ids is None else rows.filter(pl.col("tool_id").is_in(ids))).to_dicts()
    ]


def _read(store: Store, where: str, *values: str) -> list[Cluster]:
    """The clusters that meet an SQL condition with these parameters, by rank."""
    made_for = _given_tools(store)
    rows = store.query(
        f"SELECT cluster_id, domain, world, tool_ids, edges, rank FROM clusters WHERE {where} ORDER BY rank, cluster_id", list(values)
    )
    return [
        Cluster(
            name, domain, world or _world_for(tool_ids, made_for), tuple(tool_ids), tuple(Edge(**edge) for edge in json.loads(edges)), rank
        )
        for name, domain, world, tool_ids, edges, rank in rows.iter_rows()
    ]


def add_worlds(store: Store, names: Sequence[str]) -> None:
    """Commits the user's own worlds of these names, so that the store's clusters with their tools are executable."""
    frame = worlds_frame(names)
    if frame.height:
        part = part_id("worlds", [canonical_json(frame["world"].to_list())], {}, VERSION)
        if store.find(part) is None:
            store.commit([store.write("worlds", part, frame)])


def _given_tools(store: Store) -> list[tuple[str, frozenset[str]]]:
    """The worlds of a store that were made for tools of a catalogue, with the ids of these tools, by name."""
    rows = store.query("SELECT world, spec FROM worlds ORDER BY world")
    specs = [(world, json.loads(spec)) for world, spec in rows.iter_rows()]
    return [(world, frozenset(each["tool"] for each in spec["signatures"].values())) for world, spec in specs if spec.get("signatures")]


def _world_for(tool_ids: Sequence[str], made_for: Sequence[tuple[str, frozenset[str]]]) -> str | None:
    return next((world for world, ids in made_for if ids.issuperset(tool_ids)), None)


# ---- rows of the store ----------------------------------------------------------------------------------------------


def tools_frame(tools: Sequence[Tool]) -> pl.DataFrame:
    """Rows of table `tools`; schemas as JSON text."""
    rows = [
        {
            **{key: getattr(tool, key) for key in _PLAIN_COLUMNS},
            "tool_id": tool.id,
            "parameters": canonical_json(tool.parameters),
            "output": None if tool.output is None else canonical_json(tool.output),
        }
        for tool in tools
    ]
    return pl.DataFrame(rows, schema=TABLES["tools"].columns)


def clusters_frame(clusters: Sequence[Cluster]) -> pl.DataFrame:
    """Rows of table `clusters`; edges as JSON text: a list of source, target, score, entity."""
    rows = [
        {"cluster_id": cluster.id, **{key: getattr(cluster, key) for key in ("domain", "world", "tool_ids", "rank")}}
        | {"edges": canonical_json([asdict(edge) for edge in cluster.edges])}
        for cluster in clusters
    ]
    return pl.DataFrame(rows, schema=TABLES["clusters"].columns)
