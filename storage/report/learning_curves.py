"""Learning curves of the report: the step metrics of each stage of the latest training, one chart per stage.

The metrics are in files beside the models and not in tables. A stage whose file is missing is omitted.
"""

from __future__ import annotations

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
    parts = []
    for name, algorithm, path in stages.iter_rows():
        try:
            metrics = pl.read_ndjson((store.root / path).parent / _FILE, infer_schema_length=None)
        except (OSError, pl.exceptions.PolarsError):
            continue
        shown = [column for column in _SHOWN.get(algorithm, ()) if column in metrics.columns and metrics.schema[column].is_numeric()]
        if "step" in metrics.columns and shown and metrics.height:
            figure = charts.learning_chart(metrics, shown)
            parts.append({"name": name, "algorithm": algorithm, "steps": metrics.height, "metrics": shown, "chart": chart(figure)})
    return parts
