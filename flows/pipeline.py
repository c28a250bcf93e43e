"""The flow `pipeline`: all flows, one after another, on one store."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import validation
from flows.config import Config, recall, remember
from flows.curate import curate
from flows.evaluate import evaluate
from flows.runtime.artifacts import completed, publish_report
from flows.runtime.run_names import current_run_name
from flows.runtime.store_lock import work_on_store
from flows.summaries import state_messages
from flows.synthesize import synthesize
from flows.tag import tag
from flows.train import train
from storage.store import Store


@flow(name="pipeline", flow_run_name=current_run_name, log_prints=True)
def pipeline(config: Config = Config()) -> dict[str, Any]:  # noqa: B008 (frozen)
    """Run all steps, from tools and raw queries to an evaluated policy and a report.

    `tag` runs after `train`, so a resumed run tags the same tasks as an uninterrupted one.

    config: as in a configuration file.
    """
    validation.check_backends(config, patience_s=None)
    with work_on_store("pipeline", config):
        config = remember(recall(config), "synthesize", "train")
        synthesis = synthesize(config)
        curation = curate(config)
        training = train(config)
        tagging = tag(config)
        evaluation = evaluate(config, training["promoted"] or training["last"])
        publish_report(config)
        result = {"synthesize": synthesis, "curate": curation, "train": training, "tag": tagging, "evaluate": evaluation}
        return completed(f"{state_messages.trained(training)}; {state_messages.evaluated(evaluation, Store(config.store))}", result)
