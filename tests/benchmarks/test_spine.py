"""What the measurement of the spine keeps between calls, and with which calls it measures worlds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest

from benchmarks import spine, world_calls
from benchmarks.harness import TreeUsage


def test_a_cascade_counts_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spine, "WORK", tmp_path)
    spine._store_path().mkdir(parents=True)
    (spine._store_path() / "catalog.duckdb").write_text("the run's")
    calls: list[str] = []

    def cascade(command: Sequence[str], *, log: Path, **_: object) -> TreeUsage:
        target, seed = Path(command[-3]), int(command[-2])
        assert [path.name for path in target.iterdir()] == ["catalog.duckdb"]
        calls.append(target.name)
        (target / "stage").write_text("done")
        if len(calls) == 1:
            raise KeyboardInterrupt
        pl.DataFrame({"policy": ["sft1"], "task_id": ["t"], "outcome": ["success"]}).write_parquet(target / f"outcomes-{seed}.parquet")
        return TreeUsage(wall_s=1.0, cpu_s=42.0, peak_gib=1.0, returncode=0)

    monkeypatch.setattr(spine, "run_tree", cascade)
    # given a cascade that was cut off after a stage
    with pytest.raises(KeyboardInterrupt):
        spine._run_cascade(seed=1, eval_tasks=300)
    # then the next call begins on a fresh copy, and the one after that finds everything there
    assert [spine._run_cascade(seed=1, eval_tasks=300) for _ in range(2)] == [42.0, 42.0]
    assert calls == ["cascade-1"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cascade-1.json", "outcomes-1.parquet", "run"]


def test_calls_are_a_uniform_mix_that_hardly_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_calls, "PER_TOOL", 40)
    few: Mapping[str, range] = {"city": range(1, 3), "retail": range(1, 6)}
    monkeypatch.setattr(world_calls, "WORLD_SEEDS", few)
    for name, tools in (("city", 10), ("retail", 8)):
        calls = world_calls.draw_calls(name)
        assert calls == world_calls.draw_calls(name)
        assert len(calls) == tools * 40 and len({tool for _, tool, _ in calls}) == tools
        assert world_calls.repeated_share(calls) == 0 and world_calls.repeated_share(calls * 2) == 0.5
        worlds, starts = world_calls.opened(name)
        once, again = ([world_calls.run(worlds, starts, call) for call in calls] for _ in range(2))
        assert not any(each.is_error for each in once)
        assert world_calls.hash_of(once) == world_calls.hash_of(again)
        assert all(isinstance(json.loads(each.content), dict | list) for each in once)
