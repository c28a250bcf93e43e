"""The flow `train`: run the stages of the cascade one after another; evaluate every policy, and promote it if it passes the gate."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import validation
from flows.config import Config, recall, remember
from flows.runtime import events
from flows.runtime.artifacts import publish_report, publish_table
from flows.runtime.progress import report
from flows.runtime.run_names import current_run_name
from flows.runtime.store_lock import work_on_store
from flows.summaries.summary_tables import certainty, facets, forgetting, ladder
from storage.store import Store
from train import cascade
from train.backends.base import Backend, run_stage
from train.spec import StageSpec


@flow(name="train", flow_run_name=current_run_name, log_prints=True)
def train(config: Config = Config()) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Train the stages on the tasks and trajectories of the store. Each stage is a task of this run; its backend runs it.

    config: as in a configuration file; section `train` lists the stages and their budgets.
    """
    validation.check_backends(config, patience_s=None)
    with work_on_store("train", config):
        config = remember(recall(config), "train")
        result = cascade.run_cascade(Store(config.store), config.train, run=run_as_task, progress=report)
        for table in (certainty, ladder, forgetting, facets):
            publish_table(table(Store(config.store)))
        publish_report(config)
        if result.promoted in result.policies:
            events.emit(events.POLICY_PROMOTED, config, policy=result.promoted.id)
        return {"promoted": result.promoted.id if result.promoted else None, "last": result.policies[-1].id, "passed": result.passed}


def run_as_task(backend: Backend[Any], spec: StageSpec, folder: Path) -> dict[str, Any]:
    """Run a stage as a task of the flow."""
    return train_stage.with_options(task_run_name=f"train {spec.name}")(backend, spec, folder)


@task(cache_policy=NO_CACHE)
def train_stage(backend: Backend[Any], spec: StageSpec, folder: Path) -> dict[str, Any]:
    return run_stage(backend, spec, folder, partial(report, f"stage {spec.name}"))
