"""What watches the flows from outside: metrics of stores for Prometheus, traces of runs for OpenTelemetry."""
