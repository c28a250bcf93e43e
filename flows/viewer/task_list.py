"""The tasks of a store as one table of short columns, read once a commit: a page of tasks is then filtered in memory.

The tasks' own table holds each as one JSON text, and reading thousands of these takes a second.
"""

from __future__ import annotations

from functools import lru_cache

import polars as pl

from storage.store import Store
from storage.tables import CERTAINTY

USES = {"train": "training and probes", "eval_in": "evaluation, known needs", "eval_out": "evaluation, new needs"}
_TASKS_SQL = f"""
WITH plain AS (
    SELECT task_id, world, intent, division, "use", difficulty, language, frame_id, query_id, blueprint_id,
      json_extract_string(spec, ['$.messages[#-1].content', '$.conversation.turns[#-1].t', '$.success.refusal']) AS fields,
      json_extract(spec, '$.success.changes') AS changes, json_extract_string(spec, '$.conversation.turns[*].text') AS later
    FROM tasks),
measured AS (
    SELECT task_id, arg_max(region, parts.rowid) AS region FROM {CERTAINTY} JOIN parts USING (part_id)
    WHERE purpose IN ('probe', 'probe_again') GROUP BY task_id)
SELECT task_id, world, intent, division, "use", difficulty::VARCHAR AS difficulty, language, frame_id, query_id, blueprint_id,
  coalesce(fields[1], '') AS request, coalesce(array_to_string(later, chr(10)), '') AS later,
  CASE WHEN difficulty = -1 OR fields[3] IS NOT NULL THEN 'refusal' WHEN changes::VARCHAR <> '{{}}' THEN 'act' ELSE 'look-up' END AS kind,
  CASE WHEN query_id IS NOT NULL THEN 'raw query' WHEN fields[2] IS NOT NULL THEN 'synthesised conversation'
    ELSE 'single goal' END AS origin,
  coalesce(region, 'not measured') AS certainty
FROM plain LEFT JOIN measured USING (task_id) ORDER BY world, intent, task_id"""


def list_tasks(store: Store) -> pl.DataFrame:
    """A row for each task.

    Columns: task_id, world, intent, division, use (in words), difficulty (text), language, frame_id, query_id, blueprint_id, request (what
    the user says first), later (all that the user says in a conversation), kind (as in evaluations: act, look-up, refusal), origin,
    certainty (the region that the last probe of a policy found), lowered (all texts).
    """
    parts = store.query("SELECT part_id FROM parts WHERE table_name IN ('tasks', 'tags', 'withdrawn') ORDER BY part_id")["part_id"]
    return _read(store, tuple(parts))


@lru_cache(maxsize=2)
def _read(store: Store, parts: tuple[str, ...]) -> pl.DataFrame:
    """parts: the committed ones, so that a changed store is read again."""
    lowered = (pl.col("request") + "\n" + pl.col("later")).str.to_lowercase()
    return store.query(_TASKS_SQL).with_columns(pl.col("use").replace(USES), lowered=lowered)
