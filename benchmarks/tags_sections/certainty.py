"""What static difficulty says of a policy's success, and what a probe that stops where nothing is to be decided saves and costs.

One idea: every task is drawn 16 times, once; the adaptive probe (`DrawsConfig`) is then replayed over these very draws, so what it saves
and where it errs is no matter of luck. A second, independent probe, adaptive for real, says how many regions are luck.

difficulty_spearman  rank correlation of static difficulty with 1 - pass rate, over the tasks from 1 on: a refusal (-1) is no degree of it,
                     and what an answer without a call (0) takes stands in a system prompt, which the tiny policy is not shown
adaptive_k_share     of the 16 draws of every task, those that the adaptive probe makes
adaptive_k_agreement tasks whose region by the adaptive probe is that by all 16 draws
flip_rate            tasks whose region by a second adaptive probe is another

Intervals are 95 % bootstraps over frames: siblings of one frame are easy or hard together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Deadline, Figures, Section
from benchmarks.tags_sections import policy
from synth.worlds import WORLDS

if TYPE_CHECKING:
    from filters.certainty.certainty import DrawsConfig, RegionConfig
    from storage.records import Outcome, Task
    from synth.rollouts.draws import Draws

TASKS = 400
K = 16
AGAIN = 1_000
"""Number of the second probe's first draw."""
SEED = 0
RESAMPLES = 2_000

Passed = Sequence[bool | None]
"""Of a task's draws in turn, None where one is not rated."""


def sections() -> list[Section]:
    minutes = policy.MINUTES + 2
    return [
        Section(
            "static difficulty",
            ("difficulty_spearman", "difficulty_spearman_lo95"),
            measure_difficulty,
            minutes,
        ),
        Section("adaptive k", ("adaptive_k_share", "adaptive_k_agreement"), measure_adaptive, minutes),
        Section("flips", ("flip_rate", "flip_rate_lo95", "flip_rate_hi95"), measure_flips, minutes),
    ]


def measure_difficulty(_: Deadline) -> Figures:
    tasks, draws = _probe()
    difficulty = np.array([task.difficulty for task in tasks], dtype=float)
    failed = np.array([_failed(draws[task.id]) for task in tasks])
    for level in np.unique(difficulty):
        here = failed[difficulty == level]
        print(f"    difficulty {level:.0f}: {len(here)} tasks, pass rate {1 - here.mean():.3f}", flush=True)
    rated = difficulty >= 1
    own, refitted = _by_terms([task for task in tasks if task.difficulty >= 1], failed[rated])
    print(f"    on one half of the tasks: {own:.3f} as weighted, {refitted:.3f} by weights fitted to the other half", flush=True)
    difficulty, failed = difficulty[rated], failed[rated]
    frames = [task.frame_id for task in tasks if task.difficulty >= 1]
    low, _high = interval(lambda chosen: spearman(difficulty[chosen], failed[chosen]), frames)
    return {"difficulty_spearman": spearman(difficulty, failed), "difficulty_spearman_lo95": low}


def _by_terms(tasks: Sequence[Task], failed: NDArray[np.float64]) -> tuple[float, float]:
    """On every second task, the correlation of failure with the rating, and with the three terms before rounding, weighted by least squares
    on the other tasks: what other weights could give."""
    from storage.records import Frame
    from synth.tasks.difficulty import difficulty

    rated = [
        difficulty(WORLDS[task.world], Frame(world=task.world, intent=task.intent, slots=task.slots), task.messages[-1].content)
        for task in tasks
    ]
    terms = np.array([(1, one.s_tool, one.s_chain, one.s_constraints) for one in rated], dtype=float)
    order = np.random.default_rng(SEED).permutation(len(tasks))
    fitted, held_out = order[::2], order[1::2]
    weights, *_rest = np.linalg.lstsq(terms[fitted], failed[fitted], rcond=None)
    ratings = np.array([one.r for one in rated], dtype=float)
    return spearman(ratings[held_out], failed[held_out]), spearman(terms[held_out] @ weights, failed[held_out])


def measure_adaptive(_: Deadline) -> Figures:
    own, regions = _rule()
    draws = list(_probe()[1].values())
    stopped = [adaptive(passed, own, regions) for passed in draws]
    whole = [region(passed, regions) for passed in draws]
    agree = np.mean([region(part, regions) == all_of_it for part, all_of_it in zip(stopped, whole, strict=True)])
    return {"adaptive_k_share": sum(map(len, stopped)) / (K * len(draws)), "adaptive_k_agreement": float(agree)}


def measure_flips(_: Deadline) -> Figures:
    own, regions = _rule()
    tasks, first = _probe()
    second = _rolled_out(tasks, _until_settled(own, regions), first_draw=AGAIN)
    flipped = np.array(
        [region(adaptive(first[task.id], own, regions), regions) != region(second[task.id], regions) for task in tasks], dtype=float
    )
    low, high = interval(lambda chosen: float(flipped[chosen].mean()), [task.frame_id for task in tasks])
    return {"flip_rate": float(flipped.mean()), "flip_rate_lo95": low, "flip_rate_hi95": high}


# ---- statistics ----------------------------------------------------------------------------------------------------------------


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Rank correlation with tied ranks shared; 0 where one of the two does not vary."""
    ranks = [_ranks(values) for values in (first, second)]
    if any(each.std() == 0 for each in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def interval(figure: Callable[[NDArray[np.int64]], float], frames: Sequence[str]) -> tuple[float, float]:
    """The 95 % percentile bootstrap of a figure of chosen tasks, given by place; frames: that of each task, drawn with all its tasks."""
    names = np.array(frames)
    siblings = [np.flatnonzero(names == name) for name in np.unique(names)]
    rng = np.random.default_rng(SEED)
    drawn = (np.concatenate([siblings[at] for at in rng.integers(len(siblings), size=len(siblings))]) for _ in range(RESAMPLES))
    low, high = np.quantile([figure(chosen) for chosen in drawn], (0.025, 0.975))
    return float(low), float(high)


def _failed(passed: Passed) -> float:
    rated = [one for one in passed if one is not None]
    return 1 - sum(rated) / len(rated)


# ---- the adaptive probe --------------------------------------------------------------------------------------------------------


def adaptive(passed: Passed, own: DrawsConfig, regions: RegionConfig) -> Passed:
    """Of draws that are made already, those that an adaptive probe would have made."""
    for look in own.looks:
        rated = [one for one in passed[:look] if one is not None]
        if own.is_settled(sum(rated), len(rated), own.most - look, regions):
            return passed[:look]
    return passed[: own.most]


def region(passed: Passed, regions: RegionConfig) -> str:
    return regions.region(1 - _failed(passed)).value


def _rule() -> tuple[DrawsConfig, RegionConfig]:
    """As the sample is configured."""
    from flows.config import read

    config = read(policy.SAMPLE).train
    if config.draws.most != K:
        raise ValueError(f"the sample draws at most {config.draws.most} times, this benchmark {K}")
    return config.draws, config.route.regions


def _until_settled(own: DrawsConfig, regions: RegionConfig) -> Draws:
    from synth.rollouts.draws import Draws

    return Draws(own.looks, lambda successes, rated, left: own.is_settled(successes, rated, left, regions), {})


# ---- probes --------------------------------------------------------------------------------------------------------------------


@cache
def _probe() -> tuple[list[Task], dict[str, Passed]]:
    """The tasks, and what became of K draws of each, by its id."""
    from synth.rollouts.draws import Draws

    tasks = policy.probe_tasks(TASKS)
    return tasks, _rolled_out(tasks, Draws.each(K), first_draw=0)


def _rolled_out(tasks: Sequence[Task], draws: Draws, *, first_draw: int) -> dict[str, Passed]:
    from synth.rollouts.draws import rollout_until

    made: dict[str, list[bool | None]] = {task.id: [] for task in tasks}
    for one in rollout_until(policy.engine(), tasks, draws, first_draw=first_draw, seed=SEED):
        made[one.task_id].append(_passed(one.outcome))
    return dict(made)


def _passed(outcome: Outcome) -> bool | None:
    return outcome.value == "success" if outcome.is_rated else None
