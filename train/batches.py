"""Batches of whole trajectories: what RL learns from at one step, as plain data that any process may have made.

One idea: playing and learning meet in a `Batch` alone. It says which policy played it, so that who learns from it can tell how stale it is.

What it does not do: draw tasks (`train/fresh.py`), or learn (`train/rl.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.errors import HeadraceError
from storage.records import Outcome, Task
from synth.engines.base import Engine
from synth.episodes import Episode, Trace, play, trace
from train.rewards import SCORERS, of_episodes
from train.spec import RLSettings

TaskSource = Callable[[int], Sequence[Task]]
"""Step number, from 0 -> that step's fresh tasks: always the same ones for the same number."""


@dataclass(frozen=True, slots=True)
class Row:
    """One trajectory: what the verifier said of it, what is to be learned from (None: nothing), and its tokens."""

    task_id: str
    outcome: Outcome
    reward: float | None
    learned: float | None
    trace: Trace


@dataclass(frozen=True, slots=True)
class Batch:
    """The rollouts of a step, a task's draws side by side.

    updates: how many updates the policy that played them had seen.
    """

    step: int
    updates: int
    rows: tuple[Row, ...]


def play_batch(engine: Engine, tasks: Sequence[Task], settings: RLSettings, *, step: int, updates: int, seed: int) -> Batch:
    """`settings.draws` rollouts of each task.

    Raises:
        HeadraceError: no rollout could be rated.
    """
    episodes = [Episode(task, draw, settings.max_turns) for task in tasks for draw in range(settings.draws)]
    play(engine, episodes, temperature=settings.temperature, seed=seed, max_tokens=settings.max_tokens)
    if all(episode.reward is None for episode in episodes):
        raise HeadraceError(f"every rollout of step {step} was spoilt by no doing of the policy's: {episodes[0].failure}")
    learned = of_episodes(episodes, [SCORERS[settings.reward]])
    return Batch(step, updates, tuple(_row(episode, score) for episode, score in zip(episodes, learned, strict=True)))


def _row(episode: Episode, learned: float | None) -> Row:
    assert episode.outcome is not None
    return Row(episode.task.id, episode.outcome, episode.reward, learned, trace(episode.turns))
