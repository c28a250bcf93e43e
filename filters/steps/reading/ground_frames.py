"""The steps that turn text into frames (`filters/grounding/ground.py`), and drop what no world can execute.

By default step `ground` is the parser, in worlds with a lexicon. Where a reader reads other worlds (`read_requests.py`) or a language model
reads what stays unsure (`ground.engine`), step `parse` is the parser and drops nothing, each gives rows without a frame one, and `ground`
drops the rest (`filters/grounding/ground_model.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import polars as pl

from filters.grounding import ground, ground_model
from filters.grounding.ground_model import GroundConfig
from filters.ingest.in_context import without_context
from filters.lexicon_worlds import lexicon_worlds
from filters.step import BatchStep, Context, Setup, SurveyStep
from filters.steps.reading import read_requests, unserved
from filters.steps.reading.read_requests import ASK, FRAME
from storage.store import Store
from synth.engines.base import Engine

PARSE, GROUND = "parse", "ground"


@dataclass(frozen=True)
class Inputs:
    """worlds: names of the worlds that are read; None for those with a lexicon. ungrounded: whether rows without a frame are kept.
    config: how requests are read. labels: of their contexts."""

    worlds: tuple[str, ...] | None
    ungrounded: bool
    config: GroundConfig
    labels: tuple[str, ...]


def has_model(config: Any) -> bool:
    """Whether a language model reads texts that nothing else could read."""
    return bool(config.ground.engine)


def _is_parser_alone(config: Any) -> bool:
    return not has_model(config) and not read_requests.has_reader(config)


def _load(setup: Setup) -> Inputs:
    return Inputs(setup.config.worlds, bool(setup.config.ungrounded), setup.config.ground, setup.config.ingest.labels)


def _parse(rows: pl.DataFrame, inputs: Inputs) -> pl.DataFrame:
    return _without_context(rows, inputs, ungrounded=True)


def _ground(rows: pl.DataFrame, inputs: Inputs) -> pl.DataFrame:
    return _without_context(rows, inputs, ungrounded=inputs.ungrounded)


def _without_context(rows: pl.DataFrame, inputs: Inputs, *, ungrounded: bool) -> pl.DataFrame:
    """The parser's frames of the requests alone: it takes nothing from their contexts."""
    alone = rows.with_columns(norm=without_context(rows["norm"], inputs.labels))
    return ground.step(alone, lexicon_worlds(inputs.worlds), ungrounded=ungrounded).with_columns(norm=rows["norm"])


def _drop(rows: pl.DataFrame, inputs: Inputs) -> pl.DataFrame:
    return rows.with_columns(reason=pl.lit(None, pl.String) if inputs.ungrounded else pl.col("ungrounded"))


def _merge_readings(rows: pl.DataFrame, inputs: Inputs, read_again: pl.DataFrame) -> pl.DataFrame:
    return ground_model.step(rows, read_again=read_again, ungrounded=inputs.ungrounded)


def _ask(parsed: Iterable[pl.DataFrame], inputs: Inputs, engine: Engine, context: Context) -> pl.DataFrame:
    config = inputs.config
    unsure = read_requests.unsure_texts(context, config.max_asked)
    asked = read_requests.unsure_questions(unsure, context) if unsure else {}
    if worlds := lexicon_worlds(inputs.worlds):
        unread = [text for text in ground_model.unread_texts(parsed, config.max_asked) if text not in asked]
        unread = unread[: config.max_asked - len(asked)]
        asked |= dict(zip(unread, ground_model.questions(unread, worlds), strict=True))
    return ground_model.read_table(engine, asked, progress=context.progress)


def _open(inputs: Inputs, store: Store, is_done: bool) -> AbstractContextManager[Engine | None]:
    return ground_model.open_engine(inputs.config, store, lexicon_worlds(inputs.worlds), is_done=is_done)


def _made_by(inputs: Inputs) -> tuple[str, ...]:
    return ground_model.made_by(inputs.config)


def _note(inputs: Inputs, read_again: pl.DataFrame) -> str:
    return ground_model.note(inputs.config, read_again)


PARSER = BatchStep(
    name=PARSE,
    needs=("norm", "language"),
    adds=(*FRAME, "residue"),
    config=GroundConfig,
    load=_load,
    function=_parse,
    is_on=lambda config: not _is_parser_alone(config),
)
MODEL = SurveyStep(
    name=ASK,
    needs=("norm", "ungrounded"),
    load=_load,
    made_by=_made_by,
    function=_ask,
    open=_open,
    note=_note,
    is_on=has_model,
)
GROUND_ALONE = BatchStep(
    name=GROUND,
    needs=("norm", "language"),
    adds=(*FRAME, "residue"),
    reasons=ground_model.PARSER_REASONS,
    unread=("*",),
    config=GroundConfig,
    load=_load,
    function=_ground,
    is_on=_is_parser_alone,
)
GROUND_READ = BatchStep(
    name=GROUND,
    needs=("ungrounded",),
    adds=(),
    reasons=ground_model.PARSER_REASONS,
    unread=("*",),
    config=GroundConfig,
    load=_load,
    function=_drop,
    is_on=lambda config: read_requests.has_reader(config) and not has_model(config),
)
GROUND_ASKED = BatchStep(
    name=GROUND,
    needs=("norm", "text", *FRAME, "residue"),
    adds=("text", *FRAME, "residue"),
    reasons=("ungrounded", *ground_model.PARSER_REASONS, "model_*"),
    unread=("*",),
    config=GroundConfig,
    load=_load,
    uses=ASK,
    function=_merge_readings,
    is_on=has_model,
)
STEPS = (PARSER, *read_requests.STEPS, MODEL, unserved.STEP, GROUND_ALONE, GROUND_READ, GROUND_ASKED)
