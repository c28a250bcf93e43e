"""The flow `tag`: how difficult every task is, and how certain the promoted policy is of the probe tasks.

`train` measures certainty between its own stages with the same function; this flow is for the time between two trainings.
"""

from __future__ import annotations

from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.config import Config
from flows.runtime import events
from flows.runtime.artifacts import publish_table
from flows.runtime.progress import report
from flows.runtime.store_lock import work_on_store
from flows.summary_tables import certainty, difficulty, flips
from storage.store import Store


@flow(name="tag", log_prints=True)
def tag(config: Config = Config(), policy: str | None = None, again: int = 0) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Tag the tasks of the store; certainty only where a policy is named or was promoted.

    config: as in a configuration file; `train` says on how many tasks and with how many rollouts certainty is measured. policy: its id, or
    an engine's name; none: the one promoted last. again: probe tasks to measure a second time, to see how many regions are luck.
    """
    with work_on_store("tag", config.store):
        tagged = tag_tasks(config, policy, again)
        for table in (difficulty, certainty, flips):
            publish_table(table(Store(config.store)))
        events.emit(events.TASKS_TAGGED, config, **tagged)
        return tagged


@task(cache_policy=NO_CACHE)
def tag_tasks(config: Config, policy: str | None, again: int) -> dict[str, Any]:
    from train.measure import probe

    tagged = probe.tag(Store(config.store), config.train, policy=policy, again=again, progress=report)
    return {"policy": tagged.id if tagged else None}
