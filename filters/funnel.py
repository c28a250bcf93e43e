"""The funnel: raw queries in, a small set of executable tasks out, a verdict on every row.

Order (design of STAgent's funnel, cheap steps first): ingest, normalise, exact, rules, near, taxonomy, ground, equal, quality, difficulty,
coverage, admission. What a step is stands in `step.py`. Batches stream through the disk; the joining steps hold the columns that they
compare in memory (near duplicates: the normalised texts that are left, and 170 bytes a row).
A run's id is a hash of the files' contents, the configuration and the steps' versions, so a killed run goes on where it was, a finished
one is not done again, and either gives the same rows.

It decides nothing itself, and trains on nothing: what becomes of the tasks is another room's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters import equal, exact, ingest, near, normalise, personal, rules
from filters.compiled import U32, Mask
from filters.guards import world_terms
from filters.ingest import IngestConfig, Source
from filters.ledger import Ledger
from filters.near import NearConfig
from filters.rules import RulesConfig
from filters.step import Executor, Progress, alive
from filters.workspace import Workspace
from storage.records import content_id
from storage.store import Part, Store, part_id

VERSION = 1
_VERSIONS = {module.__name__: module.VERSION for module in (ingest, normalise, personal, exact, rules, near, equal)}

Steps = Mapping[str, Callable[[pl.DataFrame], pl.DataFrame]]


class FunnelConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    ingest: IngestConfig = Field(default=IngestConfig(), description="How files are read.")
    rules: RulesConfig = Field(default=RulesConfig(), description="What is no request.")
    near: NearConfig = Field(default=NearConfig(), description="What is a near duplicate.")
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


@dataclass(frozen=True, slots=True)
class Batch:
    """Successive rows of one file. first_row counts within the run."""

    name: str
    source: Source
    first_row: int
    rows: int

    @property
    def numbers(self) -> slice:
        return slice(self.first_row, self.first_row + self.rows)


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
    files = ingest.inspect(sources, config.ingest)
    if executor is not None:
        return _Run(store, files, config, progress, executor).result()
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        return _Run(store, files, config, progress, threads).result()


class _Run:
    """One run of the funnel: its files, batches, ledger and workspace. A method a step, or a few that share a pass over the batches."""

    def __init__(self, store: Store, files: Sequence[Source], config: FunnelConfig, progress: Progress | None, executor: Executor) -> None:
        self.store, self.files, self.config, self.progress, self.executor = store, files, config, progress, executor
        self.id = content_id("funnel", [file.content_hash for file in files], config.model_dump(mode="json"), VERSION, _VERSIONS)
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
        self.ledger = Ledger(sum(file.rows for file in files))

    def result(self) -> FunnelResult:
        parts = {name: part_id(table, [self.id, name], {}, VERSION) for name, table in self._part_names().items()}
        found = [self.store.find(part) for part in parts.values()]
        if not all(found):
            self.read()
            self.deduplicate()
            self.sift()
            self.near()
            found = list(self._write_rows(parts))
        self.store.commit([part for part in found if part])
        self.work.clear()
        funnel = self.store.query("SELECT * EXCLUDE (part_id) FROM funnel WHERE run = ? ORDER BY position", [self.id])
        tasks = self.store.query("SELECT task_id FROM tasks WHERE part_id = ? ORDER BY task_id", [parts["tasks"]])["task_id"]
        return FunnelResult(self.id, tuple(parts.values()), tuple(tasks), funnel)

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
            for _ in self.executor.map(partial(_normalise_batch, work=self.work), group, read):
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
            rows = self._living("read", ["row", "norm"])
            return near.step(rows, self.config.near, world_terms(), executor=self.executor).drop("norm")

        self.ledger.record("near", self.work.once("near", compared), time.perf_counter() - started)
        self._tell("near duplicates", 1, 1)

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

    def _living(self, pass_name: str, columns: list[str]) -> pl.DataFrame:
        """These columns (row among them) of all living rows, ascending by row."""
        return pl.concat([self.ledger.living(self.work.read(f"{pass_name}-{batch.name}", columns)) for batch in self.batches])

    def _through(self, pass_name: str, steps: Steps, columns: list[str], source: str = "read") -> None:
        """Sends all living rows through batch steps; what they leave lies in the workspace as `<pass name>-<batch>`."""
        started = time.perf_counter()
        masks = [self.ledger.is_alive[batch.numbers] for batch in self.batches]
        work = partial(_pass_batch, work=self.work, pass_name=pass_name, source=source, columns=columns, steps=steps)
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
        work = partial(_write_batch, store=self.store, work=self.work, run=self.id, files=self.files, parts=parts)
        occurrences = [self.occurrences[batch.numbers] for batch in self.batches]
        told = [verdicts[batch.numbers] for batch in self.batches]
        out: list[Part] = []
        for done, written in enumerate(self.executor.map(work, self.batches, occurrences, told), 1):
            out += written
            self._tell("store", done)
        return out


def query_ids(rows: pl.Series, files: Sequence[Source]) -> pl.Series:
    """The query ids of rows of a run (UInt32, null stays null): the file's hash and the row within it."""
    firsts = np.array([file.first_row for file in files], np.int64)
    known = rows.fill_null(0).to_numpy().astype(np.int64)
    of_file = np.searchsorted(firsts, known, side="right") - 1
    hashes = pl.Series([file.content_hash[:8] for file in files]).gather(of_file)
    frame = pl.DataFrame({"hash": hashes, "row": known - firsts[of_file], "is_known": rows.is_not_null()})
    text = pl.format("q-{}-{}", "hash", pl.col("row").cast(pl.String).str.zfill(8))
    return frame.select(pl.when("is_known").then(text)).to_series()


def _normalise_batch(batch: Batch, texts: pl.Series | None, work: Workspace) -> None:
    """Writes `read-<batch>`: row, text and norm (masked), language, key, text_bytes, reason."""
    if texts is None:
        return
    numbers = np.arange(batch.first_row, batch.first_row + batch.rows, dtype=np.uint32)
    rows = normalise.step(pl.DataFrame({"row": numbers, "text": texts}))
    work.write(f"read-{batch.name}", rows.with_columns(text_bytes=pl.col("norm").str.len_bytes().fill_null(0)))


def _pass_batch(
    batch: Batch, is_alive: Mask, work: Workspace, pass_name: str, source: str, columns: list[str], steps: Steps
) -> dict[str, float]:
    """Sends a batch's living rows through steps: writes what is left, and what was dropped by which; returns each step's seconds."""
    name = f"{pass_name}-{batch.name}"
    if work.has(name):
        return {}
    rows = work.read(f"{source}-{batch.name}", columns)
    rows = rows.filter(is_alive[rows["row"].to_numpy() - batch.first_row])
    dropped, seconds = [], {}
    for step_name, step in steps.items():
        since = time.perf_counter()
        rows = step(rows)
        seconds[step_name] = time.perf_counter() - since
        dropped.append(rows.filter(pl.col("reason").is_not_null()).select("row", "reason", step=pl.lit(step_name)))
        rows = alive(rows)
    work.write(f"{name}-dropped", pl.concat(dropped))
    work.write(name, rows)
    return seconds


def _write_batch(
    batch: Batch,
    occurrences: U32,
    verdicts: pl.DataFrame,
    store: Store,
    work: Workspace,
    run: str,
    files: Sequence[Source],
    parts: Mapping[str, str],
) -> list[Part]:
    """The parts of `queries` and `verdicts` with this batch's rows."""
    ids = query_ids(verdicts["row"], files)
    counted = pl.Series(occurrences)
    queries = work.read(f"read-{batch.name}", ["row", "text", "language"]).select(
        query_id=ids,
        run=pl.lit(run),
        source=pl.lit(batch.source.path.name),
        row=pl.col("row").cast(pl.Int64) - batch.source.first_row,
        text="text",
        language="language",
        occurrences=pl.when(counted > 0).then(counted).cast(pl.Int64),
    )
    told = verdicts.drop("row").with_columns(query_id=ids, run=pl.lit(run), duplicate_of=query_ids(verdicts["duplicate_of"], files))
    return [
        store.write("queries", parts[f"queries-{batch.name}"], queries),
        store.write("verdicts", parts[f"verdicts-{batch.name}"], told),
    ]
