"""Versions of the tree in a store, and the rows that a tree is evolved on."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from filters import sample_queries
from filters.ingest import IngestConfig
from filters.taxonomy.annotate import Scripted
from filters.taxonomy.built_in import built_in
from filters.taxonomy.evolve import EvolveConfig, evolve
from filters.taxonomy.salient_terms import Corpus
from filters.taxonomy.tree import Node, Tree, tree_of
from filters.taxonomy.versions import newest, save_version, statistics_of, version, versions
from storage.errors import BadInput, HeadraceError
from storage.store import Store, part_id
from tests.filters.taxonomy.conftest import bag_of_words, worded


def small(*stems: str) -> Tree:
    return tree_of(Node(id=stem, examples=tuple(worded(stem, 20, seed=0))) for stem in stems)


def test_a_store_begins_with_the_built_in_tree_and_keeps_every_version(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert newest(store).tree == built_in()
    assert not store.exists()
    save_version(store, small("a", "b"), "edited")
    save_version(store, small("a"), "edited")
    found = versions(store)
    assert [(each.position, each.origin) for each in found] == [(1, "built_in"), (2, "edited"), (3, "edited")]
    assert [each.parent for each in found] == [None, built_in().id, small("a", "b").id]
    assert version(store, 2).tree == small("a", "b")
    assert newest(store).tree == small("a")


def test_what_is_the_newest_already_is_not_kept_again_but_an_older_tree_may_come_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for tree in (small("a"), small("a"), small("b"), small("a")):
        save_version(store, tree, "edited")
    assert [each.tree.id for each in versions(store)] == [tree.id for tree in (built_in(), small("a"), small("b"), small("a"))]


def test_two_writers_who_follow_one_version_cannot_both_win(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    save_version(store, small("a"), "edited")
    row = {"position": 2, "taxonomy_id": "x", "parent_id": built_in().id, "origin": "edited", "tree": "nodes: {}", "statistics": "{}"}
    late = store.write("taxonomies", part_id("taxonomies", ["x"], {}, 1), pl.DataFrame([row], schema_overrides={"position": pl.Int32}))
    with pytest.raises(HeadraceError, match="already holds"):
        store.commit([late])
    assert newest(store).tree == small("a")


def test_a_version_knows_how_well_it_fitted(tmp_path: Path) -> None:
    store, config = Store(tmp_path / "store"), EvolveConfig()
    texts = [text for stem in ("a", "b", "new") for text in worded(stem, 60, seed=5)]
    evolved = evolve(texts, bag_of_words(texts), Scripted(bag_of_words, Corpus(texts)), small("a", "b"), config)
    save_version(store, evolved.tree, "refined", statistics_of(evolved, config))
    told = newest(store).statistics
    assert told["rows"] == 180
    assert sum(told["counts"].values()) == 180
    assert told["agreement"] >= 0.97
    assert len(told["rounds"]) == len(evolved.rounds)
    assert set(told["open_labels"]) <= set(told["counts"])


def test_a_version_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no version 2 of the taxonomy; it has 1 to 1"):
        version(Store(tmp_path / "store"), 2)


def test_a_sample_of_files_depends_on_their_texts_and_the_seed_alone(tmp_path: Path) -> None:
    """Given the same requests in one file and in two in another order, then one sample is drawn, without junk and doubles."""
    texts = [f"find a cafe near bridge number {number}" for number in range(300)]
    pl.DataFrame({"text": [*texts, "hello", *texts[:50]]}).write_parquet(tmp_path / "one.parquet")
    pl.DataFrame({"text": texts[200:]}).write_ndjson(tmp_path / "two-a.jsonl")
    pl.DataFrame({"text": [text.upper() for text in texts[:200]]}).write_ndjson(tmp_path / "two-b.jsonl")
    one = sample_queries.sample_files([tmp_path / "one.parquet"], IngestConfig(), 100, seed=3)
    two = sample_queries.sample_files([tmp_path / "two-a.jsonl", tmp_path / "two-b.jsonl"], IngestConfig(), 100, seed=3)
    assert one == two
    assert len(set(one)) == 100
    assert set(one) <= set(texts)
    assert sample_queries.sample_files([tmp_path / "one.parquet"], IngestConfig(), 100, seed=4) != one
    assert len(sample_queries.sample_files([tmp_path / "one.parquet"], IngestConfig(), 1000, seed=3)) == 300


def test_without_queries_there_is_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no queries yet"):
        sample_queries.sample_store(Store(tmp_path / "store"), 10, seed=0)
    (tmp_path / "junk.txt").write_text("hello\nok\n")
    with pytest.raises(BadInput, match="no row is a request"):
        sample_queries.sample_files([tmp_path / "junk.txt"], IngestConfig(), 10, seed=0)
