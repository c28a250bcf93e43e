"""Learning curves of the report: what each stage of the latest training wrote step by step, a chart a stage.

They are read from the files beside the models, which the store's tables do not hold; of a stage whose file is not there nothing is shown.
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
"""By algorithm: the metrics that say how a stage went."""


def curves(store: Store, chart: Chart) -> list[dict[str, Any]]:
    """Of each stage, in the order of training: name, algorithm, steps, names of the metrics, chart."""
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
