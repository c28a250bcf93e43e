"""Batches of trajectories, as plain data that any process can produce.

One idea: `Batch` is the only interface between playing and learning. It names the version of the policy that played it, so that the trainer
knows how stale it is.

What it does not do: draw tasks (`train/rl/task_sampler.py`), or learn (`train/rl/rl.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from storage.errors import HeadraceError
from storage.records import Outcome, Task
from synth.engines.base import Engine
from synth.rollouts.episode import Episode, Trace, play, trace
from synth.rollouts.expert_prefix import ExpertPrefix
from train.data.token_labels import turns_without_errors
from train.rl.losses import LOSSES, Loss
from train.rl.rewards import hardly_differ, rewards_of
from train.spec import RLSettings

Starts = Callable[[Task], ExpertPrefix | None]
"""Where the rollouts of a task start: after these turns of the expert; None: at the request."""


class TaskSource(Protocol):
    def __call__(self, step: int, again: int = 0) -> Sequence[Task]:
        """Fresh tasks of a step (from 0), always the same ones. again: number of a further draw, which gives other tasks."""


@dataclass(frozen=True, slots=True)
class Row:
    """One trajectory.

    outcome, reward: of the verifier.
    learned: the reward that RL learns from; None if there is none.
    trace: tokens.
    erred: for each turn in the trace, whether a call of it failed or was malformed.
    given_turns: turns of the expert that it started after; these are context, and not in `trace.ids`.
    is_made: false for one that only fills its group, because the first ones hardly differed; then it has no reward and no tokens.
    """

    task_id: str
    outcome: Outcome
    reward: float | None
    learned: float | None
    trace: Trace
    erred: tuple[bool, ...] = ()
    is_made: bool = True
    given_turns: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """The rollouts of a step; draws of a task are adjacent.

    updates: version of the policy that played them: the number of batches that it had learned from.
    left_out: rollouts that were replaced, because the rewards of their task hardly differed.
    parents: id of a task -> id of the split's task whose sibling it is; empty if the process that drew the tasks also counts the rollouts.
    """

    step: int
    updates: int
    rows: tuple[Row, ...]
    left_out: tuple[Row, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)

    @property
    def rollouts(self) -> int:
        """Those that were made, whether learned from or not."""
        return sum(row.is_made for row in (*self.rows, *self.left_out))


def play_batch(
    engine: Engine,
    tasks: Sequence[Task],
    settings: RLSettings,
    *,
    step: int,
    updates: int,
    seed: int,
    others: Callable[[int], Sequence[Task]] = lambda again: (),
    starts: Starts = lambda task: None,
) -> Batch:
    """`settings.draws` rollouts of each task; with `settings.first_draws`, only so many of a task whose first rewards hardly differ.

    others: gives further fresh tasks for resampling round n, from 1. They replace tasks whose rewards hardly differ, if their own rewards
        differ.
    starts: of a task's rollouts; the same for all of them.

    Raises:
        HeadraceError: no rollout could be rated.
    """

    def played(tasks: Sequence[Task], key: str) -> tuple[list[list[Row]], list[Episode]]:
        episodes = _play(engine, tasks, starts, settings, seed, range(settings.first_draws or settings.draws))
        return _grown(engine, tasks, starts, _groups(episodes, len(tasks), settings, key), settings, seed, key), episodes

    groups, episodes = played(tasks, f"{seed}/{step}")
    if all(episode.reward is None for episode in episodes):
        raise HeadraceError(f"no rollout of step {step} could be rated, because the infrastructure failed: {episodes[0].failure}")
    loss = LOSSES[settings.loss]
    rounds = loss.resample_rounds if settings.resample_rounds is None else settings.resample_rounds
    left_out: list[Row] = []
    for again in range(1, rounds + 1):
        uniform = [place for place, group in enumerate(groups) if _is_uniform(group, loss)]
        fresh = others(again)[: len(uniform)] if uniform else ()
        if not fresh:
            break
        for group in played(fresh, f"{seed}/{step}/{again}")[0]:
            if _is_uniform(group, loss):
                left_out += group
            else:
                place = uniform.pop(0)
                left_out += groups[place]
                groups[place] = group
    return Batch(step, updates, tuple(row for group in groups for row in group), tuple(left_out))


def _play(engine: Engine, tasks: Sequence[Task], starts: Starts, settings: RLSettings, seed: int, draws: Sequence[int]) -> list[Episode]:
    prefixes = [starts(task) for task in tasks]
    pairs = [(task, prefix, draw) for task, prefix in zip(tasks, prefixes, strict=True) for draw in draws]
    episodes = [Episode(task, draw, settings.max_turns, prefix=prefix) for task, prefix, draw in pairs]
    play(engine, episodes, temperature=settings.temperature, seed=seed, max_tokens=settings.max_tokens)
    return episodes


def _groups(episodes: Sequence[Episode], tasks: int, settings: RLSettings, seed: str) -> list[list[Row]]:
    """The rows of each task."""
    rows = [_row(episode, score) for episode, score in zip(episodes, rewards_of(episodes, settings, seed), strict=True)]
    each = len(rows) // tasks
    return [rows[start : start + each] for start in range(0, len(rows), each)]


def _grown(
    engine: Engine, tasks: Sequence[Task], starts: Starts, groups: list[list[Row]], settings: RLSettings, seed: int, key: str
) -> list[list[Row]]:
    """The groups with `settings.draws` rows each: rollouts where the first ones differ, elsewhere rows that were not made."""
    first = settings.first_draws or settings.draws
    differing = [place for place, group in enumerate(groups) if not _is_uniform(group, LOSSES[settings.loss])]
    if first < settings.draws and differing:
        rest = _play(engine, [tasks[place] for place in differing], starts, settings, seed, range(first, settings.draws))
        for place, rows in zip(differing, _groups(rest, len(differing), settings, f"{key}/rest"), strict=True):
            groups[place] += rows
    return [[*group, *[_not_made(group[0].task_id)] * (settings.draws - len(group))] for group in groups]


def _not_made(task_id: str) -> Row:
    return Row(task_id, Outcome.UNFINISHED, None, None, Trace(), is_made=False)


def _is_uniform(group: Sequence[Row], loss: Loss) -> bool:
    return hardly_differ([row.learned for row in group], loss.min_std)


def _row(episode: Episode, score: float | None) -> Row:
    assert episode.outcome is not None
    given = episode.prefix.turns if episode.prefix else 0
    return Row(episode.task.id, episode.outcome, episode.reward, score, trace(episode.turns), erred_turns(episode), given_turns=given)


def erred_turns(episode: Episode) -> tuple[bool, ...]:
    """Error flag of each exact turn; only exact turns are in the trace."""
    went_well = turns_without_errors(episode.messages[len(episode.opening) :])
    return tuple(not well for well, turn in zip(went_well, episode.turns, strict=False) if turn.is_exact)
