"""Rewards of a group of rollouts: one column per scorer, then one number per rollout.

One idea: scoring and aggregation are separate. `group` gives a matrix of rollouts x scorers, scores in [0, 1]. An `Aggregate` turns each
row into one number and sees the whole group. A rollout without a score (not rated) is NaN, never 0: it is not the policy's failure, and
training leaves it out. Scores come from `synth/tasks/verify.py`; only `Mark` replays the conversation.

A scorer is anything with a name that maps (task, rated rollouts) to scores. Source: definition P8.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from storage.errors import HeadraceError
from storage.records import Message, Outcome, Task
from synth.rollouts.episode import Episode
from synth.tasks.verify import verify
from synth.worlds import WORLDS
from train.spec import AggregateName, RLSettings, ScorerName

Scores = NDArray[np.float64]


class Rated(Protocol):
    """Input of a scorer: a stored rollout (`storage.records.Rollout`) or a finished `Episode`."""

    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def messages(self) -> Sequence[Message]: ...


class Scorer(Protocol):
    @property
    def name(self) -> str:
        """Name of the column."""

    def __call__(self, task: Task, rollouts: Sequence[Rated]) -> Scores:
        """One score in [0, 1], or NaN, per rated rollout: shape [G]."""


def group(task: Task, rollouts: Sequence[Rated], scorers: Sequence[Scorer]) -> Scores:
    """Scores, shape [G, D]: row g is `rollouts[g]`, column d `scorers[d]`; NaN if the rollout is not rated or has no score.

    Raises:
        HeadraceError: a scorer gave a wrong number of scores, or one outside [0, 1].
    """
    rated = [place for place, one in enumerate(rollouts) if one.outcome is not None and one.outcome.is_rated]
    matrix = np.full((len(rollouts), len(scorers)), np.nan)
    for column, scorer in enumerate(scorers):
        scores = scorer(task, [rollouts[place] for place in rated])
        if scores.shape != (len(rated),) or not np.all(np.isnan(scores) | ((scores >= 0) & (scores <= 1))):
            raise HeadraceError(f"scorer {scorer.name} must give {len(rated)} scores in [0, 1] for task {task.id}, and gave {scores}")
        matrix[rated, column] = scores
    return matrix


Aggregate = Callable[[Scores, Scores], Scores]
"""(scores of a group [G, D], weights of the columns [D], all above 0) -> one number per rollout [G]. NaN if any column is NaN: a mean over
fewer columns would not be comparable."""


def weighted_mean(matrix: Scores, weights: Scores) -> Scores:
    total: Scores = matrix @ weights / weights.sum()
    return total


def least(matrix: Scores, _: Scores) -> Scores:
    """The lowest score of each rollout, whatever the weights."""
    lowest: Scores = matrix.min(axis=1)
    return lowest


AGGREGATES: Mapping[AggregateName, Aggregate] = {"mean": weighted_mean, "least": least}


def score_episodes(
    episodes: Sequence[Episode], scorers: Sequence[Scorer], weights: Sequence[float] | None = None, collapse: Aggregate = weighted_mean
) -> list[float | None]:
    """One number per episode, by `group` and `collapse`; None for NaN.

    episodes: all episodes of a task must be adjacent. weights: one per scorer, above 0; None: equal.
    """
    each = np.ones(len(scorers)) if weights is None else np.asarray(weights, dtype=np.float64)
    groups = (list(draws) for _, draws in groupby(episodes, key=lambda episode: episode.task.id))
    numbers = np.concatenate([collapse(group(draws[0].task, draws, scorers), each) for draws in groups])
    return [None if np.isnan(number) else float(number) for number in numbers]


def rewards_of(episodes: Sequence[Episode], settings: RLSettings, seed: str) -> list[float | None]:
    """The number per episode that RL learns from; None if it is not rated. seed: of the shuffling, for `shuffled`."""
    weights = scoring_of(settings)
    rewards = score_episodes(episodes, [SCORERS[name] for name in weights], list(weights.values()), AGGREGATES[settings.collapse])
    return shuffle_rewards(rewards, seed) if settings.reward == "shuffled" else rewards


def scoring_of(settings: RLSettings) -> dict[ScorerName, float]:
    """Weights of the scorers; the negative control `shuffled` shuffles the scores of `success`."""
    reward = "success" if settings.reward == "shuffled" else settings.reward
    return reward if isinstance(reward, dict) else {reward: 1.0}


def score_rated(task: Task, rated: Rated, weights: Mapping[ScorerName, float], collapse: AggregateName) -> float | None:
    """The number of one rollout, by `group` and `collapse`; None if it is not rated."""
    matrix = group(task, [rated], [SCORERS[name] for name in weights])
    number = AGGREGATES[collapse](matrix, np.asarray(list(weights.values()), dtype=np.float64))[0]
    return None if np.isnan(number) else float(number)


def shuffle_rewards(numbers: Sequence[float | None], seed: str) -> list[float | None]:
    """The numbers in random order; None stays in place."""
    dealt = [number for number in numbers if number is not None]
    random.Random(f"shuffled/{seed}").shuffle(dealt)
    values = iter(dealt)
    return [None if number is None else next(values) for number in numbers]


def hardly_differ(numbers: Sequence[float | None], std: float) -> bool:
    """Whether a group's numbers have a standard deviation below `std`, or all are None. None is ignored."""
    rated = [number for number in numbers if number is not None]
    return not rated or float(np.std(rated)) < std


# ---- scorers ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A score that the verifier has computed already."""

    name: str
    of: Callable[[Rated], float | None]

    def __call__(self, task: Task, rollouts: Sequence[Rated]) -> Scores:
        return np.array([self.of(one) for one in rollouts], dtype=np.float64)


@dataclass(frozen=True)
class Mark:
    """One dimension of the graded reward (`synth.tasks.reward.Marks`); replays each conversation in a fresh world. A task with several user
    turns has a verdict a goal, and no such dimension: NaN."""

    name: Literal["grounded", "plan", "fidelity", "presentation"]

    def __call__(self, task: Task, rollouts: Sequence[Rated]) -> Scores:
        if task.conversation is not None:
            return np.full(len(rollouts), np.nan)
        marks = (verify(WORLDS[task.world], task, one.messages).marks for one in rollouts)
        return np.array([getattr(mark, self.name) for mark in marks], dtype=np.float64)


SCORERS: Mapping[ScorerName, Scorer] = {
    "success": Stored("success", lambda one: float(one.outcome is Outcome.SUCCESS)),
    "graded": Stored("graded", lambda one: one.reward),
    "grounded": Mark("grounded"),
    "plan": Mark("plan"),
    "fidelity": Mark("fidelity"),
    "presentation": Mark("presentation"),
}
"""Rewards for RL: the verifier's yes or no, the graded reward R, and its marks."""
