"""The steps that read requests in worlds without a lexicon (`filters/reading/`): a gate is taught on the log; the reader reads what passes.

`identifiers`, `gate` and `read` are surveys; `apply_readings` gives the rows their frames. They are on where `worlds` names such a world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from filters.grounding import ask_unsure, ground_model
from filters.grounding.ground_model import GroundConfig, Question
from filters.lexicon_worlds import reader_worlds
from filters.reading.labels.labelled_file import read_labelled
from filters.reading.labels.teaching import Turn, turns_of
from filters.reading.log import log_reader
from filters.reading.log.identifiers import learn_identifiers
from filters.reading.log.log_reader import LogReading
from filters.reading.log.lots import Lots
from filters.reading.of_world import requests_of
from filters.step import BatchStep, Context, Setup, SurveyStep
from storage.store import Part, part_id
from synth.text.slot_kinds import Identifier
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import worlds_frame

IDENTIFIERS, GATE, READ, ASK = "identifiers", "gate", "read", "ask"
WINDOW = 2_048
"""Texts that are read at least; as many again while some of them are kept."""
_MOST_FORMS = 4
"""Forms of identifiers of which a run shows an example."""
_SHOWN = 12
"""Intents of which a run shows examples."""
_LEAST_UNSURE = 0.1
"""Least confidence of a reading about which a language model is asked."""
_VERSION = 1
"""Version of the part `worlds` that a run writes."""
_OF_READER: Mapping[str, Any] = {"confidence": pl.Float64, "stands_for": pl.Float64}
FRAME = ("world", "intent", "slots", "combination", "shape", "frame_id", "ungrounded", "unexplained", "read_by")


def has_reader(config: Any) -> bool:
    """Whether the reader reads a world."""
    return bool(reader_worlds(config.worlds))


@dataclass(frozen=True)
class Inputs:
    """worlds: names of the worlds that are read. turns: of the user's labelled requests. labels: of contexts. parts: of the store, with the
    specs of the user's own among them."""

    worlds: tuple[str, ...]
    config: GroundConfig
    turns: tuple[Turn, ...]
    labels: tuple[str, ...]
    parts: tuple[Part, ...]

    def reader(self, learned: Sequence[str]) -> Callable[[Sequence[str]], list[LogReading]]:
        """Reads some texts; may be sent to another process. learned: patterns of the log's own identifiers."""
        how: Any = {"id_patterns": self.patterns(learned), "turns": self.turns, "labels": self.labels}
        return partial(log_reader.read_chunk, worlds=self.worlds, completes=self.config.complete, **how)

    def patterns(self, learned: Sequence[str]) -> tuple[str, ...]:
        return (*self.config.id_patterns, *learned)


def _load(setup: Setup) -> Inputs:
    worlds = reader_worlds(setup.config.worlds)
    known = set(setup.store.query("SELECT world FROM worlds")["world"])
    specs = worlds_frame(name for name in worlds if name not in known)
    config = setup.config.ground
    turns, labels = _turns(config, worlds), setup.config.ingest.labels
    if specs.is_empty():
        return Inputs(worlds, config, turns, labels, ())
    name = part_id("worlds", specs["world"].to_list(), {}, _VERSION)
    return Inputs(worlds, config, turns, labels, (setup.store.find(name) or setup.store.write("worlds", name, specs),))


def _turns(config: GroundConfig, worlds: tuple[str, ...]) -> tuple[Turn, ...]:
    """Of the user's labelled requests. Raises BadInput: see `read_labelled`."""
    if config.labelled is None:
        return ()
    return turns_of(read_labelled(config.labelled, list(log_reader.reader_of(worlds).declared.values())))


def _read_texts(texts: Sequence[str], inputs: Inputs, context: Context, name: str) -> list[LogReading]:
    pieces = list(log_reader.chunks(texts))
    readings: list[LogReading] = []
    reader = inputs.reader(context.surveys[IDENTIFIERS]["pattern"].to_list())
    for done, read in enumerate(context.executor.map(reader, pieces), 1):
        readings += read
        context.progress(name, done, len(pieces))
    return readings


def _learn(rows: Iterable[pl.DataFrame], inputs: Inputs, _: object, __: Context) -> pl.DataFrame:
    own = {kind.pattern for world in inputs.worlds for kind in WORLDS[world].kinds.values() if isinstance(kind, Identifier)}
    return learn_identifiers(rows, [*sorted(own), *inputs.config.id_patterns])


def identifiers_note(_: Inputs, learned: pl.DataFrame) -> str:
    """The identifiers of the log, with an example each."""
    examples = ", ".join(learned["example"].head(_MOST_FORMS))
    return f"what looks like {examples} is read as an identifier of yours, and stands for one that a world has" if examples else ""


def _teach(rows: Iterable[pl.DataFrame], inputs: Inputs, _: object, context: Context) -> pl.DataFrame:
    requests = dict.fromkeys(text for each in _requests(inputs.worlds) for text in each)
    return log_reader.teach_gate(rows, lambda texts: _read_texts(texts, inputs, context, GATE), list(requests))


def _requests(worlds: Iterable[str]) -> list[list[str]]:
    return [texts for world in worlds for texts in requests_of(WORLDS[world])]


def _read(rows: Iterable[pl.DataFrame], inputs: Inputs, _: object, context: Context) -> pl.DataFrame:
    lots = Lots(_requests(inputs.worlds))
    best = log_reader.texts_to_read(rows, log_reader.gate_of(context.surveys[GATE]), lots, inputs.config.max_read)
    readings = list[LogReading]()
    for start in range(0, best.height, WINDOW):  # the most promising first, until a whole window gives nothing
        read = _read_texts(best["text"][start : start + WINDOW].to_list(), inputs, context, READ)
        readings += read
        if not log_reader.are_sure(read, inputs.config.min_precision).any():
            break
    best = best.head(len(readings))
    kept = log_reader.are_sure(readings, inputs.config.min_precision)
    unsure = np.array([inputs.config.engine is not None and reading.confidence >= _LEAST_UNSURE for reading in readings], bool)
    rows_read = best.with_columns(reading=pl.Series(readings, dtype=pl.Object), is_kept=kept).filter(kept | unsure).iter_rows(named=True)
    return readings_table(rows_read)


def readings_table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Readings for `ground_model.step`, with their confidence and what they stand for; those that are not kept have no frame, and stand
    here for the language model, with the text. rows: norm, text, stands_for, reading (`LogReading`), is_kept."""
    table = []
    for row in rows:
        reading, frame = row["reading"], row["reading"].frame if row["is_kept"] else None
        read = {"norm": row["norm"], "confidence": reading.confidence, "stands_for": row["stands_for"], "reworded": row["text"]}
        if frame is not None:
            read |= ground_model.frame_columns(frame, reading.unexplained) | {"reworded": reading.text, "foreign": reading.foreign}
            read["read_by"] = f"read by the reader, confidence {reading.confidence:.2f}"
        table.append(read)
    return pl.DataFrame(table, schema={**ground_model.READINGS, **_OF_READER})


def _apply(rows: pl.DataFrame, _: GroundConfig, readings: pl.DataFrame) -> pl.DataFrame:
    return ground_model.step(rows, read_again=readings.drop(*_OF_READER), ungrounded=True)


def unsure_texts(context: Context, limit: int) -> list[tuple[str, str]]:
    """Up to `limit` texts of which the reader was unsure, the likeliest first: (normalised, as it stands in the log)."""
    read = context.surveys.get(READ)
    if read is None:
        return []
    best = read.filter(pl.col("frame_id").is_null()).sort("confidence", "norm", descending=[True, False]).head(limit)
    return list(best.select("norm", "reworded").iter_rows())


def unsure_questions(texts: Sequence[tuple[str, str]], context: Context) -> dict[str, Question]:
    """What a language model is asked about texts of which the reader was unsure, by the normalised text."""
    inputs = _load(context.setup)
    reader = log_reader.reader_of(inputs.worlds, inputs.patterns(context.surveys[IDENTIFIERS]["pattern"].to_list()), inputs.turns)
    asked = ask_unsure.questions([text for _, text in texts], reader, completes=inputs.config.complete, labels=inputs.labels)
    return {norm: question for (norm, _), question in zip(texts, asked, strict=True)}


def note(inputs: Inputs, readings: pl.DataFrame) -> str:
    """How many requests have a frame now, how many of these are right, and three examples of each of the commonest intents."""
    readings = readings.drop_nulls("frame_id")
    if readings.is_empty():
        return f"the reader was sure of no request (ground.min_precision {inputs.config.min_precision:g})"
    expected = readings["confidence"].sum() / readings.height
    head = f"the reader gave {readings.height:,} requests a frame, of which it expects {expected:.0%} to be right"
    commonest = (
        readings.group_by("combination").agg(pl.len(), pl.col("norm").sort().head(3)).sort("len", "combination", descending=[True, False])
    )
    shown = (
        f"{row['combination']} {row['len']:,}: " + ", ".join(f"“{text}”" for text in row["norm"])
        for row in commonest.head(_SHOWN).to_dicts()
    )
    return "; ".join(chain([head], shown))


_NEEDS = ("norm", "text", "language", "ungrounded")
STEPS = (
    SurveyStep(
        name=IDENTIFIERS,
        needs=("norm", "ungrounded"),
        load=_load,
        made_by=lambda inputs: (*inputs.worlds, *inputs.config.id_patterns),
        function=_learn,
        note=identifiers_note,
        is_on=has_reader,
        is_counted=False,
    ),
    SurveyStep(
        name=GATE,
        needs=_NEEDS,
        load=_load,
        made_by=lambda inputs: (*inputs.worlds, *inputs.config.id_patterns, inputs.config.complete, *inputs.turns),
        parts=lambda inputs: inputs.parts,
        uses=IDENTIFIERS,
        function=_teach,
        is_on=has_reader,
        is_counted=False,
    ),
    SurveyStep(
        name=READ, needs=_NEEDS, config=GroundConfig, load=_load, uses=GATE, function=_read, note=note, is_on=has_reader, is_counted=False
    ),
    BatchStep(
        name="apply_readings",
        needs=("norm", "text", *FRAME, "residue"),
        adds=("text", *FRAME, "residue"),
        config=GroundConfig,
        uses=READ,
        function=_apply,
        is_on=has_reader,
        is_counted=False,
    ),
)
