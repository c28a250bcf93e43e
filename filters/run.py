"""One run of the funnel: its files, batches, ledger and workspace, and the steps in their order.

A method is a step, or a few that share a pass over the batches. It decides nothing itself: what a step drops, and why, stands in the step's
own file; this one moves rows from one to the next, keeps count, and gives the work to an executor.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from filters import taxonomy, tool_match
from filters.batches import Steps, batches_of, encode_texts, pass_batch, query_ids, read_batches
from filters.code_hash import code_hash
from filters.combination_counts import Askers
from filters.dedup import join_steps, near
from filters.dedup.dedup_index import Seen
from filters.dedup.guards import world_terms
from filters.funnel_config import FunnelConfig
from filters.grounding import ground, ground_model
from filters.hash_join import ROWS_A_PARTITION, write_keys
from filters.ingest import Source
from filters.ledger import Ledger, not_done, shortfall
from filters.results import groups, write_asked, write_band, write_batch, write_frames, write_gate, write_seen
from filters.step import Executor, Progress, alive
from filters.steps import admit, contamination, coverage, difficulty, exact, quality, rules, same_frame, semantic, tool_load
from filters.taxonomy.versions import newest
from filters.workspace import Workspace
from storage.errors import BadInput
from storage.record_rows import tasks_frame
from storage.records import content_id
from storage.store import Part, Store, part_id
from synth.engines.base import Engine
from synth.engines.encoder import encoder, identity
from synth.run.failure_targeting import failures

Item = TypeVar("Item")
VERSION = 2
"""Of the parts that a run writes: what is in them is decided by the run's id."""
MOST_ROWS = 2**32 - 1
"""Rows are numbered in 32 bits, those of earlier runs included."""
_UNDECISIVE: Any = {"only_new": True, "encoder": True, "contamination": {"held_out"}, "ingest": {"strict"}}
_UNDECISIVE |= {"ground": {"max_tokens"}, "difficulty": {"max_tokens"}}
"""What decides no row, or is told by its content instead."""
_ENCODED_AT_ONCE = 2048
_WRITTEN_AT_ONCE = 64
"""Batches whose verdicts are spelt out at a time."""


@dataclass(frozen=True, slots=True)
class FunnelResult:
    """A committed run: its id, the ids of its parts (but those of the index), the admitted tasks, and the funnel, a step a row. shortfall:
    which step left too few, where fewer rows were kept than wanted. not_compared: what of earlier runs this one was not compared with, and
    why, where there is such. not_done: what else it could not do, and what would help."""

    run: str
    parts: tuple[str, ...]
    task_ids: tuple[str, ...]
    funnel: pl.DataFrame
    shortfall: str | None
    not_compared: str | None
    not_done: tuple[str, ...]


class Run:
    """`result` does it all, or finds it done."""

    def __init__(
        self, store: Store, files: Sequence[Source], config: FunnelConfig, progress: Progress | None, executor: Executor, started: float
    ) -> None:
        self.store, self.config, self.progress, self.executor = store, config, progress, executor
        self.started, rows = started, sum(file.rows for file in files)
        self.recipe = near.recipe(config.near, world_terms())
        self.seen = Seen(store, self.recipe, files)
        if self.seen.rows + rows > MOST_ROWS:
            seen = f"{self.seen.rows:,} rows were read into {store.root} before"
            raise BadInput(f"{seen}, and {rows:,} more are more than one index can number ({MOST_ROWS:,}); begin another store")
        self.files = [replace(file, first_row=file.first_row + self.seen.rows) for file in files]
        self.coverage = config.coverage.model_copy(update={"keep": config.wanted(rows)})
        self.tree = newest(store).tree
        self.reach = (
            tool_match.load(store, encoder(config.encoder)) if config.ungrounded else tool_match.Reach((), (), encoder(config.encoder))
        )
        self.held_out = contamination.load(config.contamination, encoder(config.encoder))
        read = [(file.content_hash, file.format) for file in files]
        before = [segment.id for segment in self.seen.segments]
        made_by = [code_hash("filters", "synth"), self.tree.id, self.held_out.content_hash, identity(config.encoder)]
        reader, judge = ground_model.made_by(config.ground), tool_load.made_by(config.difficulty)
        wanted = config.model_dump(mode="json", exclude=_UNDECISIVE)
        self.focus = failures(store, {"read": read, "config": wanted}) if config.coverage.focus else None
        made_by += [
            self.reach.content_hash,
            *reader,
            *judge,
            *([self.focus.id] if self.focus is not None else []),
        ]
        self.id = content_id("funnel", read, wanted, made_by, before)
        decided_by = config.model_dump(mode="json", include={"ingest", "rules", "near", "ground"}, exclude=_UNDECISIVE)
        self.segment = content_id("segment", read, decided_by, self.recipe, code_hash("filters", "synth"), before, *reader)
        self.work = Workspace(store.lake / "_work" / self.id)
        self.pieces = batches_of(self.files)
        self.batches = [batch for _, batches in self.pieces for batch in batches]
        self.ledger = Ledger(rows, self.seen.rows)
        self.notes: list[str] = []
        self.askers = Askers(rows, self.seen)
        self.is_indexed = store.query("SELECT 1 FROM segments WHERE segment = ?", [self.segment]).height > 0

    def result(self) -> FunnelResult:
        focus = [self.focus.write(self.store)] if self.focus is not None else []
        made_of = dict.fromkeys(("segments", "seen", "asked", "bands"), self.segment)
        names = self._part_names()
        parts = {name: part_id(table, [made_of.get(table, self.id), name], {}, VERSION) for name, table in names.items()}
        found = [self.store.find(part) for part in parts.values()]
        if not all(found):
            tool_load.look(self.config.difficulty, is_done=self.work.has("judged"))
            with ground_model.reader(self.config.ground, self.store, is_done=self.work.has("told")) as engine:
                self.read()
                self.deduplicate()
                self.sift()
                self.near()
                self.ground(engine)
            self.equal()
            self.rate()
            self.pool()
            self.semantic()
            self.contamination()
            self.cover()
            self.admit()
            found = [*self._write_rows(parts), *self._write_segment(parts), *self._write_results(parts)]
        self.store.commit([*focus, *(part for part in found if part)])
        self.work.clear()
        funnel = self.store.query("SELECT * EXCLUDE (part_id) FROM funnel WHERE run = ? ORDER BY position", [self.id])
        tasks = [
            pl.read_parquet(self.store.root / part.path, glob=False)["task_id"].sort() for part in found if part and part.table == "tasks"
        ]
        own = tuple(part for name, part in parts.items() if names[name] not in made_of)
        notes = not_done(funnel, len(tasks[0]), self.config.ungrounded, bool(self.reach.clusters), bool(self.config.contamination.held_out))
        return FunnelResult(
            self.id, own, tuple(tasks[0]), funnel, shortfall(funnel, self.coverage.keep), self.seen.not_compared, (*notes, *self.notes)
        )

    # ---- the steps ------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """ingest and normalise: every row, with its normalised text, language and key, lies in the workspace."""
        started, spent_s = time.perf_counter(), np.zeros(2)
        for done, seconds in enumerate(self.executor.map(partial(read_batches, work=self.work), self.pieces), 1):
            spent_s += seconds
            self._tell("normalise", done, len(self.pieces))
        wall_s = time.perf_counter() - started
        reading_s = wall_s * float(spent_s[0] / spent_s.sum()) if spent_s.any() else 0.0
        columns = ["row", "text_bytes", "reason"]
        reports = []
        for batch in self.batches:
            report = self.work.read(f"read-{batch.name}", columns)
            self.ledger.text_bytes[report["row"].to_numpy() - self.seen.rows] = report["text_bytes"].to_numpy()
            reports.append(report.select("row", "reason").drop_nulls("reason"))
        self.ledger.drop("ingest", reports, reading_s)
        self.ledger.drop("normalise", [], wall_s - reading_s)

    def deduplicate(self) -> None:
        started = time.perf_counter()
        names = [f"read-keys-{batch.name}" for batch in self.batches]

        def dropped() -> Iterator[pl.DataFrame]:
            for told in self._joined("exact", names, self.seen.keys()):
                report = exact.step(told)
                self.askers.take_exact(report)
                yield report.drop_nulls("reason").drop("occurrences")

        self.ledger.drop("exact", dropped(), lambda: time.perf_counter() - started)
        self.is_distinct = self.ledger.is_alive.copy()

    def sift(self) -> None:
        """rules."""
        self._through("rules", {"rules": partial(rules.step, config=self.config.rules)}, ["row", "norm", "language"])

    def near(self) -> None:
        """near: sketches by batch, pairs by band, and one pass over all that they propose."""
        started, config, terms = time.perf_counter(), self.config.near, world_terms()
        if not self.work.has("near"):
            self._map("near sketches", partial(join_steps.sketch_batch, work=self.work, config=config, terms=terms), self.batches)
            join_steps.kinds_of_all(self.batches, self.work, self.seen, self.seen.rows + self.ledger.is_alive.size)
            for band in range(config.bands):
                self.work.write_array(f"near-before-{band}", self.seen.firsts(band))
            self._map("near bands", partial(join_steps.join_band, batches=self.batches, work=self.work), range(config.bands))
        self._tell("near duplicates", 0, 1)
        compared = self.work.once("near", lambda: join_steps.decide_near(self.batches, self.work, self.seen, config, terms))
        is_dropped = pl.col("keeper") != pl.col("row")
        dropped = compared.filter(is_dropped).select("row", "similarity", reason=pl.lit("near_duplicate"), duplicate_of="keeper")
        self.keepers = compared.select("row", "keeper")
        self.ledger.drop("near", [dropped], time.perf_counter() - started)
        self.askers.take_near(dropped)
        self._tell("near duplicates", 1, 1)

    def ground(self, engine: Engine | None) -> None:
        """ground; where there is a model for it, parse, ask and ground."""
        config, ungrounded = self.config.ground, self.config.ungrounded
        if config.engine is None:
            self._through("grounded", {"ground": partial(ground.step, ungrounded=ungrounded)}, None, source="rules")
            return
        self._through("parsed", {"parse": partial(ground.step, ungrounded=True)}, None, source="rules")
        started = time.perf_counter()
        if engine is not None:
            parsed = (self.work.read(f"parsed-{batch.name}", ["norm", "ungrounded"]) for batch in self.batches)
            asked = ground_model.remainder(parsed, config.max_asked)
            self.work.write("told", ground_model.told(engine, asked, progress=self.progress))
        told = self.work.read("told")
        self.ledger.drop("ask", [], time.perf_counter() - started)
        self.notes.append(ground_model.note(config, told))
        self._through("grounded", {"ground": partial(ground_model.step, read_again=told, ungrounded=ungrounded)}, None, source="parsed")

    def equal(self) -> None:
        started = time.perf_counter()
        self._map("frames", partial(join_steps.keys_of_frames, work=self.work), self.batches)
        names = [f"frame-keys-{batch.name}" for batch in self.batches]
        dropped = (same_frame.step(told).drop_nulls("reason") for told in self._joined("equal", names, self.seen.frames()))
        self.ledger.drop("equal", dropped, lambda: time.perf_counter() - started)
        self.has_own_frame = self.ledger.is_alive.copy()

    def rate(self) -> None:
        """taxonomy, quality and difficulty."""
        steps: Steps = {
            "taxonomy": partial(taxonomy.step, tree=self.tree),
            "quality": partial(quality.step, config=self.config.quality),
            "difficulty": partial(difficulty.step, judged=self._judged()),
        }
        self._through("rated", steps, None, source="grounded")

    def _judged(self) -> pl.DataFrame | None:
        """What a model makes of the tool load of all that has a frame; None where there is no model for it."""
        config = self.config.difficulty
        if config.engine is None:
            return None
        if not self.work.has("judged"):
            framed = self._living("grounded", ["row", "norm", "world", "intent", "slots", "combination"]).drop_nulls("combination")
            self.work.write("judged", tool_load.judge(self.store, difficulty.rated(framed), config, progress=self.progress))
        found = self.work.read("judged")
        self.notes.append(tool_load.note(config, found))
        return found

    def pool(self) -> None:
        """pool: what is worth encoding, with its texts as written."""
        started = time.perf_counter()
        columns = ["row", "frame_id", "leaf", "language", "residue", "world", "intent", "quality", "difficulty", "combination"]
        grounded = pl.concat([self.work.read(f"grounded-{batch.name}", ["row", "combination"]) for batch in self.batches]).drop_nulls()
        asked = self.askers.by_combination(grounded)
        rows = self._living("rated", columns).join(asked, on="combination", how="left", maintain_order="left")
        by_intent = self.focus.by_intent() if self.focus is not None else {}
        urgency = {intent: standing.urgency for intent, standing in by_intent.items()}
        report = coverage.pool(rows, self.coverage, self.ledger.is_alive.size, urgency)
        self.ledger.record("pool", report, time.perf_counter() - started)
        marks = report.select("row", "asked", "tier", "peers", "extra", "leaf_rows")
        texts = self._living("read", ["row", "text"])
        rows = self._living("rated").join(marks, on="row", how="left", maintain_order="left")
        self.pooled = rows.join(texts, on="row", how="left", maintain_order="left")

    def semantic(self) -> None:
        """semantic, with the encoding that it and what comes after it need, and by it better labels for rows without a frame."""
        started = time.perf_counter()
        self._encode()
        is_strange = self.pooled["frame_id"].is_null()
        if is_strange.any():
            labelled = taxonomy.by_vectors(self.pooled, self.vectors, self.tree, encoder(self.config.encoder))
            is_unframed = pl.col("frame_id").is_null()
            peers = pl.when(is_unframed).then(pl.len().over("leaf", is_unframed).cast(pl.UInt32)).otherwise("peers")
            self.pooled = labelled.drop("leaf_confidence").with_columns(peers=peers)
        self.pooled = alive(tool_match.step(self.pooled, self.vectors, self.reach, self.config.reach))
        self.labels = self.pooled.select("row", "leaf", "ungrounded", "cluster_id", "tool_id", "nearness")
        self._narrow("semantic", semantic.step(self.pooled, self.vectors, self.config.semantic), started)

    def _encode(self) -> None:
        said = self.pooled["norm"].to_list()
        chunks = [(start, said[start : start + _ENCODED_AT_ONCE]) for start in range(0, len(said), _ENCODED_AT_ONCE)]
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads, threadpool_limits(1, "blas"):
            executor = threads if self.config.encoder.server else self.executor  # the server's key is in no other process's environment
            self._map("encode", partial(encode_texts, work=self.work, config=self.config.encoder), chunks, executor)
        vectors = [self.work.array(f"vectors-{start}") for start, _ in chunks]
        self.vectors = np.concatenate(vectors) if vectors else np.empty((0, 1), np.float32)

    def contamination(self) -> None:
        started = time.perf_counter()
        compared = self.work.once("compared", lambda: contamination.compare(self.pooled, self.vectors, self.held_out))
        report = contamination.step(self.pooled, compared, self.config.contamination)
        self.leaks, self.nearness = report.drop_nulls("held_out"), contamination.histogram(compared)
        self._narrow("contamination", report, started)

    def cover(self) -> None:
        started = time.perf_counter()
        report = coverage.shortlist(self.pooled, self.vectors, self.coverage)
        self.ranks = self.labels.join(report.select("row", "stratum_rank"), on="row", how="left", maintain_order="left")
        self._narrow("coverage", report, started)

    def _narrow(self, step: str, report: pl.DataFrame, started: float) -> None:
        """Records a step that looked at the pool, and keeps of it what the step has kept."""
        self.ledger.record(step, report, time.perf_counter() - started)
        is_kept = report["reason"].is_null()
        self.pooled, self.vectors = alive(report), self.vectors[is_kept.to_numpy()]

    def admit(self) -> None:
        """Fills the quotas from the shortlist; what room is left is for rows without a frame, which stay as they are."""
        started = time.perf_counter()
        is_framed = pl.col("frame_id").is_not_null()
        shortlist = self.pooled.filter(is_framed)
        ids = query_ids(shortlist["row"], self._all_files).to_list()
        admission = admit.admit(shortlist, ids, self.coverage, self.config.divisions, progress=self.progress)
        rated = dict(shortlist.select("row", "difficulty").iter_rows()) if self.config.difficulty.engine is not None else {}
        admitted = sorted(admission.tasks.items())
        self.tasks = [task.model_copy(update={"difficulty": rated.get(row, task.difficulty)}) for row, task in admitted]
        reasons = {row: admission.refused.get(row, "not_needed") for row in shortlist["row"] if row not in admission.tasks}
        tried = shortlist.select("row", reason=pl.col("row").replace_strict(reasons, default=None, return_dtype=pl.String))
        others = coverage.fill(self.pooled.filter(~is_framed), self.coverage.keep - len(self.tasks), self.coverage)
        report = pl.concat([tried, others.select("row", "reason")])
        self.ledger.record("admission", report, time.perf_counter() - started)

    # ---- what they share --------------------------------------------------------------------------------------------------

    def _part_names(self) -> dict[str, str]:
        """Name of each part -> its table."""
        names = {f"{table}-{batch.name}": table for table in ("queries", "verdicts") for batch in self.batches}
        names |= {f"frames-{number}": "frames" for number in range(len(groups(self.batches)))}
        names |= {table: table for table in ("funnel", "tasks", "contaminated", "nearness")}
        if not self.is_indexed:
            names |= {"segments": "segments"} | {f"{table}-{batch.name}": table for table in ("seen", "asked") for batch in self.batches}
            names |= {f"bands-{band}": "bands" for band in range(self.config.near.bands)}
        return names

    @property
    def _all_files(self) -> list[Source]:
        """The files of earlier runs and of this one, as rows are numbered."""
        return [*self.seen.sources, *self.files]

    def _joined(self, step: str, names: Sequence[str], before: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """`keyed.firsts` of this run's rows, whose keys were written under these names, a range of keys at a time. before: row, key_high,
        key_low of earlier rows, in pieces."""
        partitions = 1 + (self.seen.rows + self.ledger.is_alive.size) // ROWS_A_PARTITION
        every = list(names)
        for number, rows in enumerate(before):
            every.append(f"{step}-before-{number}")
            if not self.work.has_array(every[-1]):
                write_keys(self.work, every[-1], rows)
        self._map(
            f"{step} keys",
            partial(join_steps.join_partition, partitions=partitions, names=every, work=self.work, name=step),
            range(partitions),
        )
        for partition in range(partitions):
            yield self.work.read(f"{step}-{partition}").filter(pl.col("row") >= self.seen.rows)

    def _map(self, label: str, work: Callable[[Item], object], items: Sequence[Item], executor: Executor | None = None) -> None:
        """Has each item worked on, wherever the executor likes (the run's own by default)."""
        for done, _ in enumerate((executor or self.executor).map(work, items), 1):
            self._tell(label, done, len(items))

    def _living(self, pass_name: str, columns: list[str] | None = None) -> pl.DataFrame:
        """These columns (row among them; all by default) of all living rows, ascending by row."""
        return pl.concat([self.ledger.living(self.work.read(f"{pass_name}-{batch.name}", columns)) for batch in self.batches])

    def _through(self, pass_name: str, steps: Steps, columns: list[str] | None, source: str = "read") -> None:
        """Sends all living rows through batch steps; what they leave lies in the workspace as `<pass name>-<batch>`."""
        started = time.perf_counter()
        masks = [self.ledger.is_alive[batch.first_row - self.seen.rows :][: batch.rows] for batch in self.batches]
        work = partial(pass_batch, work=self.work, pass_name=pass_name, source=source, columns=columns, steps=steps)
        spent = dict.fromkeys(steps, 0.0)
        for done, seconds in enumerate(self.executor.map(work, self.batches, masks), 1):
            spent = {name: spent[name] + seconds.get(name, 0.0) for name in steps}
            self._tell(pass_name, done)
        wall_s, busy_s = time.perf_counter() - started, sum(spent.values())
        for name in steps:
            dropped = (self.work.read(f"{pass_name}-{batch.name}-dropped").filter(step=name) for batch in self.batches)
            self.ledger.drop(name, dropped, wall_s * spent[name] / busy_s if busy_s else 0.0)

    def _tell(self, label: str, done: int, total: int | None = None) -> None:
        if self.progress:
            self.progress(label, done, len(self.batches) if total is None else total)

    # ---- what is stored ---------------------------------------------------------------------------------------------------

    def _write_rows(self, parts: Mapping[str, str]) -> list[Part]:
        """The parts of queries and verdicts, a batch each."""
        work = partial(write_batch, store=self.store, work=self.work, run=self.id, files=self._all_files, parts=parts)
        out: list[Part] = []
        for start in range(0, len(self.batches), _WRITTEN_AT_ONCE):
            batches = self.batches[start : start + _WRITTEN_AT_ONCE]
            counts = [self.askers.occurrences[batch.first_row - self.seen.rows :][: batch.rows] for batch in batches]
            told = [self.ledger.verdicts(batch.numbers) for batch in batches]
            for done, written in enumerate(self.executor.map(work, batches, counts, told), start + 1):
                out += written
                self._tell("store", done)
        return out

    def _write_segment(self, parts: Mapping[str, str]) -> list[Part]:
        """The parts of segments, seen, asked and bands, for later runs. None where a run with other settings has left them."""
        if self.is_indexed:
            return []
        work = partial(write_seen, store=self.store, work=self.work, segment=self.segment, first_row=self.seen.rows, parts=parts)
        masks, frames, keepers = [], [], []
        numbers = self.keepers["row"].to_numpy()
        for batch in self.batches:
            start = batch.first_row - self.seen.rows
            masks.append(self.is_distinct[start : start + batch.rows])
            frames.append(self.has_own_frame[start : start + batch.rows])
            first, last = np.searchsorted(numbers, [batch.first_row, batch.first_row + batch.rows])
            keepers.append(self.keepers[first:last])
        told = {"segment": self.segment, "recipe": self.recipe, "position": self.seen.known, "first_row": self.seen.rows}
        files = json.dumps([(file.content_hash, file.name, file.rows) for file in self.files])
        own = {
            **{table: [parts[f"{table}-{batch.name}"] for batch in self.batches] for table in ("seen", "asked")},
            "bands": [parts[f"bands-{band}"] for band in range(self.config.near.bands)],
        }
        out = [self.store.write("segments", parts["segments"], pl.DataFrame([{**told, "files": files, "parts": json.dumps(own)}]))]
        out += self.executor.map(work, self.batches, masks, frames, keepers)
        about: Any = {"store": self.store, "work": self.work, "segment": self.segment, "first_row": self.seen.rows, "parts": parts}
        out += self.executor.map(partial(write_asked, **about), self.batches)
        out += self.executor.map(partial(write_band, **about), range(self.config.near.bands))
        return out

    def _write_results(self, parts: Mapping[str, str]) -> list[Part]:
        """The parts of the funnel, of every distinct frame with what became of it, and of the admitted tasks."""
        write = partial(write_frames, store=self.store, work=self.work, run=self.id, files=self._all_files)
        out: list[Part] = []
        for number, group in enumerate(groups(self.batches)):
            rows = slice(group[0].first_row, group[-1].first_row + group[-1].rows)
            own = self.has_own_frame[rows.start - self.seen.rows : rows.stop - self.seen.rows]
            told = self.ledger.verdicts(rows).drop("duplicate_of", "similarity")
            out.append(write(group, told, own, self.ranks, part=parts[f"frames-{number}"]))
        funnel = self.ledger.funnel(time.perf_counter() - self.started).with_columns(run=pl.lit(self.id))
        out.append(self.store.write("funnel", parts["funnel"], funnel))
        out.append(self.store.write("tasks", parts["tasks"], tasks_frame(self.tasks)))
        out += write_gate(self.leaks, self.nearness, self.store, self.id, self._all_files, parts)
        return out
