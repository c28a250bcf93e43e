"""ROLL's filter of groups: a group with a rollout that failed by no fault of the policy is not learned from.

One idea: ROLL has no mark for "no reward". It reads neither a result's status nor a mask of samples: a rollout in the queue counts in its
group's baseline, with score 0 if the runner met an error, and `None` in its place leaves the batch one short, so a synchronous step waits
for ever. What it does have is a filter that may refuse a whole group; ROLL then plays another episode, the group's next row, in its place.
The refused group is counted in ROLL's own metric `scheduler/group_filter_count`.

What it does not do: play a failed rollout again; `proxy_env_manager.py` does so first, so a group is refused only if a world stays broken.
Source: alibaba/ROLL at 8eb27cc, `GroupQueue.put`, `GroupQueueManager.get_batch` (`distributed/scheduler/rollout_scheduler.py`) and
`GroupFilter` (`pipeline/agentic/agentic_pipeline.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FAILURE = "failure"
"""Column of a rollout: what failed, empty if nothing did."""


class FailedGroups:
    """ROLL makes one for training and one for validation, and names itself and its settings, which are not needed."""

    def __init__(self, *_: Any) -> None:
        pass

    def filter(self, group_id: int, episode_id: int, group: Sequence[Any]) -> bool:
        """True refuses the group. group: a rollout (ROLL's `DataProto`) each, None from an environment that has stopped."""
        del group_id, episode_id
        return any(any(rollout.non_tensor_batch[FAILURE]) for rollout in group if rollout is not None)
