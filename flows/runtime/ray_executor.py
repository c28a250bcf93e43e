"""The Ray executor: the batches, partitions and bands of the funnel as tasks on a Ray cluster, in place of threads.

One idea: the library hands functions and small values to an executor and finds everything else in the store's folder, which every node must
see under the same path; so a task that is lost with its node is simply done again elsewhere, and the survivors are those of a local run.
On one machine Ray buys nothing over threads. What it is for: several machines.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from storage.errors import BadInput, HeadraceError

Result = TypeVar("Result")

LOCAL = "local"
_ENVIRONMENT = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
_TRIES = 5
_IN_FLIGHT = 4
"""Tasks for each CPU of the cluster that are handed over before the first of them has come back."""


class RayExecutor:
    """Runs batches as Ray tasks of one CPU each; results come in the order of the items (see `filters.step.Executor`)."""

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any]) -> Iterator[Result]:
        """Raises what `fn` raised; HeadraceError where a task was lost with its node, or ran out of memory, again and again."""
        import ray

        call = ray.remote(num_cpus=1, max_retries=_TRIES)(_called)
        held, waiting = ray.put(fn), deque[Any]()
        room = max(1, _IN_FLIGHT * int(ray.cluster_resources().get("CPU", 1)))
        items = zip(*iterables, strict=False)
        for item in itertools.islice(items, room):
            waiting.append(call.remote(held, *item))
        while waiting:
            yield _answer(waiting.popleft())
            for item in itertools.islice(items, 1):
                waiting.append(call.remote(held, *item))


@contextlib.contextmanager
def ray_executor(address: str) -> Iterator[RayExecutor]:
    """An executor on the Ray cluster at an address (`host:port` of its head, `auto`, or `ray://host:port`), or on one of this machine's own
    (`local`), which ends with the call.

    Raises:
        BadInput: Ray is not installed, or no cluster answers there.
    """
    try:
        import ray
    except ImportError as error:
        raise BadInput("Ray is not installed: pip install 'headrace[ray]'") from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
    place: dict[str, Any] = {"address": address}
    if address == LOCAL:
        place |= {"num_cpus": os.cpu_count(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(**place, log_to_driver=False, configure_logging=False, runtime_env={"env_vars": dict(_ENVIRONMENT)})
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"no Ray cluster at {address} ({reason}); start one with `ray start --head`, or use `--ray local`") from error
    try:
        yield RayExecutor()
    finally:
        ray.shutdown()


def _called(fn: Callable[..., Result], *items: Any) -> Result:
    return fn(*items)


def _answer(reference: Any) -> Any:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        lost = str(error).splitlines()[0]
        raise HeadraceError(
            f"a task was lost on the Ray cluster {_TRIES + 1} times ({lost}); run the same command again to go on"
        ) from error
