"""The flow `evaluate`: measure a policy on the held-out tasks, and write the report."""

from __future__ import annotations

from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.config import Config, keep_budgets, recall
from flows.runtime.artifacts import completed, publish_report, publish_table
from flows.runtime.deployed.retries import retried
from flows.runtime.progress import report
from flows.runtime.run_names import current_run_name
from flows.runtime.store_lock import work_on_store
from flows.summaries import state_messages
from flows.summaries.summary_tables import facets, ladder
from storage.store import Store


@flow(name="evaluate", flow_run_name=current_run_name, log_prints=True)
def evaluate(config: Config = Config(), policy: str | None = None, suites: tuple[str, ...] = ()) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Measure a policy in and out of distribution, and write the report of the store.

    config: as in a configuration file; section `train` gives the number of tasks.
    policy: id of a policy, or name of an engine; None: the last promoted policy.
    suites: benchmarks of others to measure it on besides, by name or file (`headrace evaluate --suite`).
    """
    with work_on_store("evaluate", config):
        config = recall(config)
        keep_budgets(config)
        result = retried(measure)(config, policy)
        result["suites"] = [retried(measure_on)(config, name, policy) for name in suites]
        for table in (ladder, facets):
            publish_table(table(Store(config.store)))
        publish_report(config)
        return completed(state_messages.evaluated(result, Store(config.store)), result)


@task(task_run_name="held-out tasks", cache_policy=NO_CACHE)
def measure(config: Config, policy: str | None) -> dict[str, Any]:
    from train.measure import probe

    return {"policy": probe.evaluate(Store(config.store), config.train, policy=policy, progress=report).id}


@task(task_run_name="suite {name}", cache_policy=NO_CACHE)
def measure_on(config: Config, name: str, policy: str | None) -> dict[str, Any]:
    from storage.records import content_id
    from train.measure.suites.measure import measure_suite
    from train.measure.suites.suite_names import open_suite
    from train.policies import find_policy, open_policy_engine

    store, asking = Store(config.store), config.train.engine
    found = find_policy(store, policy)
    with open_suite(name) as suite, open_policy_engine(store, found, asking, content_id("run", "suites", found.id)) as engine:
        measured = measure_suite(engine, suite, suite.cases(), found.id, store=store, max_tokens=asking.answer_tokens, progress=report)
    total = measured.accuracies[0]
    rates = {"ours": total.ours.rate, "theirs": total.theirs.rate, "agree": total.agree.rate}
    return {"suite": name, "rated": total.ours.rated, "ended_early": total.ended_early.passed, **rates}
