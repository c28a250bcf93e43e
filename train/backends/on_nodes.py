"""Runs one command on each of several nodes, because a Ray Job is a process on one node.

One idea: one actor per node runs the command in a child process. In the command, `{rank}` becomes the node's number, and `{ip}` and
`{port}` become the address of the first node and a free port of it, for the rendezvous.
`python -P -m train.backends.on_nodes SPREAD COMMAND`; SPREAD is JSON: nodes, take (resources of a node), labels.
The first command that fails ends the others; its exit code is returned.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from train.backends.remote_sync import RANK

NO_NODES = 75
"""Exit code if the nodes were not free in time."""
_START_TIMEOUT = "RAY_JOB_START_TIMEOUT_SECONDS"
"""Ray's environment variable for the time that a job waits for resources; default 15 minutes."""


class Node:
    """The actor on one node."""

    def meeting_point(self) -> tuple[str, int]:
        """The node's address and a free port."""
        import socket

        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), int(probe.getsockname()[1])

    def run(self, command: Sequence[str], rank: int) -> int:
        """The command's exit code; the command dies with the actor."""
        import subprocess

        from train.child_process import dying_with_parent

        process = subprocess.Popen(command, env=os.environ | {RANK: str(rank)}, preexec_fn=dying_with_parent())  # noqa: PLW1509 (it execs at once)
        return process.wait()


def run(spread: Mapping[str, Any], command: Sequence[str]) -> int:
    """Waits for the nodes, as long as Ray would, then for the commands."""
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray.init(log_to_driver=True)
    count, take = int(spread["nodes"]), {name: float(value) for name, value in spread["take"].items() if value}
    labels = {"bundle_label_selector": [dict(spread["labels"])] * count} if spread["labels"] else {}
    group = placement_group([take] * count, strategy="STRICT_SPREAD", **labels)
    patience_s = float(os.environ.get(_START_TIMEOUT) or 900)
    if not group.wait(patience_s):
        print(f"{count} nodes with {json.dumps(take)} each were not free within {patience_s:g} s ({_START_TIMEOUT})", file=sys.stderr)
        return NO_NODES
    resources = {name: value for name, value in take.items() if name not in ("CPU", "GPU")}
    nodes = [
        ray.remote(Node)
        .options(
            num_cpus=take.get("CPU", 0),
            num_gpus=take.get("GPU", 0),
            resources=resources,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
        )
        .remote()
        for rank in range(count)
    ]
    ip, port = ray.get(nodes[0].meeting_point.remote())
    waiting = [node.run.remote([_fill_word(word, rank, ip, port) for word in command], rank) for rank, node in enumerate(nodes)]
    while waiting:
        (done,), waiting = ray.wait(waiting)
        if code := int(ray.get(done)):
            return code if code > 0 else 128 - code
    return 0


def _fill_word(word: str, rank: int, ip: str, port: int) -> str:
    return word.replace("{rank}", str(rank)).replace("{ip}", ip).replace("{port}", str(port))


def main(arguments: Sequence[str]) -> int:
    return run(json.loads(arguments[0]), arguments[1:])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
