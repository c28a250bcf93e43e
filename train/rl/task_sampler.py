"""Tasks for RL: fresh siblings of a split's tasks, and running tags of those tasks.

One idea: the tasks of a step are a function of (seed, step) and, with `RLSettings.follow_tags`, of the running tags. Then a task's weight
is the share of mixed groups among the latest ones of its need (`filters/certainty/mixed_groups.py`), because only mixed groups teach.
Running tags start with the probe's rollouts, and are updated whether the draws follow them or not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import polars as pl

from filters.certainty.certainty import Region
from filters.certainty.difficulty_prior import task_groups
from filters.certainty.mixed_groups import mixed_share
from filters.certainty.route import RouteConfig, rl_weights
from filters.certainty.running_tags import BEFORE_TRAINING, RunningTags
from storage.errors import HeadraceError
from storage.records import Task
from storage.releases.release import ReleasedItem, manifest_of
from storage.store import Store
from synth.tasks.solver import NotAdmitted
from train.data.task_pool import Source, fresh
from train.rl.rollout_batches import Batch
from train.spec import RLSettings, StageSpec

FIRST_FRESH_INDEX = 1_000_000
"""Index of RL's first sibling, above all siblings of releases."""
NEED_WINDOW = 24
"""Latest groups of a need that count, with `follow_tags`; of those in the `tag_window` latest rollouts of each task."""
_TRIES = 200
"""Most draws of a step (or 4 per task, if that is more): for some frames a quarter of the siblings is set aside."""
_MOST_STEPS = 1_000_000


class FreshTasks:
    """Fresh siblings of a split's tasks, drawn by weight.

    Args:
        routing: thresholds of running tags, and the uniform share of the draws.

    Raises:
        HeadraceError: the split has no task.
    """

    def __init__(self, items: Sequence[ReleasedItem], spec: StageSpec, settings: RLSettings, routing: RouteConfig | None = None) -> None:
        weighted = [(item.task, item.item.weight) for item in items if item.task is not None]
        if not weighted:
            raise HeadraceError(f"split {spec.split} of release {spec.release_id} has no task to draw siblings of; RL needs tasks")
        self._tasks, self._weights = [task for task, _ in weighted], [weight for _, weight in weighted]
        self._tries = max(_TRIES, 4 * settings.tasks_a_step)
        self._spec, self._settings, self._routing = spec, settings, routing or RouteConfig()
        self._last: tuple[int, list[Task], dict[str, str]] = (-1, [], {})
        self._groups = task_groups(self._tasks)
        self.running = RunningTags(self._tasks, self._routing.regions, window=settings.tag_window)

    def __call__(self, step: int, again: int = 0) -> list[Task]:
        """The tasks of a step. again: number of a further draw, which gives other tasks.

        Raises:
            HeadraceError: the split's frames give too few siblings.
        """
        if again:
            pairs = self._draw(step, again)
            self._last[2].update({sibling.id: parent.id for sibling, parent in pairs})
            return [sibling for sibling, _ in pairs]
        if self._last[0] != step:
            pairs = self._draw(step)
            self._last = (step, [sibling for sibling, _ in pairs], {sibling.id: parent.id for sibling, parent in pairs})
        return self._last[1]

    @property
    def parents(self) -> Mapping[str, str]:
        """Id of each task of the last step -> id of the split's task whose sibling it is."""
        return self._last[2]

    def watch(self, batch: Batch) -> None:
        """Adds a batch's rollouts to the running tags, except those that started in the middle of a task. A batch without `parents` must be
        of the last step."""
        parents = batch.parents or self.parents
        for row in (*batch.rows, *batch.left_out):
            if not row.given_turns:
                self.running.add(parents[row.task_id], step=batch.step, outcome=row.outcome, reward=row.reward, sibling=row.task_id)

    def weights(self) -> Sequence[float]:
        """Current draw weights of the split's tasks, in their order."""
        if not self._settings.follow_tags:
            return self._weights
        latest = self.running.latest_groups(self._groups, NEED_WINDOW)
        ordered = latest.select("task_id", region=pl.lit(Region.UNCERTAIN), learnability=mixed_share(latest))
        queries = {task.id: task.query_id for task in self._tasks if task.query_id is not None}
        return rl_weights(ordered, queries, self._routing.rl_uniform).to_list()

    def _draw(self, step: int, again: int = 0) -> list[tuple[Task, Task]]:
        """Pairs (sibling, task of the split)."""
        rng, weights = random.Random(f"fresh/{self._spec.seed}/{step}" + f"/{again}" * bool(again)), self.weights()
        first = FIRST_FRESH_INDEX + (again * _MOST_STEPS + step) * self._tries
        pairs: list[tuple[Task, Task]] = []
        for attempt in range(self._tries):
            (parent,) = rng.choices(self._tasks, weights)
            try:
                pairs.append((_sibling(parent, first + attempt, self._spec), parent))
            except NotAdmitted:
                continue
            if len(pairs) == self._settings.tasks_a_step:
                return pairs
        count = self._settings.tasks_a_step
        raise HeadraceError(f"split {self._spec.split}: {self._tries} draws gave only {len(pairs)} of {count} fresh tasks for step {step}")


def routed_tasks(store: Store, items: Sequence[ReleasedItem], spec: StageSpec, settings: RLSettings) -> FreshTasks:
    """The task source of a stage, with its release's thresholds and the rollouts of its probe, if any."""
    manifest = manifest_of(store, spec.release_id)
    sampler = FreshTasks(items, spec, settings, RouteConfig.model_validate(manifest.get("routing", {})))
    probed = store.query(
        """SELECT task_id, outcome, reward FROM rollouts WHERE policy_id = ? AND purpose = 'probe' AND task_id IN (SELECT unnest(?))
           ORDER BY task_id, draw, rollout_id""",
        [manifest.get("probed_policy"), [item.task.id for item in items if item.task is not None]],
    )
    for task, outcome, reward in probed.iter_rows():
        sampler.running.add(task, step=BEFORE_TRAINING, outcome=outcome, reward=reward)
    return sampler


def _sibling(parent: Task, index: int, spec: StageSpec) -> Task:
    return fresh(Source.of(parent), index, language=spec.language, use="train", context=parent.context)
