"""The funnel: raw queries in, a small set of executable tasks out, a verdict on every row.

Order (design of STAgent's funnel, cheap steps first): ingest, normalise, exact, rules, near, ground, equal, taxonomy, quality, difficulty,
coverage, admission. What a step is stands in `step.py`. Batches stream through the disk; the joining steps hold the columns that they
compare in memory (near duplicates: the normalised texts that are left, and some 350 bytes a row).
A run's id is a hash of the files' contents and formats, the configuration and the code of this room and the one below, so a killed run
goes on where it was, a finished one is not done again, and either gives the same rows.

It decides nothing itself, and trains on nothing: what becomes of the tasks is another room's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters import admit, coverage, difficulty, equal, exact, ground, ingest, near, quality, rules, taxonomy
from filters.batches import Batch, Steps, normalise_batch, pass_batch, query_ids, write_batch
from filters.code_hash import code_hash
from filters.coverage import CoverageConfig
from filters.guards import world_terms
from filters.ingest import IngestConfig, Source
from filters.ledger import Ledger
from filters.near import NearConfig
from filters.quality import QualityConfig
from filters.rules import RulesConfig
from filters.step import Executor, Progress
from filters.workspace import Workspace
from storage.records import content_id
from storage.rows import tasks_frame
from storage.schema import TABLES
from storage.store import Part, Store, part_id
from synth.division import DivisionConfig
from synth.encoder import encode

VERSION = 1
"""Of the parts that a run writes: what is in them is decided by the run's id."""


class FunnelConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    ingest: IngestConfig = Field(default=IngestConfig(), description="How files are read.")
    rules: RulesConfig = Field(default=RulesConfig(), description="What is no request.")
    near: NearConfig = Field(default=NearConfig(), description="What is a near duplicate.")
    quality: QualityConfig = Field(default=QualityConfig(), description="What is too poor to be kept.")
    coverage: CoverageConfig = Field(default=CoverageConfig(), description="How many tasks are wanted, and of which kind.")
    keep_one_in: int | None = Field(default=None, ge=1, description="Keep one row in so many, instead of the count `coverage.keep`.")
    divisions: DivisionConfig = Field(default=DivisionConfig(), description="How frames are divided into training, probing and evaluation.")
    ungrounded: bool = Field(
        default=False, description="Keep rows that no world can execute, in a stratum of their own, instead of dropping them."
    )


@dataclass(frozen=True, slots=True)
class FunnelResult:
    """A committed run: its id, the ids of its parts, the admitted tasks, and the funnel, a step a row."""

    run: str
    parts: tuple[str, ...]
    task_ids: tuple[str, ...]
    funnel: pl.DataFrame


def curate(
    store: Store, sources: Sequence[Path], config: FunnelConfig, *, progress: Progress | None = None, executor: Executor | None = None
) -> FunnelResult:
    """Runs the funnel over the files and commits everything that it found.

    Args:
        progress: is told the step, how many of its batches are done, and how many there are.
        executor: runs batches; threads of this process by default, as many as there are cores.

    Raises:
        BadInput: see `ingest.inspect`; nothing was written then.
        HeadraceError: the disk is full, the store is held by another process. What was done is there for the next try.
    """
    started = time.perf_counter()
    files = ingest.inspect(sources, config.ingest)
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        return _Run(store, files, config, progress, executor or threads, started).result()


class _Run:
    """One run of the funnel: its files, batches, ledger and workspace. A method a step, or a few that share a pass over the batches."""

    def __init__(
        self, store: Store, files: Sequence[Source], config: FunnelConfig, progress: Progress | None, executor: Executor, started: float
    ) -> None:
        self.store, self.files, self.config, self.progress, self.executor = store, files, config, progress, executor
        self.started, rows = started, sum(file.rows for file in files)
        self.coverage = config.coverage
        if config.keep_one_in is not None:
            self.coverage = config.coverage.model_copy(update={"keep": max(1, round(rows / config.keep_one_in))})
        read = [(file.content_hash, file.format) for file in files]
        self.id = content_id("funnel", read, config.model_dump(mode="json"), code_hash("filters", "synth"))
        self.work = Workspace(store.lake / "_work" / self.id)
        self.batches = [
            Batch(
                f"{number:02d}-{start // config.ingest.batch_rows:05d}",
                file,
                file.first_row + start,
                min(config.ingest.batch_rows, file.rows - start),
            )
            for number, file in enumerate(files)
            for start in range(0, file.rows, config.ingest.batch_rows)
        ]
        self.ledger = Ledger(rows)

    def result(self) -> FunnelResult:
        parts = {name: part_id(table, [self.id, name], {}, VERSION) for name, table in self._part_names().items()}
        found = [self.store.find(part) for part in parts.values()]
        if not all(found):
            self.read()
            self.deduplicate()
            self.sift()
            self.near()
            self.ground()
            self.equal()
            self.rate()
            self.cover()
            self.admit()
            found = [*self._write_rows(parts), *self._write_results(parts)]
        self.store.commit([part for part in found if part])
        self.work.clear()
        funnel = self.store.query("SELECT * EXCLUDE (part_id) FROM funnel WHERE run = ? ORDER BY position", [self.id])
        tasks = [
            pl.read_parquet(self.store.root / part.path, glob=False)["task_id"].sort() for part in found if part and part.table == "tasks"
        ]
        return FunnelResult(self.id, tuple(parts.values()), tuple(tasks[0]), funnel)

    # ---- the steps ------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """ingest and normalise: every row, with its normalised text, language and key, lies in the workspace."""
        started, reading_s, done = time.perf_counter(), 0.0, 0
        at_once = 2 * (os.cpu_count() or 1)
        texts = self._texts()
        for start in range(0, len(self.batches), at_once):
            group = self.batches[start : start + at_once]
            since = time.perf_counter()
            read = [next(texts) for _ in group]
            reading_s += time.perf_counter() - since
            for _ in self.executor.map(partial(normalise_batch, work=self.work), group, read):
                done += 1
                self._tell("normalise", done)
        columns = ["row", "text_bytes", "reason"]
        report = pl.concat([self.work.read(f"read-{batch.name}", columns) for batch in self.batches])
        self.ledger.text_bytes[:] = report["text_bytes"].to_numpy()
        self.ledger.record("ingest", report, reading_s)
        self.ledger.record("normalise", self._nothing_dropped(), time.perf_counter() - started - reading_s)

    def deduplicate(self) -> None:
        started = time.perf_counter()
        keys = self._living("read", ["row", "key"])
        report = self.work.once("exact", lambda: exact.step(keys).select("row", "reason", "duplicate_of", "similarity", "occurrences"))
        self.occurrences = np.zeros(self.ledger.is_alive.size, np.uint32)
        self.occurrences[report["row"].to_numpy()] = report["occurrences"].fill_null(0).to_numpy()
        self.ledger.record("exact", report, time.perf_counter() - started)

    def sift(self) -> None:
        """rules."""
        self._through("rules", {"rules": partial(rules.step, config=self.config.rules)}, ["row", "norm", "language"])

    def near(self) -> None:
        started = time.perf_counter()
        self._tell("near duplicates", 0, 1)

        def compared() -> pl.DataFrame:
            rows = self._living("rules", ["row", "norm"])
            return near.step(rows, self.config.near, world_terms(), executor=self.executor).drop("norm")

        report = self.work.once("near", compared)
        dropped = report.filter(pl.col("duplicate_of").is_not_null())
        self.askers = self.occurrences.astype(np.int64)
        np.add.at(self.askers, dropped["duplicate_of"].to_numpy(), self.occurrences[dropped["row"].to_numpy()])
        self.ledger.record("near", report, time.perf_counter() - started)
        self._tell("near duplicates", 1, 1)

    def ground(self) -> None:
        self._through("grounded", {"ground": partial(ground.step, ungrounded=self.config.ungrounded)}, None, source="rules")

    def equal(self) -> None:
        started = time.perf_counter()
        self.ledger.record("equal", equal.step(self._living("grounded", ["row", "frame_id"])), time.perf_counter() - started)

    def rate(self) -> None:
        """taxonomy, quality and difficulty."""
        steps: Steps = {
            "taxonomy": taxonomy.step,
            "quality": partial(quality.step, config=self.config.quality),
            "difficulty": difficulty.step,
        }
        self._through("rated", steps, None, source="grounded")

    def cover(self) -> None:
        started = time.perf_counter()
        rows = self._living("rated")
        executable = rows.filter(pl.col("frame_id").is_not_null()).join(self._asked(), on="combination", how="left", maintain_order="left")
        covered = self.work.once("covered", lambda: coverage.step(executable, self.coverage, encode))
        self.frames = pl.concat([covered, rows.filter(pl.col("frame_id").is_null())], how="diagonal").sort("row")
        self.ledger.record("coverage", self.frames, time.perf_counter() - started)

    def _asked(self) -> pl.DataFrame:
        """How many rows of the log ask in each combination (combination, asked), those that were dropped as duplicates (exact, near, equal)
        included."""
        grounded = pl.concat([self.work.read(f"grounded-{batch.name}", ["row", "combination"]) for batch in self.batches]).drop_nulls()
        asked = grounded.with_columns(asked=pl.Series(self.askers[grounded["row"].to_numpy()]))
        return asked.group_by("combination").agg(pl.col("asked").sum())

    def admit(self) -> None:
        """Fills the quotas from the shortlist; rows without a frame stay as they are, in a stratum of their own."""
        started = time.perf_counter()
        listed = self.ledger.living(self.frames)
        texts = self._living("read", ["row", "text"])
        shortlist = listed.filter(pl.col("frame_id").is_not_null()).join(texts, on="row", how="left", maintain_order="left")
        ids = query_ids(shortlist["row"], self.files).to_list()
        admission = admit.admit(shortlist, ids, self.coverage, self.config.divisions, progress=self.progress)
        self.tasks = [admission.tasks[row] for row in sorted(admission.tasks)]
        reasons = {row: admission.refused.get(row, "not_needed") for row in shortlist["row"] if row not in admission.tasks}
        self.frames = self.frames.with_columns(admission=pl.col("row").replace_strict(reasons, default=None, return_dtype=pl.String))
        report = self.ledger.living(self.frames).select("row", reason="admission")
        self.ledger.record("admission", report, time.perf_counter() - started)

    # ---- what they share --------------------------------------------------------------------------------------------------

    def _part_names(self) -> dict[str, str]:
        """Name of each part -> its table."""
        names = {f"{table}-{batch.name}": table for table in ("queries", "verdicts") for batch in self.batches}
        return names | {"funnel": "funnel", "frames": "frames", "tasks": "tasks"}

    def _texts(self) -> Iterator[pl.Series | None]:
        """The texts of each batch in turn; None where it was read before. A file of which all was read is not opened again."""
        for file in self.files:
            batches = [batch for batch in self.batches if batch.source is file]
            is_read = [self.work.has(f"read-{batch.name}") for batch in batches]
            texts = iter([None] * len(batches)) if all(is_read) else ingest.batches(file, self.config.ingest)
            for done, text in zip(is_read, texts, strict=True):
                yield None if done else text

    def _nothing_dropped(self) -> pl.DataFrame:
        rows = np.flatnonzero(self.ledger.is_alive).astype(np.uint32)
        return pl.DataFrame({"row": rows}).with_columns(reason=pl.lit(None, pl.String))

    def _living(self, pass_name: str, columns: list[str] | None = None) -> pl.DataFrame:
        """These columns (row among them; all by default) of all living rows, ascending by row."""
        return pl.concat([self.ledger.living(self.work.read(f"{pass_name}-{batch.name}", columns)) for batch in self.batches])

    def _through(self, pass_name: str, steps: Steps, columns: list[str] | None, source: str = "read") -> None:
        """Sends all living rows through batch steps; what they leave lies in the workspace as `<pass name>-<batch>`."""
        started = time.perf_counter()
        masks = [self.ledger.is_alive[batch.numbers] for batch in self.batches]
        work = partial(pass_batch, work=self.work, pass_name=pass_name, source=source, columns=columns, steps=steps)
        spent = dict.fromkeys(steps, 0.0)
        for done, seconds in enumerate(self.executor.map(work, self.batches, masks), 1):
            spent = {name: spent[name] + seconds.get(name, 0.0) for name in steps}
            self._tell(pass_name, done)
        wall_s, busy_s = time.perf_counter() - started, sum(spent.values())
        dropped = pl.concat([self.work.read(f"{pass_name}-{batch.name}-dropped") for batch in self.batches])
        for name in steps:
            report = (
                self._nothing_dropped()
                .drop("reason")
                .join(dropped.filter(step=name).drop("step"), on="row", how="left", maintain_order="left")
            )
            self.ledger.record(name, report, wall_s * spent[name] / busy_s if busy_s else 0.0)

    def _tell(self, label: str, done: int, total: int | None = None) -> None:
        if self.progress:
            self.progress(label, done, len(self.batches) if total is None else total)

    # ---- what is stored ---------------------------------------------------------------------------------------------------

    def _write_rows(self, parts: Mapping[str, str]) -> list[Part]:
        """The parts of queries and verdicts, a batch each."""
        verdicts = self.ledger.verdicts()
        work = partial(write_batch, store=self.store, work=self.work, run=self.id, files=self.files, parts=parts)
        occurrences = [self.occurrences[batch.numbers] for batch in self.batches]
        told = [verdicts[batch.numbers] for batch in self.batches]
        out: list[Part] = []
        for done, written in enumerate(self.executor.map(work, self.batches, occurrences, told), 1):
            out += written
            self._tell("store", done)
        return out

    def _write_results(self, parts: Mapping[str, str]) -> list[Part]:
        """The parts of the funnel, of every distinct frame with what became of it, and of the admitted tasks."""
        status = (
            pl.when(pl.col("frame_id").is_null()).then(pl.lit("ungrounded"))
            .when(pl.col("reason").is_not_null()).then("reason")
            .when(pl.col("admission").is_null()).then(pl.lit("admitted"))
            .when(pl.col("admission") == "not_needed").then(pl.lit("not_needed"))
            .otherwise(pl.lit("refused"))
        )  # fmt: skip
        frames = self.frames.with_columns(
            run=pl.lit(self.id),
            query_id=query_ids(self.frames["row"], self.files),
            status=status,
            reason=pl.when(status == "refused").then("admission").when(status == "ungrounded").then("ungrounded"),
        ).select(list(TABLES["frames"].columns))
        return [
            self.store.write(
                "funnel", parts["funnel"], self.ledger.funnel(time.perf_counter() - self.started).with_columns(run=pl.lit(self.id))
            ),
            self.store.write("frames", parts["frames"], frames),
            self.store.write("tasks", parts["tasks"], tasks_frame(self.tasks)),
        ]
