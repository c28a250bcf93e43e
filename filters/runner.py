"""Runs a list of steps over batches of rows; it knows no step by name.

The runner sends pieces (batches, ranges of keys, bands) to an executor, carries columns from step to step, and counts rows in and out.
Consecutive batch steps share one pass over the batches. From the first whole step on, rows are in memory. Every piece writes its frames
into the run's folder; a restarted run skips the pieces whose frames exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Any

import polars as pl

from filters.frames.batches import Batch, Sources, read_alive
from filters.frames.hash_join import ROWS_A_PARTITION, write_keys
from filters.frames.numba_types import Mask
from filters.ingest import Piece
from filters.run_pieces import Calls, join_keys, key_batch, pass_batch, read_batches, sketch_batch
from filters.step import BandStep, BatchStep, Context, KeyStep, Pieces, Step, SurveyStep, WholeStep, alive, apply
from filters.verdicts import OF_FRAMES
from storage.execution import subtask


class Runner:
    """`run` sends all rows through the steps.

    where: column on disk -> the last pass that wrote it, which has the fewest rows.
    origin: column on disk -> the pass that added it, for all rows of that pass.
    rows: from the first whole step on, the remaining rows with the columns that whole steps have needed so far.
    tables: rows of the store tables that steps fill.
    notes: notes of surveys, for the user.
    first_pass: name of the pass that read the files.
    """

    def __init__(
        self, steps: Sequence[Step], inputs: Mapping[str, Any], context: Context, pieces: Sequence[tuple[Piece, Sequence[Batch]]]
    ) -> None:
        self.steps, self.inputs, self.context, self.pieces = steps, inputs, context, pieces
        self.work, self.verdicts, self.index = context.work, context.verdicts, context.index
        self.batches = [batch for _, batches in pieces for batch in batches]
        self.where: dict[str, str] = {}
        self.origin: dict[str, str] = {}
        self.first_pass = self.last_pass = ""
        self.rows: pl.DataFrame | None = None
        self.tables: dict[str, pl.DataFrame] = {}
        self.notes: list[str] = []
        self._dropped: list[pl.DataFrame] = []
        self._of_frames: set[str] = set()
        self._uncounted_s = 0.0

    def run(self) -> None:
        """Runs the steps in order. What a survey needs (a language model) is opened before a row is read, and closed after the survey."""
        with ExitStack() as every:
            opened = {step.name: every.enter_context(ExitStack()) for step in self.steps if isinstance(step, SurveyStep)}
            engines = {
                step.name: opened[step.name].enter_context(
                    step.open(self.inputs[step.name], self.context.setup.store, self.work.has(step.name))
                )
                for step in self.steps
                if isinstance(step, SurveyStep) and step.open is not None
            }
            for steps in _passes(self.steps):
                names = ", ".join(step.name for step in steps)
                subtask(f"step{'s' * (len(steps) > 1)} {names}", partial(self._run_steps, steps, opened, engines))

    def _run_steps(self, steps: Sequence[Step], opened: Mapping[str, ExitStack], engines: Mapping[str, Any]) -> None:
        """Runs the steps of one pass over the batches, or the one step that is none."""
        match steps[0]:
            case BatchStep():
                self._pass([step for step in steps if isinstance(step, BatchStep)])
            case KeyStep() as step:
                self._keys(step)
            case BandStep() as step:
                self._bands(step)
            case SurveyStep() as step:
                with opened[step.name]:
                    self._survey(step, engines.get(step.name))
            case WholeStep() as step:
                self._whole(step)

    def of_frames(self) -> pl.DataFrame:
        """row, and the columns of table `frames` that whole steps added, of all rows that such a step got."""
        assert self.rows is not None
        return pl.concat([*self._dropped, self.rows.select("row", *sorted(self._of_frames))], how="diagonal")

    # ---- the forms of a step ----------------------------------------------------------------------------------------------

    def _pass(self, steps: Sequence[BatchStep]) -> None:
        """Runs consecutive batch steps in one pass over the batches; the first pass reads the files."""
        started, name = time.perf_counter(), steps[-1].name
        calls: Calls = [(step, step.arguments(self.inputs[step.name], self.context.surveys)) for step in steps]
        adds = [column for step in steps for column in step.adds]
        if not self.first_pass:
            seconds = self.context.executor.map(partial(read_batches, work=self.work, pass_name=name, calls=calls), self.pieces)
            spent, columns_kept = self._add_seconds(steps, seconds, len(self.pieces)), adds
            self.first_pass = name
            self._count_bytes()
        else:
            reads = _read_by(steps)
            later = {column for step in _after(steps[-1], self.steps) if not isinstance(step, WholeStep) for column in step.needs}
            columns_kept = [*dict.fromkeys([*adds, *(column for column in reads if column in later)])]
            work = partial(pass_batch, work=self.work, pass_name=name, sources=self._sources(reads), calls=calls, keeps=columns_kept)
            spent = self._add_seconds(steps, self.context.executor.map(work, self.batches, self._masks()), len(self.batches))
        self.where |= dict.fromkeys(columns_kept, name)
        self.origin |= dict.fromkeys(adds, name)
        self.last_pass = name
        wall_s, busy_s = time.perf_counter() - started, sum(spent.values())
        for step in steps:
            share = spent[step.name] / busy_s if busy_s else 0.0
            self._count(step, self._dropped_rows(name, step), partial(float, wall_s * share))

    def _dropped_rows(self, name: str, step: BatchStep) -> Iterator[pl.DataFrame]:
        """row, reason of the rows that a step has dropped in a pass, batch by batch."""
        ending = "" if name == self.first_pass else "-dropped"
        for batch in self.batches:
            rows = self.work.read(f"{name}-{batch.name}{ending}", ["row", "reason", "dropped_by"])
            yield rows.filter(dropped_by=step.name).select("row", "reason")

    def _count_bytes(self) -> None:
        for batch in self.batches:
            rows = self.work.read(f"{self.first_pass}-{batch.name}", ["row", "text_bytes"])
            self.verdicts.text_bytes[rows["row"].to_numpy() - self.index.rows] = rows["text_bytes"].to_numpy()

    def _add_seconds(self, steps: Sequence[Step], seconds: Iterator[dict[str, float]], pieces: int) -> dict[str, float]:
        """Reports progress for every finished piece, and adds up the seconds of each step."""
        spent = dict.fromkeys((step.name for step in steps), 0.0)
        for done, step_seconds in enumerate(seconds, 1):
            spent = {name: total + step_seconds.get(name, 0.0) for name, total in spent.items()}
            self.context.progress(steps[-1].name, done, pieces)
        return spent

    def _keys(self, step: KeyStep) -> None:
        """Writes keys by batch, then joins them by range of keys, keys of earlier runs included."""
        started = time.perf_counter()
        work = partial(key_batch, work=self.work, sources=self._sources(step.needs), step=step)
        self.context.each(f"{step.name} keys", work, self.batches, self._masks())
        names = [f"{step.name}-keys-{batch.name}" for batch in self.batches]
        for number, rows in enumerate(step.earlier(self.index)):
            names.append(f"{step.name}-before-{number}")
            if not self.work.has_array(names[-1]):
                write_keys(self.work, names[-1], rows)
        ranges = range(1 + (self.index.rows + self.verdicts.is_alive.size) // ROWS_A_PARTITION)
        join = partial(join_keys, partitions=len(ranges), names=names, work=self.work, step=step.name)
        self.context.each(f"{step.name} ranges", join, ranges)
        joined = (self.work.read(f"{step.name}-{number}").filter(pl.col("row") >= self.index.rows) for number in ranges)
        self._count(step, (step.check_reasons(step.function(rows).drop_nulls("reason")) for rows in joined), _since(started))

    def _bands(self, step: BandStep) -> None:
        """Writes sketches by batch and pairs by band, and decides in one pass over all pairs."""
        started, inputs, batches = time.perf_counter(), self.inputs[step.name], self.batches
        if not self.work.has(step.name):
            work = partial(sketch_batch, work=self.work, sources=self._sources(step.needs), step=step, inputs=inputs)
            self.context.each(f"{step.name} sketches", work, batches, self._masks())
            step.prepare(batches, self.work, self.index, inputs)
            self.context.each(f"{step.name} bands", partial(step.join, batches=batches, work=self.work), range(step.bands(inputs)))
        self.context.progress(f"{step.name} duplicates", 0, 1)
        decided = self.work.once(step.name, lambda: step.decide(batches, self.work, self.index, inputs))
        self._count(step, [step.check_reasons(step.function(decided))], _since(started))
        self.context.progress(f"{step.name} duplicates", 1, 1)

    def _survey(self, step: SurveyStep, engine: Any) -> None:
        """Writes the frame of a survey, or reads it if it exists."""
        started, inputs = time.perf_counter(), self.inputs[step.name]
        rows = Pieces(partial(self._read_alive, step.needs))
        frame = self.work.once(step.name, lambda: step.function(rows, inputs, engine, self.context))
        self.context.surveys[step.name] = frame
        self._count(step, [], _since(started))
        if step.writes:
            self.tables[step.writes] = frame.with_columns(run=pl.lit(self.context.run))
        if step.note is not None:
            self.notes.append(step.note(inputs, frame))

    def _whole(self, step: WholeStep) -> None:
        """Runs a whole step; first loads the columns that no whole step has needed so far."""
        started, inputs = time.perf_counter(), self.inputs[step.name]
        if missing := [name for name in step.needs if self.rows is None or name not in self.rows.columns]:
            new = pl.concat([*self._read_alive(missing)])
            self.rows = new if self.rows is None else pl.concat([self.rows, new.drop("row")], how="horizontal")
        assert self.rows is not None
        report = apply(step, self.rows, (inputs, self.context))
        if step.tables is not None:
            self.tables |= step.tables(report, inputs, self.context)
        dropped = report.filter(pl.col("reason").is_not_null())
        self._of_frames |= OF_FRAMES & set(step.adds)
        self._dropped.append(dropped.select("row", *sorted(self._of_frames)))
        self.rows = alive(report)
        self._count(step, [dropped], _since(started))

    # ---- helpers ----------------------------------------------------------------------------------------------------------

    def _count(self, step: Step, dropped: Iterable[pl.DataFrame], seconds: Callable[[], float]) -> None:
        """Records the verdicts of a step. The seconds of an uncounted step are added to the next step."""
        if step.is_counted:
            before_s, self._uncounted_s = self._uncounted_s, 0.0
            self.verdicts.drop(step.name, dropped, lambda: seconds() + before_s)
        else:
            assert not sum(rows.height for rows in dropped), f"step {step.name} dropped rows, but is not counted"
            self._uncounted_s += seconds()

    def _read_alive(self, columns: Iterable[str]) -> Iterator[pl.DataFrame]:
        """row and these columns of all rows that are alive, batch by batch."""
        sources = self._sources(columns)
        return (read_alive(batch, mask, self.work, sources) for batch, mask in zip(self.batches, self._masks(), strict=True))

    def _masks(self) -> list[Mask]:
        """Which rows of each batch are alive."""
        return [self.verdicts.is_alive[batch.first_row - self.index.rows :][: batch.rows] for batch in self.batches]

    def _sources(self, columns: Iterable[str]) -> Sources:
        """Pass -> the columns to read from it."""
        sources: dict[str, list[str]] = {}
        for column in columns:
            sources.setdefault(self.where[column], []).append(column)
        return sources or {self.last_pass: []}


def _since(started: float) -> Callable[[], float]:
    return lambda: time.perf_counter() - started


def _after(step: Step, steps: Sequence[Step]) -> Sequence[Step]:
    return steps[1 + steps.index(step) :]


def _read_by(steps: Sequence[BatchStep]) -> list[str]:
    """The columns that the steps of a pass read from earlier passes."""
    reads, added = dict[str, None](), set[str]()
    for step in steps:
        reads |= dict.fromkeys(column for column in step.needs if column not in added)
        added |= set(step.adds)
    return list(reads)


def _passes(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Groups consecutive batch steps; every other step is a group of its own."""
    for is_batch, group in groupby(steps, lambda step: isinstance(step, BatchStep)):
        if is_batch:
            yield list(group)
        else:
            yield from ([step] for step in group)
