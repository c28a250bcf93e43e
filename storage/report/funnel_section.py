"""The report's section on the funnel: rows after each step with reasons, pairs of duplicates, similarity of the pool to held-out sets."""

from __future__ import annotations

import json
from typing import Any

from storage.report import charts
from storage.report.charts import Chart
from storage.store import Store
from storage.tables import LATEST_RUN

PAIRS = 6
"""Most pairs of duplicates per step."""
_RUN = LATEST_RUN.format(table="funnel")


def funnel(store: Store, chart: Chart) -> dict[str, Any] | None:
    """The funnel of the last run: remaining rows, reasons, examples, pairs of duplicates, similarity to held-out sets."""
    counts = funnel_steps(store, chart)
    return None if counts is None else counts | _examples(store) | {"held_out": _held_out(store, _RUN, chart)}


def funnel_steps(store: Store, chart: Chart) -> dict[str, Any] | None:
    """The funnel of the last run: remaining rows and reasons. It reads no row of `queries`."""
    rows = store.query(f"SELECT run, step, rows_in, kept, dropped, reasons, seconds FROM funnel WHERE run = {_RUN} ORDER BY position")
    if rows.is_empty():
        return None
    first, last = rows["rows_in"][0], rows["kept"][-1]
    return {
        "run": rows["run"][0],
        "chart": chart(charts.funnel_chart(rows)),
        "steps": [row | {"reasons": _largest_first(row["reasons"])} for row in rows.to_dicts()],
        "ratio": f"1 in {round(first / last):,} kept" if last else "nothing was kept",
    }


def _examples(store: Store) -> dict[str, Any]:
    """A dropped row for every reason, and some pairs of duplicates for every step."""
    examples = store.query(
        f"""WITH first AS (
              SELECT run, step, reason, min(query_id) AS query_id FROM verdicts WHERE run = {_RUN} AND NOT kept GROUP BY ALL)
            SELECT f.step, f.reason, q.text, q.query_id FROM first f JOIN queries q USING (run, query_id)
            LEFT JOIN funnel s ON s.run = f.run AND s.step = f.step ORDER BY s.position, f.reason"""
    )
    pairs = store.query(
        f"""WITH drawn AS (
              SELECT run, query_id, step, similarity, duplicate_of FROM verdicts WHERE run = {_RUN} AND duplicate_of IS NOT NULL
              QUALIFY row_number() OVER (PARTITION BY step ORDER BY hash(query_id), query_id) <= {PAIRS})
            SELECT d.step, d.similarity, d.query_id, q.text, d.duplicate_of, arg_min(o.text, (o.run <> d.run, o.run)) AS duplicate_of_text
            FROM drawn d JOIN queries q USING (run, query_id) JOIN queries o ON o.query_id = d.duplicate_of
            LEFT JOIN funnel s ON s.run = d.run AND s.step = d.step GROUP BY ALL ORDER BY min(s.position), d.similarity, d.query_id"""
    )
    return {"examples": examples.to_dicts(), "pairs": pairs.to_dicts()}


def _largest_first(counts: str | None) -> list[tuple[str, int]]:
    return sorted(json.loads(counts or "{}").items(), key=lambda item: (-item[1], item[0]))


def _held_out(store: Store, run: str, chart: Chart) -> dict[str, Any] | None:
    rows = store.query(f"SELECT held_out, found_by, bin_from, rows FROM nearness WHERE run = {run} ORDER BY held_out, found_by, bin_from")
    if rows.is_empty():
        return None
    caught = store.query(
        f"""SELECT c.held_out, c.held_out_row, c.found_by, c.similarity, c.query_id, q.text FROM contaminated c JOIN queries q
            USING (run, query_id) WHERE run = {run} ORDER BY c.held_out, c.similarity DESC, c.query_id"""
    )
    return {"chart": chart(charts.nearness_chart(rows)), "caught": caught.height, "examples": caught.head(20).to_dicts()}
