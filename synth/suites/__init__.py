"""Suites of others: their tasks, state and checker, each in an environment of its own, behind a child process that speaks JSON lines."""
