"""A funnel that does not add up cannot be committed."""

import json

import polars as pl
import pytest

from storage.errors import HeadraceError
from storage.store import Store, part_id
from tests.storage.conftest import RUN, funnel_parts


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def changed(store: Store, table: str, change) -> list:
    """The parts of a good run, one of them changed."""
    parts = {part.table: part for part in funnel_parts(store)}
    frame = change(pl.read_parquet(store.root / parts[table].path))
    parts[table] = store.write(table, part_id(table, ["changed"], {}, 1), frame)
    return list(parts.values())


def test_a_run_that_adds_up_is_committed_at_once_or_in_pieces(store, tmp_path):
    store.commit(funnel_parts(store))
    assert store.query("FROM funnel").height == 4
    pieces = Store(tmp_path / "pieces")
    for part in funnel_parts(pieces):
        pieces.commit([part])
    assert pieces.content_hash() == store.content_hash()


def at(row: int, **values):
    return lambda frame: (
        frame.with_row_index()
        .with_columns(
            pl.when(pl.col("index") == row).then(pl.lit(value)).otherwise(pl.col(name)).cast(frame.schema[name]).alias(name)
            for name, value in values.items()
        )
        .drop("index")
    )


@pytest.mark.parametrize(
    ("table", "change", "words"),
    [
        ("funnel", at(1, kept=5), "step rules read 5 rows, kept 5 and dropped 1"),
        ("funnel", at(1, rows_in=6, kept=5), "step exact kept 5 rows, but step rules read 6"),
        ("funnel", at(2, reasons=json.dumps({"near duplicate": 2})), "its reasons"),
        ("funnel", lambda frame: frame[1:], "read 5 rows, but 6 queries are stored"),
        ("verdicts", lambda frame: frame[1:], "6 rows were read, but 5 verdicts"),
        ("verdicts", at(0, query_id="q-unknown"), "1 verdicts are on queries that are not stored"),
        ("verdicts", at(5, kept=True), "last step kept 2 rows, but 3 verdicts say kept"),
        ("verdicts", at(1, step="rules"), "step exact dropped 1 rows, but the verdicts"),
        ("verdicts", at(1, step=None), "step exact dropped 1 rows, but the verdicts"),
        ("queries", lambda frame: frame[:5], "read 6 rows, but 5 queries"),
    ],
)
def test_what_does_not_add_up_is_refused_whole(store, table, change, words):
    with pytest.raises(HeadraceError, match=words) as refusal:
        store.commit(changed(store, table, change))
    assert RUN in str(refusal.value)
    assert "a fault of Headrace, not of your files: report it" in str(refusal.value)
    assert all(store.query(f"FROM {name}").is_empty() for name in ("funnel", "queries", "verdicts"))


def test_a_second_verdict_on_a_query_is_refused_even_in_a_later_commit(store):
    store.commit(funnel_parts(store))
    late = store.write("verdicts", part_id("verdicts", ["late"], {}, 1), pl.read_parquet(next(store.lake.glob("verdicts/*.parquet")))[:1])
    with pytest.raises(HeadraceError, match="7 verdicts"):
        store.commit([late])


def test_two_verdicts_on_one_row_and_none_on_another_are_refused(store):
    good = funnel_parts(store)
    verdicts = pl.read_parquet(store.root / good[1].path)
    first, second = verdicts[:1], at(0, query_id="q-0")(verdicts[4:5])
    halves = [
        store.write("verdicts", part_id("verdicts", [str(n)], {}, 1), frame)
        for n, frame in enumerate([pl.concat([first, verdicts[1:4], verdicts[5:]]), second])
    ]
    with pytest.raises(HeadraceError, match="another one"):
        store.commit([good[0], *halves, good[2]])


def test_a_query_stored_twice_beside_one_that_is_not_stored_is_refused(store):
    good = funnel_parts(store)
    queries = pl.read_parquet(store.root / good[0].path)
    halves = [store.write("queries", part_id("queries", [str(n)], {}, 1), frame) for n, frame in enumerate([queries[:5], queries[1:2]])]
    with pytest.raises(HeadraceError, match="1 verdicts are on queries that are not stored"):
        store.commit([*halves, *good[1:]])


def test_runs_are_counted_apart(store):
    store.commit([*funnel_parts(store, "run-a", n=1), *funnel_parts(store, "run-b", n=2)])
    assert store.query("SELECT run, count(*) AS n FROM verdicts GROUP BY 1 ORDER BY 1").rows() == [("run-a", 6), ("run-b", 6)]
