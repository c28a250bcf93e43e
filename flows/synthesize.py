"""The flow `synthesize`: blueprints over the worlds' tools, simulated to verified trajectories."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.config import Config, recall, remember
from flows.runtime import events
from flows.runtime.artifacts import completed, publish_report, publish_table
from flows.runtime.deployed.new_rows import new_rounds, note_seen
from flows.runtime.deployed.retries import retried
from flows.runtime.progress import report, warn
from flows.runtime.run_names import current_run_name
from flows.runtime.store_lock import work_on_store
from flows.summaries import state_messages
from flows.summaries.summary_tables import diversity, outcomes, rounds
from storage.errors import HeadraceError
from storage.store import Store
from synth.run import synthesize as synthesis


@flow(name="synthesize", flow_run_name=current_run_name, log_prints=True)
def synthesize(config: Config = Config()) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Make trajectories until the configured number is accepted, commit them, and write the report.

    config: as in a configuration file; section `synthesize` configures the flow.
    """
    with work_on_store("synthesize", config):
        config = remember(recall(config), "synthesize")
        try:
            result = retried(make_trajectories)(config)
        except Exception:
            with contextlib.suppress(HeadraceError):  # of a store that cannot be read: the first error is the one to show
                tell(config, {})
            raise
        for table in (rounds, outcomes, diversity):
            publish_table(table(Store(config.store)))
        publish_report(config)
        tell(config, result)
        return completed(state_messages.synthesized(result), result)


def tell(config: Config, result: Mapping[str, Any]) -> None:
    """Emit what the last run of the deployment has not told: new conversations wake the chain, and alarms an operator.

    result: of the run; empty if it failed: then its complete rounds are told, which are in the store.
    """
    if not events.is_root_of_a_deployment():
        return
    new = new_rounds(config.store)
    if new is None:
        events.emit_alarms(config, {**result, "proposals": 0, "rejected": {}, "alarms": []})
        return
    if new.newly_accepted:
        events.emit(events.TRAJECTORIES_COMMITTED, config, run=new.run, accepted=new.accepted)
    events.emit_alarms(config, {**result, "proposals": new.proposals, "rejected": new.rejected})
    note_seen("synthesize", config.store)


@task(task_run_name="rounds of conversations", cache_policy=NO_CACHE)
def make_trajectories(config: Config) -> dict[str, Any]:
    divisions = config.curate.divisions
    result = synthesis.synthesize(Store(config.store), config.synthesize, divisions=divisions, progress=report, warn=warn)
    for note in (*result.notes, *result.alarms):
        print(note)
    return {
        "run": result.run,
        "accepted": result.accepted,
        "proposals": result.proposals,
        "tasks": result.tasks,
        "rounds": result.rounds,
        "rejected": dict(result.rejected),
        "is_spent": result.is_spent,
        "notes": list(result.notes),
        "alarms": list(result.alarms),
    }
