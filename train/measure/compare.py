"""Compares two policies, paired by task, over the training seeds of several stores.

One idea: a store is one training seed, and all stores hold rollouts of the same held-out tasks. The difference of the policies is taken per
task; seeds and tasks are resampled (`train.measure.evaluate.paired_difference`). With one store the interval covers the tasks only: another
training of the same two policies may differ by more.

What it does not do: roll out, or decide (`train/measure/gate.py`). It writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storage.errors import BadInput
from storage.records import Task
from storage.store import Store
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import register_stored
from train.measure.evaluate import FACETS, Estimate, facets, paired_difference, task_means
from train.policies import known_policy

MIN_TASKS = 8
"""Facets with fewer tasks get no interval: resampling so few is meaningless."""
_PURPOSES = {
    use + suffix: (use, decoding) for use in ("eval_in", "eval_out") for suffix, decoding in (("", "sampled"), ("_greedy", "greedy"))
}
"""Purpose of rollouts -> (use, decoding)."""


@dataclass(frozen=True)
class Difference:
    """Rate of the second policy minus that of the first, on the tasks of a facet.

    first, second: mean rates over seeds and tasks.
    interval: None with fewer than `MIN_TASKS` tasks.
    by_seed: mean difference of each store.
    """

    use: str
    decoding: str
    facet: str
    value: str
    tasks: int
    first: float
    second: float
    interval: Estimate | None
    by_seed: tuple[float, ...]

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval is not None and self.interval.is_clear


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison.

    policies: ids of the first and the second policy, one pair per store.
    unrated: (use, decoding) -> number of tasks left out because a policy has no rated rollout of them.
    """

    differences: tuple[Difference, ...]
    policies: tuple[tuple[str, str], ...]
    unrated: dict[tuple[str, str], int]


def compare(stores: Sequence[Store], first: str, second: str) -> Comparison:
    """Compares two policies, named by id or by stage (the latest policy of it), over all tasks and by facet.

    Raises:
        BadInput: a store lacks a policy, two stores hold the same training, or the stores have different tasks or none.
    """
    policies = tuple((known_policy(store, first).id, known_policy(store, second).id) for store in stores)
    _check_distinct(stores, policies)
    differences: list[Difference] = []
    unrated: dict[tuple[str, str], int] = {}
    for purpose, (use, decoding) in _PURPOSES.items():
        measured = [
            (_rollouts(store, one, purpose), _rollouts(store, other, purpose)) for store, (one, other) in zip(stores, policies, strict=True)
        ]
        if all(rollouts.is_empty() for pair in measured for rollouts in pair):
            continue
        _check_same_tasks(stores, policies, measured, purpose)
        means = [(task_means(one), task_means(other)) for one, other in measured]
        rated = set.intersection(*(set(table["task_id"]) for pair in means for table in pair))
        if left_out := measured[0][0]["task_id"].n_unique() - len(rated):
            unrated[use, decoding] = left_out
        if rated:
            about = _facets(stores[0], sorted(rated))
            differences += [_difference(use, decoding, facet, value, tasks, means) for facet, value, tasks in _groups(about)]
    if not differences:
        raise BadInput(f"{stores[0].root} holds no rollouts of {first} and {second} on held-out tasks: `headrace evaluate` makes them")
    return Comparison(tuple(differences), policies, unrated)


def _check_distinct(stores: Sequence[Store], policies: Sequence[tuple[str, str]]) -> None:
    of: dict[tuple[str, str], Store] = {}
    for store, pair in zip(stores, policies, strict=True):
        if pair[0] == pair[1]:
            raise BadInput(f"{pair[0]} is compared with itself in {store.root}")
        if pair in of:
            raise BadInput(f"{of[pair].root} and {store.root} hold the same policies, which is one training seed: name one of them")
        of[pair] = store


def _rollouts(store: Store, policy: str, purpose: str) -> pl.DataFrame:
    return store.query("SELECT task_id, outcome FROM rollouts WHERE policy_id = ? AND purpose = ?", [policy, purpose])


def _check_same_tasks(
    stores: Sequence[Store], policies: Sequence[tuple[str, str]], measured: Sequence[tuple[pl.DataFrame, pl.DataFrame]], purpose: str
) -> None:
    task_ids = set(measured[0][0]["task_id"])
    for store, ids, pair in zip(stores, policies, measured, strict=True):
        for policy, rollouts in zip(ids, pair, strict=True):
            here = set(rollouts["task_id"])
            if here != task_ids:
                raise BadInput(
                    f"the tasks are not the same: {purpose} of {policies[0][0]} in {stores[0].root} is of {len(task_ids)} tasks, that of "
                    f"{policy} in {store.root} of {len(here)}, {len(task_ids & here)} of them the same; `headrace evaluate` with one "
                    "configuration measures both on the same"
                )


def _facets(store: Store, task_ids: Sequence[str]) -> pl.DataFrame:
    register_stored(store)
    rows = store.query("SELECT DISTINCT task_id, spec FROM tasks WHERE list_contains(?, task_id) ORDER BY task_id", [list(task_ids)])
    tasks = [Task.model_validate_json(spec) for spec in rows["spec"]]
    if strange := sorted({task.world for task in tasks if task.world not in WORLDS}):
        raise BadInput(f"{store.root} holds tasks of {', '.join(strange)}, a world that is gone: without it their modes are not known")
    return facets(tasks)


def _groups(about: pl.DataFrame) -> list[tuple[str, str, set[str]]]:
    """(facet, value, tasks): all tasks, then by value for every facet with several values."""
    facet_groups = [("all", "all", set(about["task_id"]))]
    for facet in FACETS:
        groups = about.group_by(facet).agg("task_id").sort(facet)
        if groups.height > 1:
            facet_groups += [(facet, str(value), set(tasks)) for value, tasks in groups.iter_rows()]
    return facet_groups


def _difference(
    use: str, decoding: str, facet: str, value: str, tasks: set[str], means: Sequence[tuple[pl.DataFrame, pl.DataFrame]]
) -> Difference:
    of = pl.col("task_id").is_in(list(tasks))
    first, second = ([pair[place].filter(of) for pair in means] for place in (0, 1))
    rates = [[float(table["rate"].mean()) for table in tables] for tables in (first, second)]  # type: ignore[arg-type]
    return Difference(
        use=use,
        decoding=decoding,
        facet=facet,
        value=value,
        tasks=len(tasks),
        first=sum(rates[0]) / len(means),
        second=sum(rates[1]) / len(means),
        interval=paired_difference(first, second) if len(tasks) >= MIN_TASKS else None,
        by_seed=tuple(after - before for before, after in zip(*rates, strict=True)),
    )
