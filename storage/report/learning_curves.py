"""Learning curves of the report: the step metrics of each stage of the latest training, one chart per stage.

The metrics are in files beside the models and not in tables. A stage whose file is missing is omitted.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import polars as pl

from storage.releases.lineage_graph import LATEST_POLICY_SQL, chain_sql
from storage.report import charts
from storage.report.charts import Chart
from storage.store import Store

_FILE = "metrics.jsonl"
_SHOWN = {"sft": ("loss",), "rl": ("reward", "entropy", "idle_share")}
"""Algorithm -> metrics of the chart."""


def curves(store: Store, chart: Chart) -> list[dict[str, Any]]:
    """For each stage in the order of training: name, algorithm, steps, names of the metrics, chart."""
    stages = store.query(
        f"""{chain_sql(LATEST_POLICY_SQL)}
            SELECT coalesce(s.name, s.stage_id), s.algorithm, p.path FROM trained t JOIN policies p USING (policy_id)
              JOIN stages s USING (stage_id) WHERE p.path IS NOT NULL ORDER BY t.depth DESC"""
    )
    drawn = [_curve(name, algorithm, (store.root / path).parent, chart) for name, algorithm, path in stages.iter_rows()]
    return [curve for curve in drawn if curve is not None]


def open_curves(store: Store, chart: Chart, since: str) -> list[dict[str, Any]]:
    """As `curves`, for the stages that have logged a step since then (ISO time), and are not committed."""
    begun = datetime.datetime.fromisoformat(since).timestamp()
    done = set(store.query("SELECT stage_id FROM stages")["stage_id"])
    files = [path for path in (store.root / "models").glob(f"stage-*/{_FILE}") if path.parent.name not in done]
    folders = sorted(path.parent for path in files if path.stat().st_mtime >= begun)
    drawn = [_curve(folder.name, None, folder, chart) for folder in folders]
    return [curve for curve in drawn if curve is not None]


def _curve(name: str, algorithm: str | None, folder: Path, chart: Chart) -> dict[str, Any] | None:
    """algorithm: None for the first one whose metrics the file has."""
    try:
        metrics = pl.read_ndjson(folder / _FILE, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError):
        return None
    for each in _SHOWN if algorithm is None else [algorithm]:
        shown = [column for column in _SHOWN.get(each, ()) if column in metrics.columns and metrics.schema[column].is_numeric()]
        if "step" in metrics.columns and shown and metrics.height:
            figure = charts.learning_chart(metrics, shown)
            return {"name": name, "algorithm": each, "steps": metrics.height, "metrics": shown, "chart": chart(figure)}
    return None
