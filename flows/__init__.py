"""Prefect flows and the `headrace` command: thin, over the rooms below."""
