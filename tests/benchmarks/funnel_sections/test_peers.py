"""How contestants are compared: who takes part, what is run once, and which figure stands for several runs."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from benchmarks.funnel_sections import contestants, peers


def test_every_peer_is_pinned_in_an_environment_of_its_own() -> None:
    lines = (Path(peers.__file__).parents[1] / "peers.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    assert all("==" in line or line.startswith("#") for line in lines)
    assert {distribution for distribution, _ in contestants.CONTESTANTS.values()} - {"headrace"} <= pinned
    compared = [
        *peers.FAST.values(),
        *peers.SLOW.values(),
        *peers.RULES.values(),
        "headrace",
        "headrace_guarded",
        "headrace_rules",
    ]
    assert sorted(compared) == sorted(contestants.CONTESTANTS)


def test_contestants_run_alone_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "WORK", tmp_path)
    monkeypatch.setattr(peers, "ROUNDS", 2)
    rows, out = tmp_path / "rows.parquet", tmp_path / "peers" / "headrace_rules-3-0.json"
    pl.DataFrame({"norm": ["show me the way to iron pier", "a table for two at noon", "ok"]}).write_parquet(rows)
    # given a call that was cut off after a first run
    peers._run("headrace_rules", rows, 3, out)
    first = out.stat().st_mtime_ns
    # then the next call does what is left, and the first run stands
    runs = peers._interleaved(["headrace_rules"], rows, 3)["headrace_rules"]
    assert out.stat().st_mtime_ns == first and len(runs) == 2
    assert all(run.kept == [0, 1] and run.rows == 3 and run.cpu_s > 0 and run.peak_mib > 0 and run.version for run in runs)


def test_a_ratio_is_of_medians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "WORK", tmp_path)
    (tmp_path / "peers").mkdir()
    for name, seconds in {"ours": (1.0, 9.0, 2.0), "theirs": (30.0, 10.0, 20.0)}.items():
        for number, cpu_s in enumerate(seconds):
            told = {"rows": 5, "cpu_s": cpu_s, "peak_mib": 1.0, "version": "1", "kept": [0]}
            (tmp_path / "peers" / f"{name}-5-{number}.json").write_text(json.dumps(told))
    runs = peers._interleaved(["ours", "theirs"], tmp_path / "none.parquet", 5)
    assert peers._ratio(runs, "ours", "theirs") == 10.0
