"""Which tool of the store's clusters could serve a row that no world reads (`filters/grounding/tool_reach.py`). Nothing is dropped."""

from __future__ import annotations

import polars as pl

from filters.grounding import tool_reach
from filters.grounding.tool_reach import Reach, ReachConfig
from filters.lexicon_worlds import lexicon_worlds
from filters.step import Context, Setup, WholeStep
from filters.steps.selection.encode import vectors_of
from synth.engines.encoder import encoder


def load(setup: Setup) -> tuple[Reach, ReachConfig]:
    """The tools of the store, where rows that no world reads are kept at all."""
    encode = encoder(setup.config.encoder)
    if not setup.config.ungrounded:
        return Reach((), (), encode), setup.config.reach
    reach = tool_reach.load(setup.store, encode, lexicon_worlds())
    return reach, setup.config.reach


def step(rows: pl.DataFrame, inputs: tuple[Reach, ReachConfig], _: Context) -> pl.DataFrame:
    return tool_reach.step(rows.drop("vector"), vectors_of(rows), *inputs)


STEP = WholeStep(
    name="tool_match",
    needs=("ungrounded", "vector"),
    adds=("cluster_id", "tool_id", "nearness", "tools_near", "ungrounded"),
    config=ReachConfig,
    load=load,
    made_by=lambda inputs: (inputs[0].content_hash,),
    function=step,
    is_counted=False,
)
