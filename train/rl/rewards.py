"""Rewards of a group of rollouts: a column a scorer, and how several columns become one number.

One idea: scoring and collapsing are apart. `group` gives a matrix of rollouts x scorers, every score in [0, 1]; an `Aggregate` makes one
number of each row, and sees the whole group. Whatever has no score (a rollout that is not rated, a judge that gave no verdict) is NaN,
never 0: it is nobody's failure, and who trains leaves it out. What a conversation was worth by code says `synth/tasks/verify.py`; nothing
is judged anew here but by `Mark`, which replays it.

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
from synth.engines.base import EngineFailure, is_dead, side_by_side
from synth.roles.base import JudgeFailed
from synth.roles.model_roles import ModelJudge
from synth.rollouts.episode import Episode
from synth.tasks.verify import verify
from synth.worlds import WORLDS
from train.spec import AggregateName, RLSettings, ScorerName

Scores = NDArray[np.float64]
IN_FLIGHT = 16
"""Conversations that a judge is asked about at once."""


class Rated(Protocol):
    """What a scorer sees of a rollout: a stored one (`storage.records.Rollout`), or an `Episode` that is over."""

    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def messages(self) -> Sequence[Message]: ...


class Scorer(Protocol):
    @property
    def name(self) -> str:
        """Of its column."""

    def __call__(self, task: Task, rollouts: Sequence[Rated]) -> Scores:
        """One score in [0, 1] a rollout, shape [G], or NaN; all of them are rated."""


def group(task: Task, rollouts: Sequence[Rated], scorers: Sequence[Scorer]) -> Scores:
    """Shape [G, D]: row g is of `rollouts[g]`, column d of `scorers[d]`; NaN where the rollout is not rated, or the scorer gives no score.

    Raises:
        HeadraceError: a scorer gave no score a rollout, or one that is not in [0, 1].
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
"""(scores of a group [G, D], weights of the columns [D], all above 0) -> one number a rollout [G]; NaN where a column is: means over other
columns would not compare."""


def weighted_mean(matrix: Scores, weights: Scores) -> Scores:
    total: Scores = matrix @ weights / weights.sum()
    return total


def least(matrix: Scores, _: Scores) -> Scores:
    """A rollout is worth what its worst score says, however much the others weigh."""
    lowest: Scores = matrix.min(axis=1)
    return lowest


AGGREGATES: Mapping[AggregateName, Aggregate] = {"mean": weighted_mean, "least": least}


def of_episodes(
    episodes: Sequence[Episode], scorers: Sequence[Scorer], weights: Sequence[float] | None = None, collapse: Aggregate = weighted_mean
) -> list[float | None]:
    """`group` and `collapse` of each task's episodes, which stand side by side: one number an episode, None for NaN.

    weights: one a scorer, above 0; None for equal ones.
    """
    each = np.ones(len(scorers)) if weights is None else np.asarray(weights, dtype=np.float64)
    groups = (list(draws) for _, draws in groupby(episodes, key=lambda episode: episode.task.id))
    numbers = np.concatenate([collapse(group(draws[0].task, draws, scorers), each) for draws in groups])
    return [None if np.isnan(number) else float(number) for number in numbers]


def rewards_of(episodes: Sequence[Episode], settings: RLSettings, seed: str) -> list[float | None]:
    """What RL learns from: a number an episode, None where it is not rated. seed: of the shuffling, where the settings ask for that."""
    reward = "success" if settings.reward == "shuffled" else settings.reward
    weights = reward if isinstance(reward, dict) else {reward: 1.0}
    rewards = of_episodes(episodes, [SCORERS[name] for name in weights], list(weights.values()), AGGREGATES[settings.collapse])
    return _dealt_anew(rewards, seed) if settings.reward == "shuffled" else rewards


def _dealt_anew(numbers: Sequence[float | None], seed: str) -> list[float | None]:
    """The same numbers, each at a place that has nothing to do with it; who had none has none."""
    dealt = [number for number in numbers if number is not None]
    random.Random(f"shuffled/{seed}").shuffle(dealt)
    values = iter(dealt)
    return [None if number is None else next(values) for number in numbers]


def hardly_differ(numbers: Sequence[float | None], std: float) -> bool:
    """Whether a group's numbers, those that are not None, have a standard deviation below `std`, or are none at all."""
    rated = [number for number in numbers if number is not None]
    return not rated or float(np.std(rated)) < std


# ---- scorers ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """What the verifier has said of each rollout already."""

    name: str
    of: Callable[[Rated], float | None]

    def __call__(self, task: Task, rollouts: Sequence[Rated]) -> Scores:
        return np.array([self.of(one) for one in rollouts], dtype=np.float64)


@dataclass(frozen=True)
class Mark:
    """One dimension of the graded reward (`synth.tasks.reward.Marks`), by replaying each conversation in a fresh world."""

    name: Literal["grounded", "plan", "fidelity", "presentation"]

    def __call__(self, task: Task, rollouts: Sequence[Rated]) -> Scores:
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
"""What RL may be told to learn from: the verifier's yes or no, the graded reward R, and the marks that make it up."""


class Judged:
    """A judge that is a language model: its mean grade, 1 to 5 as 0 to 1, of what succeeded; 0 for what did not, of which it is not asked.

    unjudged: how many it gave no verdict on so far; these have NaN.
    """

    name = "judged"

    def __init__(self, judge: ModelJudge) -> None:
        self._judge, self.unjudged = judge, 0

    def __call__(self, task: Task, rollouts: Sequence[Rated]) -> Scores:
        """One score a rollout, or NaN.

        Raises:
            EngineFailure: half of what it was asked had no answer. BudgetSpent: as the engine's `chat`.
        """
        scores = np.zeros(len(rollouts))
        successes = [place for place, one in enumerate(rollouts) if one.outcome is Outcome.SUCCESS]
        grades = side_by_side(lambda place: self._grade(task, rollouts[place]), successes, IN_FLIGHT, "judging", lambda *_: None)
        lost = [one for one in grades if isinstance(one, EngineFailure)]
        if is_dead(len(lost), len(successes)):
            raise lost[0]
        for place, one in zip(successes, grades, strict=True):
            scores[place] = one if isinstance(one, float) else np.nan
        self.unjudged += int(np.isnan(scores).sum())
        return scores

    def _grade(self, task: Task, rollout: Rated) -> float | EngineFailure | JudgeFailed:
        request = "\n".join(message.content or "" for message in task.messages if message.role == "user")
        tools = {tool.name: tool for tool in WORLDS[task.world].tools}
        try:
            grades = self._judge.grade(request, [tools[name] for name in task.tools], rollout.messages).grades
        except (EngineFailure, JudgeFailed) as failed:
            return failed
        return (grades.planning + grades.fidelity + grades.presentation - 3) / 12
