"""The search for secrets finds them in every form in which files hold them."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from urllib.parse import quote

import duckdb
import polars as pl
import pytest

from benchmarks.operations import secrets

SECRET = 'planted "pass\\word" 77'
SPELLINGS = secrets._spellings([SECRET])


@pytest.mark.parametrize(
    "text", [SECRET, json.dumps({"a": SECRET}), f"?k={quote(SECRET, safe='')}", base64.b64encode(f"ann:{SECRET}".encode()).decode(), "none"]
)
def test_every_spelling_is_found(text: str) -> None:
    assert secrets._find(f"before {text} after".encode(), SPELLINGS) == ([] if text == "none" else [SECRET])


def test_rows_of_packed_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_commands", list)
    (tmp_path / secrets.INPUT).mkdir()
    (tmp_path / secrets.INPUT / "c.yaml").write_text("planted-key")
    pl.DataFrame({"a": ["planted-key"] * 1000}).write_parquet(tmp_path / "a.parquet", compression="zstd")
    with duckdb.connect(str(tmp_path / "b.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'planted-key' AS x")
    (tmp_path / "c.gz").write_bytes(gzip.compress(b"planted-key"))
    spellings = secrets._spellings(["planted-key"])
    found = {place for place, data in secrets._places(tmp_path, []) if secrets._find(data, spellings)}
    assert {"rows of a.parquet", "rows of b.duckdb", "text of c.gz"} <= found and not any(secrets.INPUT in place for place in found)
