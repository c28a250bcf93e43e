"""The steps that turn text into frames (`filters/grounding/ground.py`), and drop what no world can execute.

By default step `ground` is the parser. With a language model (`ground.engine`), step `parse` is the parser and drops nothing, `ask` asks
the model about texts that the parser could not read, and `ground` merges both (`filters/grounding/ground_model.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import polars as pl

from filters.grounded_worlds import grounded_worlds
from filters.grounding import ground, ground_model
from filters.grounding.ground_model import GroundConfig
from filters.step import BatchStep, Context, Setup, SurveyStep
from storage.store import Store
from synth.engines.base import Engine

FRAME = ("world", "intent", "slots", "combination", "shape", "frame_id", "ungrounded", "unexplained", "read_by")
PARSE, ASK, GROUND = "parse", "ask", "ground"


def has_reader(config: Any) -> bool:
    """Whether a language model reads texts that the parser could not read."""
    return bool(config.ground.engine)


def _parse(rows: pl.DataFrame, _: GroundConfig) -> pl.DataFrame:
    return ground.step(rows, grounded_worlds(), ungrounded=True)


def _ground(rows: pl.DataFrame, ungrounded: bool) -> pl.DataFrame:
    return ground.step(rows, grounded_worlds(), ungrounded=ungrounded)


def _merge_readings(rows: pl.DataFrame, ungrounded: bool, read_again: pl.DataFrame) -> pl.DataFrame:
    return ground_model.step(rows, read_again=read_again, ungrounded=ungrounded)


def _keeps_ungrounded(setup: Setup) -> bool:
    return bool(setup.config.ungrounded)


def _ask(parsed: Iterator[pl.DataFrame], config: GroundConfig, engine: Engine, context: Context) -> pl.DataFrame:
    texts = ground_model.unread_texts(parsed, config.max_asked)
    return ground_model.read_table(engine, texts, grounded_worlds(), progress=context.progress)


def _open(config: GroundConfig, store: Store, is_done: bool) -> AbstractContextManager[Engine | None]:
    return ground_model.open_engine(config, store, grounded_worlds(), is_done=is_done)


PARSER = BatchStep(
    name=PARSE,
    needs=("norm", "language"),
    adds=(*FRAME, "residue"),
    config=GroundConfig,
    function=_parse,
    is_on=has_reader,
)
READER = SurveyStep(
    name=ASK,
    needs=("norm", "ungrounded"),
    config=GroundConfig,
    made_by=ground_model.made_by,
    function=_ask,
    open=_open,
    note=ground_model.note,
    is_on=has_reader,
)
GROUND_ALONE = BatchStep(
    name=GROUND,
    needs=("norm", "language"),
    adds=(*FRAME, "residue"),
    reasons=ground_model.PARSER_REASONS,
    config=GroundConfig,
    load=_keeps_ungrounded,
    function=_ground,
    is_on=lambda config: not has_reader(config),
)
GROUND_READ = BatchStep(
    name=GROUND,
    needs=("norm", *FRAME),
    adds=FRAME,
    reasons=("ungrounded", *ground_model.PARSER_REASONS, "model_*"),
    config=GroundConfig,
    load=_keeps_ungrounded,
    uses=ASK,
    function=_merge_readings,
    is_on=has_reader,
)
STEPS = (PARSER, READER, GROUND_ALONE, GROUND_READ)
