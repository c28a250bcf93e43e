"""Logs one after the other leave what one log of them all would; a log that is read again is no duplicate of itself."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.dedup import dedup_index, near
from filters.dedup.minhash import jaccard
from filters.dedup.near import NearConfig
from filters.frames.numba_types import U64
from filters.funnel import FunnelConfig, FunnelResult, NothingNew, curate
from filters.ingest import IngestConfig
from filters.normalised_text import normalise_text
from filters.steps.rules import RulesConfig
from filters.steps.selection.coverage import CoverageConfig
from storage.errors import BadInput
from storage.store import Store
from synth.haystack.generate import HaystackConfig, generate

CONFIG = FunnelConfig(ingest=IngestConfig(batch_rows=1000), coverage=CoverageConfig(keep=4, max_encoded=40))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A log of 3,200 queries in three files, in which much is said again."""
    folder = tmp_path_factory.mktemp("logs")
    queries, _ = generate(folder, HaystackConfig(rows=3200, common_combinations=60, seed=5), 20)
    texts = pl.read_parquet(queries)["text"]
    paths = []
    for number, (start, stop) in enumerate([(0, 1400), (1400, 1600), (1600, 3200)]):
        paths.append(folder / f"day-{number}.parquet")
        texts[start:stop].to_frame("text").write_parquet(paths[-1])
    return paths


@pytest.fixture(scope="module")
def day_one(logs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, FunnelResult]:
    store = Store(tmp_path_factory.mktemp("day-one") / "store")
    return store, curate(store, logs[:1], CONFIG)


@pytest.fixture(scope="module")
def day_two(logs: list[Path], day_one: tuple[Store, FunnelResult], tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, FunnelResult]:
    """The store of the first day and the second, and the second's result."""
    store = copy_of(day_one[0], tmp_path_factory.mktemp("day-two"))
    return store, curate(store, logs[1:2], CONFIG)


def copy_of(store: Store, folder: Path) -> Store:
    return Store(shutil.copytree(store.root, folder / "store"))


def deduplicated(store: Store) -> pl.DataFrame:
    """The verdicts of the steps that compare rows with each other, and of all others just that they were passed."""
    return store.query(
        """SELECT query_id, reason, duplicate_of, similarity FROM verdicts
           WHERE step IN ('ingest', 'exact', 'rules', 'near', 'ground', 'equal') AND NOT kept ORDER BY query_id"""
    )


@pytest.mark.slow
def test_logs_one_after_the_other_leave_what_one_log_would(logs: list[Path], day_two: tuple[Store, FunnelResult], tmp_path: Path) -> None:
    together = Store(tmp_path / "together")
    curate(together, logs, CONFIG)
    daily = copy_of(day_two[0], tmp_path)
    curate(daily, logs[2:], CONFIG)
    found = deduplicated(daily)
    assert found.equals(deduplicated(together))
    crossing = found.filter(pl.col("query_id").str.slice(0, 10) != pl.col("duplicate_of").str.slice(0, 10))
    assert crossing.group_by("reason").len().filter(pl.col("len") > 50).height == 3
    curate(alone := Store(tmp_path / "alone"), logs[2:], CONFIG)
    assert (
        deduplicated(alone).height < found.filter(pl.col("query_id").is_in(alone.query("SELECT query_id FROM queries")["query_id"])).height
    )


@pytest.mark.slow
def test_a_log_that_is_read_again_is_no_duplicate_of_itself(
    logs: list[Path], day_one: tuple[Store, FunnelResult], day_two: tuple[Store, FunnelResult], tmp_path: Path
) -> None:
    """Given two logs and then the first again, with more wanted of it, then its rows are judged as before, and its segment is not kept
    twice."""
    first, store = day_one[1], copy_of(day_two[0], tmp_path)
    again = curate(store, logs[:1], CONFIG.model_copy(update={"coverage": CoverageConfig(keep=8, max_encoded=40)}))
    assert again.run != first.run and len(again.task_ids) > len(first.task_ids)
    steps = ["exact", "rules", "near", "ground", "equal"]
    told = [run.funnel.filter(pl.col("step").is_in(steps)).select("step", "kept", "reasons") for run in (first, again)]
    assert told[0].equals(told[1])
    assert store.query("SELECT count(*) AS n FROM segments")["n"][0] == 2
    assert curate(store, logs[:1], CONFIG).run == first.run


@pytest.mark.slow
def test_a_log_that_overlaps_gives_tasks_of_what_is_new_alone(
    logs: list[Path], day_one: tuple[Store, FunnelResult], tmp_path: Path
) -> None:
    """Given a log, and a file that holds all of it and some rows more, then every task of the second is of a row that the first has not."""
    texts = pl.read_parquet(logs[0])["text"]
    pl.concat([texts, pl.read_parquet(logs[2])["text"]]).to_frame().write_parquet(tmp_path / "more.parquet")
    first, store = day_one[1], copy_of(day_one[0], tmp_path)
    more = curate(store, [tmp_path / "more.parquet"], CONFIG)
    rows = store.query("SELECT row FROM tasks JOIN queries USING (query_id) WHERE run = ?", [more.run])["row"]
    assert len(rows) == len(more.task_ids) > 0 and (rows >= texts.len()).all()
    assert not set(first.task_ids) & set(more.task_ids)


@pytest.mark.slow
def test_what_is_decided_otherwise_is_still_compared_with_everything(logs: list[Path], tmp_path: Path) -> None:
    """Given a log read with other rules and another threshold, then the next is compared with it; read with another seed of the sketches,
    it is not, and the run says so."""
    store = Store(tmp_path / "store")
    first = curate(store, logs[:1], CONFIG.model_copy(update={"rules": RulesConfig(min_letters=8), "near": NearConfig(threshold=0.8)}))
    assert first.not_compared is None

    assert near_in_other_files(store, curate(store, logs[1:2], CONFIG).run) > 20
    other = curate(store, logs[1:2], CONFIG.model_copy(update={"near": NearConfig(seed=2)}))
    assert near_in_other_files(store, other.run) == 0
    assert other.not_compared is not None and "1,400 rows" in other.not_compared


def near_in_other_files(store: Store, run: str) -> int:
    sql = "SELECT count(*) AS n FROM verdicts WHERE run = ? AND step = 'near' AND duplicate_of[:10] <> query_id[:10]"
    return int(store.query(sql, [run])["n"][0])


@pytest.mark.slow
def test_what_other_rules_have_dropped_is_known_once_it_was_compared(tmp_path: Path) -> None:
    """Given a file whose rows the rules of a first run drop, and a second run keeps, then a slip in a later file is a near duplicate, as
    it is where there was no first run."""
    text = "please find me a quiet coffee shop near Willow Park for a long evening with friends from out of town"
    (tmp_path / "one.txt").write_text(f"{text}\n")
    (tmp_path / "two.txt").write_text(f"{text.replace('quiet', 'quite')}\n")
    strict = CONFIG.model_copy(update={"rules": RulesConfig(languages=("zh",))})
    for name, configs in (("straight", [CONFIG]), ("astray", [strict, CONFIG])):
        store = Store(tmp_path / name)
        for config in configs:
            curate(store, [tmp_path / "one.txt"], config)
        assert near_in_other_files(store, curate(store, [tmp_path / "two.txt"], CONFIG).run) == 1


@pytest.mark.slow
def test_what_came_between_old_files_and_new_ones_is_told(logs: list[Path], day_two: tuple[Store, FunnelResult], tmp_path: Path) -> None:
    mixed = curate(copy_of(day_two[0], tmp_path), [logs[0], logs[2]], CONFIG)
    assert mixed.not_compared is not None and "200 rows that were read after the first" in mixed.not_compared


@pytest.mark.slow
def test_rows_are_found_whatever_was_read_in_between(logs: list[Path], tmp_path: Path) -> None:
    """Given a file, a second one, and the first again by another column, when a fourth repeats rows of each with slips, then each of its
    duplicates stands beside the text that it is like."""
    texts = [pl.read_parquet(log)["text"][:400] for log in logs]
    first, second, fourth = (tmp_path / f"{name}.parquet" for name in ("first", "second", "fourth"))
    pl.DataFrame({"text": texts[0], "other": texts[1][:200].extend(texts[2][:200])}).write_parquet(first)
    pl.concat([texts[0][:100] + " please", texts[2]]).to_frame("text").write_parquet(second)
    (pl.concat([texts[0][:100], texts[1][:100], texts[2]]) + " ok").to_frame("text").write_parquet(fourth)
    store = Store(tmp_path / "store")
    for path, column in ((first, "text"), (second, "text"), (first, "other"), (fourth, "text")):
        last = curate(store, [path], CONFIG.model_copy(update={"ingest": IngestConfig(column=column, batch_rows=1000)}))
    assert store.query("SELECT position FROM segments ORDER BY 1")["position"].to_list() == [0, 1, 2, 3]
    by_id = dict(store.query("SELECT query_id, list(text) FROM queries GROUP BY 1").iter_rows())
    near_pairs = store.query(
        "SELECT query_id, duplicate_of, similarity FROM verdicts WHERE run = ? AND step = 'near' AND NOT kept", [last.run]
    )
    assert near_pairs["duplicate_of"].str.slice(0, 10).n_unique() >= 2 and near_pairs.height > 150
    for query_id, other, similarity in near_pairs.iter_rows():
        found = [jaccard(norm(mine), norm(text)) for mine in by_id[query_id] for text in by_id[other]]
        assert any(value == pytest.approx(similarity, abs=1e-6) for value in found)


def norm(text: str) -> str:
    return str(pl.select(normalise_text(pl.lit(text))).item())


@pytest.mark.slow
def test_components_go_on_from_what_was_joined_before(tmp_path: Path) -> None:
    """Given a wording and one with a slip on the first day, when the slip has another slip on the second, then it joins the first."""
    text = "please find me a quiet coffee shop near Willow Park for a long evening with friends from out of town"
    (tmp_path / "one.txt").write_text(f"{text}\n{text.replace('quiet', 'quite')}\n")
    (tmp_path / "two.txt").write_text(f"{text.replace('quiet', 'quite').replace('friends', 'freinds')}\nclose order o17 please\n")
    config = CONFIG.model_copy(update={"near": NearConfig(rule="components")})
    store = Store(tmp_path / "store")
    for name in ("one.txt", "two.txt"):
        curate(store, [tmp_path / name], config)
    told = store.query(
        """SELECT source, row, duplicate_of[12:]::INT AS first FROM verdicts JOIN queries USING (query_id)
           WHERE step = 'near' AND NOT kept ORDER BY 1, 2"""
    )
    assert told.rows() == [("one.txt", 1, 0), ("two.txt", 0, 0)]


@pytest.mark.slow
def test_only_new_files_are_read_where_only_those_are_wanted(logs: list[Path], day_one: tuple[Store, FunnelResult], tmp_path: Path) -> None:
    store, config = copy_of(day_one[0], tmp_path), CONFIG.model_copy(update={"only_new": True})
    second = curate(store, [logs[2], logs[0], logs[1]], config)
    assert second.funnel["rows_in"][0] == 1_800
    sources = store.query("SELECT DISTINCT source FROM queries WHERE run = ? ORDER BY 1", [second.run])["source"].to_list()
    assert sources == ["day-1.parquet", "day-2.parquet"]
    before = store.content_hash()
    with pytest.raises(NothingNew, match="3 in all"):
        curate(store, logs, config)
    assert store.content_hash() == before


TEXTS = st.lists(
    st.sampled_from(["find a cafe near the old bridge", "find a cafe near the old bridge ok", "abc", "close order 12"]), max_size=12
)


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS)
def test_bands_joined_in_two_goes_propose_what_one_go_does(early: list[str], late: list[str]) -> None:
    config = NearConfig(bands=3, rows_a_band=2)
    sketches = [near.sketch(pl.Series(texts, dtype=pl.String), config) for texts in (early, late)]
    rows = [np.arange(len(early), dtype=np.uint32), np.arange(len(early), len(early) + len(late), dtype=np.uint32)]
    kinds = np.concatenate([one.guards.kinds() for one in sketches])

    def told(found: near.BandPairs) -> tuple[list[int], list[int]]:
        return found.pairs.tolist(), found.firsts.tolist()

    for band in range(config.bands):
        keys = [one.keys[band] for one in sketches]
        whole = near.join(keys, rows, kinds)
        first = near.join(keys[:1], rows[:1], kinds)
        second = near.join(keys[1:], rows[1:], kinds, first.firsts)
        both: list[U64] = [np.sort(np.concatenate([first.pairs, second.pairs])), np.sort(np.concatenate([first.firsts, second.firsts]))]
        assert told(whole) == (both[0].tolist(), both[1].tolist())


def test_what_decides_no_row_makes_no_second_index(logs: list[Path], day_one: tuple[Store, FunnelResult]) -> None:
    store, first = day_one
    before = store.content_hash()
    strict = CONFIG.model_copy(update={"ingest": IngestConfig(batch_rows=1000, strict=True)})
    assert curate(store, logs[:1], strict).run == first.run
    assert store.content_hash() == before


def test_a_file_whose_rows_would_have_the_ids_of_anothers_is_refused(
    logs: list[Path], day_one: tuple[Store, FunnelResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = day_one
    before = store.content_hash()
    monkeypatch.setattr(dedup_index, "ID_DIGITS", 0)
    with pytest.raises(BadInput, match="read it into another store"):
        curate(store, logs[1:2], CONFIG)
    assert store.content_hash() == before
    curate(store, logs[:1], CONFIG)


@pytest.mark.slow
def test_an_older_index_that_does_not_say_who_asked_is_compared_with_all_the_same(
    logs: list[Path],
    day_one: tuple[Store, FunnelResult],
    day_two: tuple[Store, FunnelResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = copy_of(day_one[0], tmp_path)
    init = dedup_index.DedupIndex.__init__

    def without(self: dedup_index.DedupIndex, *given: Any) -> None:
        init(self, *given)
        for segment in self.segments:
            segment.parts.pop("asked")

    expected = deduplicated_of(day_two[0], day_two[1].run)
    monkeypatch.setattr(dedup_index.DedupIndex, "__init__", without)
    assert deduplicated_of(store, curate(store, logs[1:2], CONFIG).run).equals(expected)


def deduplicated_of(store: Store, run: str) -> pl.DataFrame:
    return store.query(
        "SELECT query_id, step, duplicate_of FROM verdicts WHERE run = ? AND step IN ('exact', 'near', 'equal') ORDER BY query_id", [run]
    )
