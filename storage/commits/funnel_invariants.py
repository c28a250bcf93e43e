"""Checks that the counts of a funnel run add up: rows in = kept + dropped at every step, and exactly one verdict per row.

The checks run inside the transaction that commits the run, on its stored rows; an error names the wrong step.
A run without rows in `funnel` is still being written, and is not checked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import duckdb

from storage.errors import HeadraceError


def check_funnel(connection: duckdb.DuckDBPyConnection, runs: Sequence[str]) -> None:
    """Raises HeadraceError for the first of these runs whose funnel, queries and verdicts do not add up."""
    for run in runs:
        steps = connection.execute(
            "SELECT step, rows_in, kept, dropped, reasons FROM funnel WHERE run = ? ORDER BY position", [run]
        ).fetchall()
        if steps:
            _check_steps(run, steps)
            _check_verdicts(connection, run, steps)


def _refuse(run: str, problem: str) -> None:
    raise HeadraceError(
        f"the funnel of run {run} does not add up: {problem}; nothing was committed. "
        "This is a fault of Headrace, not of your files: report it, with the id of the run"
    )


def _check_steps(run: str, steps: Sequence[tuple[str, int, int, int, str | None]]) -> None:
    before: tuple[str, int] | None = None
    for step, rows_in, kept, dropped, reasons in steps:
        if rows_in != kept + dropped or min(rows_in, kept, dropped) < 0:
            _refuse(run, f"step {step} read {rows_in} rows, kept {kept} and dropped {dropped}")
        if before and before[1] != rows_in:
            _refuse(run, f"step {before[0]} kept {before[1]} rows, but step {step} read {rows_in}")
        counted = sum(json.loads(reasons).values()) if reasons else 0
        if counted != dropped:
            _refuse(run, f"step {step} dropped {dropped} rows, but its reasons {reasons} count {counted}")
        before = (step, kept)


def _check_verdicts(connection: duckdb.DuckDBPyConnection, run: str, steps: Sequence[tuple[str, int, int, int, str | None]]) -> None:
    def one(sql: str) -> int:
        row = connection.execute(sql, [run] * sql.count("?")).fetchone()
        return int(row[0]) if row else 0

    read, last_kept = steps[0][1], steps[-1][2]
    queries = one("SELECT count(*) FROM queries WHERE run = ?")
    if queries != read:
        _refuse(run, f"step {steps[0][0]} read {read} rows, but {queries} queries are stored")
    verdicts = one("SELECT count(*) FROM verdicts WHERE run = ?")
    if verdicts != read:
        _refuse(run, f"{read} rows were read, but {verdicts} verdicts are stored; every row needs exactly one")
    doubled = one("SELECT count(*) - count(DISTINCT query_id) FROM verdicts WHERE run = ?")
    if doubled:
        _refuse(run, f"{doubled} verdicts are on a query that has another one")
    astray = one(
        "SELECT count(*) FROM (SELECT query_id FROM verdicts WHERE run = ?) judged "
        "ANTI JOIN (SELECT query_id FROM queries WHERE run = ?) read USING (query_id)"
    )
    if astray:
        _refuse(run, f"{astray} verdicts are on queries that are not stored; as many that are have none, or are stored twice")
    kept = one("SELECT count(*) FROM verdicts WHERE run = ? AND kept")
    if kept != last_kept:
        _refuse(run, f"the last step kept {last_kept} rows, but {kept} verdicts say kept")
    dropped = dict(connection.execute("SELECT step, count(*) FROM verdicts WHERE run = ? AND NOT kept GROUP BY step", [run]).fetchall())
    for step, _, _, count, _ in steps:
        if dropped.pop(step, 0) != count:
            _refuse(run, f"step {step} dropped {count} rows, but the verdicts of that step count otherwise")
    if dropped:
        _refuse(run, f"verdicts name steps that the funnel does not have: {', '.join(map(str, dropped))}")
