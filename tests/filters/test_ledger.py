"""Exactly one verdict a row, whatever the steps do; a step that forgets a row is refused."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.ledger import Ledger


def report(rows: list[int], reasons: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"row": rows, "reason": reasons}, schema={"row": pl.UInt32, "reason": pl.String})


@given(st.lists(st.lists(st.sampled_from([None, None, "a", "b"]), min_size=20, max_size=20), min_size=1, max_size=5))
def test_steps_add_up_and_every_row_has_one_verdict(draws: list[list[str | None]]) -> None:
    ledger = Ledger(20)
    ledger.text_bytes[:] = 10
    expected: dict[int, tuple[str, str]] = {}
    for number, reasons in enumerate(draws):
        living = [row for row in range(20) if row not in expected]
        ledger.record(f"step {number}", report(living, [reasons[row] for row in living]), 0.5)
        expected |= {row: (f"step {number}", reason) for row in living if (reason := reasons[row])}
    funnel = ledger.funnel(total_s=10.0)
    assert funnel["seconds"].sum() == 10.0
    assert funnel["rows_in"][0] == 20
    assert funnel["kept"].to_list()[:-1] == funnel["rows_in"].to_list()[1:]
    for row in funnel.iter_rows(named=True):
        assert row["rows_in"] == row["kept"] + row["dropped"]
        assert sum(json.loads(row["reasons"]).values()) == row["dropped"]
        assert row["size_bytes"] == 10 * row["kept"]
    verdicts = ledger.verdicts()
    assert verdicts["row"].to_list() == list(range(20))
    for row, step, kept, reason in verdicts.select("row", "step", "kept", "reason").iter_rows():
        assert (step, kept, reason) == (
            (*expected[row][:1], False, expected[row][1]) if row in expected else (f"step {len(draws) - 1}", True, None)
        )


def test_a_step_must_report_on_just_the_rows_that_are_alive() -> None:
    ledger = Ledger(4)
    ledger.record("first", report([0, 1, 2, 3], [None, "gone", None, None]), 0.0)
    for rows in ([0, 2], [0, 1, 2], [0, 2, 3, 3]):
        with pytest.raises(AssertionError, match="alive"):
            ledger.record("second", report(rows, [None] * len(rows)), 0.0)
    with pytest.raises(AssertionError, match="twice"):
        ledger.record("second", report([0, 2, 2], [None, "gone", "gone"]), 0.0)


def test_duplicates_keep_what_they_duplicate() -> None:
    ledger = Ledger(2)
    found = report([1, 0], ["near_duplicate", None]).with_columns(
        duplicate_of=pl.Series([0, None], dtype=pl.UInt32), similarity=pl.Series([0.8, None])
    )
    ledger.record("near", found, 0.0)
    assert ledger.verdicts().rows() == [(0, "near", True, None, None, None), (1, "near", False, "near_duplicate", 0, 0.8)]
