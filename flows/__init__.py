"""Prefect flows and the `headrace` command: thin, over the rooms below. Logs of a process that runs them show no known secret."""

from storage.outside.safe_logs import make_logs_safe

make_logs_safe()
