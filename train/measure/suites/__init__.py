"""Suites: tasks of others to evaluate on, with their own state and checker, beside our verdict."""
