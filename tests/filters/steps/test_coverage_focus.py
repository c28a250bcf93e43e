"""The funnel in focus: rows like what the last policy fails at are shortlisted more, and a run that was begun goes on as it began."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from filters.funnel import FunnelConfig, curate
from filters.ingest import IngestConfig
from filters.steps.selection import admit
from filters.steps.selection.coverage import CoverageConfig
from storage.errors import BadInput
from storage.record_rows import tasks_frame
from storage.records import Task
from storage.store import Store, part_id
from synth.haystack.generate import HaystackConfig, generate
from synth.run.evolution.failure_targeting import read_focus
from tests.synth.probed import drilled, probe, promote

FOCUSED = FunnelConfig(ingest=IngestConfig(batch_rows=1000), coverage=CoverageConfig(keep=20, max_encoded=300, focus=1.0))


@cache
def probe_tasks() -> list[Task]:
    return [task for task in drilled("retail", 800) if task.division == "probe"]


@cache
def failed_intents() -> list[str]:
    return sorted({task.intent for task in probe_tasks()})[::2]


def log_of(folder: Path, rows: int) -> Path:
    return generate(folder, HaystackConfig(rows=rows, common_combinations=80, seed=3), 20)[0]


def store_of(root: Path, policy: str = "policy-1") -> Store:
    """A store with a policy that wavers at every other intent of the shop."""
    store = Store(root)
    store.commit([store.write("tasks", part_id("tasks", ["probe"], {}, 1), tasks_frame(probe_tasks()))])
    promote(store, policy)
    for skill in (0.4, 1.0):
        probe(store, policy, [task for task in probe_tasks() if (task.intent in failed_intents()) == (skill < 1)], skill)
    return store


def kept(store: Store, run: str) -> pl.DataFrame:
    return store.query("SELECT world, intent, difficulty, level FROM frames WHERE run = ? AND status = 'admitted'", [run])


@pytest.mark.slow
def test_more_is_kept_of_what_fails_and_levels_are_measured_where_there_is_a_probe(tmp_path: Path) -> None:
    """Given 200 rows kept, some 120 of them the shop's, and a policy that wavers at half of its intents (urgency .4 to .5), then more of
    these is kept, by some eighth, as their quotas grow."""
    log = log_of(tmp_path / "log", 12_000)
    wide = CoverageConfig(keep=200, max_encoded=2000, shortlist=3)
    plain, focused = (FOCUSED.model_copy(update={"coverage": wide.model_copy(update={"focus": focus})}) for focus in (0.0, 1.0))
    stores = Store(tmp_path / "plain"), store_of(tmp_path / "store")
    before, now = (kept(store, curate(store, [log], config).run) for store, config in zip(stores, (plain, focused), strict=True))

    def failing(rows: pl.DataFrame) -> int:
        return rows.filter(pl.col("world") == "retail", pl.col("intent").is_in(failed_intents())).height

    assert now.height == before.height == 200
    assert 1.05 < failing(now) / failing(before) < 1.5
    assert before["level"].equals(before["difficulty"]), "no run without evidence is changed"
    is_measured = (
        pl.col("intent").is_in([task.intent for task in probe_tasks()]) & (pl.col("world") == "retail") & (pl.col("difficulty") >= 1)
    )
    measured, static = now.filter(is_measured), now.filter(~is_measured)
    assert static["level"].equals(static["difficulty"]) and measured.height > 50
    fails = pl.col("intent").is_in(failed_intents())
    assert measured.filter(fails)["level"].min() >= 3 and measured.filter(~fails)["level"].max() == 1  # type: ignore[operator]


@pytest.mark.slow
def test_a_run_that_is_cut_off_goes_on_with_the_failures_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a run that dies before admission, and a probe of other tasks that then arrives, then it is the same run that goes on."""
    log = log_of(tmp_path / "log", 4000)
    undisturbed = curate(store_of(tmp_path / "undisturbed"), [log], FOCUSED)
    store = store_of(tmp_path / "store")

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(admit, "admit", dies)
        curate(store, [log], FOCUSED)
    probe_more(store)

    again = curate(store, [log], FOCUSED)

    assert (again.run, again.task_ids) == (undisturbed.run, undisturbed.task_ids)
    assert read_focus(store, {}).id != read_focus(Store(tmp_path / "undisturbed"), {}).id, "a run that begins now is another"


def probe_more(store: Store) -> None:
    """Rollouts of the same policy in another world."""
    tasks = [task for task in drilled("clinic") if task.division == "probe"]
    store.commit([store.write("tasks", part_id("tasks", ["clinic"], {}, 1), tasks_frame(tasks))])
    probe(store, "policy-1", tasks, 0.3)


def test_a_store_without_a_policy_is_refused_before_a_row_is_read(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", 1000)
    with pytest.raises(BadInput, match="no promoted policy yet"):
        curate(Store(tmp_path / "store"), [log], FOCUSED)
    assert not (tmp_path / "store").exists()
