"""The five forms of a funnel step. The runner (`runner.py`) knows these forms and no single step; `pipeline.py` lists the steps.

A step gets columns of the rows that no earlier step has dropped. It returns *the same rows in the same order* with the columns that it
adds, and with its verdict:
    reason        String   null: the row is kept; else why it is dropped, a short snake_case word
    duplicate_of  UInt32   optional: the `row` that a dropped row repeats
    similarity    Float64  optional: similarity to that row (1.0: equal)
Every step also gets `row` (UInt32), the number of a row among all rows of earlier runs and this one.

The form of a step is its scope, from small pieces to all rows at once:
    BatchStep    each row alone, in any batch, on any thread or machine
    KeyStep      rows with the same 128-bit key, a range of keys at a time, rows of earlier runs included
    BandStep     rows that share a bucket of a band, a band at a time (near duplicates)
    SurveyStep   drops nothing: reads all rows, piece by piece, and writes a frame for a later step
    WholeStep    all remaining rows at once, in memory; only whole steps may follow it

A step is pure: its result depends on its arguments only. Randomness comes from a seed in its configuration; the order of threads has no
effect. The function of a batch step gets the rows, then its inputs (`Step.load`) if it has any, then the frame of the survey that it
`uses`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from pydantic import BaseModel

if TYPE_CHECKING:
    from filters.by_hand.run_decisions import HandDecisions
    from filters.dedup.dedup_index import DedupIndex
    from filters.frames.batches import Batch
    from filters.frames.workspace import Workspace
    from filters.ingest import Source
    from filters.verdicts import Verdicts
    from storage.execution import Executor, Progress
    from storage.store import Part, Store

VERDICT = ("reason", "duplicate_of", "similarity")


def alive(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that a step kept, without its verdict columns."""
    return rows.filter(pl.col("reason").is_null()).drop([name for name in VERDICT if name in rows.columns])


@dataclass(frozen=True)
class Setup:
    """What a run knows before it reads a row.

    store: the store with earlier runs, trees and clusters.
    config: FunnelConfig of the run, with a section for each step; `coverage.keep` is a count, even if a ratio was configured.
    rows: number of rows that the run reads.
    key: what identifies the run: the files' contents and the settings that decide rows.
    hand: what people said by hand of these rows.
    """

    store: Store
    config: Any
    rows: int
    key: Mapping[str, Any]
    hand: HandDecisions


@dataclass(frozen=True)
class Context:
    """What a survey or a whole step may use during the run.

    run: id of the run.
    setup: what was known before.
    files: of earlier runs and this one, in the order of row numbers.
    index: the index of earlier runs.
    verdicts: of the steps so far.
    work: the run's folder of intermediate frames.
    executor: runs pieces of work.
    progress: called with a label, the number of finished pieces and their total.
    surveys: frames of the surveys so far, by step.
    """

    run: str
    setup: Setup
    files: Sequence[Source]
    index: DedupIndex
    verdicts: Verdicts
    work: Workspace
    executor: Executor
    progress: Progress
    surveys: dict[str, pl.DataFrame] = field(default_factory=dict)

    def each(self, label: str, work: Callable[..., object], *items: Sequence[Any], executor: Executor | None = None) -> None:
        """Calls `work` for every item on the executor (the run's by default)."""
        for done, _ in enumerate((executor or self.executor).map(work, *items), 1):
            self.progress(label, done, len(items[0]))


def _nothing(_: Any) -> tuple[Any, ...]:
    return ()


def _always(_: Any) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Step:
    """What every step declares.

    name: of its row in the funnel and in verdicts.
    needs: columns that it reads; an earlier step must have added each.
    adds: columns that it adds or replaces.
    reasons: reasons that it may give, or patterns of them (`model_*`).
    soft: reasons that do not hold for a row that a person keeps by hand: they stand for taste or want of room.
    unread: reasons that do not hold for a row whose frame a person gave by hand.
    config: model of its section in FunnelConfig.
    load: returns the step's inputs before a row is read (a taxonomy, held-out questions); by default, inputs are the configuration section.
    made_by: inputs -> what decides the step's verdicts beside rows, configuration and code; part of the run's id.
    parts: inputs -> store parts that the step writes before a row is read; committed with the run.
    uses: name of an earlier survey, whose frame the function gets; it gets None if that survey is off.
    is_on: configuration -> whether the run has this step.
    is_counted: whether the step is a row of the funnel table; a step that only prepares columns is not.
    """

    name: str
    needs: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    config: type[BaseModel] | None = None
    load: Callable[[Setup], Any] | None = None
    made_by: Callable[[Any], Sequence[str]] = _nothing
    parts: Callable[[Any], Sequence[Part]] = _nothing
    uses: str | None = None
    is_on: Callable[[Any], bool] = _always
    is_counted: bool = True

    def declares(self, reason: str) -> bool:
        return any(fnmatchcase(reason, pattern) for pattern in self.reasons)

    def check_reasons(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows unchanged. Raises AssertionError: a row has a reason that the step does not declare."""
        unknown = [reason for reason in rows["reason"].drop_nulls().unique().to_list() if not self.declares(reason)]
        assert not unknown, f"step {self.name} gave the reason {unknown[0]}, which it does not declare"
        return rows

    def arguments(self, inputs: Any, surveys: Mapping[str, pl.DataFrame]) -> tuple[Any, ...]:
        """The arguments of the function after the rows."""
        own_input = (inputs,) if self.config is not None or self.load is not None else ()
        return (*own_input, *((surveys.get(self.uses),) if self.uses is not None else ()))


@dataclass(frozen=True, kw_only=True)
class BatchStep(Step):
    """function: rows of a batch -> the same rows.
    explains: columns of this step that are stored for its dropped rows too, for the table `frames`.
    """

    function: Callable[..., pl.DataFrame]
    explains: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KeyStep(Step):
    """keys: rows of a batch -> row, key_high, key_low of the rows that have a key.
    earlier: index -> the same columns of rows of earlier runs, in pieces.
    function: row, first (the first row with the key), count (of rows with the key) -> row and the verdict.
    """

    keys: Callable[[pl.DataFrame], pl.DataFrame]
    earlier: Callable[[DedupIndex], Iterator[pl.DataFrame]]
    function: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, kw_only=True)
class BandStep(Step):
    """A join by locality-sensitive hashing. Arrays lie in the workspace as `<step>-<what>-<batch or band>`.

    sketch: rows of a batch, inputs -> arrays to store, by name.
    prepare: batches, work, index, inputs; writes what every band needs of all batches and of earlier runs.
    bands: inputs -> number of bands.
    join: band, batches, work; writes the pairs of the band.
    decide: batches, work, index, inputs -> row, keeper, similarity of every compared row, in one pass.
    function: the result of `decide` -> row and the verdict of the dropped rows.
    """

    sketch: Callable[[pl.DataFrame, Any], Mapping[str, np.ndarray[Any, Any]]]
    prepare: Callable[[Sequence[Batch], Workspace, DedupIndex, Any], None]
    bands: Callable[[Any], int]
    join: Callable[..., None]
    decide: Callable[[Sequence[Batch], Workspace, DedupIndex, Any], pl.DataFrame]
    function: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Pieces(Iterable[pl.DataFrame]):
    """Rows in pieces, read anew by each iteration."""

    read: Callable[[], Iterator[pl.DataFrame]]

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return self.read()


@dataclass(frozen=True, kw_only=True)
class SurveyStep(Step):
    """function: rows in pieces (which may be read again), inputs, the opened object, context -> a frame, which the workspace keeps.
    open: inputs, store, whether the frame exists -> an object (a language model), opened before a row is read, closed after the survey.
    note: inputs, frame -> the outcome in words.
    writes: the store table whose rows its frame has, beside the run; none by default.
    """

    function: Callable[[Iterable[pl.DataFrame], Any, Any, Context], pl.DataFrame]
    open: Callable[[Any, Store, bool], AbstractContextManager[Any]] | None = None
    note: Callable[[Any, pl.DataFrame], str] | None = None
    writes: str = ""


@dataclass(frozen=True, kw_only=True)
class WholeStep(Step):
    """function: all rows, inputs, context -> the same rows.
    writes: names of store tables that the step fills.
    tables: rows with verdicts, inputs, context -> rows of these tables.
    """

    function: Callable[[pl.DataFrame, Any, Context], pl.DataFrame]
    writes: tuple[str, ...] = ()
    tables: Callable[[pl.DataFrame, Any, Context], Mapping[str, pl.DataFrame]] | None = None


def pardon(step: Step, reasons: Sequence[str], rows: pl.Series) -> Step:
    """The step without these reasons, or patterns of them, for these rows (numbers); only batch and whole steps can leave a reason out."""
    if not reasons or rows.is_empty():
        return step
    assert isinstance(step, BatchStep | WholeStep), f"step {step.name} compares rows, so none can be left out of what it drops"
    function: Any = partial(_pardoned, step.function, f"^(?:{'|'.join(reasons).replace('*', '.*')})$", rows)
    return replace(step, function=function)


def _pardoned(function: Callable[..., pl.DataFrame], reasons: str, spared: pl.Series, rows: pl.DataFrame, *inputs: Any) -> pl.DataFrame:
    out = function(rows, *inputs)
    is_dropped = ~(pl.col("row").is_in(spared.implode()) & pl.col("reason").str.contains(reasons))
    return out.with_columns(pl.when(is_dropped).then(name).alias(name) for name in VERDICT if name in out.columns)


def apply(step: BatchStep | WholeStep, rows: pl.DataFrame, arguments: Sequence[Any]) -> pl.DataFrame:
    """The rows with the columns that the step adds, and its verdict.

    Raises:
        AssertionError: the step left out rows or a declared column, or gave a reason that it does not declare.
    """
    out = step.function(rows, *arguments)
    assert out["row"].equals(rows["row"]), f"step {step.name} did not return the rows that it was given, in their order"
    missing = [name for name in (*step.adds, "reason") if name not in out.columns]
    assert not missing, f"step {step.name} did not add {', '.join(missing)}"
    return rows.with_columns(step.check_reasons(out).select(*step.adds, *(name for name in VERDICT if name in out.columns)))
