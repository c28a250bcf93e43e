"""Which tool of the store's clusters could serve a row that no world reads (`filters/tool_match.py`). Nothing is dropped."""

from __future__ import annotations

import polars as pl

from filters import tool_match
from filters.step import Context, Setup, WholeStep
from filters.steps.encode import vectors_of
from filters.tool_match import Reach, ReachConfig
from synth.engines.encoder import encoder


def load(setup: Setup) -> tuple[Reach, ReachConfig]:
    """The tools of the store, where rows that no world reads are kept at all."""
    encode = encoder(setup.config.encoder)
    return tool_match.load(setup.store, encode) if setup.config.ungrounded else Reach((), (), encode), setup.config.reach


def step(rows: pl.DataFrame, given: tuple[Reach, ReachConfig], _: Context) -> pl.DataFrame:
    return tool_match.step(rows.drop("vector"), vectors_of(rows), *given)


STEP = WholeStep(
    name="tool_match",
    needs=("ungrounded", "vector"),
    adds=("cluster_id", "tool_id", "nearness", "ungrounded"),
    config=ReachConfig,
    load=load,
    made_by=lambda given: (given[0].content_hash,),
    function=step,
    is_counted=False,
)
