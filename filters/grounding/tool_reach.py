"""Finds the tool and the business cluster of the store that could serve a query without a frame, if there is one.

The tool whose text (name, description, names of its parameters) has the highest cosine to the query could serve it, if the cosine is at
least `near`. Of the clusters that hold this tool, the one whose tools are nearest on average is chosen. All tools of the store's last build
count, even those in no cluster, and the tools of the grounded worlds. `ground.py` knows only the worlds that it reads, so `ungrounded` is
decided again:

    nearest tool                          missing_information, ambiguous, unparsed   unknown        not_actionable, missing_tool
    below `far`                           stays                                      missing_tool   stays
    between the two                       stays                                      stays          stays
    `near`, of a world that is read       stays                                      unread         unread
    `near`, of anything else              unread                                     unread         unread

`unread`: a tool could serve the query, but no parser reads its wording as a frame. Nothing is dropped.

Limits: it cannot distinguish chit-chat from a request for a missing tool (both are near nothing), and does not know whether all arguments
are there. Queries that describe a situation instead of a task lie between the two thresholds. In a catalogue of many thousand tools, a tool
with hardly any text is near to everything. `benchmarks/reach.py` measures this, and calibrates the thresholds, which fit the encoder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import faiss
import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from filters.frames.numba_types import F32, I64
from filters.lexicon_worlds import Worlds
from storage.records import CODE_TOOL, Tool
from storage.store import Store
from synth.clusters.business_clusters import Cluster
from synth.clusters.cluster_store import read_clusters, read_tools
from synth.clusters.entities import properties
from synth.clusters.tool_text import strip_preambles
from synth.clusters.tool_words import words
from synth.engines.encoder import Encode, Vectors

MISSING_TOOL, UNREAD = "missing_tool", "unread"
_INTENT_RECOGNISED = ("missing_information", "ambiguous", "unparsed")
"""Reasons of step `ground` after it recognised an intent."""
MOST_NEAR = 4
"""Tools that are counted for a row: with more, the choice among them is no harder."""
_ROWS = 4096
_DESCRIPTION_LENGTH = 500


class ReachConfig(BaseModel):
    """When a tool could serve a query, and when none can. The thresholds fit the encoder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    near: float = Field(
        0.45,
        ge=-1,
        le=1,
        description="Cosine similarity from which a tool could serve a query that no world can execute; fits the encoder.",
    )
    far: float = Field(
        0.10, ge=-1, le=1, description="Cosine similarity to the nearest tool below which no tool can serve a query; fits the encoder."
    )

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        if self.far > self.near:
            raise ValueError(f"far {self.far} is more than near {self.near}: a tool could be both")
        return self


@dataclass(frozen=True)
class Reach:
    """The tools and clusters that queries are compared with.

    tools: those of the best clusters first, those in no cluster last; empty where the store has no clusters.
    clusters: best first.
    encode: encoder of the tools' texts and of the queries.
    read_worlds: names of the worlds that queries are grounded in.
    """

    tools: tuple[Tool, ...]
    clusters: tuple[Cluster, ...]
    encode: Encode
    read_worlds: frozenset[str] = frozenset()

    @cached_property
    def texts(self) -> list[str]:
        return tool_texts(self.tools)

    @cached_property
    def content_hash(self) -> str:
        """Hash of the tools' texts and worlds and of the clusters, hexadecimal; part of ids that depend on them."""
        digest = hashlib.sha256()
        for tool, text in zip(self.tools, self.texts, strict=True):
            digest.update(f"{tool.id}\0{tool.world}\0{text}\0".encode())
        for cluster in self.clusters:
            digest.update("\0".join([cluster.id, *cluster.tool_ids, ""]).encode())
        return digest.hexdigest()

    @cached_property
    def vectors(self) -> Vectors:
        """Unit rows [tools, d], computed at first use; equal texts have equal rows."""
        distinct, places = np.unique(np.array(self.texts, object), return_inverse=True)
        return self.encode(distinct.tolist())[places]

    @cached_property
    def holders(self) -> pl.DataFrame:
        """The clusters that hold a tool, by their places (tool, cluster); best first."""
        places = {tool.id: place for place, tool in enumerate(self.tools)}
        pairs = [(places[tool], number) for number, cluster in enumerate(self.clusters) for tool in cluster.tool_ids]
        return pl.DataFrame(pairs, schema={"tool": pl.Int64, "cluster": pl.Int64}, orient="row")

    @cached_property
    def centres(self) -> Vectors:
        """The mean of each cluster's tools [clusters, d]: its dot product with a vector is the mean cosine."""
        means = [self.vectors[held["tool"].to_numpy()].mean(axis=0) for held in self.holders.partition_by("cluster", maintain_order=True)]
        return np.array(means, np.float32)


def load(store: Store, encode: Encode, worlds: Worlds) -> Reach:
    """The clusters and tools of the store's last build; nothing is encoded yet.

    Args:
        encode: the encoder that also encodes the rows.
        worlds: the worlds that queries are grounded in; their tools count too.

    Raises:
        BadInput: the last build was made by a version of Headrace that kept no tools.
    """
    clusters = read_clusters(store)
    if not clusters:
        return Reach((), (), encode)
    built_in = {tool.id: tool for world in worlds for tool in world.tools}
    by_id = built_in | {tool.id: tool for tool in read_tools(store)}
    first: dict[str, int] = {}
    for rank, cluster in enumerate(clusters):
        for tool_id in cluster.tool_ids:
            first.setdefault(tool_id, rank)
    callable_by_users = [tool for tool in by_id.values() if tool.world is None or tool.name != CODE_TOOL]
    tools = sorted(callable_by_users, key=lambda tool: (first.get(tool.id, len(clusters)), tool.id))
    return Reach(tuple(tools), tuple(clusters), encode, frozenset(world.name for world in worlds))


def tool_texts(tools: Sequence[Tool]) -> list[str]:
    """What is encoded of each tool: the words of its name, its description (without what all tools of its server open with), and the
    words of its parameters' names."""
    return [
        f"{' '.join(words(tool.name))}. {tool.description[:_DESCRIPTION_LENGTH]} "
        f"({', '.join(' '.join(words(name)) for name in properties(tool.parameters))})"
        for tool in strip_preambles(tools)
    ]


def step(rows: pl.DataFrame, vectors: Vectors, reach: Reach, config: ReachConfig) -> pl.DataFrame:
    """Adds cluster_id, tool_id (String; null where no tool is near enough, or the tool is in no cluster), nearness (Float64: the cosine
    to the nearest tool) and tools_near (number of tools that are near enough, at most MOST_NEAR) to rows without a frame, and updates
    `ungrounded`. Rows with a frame have nulls, as all have without clusters.

    Args:
        rows: column ungrounded (null: has a frame). vectors: of the rows' texts, unit rows [n, d], of the encoder that `reach` has.
    """
    strange = np.flatnonzero(rows["ungrounded"].is_not_null().to_numpy()) if reach.tools else np.empty(0, np.int64)
    cosine, tool = nearest(vectors, strange, reach)
    is_near = cosine >= config.near
    cluster = np.full(len(strange), -1)
    cluster[is_near] = nearest_clusters(vectors, strange[is_near], tool[is_near], reach)
    near, count = np.where(is_near, tool, -1), np.zeros(len(strange), np.int64)
    count[is_near] = count_near(vectors, strange[is_near], reach, config.near)
    nearest_tools = pl.DataFrame(
        {
            "at": strange,
            "cluster_id": _names([one.id for one in reach.clusters], cluster),
            "tool_id": _names([one.id for one in reach.tools], near),
            "nearness": cosine.astype(np.float64),
            "tools_near": count,
            "is_read": np.array([one.world in reach.read_worlds for one in reach.tools] + [False], bool)[near],
        }
    )
    out = (
        rows.with_row_index("at").with_columns(pl.col("at").cast(pl.Int64)).join(nearest_tools, on="at", how="left", maintain_order="left")
    )
    return out.with_columns(ungrounded=_ungrounded_expression(config), reason=pl.lit(None, pl.String)).drop("at", "is_read")


def _ungrounded_expression(config: ReachConfig) -> pl.Expr:
    """`ungrounded`, updated by the table above; of columns ungrounded, nearness, tool_id, is_read."""
    before, is_near = pl.col("ungrounded"), pl.col("tool_id").is_not_null()
    is_open = ~(before.is_in(_INTENT_RECOGNISED) & pl.col("is_read"))
    return (
        pl.when(before.is_not_null() & is_near & is_open).then(pl.lit(UNREAD))
        .when((before == "unknown") & (pl.col("nearness") < config.far)).then(pl.lit(MISSING_TOOL))
        .otherwise(before)
    )  # fmt: skip


def _names(names: Sequence[str], places: I64) -> pl.Series:
    """The names at these places, null at -1."""
    return pl.Series([*names, None], dtype=pl.String).gather(np.where(places < 0, len(names), places))


def nearest(vectors: Vectors, rows: I64, reach: Reach) -> tuple[F32, I64]:
    """The highest cosine of each of these rows to a tool, and which that is: of equal ones the first."""
    best, place = np.empty(len(rows), np.float32), np.empty(len(rows), np.int64)
    if len(rows):
        index = faiss.IndexFlatIP(reach.vectors.shape[1])
        index.add(reach.vectors)
        for start in range(0, len(rows), _ROWS):
            block = slice(start, start + _ROWS)
            cosine, tool_numbers = index.search(np.ascontiguousarray(vectors[rows[block]]), 1)
            best[block], place[block] = cosine[:, 0], tool_numbers[:, 0]
    return best, place


def count_near(vectors: Vectors, rows: I64, reach: Reach, near: float) -> I64:
    """How many tools have at least this cosine to each of these rows, MOST_NEAR at most."""
    counts = np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), _ROWS):
        cosine = vectors[rows[start : start + _ROWS]] @ reach.vectors.T
        counts[start : start + _ROWS] = np.minimum((cosine >= near).sum(axis=1), MOST_NEAR)
    return counts


def nearest_clusters(vectors: Vectors, rows: I64, tools: I64, reach: Reach) -> I64:
    """Of the clusters that hold each row's tool, the one whose tools have the highest mean cosine to it; -1 where none holds it."""
    cluster_numbers = np.full(len(rows), -1)
    for start in range(0, len(rows), _ROWS):
        queries = pl.DataFrame({"at": np.arange(start, min(start + _ROWS, len(rows)))}).with_columns(tool=tools[start : start + _ROWS])
        pairs = queries.join(reach.holders, on="tool", maintain_order="left_right")
        if pairs.height:
            query_vectors, centres = vectors[rows[pairs["at"].to_numpy()]], reach.centres[pairs["cluster"].to_numpy()]
            ordered = pairs.with_columns(mean=np.einsum("nd,nd->n", query_vectors, centres)).sort("at", pl.col("mean").neg(), "cluster")
            best = ordered.unique("at", keep="first", maintain_order=True)
            cluster_numbers[best["at"].to_numpy()] = best["cluster"].to_numpy()
    return cluster_numbers
