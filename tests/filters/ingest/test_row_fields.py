"""All columns of chosen rows, from every format, as they were written."""

import datetime
import decimal
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import ingest
from filters.ingest import IngestConfig
from filters.ingest.row_fields import to_json, with_value
from storage.errors import HeadraceError

ROWS = [{"text": f"query number {n}", "ticket": n, "tags": ["a", {"b": n}], "stars": None if n % 3 else n / 2} for n in range(2500)]
CONFIG = IngestConfig(batch_rows=1000)


def fields(path: Path, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """Row number -> what is read of it."""
    found, first = {}, 0
    for piece in ingest.inspect([path], CONFIG)[0].pieces:
        rows = sum(piece.batches)
        places = sorted(number - first for number in wanted if first <= number < first + rows)
        found |= dict(zip((place + first for place in places), ingest.read_fields(piece, places), strict=True))
        first += rows
    return found


WANTED = {0, 1, 999, 1000, 1001, 1999, 2400, 2499}


def test_json_lines(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "log.jsonl").write_text(lines)
    with gzip.open(tmp_path / "log.jsonl.gz", "wt") as packed:
        packed.write(lines)
    for name in ("log.jsonl", "log.jsonl.gz"):
        assert fields(tmp_path / name, WANTED) == {number: ROWS[number] for number in WANTED}


def test_parquet_in_several_row_groups(tmp_path: Path) -> None:
    rows = [{**row, "tags": ["a"], "day": datetime.date(2026, 1, 2)} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet", row_group_size=700)
    assert fields(tmp_path / "log.parquet", WANTED) == {number: rows[number] | {"day": "2026-01-02"} for number in WANTED}


def test_csv_with_line_breaks_in_a_field_and_text(tmp_path: Path) -> None:
    lines = [f'"query\nnumber {n}",{n},"a, b"\n' for n in range(2500)]
    (tmp_path / "log.csv").write_text("text,ticket,note\n" + "".join(lines))
    found = fields(tmp_path / "log.csv", WANTED)
    assert found[1001] == {"text": "query\nnumber 1001", "ticket": "1001", "note": "a, b"} and len(found) == len(WANTED)
    (tmp_path / "log.txt").write_text("".join(f"query {n}\n" for n in range(20)))
    assert fields(tmp_path / "log.txt", {3}) == {3: {}}


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (piece, *_) = ingest.inspect([path], CONFIG)[0].pieces
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[1:]))
    with pytest.raises(HeadraceError, match="no longer what it was"):
        ingest.read_fields(piece, [3])


def test_times_that_python_has_not_are_written_all_the_same(tmp_path: Path) -> None:
    """Given nanoseconds, the year 20000, and a zone that nobody knows, then each is text; other times are as Python writes them."""
    columns = {
        "text": pa.array(["a query"]),
        "exact": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        "far": pa.array([569_000_000_000_000_000], pa.timestamp("us")),
        "odd": pa.array([1_700_000_000_000_000], pa.timestamp("us", "+25:00")),
        "plain": pa.array([1_700_000_000_000_000], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    (row,) = fields(tmp_path / "log.parquet", {0}).values()
    assert row["exact"] == "2023-11-14T22:13:20.123456789" and row["plain"] == "2023-11-14T22:13:20+00:00"
    assert row["odd"] == "2023-11-14T22:13:20.000000+00:00" and row["far"].startswith("20000-")


def test_columns_of_one_name_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("text,note,note,note_2\na query,a,b,c\n")
    expected = {"text": "a query", "note": "a", "note_3": "b", "note_2": "c"}
    assert fields(tmp_path / "log.csv", {0}) == {0: expected}
    pq.write_table(
        pa.table([pa.array([value]) for value in expected.values()], ["text", "note", "note", "note_2"]), tmp_path / "log.parquet"
    )
    assert fields(tmp_path / "log.parquet", {0}) == {0: expected}


def test_whole_numbers_of_any_size_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"text": "a query", "id": 123456789012345678901234567890}\n')
    assert fields(tmp_path / "log.jsonl", {0})[0]["id"] == 123456789012345678901234567890


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=9), st.dates(), st.datetimes(), st.decimals()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@given(VALUES)
def test_every_value_is_json_afterwards_and_json_is_left_as_it_is(value: object) -> None:
    out = to_json(value)
    assert to_json(json.loads(json.dumps(out, allow_nan=False))) == out


def test_values_that_json_has_not() -> None:
    assert [to_json(value) for value in (float("nan"), b"\x00", decimal.Decimal("1.50"), datetime.timedelta(hours=1), "a\ud800")] == [
        *(None, "AA==", "1.50", 3600.0, "a?")
    ]


def test_a_value_is_replaced_at_the_end_of_a_path() -> None:
    assert with_value({"m": [{"c": "old"}, 2], "k": 1}, ("m", "0", "c"), "new") == {"m": [{"c": "new"}, 2], "k": 1}
    assert with_value({}, ("text",), "new") == {"text": "new"}
