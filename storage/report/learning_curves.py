"""Learning curves: the step metrics of each stage of the latest training, one chart per stage in the report, or as text.

The metrics are in files beside the models and not in tables. A stage whose file is missing is omitted.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from storage.releases.lineage_graph import LATEST_POLICY_SQL, chain_sql
from storage.report import charts
from storage.report.charts import Chart
from storage.store import Store

_FILE = "metrics.jsonl"
_SHOWN = {"sft": ("loss",), "rl": ("reward", "entropy", "idle_share")}
"""Algorithm -> metrics of the chart."""
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 48


class _Steps(NamedTuple):
    """What a stage logged. shown: metrics of the chart."""

    name: str
    algorithm: str
    metrics: pl.DataFrame
    shown: list[str]


def curves(store: Store, chart: Chart) -> list[dict[str, Any]]:
    """For each stage in the order of training: name, algorithm, steps, names of the metrics, chart."""
    return [_curve(steps, chart) for steps in _trained(store)]


def text_curves(store: Store) -> str:
    """The same curves as text: for each metric of each stage its first value, bars from its least to its greatest, its last value.

    A bar is the mean of a stretch of steps. Empty if no stage has a file of metrics.
    """
    lines = []
    for steps in _trained(store):
        for metric in steps.shown:
            values = [float(value) for value in steps.metrics[metric].drop_nulls() if math.isfinite(value)]
            if values:
                title = f"{steps.name} ({steps.metrics.height} steps)"
                lines.append(f"{title:<24} {metric:<10} {values[0]:>8.3f} {_bars(values):<{_WIDTH}} {values[-1]:>8.3f}")
    return "\n".join(lines)


def _bars(values: Sequence[float]) -> str:
    """At most 48 bars, each as high as the mean of its stretch of the values, from their least to their greatest."""
    count = min(_WIDTH, len(values))
    edges = [len(values) * at // count for at in range(count + 1)]
    means = [sum(values[begin:end]) / (end - begin) for begin, end in itertools.pairwise(edges)]
    least, span = min(means), max(means) - min(means)
    return "".join(_BARS[round((mean - least) / span * (len(_BARS) - 1)) if span else 0] for mean in means)


def _trained(store: Store) -> Iterator[_Steps]:
    """The stages of the latest training, in their order."""
    stages = store.query(
        f"""{chain_sql(LATEST_POLICY_SQL)}
            SELECT coalesce(s.name, s.stage_id), s.algorithm, p.path FROM trained t JOIN policies p USING (policy_id)
              JOIN stages s USING (stage_id) WHERE p.path IS NOT NULL ORDER BY t.depth DESC"""
    )
    read = (_read(name, algorithm, (store.root / path).parent) for name, algorithm, path in stages.iter_rows())
    return (steps for steps in read if steps is not None)


def open_curves(store: Store, chart: Chart, since: str) -> list[dict[str, Any]]:
    """As `curves`, for the stages that have logged a step since then (ISO time), and are not committed."""
    begun = datetime.datetime.fromisoformat(since).timestamp()
    done = set(store.query("SELECT stage_id FROM stages")["stage_id"])
    files = [path for path in (store.root / "models").glob(f"stage-*/{_FILE}") if path.parent.name not in done]
    folders = sorted(path.parent for path in files if path.stat().st_mtime >= begun)
    read = (_read(folder.name, None, folder) for folder in folders)
    return [_curve(steps, chart) for steps in read if steps is not None]


def _curve(steps: _Steps, chart: Chart) -> dict[str, Any]:
    figure = charts.learning_chart(steps.metrics, steps.shown)
    count = steps.metrics.height
    return {"name": steps.name, "algorithm": steps.algorithm, "steps": count, "metrics": steps.shown, "chart": chart(figure)}


def _read(name: str, algorithm: str | None, folder: Path) -> _Steps | None:
    """algorithm: None for the first one whose metrics the file has."""
    try:
        metrics = pl.read_ndjson(folder / _FILE, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError):
        return None
    for each in _SHOWN if algorithm is None else [algorithm]:
        shown = [column for column in _SHOWN.get(each, ()) if column in metrics.columns and metrics.schema[column].is_numeric()]
        if "step" in metrics.columns and shown and metrics.height:
            return _Steps(name, each, metrics, shown)
    return None
