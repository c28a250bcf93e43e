"""A row's level is measured where its need or its intent was probed, and static elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from filters.certainty.difficulty_prior import task_groups
from filters.steps.selection.measured_level import read_evidence, with_level
from storage.records import Task
from synth.run.evolution.failure_targeting import read_focus
from tests.synth.probed import drilled, probed_store


def rows_of(tasks: list[Task]) -> pl.DataFrame:
    """One row of a log a task, and a last one that has no frame."""
    rows = [(at, task.world, task.intent, json.dumps(dict(task.slots)), task.difficulty) for at, task in enumerate(tasks)]
    names = {"row": pl.UInt32, "world": pl.String, "intent": pl.String, "slots": pl.String, "difficulty": pl.Int8}
    return pl.DataFrame([*rows, (len(rows), None, None, None, None)], schema=names, orient="row")


def evidence_of(tasks: list[Task], successes: dict[str, int], k: int = 8) -> pl.DataFrame:
    """The tasks of the intents that are named, each with this many successes of k."""
    groups = task_groups([task for task in tasks if task.intent in successes])
    won = pl.col("intent").str.split("/").list.last().replace_strict(successes, return_dtype=pl.Int32)
    return groups.with_columns(successes=won, k=pl.lit(k, pl.Int32))


def test_without_evidence_every_level_is_the_static_difficulty() -> None:
    rows = with_level(rows_of(list(drilled("retail"))), None)
    assert rows["level"].equals(rows["difficulty"]) and rows["level"][-1] is None


def test_a_probed_intent_has_measured_levels_and_nothing_else_changes() -> None:
    """Given probes of two intents, one mastered and one never done, and of a refusal that was never done, then rows of the two are of the
    first and the last fifth; those to be refused, and those of other intents and other worlds, keep their difficulty."""
    retail = [task for task in drilled("retail") if task.difficulty >= 1]
    rare = {task.intent for task in retail}
    by_size = sorted(rare, key=lambda intent: -sum(task.intent == intent for task in retail))
    easy, hard = by_size[:2]
    refusal = next(task.intent for task in drilled("retail") if task.difficulty == -1)
    every = [*drilled("retail"), *drilled("clinic")]
    rows = rows_of(every)
    levels = with_level(rows, evidence_of(list(drilled("retail")), {easy: 8, hard: 0, refusal: 0}))
    assert levels.drop("level").equals(rows), "rows, order and static difficulty stay"
    is_level = (pl.col("difficulty") >= 1) & (pl.col("world") == "retail")
    assert set(levels.filter(is_level, intent=easy)["level"]) == {1}
    assert set(levels.filter(is_level, intent=hard)["level"]) == {5}
    others = levels.filter(~(is_level & pl.col("intent").is_in([easy, hard])))
    assert others["level"].equals(others["difficulty"])


@pytest.mark.slow
def test_the_evidence_is_that_of_the_runs_focus(tmp_path: Path) -> None:
    """Given a policy that does everything in one world and was not probed in the other, then only rows of the former are measured."""
    store = probed_store(tmp_path / "store", {"retail": 1.0})
    evidence = read_evidence(store, read_focus(store, {}))
    assert evidence["successes"].equals(evidence["k"]) and evidence.height == read_focus(store, {}).rows.height
    levels = with_level(rows_of([*drilled("retail"), *drilled("clinic")]), evidence).filter(pl.col("difficulty") >= 2)
    assert set(levels.filter(world="retail")["level"]) >= {1}
    clinic = levels.filter(world="clinic")
    assert clinic.height and clinic["level"].equals(clinic["difficulty"])
