"""Clusters of tools from anywhere, kept in a store and read from it again.

One idea: the same tools and settings make the same parts, so a second build finds them and does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from storage.errors import BadInput, HeadraceError
from storage.records import Tool, content_id
from storage.store import Store, part_id
from synth import clusters as clustering
from synth.catalogue import joined
from synth.clusters import Cluster, ClusterConfig, Progress, cluster_tools, clusters_frame, tools_frame
from synth.dependencies import Edge
from synth.worlds.stored import worlds_frame

VERSION = 1
_NAMED = 3


@dataclass(frozen=True)
class Kept:
    """Clusters of a store, best first. is_new: they were found now, not before."""

    clusters: tuple[Cluster, ...]
    is_new: bool


def keep_clusters(store: Store, tools: Sequence[Tool], config: ClusterConfig | None = None, *, progress: Progress | None = None) -> Kept:
    """Finds the clusters of these tools and commits them with the tools; where the store has them already, only reads them.

    Raises:
        BadInput: two tools that are not the same have one id.
        HeadraceError: no tool feeds another, so that there is no cluster; the store cannot be written.
    """
    config = config or ClusterConfig()
    tools = joined(tools)
    about = {
        "tools": content_id("tools", [tool.model_dump(mode="json") for tool in tools]),
        "config": config.model_dump(mode="json"),
        "versions": [VERSION, clustering.VERSION],
    }
    names = {table: part_id(table, ["clusters"], about, VERSION) for table in ("tools", "clusters", "worlds")}
    committed = store.query("SELECT 1 FROM parts WHERE part_id = ?", [names["clusters"]])
    if committed.height:
        return Kept(tuple(_read(store, "part_id = ?", names["clusters"])), is_new=False)
    found = cluster_tools(tools, config, progress=progress)
    if not found:
        raise HeadraceError(f"no tool of these {len(tools):,} feeds another, so there is no cluster; lower edge_threshold, or add tools")
    frames = {"tools": tools_frame(tools), "clusters": clusters_frame(found)}
    own = worlds_frame(tool.world for tool in tools if tool.world is not None)
    if own.height:
        frames["worlds"] = own
    store.commit([store.find(names[table]) or store.write(table, names[table], frame) for table, frame in frames.items()])
    return Kept(tuple(found), is_new=True)


def stored_clusters(store: Store, *, domain: str | None = None) -> list[Cluster]:
    """The clusters of a store, or of one domain (in any case), in the order of their ranks."""
    return _read(store, "TRUE" if domain is None else "lower(domain) = lower(?)", *([] if domain is None else [domain]))


def stored_cluster(store: Store, name: str) -> tuple[Cluster, list[Tool]]:
    """The cluster of this id, or whose id alone begins so, and its tools.

    Raises:
        BadInput: there is none, or more than one.
    """
    start = name if name.startswith("cluster-") else f"cluster-{name}"
    found = _read(store, "starts_with(cluster_id, ?)", start)
    if len(found) != 1:
        known = ", ".join(cluster.id for cluster in (found or _read(store, "TRUE"))[:_NAMED])
        what = "no cluster" if not found else f"{len(found)} clusters"
        raise BadInput(f"{store.root} has {what} {name}; {f'for example {known}' if known else 'it has none: build some first'}")
    rows = store.query(
        """SELECT DISTINCT ON (tool_id) * EXCLUDE (part_id) FROM tools WHERE list_contains(?, tool_id) ORDER BY tool_id, description""",
        [list(found[0].tool_ids)],
    )
    return found[0], [
        Tool(
            **{key: row[key] for key in ("name", "description", "server", "domain", "world", "changes_state")},
            parameters=json.loads(row["parameters"]),
            output=None if row["output"] is None else json.loads(row["output"]),
        )
        for row in rows.to_dicts()
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
