"""The funnel: raw queries in, a small set of executable tasks out, a verdict on every row.

`curate` runs the steps of `pipeline.py` over query files (`runner.py`) and commits the results: every row and its verdict, the frames, the
tasks, the columns that kept rows have in their files, and a segment of the index for later runs (`dedup_index.py`). The steps decide; this
module does not.

The id of a run is a hash of the files' contents and formats, the configuration, the code of `filters` and `synth`, the names of the steps
and their `made_by` (with what people said by hand of these rows), and the earlier segments of the index. So a killed run continues, and a
finished run is not repeated.

Memory: some 30 bytes for each row read. While near duplicates are decided, also the compared texts, their candidate pairs and some 40 bytes
for each compared row. From the first whole step on, the columns that whole steps need of the remaining rows.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from filters import ingest
from filters.by_hand.run_decisions import read_decisions
from filters.code_hash import code_hash
from filters.dedup import near
from filters.dedup.dedup_index import INDEXED, DedupIndex, NothingNew, read_before, write_asked, write_band, write_seen
from filters.dedup.guards import world_terms
from filters.frames.batches import Batch, Sources, batches_of
from filters.frames.workspace import Workspace
from filters.ingest import Source, source_files
from filters.ingest.withdrawn_files import leave_out_withdrawn
from filters.kept_fields import fields_of_piece
from filters.lexicon_worlds import lexicon_worlds
from filters.pipeline import INDECISIVE, STEPS, FunnelConfig, check, not_done, section
from filters.runner import Runner
from filters.step import Context, Setup, Step, SurveyStep, WholeStep
from filters.steps.hand_verdicts import with_hand
from filters.verdicts import FIRST_OF_TEXT, OF_FRAMES, Verdicts, groups, shortfall, write_batch, write_frames
from storage.errors import BadInput
from storage.execution import Executor, Progress
from storage.parts import read_part
from storage.records import content_id
from storage.store import Part, Store, part_id
from storage.tables import TABLES

__all__ = ["FunnelConfig", "FunnelResult", "NothingNew", "curate", "new_files"]

VERSION = 2
"""Version of the parts that a run writes."""
MOST_ROWS = 2**32 - 1
"""Row numbers have 32 bits and include the rows of earlier runs."""
_WRITTEN_AT_ONCE = 64
"""Batches whose verdicts are written at a time."""


@dataclass(frozen=True, slots=True)
class FunnelResult:
    """A committed run.

    run: id of the run.
    parts: ids of its parts, without those of the index.
    task_ids: ids of the admitted tasks.
    funnel: one row a step.
    shortfall: the step that kept too few rows, if the run kept fewer than configured.
    not_compared: the earlier rows that this run was not compared with, and the reason.
    not_done: other limits of the run, and what the user can do.
    """

    run: str
    parts: tuple[str, ...]
    task_ids: tuple[str, ...]
    funnel: pl.DataFrame
    shortfall: str | None
    not_compared: str | None
    not_done: tuple[str, ...]


class NotCommitted(Exception):
    """A run that was to commit nothing is done; the next call commits what it found. notes: as of `FunnelResult.not_done`."""

    def __init__(self, notes: tuple[str, ...]) -> None:
        super().__init__("; ".join(notes))
        self.notes = notes


def curate(
    store: Store,
    sources: Sequence[str | Path],
    config: FunnelConfig,
    *,
    commits: bool = True,
    steps: Sequence[Step] = STEPS,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> FunnelResult:
    """Runs the funnel over the files and commits the results.

    Args:
        commits: False to run all steps and commit nothing.
        steps: the funnel's own by default.
        progress: called with the step, the number of its finished pieces, and their total.
        executor: runs pieces; by default, one thread of this process for each core.

    Raises:
        NothingNew: `only_new`, and an earlier run has read every file.
        NotCommitted: not `commits`, and this run's results are not in the store.
        BadInput: see `ingest.inspect`; a step lacks a column (`check`); every file was withdrawn from the store. Nothing was written.
        HeadraceError: the disk is full, another process holds the store, a language model does not answer or its budget is spent. The next
            call continues from there.
    """
    started = time.perf_counter()
    used = check(steps, config)
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        run = executor or threads
        named = source_files.locate(sources)
        if config.only_new:
            named = new_files(store, named, run)
        read, left_out = leave_out_withdrawn(store, ingest.inspect(named, config.ingest, run))
        result = _Run(store, read, config, used, progress or (lambda *_: None), run, started).result(commits)
        return replace(result, not_done=(*left_out, *result.not_done))


def new_files(store: Store, locations: Sequence[str], executor: Executor) -> list[str]:
    """The files that no run has read into the store, by content hash.

    Raises NothingNew: there is none.
    """
    read_files = read_before(store)
    new = [
        name
        for name, content_hash in zip(locations, executor.map(ingest.content_hash, locations), strict=True)
        if content_hash not in read_files
    ]
    if not new:
        raise NothingNew(f"nothing new: every file ({len(locations)} in all) was read into {store.root} before")
    return new


class _Run:
    """One run. `result` runs the steps and writes all parts, unless the parts exist."""

    def __init__(
        self,
        store: Store,
        source_files: Sequence[Source],
        config: FunnelConfig,
        steps: Sequence[Step],
        progress: Progress,
        executor: Executor,
        started: float,
    ) -> None:
        self.store, self.started = store, started
        count = sum(file.rows for file in source_files)
        self.recipe = near.recipe(config.near, world_terms(lexicon_worlds()))
        self.index = index = DedupIndex(store, self.recipe, source_files)
        if index.rows + count > MOST_ROWS:
            before = f"{index.rows:,} rows were read into {store.root} before"
            raise BadInput(f"{before}, and {count:,} more are more than one index can number ({MOST_ROWS:,}); begin another store")
        self.files = [replace(file, first_row=file.first_row + index.rows) for file in source_files]
        self.pieces = batches_of(self.files)
        self.batches = [batch for _, batches in self.pieces for batch in batches]
        read = [(file.content_hash, file.format) for file in source_files]
        settings = config.model_dump(mode="json", exclude=INDECISIVE)
        config = config.model_copy(update={"coverage": config.coverage.model_copy(update={"keep": config.target_tasks(count)})})
        hand = read_decisions(store, self.files)
        setup = Setup(store, config, count, {"read": read, "config": settings}, hand)
        self.steps = steps = with_hand(steps, hand, self.files)
        self.inputs = {step.name: _step_input(step, setup) for step in steps}
        self.config = config
        indexed_steps = steps[: 1 + max(place for place, step in enumerate(steps) if step.name in INDEXED)]
        segments, code = [segment.id for segment in index.segments], code_hash("filters", "synth")
        self.id = content_id("funnel", read, settings, code, self._made_by(steps), segments)
        sections = {match[0] for step in indexed_steps if step.config is not None and (match := section(config, step.config))}
        decided_by = config.model_dump(mode="json", include=sections, exclude=INDECISIVE)
        self.segment = content_id("segment", read, decided_by, self.recipe, code, self._made_by(indexed_steps), segments)
        self.is_indexed = store.query("SELECT 1 FROM segments WHERE segment = ?", [self.segment]).height > 0
        self.work = Workspace(store.lake / "_work" / self.id)
        self.verdicts = Verdicts(count, index.rows)
        self.context = Context(self.id, setup, [*index.sources, *self.files], index, self.verdicts, self.work, executor, progress)
        self.notes: list[str] = []

    def _made_by(self, steps: Sequence[Step]) -> list[list[str]]:
        return [[step.name, *step.made_by(self.inputs[step.name])] for step in steps]

    def result(self, commits: bool) -> FunnelResult:
        parts_of_steps = [part for step in self.steps for part in step.parts(self.inputs[step.name])]
        names = self._part_names()
        of_index = dict.fromkeys(("segments", "seen", "asked", "bands"), self.segment)
        parts = {name: part_id(table, [of_index.get(table, self.id), name], {}, VERSION) for name, table in names.items()}
        written = [self.store.find(part) for part in parts.values()]
        if not all(written):
            runner = Runner(self.steps, self.inputs, self.context, self.pieces)
            runner.run()
            self.notes = runner.notes
            if not commits:
                raise NotCommitted(tuple(self.notes))
            written = [*self._write_rows(parts, runner), *self._write_segment(parts, runner), *self._write_results(parts, runner)]
        self.store.commit([*parts_of_steps, *(part for part in written if part)])
        self.work.clear()
        funnel = self.store.query("SELECT * EXCLUDE (part_id) FROM funnel WHERE run = ? ORDER BY position", [self.id])
        tasks = [read_part(self.store.root, part.path, ["task_id"])["task_id"].sort() for part in written if part and part.table == "tasks"]
        task_ids = tuple(tasks[0]) if tasks else ()
        notes = (*not_done(funnel, len(task_ids), self.config, self.inputs), *self.notes)
        ids = tuple(part for name, part in parts.items() if names[name] not in of_index)
        return FunnelResult(self.id, ids, task_ids, funnel, shortfall(funnel, self.config.coverage.keep), self.index.not_compared, notes)

    def _of(self, batch: Batch) -> slice:
        """The place of a batch's rows among those of the run."""
        start = batch.first_row - self.index.rows
        return slice(start, start + batch.rows)

    # ---- writing parts ----------------------------------------------------------------------------------------------------

    def _part_names(self) -> dict[str, str]:
        """Name of each part -> its table."""
        names = {f"{table}-{batch.name}": table for table in ("queries", "verdicts") for batch in self.batches}
        names |= {f"frames-{number}": "frames" for number in range(len(groups(self.batches)))}
        written = [step.writes for step in self.steps if isinstance(step, SurveyStep) and step.writes]
        written += [table for step in self.steps if isinstance(step, WholeStep) for table in step.writes]
        names |= {table: table for table in ("funnel", "query_fields", *written)}
        if not self.is_indexed:
            names |= {"segments": "segments"} | {f"{table}-{batch.name}": table for table in ("seen", "asked") for batch in self.batches}
            names |= {f"bands-{band}": "bands" for band in range(self.config.near.bands)}
        return names

    def _write_rows(self, parts: Mapping[str, str], runner: Runner) -> list[Part]:
        """Writes the parts of queries and verdicts, one each a batch."""
        about: Any = {"store": self.store, "work": self.work, "read": runner.first_pass, "run": self.id, "files": self.context.files}
        counts, _ = self.verdicts.count_represented(FIRST_OF_TEXT)
        counts[~self.verdicts.alive_after(FIRST_OF_TEXT)] = 0
        out: list[Part] = []
        for start in range(0, len(self.batches), _WRITTEN_AT_ONCE):
            batches = self.batches[start : start + _WRITTEN_AT_ONCE]
            occurrences = [counts[self._of(batch)] for batch in batches]
            verdicts = [self.verdicts.frame(batch.numbers) for batch in batches]
            work = partial(write_batch, parts=parts, **about)
            for done, written in enumerate(self.context.executor.map(work, batches, occurrences, verdicts), start + 1):
                out += written
                self.context.progress("store", done, len(self.batches))
        return out

    def _write_segment(self, parts: Mapping[str, str], runner: Runner) -> list[Part]:
        """Writes the parts of segments, seen, asked and bands, for later runs. Nothing if an earlier run with other settings wrote them."""
        if self.is_indexed:
            return []
        exact, near_step, equal = INDEXED
        is_distinct, has_own_frame = self.verdicts.alive_after(exact), self.verdicts.alive_after(equal)
        compared = self.work.read(near_step, ["row", "keeper"])
        numbers, masks, frames, keepers = compared["row"].to_numpy(), [], [], []
        for batch in self.batches:
            masks.append(is_distinct[self._of(batch)])
            frames.append(has_own_frame[self._of(batch)])
            first, last = np.searchsorted(numbers, [batch.first_row, batch.first_row + batch.rows])
            keepers.append(compared[first:last])
        row = {"segment": self.segment, "recipe": self.recipe, "position": self.index.known, "first_row": self.index.rows}
        files_json = json.dumps([(file.content_hash, file.name, file.rows) for file in self.files])
        step_parts = {
            **{table: [parts[f"{table}-{batch.name}"] for batch in self.batches] for table in ("seen", "asked")},
            "bands": [parts[f"bands-{band}"] for band in range(self.config.near.bands)],
        }
        out = [
            self.store.write("segments", parts["segments"], pl.DataFrame([{**row, "files": files_json, "parts": json.dumps(step_parts)}]))
        ]
        about: Any = {"store": self.store, "work": self.work, "segment": self.segment, "first_row": self.index.rows, "parts": parts}
        grounded, run = runner.origin["frame_id"], self.context.executor
        texts, ids = {runner.first_pass: ["norm", "key_high", "key_low"]}, {grounded: ["frame_id"]}
        out += run.map(partial(write_seen, texts=texts, frames=ids, **about), self.batches, masks, frames, keepers)
        out += run.map(partial(write_asked, frames=runner.origin["combination"], **about), self.batches)
        out += run.map(partial(write_band, **about), range(self.config.near.bands))
        return out

    def _write_results(self, parts: Mapping[str, str], runner: Runner) -> list[Part]:
        """Writes the parts of the funnel, of the distinct frames with their outcome, and of the tables that steps fill."""
        compared = INDEXED[-1]
        has_own_frame = self.verdicts.alive_after(compared)
        early = {step.name for step in self.steps[: [step.name for step in self.steps].index(compared)]}
        columns = {column: name for column, name in runner.origin.items() if column in OF_FRAMES}
        sources: list[Sources] = [_by_pass({column: name for column, name in columns.items() if name in early})]
        late = _by_pass({column: name for column, name in columns.items() if name not in early})
        sources += [{name: late[name]} for name in late]
        pooled = runner.of_frames()
        about: Any = {"store": self.store, "work": self.work, "sources": sources, "run": self.id, "files": self.context.files}
        out: list[Part] = []
        for number, group in enumerate(groups(self.batches)):
            rows = slice(group[0].first_row, group[-1].first_row + group[-1].rows)
            has_frame = has_own_frame[rows.start - self.index.rows : rows.stop - self.index.rows]
            verdicts = self.verdicts.frame(rows).drop("duplicate_of", "similarity")
            out.append(write_frames(group, verdicts, has_frame, pooled, part=parts[f"frames-{number}"], **about))
        funnel = self.verdicts.funnel(time.perf_counter() - self.started).with_columns(run=pl.lit(self.id))
        for table, frame in {"funnel": funnel, "query_fields": self._kept_fields(runner), **runner.tables}.items():
            out.append(self.store.write(table, parts[table], frame))
        return out

    def _kept_fields(self, runner: Runner) -> pl.DataFrame:
        """The columns of the user's files, of the kept rows."""
        empty = pl.DataFrame(schema=TABLES["query_fields"].columns)
        if not self.config.ingest.keep_columns:
            return empty
        kept = (np.flatnonzero(self.verdicts.is_alive) + self.index.rows).astype(np.uint32)
        of_piece = partial(fields_of_piece, kept=kept, work=self.work, read=runner.first_pass, run=self.id, files=self.context.files)
        return pl.concat([empty, *self.context.executor.map(of_piece, self.pieces)], how="diagonal")


def _step_input(step: Step, setup: Setup) -> Any:
    """The inputs of a step: what it loads, or its section of the configuration."""
    if step.load is not None:
        return step.load(setup)
    step_section = section(setup.config, step.config) if step.config is not None else None
    return step_section[1] if step_section is not None else None


def _by_pass(columns: Mapping[str, str]) -> dict[str, list[str]]:
    """Pass -> its columns, from column -> pass."""
    return {name: [column for column, by in columns.items() if by == name] for name in dict.fromkeys(columns.values())}
