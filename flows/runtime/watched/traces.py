"""Traces of flow runs for OpenTelemetry: off, unless OTEL_EXPORTER_OTLP_ENDPOINT names a collector.

One idea: Prefect makes a span of every flow run and task run itself, if told to. So this module only tells it to, and sends the spans, by
the variables that OpenTelemetry defines (OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_HEADERS ...).
"""

from __future__ import annotations

import os

from storage.errors import BadInput

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_OF_PREFECT = "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY"


def start_traces() -> None:
    """Send spans of this process to the collector, if one is named; at most once a process, before its first flow run.

    Raises:
        BadInput: a collector is named, but the extra `otel` is not installed.
    """
    if not os.environ.get(ENDPOINT):
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise BadInput(f"{ENDPOINT} asks for traces, which need the extra otel: pip install 'headrace[otel]', or unset it") from None
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    os.environ[_OF_PREFECT] = "true"
    provider = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "headrace")}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush_traces() -> None:
    """Send the spans that are still held."""
    if os.environ.get(ENDPOINT):
        from opentelemetry import trace

        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(5_000)
