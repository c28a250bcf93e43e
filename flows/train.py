"""The flow `train`: seed SFT, probe, second SFT, probe, RL; every policy evaluated and gated.

The module is not called train.py: that name would hide the package `train` from whoever runs the file.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import validation
from flows.config import Config
from flows.runtime import events
from flows.runtime.artifacts import publish_table
from flows.runtime.progress import report
from flows.runtime.store_lock import work_on_store
from flows.summary_tables import certainty, facets, ladder
from storage.store import Store
from train import cascade
from train.backends import local, ray
from train.backends.cluster import ClusterConfig
from train.spec import StageSpec


@flow(name="train", log_prints=True)
def train(config: Config = Config()) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Train the cascade on what the store holds; each stage is a task of this run, in a process of its own or a job on a cluster.

    config: as in a configuration file; `train` says with which budgets.
    """
    validation.cluster(config, patience_s=None)
    cluster = config.train.cluster
    with work_on_store("train", config.store):
        launch = launcher(cluster)
        result = cascade.run_cascade(Store(config.store), config.train, launch=launch, backend=cluster.backend, progress=report)
        for table in (certainty, ladder, facets):
            publish_table(table(Store(config.store)))
        if result.promoted in result.policies:
            events.emit(events.POLICY_PROMOTED, config, policy=result.promoted.id)
        return {"promoted": result.promoted.id if result.promoted else None, "last": result.policies[-1].id, "passed": result.passed}


def launcher(cluster: ClusterConfig) -> cascade.Launch:
    """What runs a stage there, as a task of the flow."""
    return lambda spec, folder: train_stage.with_options(task_run_name=f"train {spec.name}")(spec, folder, cluster)


@task(cache_policy=NO_CACHE)
def train_stage(spec: StageSpec, folder: Path, cluster: ClusterConfig) -> dict[str, Any]:
    progress = partial(report, f"stage {spec.name}")
    return ray.launch(spec, folder, cluster, progress) if cluster.backend == "ray" else local.launch(spec, folder, progress)
