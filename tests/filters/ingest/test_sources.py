"""Where query files may lie, how they may be packed, and where in a row the query may stand."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filters.ingest import IngestConfig, inspect, read_piece
from flows.validation import query_files
from storage.errors import BadInput

ROWS = [
    {"request": {"text": f"find a cafe {index}"}, "messages": [{"role": "user", "content": f"取消订单 {index}"}], "a.b": f"plain {index}"}
    for index in range(2500)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
COLUMNS: dict[str, Callable[[dict[str, object]], object]] = {
    "request.text": lambda row: row["request"]["text"],  # type: ignore[index]
    "messages.0.content": lambda row: row["messages"][0]["content"],  # type: ignore[index]
    "a.b": lambda row: row["a.b"],
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda content: gzip.compress(content[:99_999]) + gzip.compress(content[99_999:]),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda content: bytes(pa.compress(content, "zstd", asbytes=True)),
    "lz4": lambda content: bytes(pa.compress(content, "lz4", asbytes=True)),
}


def read(name: str | Path, column: str = "query") -> list[str | None]:
    sources = inspect([name], IngestConfig(column=column, batch_rows=1000))
    return [text for source in sources for piece in source.pieces for batch in read_piece(piece) for text in batch]


def refused(name: str | Path, *words: str, column: str = "query") -> None:
    with pytest.raises(BadInput) as caught:
        inspect([name], IngestConfig(column=column, batch_rows=1000))
    message = str(caught.value)
    assert "\n" not in message
    for word in (str(name), *words):
        assert word in message


# ---- where --------------------------------------------------------------------------------------------------------------


def test_a_pattern_stands_for_its_files_sorted(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/er/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"first of {name}\nsecond of {name}\n")
    names = [Path(source.location).name for source in inspect([f"{tmp_path}/**/*.txt"], IngestConfig())]
    assert names == ["a.txt", "b.txt", "c.txt"]
    assert read(f"{tmp_path}/[ab].txt")[::2] == ["first of a.txt", "first of b.txt"]
    refused(f"{tmp_path}/*.csv", "no file matches this pattern")


def test_a_name_that_looks_like_a_pattern_is_a_name_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "log[1].txt").write_text("hello there\n")
    (tmp_path / "log1.txt").write_text("another file\n")
    assert read(tmp_path / "log[1].txt") == ["hello there"]


def test_relative_names_are_made_absolute_and_urls_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt"):
        Path(name).write_text("hello\n")
    fsspec.filesystem("memory").pipe("/queries/c.txt", b"hello\n")
    assert query_files(["*.txt", "memory://queries/c.txt"]) == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), "memory://queries/c.txt"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "jsonl.gz"])
def test_a_url_is_read_like_a_local_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pl.DataFrame(ROWS).write_parquet(path, row_group_size=700)
    else:
        path.write_bytes(PACKED["gz"](LINES) if kind.endswith("gz") else LINES)
    fsspec.filesystem("memory").pipe(f"/{tmp_path.name}/log.{kind}", path.read_bytes())
    url = f"memory://{tmp_path.name}/log.{kind}"
    (remote,) = inspect([url], IngestConfig(column="a.b"))
    (local,) = inspect([f"file://{path}"], IngestConfig(column="a.b"))
    assert (remote.content_hash, remote.rows, remote.name) == (local.content_hash, 2500, f"log.{kind}")
    assert read(url, "a.b") == read(path, "a.b") == [row["a.b"] for row in ROWS]
    assert read(f"memory://{tmp_path.name}/*.{kind}", "a.b") == read(path, "a.b")


def test_a_url_with_a_bracket_in_its_name_is_that_file() -> None:
    files = fsspec.filesystem("memory")
    for name in ("log[1].txt", "log1.txt"):
        files.pipe(f"/brackets/{name}", f"{name}\n".encode())
    assert query_files(["memory://brackets/log[1].txt"]) == ["memory://brackets/log[1].txt"]
    found = inspect(query_files(["memory://brackets/*.txt"]), IngestConfig())
    assert sorted(source.name for source in found) == ["log1.txt", "log[1].txt"]


def test_a_url_that_cannot_be_read_says_what_is_missing() -> None:
    refused("memory://nowhere/log.jsonl", "no such file")
    refused("memory://nowhere/*.jsonl", "no file matches this pattern")
    refused("strange://bucket/log.jsonl", "nothing is known of strange://")


def test_a_driver_that_is_not_installed_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['s3fs', 'aiohttp']))\n"
        "from filters.ingest import IngestConfig, inspect\n"
        "for name in sys.argv[1:]:\n    try: inspect([name], IngestConfig())\n    except Exception as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, "s3://bucket/log.jsonl", "https://host/log.jsonl"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert [line.split(" not ")[1] for line in ran.stdout.splitlines()] == [
        "installed; get it with `pip install s3fs`",
        "installed; get it with `pip install 'fsspec[http]'`",
    ]


# ---- packed ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", PACKED)
def test_compressed_lines_are_one_piece_of_many_batches(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"log.jsonl.{packing}"
    path.write_bytes(PACKED[packing](LINES))
    (source,) = inspect([path], IngestConfig(column="a.b", batch_rows=1000))
    assert [piece.batches for piece in source.pieces] == [(1000, 1000, 500)]
    assert read(path, "a.b") == [row["a.b"] for row in ROWS]


@pytest.mark.parametrize("packing", PACKED)
def test_what_is_not_whole_or_not_so_packed_is_refused(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"log.jsonl.{packing}"
    path.write_bytes(PACKED[packing](LINES + os.urandom(50_000).hex().encode())[:-20_000])
    refused(path, "truncated", column="a.b")
    path.write_bytes(LINES)
    refused(path, "damaged", column="a.b")


def test_csv_and_text_may_be_compressed_and_parquet_may_not(tmp_path: Path) -> None:
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(b'query,id\n"find, a cafe",1\n'))
    (tmp_path / "log.txt.xz").write_bytes(lzma.compress(b"\xef\xbb\xbffind a cafe\r\n\r\nlast"))
    (tmp_path / "log.parquet.gz").write_bytes(b"anything")
    (tmp_path / "empty.txt.gz").write_bytes(gzip.compress(b""))
    assert read(tmp_path / "log.csv.gz") == ["find, a cafe"]
    assert read(tmp_path / "log.txt.xz") == ["find a cafe", "", "last"]
    refused(tmp_path / "log.parquet.gz", "unknown format")
    refused(tmp_path / "empty.txt.gz", "the file is empty")


# ---- inside a row -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_dotted_path_leads_into_nested_data_and_a_plain_name_wins(tmp_path: Path, kind: str, column: str) -> None:
    path = tmp_path / f"log.{kind}"
    rows = [{**row, "a": {"b": "nested"}} for row in ROWS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows)) if kind == "jsonl" else pl.DataFrame(rows).write_parquet(path)
    assert read(path, column) == [COLUMNS[column](row) for row in ROWS]
    assert read(path, "a.b") == [row["a.b"] for row in ROWS]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_path_that_leads_nowhere_in_a_row_is_a_null(tmp_path: Path, kind: str) -> None:
    rows = [{"m": [{"text": "a"}, {"text": "b"}]}, {"m": [{"text": "c"}]}, {"m": []}, {"m": None}, {"m": [None, {"text": "d"}]}]
    rows += [{"m": [{"text": None}, {"text": None}]}, *[{"m": [{"text": "e"}, {"text": "f"}]}] * 6]
    path = tmp_path / f"log.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=5)
    assert read(path, "m.0.text") == ["a", "c", None, None, None, None, *"eeeeee"]
    assert read(path, "m.1.text") == ["b", None, None, None, "d", None, *"ffffff"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_missing_path_is_refused_with_what_there_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"log.{kind}"
    path.write_bytes(LINES) if kind == "jsonl" else pl.DataFrame(ROWS).write_parquet(path)
    listed = "it has: request.text, messages.0.role, messages.0.content, a.b"
    refused(path, "no column 'request.txt'", "nearest: request.text", listed, column="request.txt")
    refused(path, "no column 'request.text.0'", listed, column="request.text.0")
    refused(path, "messages.x.content", listed, column="messages.x.content")


def test_one_of_several_files_with_the_wrong_type_is_named(tmp_path: Path) -> None:
    for name, values in (("a", ["find a cafe"]), ("b", [5]), ("c", ["one more"])):
        pl.DataFrame({"query": values}).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(BadInput, match=r"b\.parquet: column 'query' holds int64, not text"):
        inspect([f"{tmp_path}/*.parquet"], IngestConfig(column="query"))
