"""Files of queries that are broken, enormous or odd: name -> a function that writes one into a folder and returns its path."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

Write = Callable[[Path], Path]


def _bytes(name: str, content: bytes) -> Write:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return write


def _parquet(frame: pl.DataFrame, change: Callable[[bytes], bytes] = lambda content: content) -> Write:
    def write(folder: Path) -> Path:
        held = io.BytesIO()
        frame.write_parquet(held)
        (folder / "q.parquet").write_bytes(change(held.getvalue()))
        return folder / "q.parquet"

    return write


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _texts(*texts: Any) -> pl.DataFrame:
    return pl.DataFrame({"text": texts})


def _zip() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("q.jsonl", '{"text": "a"}\n')
    return held.getvalue()


def _fifo(folder: Path) -> Path:
    os.mkfifo(folder / "q.jsonl")
    return folder / "q.jsonl"


def _loop(folder: Path) -> Path:
    (folder / "q.jsonl").symlink_to(folder / "q.jsonl")
    return folder / "q.jsonl"


def _folder(folder: Path) -> Path:
    (folder / "q.parquet").mkdir()
    return folder / "q.parquet"


def _device(folder: Path) -> Path:
    (folder / "q.txt").symlink_to("/dev/zero")
    return folder / "q.txt"


def _flip(content: bytes) -> bytes:
    return content[:40] + bytes(255 - byte for byte in content[40:120]) + content[120:]


GOOD = _texts(*[f"book a table for {n} at eight" for n in range(20)])

QUERY_FILES: dict[str, Write] = {
    "a Parquet file cut in half": _parquet(GOOD, lambda content: content[: len(content) // 2]),
    "a Parquet file with other ends": _parquet(GOOD, lambda content: b"XXXX" + content[4:-4] + b"XXXX"),
    "a Parquet file with a huge footer": _parquet(GOOD, lambda content: content[:-8] + b"\xff\xff\xff\x7f" + content[-4:]),
    "a Parquet file flipped in the middle": _parquet(
        GOOD, lambda content: content[:40] + bytes(255 - b for b in content[40:120]) + content[120:]
    ),
    "a Parquet file without rows": _parquet(GOOD[:0]),
    "a Parquet file without columns": _parquet(pl.DataFrame()),
    "a Parquet file of lists": _parquet(_texts(["a"], ["b"])),
    "a Parquet file of structs": _parquet(_texts({"a": 1}, {"a": 2})),
    "a Parquet file of numbers": _parquet(_texts(1, 2, 3)),
    "a Parquet file of times": _parquet(_texts(datetime(2026, 1, 1, tzinfo=UTC))),
    "a Parquet file of nulls": _parquet(_texts(None, None)),
    "a Parquet file of bytes": _parquet(_texts(b"\xff\xfe", b"ok")),
    "CSV called Parquet": _bytes("q.parquet", b"text\nhello\n"),
    "Parquet called CSV": lambda folder: _parquet(GOOD)(folder).rename(folder / "q.csv"),
    "nothing, as Parquet": _bytes("q.parquet", b""),
    "nothing, as JSON Lines": _bytes("q.jsonl", b""),
    "nothing, as CSV": _bytes("q.csv", b""),
    "nothing, as text": _bytes("q.txt", b""),
    "a header alone": _bytes("q.csv", b"text\n"),
    "a quote that never closes": _bytes("q.csv", b'text\n"hello\n' + b"world\n" * 5_000),
    "rows of other lengths": _bytes("q.csv", b"text,b\na\nb,c,d,e,f\n,,,,\n"),
    "columns of one name": _bytes("q.csv", b"text,text\na,b\n"),
    "a header of 20,000 columns": _bytes("q.csv", ",".join(["text", *(f"c{n}" for n in range(20_000))]).encode() + b"\na\n"),
    "NUL bytes in CSV": _bytes("q.csv", b"text\na\x00b\n\x00\n"),
    "UTF-16 in CSV": _bytes("q.csv", "text\nhello\n".encode("utf-16")),
    "a mark of order before CSV": _bytes("q.csv", b"\xef\xbb\xbftext\nhello\n"),
    "Latin-1 in CSV": _bytes("q.csv", "text\ncaf\xe9\n".encode("latin-1")),
    "old line ends": _bytes("q.csv", b"text\rhello\rworld\r"),
    "a formula": _bytes("q.csv", b"text\n=cmd|' /C calc'!A0\n"),
    "JSON that is cut": _bytes("q.jsonl", b'{"text": "a"}\n{"text": "b'),
    "JSON that is a list": _bytes("q.jsonl", b'[{"text": "a"}]\n'),
    "JSON of scalars": _bytes("q.jsonl", b'"a"\n7\nnull\n'),
    "JSON with other keys": _bytes("q.jsonl", _lines({"t": "a"}, {"u": "b"})),
    "JSON with texts that are no texts": _bytes(
        "q.jsonl", _lines({"text": {"a": 1}}, {"text": [1]}, {"text": 7}, {"text": None}, {"text": "ok"})
    ),
    "JSON with half a surrogate": _bytes("q.jsonl", b'{"text": "\\ud800 book"}\n'),
    "JSON 100,000 deep": _bytes("q.jsonl", b'{"text": ' + b"[" * 100_000 + b"\n"),
    "JSON numbers beyond every range": _bytes("q.jsonl", b'{"text": "a", "n": 1e99999}\n{"text": "b", "n": ' + b"9" * 5_000 + b"}\n"),
    "JSON with NUL": _bytes("q.jsonl", b'{"text": "a\\u0000b"}\n'),
    "JSON with a key of a megabyte": _bytes("q.jsonl", _lines({"text": "a", "k" * 1_000_000: 1})),
    "no UTF-8 in JSON": _bytes("q.jsonl", b'{"text": "\xff\xfe"}\n{"text": "ok"}\n'),
    "an object over several lines": _bytes("q.jsonl", b'{\n "text": "a"\n}\n'),
    "a text of 5 MB": _bytes("q.txt", b"word " * 1_000_000),
    "a line of 20 MB": _bytes("q.txt", b"x" * 20_000_000),
    "half a million combining marks": _bytes("q.txt", ("a" + "\u0301" * 250_000).encode()),
    "control characters": _bytes("q.txt", bytes(range(32)) * 100),
    "escapes of a terminal": _bytes("q.txt", b"\x1b[2J\x1b]0;owned\x07 book a room\n" * 10),
    "right to left": _bytes("q.txt", "\u202e\u2066book\u2069\n".encode() * 10),
    "blank lines": _bytes("q.txt", b"\n" * 10_000),
    "200,000 equal lines": _bytes("q.txt", b"book a room for two\n" * 200_000),
    "emoji alone": _bytes("q.txt", "\U0001f600\n".encode() * 100),
    "SQL": _bytes("q.txt", b"'; DROP TABLE queries; --\n\"); COPY (SELECT 1) TO '/tmp/x';\n"),
    "HTML": _bytes("q.txt", b"<script>alert(1)</script>\n"),
    "a bomb of gzip": _bytes("q.jsonl.gz", gzip.compress(b"0" * 50_000_000)),
    "gzip that is cut": _bytes("q.jsonl.gz", gzip.compress(_lines({"text": "a"}) * 100)[:30]),
    "a zip": _bytes("q.zip", _zip()),
    "an unknown kind": _bytes("q.xlsx", b"PK\x03\x04"),
    "no ending": _bytes("q", b"text\nhello\n"),
    "a name with quotes, a line break and $": _bytes('it\'s "q"\n$HOME.txt', b"book a room\n"),
    "a name of stars": _bytes("q*[a].txt", b"book a room\n"),
    "a folder": _folder,
    "a link to itself": _loop,
    "a pipe": _fifo,
    "an endless device": _device,
    "a file that is not there": lambda folder: folder / "none.jsonl",
    "an empty path": lambda folder: Path(),
}
