"""Reads the requests of a whole log: a gate sees every row, and the reader sees the few that pass.

One idea: the reader takes milliseconds a text, so it may only see texts that probably ask for something that a world can do. The gate is a
student (`student.py`) that is taught on the log itself, in rounds: the reader reads a sample, then what the student thinks the best of the
texts that were not read, and so on. What a world serves is rare in a log, and a random sample alone would hardly show any of it. Of what is
read, frames are kept that are right with at least the probability that the user asks for: a misread is worse than a miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from filters.frames.hash_join import key_of
from filters.ingest.in_context import split_context
from filters.reading.complete import draw_missing, missing_slots, say
from filters.reading.labels.teaching import Turn
from filters.reading.log.context_slots import fill_from_context
from filters.reading.log.lots import Lots
from filters.reading.log.student import BUCKETS, Student, teach
from filters.reading.of_world import reword, slots_of
from filters.reading.readings import Reading
from filters.reading.world_reader import UNREAD, WorldReader, language_of
from storage.records import Frame, Language
from synth.worlds import WORLDS

ROUNDS, PER_ROUND = 5, 1_100
"""Rounds in which the gate is taught, and texts that are read in each."""
_ASKED = 3.0
"""Log odds that the gate learns of a request that a world serves."""
_LEAST = 0.01
"""Least confidence that the gate tells apart."""
_PROMISING = -1.0
"""Least score of the gate, as log odds, of a text that is worth a look where there are more than can be read."""
_SIZES = {"lot": pl.Int64, "len": pl.UInt32}
CHUNK = 256
"""Texts that are read at a time."""


@lru_cache(maxsize=4)
def reader_of(worlds: tuple[str, ...], id_patterns: tuple[str, ...] = (), turns: tuple[Turn, ...] = ()) -> WorldReader:
    """The reader of these worlds; a process compiles it once. turns: as of `taught`."""
    return WorldReader([WORLDS[name] for name in worlds], turns=turns, id_patterns=id_patterns)


def sample_texts(rows: Iterable[pl.DataFrame], limit: int = PER_ROUND) -> pl.DataFrame:
    """Up to `limit` texts without a frame, chosen by a hash: columns norm, text. rows: norm, text, language, ungrounded, in pieces."""
    sample = pl.DataFrame(schema={"norm": pl.String, "text": pl.String, "key_high": pl.UInt64})
    for piece in rows:
        fresh = _unread(piece).select("norm", "text", key_of("norm")[0])
        sample = pl.concat([sample, compact(fresh.sort("key_high", "norm").head(limit))]).sort("key_high", "norm").head(limit)
    return sample.drop("key_high")


def compact(rows: pl.DataFrame) -> pl.DataFrame:
    """The same rows, with texts of their own: those of a part of a frame hold on to all of its texts."""
    copied = pl.from_arrow(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
    assert isinstance(copied, pl.DataFrame)
    return copied


def _unread(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("ungrounded").is_not_null())


def teach_gate(
    rows: Iterable[pl.DataFrame],
    read: Callable[[Sequence[str]], Sequence[LogReading]],
    requests: Sequence[str],
    per_round: int = PER_ROUND,
) -> pl.DataFrame:
    """The gate of a log as a frame: bucket, weight; the score of a text without words is in the row of bucket `BUCKETS`.

    rows: as of `sample_texts`; they are read once a round.
    read: gives the readings of some texts.
    requests: such as the worlds serve, normalised: a beginning, as a sample may have none.
    """
    known = sample_texts(rows, per_round)
    asked = pl.DataFrame({"norm": requests, "text": requests}, schema=known.schema)
    scores = np.concatenate([_scores(read(known["text"].to_list())), np.full(asked.height, _ASKED, np.float32)])
    known = pl.concat([known, asked])
    student = teach(known["norm"], scores)
    for _ in range(ROUNDS - 1):
        best = best_texts(rows, student, known.height + per_round).join(known, on="norm", how="anti", maintain_order="left").head(per_round)
        if best.is_empty():
            break
        scores = np.concatenate([scores, _scores(read(best["text"].to_list()))])
        known = pl.concat([known, best])
        student = teach(known["norm"], scores)
    used = np.flatnonzero(student.weights)
    weights = np.append(student.weights[used], np.float32(student.base))
    return pl.DataFrame({"bucket": np.append(used, BUCKETS).astype(np.uint32), "weight": weights})


def _scores(readings: Sequence[LogReading]) -> NDArray[np.float32]:
    """What the gate learns of readings: the log odds that they are right, the least where there is no frame."""
    trust = np.array([reading.confidence if reading.frame is not None else 0.0 for reading in readings], np.float64)
    return np.log((trust + _LEAST) / (1 + _LEAST - trust)).astype(np.float32)


def gate_of(frame: pl.DataFrame) -> Student:
    weights = np.zeros(BUCKETS + 1, np.float32)
    weights[frame["bucket"].to_numpy()] = frame["weight"].to_numpy()
    return Student(weights[:BUCKETS], float(weights[BUCKETS]))


def best_texts(rows: Iterable[pl.DataFrame], gate: Student, limit: int) -> pl.DataFrame:
    """The `limit` texts without a frame that the gate scores highest: columns norm, text. rows: as of `sample_texts`."""
    best = pl.DataFrame(schema={"norm": pl.String, "text": pl.String, "score": pl.Float32})
    for piece in rows:
        unread = _unread(piece).select("norm", "text")
        scored = unread.with_columns(score=pl.Series(gate.scores(unread["norm"]), dtype=pl.Float32))
        order: Any = {"by": ["score", "norm"], "descending": [True, False]}
        best = pl.concat([best, compact(scored.sort(**order).head(limit))]).sort(**order).head(limit)
    return best.drop("score")


def texts_to_read(rows: Iterable[pl.DataFrame], gate: Student, lots: Lots, limit: int) -> pl.DataFrame:
    """Up to `limit` texts without a frame, in the order in which they are to be read: columns norm, text, stands_for.

    Where more are promising, they are taken evenly over lots, and one of each lot comes before the second of any; else the best ones.
    stands_for: how many promising texts of its lot a text stands for, itself included. rows: as of `sample_texts`.
    """
    sizes = pl.concat([_promising(piece, gate, lots).group_by("lot").len() for piece in rows] or [pl.DataFrame(schema=_SIZES)])
    sizes = sizes.group_by("lot").agg(pl.col("len").sum().cast(pl.Int64))
    if sizes["len"].sum() <= limit:
        return best_texts(rows, gate, limit).with_columns(stands_for=pl.lit(1.0))
    most = _most_of_a_lot(sizes["len"].to_numpy(), limit)
    order: Any = {"by": ["lot", "score", "norm"], "descending": [False, True, False]}
    kept = pl.DataFrame(schema={"norm": pl.String, "text": pl.String, "lot": pl.Int64, "score": pl.Float32})
    for piece in rows:
        fresh = _promising(piece, gate, lots)
        best = pl.concat([kept, fresh]).sort(**order).filter(pl.int_range(pl.len()).over("lot") < most)
        kept = compact(best)
    counts = kept.group_by("lot").agg(read=pl.len()).join(sizes, on="lot").select("lot", stands_for=pl.col("len") / pl.col("read"))
    turns = kept.with_columns(turn=pl.int_range(pl.len()).over("lot")).join(counts, on="lot", how="left", maintain_order="left")
    return turns.sort("turn", "score", "norm", descending=[False, True, False]).head(limit).select("norm", "text", "stands_for")


def _promising(rows: pl.DataFrame, gate: Student, lots: Lots) -> pl.DataFrame:
    """The texts that the gate takes for requests to a world, each once: norm, text, lot, score."""
    unread = _unread(rows).select("norm", "text")
    scored = unread.with_columns(score=pl.Series(gate.scores(unread["norm"]), dtype=pl.Float32)).filter(pl.col("score") >= _PROMISING)
    return scored.select("norm", "text", pl.Series("lot", lots.of(scored["norm"]), dtype=pl.Int64), "score")


def _most_of_a_lot(sizes: NDArray[np.int64], limit: int) -> int:
    """The most that each lot may give, so that all give at most `limit`; at least 1."""
    low, high = 1, max(limit, 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= limit else (low, middle - 1)
    return low


@dataclass(frozen=True, slots=True)
class LogReading:
    """A reading of one text of a log.

    frame: None where a value is none of its slot's kind, or a required one is missing and not drawn.
    text: the text, with identifiers of the world in place of the user's own, and with what is drawn at its end.
    unexplained: number of values that no slot takes.
    foreign: words that nothing explains, in lower case, with blanks between them.
    """

    frame: Frame | None
    text: str
    confidence: float
    unexplained: int
    foreign: str = ""


def read_chunk(
    texts: Sequence[str],
    worlds: tuple[str, ...],
    id_patterns: tuple[str, ...] = (),
    turns: tuple[Turn, ...] = (),
    *,
    completes: bool = True,
    labels: Sequence[str] = (),
) -> list[LogReading]:
    """The readings of some texts. id_patterns: as of `Reader`. turns: as of `taught`.

    completes: whether what a request leaves out is drawn (`complete.py`), where none of its values is unread.
    labels: of the contexts that texts may have at their ends (`context_slots.py`).
    """
    reader, readings = reader_of(worlds, id_patterns, turns), []
    apart = [split_context(text, labels) for text in texts]
    for text, (alone, context), reading in zip(texts, apart, reader.read([each for each, _ in apart]), strict=True):
        full = fill_from_context(reading, WORLDS[reading.world], context) if context and reading is not UNREAD else reading
        frame, task_text = frame_of(text, full, completes=completes, language=language_of(alone))
        readings.append(LogReading(frame, task_text, reading.confidence, reading.unread, " ".join(reading.foreign).lower()))
    return readings


def frame_of(text: str, reading: Reading, *, completes: bool, language: Language) -> tuple[Frame | None, str]:
    """The frame of a reading, and the request of its task. None where a value is none of its slot's kind, or a required one is missing and
    not drawn. language: of what is added."""
    if reading is UNREAD:
        return None, text
    world, intent = WORLDS[reading.world], reading.intent
    slots = slots_of(world, intent, reading.values)
    may_complete = completes and not reading.unread
    if slots is None or (missing_slots(world, intent, slots) and not may_complete):
        return None, text
    added = draw_missing(world, intent, slots)
    if added is None:
        return None, text
    text = reword(text, world, intent, reading.values)
    text = f"{text.rstrip()} {say(world, intent, added, language)}" if added else text
    return Frame(world=reading.world, intent=intent, slots={**slots, **added}), text


def are_sure(readings: Sequence[LogReading], min_precision: float) -> NDArray[np.bool_]:
    """Which readings to keep: those with a frame that is right with at least this probability."""
    return np.array([reading.frame is not None and reading.confidence >= min_precision for reading in readings], bool)


def chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    return (list(texts[start : start + CHUNK]) for start in range(0, len(texts), CHUNK))
