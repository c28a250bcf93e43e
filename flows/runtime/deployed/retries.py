"""Retries of what needs something outside: engines, a Ray cluster, an object store. And time-outs of tasks.

Only runs of deployments have them: under the `headrace` command the user sees the error, and the same command goes on where it stopped.
A task is resumable, so a retry repeats nothing that was committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flows.runtime.events import is_in_a_deployment
from flows.runtime.progress import warn
from storage.errors import OutOfReach

if TYPE_CHECKING:
    from prefect import Task

Given = ParamSpec("Given")
Result = TypeVar("Result")

DELAYS_S = (30.0, 60.0, 120.0)
"""Before the second try, the third and the fourth; a task's are by chance, and at most half as long again."""
LONGEST_S = 48 * 3600.0
"""Of one try of a task."""
_JITTER = 0.5


def retried(task: Task[Given, Result], *, longest_s: float | None = LONGEST_S) -> Task[Given, Result]:
    """The task as a run of a deployment calls it: tried again, and with a time-out for each try (None: without). Elsewhere as it is."""
    if not is_in_a_deployment():
        return task
    return task.with_options(
        retries=len(DELAYS_S),
        retry_delay_seconds=list(DELAYS_S),
        retry_jitter_factor=_JITTER,
        retry_condition_fn=_is_transient,
        timeout_seconds=longest_s,
    )


def try_again(do: Callable[[], Result]) -> Result:
    """The result of what is no task, after as many tries; in a run that is not of a deployment after one."""
    for delay_s in DELAYS_S if is_in_a_deployment() else ():
        try:
            return do()
        except Exception as error:
            if not is_outside(error):
                raise
            warn(f"{error}; trying again in {delay_s:.0f} s")
        time.sleep(delay_s)
    return do()


def is_outside(error: object) -> bool:
    """Whether the failure is of something outside that may answer later."""
    return isinstance(error, ConnectionError | TimeoutError | OutOfReach)


def _is_transient(_task: Any, _run: Any, state: Any) -> bool:
    return is_outside(state.result(raise_on_failure=False))
