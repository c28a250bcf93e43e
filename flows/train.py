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
from flows.runtime.artifacts import completed, publish_curves, publish_report, publish_table
from flows.runtime.deployed.new_rows import note_seen, too_few_new
from flows.runtime.deployed.retries import retried
from flows.runtime.progress import report
from flows.runtime.run_names import current_run_name
from flows.runtime.store_lock import work_on_store
from flows.summaries import state_messages
from flows.summaries.summary_tables import certainty, facets, forgetting, ladder
from storage.store import Store
from train import cascade
from train.backends.base import Backend, run_stage
from train.spec import StageSpec


@flow(name="train", flow_run_name=current_run_name, log_prints=True)
def train(config: Config = Config(), least_new: int = 0) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Train the stages on the tasks and trajectories of the store. Each stage is a task of this run; its backend runs it.

    config: as in a configuration file; section `train` lists the stages and their budgets.
    least_new: do nothing if the store has fewer new tasks and accepted conversations since the last run of `train`.
    """
    validation.check_backends(config, patience_s=None)
    with work_on_store("train", config):
        if too_few := too_few_new("train", config.store, least_new):
            return completed(too_few, {"promoted": None, "last": None, "passed": {}})
        config = remember(recall(config), "train")
        result = cascade.run_cascade(Store(config.store), config.train, run=run_as_task, progress=report)
        for table in (certainty, ladder, forgetting, facets):
            publish_table(table(Store(config.store)))
        publish_curves(Store(config.store))
        publish_report(config)
        if result.promoted in result.policies:
            events.emit(events.POLICY_PROMOTED, config, policy=result.promoted.id)
        note_seen("train", config.store)
        promoted = result.promoted.id if result.promoted else None
        outcome = {"promoted": promoted, "last": result.policies[-1].id, "passed": result.passed}
        return completed(state_messages.trained(outcome), outcome)


def run_as_task(backend: Backend[Any], spec: StageSpec, folder: Path) -> dict[str, Any]:
    """Run a stage as a task of the flow. It has no time-out: a stage may take days, and a Ray Job would go on without its task."""
    return retried(train_stage, longest_s=None).with_options(task_run_name=f"train {spec.name}")(backend, spec, folder)


@task(cache_policy=NO_CACHE)
def train_stage(backend: Backend[Any], spec: StageSpec, folder: Path) -> dict[str, Any]:
    return run_stage(backend, spec, folder, partial(report, f"stage {spec.name}"))
