"""Metrics of stores in Prometheus' text format, for `headrace metrics`.

One idea: a flow run is short, and a scrape comes at any time, so no process of a flow is asked. Each scrape reads what the stores have
committed, their ledgers, and the note of what works on them now: nothing is counted twice, and a killed process loses no count.
It writes nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from flows.runtime.deployed.new_rows import count_new
from flows.runtime.notes.run_records import notes_folder
from flows.runtime.notes.work_notes import read_runs, read_work
from storage.store import Store
from synth.engines.spending.ledger import Ledger

_COUNTED = {
    "rows": ("committed rows", 'SELECT table_name AS "table", sum(rows) AS value FROM parts GROUP BY 1'),
    "verdicts": (
        "rows that a step of the funnel kept or dropped, over all runs",
        """SELECT step, verdict, sum(n) AS value FROM (SELECT step, 'kept' AS verdict, kept AS n FROM funnel
           UNION ALL SELECT step, 'dropped', dropped FROM funnel) GROUP BY 1, 2""",
    ),
    "conversations": (
        "synthesised conversations",
        "SELECT CASE WHEN accepted THEN 'accepted' ELSE 'rejected' END AS verdict, count(*) AS value FROM trajectories GROUP BY 1",
    ),
    "rejections": (
        "proposals of syntheses that were not accepted, by the check that failed first, or why no conversation was held",
        """SELECT regexp_replace(reason, '^.*\\.', '') AS reason, count(*) AS value FROM decisions WHERE reason IS NOT NULL GROUP BY 1""",
    ),
    "draws": ("draws of policies", "SELECT purpose, outcome, count(*) AS value FROM rollouts GROUP BY 1, 2"),
    "promotions": (
        "policies that the gate let pass or not",
        "SELECT CASE WHEN passed THEN 'passed' ELSE 'failed' END AS verdict, count(*) AS value FROM promotions GROUP BY 1",
    ),
    "last_commit_timestamp_seconds": (
        "time of the last commit to a table",
        'SELECT table_name AS "table", epoch(max(committed_at)) AS value FROM parts GROUP BY 1',
    ),
}
"""Name of a metric -> help, and SQL with its labels and the column `value`."""
RUNS = 200
"""Flow runs that are counted, the last ones."""


class StoreCollector(Collector):
    """Metrics of these stores, read anew at every scrape; each has the label `store`."""

    def __init__(self, stores: Sequence[Path]) -> None:
        self._stores = [Store(path) for path in stores]

    def collect(self) -> Iterator[Metric]:
        for name, (help_text, sql) in _COUNTED.items():
            yield self._counted(name, help_text, sql)
        yield from self._spent()
        yield self._waiting()
        yield from self._at_work()

    def _counted(self, name: str, help_text: str, sql: str) -> Metric:
        labels = [name for name in self._stores[0].query(f"FROM ({sql}) LIMIT 0").columns if name != "value"]
        metric = GaugeMetricFamily(f"headrace_{name}", help_text, labels=["store", *labels])
        for store in self._stores:
            for row in store.query(sql).to_dicts():
                metric.add_metric([str(store.root), *(str(row[label]) for label in labels)], float(row["value"]))
        return metric

    def _waiting(self) -> Metric:
        """The queue before the deployments that events start."""
        waiting = GaugeMetricFamily(
            "headrace_waiting", "tasks and accepted conversations that no run of the flow's deployment has seen", labels=["store", "flow"]
        )
        for store in self._stores:
            for flow in ("tag", "train"):
                waiting.add_metric([str(store.root), flow], count_new(flow, store.root))
        return waiting

    def _spent(self) -> Iterator[Metric]:
        """Of each engine's months, from the ledgers."""
        labels = ["store", "engine", "month"]
        tokens = GaugeMetricFamily("headrace_tokens", "tokens that an engine was paid for", labels=[*labels, "kind"])
        dollars = GaugeMetricFamily("headrace_usd", "dollars that an engine was paid", labels=labels)
        calls = GaugeMetricFamily("headrace_calls", "answered calls of an engine", labels=labels)
        left = GaugeMetricFamily("headrace_budget_left_usd", "dollars that are left of an engine's month", labels=labels)
        for store in self._stores:
            book = Ledger(store.root)
            for one in book.months():
                place = [str(store.root), one.engine, one.month]
                tokens.add_metric([*place, "prompt"], one.prompt_tokens)
                tokens.add_metric([*place, "completion"], one.completion_tokens)
                dollars.add_metric(place, one.usd)
                calls.add_metric(place, one.calls)
                if one.usd_left is not None:
                    left.add_metric(place, one.usd_left)
            book.close()
        yield from (tokens, dollars, calls, left)

    def _at_work(self) -> Iterator[Metric]:
        """What works on the stores now, the last line of metrics of the stage in training, and how the last runs ended."""
        working = GaugeMetricFamily("headrace_working", "1 while a flow works on the store", labels=["store", "flow"])
        done = GaugeMetricFamily("headrace_step_done", "progress of a step of the flow at work", labels=["store", "step"])
        total = GaugeMetricFamily("headrace_step_total", "end of a step of the flow at work; 0 if unknown", labels=["store", "step"])
        stage = GaugeMetricFamily("headrace_stage", "last figure of the stage in training", labels=["store", "stage", "figure"])
        ended = GaugeMetricFamily("headrace_runs", f"how the last {RUNS} flow runs ended", labels=["store", "flow", "outcome"])
        for store in self._stores:
            place, folder = str(store.root), notes_folder(store.root)
            work = read_work(folder)
            if work is not None:
                working.add_metric([place, work.flows[0]], 1)
                for step in work.steps:
                    done.add_metric([place, step.label], step.done)
                    total.add_metric([place, step.label], step.total)
                for name, figures in _in_training(store.root, work.started):
                    for figure, value in figures.items():
                        stage.add_metric([place, name, figure], value)
            counts: dict[tuple[str, str], int] = {}
            for run in read_runs(folder, RUNS):
                kind = (run.flow, run.outcome.partition(":")[0] or ("killed" if work is None else "working"))
                counts[kind] = counts.get(kind, 0) + 1
            for (flow, outcome), count in counts.items():
                ended.add_metric([place, flow, outcome], count)
        yield from (working, done, total, stage, ended)


def _in_training(root: Path, since: str) -> Iterator[tuple[str, dict[str, float]]]:
    """The stages without a result that have logged a step since then (ISO time), with the figures of the last one."""
    begun = datetime.datetime.fromisoformat(since).timestamp()
    for path in sorted(root.glob("models/*/metrics.jsonl")):
        with contextlib.suppress(OSError):  # removed since it was listed
            if not (path.parent / "result.json").exists() and path.stat().st_mtime >= begun:
                yield path.parent.name, _last_figures(path)


def _last_figures(path: Path) -> dict[str, float]:
    """The numbers of the last line that can be read; the rest of a torn file says nothing."""
    for line in reversed(path.read_bytes().splitlines()):
        with contextlib.suppress(ValueError, AttributeError):
            return {name: float(value) for name, value in json.loads(line).items() if isinstance(value, int | float)}
    return {}


def registry(stores: Sequence[Path]) -> CollectorRegistry:
    """A registry with the metrics of these stores."""
    made = CollectorRegistry()
    made.register(StoreCollector(stores))
    return made


def as_text(stores: Sequence[Path]) -> str:
    """The metrics of these stores, in Prometheus' text format."""
    return generate_latest(registry(stores)).decode()
