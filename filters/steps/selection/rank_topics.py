"""The step that gives rows without a frame a topic and a rank in it (`filters/requests/topics.py`), and rates them again by the tools in
reach. Rows that share no word with others are one topic, which is kept last."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from filters.requests.cues import SCORES, rate_by_cues
from filters.requests.greetings import strip_greetings
from filters.requests.topics import find_topics, order_rows
from filters.requests.unlike_others import UNLIKE_OTHERS, is_unlike_others
from filters.step import Context, Setup, WholeStep
from filters.steps.selection.coverage import k_center, topic_quotas
from filters.steps.selection.encode import encode_texts
from synth.engines.encoder import Encode, EncoderConfig, Vectors

_LENGTH_COUNTS = 1e-4
"""Of two rows of one difficulty the longer one is more demanding."""


@dataclass(frozen=True)
class Inputs:
    """encoder: configuration of the encoder. keep: rows that the run keeps at most."""

    encoder: EncoderConfig
    keep: int


def rank_topics(rows: pl.DataFrame, encode: Encode, keep: int) -> pl.DataFrame:
    """Columns row, topic, topic_rows (UInt32: rows of the log, duplicates included), topic_rank (Int32, from 0 in each topic).

    rows: columns row, norm, difficulty, pattern, pattern_rows; keep: rows that are kept at most.
    """
    by_pattern = rows.group_by("pattern", maintain_order=True).agg(pl.col("pattern_rows").first())
    topics, vectors = find_topics(by_pattern["pattern"].to_list(), encode)
    known = by_pattern.with_row_index("vector_at").with_columns(topic=pl.Series(topics, dtype=pl.String))
    is_unlike = is_unlike_others(by_pattern["pattern"])
    known = known.with_columns(topic=pl.when(is_unlike).then(pl.lit(UNLIKE_OTHERS)).otherwise("topic"))
    sized = known.with_columns(topic_rows=pl.col("pattern_rows").sum().over("topic").cast(pl.UInt32)).drop("pattern_rows")
    placed = rows.select("row", "norm", "difficulty", "pattern").join(sized, on="pattern", how="left", maintain_order="left")
    quotas = topic_quotas(placed, keep)
    ranked = [_rank(group, vectors, quotas.get(str(topic), 0)) for (topic,), group in placed.group_by("topic", maintain_order=True)]
    empty = pl.DataFrame(schema={"row": rows.schema["row"], "topic": pl.String, "topic_rows": pl.UInt32, "topic_rank": pl.Int32})
    return pl.concat([empty, *ranked])


def _rank(group: pl.DataFrame, vectors: Vectors, quota: int) -> pl.DataFrame:
    """The rows of a topic with their rank, in parts for as many rows as are kept of it."""
    at, first = np.unique(group["vector_at"].to_numpy(), return_index=True)
    own = vectors[group["vector_at"].to_numpy()]
    centres = first[k_center(vectors[at], max(1, min(quota, len(at))))]
    demand = group.select(pl.col("difficulty") + _LENGTH_COUNTS * strip_greetings(pl.col("norm")).str.len_chars()).to_series().to_list()
    order = order_rows(own, demand, centres)
    rank = np.empty(group.height, np.int32)
    rank[order] = np.arange(group.height)
    return group.select("row", "topic", "topic_rows", topic_rank=pl.Series(rank))


def step(rows: pl.DataFrame, inputs: Inputs, context: Context) -> pl.DataFrame:
    ungrounded = rows.filter(pl.col("frame_id").is_null())
    ungrounded = ungrounded.with_columns(rate_by_cues(ungrounded["norm"], ungrounded["tools_near"]))
    encode = partial(encode_texts, config=inputs.encoder, context=context, name="pattern-vectors")
    ranked = rank_topics(ungrounded, encode, inputs.keep).join(ungrounded.select("row", *SCORES), on="row")
    out = rows.join(ranked, on="row", how="left", maintain_order="left", suffix="_cued")
    scores = (pl.coalesce(f"{name}_cued", name).alias(name) for name in SCORES)
    return out.with_columns(*scores, reason=pl.lit(None, pl.String))


def _load(setup: Setup) -> Inputs:
    return Inputs(setup.config.encoder, setup.config.coverage.keep)


STEP = WholeStep(
    name="topics",
    needs=("norm", "frame_id", "pattern", "pattern_rows", "tools_near", *SCORES),
    adds=("topic", "topic_rows", "topic_rank", *SCORES),
    load=_load,
    function=step,
)
