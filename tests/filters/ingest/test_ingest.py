"""Reading a person's files: good rows come as they are, bad rows as nulls, bad files not at all."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.ingest import IngestConfig, inspect, read_piece
from storage.errors import BadInput

CONFIG = IngestConfig(column="query", batch_rows=1000)
TEXTS = ["find a cafe", "取消订单 o17", "", 'say "hi", please', "tab\tand, comma"]


def read(path: Path, config: IngestConfig = CONFIG) -> list[str | None]:
    (source,) = inspect([path], config)
    texts = [text for piece in source.pieces for batch in read_piece(piece) for text in batch]
    assert source.rows == len(texts)
    return texts


def written(folder: Path, kind: str, texts: list[str]) -> Path:
    path = folder / f"log.{kind}"
    frame = pl.DataFrame({"id": range(len(texts)), "query": texts}, schema={"id": pl.Int64, "query": pl.String})
    if kind == "parquet":
        frame.write_parquet(path)
    elif kind == "csv":
        frame.write_csv(path)
    elif kind == "tsv":
        frame.write_csv(path, separator="\t")
    elif kind == "jsonl":
        frame.write_ndjson(path)
    else:
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "tsv", "txt"])
def test_every_format_gives_the_texts_in_order(tmp_path: Path, kind: str) -> None:
    assert read(written(tmp_path, kind, TEXTS)) == TEXTS


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), min_size=1, max_size=20))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, kind: str, texts: list[str]) -> None:
    assert read(written(tmp_path_factory.mktemp("any"), kind, texts)) == texts


def test_batches_are_bounded_and_rows_count_through_files(tmp_path: Path) -> None:
    first = written(tmp_path, "txt", [f"query {index}" for index in range(2500)])
    second = written(tmp_path, "csv", ["one more", "and another"])
    sources = inspect([first, second], CONFIG)
    assert [(source.first_row, source.rows) for source in sources] == [(0, 2500), (2500, 2)]
    assert [rows for piece in sources[0].pieces for rows in piece.batches] == [1000, 1000, 500]


def test_rows_that_cannot_be_decoded_are_null_and_keep_their_place(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = json.dumps({"query": "fine"}).encode()
    bad = [b"not json", b'{"query": 5}', b'{"query": null}', b'{"other": "x"}', b"[1]", b'{"query": "\xff"}', b'{"query": "\\ud800"}', b""]
    lines = [good, *[line for pair in zip(bad, [good] * len(bad), strict=True) for line in pair], good]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert read(path) == ["fine", *[value for _ in bad for value in (None, "fine")], "fine"]


def test_csv_rows_of_another_length_and_invalid_bytes_are_null(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b'id,query\n1,good\n2\n3,"two\nlines"\n4,caf\xe9\n5,a,b\n6,good\n7,good\n')
    assert read(path) == ["good", None, "two\nlines", None, None, "good", "good"]


def test_a_quote_that_is_never_closed_costs_its_own_line_only(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    for closed in ('5,"good too"', "5,good too"):
        path.write_text(f'id,query\n1,good\n2,"never closed\n3,good\n4,"two\nlines"\n{closed}\n6,"also\n7,good\n')
        assert read(path) == ["good", None, "good", "two\nlines", "good too", None, "good"]
    path.write_text('id,query\n1,good\n2,"never closed\n' + "3,good\n" * 40_000)
    assert read(path) == ["good", None, *["good"] * 40_000]


def test_invalid_bytes_in_a_parquet_column_are_null(tmp_path: Path) -> None:
    raw = pa.array([b"ok", b"\xff\xfe", None, b"fine", b"ok too"])
    pq.write_table(
        pa.table({"query": pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)}), tmp_path / "log.parquet"
    )
    assert read(tmp_path / "log.parquet") == ["ok", None, None, "fine", "ok too"]


def test_categories_are_texts_too(tmp_path: Path) -> None:
    frame = pl.DataFrame({"query": ["a b", "c d", "a b"]}, schema={"query": pl.Categorical})
    frame.write_parquet(tmp_path / "log.parquet")
    assert read(tmp_path / "log.parquet") == ["a b", "c d", "a b"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(b"\xef\xbb\xbfquery\nhello\n")
    assert read(tmp_path / "log.csv") == ["hello"]


def refused(path: Path, *words: str, config: IngestConfig = CONFIG) -> None:
    with pytest.raises(BadInput) as caught:
        inspect([path], config)
    message = str(caught.value)
    assert "\n" not in message
    for word in (path.name, *words):
        assert word in message


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_a_wrong_column_is_refused_with_the_nearest(tmp_path: Path, kind: str) -> None:
    refused(written(tmp_path, kind, TEXTS), "no column 'queries'", "nearest: query", "--column", config=IngestConfig(column="queries"))


def test_missing_empty_and_strange_files_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "no.csv", "no such file")
    (tmp_path / "tickets.csv").write_text("text\nhi\n")
    refused(tmp_path / "ticekts.csv", "no such file; did you mean", "tickets.csv?")
    refused(tmp_path, "not a file")
    for name, content, words in [
        ("log.txt", b"", "empty"),
        ("log.csv", b"id,query\n", "no rows"),
        ("log.parquet", b"PAR1 but not really", "not Parquet"),
        ("log.docx", b"query\nhello\n", "unknown format"),
        ("u16.txt", "find a cafe\n".encode("utf-16"), "UTF-8"),
        ("gbk.txt", "附近有什么好吃的\n帮我取消订单\n".encode("gbk"), "UTF-8"),
        ("log.jsonl", b"these\nare\nnot json\n", "cannot be decoded"),
    ]:
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, words)
    with pytest.raises(BadInput, match="no query file"):
        inspect([], CONFIG)


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    texts = [f"query number {index} of many" for index in range(5000)]
    for kind in ("parquet", "jsonl"):
        path = written(tmp_path, kind, texts)
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3 + 3])
        refused(path, "truncated")
    (tmp_path / "log.csv").write_text('query\n"good"\n"and then it ends')
    refused(tmp_path / "log.csv", "truncated")


@pytest.mark.parametrize("last", ["{}", "[1]", "null", '{"query": 5}', "[" * 100_000])
def test_a_last_line_of_json_that_is_no_query_costs_its_own_row_only(tmp_path: Path, last: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"query": "one"}\n{"query": "two"}\n' + last)
    assert read(path) == ["one", "two", None]
    path.write_text('{"query": "one"}\n{"query": "two"}\n' + '{"query": "thr')
    refused(path, "truncated")


def test_a_damaged_page_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet", [f"query number {index * 7919} of many" for index in range(20_000)])
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 3000] = b"\x5a" * 3000
    path.write_bytes(content)
    refused(path, "damaged")


def test_a_column_that_is_no_text_is_refused(tmp_path: Path) -> None:
    refused(written(tmp_path, "parquet", TEXTS), "holds int64, not text", config=IngestConfig(column="id"))


def test_a_column_that_is_mostly_empty_is_refused_as_such(tmp_path: Path) -> None:
    pl.DataFrame({"query": ["a b", None, None], "text": ["c", "d", "e"]}).write_parquet(tmp_path / "log.parquet")
    refused(tmp_path / "log.parquet", "column 'query' is empty in 2 of 3 rows", "--column")
    (tmp_path / "log.jsonl").write_text('{"query": "a"}\n{"query": null}\n{"text": "b"}\n{"text": "c"}\n')
    refused(tmp_path / "log.jsonl", "column 'query' is empty in 3 of 4 rows")
    (tmp_path / "log.jsonl").write_text('{"query": "a"}\n{"query": null}\nbroken\nbroken\n')
    refused(tmp_path / "log.jsonl", "2 of 4 rows cannot be decoded, 1 are empty")


def test_the_same_content_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "txt", TEXTS)
    (tmp_path / "copy.txt").write_bytes(path.read_bytes())
    with pytest.raises(BadInput, match=r"copy\.txt: same content as .*log\.txt"):
        inspect([path, tmp_path / "copy.txt"], CONFIG)


def test_strict_refuses_what_lenient_drops(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"query": "fine"}\n{"query": "fine too"}\n{"query": 3}\n')
    assert read(tmp_path / "log.jsonl") == ["fine", "fine too", None]
    refused(tmp_path / "log.jsonl", "row 2", config=IngestConfig(column="query", strict=True))
