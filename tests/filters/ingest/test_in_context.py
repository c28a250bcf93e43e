"""What other columns say beside a query stands behind it, in all formats, and can be taken off again."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.ingest import IngestConfig, inspect, read_piece
from filters.ingest.in_context import LONGEST, Cell, split_context, with_context, without_context
from storage.errors import BadInput

ROWS = [
    ("a table for four", "San Jose", "Sino"),
    ("取消订单", "北京", None),
    ("where am I", None, None),
    ("say it", "a (b); c", " "),
    (None, "Rome", "map"),
    ("long", "x" * 500, None),
]
SAID = [
    "a table for four (city: San Jose; screen: Sino)",
    "取消订单 (city: 北京)",
    "where am I",
    "say it (city: a b c)",
    None,
    f"long (city: {'x' * LONGEST})",
]
CONFIG = IngestConfig(column="query", context=("city", "page.screen"), batch_rows=1_000)


def written(folder: Path, kind: str, times: int = 1) -> tuple[Path, IngestConfig]:
    path = folder / f"log.{kind}"
    rows = ROWS * times
    if kind == "jsonl":
        lines = ({"query": query, "city": city, "page": {"screen": screen}} for query, city, screen in rows)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path, CONFIG
    frame = pl.DataFrame(rows, schema=["query", "city", "screen"], orient="row")
    if kind == "parquet":
        frame.write_parquet(path, row_group_size=7)
    else:
        frame.fill_null("").write_csv(path)
    return path, CONFIG.model_copy(update={"context": ("city", "screen")})


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("times", [1, 800])
def test_each_format_is_read_row_by_row(tmp_path: Path, kind: str, times: int) -> None:
    path, config = written(tmp_path, kind, times)
    (source,) = inspect([path], config)
    texts = [text for piece in source.pieces for batch in read_piece(piece) for text in batch]
    expected = SAID * times
    if kind == "csv":  # an empty cell is an empty text, and has no context
        expected = ["" if text is None else text for text in expected]
    assert texts == expected and source.rows == len(expected)
    assert kind != "jsonl" or times == 1 or len(source.pieces) > 1


def test_columns_that_are_missing_or_named_twice_are_refused(tmp_path: Path) -> None:
    path, config = written(tmp_path, "csv")
    with pytest.raises(BadInput, match=r"no column 'town' .*name another with --context"):
        inspect([path], config.model_copy(update={"context": ("town",)}))
    with pytest.raises(BadInput, match=r"no column 'text' .*name the query's column with --column"):
        inspect([path], IngestConfig(context=("city",)))
    plain = tmp_path / "log.txt"
    plain.write_text("hello\n")
    with pytest.raises(BadInput, match="lines of text have no column beside the query"):
        inspect([plain], CONFIG)
    for named in (("city", "city"), ("query",), ("user.city", "shop.city")):
        with pytest.raises(ValueError, match="each column is named once"):
            IngestConfig(column="query", context=named)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_numbers_are_contexts_in_all_formats(tmp_path: Path, kind: str) -> None:
    frame = pl.DataFrame({"text": ["a table", "a room"], "people": [4, None], "price": [2.5, 3.0]})
    path = tmp_path / f"log.{kind}"
    {"jsonl": frame.write_ndjson, "parquet": frame.write_parquet, "csv": frame.write_csv}[kind](path)
    (source,) = inspect([path], IngestConfig(context=("people", "price")))
    texts = [text for piece in source.pieces for batch in read_piece(piece) for text in batch]
    assert texts[0] == "a table (people: 4; price: 2.5)" and texts[1] in ("a room (price: 3.0)", "a room (price: 3)")


@given(st.text(min_size=1), st.lists(st.text(), min_size=2, max_size=2))
def test_what_was_put_behind_a_text_comes_off_again(text: str, cells: list[str]) -> None:
    [full] = with_context(pl.Series([text]), [("a", pl.Series(cells[:1])), ("b.c", pl.Series(cells[1:]))]).to_list()
    alone, found = split_context(full, ("a", "b.c"))
    if found:
        assert alone == text.rstrip() or alone.rstrip() == text.rstrip()
        assert all(full[cell.start :].startswith(cell.value) for cell in found)
    else:
        assert full == text


def test_a_normalised_text_loses_its_context_too() -> None:
    norms = pl.Series(["close order o17 (city: \u5317\u4eac", "close order o17 (city: a; screen: b)", "close order o17 (note: a)"])
    assert without_context(pl.Series(["See it (City: Oakland)"]), ("City",)).to_list() == ["See it"]
    assert without_context(norms, ("City", "screen")).to_list() == ["close order o17", "close order o17", "close order o17 (note: a)"]


def test_only_known_labels_are_contexts() -> None:
    text = "see the hall (city: Rome)"
    assert split_context(text, ()) == (text, [])
    assert split_context(text, ("town",)) == (text, [])
    assert split_context(text, ("city",)) == ("see the hall", [Cell("city", "Rome", 20)])
