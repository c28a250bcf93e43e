"""Artifacts of a flow in Prefect's UI: the tables of the run, its learning curves, and the report of the store with a link to it.

Fixed keys give each artifact a history.
"""

from __future__ import annotations

from typing import Any, cast

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.config import Config
from flows.runtime.events import is_inside_a_flow
from flows.summaries.summary_tables import Table
from storage.report.learning_curves import text_curves
from storage.report.page import write_report
from storage.store import Store


def completed(message: str, result: dict[str, Any]) -> dict[str, Any]:
    """What a flow returns to end with this message: Prefect takes the state, and gives the caller its result."""
    from prefect.states import Completed

    return cast("dict[str, Any]", Completed(message=message, data=result))


def publish_table(table: Table) -> None:
    """Publish a table as an artifact. An empty table is skipped."""
    from prefect.artifacts import create_table_artifact

    if table.rows:
        create_table_artifact(table=table.rows, key=f"headrace-{table.key}", description=table.title)


def publish_curves(store: Store) -> None:
    """Publish the learning curves of the last training, as text: Prefect's UI shows an image only with its whole address below it."""
    from prefect.artifacts import create_markdown_artifact

    if drawn := text_curves(store):
        create_markdown_artifact(f"```text\n{drawn}\n```", key="headrace-learning", description="Learning curves, step by step")


def publish_report(config: Config) -> None:
    """Write the report of the store. Publish a link to it, and its path as text, because Prefect's UI cannot open local files.

    A flow inside another flow writes none: the outer flow writes one at its end.
    """
    from prefect.artifacts import create_markdown_artifact

    if is_inside_a_flow():
        return
    write_report_page(config)
    path = config.report.absolute()
    create_markdown_artifact(f"[report.html]({path.as_uri()})\n\n`{path}`", key="headrace-report", description="Report of the store")


@task(task_run_name="the report", cache_policy=NO_CACHE)
def write_report_page(config: Config) -> str:
    return str(write_report(Store(config.store), config.report))
