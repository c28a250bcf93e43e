"""What people said by hand, in the funnel: who is dropped, who is kept, what is read otherwise, and that the run adds up and resumes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from filters.by_hand.run_decisions import NOTHING_BY_HAND, check_label, read_decisions, row_numbers
from filters.frames.workspace import Workspace
from filters.funnel import FunnelConfig, FunnelResult, curate
from filters.ingest import IngestConfig, Source
from filters.pipeline import STEPS
from filters.step import apply, pardon
from filters.steps import rules
from filters.steps.hand_verdicts import with_hand
from filters.steps.rules import RulesConfig
from filters.steps.selection.coverage import CoverageConfig
from storage.by_hand.hand_rows import Annotation, annotate
from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.records import Frame, Task
from storage.store import Store
from synth.haystack.generate import HaystackConfig, generate
from train.data.task_pool import sources

CONFIG = FunnelConfig(ingest=IngestConfig(batch_rows=1000), coverage=CoverageConfig(keep=8, max_encoded=60))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("log"), HaystackConfig(rows=1500, common_combinations=50, seed=3), 20)[0]


@pytest.fixture(scope="module")
def curated(log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, FunnelResult]:
    """A store whose log was curated before anybody said anything."""
    store = Store(tmp_path_factory.mktemp("curated") / "store")
    return store, curate(store, [log], CONFIG)


def said(store: Store, item: str, verdict: Any, **more: Any) -> None:
    annotate(store, Annotation(items=(item,), author="ada", verdict=verdict, **more))


def rows(store: Store, run: str, where: str) -> pl.DataFrame:
    return store.query(
        f"""SELECT v.*, q.text, f.frame_id, f.status, f.world, f.intent, f.slots, f.reason AS why FROM verdicts v
            JOIN queries q USING (query_id, run) LEFT JOIN frames f USING (query_id, run) WHERE v.run = ? AND {where} ORDER BY q.row""",
        [run],
    )


@pytest.fixture(scope="module")
def again(log: Path, curated: tuple[Store, FunnelResult]) -> tuple[Store, FunnelResult, FunnelResult, dict[str, Any]]:
    """The store, the run before, the run after annotations, and what was annotated."""
    store, before = curated
    run = before.run
    kept = rows(store, run, "v.kept AND q.language = 'en'")
    spared = rows(store, run, "v.reason IN ('not_pooled', 'not_shortlisted', 'not_needed') AND f.frame_id IS NOT NULL")
    about = {
        "dropped": kept["query_id"][0],
        "dropped_frame": kept["frame_id"][1],
        "of_frame": kept["query_id"][1],
        "soft": spared["query_id"][:10].to_list(),
        "short": rows(store, run, "v.reason IN ('chit_chat', 'keyboard_mash')")["query_id"][0],
        "copy": rows(store, run, "v.reason = 'exact_duplicate'")["query_id"][0],
        "unread": rows(store, run, "v.step = 'ground'")["query_id"][0],
    }
    said(store, about["dropped"], "drop")
    said(store, about["dropped_frame"], "drop")
    _keep(store, about)
    said(store, about["unread"], "relabel", label=_other())
    return store, before, curate(store, [log], CONFIG), about


def _keep(store: Store, about: dict[str, Any]) -> None:
    annotate(store, Annotation(items=(*about["soft"], about["short"], about["copy"]), author="ada", verdict="keep"))


def _other() -> Frame:
    """What a person says that an unread request asks for."""
    return check_label("retail", "order_status", {"order": "o7"})


@pytest.mark.slow
def test_what_a_person_dropped_is_dropped_with_a_step_and_reason_of_its_own(again: Any) -> None:
    store, before, after, about = again

    assert after.run != before.run
    for name, reason, words in (("dropped", "dropped_by_hand", "a person dropped it by hand"), ("of_frame", "frame_dropped_by_hand", "")):
        row = rows(store, after.run, f"v.query_id = '{about[name]}'").row(0, named=True)
        assert (row["kept"], row["step"], row["reason"]) == (False, "by_hand", reason)
        assert words in str(explain(store, about[name]))
    tasks = store.query("SELECT query_id FROM tasks WHERE list_contains(?, task_id)", [list(after.task_ids)])["query_id"]
    assert about["dropped"] not in tasks and about["of_frame"] not in tasks


@pytest.mark.slow
def test_the_funnel_adds_up_with_a_step_by_hand(again: Any) -> None:
    store, before, after, _ = again

    step = after.funnel.row(by_predicate=pl.col("step") == "by_hand", named=True)
    assert json.loads(step["reasons"]) == {"dropped_by_hand": 1, "frame_dropped_by_hand": 1}
    assert "by_hand" not in before.funnel["step"].to_list(), "a store without annotations has the funnel that it had"
    assert (after.funnel["rows_in"][1:] == after.funnel["kept"][:-1]).all()
    verdicts = rows(store, after.run, "true")
    assert verdicts.height == after.funnel["rows_in"][0] and verdicts["query_id"].n_unique() == verdicts.height
    assert verdicts["kept"].sum() == after.funnel["kept"][-1]


@pytest.mark.slow
def test_what_a_person_keeps_passes_the_soft_steps_and_is_executed(again: Any) -> None:
    store, _, after, about = again

    soft = rows(store, after.run, "true").filter(pl.col("query_id").is_in(about["soft"]))
    assert soft.height == 10 > CONFIG.coverage.keep, "more are kept by hand than there is room for"
    assert soft["kept"].sum() > 5
    for row in soft.iter_rows(named=True):
        made = store.query("SELECT 1 FROM tasks WHERE query_id = ?", [row["query_id"]]).height
        assert row["step"] == "admission" and made == row["kept"], "it was tried, and what cannot be executed is refused"
        assert row["kept"] or row["status"] == "refused"
    copy = rows(store, after.run, f"v.query_id = '{about['copy']}'").row(0, named=True)
    assert copy["reason"] == "exact_duplicate", "what repeats a row is there already"
    short = rows(store, after.run, f"v.query_id = '{about['short']}'").row(0, named=True)
    assert short["step"] != "rules" and not short["kept"], "small talk that no world reads is no task, whoever keeps it"


@pytest.mark.slow
def test_a_label_goes_in_and_is_executed_like_any_frame(again: Any) -> None:
    store, _, after, about = again

    row = rows(store, after.run, f"v.query_id = '{about['unread']}'").row(0, named=True)
    assert (row["world"], row["intent"], json.loads(row["slots"])) == ("retail", "order_status", {"order": "o7"})
    assert row["why"].endswith("read by hand") or "(read by hand)" in row["why"]
    assert row["step"] == "admission"
    if row["kept"]:
        spec = store.query("SELECT spec FROM tasks WHERE query_id = ?", [about["unread"]]).item()
        assert Task.model_validate_json(spec).intent == "order_status"


@pytest.mark.slow
def test_training_draws_no_sibling_of_what_was_dropped(again: Any) -> None:
    store, _, _, about = again

    drawn = {source.query_id for source in sources(store, worlds=("city", "retail"), max_difficulty=5)}
    assert drawn, "the others are drawn from"
    assert not drawn & {about["dropped"], about["of_frame"]}


@pytest.mark.slow
def test_the_same_annotations_are_the_same_run_and_a_killed_one_resumes(
    log: Path, again: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a store of the same rows and annotations that is killed in the pass of the step, then the next call gives the same run."""
    store, before, after, about = again
    assert curate(store, [log], CONFIG).run == after.run
    other = Store(tmp_path / "store")
    assert curate(other, [log], CONFIG).run == before.run
    said(other, about["dropped"], "drop")
    said(other, about["dropped_frame"], "drop")
    _keep(other, about)
    said(other, about["unread"], "relabel", label=_other())
    write = Workspace.write

    class Killed(BaseException):
        pass

    def dying(self: Workspace, name: str, frame: pl.DataFrame) -> None:
        if name.startswith("by_hand-00-00001"):
            raise Killed
        write(self, name, frame)

    with monkeypatch.context() as patch, pytest.raises(Killed), ThreadPoolExecutor(1) as one:
        patch.setattr(Workspace, "write", dying)
        curate(other, [log], CONFIG, executor=one)

    resumed = curate(other, [log], CONFIG)
    assert (resumed.run, resumed.task_ids) == (after.run, after.task_ids)
    kept = "SELECT query_id, step, kept, reason FROM verdicts WHERE run = ? ORDER BY query_id"
    assert other.query(kept, [after.run]).equals(store.query(kept, [after.run]))


@pytest.mark.slow
def test_annotations_of_another_log_and_comments_change_nothing(log: Path, curated: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = curate(store, [log], CONFIG)
    row = store.query("SELECT query_id FROM queries ORDER BY row LIMIT 1").item()
    said(store, row, "comment", comment="odd")

    assert curate(store, [log], CONFIG).run == first.run
    foreign = Source("other.txt", "0123456789abcdef", 0, 10, ())
    said(store, row, "drop")
    assert read_decisions(store, [foreign]) == NOTHING_BY_HAND


# ---- parts of it -------------------------------------------------------------------------------------------------------------------


def test_rows_have_the_numbers_of_their_files() -> None:
    files = [Source("a.txt", "aaaaaaaa11", 100, 10, ()), Source("b.txt", "bbbbbbbb22", 110, 5, ())]

    found = row_numbers(["q-bbbbbbbb-00000004", "q-aaaaaaaa-00000000", "q-cccccccc-00000000", "q-bbbbbbbb-00000005"], files)

    assert found.to_list() == [100, 114], "other files' rows, and rows that are not there, have none"


def test_a_step_is_pardoned_of_its_soft_reasons_alone() -> None:
    table = pl.DataFrame({"row": pl.Series([1, 2, 3], dtype=pl.UInt32), "norm": ["ok", "no", "find a cafe"], "language": ["en"] * 3})
    spared = pl.Series([1], dtype=pl.UInt32)
    config = RulesConfig()

    plain = apply(rules.STEP, table, (config,))
    kept = apply(pardon(rules.STEP, rules.STEP.soft, spared), table, (config,))
    other = apply(pardon(rules.STEP, ["too_long"], spared), table, (config,))

    assert plain["reason"].is_not_null().to_list() == [True, True, False]
    assert kept["reason"].is_not_null().to_list() == [False, True, False]
    assert other["reason"].equals(plain["reason"])
    every = apply(pardon(replace(rules.STEP), ["*"], spared), table, (config,))
    assert every["reason"][0] is None


def test_without_annotations_the_steps_are_what_they_were() -> None:
    assert with_hand(STEPS, NOTHING_BY_HAND, ()) == [step for step in STEPS if step.name != "by_hand"]


@pytest.mark.parametrize(
    ("world", "intent", "slots", "message"),
    [
        ("nowhere", "order_status", {}, "there is no world"),
        ("retail", "fly", {}, "has no intent 'fly'"),
        ("retail", "order_status", {}, "needs the slot order"),
        ("retail", "order_status", {"order": "o7", "colour": "red"}, "has no slot 'colour'"),
        ("retail", "order_status", {"order": ["o7"]}, "give a text or a number"),
        ("retail", "order_status", {"order": float("nan")}, "give a text or a number"),
        ("retail", "order_status", {"order": ""}, "give a text or a number"),
    ],
)
def test_a_label_that_no_world_has_is_refused(world: str, intent: str, slots: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_label(world, intent, slots)
