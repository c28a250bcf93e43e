"""Exactly one verdict a row, whatever the steps do; a step that forgets a row is refused."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.verdicts import Verdicts


def report(rows: list[int], reasons: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"row": rows, "reason": reasons}, schema={"row": pl.UInt32, "reason": pl.String})


def drop(verdicts: Verdicts, step: str, rows: pl.DataFrame) -> None:
    verdicts.drop(step, [rows.drop_nulls("reason")], lambda: 0.5)


@given(st.lists(st.lists(st.sampled_from([None, None, "a", "b"]), min_size=20, max_size=20), min_size=1, max_size=5))
def test_steps_add_up_and_every_row_has_one_verdict(draws: list[list[str | None]]) -> None:
    verdicts = Verdicts(20)
    verdicts.text_bytes[:] = 10
    expected: dict[int, tuple[str, str]] = {}
    for number, reasons in enumerate(draws):
        living = [row for row in range(20) if row not in expected]
        drop(verdicts, f"step {number}", report(living, [reasons[row] for row in living]))
        expected |= {row: (f"step {number}", reason) for row in living if (reason := reasons[row])}
    funnel = verdicts.funnel(total_s=10.0)
    assert funnel["seconds"].sum() == 10.0
    assert funnel["rows_in"][0] == 20
    assert funnel["kept"].to_list()[:-1] == funnel["rows_in"].to_list()[1:]
    for row in funnel.iter_rows(named=True):
        assert row["rows_in"] == row["kept"] + row["dropped"]
        assert sum(json.loads(row["reasons"]).values()) == row["dropped"]
        assert row["size_bytes"] == 10 * row["kept"]
    frame = verdicts.frame()
    assert frame["row"].to_list() == list(range(20))
    for row, step, kept, reason in frame.select("row", "step", "kept", "reason").iter_rows():
        assert (step, kept, reason) == (
            (*expected[row][:1], False, expected[row][1]) if row in expected else (f"step {len(draws) - 1}", True, None)
        )


def test_a_row_that_was_dropped_is_dropped_by_no_other_step() -> None:
    verdicts = Verdicts(4)
    drop(verdicts, "first", report([1], ["gone"]))
    with pytest.raises(AssertionError, match="alive"):
        drop(verdicts, "second", report([0, 1], ["gone", "gone"]))
    verdicts = Verdicts(4)
    with pytest.raises(AssertionError, match="twice"):
        drop(verdicts, "second", report([2, 2], ["gone", "gone"]))


def duplicates(pairs: dict[int, int], reason: str = "twin") -> pl.DataFrame:
    rows = pl.DataFrame({"row": list(pairs), "duplicate_of": list(pairs.values())}, schema={"row": pl.UInt32, "duplicate_of": pl.UInt32})
    return rows.with_columns(reason=pl.lit(reason), similarity=pl.lit(0.8))


def test_duplicates_keep_what_they_duplicate() -> None:
    verdicts = Verdicts(2)
    drop(verdicts, "near", duplicates({1: 0}, "near_duplicate"))
    assert verdicts.frame().rows() == [(0, "near", True, None, None, None), (1, "near", False, "near_duplicate", 0, 0.8)]


def test_every_row_stands_for_those_that_duplicate_it_directly_or_not() -> None:
    """Given rows 10 to 15 after ten rows of earlier runs: 11 repeats 10, 13 repeats row 3 of an earlier run, then 10 goes for 14 and 12 for
    row 3, and 15 for its wording."""
    verdicts = Verdicts(6, first_row=10)
    drop(verdicts, "exact", duplicates({11: 10, 13: 3}))
    drop(verdicts, "rules", report([15], ["too_short"]))
    drop(verdicts, "near", duplicates({10: 14, 12: 3}))
    own, earlier = verdicts.count_represented("exact")
    assert (own.tolist(), earlier.rows()) == ([2, 1, 1, 1, 1, 1], [(3, 1)])
    own, earlier = verdicts.count_represented()
    assert (own.tolist(), earlier.rows()) == ([2, 1, 1, 1, 3, 1], [(3, 2)])
    assert verdicts.alive_after("exact").tolist() == [True, False, True, False, True, True]
    assert verdicts.alive_after("rules").tolist() == [True, False, True, False, True, False]
    assert verdicts.alive_after("near").tolist() == [False, False, False, False, True, False] == verdicts.is_alive.tolist()
