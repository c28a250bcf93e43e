"""What the funnel's benchmark measures on, and how it counts what a deduplicator found and lost."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.funnel_sections import contestants
from benchmarks.funnel_sections import rows as funnel_rows
from benchmarks.funnel_sections.rows import Rows, needs_lost, recall
from filters.dedup.minhash import jaccard, shingles


@pytest.mark.parametrize("text", ["sevens", "海口", "seven b", "去雪松商城的路况", "the way to iron pier"])
def test_peers_get_the_shingles_that_the_near_step_compares(text: str) -> None:
    assert contestants.grams(text) == shingles(text.encode())
    hashes, offsets = contestants._flat([text, text, "some other"])
    assert offsets.tolist()[:2] == [0, len(hashes[: offsets[1]])] and offsets[1] == max(1, len(text.encode()) - 5)
    assert hashes[: offsets[1]].tolist() == hashes[offsets[1] : offsets[2]].tolist()


def test_alike_is_the_true_jaccard() -> None:
    one, two = "show me the way to iron pier", "show me the way to iron piers"
    assert jaccard(one, two) >= 0.7 and contestants.alike(contestants.grams(one), contestants.grams(two))
    assert not contestants.alike(contestants.grams(one), contestants.grams("a table for two at noon"))


def test_recall_and_needs_are_counted_from_what_is_left(tmp_path: Path) -> None:
    found = Rows(tmp_path / "rows.parquet", tmp_path / "pairs.parquet")
    norms = ["a" * 30, "b" * 30, "路" * 30, "口" * 30, "c" * 130]
    pl.DataFrame(
        {"row": range(5), "norm": norms, "language": ["en", "en", "zh", "zh", "en"], "frame": [0, 0, 1, 1, None]},
        schema_overrides={"frame": pl.UInt32},
    ).write_parquet(found.rows)
    pl.DataFrame({"first": [0, 2, 0], "second": [1, 3, 4], "jaccard": [0.9, 0.7, 0.6]}).write_parquet(found.pairs)

    # given that one row of the English pair is dropped, and both of the Chinese one
    figures = recall(found, [1, 4])
    assert figures["pair_recall"] == figures["pair_recall_en"] == figures["pair_recall_zh"] == 1.0
    assert needs_lost(found, [1, 4]) == 0.5
    # given that nothing is dropped
    assert recall(found, range(5))["pair_recall"] == 0.0 and needs_lost(found, range(5)) == 0.0
    # given only the first two rows
    assert recall(found, [0], rows=2)["pair_recall"] == 1.0 and needs_lost(found, [0], rows=2) == 0.0


def test_near_rows_are_what_the_near_step_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(funnel_rows, "KEPT", tmp_path)
    monkeypatch.setattr(funnel_rows, "WORK", tmp_path / "work")
    monkeypatch.setattr(funnel_rows, "alone", lambda call, *given: call(*given))
    found = funnel_rows.near_rows(3000)
    rows, pairs = pl.read_parquet(found.rows), pl.read_parquet(found.pairs)
    assert rows.height == 3000 and rows["norm"].n_unique() == 3000 and set(rows["language"]) == {"en", "zh"}
    assert pairs.height > 300 and (pairs["first"] < pairs["second"]).all() and pairs["second"].max() < 3000
    left, cpu_s, _ = funnel_rows._near_left(found)
    assert cpu_s > 0 and recall(found, left)["pair_recall"] > 0.98 and needs_lost(found, left) < 0.01
    # keeping only the rows of no pair loses needs, and keeping all finds nothing: both figures can fail
    alone = sorted(set(range(3000)) - set(pairs["first"]) - set(pairs["second"]))
    assert needs_lost(found, alone) > 0.05 and recall(found, range(3000))["pair_recall"] == 0.0
