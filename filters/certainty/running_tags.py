"""Running tags: tags of tasks from the latest rollouts, while the policy is in training.

RL draws fresh siblings of a split's tasks, none of them twice, so a rollout counts for the task of its sibling. The last `window` rated
rollouts of a task give its tag, by the formulas of a probe (`filters/certainty/certainty.py`). Unrated rollouts (infrastructure failures)
do not count. A window may start with the rollouts of a probe before training. It spans several steps, between which the policy changes, so
a tag has its first and last step.

This module does not weigh tasks (`filters/certainty/route.py`). A training checkpoint stores `state`, and `restore` reads it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

import polars as pl

from filters.certainty.certainty import RATED, RegionConfig, certainty
from storage.records import Task

PURPOSE = "rl"
BEFORE_TRAINING = -1
"""Step of a rollout by the policy that the training began with."""

Rated = tuple[int, bool, float, str]
"""Step, success, reward, and the id of the sibling that was rolled out."""


class RunningTags:
    """The last rated rollouts of each task.

    Args:
        tasks: those that are tagged. window: rollouts of a task that count.
    """

    def __init__(self, tasks: Sequence[Task], regions: RegionConfig, *, window: int) -> None:
        by_id = {task.id: task.difficulty for task in tasks}
        self._difficulty = pl.DataFrame({"task_id": list(by_id), "difficulty": list(by_id.values())})
        self._regions, self._window = regions, window
        self._recent: dict[str, deque[Rated]] = {task.id: deque(maxlen=window) for task in tasks}

    def add(self, task_id: str, *, step: int, outcome: str | None, reward: float | None, sibling: str = "") -> None:
        """Counts a rollout of the task, or of a sibling, at a step from 0; one that is not rated changes nothing."""
        if outcome in RATED:
            assert reward is not None
            self._recent[task_id].append((step, outcome == "success", reward, sibling))

    def tags(self, policy_id: str = "", *, since: int = BEFORE_TRAINING) -> pl.DataFrame:
        """Rows of table `tags` with purpose `rl`, and `first_step` and `last_step` of the rollouts behind each; by task.

        since: rollouts of earlier steps are left out. Tasks without any have no row.
        """
        rows = [
            (task, policy_id, "success" if success else "policy_failure", reward, step)
            for task, recent in self._recent.items()
            for step, success, reward, _ in recent
            if step >= since
        ]
        names = {"task_id": pl.String, "policy_id": pl.String, "outcome": pl.String, "reward": pl.Float64, "step": pl.Int32}
        rollouts = pl.DataFrame(rows, schema=names, orient="row")
        steps = rollouts.group_by("task_id").agg(first_step=pl.col("step").min(), last_step=pl.col("step").max())
        measured = certainty(rollouts, self._difficulty, self._regions, purpose=PURPOSE)
        return measured.join(steps, on="task_id", how="left", maintain_order="left")

    def latest_groups(self, tasks: pl.DataFrame, most: int) -> pl.DataFrame:
        """How many groups of rollouts each task had, and in how many of them some succeeded and some failed (columns groups and mixed), of
        the `most` latest groups of its need. A group is the rollouts of one sibling; it counts if it is whole within the task's window and
        has more than one.

        tasks: columns task_id, need (`filters.certainty.difficulty_prior.task_groups`); returned with the two columns more.
        """
        of_need = defaultdict[str, list[tuple[int, str, bool]]](list)
        for task, need in tasks.select("task_id", "need").iter_rows():
            outcomes = defaultdict[tuple[int, str], list[bool]](list)
            for step, success, _, sibling in self._recent.get(task, ()):
                outcomes[step, sibling].append(success)
            is_cut = len(self._recent.get(task, ())) == self._window
            groups_of_task = list(outcomes.items())[is_cut:]
            of_need[need] += [(step, task, len(set(group)) > 1) for (step, _), group in groups_of_task if len(group) > 1]
        counted = [row for rows in of_need.values() for row in sorted(rows, key=lambda row: row[0])[-most:]]
        mixed, groups = Counter(task for _, task, differ in counted if differ), Counter(task for _, task, _ in counted)
        return tasks.with_columns(
            mixed=pl.Series([mixed[task] for task in tasks["task_id"]], dtype=pl.Int64),
            groups=pl.Series([groups[task] for task in tasks["task_id"]], dtype=pl.Int64),
        )

    def state(self) -> dict[str, list[Rated]]:
        """The windows of all tasks, as JSON."""
        return {task: list(recent) for task, recent in self._recent.items() if recent}

    def restore(self, state: Mapping[str, Sequence[Rated]]) -> None:
        """Replaces the windows by those of a `state`."""
        for task, recent in self._recent.items():
            recent.clear()
            recent.extend((step, success, reward, sibling) for step, success, reward, sibling in state.get(task, ()))
