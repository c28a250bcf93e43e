"""What a step of the funnel declares. The runner (`runner.py`) knows these five forms and no step; `pipeline.py` lists the steps.

A step decides, and moves nothing: it gets columns of rows that no earlier step has dropped, and returns *the same rows in the same order*
with the columns that it adds, and with its verdict:
    reason        String   null: the row is kept; else why it is dropped, a short snake_case word
    duplicate_of  UInt32   optional: the `row` that a dropped row repeats
    similarity    Float64  optional: how like it (1.0: equal)
`row` (UInt32) numbers all rows that were ever read, those of earlier runs first; every step gets it, unasked.

The form of a step is its scope, from many small pieces to all rows at once:
    BatchStep    each row alone, in any batch, on any thread or machine
    KeyStep      rows with the same 128-bit key, a range of keys at a time; rows of earlier runs are among them
    BandStep     rows that share a bucket of a band, a band at a time (near duplicates)
    SurveyStep   drops nothing: looks at all rows, piece by piece, and leaves a frame for a later step
    WholeStep    all rows that are left, at once and in memory; only such steps may follow one

A step is pure: no randomness but from a seed in its configuration, no order that depends on threads, nothing but its arguments. The
function of a batch step gets the rows; then, where it has settings or loads something, that; then the frame of the survey that it `uses`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from pydantic import BaseModel

if TYPE_CHECKING:
    from filters.dedup.dedup_index import Seen
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
    """What is known before a row is read.

    store: where earlier runs, trees and clusters are.
    config: FunnelConfig of the run, which is made of the steps' own sections; `coverage.keep` is a count, also if a ratio was configured.
    rows: how many rows the run reads.
    key: what names the run to others: the files' contents and the settings that decide rows.
    """

    store: Store
    config: Any
    rows: int
    key: Mapping[str, Any]


@dataclass(frozen=True)
class Context:
    """What a survey or a whole step may look at while the run is on.

    run: id of the run.
    setup: as above.
    files: of earlier runs and this one, as rows are numbered.
    seen: the index of earlier runs.
    verdicts: of the steps before.
    work: the run's folder of intermediate frames.
    surveys: frames of the surveys before, by step.
    executor: what runs pieces of work.
    progress: is told how much is done.
    """

    run: str
    setup: Setup
    files: Sequence[Source]
    seen: Seen
    verdicts: Verdicts
    work: Workspace
    executor: Executor
    progress: Progress
    surveys: dict[str, pl.DataFrame] = field(default_factory=dict)

    def each(self, label: str, work: Callable[..., object], *items: Sequence[Any], executor: Executor | None = None) -> None:
        """Has every item worked on, wherever the executor likes (the run's own by default)."""
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
    needs: columns that it reads; a step before it must have added each.
    adds: columns that it adds, or writes anew.
    reasons: reasons that it may give, or patterns of them (`model_*`).
    config: model of its section in FunnelConfig.
    load: makes `given` before a row is read (a taxonomy, held-out questions); by default it is the section of the configuration.
    made_by: given -> what else decides the step's verdicts, beside rows, configuration and code; part of the run's id.
    parts: given -> parts of its own, written before a row is read and committed with the run's.
    uses: name of a survey before it, whose frame its function gets; None where that survey is off.
    is_on: whether a configuration has the step at all.
    is_counted: whether it is a row of the funnel; a step that only prepares columns for others is not.
    """

    name: str
    needs: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    config: type[BaseModel] | None = None
    load: Callable[[Setup], Any] | None = None
    made_by: Callable[[Any], Sequence[str]] = _nothing
    parts: Callable[[Any], Sequence[Part]] = _nothing
    uses: str | None = None
    is_on: Callable[[Any], bool] = _always
    is_counted: bool = True

    def may_say(self, reason: str) -> bool:
        return any(fnmatchcase(reason, pattern) for pattern in self.reasons)

    def held_to_its_reasons(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows as they are. Raises AssertionError: they have a reason that the step does not declare."""
        unknown = [reason for reason in rows["reason"].drop_nulls().unique().to_list() if not self.may_say(reason)]
        assert not unknown, f"step {self.name} gave the reason {unknown[0]}, which it does not declare"
        return rows

    def arguments(self, given: Any, surveys: Mapping[str, pl.DataFrame]) -> tuple[Any, ...]:
        """What the function gets after the rows."""
        given_argument = (given,) if self.config is not None or self.load is not None else ()
        return (*given_argument, *((surveys.get(self.uses),) if self.uses is not None else ()))


@dataclass(frozen=True, kw_only=True)
class BatchStep(Step):
    """function: rows of a batch -> the same rows. explains: columns of its own that dropped rows keep, for the table `frames`."""

    function: Callable[..., pl.DataFrame]
    explains: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KeyStep(Step):
    """keys: rows of a batch -> row, key_high, key_low of those that have a key. earlier: the same of rows of earlier runs, in pieces.
    function: row, first (row with the key), count (of rows with it) -> row and the verdict."""

    keys: Callable[[pl.DataFrame], pl.DataFrame]
    earlier: Callable[[Seen], Iterator[pl.DataFrame]]
    function: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, kw_only=True)
class BandStep(Step):
    """A join by locality-sensitive hashing. Arrays lie in the workspace as `<step>-<what>-<batch or band>`.

    sketch: rows of a batch, given -> arrays to keep, by name.
    prepare: batches, work, seen, given -> nothing; leaves what every band needs of all batches and of earlier runs.
    bands: given -> how many bands there are.
    join: band, batches, work -> nothing; leaves the pairs of the band.
    decide: batches, work, seen, given -> row, keeper, similarity of every row compared; one pass.
    function: what was decided -> row and the verdict of the rows dropped.
    """

    sketch: Callable[[pl.DataFrame, Any], Mapping[str, np.ndarray[Any, Any]]]
    prepare: Callable[[Sequence[Batch], Workspace, Seen, Any], None]
    bands: Callable[[Any], int]
    join: Callable[..., None]
    decide: Callable[[Sequence[Batch], Workspace, Seen, Any], pl.DataFrame]
    function: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, kw_only=True)
class SurveyStep(Step):
    """function: rows in pieces, given, what was opened, context -> a frame, kept in the workspace. open: given, store, whether the frame is
    there -> what is opened before a row is read and closed after the survey (a language model). note: what came of it, in words."""

    function: Callable[[Iterator[pl.DataFrame], Any, Any, Context], pl.DataFrame]
    open: Callable[[Any, Store, bool], AbstractContextManager[Any]] | None = None
    note: Callable[[Any, pl.DataFrame], str] | None = None


@dataclass(frozen=True, kw_only=True)
class WholeStep(Step):
    """function: all rows, given, context -> the same rows. tables: the same with verdicts, given, context -> rows of tables of the store;
    `writes` names these tables."""

    function: Callable[[pl.DataFrame, Any, Context], pl.DataFrame]
    writes: tuple[str, ...] = ()
    tables: Callable[[pl.DataFrame, Any, Context], Mapping[str, pl.DataFrame]] | None = None


def apply(step: BatchStep | WholeStep, rows: pl.DataFrame, arguments: Sequence[Any]) -> pl.DataFrame:
    """The rows with the columns that the step adds, and its verdict.

    Raises:
        AssertionError: it left out rows or a declared column, or gave a reason that it does not declare.
    """
    out = step.function(rows, *arguments)
    assert out["row"].equals(rows["row"]), f"step {step.name} did not return the rows that it was given, in their order"
    missing = [name for name in (*step.adds, "reason") if name not in out.columns]
    assert not missing, f"step {step.name} did not add {', '.join(missing)}"
    return rows.with_columns(step.held_to_its_reasons(out).select(*step.adds, *(name for name in VERDICT if name in out.columns)))
