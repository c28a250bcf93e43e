"""The flow `tag`: how difficult every task is, and how certain the promoted policy is of the probe tasks.

`train` measures certainty between its own stages with the same function; this flow is for the time between two trainings.
"""

from __future__ import annotations

from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import events
from flows.artifacts import leave_table
from flows.at_work import at_work
from flows.config import Config
from flows.progress import report
from flows.tables import certainty, difficulty, flips
from storage.store import Store


@flow(name="tag", log_prints=True)
def tag(config: Config = Config(), again: int = 0) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Tag the tasks of the store; certainty only where a policy was promoted.

    config: as in a configuration file; `train` says on how many tasks and with how many rollouts certainty is measured. again: probe
    tasks to measure a second time, to see how many regions are luck.
    """
    with at_work("tag", config.store):
        tagged = tag_tasks(config, again)
        for table in (difficulty, certainty, flips):
            leave_table(table(Store(config.store)))
        events.tell(events.TASKS_TAGGED, config, **tagged)
        return tagged


@task(cache_policy=NO_CACHE)
def tag_tasks(config: Config, again: int) -> dict[str, Any]:
    from train import probe

    policy = probe.tag(Store(config.store), config.train, again=again, progress=report)
    return {"policy": policy.id if policy else None}
