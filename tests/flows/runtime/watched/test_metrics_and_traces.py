"""Metrics are what the store holds, read anew at every scrape; traces reach a collector, and only if one is named."""

from __future__ import annotations

import gzip
import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families

from flows.runtime.notes.run_records import notes_folder
from flows.runtime.notes.work_notes import note_work
from flows.runtime.progress import report
from flows.runtime.store_lock import hold_store
from flows.runtime.watched import traces
from flows.runtime.watched.store_metrics import as_text, registry
from storage.errors import BadInput
from storage.store import Store
from synth.engines.spending.ledger import Ledger
from tests.storage.conftest import build_sample, write


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Labels without the store -> value."""
    return {
        tuple(value for label, value in sorted(sample.labels.items()) if label != "store"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"headrace_{name}"
    }


@pytest.fixture
def store(tmp_path) -> Store:
    return build_sample(tmp_path / "store").store


def test_metrics_are_what_the_store_holds(store):
    text = as_text([store.root])
    counted = dict(store.query("SELECT table_name, sum(rows) FROM parts GROUP BY 1").iter_rows())
    assert {labels[0]: value for labels, value in samples(text, "rows").items()} == counted
    assert samples(text, "promotions") == {("passed",): 2}
    assert sum(samples(text, "draws").values()) == store.query("FROM rollouts").height
    kept, dropped = store.query("SELECT sum(kept), sum(dropped) FROM funnel").row(0)
    by_verdict = samples(text, "verdicts")
    assert sum(value for labels, value in by_verdict.items() if "kept" in labels) == kept
    assert sum(value for labels, value in by_verdict.items() if "dropped" in labels) == dropped
    assert min(samples(text, "last_commit_timestamp_seconds").values()) > 1.7e9
    assert samples(text, "working") == {}


def test_a_scrape_reads_anew(store):
    """Given a served registry and a commit between two scrapes, then the second has the new row."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry([store.root]))
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        before = samples(urllib.request.urlopen(url).read().decode(), "rows")[("rollouts",)]
        store.commit([write(store, "rollouts", {"rollout_id": "new", "purpose": "probe", "outcome": "success"}, n=99)])
        assert samples(urllib.request.urlopen(url).read().decode(), "rows")[("rollouts",)] == before + 1
    finally:
        server.shutdown()
        thread.join()


def test_what_works_and_what_was_paid_is_told(store):
    """Given a flow at work, a stage in training, one that was left before, and a paid call, then each has its figure but the left one."""
    for name in ("stage-left", "stage-new"):
        (store.root / "models" / name).mkdir(parents=True)
        (store.root / "models" / name / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 1.5}\n{"step": 3, "lo')
    os.utime(store.root / "models/stage-left/metrics.jsonl", (1e9, 1e9))
    book = Ledger(store.root)
    reserved = book.reserve("openai:m", 100, 20, (1.0, 2.0))
    assert reserved is not None
    book.settle(reserved, 60, 10)
    book.close()
    with hold_store("train", store.root), note_work("train", notes_folder(store.root)):
        (store.root / "models/stage-new/metrics.jsonl").touch()
        text, end = "", time.monotonic() + 30
        while not samples(text, "step_done") and time.monotonic() < end:  # the note is written twice a second
            report("stage sft1", 2, 9)
            text = as_text([store.root])
    assert samples(text, "working") == {("train",): 1}
    assert (samples(text, "step_done"), samples(text, "step_total")) == ({("stage sft1",): 2}, {("stage sft1",): 9})
    assert samples(text, "stage") == {("step", "stage-new"): 2, ("loss", "stage-new"): 1.5}
    assert sorted(samples(text, "tokens").values()) == [10, 60]
    assert sum(samples(as_text([store.root]), "runs").values()) == 1


def test_a_damaged_line_of_a_stage_leaves_the_other_figures(store):
    """Given last lines that are torn or hold no numbers, then there is no figure for a null, and else that of the line before."""
    path, first = store.root / "models/stage-new/metrics.jsonl", {("step", "stage-new"): 1, ("loss", "stage-new"): 2.5}
    path.parent.mkdir(parents=True)
    cases = {'{"step": 2, "loss": null}\n': {("step", "stage-new"): 2}}
    cases |= dict.fromkeys(['{"step": 2, "los\n', "null\n", "[1]\n", ""], first)
    with hold_store("train", store.root), note_work("train", notes_folder(store.root)):
        for last, figures in cases.items():
            path.write_text('{"step": 1, "loss": 2.5}\n' + last)
            assert samples(as_text([store.root]), "stage") == figures, last


def test_failures_have_their_kind_and_what_waits_for_a_flow_its_number(store):
    """Given three rejected proposals, two of them for one check, and a store that no deployment has worked on, then all of it waits."""
    reasons = ("turn_1.goal_0.facts", "goal_1.facts", "misfit", None)
    rows = [{"run": "new", "round": 0, "position": at, "reason": reason} for at, reason in enumerate(reasons)]
    before = samples(as_text([store.root]), "rejections")
    store.commit([write(store, "decisions", *rows, n=98)])
    text = as_text([store.root])
    new = {kind: value - before.get(kind, 0) for kind, value in samples(text, "rejections").items()}
    assert {kind: value for kind, value in new.items() if value} == {("facts",): 2, ("misfit",): 1}
    accepted = store.query("SELECT (SELECT count(*) FROM tasks) + (SELECT count(*) FROM trajectories WHERE accepted)").item()
    assert samples(text, "waiting") == {("tag",): accepted, ("train",): accepted}


class Collector(HTTPServer):
    """Keeps the bodies that it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Keep)
        self.bodies: list[bytes] = []


class _Keep(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        self.server.bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


def test_no_traces_without_a_collector(monkeypatch):
    monkeypatch.delenv(traces.ENDPOINT, raising=False)
    monkeypatch.delenv("PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY", raising=False)
    traces.start_traces()
    assert "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY" not in os.environ


def test_spans_reach_the_collector(monkeypatch, collector):
    from opentelemetry import trace

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", type(trace._TRACER_PROVIDER_SET_ONCE)())
    monkeypatch.setenv(traces.ENDPOINT, f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY", "false")  # so that it is restored
    traces.start_traces()
    with trace.get_tracer("test").start_as_current_span("a flow of ours"):
        pass
    traces.flush_traces()
    assert any(b"a flow of ours" in body for body in collector.bodies)


def test_traces_without_their_extra_are_refused(monkeypatch):
    monkeypatch.setenv(traces.ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(BadInput, match=r"headrace\[otel\]"):
        traces.start_traces()
