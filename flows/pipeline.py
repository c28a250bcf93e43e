"""The flow `pipeline`: all of them, one after another, on one store."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import validation
from flows.config import Config
from flows.curate import curate
from flows.evaluate import evaluate
from flows.runtime.store_lock import work_on_store
from flows.synthesize import synthesize
from flows.tag import tag
from flows.train import train


@flow(name="pipeline", log_prints=True)
def pipeline(config: Config = Config()) -> dict[str, Any]:  # noqa: B008 (frozen)
    """From tools and raw queries to an evaluated policy and a report. Tags come last, so that a resumed run tags what a whole one does.

    config: as in a configuration file.
    """
    validation.cluster(config, patience_s=None)
    with work_on_store("pipeline", config.store):
        made = synthesize(config)
        kept = curate(config)
        trained = train(config)
        tagged = tag(config)
        measured = evaluate(config, trained["promoted"] or trained["last"])
        return {"synthesize": made, "curate": kept, "train": trained, "tag": tagged, "evaluate": measured}
