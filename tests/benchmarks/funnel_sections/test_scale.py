"""What the funnel's benchmark looks at in a run, and what it plants."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from benchmarks.funnel_sections import rows, scale
from storage.store import Store
from storage.tables import TABLES
from synth.haystack.generate import HaystackConfig, generate


def test_coverage_is_compared_with_random_grounded_rows() -> None:
    grounded = pl.DataFrame({"leaf": ["a", "a", "b", "c"], "difficulty": [1, 2, 3, 4], "rows": [800, 100, 90, 10]})
    # given tasks spread over the leaves, and tasks as the log has them
    spread = pl.DataFrame({"leaf": ["a", "b", "c"], "difficulty": [2, 3, 4], "rows": [20, 20, 20]})
    alike = grounded.with_columns(rows=pl.col("rows") // 10)
    # then only the first is more even and harder
    assert scale.entropy_ratio(spread, grounded, "leaf") > 2
    assert scale.mean_difficulty(spread) - scale.mean_difficulty(grounded) == pytest.approx(3 - 1.31)
    assert scale.entropy_ratio(alike, grounded, "leaf") == pytest.approx(1, abs=0.1)
    assert scale.mean_difficulty(alike) == pytest.approx(scale.mean_difficulty(grounded), abs=0.01)


def test_what_a_run_kept_is_compared_with_what_could_be_executed(tmp_path: Path) -> None:
    """Given eight rows, of which one cannot be executed and three ask what row 1 does, when rows 1 and 5 are kept, then the needle is half
    of them, and the seven others are what they are compared with."""
    store, run = Store(tmp_path / "store"), "r"
    ids = [f"q{row}" for row in range(8)]
    told = ["ground", "admission", "equal", "equal", "equal", "admission", "coverage", "coverage"]
    verdicts = {
        "query_id": ids,
        "run": run,
        "step": told,
        "kept": [row in (1, 5) for row in range(8)],
        "reason": ["unknown", None, "equal_frame", "equal_frame", "equal_frame", None, "not_shortlisted", "not_shortlisted"],
        "duplicate_of": [None, None, "q1", "q1", "q1", None, None, None],
    }
    steps = {"ground": (8, 7, {"unknown": 1}), "equal": (7, 4, {"equal_frame": 3}), "coverage": (4, 2, {"not_shortlisted": 2})}
    funnel = [(name, *counts[:2], json.dumps(counts[2])) for name, counts in steps.items()] + [("admission", 2, 2, "{}")]
    frames = {"query_id": ["q1", "q5", "q6", "q7"], "frame_id": list("abcd"), "leaf": ["x", "y", "x", "x"], "difficulty": [1, 5, 2, 2]}
    tables = {
        "queries": pl.DataFrame({"query_id": ids, "run": run, "row": range(8), "text": ids}),
        "verdicts": pl.DataFrame(verdicts),
        "frames": pl.DataFrame(frames).with_columns(run=pl.lit(run)),
        "funnel": pl.DataFrame(funnel, schema=["step", "rows_in", "kept", "reasons"], orient="row")
        .with_row_index("position")
        .with_columns(run=pl.lit(run), dropped=pl.col("rows_in") - pl.col("kept")),
    }
    store.commit([store.write(name, f"{name}-1", _whole(table, name)) for name, table in tables.items()])
    pl.DataFrame({"kind": ["base"] * 5 + ["needle"] + ["base"] * 2}).write_parquet(tmp_path / "plants.parquet")

    found = scale._looked_at(store.root, tmp_path / "plants.parquet")
    assert found["kept"] == 2 and found["hit_share"] == 0.5
    assert found["difficulty_lift"] == pytest.approx(3 - (1 * 4 + 5 + 2 + 2) / 7)
    assert found["coverage_entropy_ratio"] > 1


def _whole(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """The table with all columns of its kind, null where not given."""
    columns = TABLES[name].columns
    missing = [pl.lit(None).alias(column) for column in columns if column not in table.columns]
    return table.with_columns(missing).select(list(columns)).cast(dict(columns))


def test_a_piece_is_measured_once(tmp_path: Path) -> None:
    calls: list[float] = []

    def measure() -> dict[str, float]:
        calls.append(1.0)
        return {"figure": 42.0}

    assert [rows.kept_json(tmp_path / "a" / "piece.json", measure) for _ in range(2)] == [{"figure": 42.0}] * 2
    assert len(calls) == 1


@pytest.mark.parametrize("is_ordinary", [True, False])
def test_bfcl_questions_take_the_needles_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ordinary: bool) -> None:
    config = HaystackConfig(rows=3000, common_combinations=60)
    monkeypatch.setattr(scale, "WORK", tmp_path)
    monkeypatch.setattr(scale, "REAL_ROWS", 3000)
    monkeypatch.setattr(scale, "log", lambda *_, **__: generate(tmp_path / "log", config, 20))
    queries, plants = (pl.read_parquet(path) for path in scale.real_log(is_ordinary=is_ordinary))
    assert queries.height == plants.height and queries.columns == ["text"]
    real = queries["text"].filter(plants["kind"] == "needle")
    assert real.n_unique() == len(real) > 1000 and set(real) == set(scale.questions())
    kinds = {"base", "exact", "near", "paraphrase", "junk"} if is_ordinary else {"junk", "exact", "near"}
    assert set(plants["kind"]) == kinds | {"needle"} and 2500 < plants.height - len(real) <= 3000
