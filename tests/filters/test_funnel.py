"""The whole funnel on a small generated log: it adds up, keeps what it should, and survives a kill at any moment."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filters import normalised_text
from filters.code_hash import ROOT, code_hash
from filters.dedup.minhash import jaccard
from filters.frames.workspace import Workspace
from filters.funnel import FunnelConfig, FunnelResult, curate
from filters.ingest import IngestConfig
from filters.steps.quality import QualityConfig
from filters.steps.selection import coverage
from filters.steps.selection.contamination import ContaminationConfig, HeldOutFile
from filters.steps.selection.coverage import CoverageConfig
from filters.verdicts import shortfall
from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.records import Task
from storage.store import Store
from synth.clusters.cluster_store import save_clusters
from synth.haystack.generate import HaystackConfig, generate
from synth.worlds import WORLDS

CONFIG = FunnelConfig(ingest=IngestConfig(batch_rows=1000), coverage=CoverageConfig(keep=10, max_encoded=100))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    """A log of 2,500 queries, and what was planted in it."""
    queries, plants = generate(tmp_path_factory.mktemp("log"), HaystackConfig(rows=2500, common_combinations=50, seed=3), 20)
    return queries, pl.read_parquet(plants)


@pytest.fixture(scope="module")
def undisturbed(log: tuple[Path, pl.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, FunnelResult]]:
    store = Store(tmp_path_factory.mktemp("undisturbed") / "store")
    yield store, curate(store, [log[0]], CONFIG)


def verdicts(store: Store, run: str) -> pl.DataFrame:
    return store.query("SELECT q.row, v.* FROM verdicts v JOIN queries q USING (query_id, run) WHERE run = ? ORDER BY q.row", [run])


def test_every_row_has_one_verdict_and_the_steps_add_up(undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame]) -> None:
    store, result = undisturbed
    told = verdicts(store, result.run)
    assert told["row"].to_list() == list(range(2500))
    funnel = result.funnel
    assert funnel["rows_in"][0] == 2500
    assert funnel["kept"].to_list()[:-1] == funnel["rows_in"].to_list()[1:]
    for step, dropped, reasons in funnel.select("step", "dropped", "reasons").iter_rows():
        assert sum(json.loads(reasons).values()) == dropped == told.filter(~pl.col("kept"), pl.col("step") == step).height
    assert (funnel["seconds"] >= 0).all() and (funnel["size_bytes"] > 0).all()


def test_duplicates_name_the_row_that_they_duplicate(undisturbed: tuple[Store, FunnelResult]) -> None:
    store, result = undisturbed
    duplicates = verdicts(store, result.run).filter(pl.col("step").is_in(["exact", "near", "equal"]), ~pl.col("kept"))
    assert duplicates.height > 500
    assert duplicates["duplicate_of"].null_count() == duplicates["similarity"].null_count() == 0
    first = duplicates.join(verdicts(store, result.run).select(duplicate_of="query_id", first="row", first_step="step"), on="duplicate_of")
    assert first.height == duplicates.height and (first["first"] < first["row"]).all()
    assert (duplicates.filter(step="near")["similarity"] >= 0.7).all()
    assert not (first["first_step"] == first["step"]).filter(first["step"] == "exact").any()


def test_exact_copies_go_and_the_kept_tasks_are_needles(undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame]) -> None:
    store, result = undisturbed
    told = log[1].join(verdicts(store, result.run).select(pl.col("row").cast(pl.UInt32), "step", "kept"), on="row")
    pairs = told.filter(kind="exact").join(told.select(twin="row", twin_step="step"), on="twin")
    assert pairs.select((pl.col("step") == "exact") | (pl.col("twin_step") == "exact")).to_series().all()
    kept = told.filter("kept")
    assert kept.height == len(result.task_ids) == 10
    assert (log[1]["kind"].gather(kept["row"].to_list()) == "needle").mean() >= 0.6
    counted = store.query("SELECT sum(occurrences) AS n FROM queries WHERE run = ?", [result.run])["n"][0]
    assert counted == 2500


def test_every_kept_query_is_an_executable_task_of_its_own(undisturbed: tuple[Store, FunnelResult]) -> None:
    store, result = undisturbed
    tasks = [Task.model_validate_json(spec) for spec in store.query("SELECT spec FROM tasks")["spec"]]
    kept = set(verdicts(store, result.run).filter("kept")["query_id"])
    assert {task.query_id for task in tasks} == kept
    frames = store.query("SELECT * FROM frames WHERE status = 'admitted'")
    assert {task.frame_id for task in tasks} == set(frames["frame_id"])
    assert {(task.query_id, task.difficulty) for task in tasks if task.difficulty > 0} <= set(
        frames.select("query_id", "difficulty").iter_rows()
    )


SCRAPS = st.sampled_from(
    ["find a hotel near Willow Park", "FIND a hotel near willow park!", "find a hotle near Willow Park", "close order o17 please", "hello"]
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(SCRAPS, st.text(max_size=30)), min_size=1, max_size=40), st.booleans())
def test_whatever_is_read_has_one_verdict_a_row(texts: list[str], ungrounded: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ["find a museum near Willow Park", *texts]), encoding="utf-8")
        store = Store(Path(folder) / "store")
        result = curate(store, [path], CONFIG.model_copy(update={"ungrounded": ungrounded}))
        told = verdicts(store, result.run)
        assert told["row"].to_list() == list(range(len(texts) + 1))
        assert told["kept"].sum() == result.funnel["kept"][-1] == result.funnel["rows_in"][0] - result.funnel["dropped"].sum()
        assert (told["reason"].is_null() == told["kept"]).all()


@pytest.mark.slow
def test_one_row_a_third_of_a_million_times(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pl.DataFrame({"text": pl.Series(["Find a hotel near Willow Park"]).new_from_index(0, 333_333)}).write_parquet(path)
    store = Store(tmp_path / "store")
    result = curate(store, [path], FunnelConfig(coverage=CoverageConfig(keep=5)))
    assert result.funnel.filter(step="exact").select("kept", "dropped").row(0) == (1, 333_332)
    assert store.query("SELECT occurrences FROM queries WHERE occurrences IS NOT NULL")["occurrences"].to_list() == [333_333]
    assert len(result.task_ids) == 1


def test_no_personal_data_reach_the_store(undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame]) -> None:
    raw = pl.read_parquet(log[0])["text"]
    assert raw.str.contains("@example.com", literal=True).sum() > 50
    store, _ = undisturbed
    texts = store.query("SELECT text FROM queries")["text"]
    assert not texts.str.contains(r"@example\.com|138\d{8}").any()
    assert not store.query("SELECT spec FROM tasks")["spec"].str.contains("@example.com", literal=True).any()


def test_a_second_run_does_nothing(
    undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, result = undisturbed
    before = store.content_hash()
    monkeypatch.setattr(Workspace, "write", lambda *_: pytest.fail("something was done again"))
    again = curate(store, [log[0]], CONFIG)
    assert (again.run, again.parts, again.task_ids) == (result.run, result.parts, result.task_ids)
    assert again.funnel.equals(result.funnel)
    assert store.content_hash() == before
    assert not list((store.lake / "_work").iterdir())


@pytest.mark.slow
def test_threads_and_progress_change_nothing_and_every_frame_that_is_written_is_read(
    undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, seen, write, read = set(), set(), Workspace.write, Workspace.read
    monkeypatch.setattr(Workspace, "write", lambda self, name, frame: (written.add(name), write(self, name, frame)))
    monkeypatch.setattr(Workspace, "read", lambda self, name, columns=None: (seen.add(name), read(self, name, columns))[1])
    told: list[tuple[str, int, int]] = []
    store = Store(tmp_path / "store")
    with ThreadPoolExecutor(1) as one:
        curate(store, [log[0]], CONFIG, progress=lambda *what: told.append(what), executor=one)
    assert store.content_hash() == undisturbed[0].content_hash()
    assert len(written) > 15 and written == seen
    assert {"normalise", "rules", "near duplicates", "ground", "admission"} <= {label for label, _, _ in told}
    assert all(0 <= done <= total for _, done, total in told)


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def kill_before_writes(store: Store, log: Path, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls a run once for each frame or array of the workspace: it continues what the calls before left, and dies before it writes this
    one."""
    committed = store.content_hash() if store.exists() else None
    for dies_before in names:

        def dying(write: Any, dies_before: str = dies_before) -> Any:
            def writing(self: Workspace, name: str, what: Any) -> None:
                if name == dies_before:
                    raise Killed
                write(self, name, what)

            return writing

        with monkeypatch.context() as patch, pytest.raises(Killed):
            for method in ("write", "write_array"):
                patch.setattr(Workspace, method, dying(getattr(Workspace, method)))
            curate(store, [log], CONFIG)
        assert (store.content_hash() if store.exists() else None) == committed


@pytest.mark.slow
def test_killed_anywhere_and_run_again_gives_the_same(
    undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    reading, rules, sketch, bands = "normalise-00-00001", "rules-00-00001", "near-counts-00-00001", ("near-before-20", "near-firsts-15")
    late = ("near", "ground-00-00001-dropped", "combination_counts", "equal-keys-00-00000", "mask_values-00-00001", "vectors-0", "compared")
    kill_before_writes(store, log[0], ["normalise-00-00000", reading, "exact-0", rules, sketch, *bands, *late], monkeypatch)
    result = curate(store, [log[0]], CONFIG)
    assert result.task_ids == undisturbed[1].task_ids
    assert store.content_hash() == undisturbed[0].content_hash()


@pytest.mark.slow
def test_killed_on_the_second_day_and_run_again_gives_the_same(
    log: tuple[Path, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a log that goes on from an index, when its run is killed and called again, then the store is that of two whole runs."""
    texts, days = pl.read_parquet(log[0]), [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    texts[:1250].write_parquet(days[0])
    texts[1250:].write_parquet(days[1])
    whole, killed = Store(tmp_path / "whole"), Store(tmp_path / "killed")
    curate(whole, days[:1], CONFIG)
    shutil.copytree(whole.root, killed.root)
    kill_before_writes(killed, days[1], ["near-terms-00-00000", "near-firsts-10"], monkeypatch)
    for store in (whole, killed):
        curate(store, days[1:], CONFIG)
    assert killed.content_hash() == whole.content_hash()
    assert whole.query("SELECT count(*) AS n FROM verdicts WHERE duplicate_of[:10] <> query_id[:10]")["n"][0] > 250


@pytest.mark.slow
def test_killed_for_real_while_writing_the_result(
    undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame], tmp_path: Path
) -> None:
    """Given a process that is killed once the first part of the result is on disk, when the same is run again, then nothing differs."""
    script = (
        "import os, signal, sys; from pathlib import Path; import storage.store as s; write = s.Store.write\n"
        "def dying(self, *a):\n    write(self, *a); os.kill(os.getpid(), signal.SIGKILL)\n"
        "s.Store.write = dying\n"
        "from filters.funnel import FunnelConfig, curate\n"
        "curate(s.Store(sys.argv[1]), [Path(sys.argv[2])], FunnelConfig.model_validate_json(sys.argv[3]))\n"
    )
    root = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", script, str(root), str(log[0]), CONFIG.model_dump_json()],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    store = Store(root)
    assert not store.exists() and list(root.glob("lake/queries/*.parquet"))
    curate(store, [log[0]], CONFIG)
    assert store.content_hash() == undisturbed[0].content_hash()


def test_bad_input_leaves_nothing_behind(tmp_path: Path, log: tuple[Path, pl.DataFrame]) -> None:
    for sources, config in [
        ([log[0], tmp_path / "missing.csv"], CONFIG),
        ([log[0]], CONFIG.model_copy(update={"ingest": IngestConfig(column="txt")})),
    ]:
        with pytest.raises(BadInput):
            curate(Store(tmp_path / "store"), sources, config)
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_a_strangers_log_with_bad_rows(tmp_path: Path) -> None:
    """Given JSONL with a broken line, junk and questions that no world can execute, then by default those are dropped with their reasons,
    and with `ungrounded` what is a question stays, in a stratum of its own, without a task."""
    questions = [
        "Translate this poem into French for me",
        "What is the capital of Mongolia?",
        "what is the capital of mongolia",
        "asdfghjkl",
    ]
    lines = [json.dumps({"prompt": text}) for text in questions]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([*lines[:2], "{broken", *lines[2:]]) + "\n")
    config = CONFIG.model_copy(update={"ingest": IngestConfig(column="prompt")})

    plain = Store(tmp_path / "plain")
    result = curate(plain, [path], config)
    told = verdicts(plain, result.run)
    assert result.not_done[0].startswith("2 of 2 distinct requests ask for what no world here executes; keep such rows with --ungrounded")
    assert told.select("step", "reason").rows()[2:] == [("ingest", "undecodable"), ("exact", "exact_duplicate"), ("rules", "keyboard_mash")]
    assert not told["kept"].any()

    loose = Store(tmp_path / "loose")
    result = curate(loose, [path], config.model_copy(update={"ungrounded": True}))
    told = verdicts(loose, result.run)
    assert told["kept"].to_list() == [True, True, False, False, False]
    assert result.task_ids == ()
    no_tools, no_held_out = result.not_done
    assert "knows no tools" in no_tools and "no held-out questions" in no_held_out
    frames = loose.query("SELECT status, world, query_id FROM frames ORDER BY query_id")
    assert frames.select("status", "world").rows() == [("ungrounded", None)] * 2
    assert frames["query_id"].to_list() == told.filter("kept")["query_id"].to_list()


def test_what_was_too_poor_says_how_poor(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("close order o17 please\nclos ordr o18 plz zzz qqq\n")
    store = Store(tmp_path / "store")
    curate(store, [path], CONFIG.model_copy(update={"quality": QualityConfig(min_quality=1.0), "ungrounded": True}))
    rows = store.query("SELECT status, quality FROM frames ORDER BY quality")
    assert "low_quality" in rows["status"].to_list() and rows["quality"].null_count() == 0


@pytest.mark.slow
def test_another_run_in_other_batches_has_its_own_rows_and_shares_its_tasks(
    undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame], tmp_path: Path
) -> None:
    """Given a ratio that comes to the same count, and other batches, then the same rows are kept for the same reasons."""
    first = undisturbed[1]
    store = Store(shutil.copytree(undisturbed[0].root, tmp_path / "store"))
    second = curate(store, [log[0]], CONFIG.model_copy(update={"ingest": IngestConfig(batch_rows=2000), "keep_one_in": 250}))
    assert second.run != first.run and second.task_ids == first.task_ids
    assert verdicts(store, second.run).drop("run").equals(verdicts(store, first.run).drop("run"))
    assert store.query("SELECT count(*) AS n FROM tasks")["n"][0] == 10


def test_several_files_are_one_run(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("find a hotel near Willow Park\nhello there\n")
    (tmp_path / "two.csv").write_text("text\nFIND a hotel near willow park!\n")
    store = Store(tmp_path / "store")
    result = curate(store, [tmp_path / "one.txt", tmp_path / "two.csv"], CONFIG)
    rows = store.query(
        "SELECT q.source, q.row, q.occurrences, v.reason, d.source AS first FROM verdicts v JOIN queries q USING (query_id, run) "
        "LEFT JOIN queries d ON d.query_id = v.duplicate_of ORDER BY q.source, q.row"
    )
    assert result.funnel["rows_in"][0] == 3
    assert rows.select("source", "row", "occurrences").rows() == [("one.txt", 0, 2), ("one.txt", 1, 1), ("two.csv", 0, None)]
    assert rows.row(2)[3:] == ("exact_duplicate", "one.txt")


@pytest.mark.slow
def test_the_same_bytes_read_in_another_way_are_another_run(tmp_path: Path) -> None:
    line = json.dumps({"text": "close order o17 please"}) + "\n"
    store, runs = Store(tmp_path / "store"), []
    for name in ("q.txt", "q.jsonl", "q.csv", "q.tsv"):
        path = tmp_path / name
        path.write_text("text\n" + line if name.endswith("sv") else line)
        runs.append(curate(store, [path], CONFIG).run)
    assert len(set(runs)) == 4
    texts = [store.query("SELECT text FROM queries WHERE run = ?", [run])["text"].to_list() for run in runs[:2]]
    assert texts == [[line.strip()], ["close order o17 please"]]


def test_a_run_depends_on_the_code_that_decides_its_rows(tmp_path: Path) -> None:
    for room in ("filters", "synth"):
        shutil.copytree(ROOT / room, tmp_path / room)
    before = code_hash("filters", "synth", root=tmp_path)
    assert before == code_hash("filters", "synth")
    seen = {before}
    lexicon = "synth/worlds/library/retail/grounding.yaml"
    for name in ("synth/tasks/solver.py", "synth/engines/encoder.py", "filters/dedup/guards.py", "filters/grounding/words.yaml", lexicon):
        with (tmp_path / name).open("a") as file:
            file.write("# another line\n")
        code_hash.cache_clear()
        seen.add(code_hash("filters", "synth", root=tmp_path))
    assert len(seen) == 6


@pytest.mark.slow
def test_rarity_counts_everyone_who_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given one need in its own words, copied, with a slip and worded anew, and another need, then five rows asked for the first."""
    text = "could you please find me a quiet coffee shop near Willow Park, thank you so much"
    near, anew = text.replace("quiet", "quite"), "coffee shop near Willow Park, quiet please"
    path = tmp_path / "log.txt"
    path.write_text("\n".join([text, text.upper(), near, near + "!", anew, "close order o17 please"]) + "\n")
    told: dict[str, int] = {}
    pool = coverage.pool

    def spying(rows: pl.DataFrame, *rest: Any) -> pl.DataFrame:
        told.update(rows.select("intent", "asked").iter_rows())
        return pool(rows, *rest)

    monkeypatch.setattr(coverage, "pool", spying)
    store = Store(tmp_path / "store")
    result = curate(store, [path], CONFIG)
    dropped = verdicts(store, result.run).filter(~pl.col("kept"))
    assert dropped["step"].to_list() == ["exact", "near", "exact", "equal"]
    assert sorted(told.values()) == [1, 5]

    (tmp_path / "later.txt").write_text("\n".join([text, text.upper(), near + " ok", near, "coffee shop near Willow Park: quiet"]) + "\n")
    told.clear()
    result = curate(store, [tmp_path / "later.txt"], CONFIG)
    dropped = verdicts(store, result.run).filter(~pl.col("kept"))
    assert dropped["step"].to_list()[:4] == ["exact", "exact", "near", "exact"] and not told, "its frame was read before"

    slip = text.replace("quiet", "qiuet")
    (tmp_path / "third.txt").write_text("\n".join([text, near, near + " ok", slip, "coffee shop near Maple Station, quiet please"]) + "\n")
    result = curate(store, [tmp_path / "third.txt"], CONFIG)
    assert verdicts(store, result.run)["step"].to_list()[3] == "near"
    assert list(told.values()) == [5], "who repeats what was read before asks as well"


def test_a_ratio_is_met_to_the_row_or_the_step_that_left_too_few_is_named(undisturbed: tuple[Store, FunnelResult], tmp_path: Path) -> None:
    _, result = undisturbed
    assert result.shortfall is None and result.funnel["kept"][-1] == 10
    path = tmp_path / "few.txt"
    path.write_text("find a hotel near Willow Park\nclose order o17 please\nfind a hotel near willow park\nhello\n")
    short = curate(Store(tmp_path / "few"), [path], CONFIG.model_copy(update={"keep_one_in": 1}))
    assert short.shortfall is not None
    assert short.shortfall.startswith("2 kept of 4 wanted: step exact left too few, 3 of 4 rows (exact_duplicate 1)")
    assert shortfall(pl.DataFrame({"step": ["ingest"], "rows_in": [9], "kept": [9], "reasons": ["{}"]}), 9) is None


@pytest.mark.slow
def test_what_no_world_reads_says_which_tool_could_serve_it(tmp_path: Path) -> None:
    """Given a store with clusters of a bank's tools, then a question about accounts names one of them, and one about nothing here none."""
    store = Store(tmp_path / "store")
    save_clusters(store, WORLDS["banking"].tools)
    path = tmp_path / "log.txt"
    path.write_text("List all my bank accounts with their balances\nWhat is the boiling point of tungsten at sea level?\n")
    curate(store, [path], CONFIG.model_copy(update={"ungrounded": True}))
    rows = store.query("SELECT f.tool_id, f.cluster_id, f.nearness, f.reason FROM frames f JOIN queries q USING (query_id) ORDER BY q.row")
    assert rows["tool_id"][0].startswith("banking") and rows["reason"][0] == "unread" and rows["nearness"][0] >= 0.45
    assert rows["cluster_id"][0] in set(store.query("SELECT cluster_id FROM clusters")["cluster_id"])
    assert rows["tool_id"][1] is None and rows["nearness"][1] < 0.45


@pytest.mark.slow
def test_no_kept_row_is_a_held_out_question(
    undisturbed: tuple[Store, FunnelResult], log: tuple[Path, pl.DataFrame], tmp_path: Path
) -> None:
    """Given that the queries kept of a log are a held-out set, when the log is curated again, then none of them nor of their like is kept,
    each says which question it is, and the report's histogram has every row of the pool."""
    store, result = undisturbed
    kept = store.query("SELECT q.query_id, q.text FROM verdicts v JOIN queries q USING (query_id, run) WHERE v.kept ORDER BY q.row")
    kept.select("text").write_ndjson(tmp_path / "exam.jsonl")
    exam = ContaminationConfig(held_out=(HeldOutFile(name="exam", file=str(tmp_path / "exam.jsonl")),))
    clean = Store(tmp_path / "store")
    run = curate(clean, [log[0]], CONFIG.model_copy(update={"contamination": exam}))
    told = verdicts(clean, run.run)
    leaks = clean.query("SELECT * FROM contaminated ORDER BY held_out_row")
    assert set(kept["query_id"]) <= set(leaks["query_id"]) == set(told.filter(reason="contaminated")["query_id"])
    own = kept.with_row_index("place").join(leaks, on="query_id")
    assert (own["similarity"] == 1.0).all() and (own["found_by"] == "near").all() and (own["held_out_row"] == own["place"]).all()
    assert not set(told.filter("kept")["query_id"]) & set(leaks["query_id"])
    pooled = run.funnel.filter(step="contamination")["rows_in"][0]
    counted = clean.query("SELECT found_by, sum(rows)::INT AS n FROM nearness GROUP BY 1 ORDER BY 1")
    assert counted.rows() == [("near", pooled), ("semantic", pooled)]
    assert "held-out set exam (near, similarity 1.000)" in str(explain(clean, own["query_id"][0]))
    assert store.query("SELECT * FROM contaminated").is_empty() and "contaminated" not in str(result.funnel["reasons"].to_list())


def test_duplicates_stand_beside_what_they_duplicate(undisturbed: tuple[Store, FunnelResult]) -> None:
    store, result = undisturbed
    dropped = store.query("SELECT count(*) AS n FROM verdicts WHERE duplicate_of IS NOT NULL")["n"][0]
    pairs = store.query("SELECT * FROM matches ORDER BY similarity, query_id")
    assert pairs.height == dropped > 500 and set(pairs["run"]) == {result.run}
    for row in pairs.filter(step="near").head(20).iter_rows(named=True):
        texts = pl.Series([row["text"], row["duplicate_of_text"]])
        one, other = normalised_text.step(pl.DataFrame({"row": [0, 1], "text": texts}))["norm"]
        assert row["similarity"] == pytest.approx(jaccard(one, other), abs=1e-6)
