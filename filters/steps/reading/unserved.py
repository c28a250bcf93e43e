"""What users ask for that no tool of the worlds does: groups of requests that stayed without a frame, with their share and some of them.

One idea: a sample of these requests says it; the groups are topics (`filters/requests/topics.py`) with their own salient words as names.
The step is on where the reader reads a world.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from filters.frames.hash_join import key_of
from filters.ingest.in_context import without_context
from filters.reading.log.log_reader import compact
from filters.requests.greetings import is_small_talk
from filters.requests.patterns import mask_values, patterns
from filters.requests.topics import find_topics
from filters.requests.unlike_others import is_unlike_others
from filters.step import Context, Setup, SurveyStep
from filters.steps.reading.read_requests import ASK, has_reader
from filters.steps.selection.encode import encode_texts
from synth.engines.encoder import EncoderConfig

NAME = "unserved"
SAMPLE = 3_000
_SHOWN, _LONGEST, _MOST_KEPT = 6, 90, 200
SCHEMA: Mapping[str, Any] = {"topic": pl.String, "share": pl.Float64, "rows": pl.Int64, "requests": pl.List(pl.String)}


@dataclass(frozen=True)
class Inputs:
    """encoder: of the texts. labels: of their contexts, which say nothing of what is asked."""

    encoder: EncoderConfig
    labels: tuple[str, ...]


def survey(rows: Iterable[pl.DataFrame], inputs: Inputs, _: object, context: Context) -> pl.DataFrame:
    """The groups, largest first: topic, share of the requests without a frame, rows of the log (estimated), and some of its requests."""
    sample, total = pl.DataFrame(schema={"norm": pl.String, "text": pl.String, "key_high": pl.UInt64}), 0
    asked = context.surveys.get(ASK)
    is_answered = pl.col("frame_id").is_not_null() | (pl.col("outcome") == "not_actionable")
    answered = asked.filter(is_answered)["norm"] if asked is not None else pl.Series(dtype=pl.String)
    for piece in rows:
        is_unread = pl.col("ungrounded").is_not_null() & ~pl.col("norm").is_in(answered.implode())
        left = piece.filter(is_unread & ~is_small_talk(pl.col("norm")))
        total += left.height
        first = left.select("norm", "text", key_of("norm")[0]).sort("key_high", "norm").head(SAMPLE)
        sample = pl.concat([sample, compact(first)]).sort("key_high", "norm").head(SAMPLE)
    if sample.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    alone = {name: without_context(sample[name], inputs.labels) for name in ("norm", "text")}
    masked = sample.with_columns(alone=alone["norm"]).with_columns(masked=mask_values(pl.col("alone")))
    worded = masked.with_columns(pattern=patterns(masked["masked"], alone["text"])).filter(pl.col("pattern") != "")
    distinct = worded.unique("pattern", maintain_order=True)
    topics, _vectors = find_topics(distinct["pattern"].to_list(), partial(encode_texts, config=inputs.encoder, context=context, name=NAME))
    named = distinct.select("pattern", topic=pl.Series(topics, dtype=pl.String)).filter(~is_unlike_others(distinct["pattern"]))
    grouped = worded.join(named, on="pattern", how="inner", maintain_order="left")
    counted = grouped.group_by("topic").agg(count=pl.len(), requests=pl.col("text").sort_by("key_high").head(_MOST_KEPT))
    share = pl.col("count") / sample.height
    return counted.sort("count", "topic", descending=[True, False]).select(
        "topic", share=share, rows=(share * total).round().cast(pl.Int64), requests="requests"
    )


def note(_: Any, groups: pl.DataFrame) -> str:
    if groups.is_empty():
        return "no request is left that no tool serves"
    shown = (f"{row['topic']} (some {row['rows']:,} rows): “{row['requests'][0][:_LONGEST]}”" for row in groups.head(_SHOWN).to_dicts())
    return "what your users ask for that no tool here does: " + "; ".join(shown)


def _load(setup: Setup) -> Inputs:
    return Inputs(setup.config.encoder, setup.config.ingest.labels)


STEP = SurveyStep(
    name=NAME,
    needs=("norm", "text", "ungrounded"),
    load=_load,
    made_by=lambda inputs: (inputs.encoder.model_dump_json(), *inputs.labels),
    function=survey,
    note=note,
    writes=NAME,
    is_on=has_reader,
    is_counted=False,
)
