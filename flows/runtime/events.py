"""How one deployment starts the next: events, emitted only where somebody may be waiting for them.

One idea: a flow tells what it did only as the root run of its own deployment. Inside `pipeline`, and under the `headrace` command, the
steps follow each other anyway; an event there would start the same work a second time.
The event carries the whole configuration, so the run that it triggers works on the same store with the same settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.config import Config

TRAJECTORIES_COMMITTED = "headrace.trajectories.committed"
TASKS_CURATED = "headrace.tasks.curated"
TASKS_TAGGED = "headrace.tasks.tagged"
POLICY_PROMOTED = "headrace.policy.promoted"
RESOURCE = "headrace.store"


def tell(event: str, config: Config, **what: Any) -> None:
    """Emit `event` if this run is the root run of a deployment.

    what: small JSON values for the payload, beside the configuration.
    """
    from prefect.events import emit_event

    if not is_root_of_a_deployment():
        return
    resource = {"prefect.resource.id": RESOURCE, "prefect.resource.name": str(config.store)}
    emit_event(event, resource=resource, payload={"config": config.model_dump(mode="json"), **what})


def is_root_of_a_deployment() -> bool:
    """Whether this is the outermost flow of a run that a deployment started."""
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    run = context.flow_run if context else None
    return run is not None and run.deployment_id is not None and run.parent_task_run_id is None
