"""What a flow leaves in Prefect's UI: the run's tables and where its report lies, under fixed keys, so that each key has a history."""

from __future__ import annotations

from pathlib import Path

from flows.summary_tables import Table


def leave_table(table: Table) -> None:
    """Leave a table, if it has rows."""
    from prefect.artifacts import create_table_artifact

    if table.rows:
        create_table_artifact(table=table.rows, key=f"headrace-{table.key}", description=table.title)


def leave_report(report: Path) -> None:
    """Leave a link to the report. Prefect's UI cannot open files of this machine, so the path stands there as text too."""
    from prefect.artifacts import create_markdown_artifact

    place = report.absolute()
    create_markdown_artifact(f"[report.html]({place.as_uri()})\n\n`{place}`", key="headrace-report", description="Report of the store")
