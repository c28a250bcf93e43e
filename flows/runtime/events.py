"""Events with which one deployment starts the next.

One idea: a flow emits its event only as the root run of a deployment. Inside `pipeline` and under the `headrace` command the steps follow
each other anyway, and an event would start the same work twice.
The event carries the whole configuration, so the triggered run works on the same store with the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.config import Config

TRAJECTORIES_COMMITTED = "headrace.trajectories.committed"
TASKS_CURATED = "headrace.tasks.curated"
TASKS_TAGGED = "headrace.tasks.tagged"
POLICY_PROMOTED = "headrace.policy.promoted"
BUDGET_SPENT = "headrace.budget.spent"
BUDGET_NEAR_END = "headrace.budget.near-its-end"
FAILURES_HIGH = "headrace.failures.high"
DIVERSITY_COLLAPSED = "headrace.diversity.collapsed"
MOST_OF_ONE_FAILURE = 0.5
"""Share of a synthesis' proposals that one reason may reject without an event."""
RESOURCE = "headrace.store"


def emit(event: str, config: Config, **payload: Any) -> None:
    """Emit `event` if this run is the root run of a deployment.

    payload: small JSON values, sent beside the configuration.
    """
    from prefect.events import emit_event

    if not is_root_of_a_deployment():
        return
    resource = {"prefect.resource.id": RESOURCE, "prefect.resource.name": str(config.store)}
    emit_event(event, resource=resource, payload={"config": config.model_dump(mode="json"), **payload})


def emit_alarms(config: Config, result: Mapping[str, Any]) -> None:
    """Emit what an operator should know of a synthesis: `automations.yaml` acts on it.

    result: of the run; of one that failed, its proposals and what rejected them.
    """
    if result.get("is_spent"):
        emit(BUDGET_SPENT, config, notes=result["notes"])
    reason, count = max(result["rejected"].items(), key=lambda each: each[1], default=("", 0))
    if count > MOST_OF_ONE_FAILURE * result["proposals"]:
        emit(FAILURES_HIGH, config, reason=reason, share=round(count / result["proposals"], 3))
    if result.get("alarms"):
        emit(DIVERSITY_COLLAPSED, config, alarms=result["alarms"])


def is_root_of_a_deployment() -> bool:
    """Whether this is the outermost flow run, and a deployment started it."""
    return is_in_a_deployment() and not is_inside_a_flow()


def is_in_a_deployment() -> bool:
    """Whether a deployment started the current flow run, or the run that it is a part of."""
    from prefect.context import FlowRunContext
    from prefect.runtime import deployment

    return FlowRunContext.get() is not None and deployment.id is not None


def is_inside_a_flow() -> bool:
    """Whether the current flow run was started by another flow run."""
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    run = context.flow_run if context else None
    return run is not None and run.parent_task_run_id is not None
