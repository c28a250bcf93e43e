"""The flow `tag`: the difficulty of every task, and the certainty of a policy on the probe tasks.

The flow `train` measures certainty between its stages with the same function. This flow measures it between two trainings.
"""

from __future__ import annotations

from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import validation
from flows.config import Config, keep_budgets, recall
from flows.runtime import events
from flows.runtime.artifacts import completed, publish_report, publish_table
from flows.runtime.deployed.new_rows import note_seen, too_few_new
from flows.runtime.deployed.retries import retried
from flows.runtime.progress import report
from flows.runtime.run_names import current_run_name
from flows.runtime.store_lock import work_on_store
from flows.summaries import state_messages
from flows.summaries.summary_tables import certainty, difficulty, flips, priors
from storage.store import Store


@flow(name="tag", flow_run_name=current_run_name, log_prints=True)
def tag(config: Config = Config(), policy: str | None = None, again: int = 0, least_new: int = 0) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Tag the tasks of the store by difficulty and, if a policy is named or promoted, by certainty.

    The event that starts a training is emitted only if the store has both tasks of queries and, if they are to be used, conversations.

    config: as in a configuration file; section `train` gives the numbers of tasks and rollouts.
    policy: id of a policy, or name of an engine; None: the last promoted policy.
    again: number of probe tasks to measure a second time, to find how many regions change by chance.
    least_new: do nothing if the store has fewer new tasks and accepted conversations since the last run of `tag`.
    """
    with work_on_store("tag", config):
        if too_few := too_few_new("tag", config.store, least_new):
            if not too_few_new("train", config.store, least_new) and not validation.missing_kind(config):
                events.emit(events.TASKS_TAGGED, config, policy=None)  # a training was started for them, and did not come to its end
            return completed(too_few, {"policy": None})
        config = recall(config)
        keep_budgets(config)
        result = retried(tag_tasks)(config, policy, again)
        for table in (difficulty, certainty, priors, flips):
            publish_table(table(Store(config.store)))
        publish_report(config)
        if missing := validation.missing_kind(config):
            print(f"no training is started: {missing}")
        else:
            events.emit(events.TASKS_TAGGED, config, **result)
        note_seen("tag", config.store)
        return completed(state_messages.tagged(result, Store(config.store)), result)


@task(task_run_name="difficulty and certainty", cache_policy=NO_CACHE)
def tag_tasks(config: Config, policy: str | None, again: int) -> dict[str, Any]:
    from train.measure import probe

    probed_policy = probe.tag(Store(config.store), config.train, policy=policy, again=again, progress=report)
    return {"policy": probed_policy.id if probed_policy else None}
