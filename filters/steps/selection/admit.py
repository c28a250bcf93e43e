"""Admission: makes tasks from the shortlist by executing the frame of each query.

The rows of a stratum are tried in the order of the shortlist until its quota is full; the next row of the stratum replaces a refused one.
What a stratum cannot fill goes to the others, last to those that need no tool. Rows that a person keeps by hand are tried first, and
refused where they cannot be executed, as any other. No refusal reason may have more than half of the refusal tasks, because a policy with
one fixed refusal would do well on them; with a single reason there are no refusal tasks. A frame of the held-out division becomes an
evaluation task in a world that is reserved for evaluation.

This module does not solve or check (`synth/tasks/solver.py`) and draws no siblings (`train/data/task_pool.py`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from filters.frames.batches import query_ids
from filters.step import Context, Setup, WholeStep
from filters.steps.selection.coverage import CoverageConfig, fill, quotas
from storage.execution import Progress
from storage.record_rows import tasks_frame
from storage.records import Frame, Task
from synth.tasks.solver import NotAdmitted, Use, admit_any, world_seeds
from synth.tasks.split import DivisionConfig, division_of
from synth.worlds import WORLDS

SEEDS = 48
"""World seeds that a row may try."""


@dataclass
class Admission:
    """tasks: row -> task. refused: row -> reason. Rows that were not needed are in neither."""

    tasks: dict[int, Task] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)


def admit(
    shortlist: pl.DataFrame,
    query_ids: Sequence[str],
    config: CoverageConfig,
    divisions: DivisionConfig,
    *,
    kept: Collection[str] = (),
    progress: Progress | None = None,
) -> Admission:
    """Fills the quotas.

    Args:
        shortlist: columns row, text, language, world, intent, slots (JSON), difficulty, level, stratum_rank.
        query_ids: of the shortlist's rows, in their order.
        kept: ids of queries that a person keeps: they are tried first, also beyond the quota of their stratum.
        progress: called with the number of tasks so far and `config.keep`.
    """
    return _QuotaFiller(shortlist, query_ids, config, divisions, kept, progress).run()


class _QuotaFiller:
    def __init__(
        self,
        shortlist: pl.DataFrame,
        query_ids: Sequence[str],
        config: CoverageConfig,
        divisions: DivisionConfig,
        kept: Collection[str],
        progress: Progress | None,
    ) -> None:
        self.config, self.divisions, self.kept, self.progress = config, divisions, kept, progress
        self.result = Admission()
        self.refusals: dict[str, list[int]] = defaultdict(list)
        learnable = pl.col("world").is_in(config.learnable_worlds) & pl.col("level").is_between(1, config.learnable_difficulty)
        rows = shortlist.with_columns(query_id=pl.Series(query_ids, dtype=pl.String), is_learnable=learnable).sort("stratum_rank", "row")
        self.queues = {
            (int(level), bool(is_learnable)): group.to_dicts()
            for (level, is_learnable), group in rows.group_by("level", "is_learnable", maintain_order=True)
        }
        self.quotas = quotas({stratum: len(queue) for stratum, queue in self.queues.items()}, config)
        self.refusal_cap = self.quotas.get((-1, False), 0) // 2

    def run(self) -> Admission:
        by_hand = {stratum: self._try_kept(stratum) for stratum in sorted(self.queues)}
        for stratum in sorted(self.quotas):
            self._fill(stratum, max(0, self.quotas[stratum] - by_hand[stratum]))
        self._trim_refusals()
        for stratum in sorted(self.queues, key=lambda stratum: (stratum[0] <= 0, stratum)):
            missing = min(self.config.keep, sum(self.quotas.values())) - len(self.result.tasks)
            if missing > 0 and stratum[0] >= 0:
                self._fill(stratum, missing)
        return self.result

    def _try_kept(self, stratum: tuple[int, bool]) -> int:
        """Tries the rows of the stratum that a person keeps, and returns how many tasks they gave."""
        before, queue = len(self.result.tasks), self.queues[stratum]
        self.queues[stratum] = [row for row in queue if row["query_id"] in self.kept]
        self._fill(stratum, len(self.queues[stratum]))
        self.queues[stratum] = [row for row in queue if row["query_id"] not in self.kept]
        return len(self.result.tasks) - before

    def _fill(self, stratum: tuple[int, bool], count: int) -> None:
        """Tries the rows of the stratum in order, until there are `count` more tasks or no more rows."""
        queue = self.queues[stratum]
        while count and queue:
            row = queue.pop(0)
            try:
                task = self._task(row)
            except NotAdmitted as refused:
                self.result.refused[row["row"]] = refused.reason
                continue
            self.result.tasks[row["row"]] = task
            count -= 1
            if self.progress:
                self.progress("admission", len(self.result.tasks), self.config.keep)

    def _trim_refusals(self) -> None:
        """Removes the last tasks of a reason that has more tasks than all other reasons together."""
        largest = max(self.refusals.values(), key=len, default=[])
        others = sum(map(len, self.refusals.values())) - len(largest)
        for row in largest[others:]:
            del self.result.tasks[row]
            self.result.refused[row] = "reason_full"

    def _task(self, row: dict[str, Any]) -> Task:
        frame = Frame(world=str(row["world"]), intent=str(row["intent"]), slots=json.loads(str(row["slots"])))
        side = division_of(frame, WORLDS[frame.world], self.divisions)
        use: Use = "eval_out" if side == "held_out" else "train"
        task = admit_any(
            WORLDS[frame.world],
            frame,
            text=str(row["text"]),
            language="zh" if row["language"] == "zh" else "en",
            seeds=world_seeds(frame.id, 0, use, SEEDS),
            division=side,
            use=use,
            query_id=str(row["query_id"]),
        )
        if (task.difficulty == -1) != (row["difficulty"] == -1):
            raise NotAdmitted("other_difficulty", "it is to be refused here, though its frame is not, or the other way round")
        if task.success.refusal is not None:
            same_reason = self.refusals[task.success.refusal]
            if len(same_reason) >= self.refusal_cap:
                raise NotAdmitted("reason_full", "this refusal reason has its half of the refusal tasks")
            same_reason.append(row["row"])
        return task


@dataclass(frozen=True)
class Inputs:
    """config: how many tasks to make, and of which kind.
    divisions: shares of the divisions of frames.
    is_judged: whether a model rated the rows.
    kept: ids of queries that a person keeps.
    """

    config: CoverageConfig
    divisions: DivisionConfig
    is_judged: bool
    kept: frozenset[str] = frozenset()


def _load(setup: Setup) -> Inputs:
    config = setup.config
    return Inputs(config.coverage, config.divisions, config.difficulty.engine is not None, setup.hand.kept)


def step(rows: pl.DataFrame, inputs: Inputs, context: Context) -> pl.DataFrame:
    """The whole step: makes tasks from rows with a frame; rows without one fill the remaining places. Adds task (JSON, null if none)."""
    is_framed = pl.col("frame_id").is_not_null()
    framed = rows.filter(is_framed)
    ids = query_ids(framed["row"], context.files).to_list()
    admission = admit(framed, ids, inputs.config, inputs.divisions, kept=inputs.kept, progress=context.progress)
    tasks = admission.tasks
    if inputs.is_judged:
        rated = dict(framed.select("row", "difficulty").iter_rows())
        tasks = {row: task.model_copy(update={"difficulty": rated[row]}) for row, task in tasks.items()}
    specs = pl.Series("task", [tasks[row].model_dump_json() if row in tasks else None for row in framed["row"]], dtype=pl.String)
    refused = [None if row in tasks else admission.refused.get(row, "not_needed") for row in framed["row"]]
    tried = framed.select("row", specs, pl.Series("reason", refused, dtype=pl.String))
    others = fill(rows.filter(~is_framed), max(0, inputs.config.keep - len(tasks)))
    decided = pl.concat([tried, others.select("row", pl.lit(None, pl.String).alias("task"), "reason")])
    return rows.select("row").join(decided, on="row", how="left", maintain_order="left")


def _tables(rows: pl.DataFrame, _: object, __: object) -> dict[str, pl.DataFrame]:
    specs = rows["task"].drop_nulls().to_list()
    return {"tasks": tasks_frame([Task.model_validate_json(spec) for spec in specs])}


STEP = WholeStep(
    name="admission",
    needs=(
        *("text", "language", "world", "intent", "slots", "difficulty"),
        *("frame_id", "leaf", "level", "stratum_rank", "topic", "topic_rows"),
    ),
    adds=("task",),
    reasons=("*",),
    soft=("not_needed",),
    config=CoverageConfig,
    load=_load,
    function=step,
    writes=("tasks",),
    tables=_tables,
)
"""The reasons are those of `synth/tasks/solver.py` and of the worlds, and `not_needed`, `other_difficulty`, `reason_full`."""
