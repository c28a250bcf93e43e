"""Bad input: refused with file and place named, or read on past it, and never with much memory."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filters.ingest import IngestConfig, inspect, read_piece
from storage.errors import BadInput

CONFIG = IngestConfig(column="query", batch_rows=1000)
LONG = "x" * 40_000_000
MEASURED = """
import sys
from pathlib import Path
from filters.ingest import IngestConfig, inspect, read_piece
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024
before = peak()
(source,) = inspect([sys.argv[1]], IngestConfig(column="query"))
texts = [text for piece in source.pieces for batch in read_piece(piece) for text in batch.str.slice(0, 9)]
print(peak() - before, texts[:3], len(texts))
"""


def read(path: Path) -> list[str | None]:
    return [text for source in inspect([path], CONFIG) for piece in source.pieces for batch in read_piece(piece) for text in batch]


def refused(path: Path, *words: str) -> str:
    with pytest.raises(BadInput) as caught:
        inspect([path], CONFIG)
    message = str(caught.value)
    assert "\n" not in message
    for word in (path.name, *words):
        assert word in message
    return message


def measured(path: Path) -> tuple[int, str]:
    """By how many MiB a process of its own grows when it reads a file, and what it says of the texts."""
    if sys.platform != "linux":
        pytest.skip("looks into /proc")
    command, environment = [sys.executable, "-c", MEASURED, str(path)], {**os.environ, "POLARS_MAX_THREADS": "2"}
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3], env=environment).stdout
    more_mib, texts = told.strip().split(" ", maxsplit=1)
    return int(more_mib), texts


# ---- lines without end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.txt", f"first\n{LONG}\nlast\n"),
        ("log.jsonl", f'{{"query": "first"}}\n{{"query": "{LONG}"}}\n{{"query": "last"}}\n'),
        ("ended.jsonl", f'{{"query": "first"}}\n{{"query": "last"}}\n{{"query": "{LONG}'),
        ("log.csv", f"id,query\n1,first\n2,{LONG}\n3,last\n"),
        ("quoted.csv", f'id,query\n1,first\n2,"{LONG}"\n3,last\n'),
        ("fields.csv", f"id,query\n1,first\n2,{LONG.replace('xx', 'x,')}\n3,last\n"),
    ],
)
def test_a_line_of_40_mb_is_one_row_and_never_held(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    more_mib, texts = measured(tmp_path / name)
    assert texts == ("['first', 'last', None] 3" if name.startswith("ended") else "['first', None, 'last'] 3")
    assert more_mib <= 35, "MiB beyond what importing takes; 40 would hold the line"


def test_long_texts_that_are_repeated_are_not_decoded_all_at_once(tmp_path: Path) -> None:
    """Given 400 MB of texts that take a few kilobytes in the file, since each is in its dictionary but once."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 3000, pa.int32()), ["x" * 66_000, "y" * 66_000]).cast(pa.string())
    pq.write_table(pa.table({"query": texts}), tmp_path / "log.parquet")
    assert (tmp_path / "log.parquet").stat().st_size < 20_000
    more_mib, told = measured(tmp_path / "log.parquet")
    assert told == "['xxxxxxxxx', 'yyyyyyyyy', 'xxxxxxxxx'] 6000"
    assert more_mib <= 220


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv", "parquet"])
def test_a_text_of_a_mebibyte_is_kept_and_a_longer_one_is_not(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"log.{kind}"
    around = len('{"query": ""}') if kind == "jsonl" else 0
    texts = ["x" * ((1 << 20) - around + more) for more in (-1, 0, 1)]
    if kind == "parquet":
        pl.DataFrame({"query": texts}).write_parquet(path)
    else:
        lines = [json.dumps({"query": text}) if kind == "jsonl" else text for text in texts]
        path.write_text("".join(f"{line}\n" for line in (["query", *lines] if kind == "csv" else lines)))
    assert read(path) == [texts[0], texts[1], None]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("more", [1, 2, 3, 1 << 20, (1 << 20) + 2])
def test_a_csv_line_that_is_too_long_costs_its_own_row_only_however_lines_end(tmp_path: Path, end: str, more: int) -> None:
    lines = ["query", "good", "good", "x" * ((1 << 20) + more), "fine", "", "fine"]
    (tmp_path / "log.csv").write_bytes("".join(line + end for line in lines if line).encode())
    assert read(tmp_path / "log.csv") == ["good", "good", None, "fine", "fine"]


# ---- characters that are none --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv", "parquet"])
def test_a_nul_costs_its_own_row_only(tmp_path: Path, kind: str) -> None:
    texts = ["good", "a\0b", "good too", "\0", *["fine"] * 4]
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pl.DataFrame({"query": texts}).write_parquet(path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"query": text}) + "\n" for text in texts))
    else:
        path.write_text("".join(f"{text}\n" for text in (texts if kind == "txt" else ["query", *texts])))
    assert read(path) == [None if "\0" in text else text for text in texts]


def test_a_raw_nul_in_json_and_invalid_bytes_anywhere_cost_their_own_row_only(tmp_path: Path) -> None:
    good = b'{"query": "good"}\n'
    (tmp_path / "log.jsonl").write_bytes(good * 3 + b'{"query": "a\0b"}\n' + good + b'{"query": "caf\xe9"}\n' + good)
    (tmp_path / "log.txt").write_bytes(b"good\n" * 3 + b"a\0b\n" + b"good\n" + b"caf\xe9\n" + b"good\n")
    (tmp_path / "log.csv").write_bytes(b"query\n" + b"good\n" * 3 + b"a\0b\n" + b"good\n" + b"caf\xe9\n" + b"good\n")
    for name in ("log.jsonl", "log.txt", "log.csv"):
        assert read(tmp_path / name) == ["good", "good", "good", None, "good", None, "good"]


def test_an_invalid_byte_in_another_key_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"query": "good", "place": "caf\xe9"}\n{"query": "good", "n": NaN}\n')
    assert read(tmp_path / "log.jsonl") == ["good", "good"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be", "gbk"])
def test_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "log.txt").write_text("附近有什么好吃的\nfind me a cafe\n帮我取消订单\n" * 20, encoding=encoding)
    assert "iconv -t UTF-8" in refused(tmp_path / "log.txt", "UTF-8")


# ---- Parquet --------------------------------------------------------------------------------------------------------------------


def parquet(path: Path, **options: object) -> list[str]:
    texts = [f"query number {index * 7919} of many" for index in range(9000)]
    pq.write_table(pa.table({"id": range(9000), "query": texts}), path, row_group_size=3000, **options)
    return texts


def chunk_of(path: Path, group: int) -> range:
    """Where the queries of a row group lie in a file."""
    column = pq.ParquetFile(path).metadata.row_group(group).column(1)
    start = column.dictionary_page_offset or column.data_page_offset
    return range(start, start + column.total_compressed_size)


def spoilt(path: Path, at: range) -> None:
    content = bytearray(path.read_bytes())
    content[at.start : at.stop] = bytes(byte ^ 0x5A for byte in content[at.start : at.stop])
    path.write_bytes(content)


CHECKED = {"write_page_checksum": True}


@pytest.mark.parametrize("options", [{"compression": "snappy"}, {"compression": "zstd", **CHECKED}, {"compression": "none", **CHECKED}])
def test_a_damaged_row_group_is_named(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "log.parquet"
    parquet(path, **options)
    chunk = chunk_of(path, 1)
    spoilt(path, range(chunk.start + len(chunk) // 2, chunk.start + len(chunk) // 2 + 64))
    refused(path, "row group 1 (rows 3000 to 5999) is damaged")


def test_damage_in_a_column_that_is_not_read_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    texts = parquet(path)
    spoilt(path, range(100, 400))
    assert read(path) == texts


@pytest.mark.parametrize("left", [0.0, 0.4, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, left: float) -> None:
    path = tmp_path / "log.parquet"
    parquet(path)
    content = path.read_bytes()
    path.write_bytes(content[: round(left * len(content))])
    refused(path, "truncated" if left else "empty")


def test_flipped_bytes_are_read_past_or_refused_and_nothing_else(tmp_path: Path) -> None:
    """Given a file with bytes flipped anywhere, when it carries checksums, then it is refused or reads as it was written."""
    path, rng = tmp_path / "log.parquet", random.Random(0)
    texts = parquet(path, write_page_checksum=True)
    content = path.read_bytes()
    refusals = 0
    for _ in range(60):
        at = rng.randrange(len(content))
        path.write_bytes(content)
        spoilt(path, range(at, min(len(content), at + rng.choice([1, 8, 200]))))
        try:
            assert read(path) == texts
        except BadInput:
            refusals += 1
    assert 10 <= refusals <= 60


# ---- nothing in it -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("log.jsonl", lambda path: path.write_text("")),
        ("log.txt", lambda path: path.write_text("\n \n")),
        ("log.csv", lambda path: path.write_text("query\n")),
        ("log.parquet", lambda path: pl.DataFrame({"query": []}, schema={"query": pl.String}).write_parquet(path)),
        ("nulls.parquet", lambda path: pl.DataFrame({"query": [None]}, schema={"query": pl.String}).write_parquet(path)),
    ],
)
def test_a_file_with_nothing_in_it_is_refused(tmp_path: Path, name: str, write: Callable[[Path], object]) -> None:
    write(tmp_path / name)
    assert any(word in refused(tmp_path / name) for word in ("the file is empty", "no rows", "is empty in 1 of 1 rows"))
