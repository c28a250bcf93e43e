"""The Ray executor: runs the batches, partitions and bands of the funnel as tasks on a Ray cluster, instead of in threads.

One idea: the library passes functions and small values to an executor. All other data lie in the store's folder, which every node must
see under the same path. So Ray can repeat a task on another node, and the kept rows are the same as in a local run.
Use it for several machines; on one machine it is not faster than threads.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from storage.errors import BadInput, OutOfReach

Result = TypeVar("Result")

LOCAL = "local"
_ENVIRONMENT = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
_KNOCK_S = 20.0
_TRIES = 5
_IN_FLIGHT = 4
"""Tasks submitted at once, per CPU of the cluster."""


class RayExecutor:
    """Runs batches as Ray tasks of one CPU each. Results come in the order of the items (see `storage.execution.Executor`)."""

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any]) -> Iterator[Result]:
        """Yield `fn(*item)` per item. Raises the exception of `fn`; OutOfReach if Ray lost a task 6 times (node gone, out of memory)."""
        import ray

        remote_call = ray.remote(num_cpus=1, max_retries=_TRIES)(_call)
        fn_reference, pending = ray.put(fn), deque[Any]()
        most_pending = max(1, _IN_FLIGHT * int(ray.cluster_resources().get("CPU", 1)))
        items = zip(*iterables, strict=False)
        for item in itertools.islice(items, most_pending):
            pending.append(remote_call.remote(fn_reference, *item))
        while pending:
            yield _result(pending.popleft())
            for item in itertools.islice(items, 1):
                pending.append(remote_call.remote(fn_reference, *item))


@contextlib.contextmanager
def ray_executor(address: str) -> Iterator[RayExecutor]:
    """Open an executor on a Ray cluster.

    address: `host:port` of the cluster's head, or `auto`, on a node of the cluster: Ray gives a driver the raylet of its own host.
        `local` starts a cluster on this machine for this call.

    Raises:
        BadInput: Ray is not installed, or the address is none. OutOfReach: no cluster answers there, or this machine is no node of it.
    """
    try:
        import ray
    except ImportError as error:
        raise BadInput("Ray is not installed: pip install 'headrace[ray]'") from error
    logging.getLogger("ray").setLevel(logging.WARNING)  # its own is INFO: every connection would be in the flow run's log
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
    connection: dict[str, Any] = {"address": address}
    if address == LOCAL:
        connection |= {"num_cpus": os.cpu_count(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        _knock(address)
        ray.init(**connection, log_to_driver=False, configure_logging=False, runtime_env={"env_vars": dict(_ENVIRONMENT)})
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        kind = BadInput if isinstance(error, ValueError) else OutOfReach
        advice = "call it on a node of the cluster, start one with `ray start --head`, or use `--ray local`"
        raise kind(f"no Ray cluster at {address} ({reason}); {advice}") from error
    try:
        yield RayExecutor()
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises OSError if nothing listens at `host:port`; Ray itself would try for a quarter of an hour."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()


def _call(fn: Callable[..., Result], *items: Any) -> Result:
    return fn(*items)


def _result(reference: Any) -> Any:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        reason = str(error).splitlines()[0]
        raise OutOfReach(f"the Ray cluster lost a task {_TRIES + 1} times ({reason}); run the same command again to continue") from error
