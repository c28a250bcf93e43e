"""Retries of tasks that need something outside: engines, a Ray cluster, an object store.

Only runs of deployments retry: under the `headrace` command the user sees the error, and the same command goes on where it stopped.
A task is resumable, so a retry repeats nothing that was committed.
"""

from __future__ import annotations

from typing import Any, TypedDict

from prefect.tasks import exponential_backoff

from flows.runtime.events import is_in_a_deployment

LONGEST_S = 48 * 3600.0


class Outside(TypedDict):
    """Arguments of `prefect.task`."""

    retries: int
    retry_delay_seconds: Any
    retry_jitter_factor: float
    retry_condition_fn: Any
    timeout_seconds: float


def is_transient(_task: Any, _run: Any, state: Any) -> bool:
    """Whether the failure is of something outside that may answer later, in a run of a deployment."""
    from synth.engines.base import EngineFailure
    from train.backends.ray_jobs import NoAnswer

    if not is_in_a_deployment():
        return False
    error = state.result(raise_on_failure=False)
    return isinstance(error, ConnectionError | TimeoutError | EngineFailure | NoAnswer)


RETRIES = Outside(
    retries=3,
    retry_delay_seconds=exponential_backoff(30),
    retry_jitter_factor=0.5,
    retry_condition_fn=is_transient,
    timeout_seconds=LONGEST_S,
)
"""Three retries after about 30, 60 and 120 seconds, each at most half as long again, and no attempt longer than two days."""
