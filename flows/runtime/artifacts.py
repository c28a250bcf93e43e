"""Artifacts of a flow in Prefect's UI: the tables of the run and a link to its report. Fixed keys give each artifact a history."""

from __future__ import annotations

from pathlib import Path

from flows.summary_tables import Table


def publish_table(table: Table) -> None:
    """Publish a table as an artifact. An empty table is skipped."""
    from prefect.artifacts import create_table_artifact

    if table.rows:
        create_table_artifact(table=table.rows, key=f"headrace-{table.key}", description=table.title)


def publish_report(report: Path) -> None:
    """Publish a link to the report, and its path as text, because Prefect's UI cannot open local files."""
    from prefect.artifacts import create_markdown_artifact

    path = report.absolute()
    create_markdown_artifact(f"[report.html]({path.as_uri()})\n\n`{path}`", key="headrace-report", description="Report of the store")
