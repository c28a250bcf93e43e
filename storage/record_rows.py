"""Records as rows of the store's tables, where more than one room writes the table."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from storage.records import Task
from storage.tables import TABLES


def tasks_frame(tasks: Sequence[Task]) -> pl.DataFrame:
    """Rows of table `tasks`; `spec` is the whole record as JSON."""
    columns = TABLES["tasks"].columns
    rows = [
        {"task_id": task.id, "spec": task.model_dump_json()} | task.model_dump(include=columns.keys() - {"task_id", "spec"})
        for task in tasks
    ]
    return pl.DataFrame(rows, schema=columns)
