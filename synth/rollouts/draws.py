"""A policy x tasks x k: rollouts in parts of the store.

One idea: draw d of a task has its own seed, derived from (seed, task, d): it is the same draw whatever other rollouts run with it, before
it or after a kill. Rollouts that failed without the policy's fault are restarted a few times. If so many stay without an answer that the
engine must be down, nothing is stored. A task is rolled out k times, or until its draws settle a question (`Draws`).

Not done here: holding a conversation (`synth/rollouts/episode.py`), interpreting draws (`filters/certainty/certainty.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from storage.execution import Progress
from storage.records import JSON, Outcome, Rollout, Task, content_id
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from synth.engines.base import Engine, EngineFailure, has_failed
from synth.rollouts.episode import IN_FLIGHT, MAX_TOKENS, MAX_TURNS, Episode, play

VERSION = 4
RETRIES = 2
PART_TASKS = 32
"""Tasks in one part; a kill loses at most the rollouts of so many tasks."""


def rollout(
    engine: Engine,
    tasks: Sequence[Task],
    k: int,
    *,
    temperature: float = 1.0,
    seed: int = 0,
    max_turns: int = MAX_TURNS,
    max_tokens: int = MAX_TOKENS,
    policy_id: str = "",
    batch_tasks: int = PART_TASKS,
    first_draw: int = 0,
    in_flight: int = IN_FLIGHT,
    retries: int = RETRIES,
    has_answered: bool = False,
    progress: Progress | None = None,
) -> list[Rollout]:
    """k draws of every task, in the order of the tasks and then of the draws.

    Args:
        temperature: 0 is greedy; then k > 1 only repeats.
        batch_tasks: number of tasks that run at once.
        first_draw: number of the first draw, for a second probe that is independent of the first.
        in_flight: see `play`.
        retries: restarts of a rollout after a failure of the engine or the world.
        has_answered: the engine has answered earlier draws of these tasks.

    Raises:
        EngineFailure: half of a batch had no answer; with `has_answered`, all of it.
        BudgetSpent: see `play`.
    """
    records: list[Rollout] = []
    for batch in _batches(tasks, batch_tasks):
        episodes = [Episode(task, first_draw + draw, max_turns) for task in batch for draw in range(k)]
        over = _play_to_the_end(engine, episodes, retries, temperature=temperature, seed=seed, max_tokens=max_tokens, in_flight=in_flight)
        _check_alive(engine, over, has_answered)
        records += [episode.record(policy_id, engine.name, seed) for episode in over]
        if progress is not None:
            progress("rollouts", len(records), len(tasks) * k)
    return records


def _play_to_the_end(
    engine: Engine, episodes: Sequence[Episode], retries: int, *, temperature: float, seed: int, max_tokens: int, in_flight: int
) -> list[Episode]:
    """`play`, with restarts of the episodes that failed without the policy's fault."""
    over = list(episodes)
    for attempt in range(1, retries + 2):
        places = [place for place, episode in enumerate(over) if episode.outcome is None]
        play(engine, [over[place] for place in places], temperature=temperature, seed=seed, max_tokens=max_tokens, in_flight=in_flight)
        spoilt = [place for place in places if over[place].outcome is Outcome.INFRA_FAILURE and not over[place].is_lost]
        if not spoilt or attempt > retries:
            break
        for place in spoilt:
            over[place] = Episode(over[place].task, over[place].draw, over[place].max_turns, attempts=attempt + 1)
    return over


def _check_alive(engine: Engine, over: Sequence[Episode], has_answered: bool) -> None:
    """Raises EngineFailure: see `rollout`. With `has_answered` a batch may be two draws, so one unanswered draw is not enough."""
    answered = [episode for episode in over if not episode.is_lost]
    unanswered = [episode.failure for episode in answered if episode.is_unanswered]
    if has_failed(len(unanswered), len(answered)) and (len(unanswered) == len(answered) or not has_answered):
        raise EngineFailure(f"{engine.name} left {len(unanswered)} of {len(answered)} rollouts without an answer: {unanswered[0]}")


def _batches(tasks: Sequence[Task], size: int) -> Iterator[Sequence[Task]]:
    for start in range(0, len(tasks), size):
        yield tasks[start : start + size]


def rollouts_frame(rollouts: Sequence[Rollout], purpose: str) -> pl.DataFrame:
    """Rollouts as rows of table `rollouts`."""
    rows = [
        {
            "rollout_id": content_id("rollout", rollout.id, purpose),
            "task_id": rollout.task_id,
            "policy_id": rollout.policy_id,
            "purpose": purpose,
            "draw": rollout.draw,
            "outcome": rollout.outcome.value,
            "reward": rollout.reward,
            "checks": json.dumps(rollout.checks),
            "messages": json.dumps([message.to_openai() for message in rollout.messages], ensure_ascii=False),
            "turns": json.dumps([turn.model_dump(exclude_defaults=True) for turn in rollout.turns]),
            "attempts": rollout.attempts,
            "failure": rollout.failure or None,
        }
        for rollout in rollouts
    ]
    return pl.DataFrame(rows, schema=TABLES["rollouts"].columns)


@dataclass(frozen=True)
class Draws:
    """The number of draws of a task: fixed, or until the draws settle a question.

    Args:
        looks: rising numbers of draws after which `is_settled` is called; the last is the maximum.
        is_settled: (successes, rated draws, draws still possible) -> whether the task needs no more draws.
        rule: the parameters of `is_settled` as JSON; part of a part's identity.
    """

    looks: Sequence[int]
    is_settled: Callable[[int, int, int], bool]
    rule: Mapping[str, JSON]

    @classmethod
    def each(cls, k: int) -> Draws:
        """k draws of every task."""
        return cls((k,), lambda *_: True, {})

    @property
    def most(self) -> int:
        return self.looks[-1]

    def is_over(self, made: Sequence[Rollout]) -> bool:
        """Of the draws of one task so far."""
        rated = [rollout.outcome is Outcome.SUCCESS for rollout in made if rollout.outcome.is_rated]
        return self.is_settled(sum(rated), len(rated), self.most - len(made))


def rollout_until(engine: Engine, tasks: Sequence[Task], draws: Draws, *, first_draw: int = 0, **options: Any) -> list[Rollout]:
    """`rollout` with its options, each task until its draws are settled; in the order of the tasks and then of the draws."""
    rollouts: dict[str, list[Rollout]] = {task.id: [] for task in tasks}
    undecided, before = list(tasks), 0
    for look in draws.looks:
        for one in rollout(engine, undecided, look - before, first_draw=first_draw + before, has_answered=before > 0, **options):
            rollouts[one.task_id].append(one)
        undecided, before = [task for task in undecided if not draws.is_over(rollouts[task.id])], look
    return [one for task in tasks for one in rollouts[task.id]]


def rollout_parts(
    store: Store,
    engine: Engine | Callable[[], Engine],
    tasks: Sequence[Task],
    draws: int | Draws,
    *,
    purpose: str,
    policy_id: str,
    temperature: float = 1.0,
    seed: int = 0,
    max_tokens: int = MAX_TOKENS,
    first_draw: int = 0,
    in_flight: int = IN_FLIGHT,
    part_tasks: int = PART_TASKS,
    progress: Progress | None = None,
) -> list[Part]:
    """`rollout`, written to the store in parts of `part_tasks` tasks; existing parts are reused. Commits nothing.

    Args:
        engine: an engine, or a function that loads it, which is called for each part that is missing.
        draws: number of draws of every task, or the rule for it.
        purpose: `probe`, `eval_in`, ...; a policy's greedy and sampled rollouts have different purposes.
        in_flight: see `play`.

    Raises:
        EngineFailure, BudgetSpent: see `rollout`; complete parts stay in the store.
    """
    parts: list[Part] = []
    rule = Draws.each(draws) if isinstance(draws, int) else draws
    options: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_turns": MAX_TURNS, "max_tokens": max_tokens}
    parameters = {"k": draws if isinstance(draws, int) else dict(draws.rule), "purpose": purpose, **options}
    parameters |= {"first_draw": first_draw} if first_draw else {}
    for start, batch in enumerate(_batches(tasks, part_tasks)):
        identity = part_id("rollouts", [policy_id, *(task.id for task in batch)], parameters, VERSION)
        part = store.find(identity)
        if part is None:
            loaded = engine() if callable(engine) else engine
            rollouts = rollout_until(loaded, batch, rule, first_draw=first_draw, in_flight=in_flight, policy_id=policy_id, **options)
            part = store.write("rollouts", identity, rollouts_frame(rollouts, purpose))
        parts.append(part)
        if progress is not None:
            progress(purpose, min(len(tasks), (start + 1) * part_tasks) * rule.most, len(tasks) * rule.most)
    return parts
