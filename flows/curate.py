"""The flow `curate`: raw queries in, admitted tasks and kept queries out, a verdict for every row."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from filters import funnel
from flows.config import Config, recall, remember, settle_curation
from flows.runtime import events
from flows.runtime.artifacts import completed, publish_report, publish_table
from flows.runtime.deployed.retries import retried
from flows.runtime.progress import report
from flows.runtime.ray_executor import ray_executor
from flows.runtime.run_names import curation_name, current_run_name, rename_run
from flows.runtime.store_lock import work_on_store
from flows.summaries import state_messages
from flows.summaries.summary_tables import difficulty
from flows.summaries.summary_tables import funnel as funnel_table
from storage.store import Store
from synth.haystack import generate


@flow(name="curate", flow_run_name=current_run_name, log_prints=True)
def curate(
    config: Config = Config(),  # noqa: B008 (frozen)
    files: list[str] | None = None,
    ray: str | None = None,
    preview: bool = False,
) -> dict[str, Any]:
    """Filter query files, commit every verdict, the kept queries and the admitted tasks, and write the report.

    config: as in a configuration file; section `curate` configures the flow.
    files: paths, patterns or URLs of Parquet, JSONL, CSV, TSV or text files; none: the generated haystack.
    ray: address of a Ray cluster, or `local`; None: threads of this process.
    preview: run all steps, say what was read, and commit nothing; the next run commits it.
    """
    with work_on_store("curate", config):
        config = remember(settle_curation(recall(config), files or []), "curate")
        sources = files or [str(make_haystack(config).absolute())]
        result = retried(filter_queries)(config, sources, ray, preview)
        if result["run"] is None:
            return completed(state_messages.curated(result), result)
        steps = funnel_table(Store(config.store))
        for row in steps.rows:
            dropped = f", dropped {row['why']}" if row["why"] else ""
            print(f"{row['step']}: {row['rows in']} rows in, {row['kept']} kept{dropped}, {row['seconds']} s")
        rename_run(curation_name(files or [], result["rows"], result["kept"]))
        publish_table(steps)
        publish_table(difficulty(Store(config.store)))
        publish_report(config)
        events.emit(events.TASKS_CURATED, config, run=result["run"], tasks=result["tasks"])
        return completed(state_messages.curated(result), result)


@task(task_run_name="generate {config.haystack.rows} queries", cache_policy=NO_CACHE)
def make_haystack(config: Config) -> Path:
    report("haystack", 0, 1)
    targets = config.curate.target_tasks(config.haystack.rows)
    queries, _plants = generate.generate(config.folder / "haystack", config.haystack, targets, config.families)
    report("haystack", 1, 1)
    return queries


@task(task_run_name="steps of the funnel", cache_policy=NO_CACHE)
def filter_queries(config: Config, sources: list[str], ray: str | None = None, preview: bool = False) -> dict[str, Any]:
    try:
        with ray_executor(ray) if ray else contextlib.nullcontext() as executor:
            result = funnel.curate(Store(config.store), sources, config.curate, commits=not preview, progress=report, executor=executor)
    except funnel.NothingNew as nothing:
        print(nothing)
        return {"run": None, "kept": 0, "tasks": 0, "notes": [str(nothing)]}
    except funnel.NotCommitted as found:
        return {"run": None, "kept": 0, "tasks": 0, "notes": [*found.notes]}
    notes = [note for note in (result.shortfall, result.not_compared, *result.not_done) if note]
    for note in notes:
        print(note)
    counts = {"rows": int(result.funnel["rows_in"][0]), "kept": int(result.funnel["kept"][-1]), "tasks": len(result.task_ids)}
    return {"run": result.run, **counts, "notes": notes}
