"""Business clusters of a public catalogue: their cost, the precision of their edges, their coverage.

build     start, reading, edges and clusters in a separate process, on 17,578 rows of the public MCP catalogue; and how the
          time of clustering grows from 2,000 to 37,000 tools, whole servers at a time
edges     average precision over ordered pairs of tools of one server on BFCL's multi-turn documents (without math_api, where any number
          feeds any number), whose 206 edges were typed by hand; precision and recall of the edges that are built; against the similarity
          of parameters alone, and against chance
unseen    the same average precision on nine servers of the catalogue, whose edges (edges_unseen.jsonl) were typed before anything was
          scored on them
clusters  of the whole catalogue: covered tools, clusters with a chain, clusters that span servers (those that join the same servers from
          the same tools counted once) and how alike their tools' labels are

The word lists were extended after a look at the errors on BFCL, so `edge_ap_unseen` is the unbiased figure.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import ROOT, Deadline, Figures, Section, fail, run_sections, run_tree
from storage.records import CODE_TOOL, Tool
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.clusters.catalog import read_catalogue
from synth.clusters.edges import ToolFeatures, candidate_edges, chains, find_edges
from synth.clusters.tool_text import embed_texts, parameter_text
from synth.clusters.world_plans import plans_of
from synth.worlds import WORLDS, bfcl_files
from synth.worlds.declarative.language.problems import SpecError

SIZES = (2_000, 5_000, 10_000, 17_000)
EXTRA_TOOLS = 20_000
UNSEEN = ROOT / "benchmarks" / "edges_unseen.jsonl"
DRAWS = 20
Pair = tuple[str, str]
ExtraTools = Callable[[int], Sequence[Tool]]


def sections(extra_tools: ExtraTools | None = None) -> list[Section]:
    """extra_tools: gives so many tools to cluster beside the catalogue's; by default those of generated domains."""
    return [
        Section(
            "clusters: build",
            ("clusters_build_s", "clusters_peak_gib", "clusters_exponent"),
            lambda _: measure_build(extra_tools or generated_tools),
            minutes=6,
        ),
        Section(
            "clusters: edges",
            ("edge_ap_bfcl", "edge_precision_bfcl", "edge_recall_bfcl", "edge_ap_similarity", "edge_ap_random"),
            measure_edges,
            minutes=1,
        ),
        Section("clusters: unseen edges", ("edge_ap_unseen",), measure_unseen, minutes=1),
        Section(
            "clusters: what they are",
            ("tool_coverage", "clusters_chain3_share", "cross_server_clusters", "cross_server_purity_ratio"),
            measure_clusters,
            minutes=2,
        ),
    ]


def main() -> int:
    if sys.argv[1:] == ["--build"]:
        cluster_tools(read_catalogue(_data("mcp_tools_toucan.jsonl.gz")).tools)
        return 0
    return run_sections("clusters", sections())


# ---- cost -------------------------------------------------------------------------------------------------------------


def measure_build(extra_tools: ExtraTools) -> Figures:
    usage = run_tree([sys.executable, "-m", "benchmarks.worlds_sections.business_clusters", "--build"])
    if usage.returncode:
        fail(f"building clusters ended with code {usage.returncode}: run `python -m benchmarks.worlds_sections.business_clusters --build`")
    _seconds(_servers_of(SIZES[0]))  # models and word lists are there from here on
    seconds = {len(tools): _seconds(tools) for tools in [*map(_servers_of, SIZES), [*_catalogue(), *extra_tools(EXTRA_TOOLS)]]}
    for size, took in seconds.items():
        print(f"    {size:,} tools: {took:.1f} CPU-s", flush=True)
    slope = np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0]
    return {"clusters_build_s": usage.wall_s, "clusters_peak_gib": usage.peak_gib, "clusters_exponent": float(slope)}


def _seconds(tools: Sequence[Tool]) -> float:
    """Of the CPU, which other work on the machine does not stretch."""
    begun = time.process_time()
    cluster_tools(tools)
    return time.process_time() - begun


def _servers_of(count: int) -> list[Tool]:
    """Whole servers of the catalogue in an order drawn once, up to `count` tools; the last one may be cut."""
    by_server: dict[str, list[Tool]] = defaultdict(list)
    for tool in _catalogue():
        by_server[tool.server].append(tool)
    order = sorted(by_server)
    random.Random(0).shuffle(order)
    return [tool for server in order for tool in by_server[server]][:count]


def generated_tools(count: int) -> list[Tool]:
    """Tools of generated domains that are admitted, each domain's servers its own."""
    found: list[Tool] = []
    number = 0
    while len(found) < count:
        world = f"gen-{number}"
        number += 1
        with suppress(SpecError):
            plans_of(WORLDS[world].tools)  # while it is there: compiling it is not clustering
            found += [
                tool.model_copy(update={"server": f"{world}-{tool.server}"}) for tool in WORLDS[world].tools if tool.name != CODE_TOOL
            ]
    return found[:count]


# ---- edges ------------------------------------------------------------------------------------------------------------


def measure_edges(_: Deadline) -> Figures:
    tools, gold = bfcl_tools(), bfcl_gold()
    described = ToolFeatures.of(tools)
    pairs = _pairs(tools)
    built = {(edge.source, edge.target) for edge in find_edges(described)}
    (parameters,) = embed_texts([parameter_text(tool) for tool in tools])
    place = {tool.id: index for index, tool in enumerate(tools)}
    alike = np.array([float(parameters[place[a]] @ parameters[place[b]]) for a, b in pairs])
    wanted = np.array([pair in gold for pair in pairs])
    chance = [average_precision(np.random.default_rng(seed).random(len(pairs)), wanted) for seed in range(DRAWS)]
    return {
        "edge_ap_bfcl": average_precision(_scores(described, pairs), wanted),
        "edge_precision_bfcl": len(built & gold) / len(built),
        "edge_recall_bfcl": len(built & gold) / len(gold),
        "edge_ap_similarity": average_precision(alike, wanted),
        "edge_ap_random": float(np.mean(chance)),
    }


def measure_unseen(_: Deadline) -> Figures:
    rows = [json.loads(line) for line in UNSEEN.read_text().splitlines()]
    gold_rows = [row for row in rows if "about" not in row]
    numbers = {str(row["server_id"]) for row in gold_rows}
    tools = [tool for tool in _catalogue() if tool.server.rpartition("-")[2] in numbers]
    servers = {tool.server.rpartition("-")[2]: tool.server for tool in tools}
    gold = {tuple(f"{servers[str(row['server_id'])]}.{row[end]}" for end in ("producer", "consumer")) for row in gold_rows}
    pairs = _pairs(tools)
    if missing := gold - set(pairs):
        fail(f"{UNSEEN.name} names pairs that the catalogue does not have: {sorted(missing)[:3]}")
    wanted = np.array([pair in gold for pair in pairs])
    return {"edge_ap_unseen": average_precision(_scores(ToolFeatures.of(_catalogue()), pairs), wanted)}


def average_precision(scores: NDArray[np.float64], wanted: NDArray[np.bool_]) -> float:
    """Area under precision and recall in steps; pairs of one score are taken together."""
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], np.cumsum(wanted[order])
    last = np.r_[ranked[1:] != ranked[:-1], True]
    precision, recall = hits[last] / (np.flatnonzero(last) + 1), hits[last] / wanted.sum()
    return float(np.sum(np.diff(np.r_[0.0, recall]) * precision))


def _scores(described: ToolFeatures, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """What the definition says of each pair; 0 where no entity links it."""
    found = candidate_edges(described)
    ids = [tool.id for tool in described.tools]
    scores = {
        (ids[i], ids[j]): score for i, j, score in zip(found.sources.tolist(), found.targets.tolist(), found.scores.tolist(), strict=True)
    }
    return np.array([scores.get(pair, 0.0) for pair in pairs])


def _pairs(tools: Sequence[Tool]) -> list[Pair]:
    return [(a.id, b.id) for a in tools for b in tools if a.server == b.server and a is not b]


# ---- clusters ---------------------------------------------------------------------------------------------------------


def measure_clusters(_: Deadline) -> Figures:
    tools = _catalogue()
    clusters = cluster_tools(tools)
    spanning = [cluster for cluster in clusters if len(_servers(cluster.tool_ids)) > 1]
    unlike = {(_servers(c.tool_ids), frozenset(e.source for e in c.edges if len(_servers((e.source, e.target))) > 1)) for c in spanning}
    covered = {tool for cluster in clusters for tool in cluster.tool_ids}
    return {
        "tool_coverage": len(covered) / len(tools),
        "clusters_chain3_share": sum(bool(chains(cluster.edges)) for cluster in clusters) / len(clusters),
        "cross_server_clusters": len(unlike),
        "cross_server_purity_ratio": purity_ratio(spanning, {tool.id: tool.domain for tool in tools}) if spanning else 0.0,
    }


def _servers(tools: Iterable[str]) -> frozenset[str]:
    return frozenset(tool.partition(".")[0] for tool in tools)


def purity_ratio(clusters: Sequence[Cluster], labels: Mapping[str, str]) -> float:
    """Mean share of the most frequent label in a cluster, over the same for as many tools drawn at random."""

    def purity(tools: Sequence[str]) -> float:
        return max(Counter(labels[tool] for tool in tools).values()) / len(tools)

    rng, ids = random.Random(0), sorted(labels)
    ours = math.fsum(purity(cluster.tool_ids) for cluster in clusters)
    chance = math.fsum(purity(rng.sample(ids, len(cluster.tool_ids))) for cluster in clusters for _ in range(DRAWS)) / DRAWS
    return ours / chance


# ---- data -------------------------------------------------------------------------------------------------------------


def bfcl_tools() -> list[Tool]:
    """BFCL's multi-turn functions, a document a server, without their outputs: real catalogues have none."""
    return [
        Tool(name=row["name"], description=row["description"], parameters=row["parameters"], server=path.stem, domain=path.stem)
        for path in bfcl_files.files(bfcl_files.MULTI_TURN_TOOLS)
        if path.stem != "math_api"
        for row in map(json.loads, path.read_text().splitlines())
    ]


def bfcl_gold() -> set[Pair]:
    rows = [json.loads(line) for line in _data("bfcl_tool_edges.jsonl").read_text().splitlines()]
    return {(f"{row['doc']}.{row['producer']}", f"{row['doc']}.{row['consumer']}") for row in rows}


@cache
def _catalogue() -> tuple[Tool, ...]:
    return read_catalogue(_data("mcp_tools_toucan.jsonl.gz")).tools


def _data(name: str) -> Path:
    folder = os.environ.get("HEADRACE_TEST_DATA")
    if not folder or not (path := Path(folder) / name).is_file():
        fail(f"no {name}: name the folder that holds it in HEADRACE_TEST_DATA")
    return path


if __name__ == "__main__":
    raise SystemExit(main())
