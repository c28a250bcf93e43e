"""Is a world learnable? A tiny policy learns from a few experts of it, then by RL on fresh tasks; its success must rise within minutes.

RL is that of a stage (`train/rl/rl.py`): it can only climb if requests can be read, plans can be executed, and the reward follows from
what was done. The control is RL for a third of the steps with success dealt at random among the rollouts: if that climbs too, the reward
teaches nothing. One training each, so intervals are over tasks alone.
Success is measured before and after, on siblings with individuals that training never names, and by intent. An intent that does not move is
explained by what can be seen: its tasks cannot be drawn, its requests have words that no training request has, they do not say all that the
calls need, or no rollout ever succeeded. An intent has few held-out tasks, so some rise by chance; at least as many as fall, because many
begin near 0.

Not measured: how well a large model does in the world. A request that no word-level policy can read may be plain to it.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from storage.execution import Progress
from storage.records import CODE_TOOL, Task
from synth.blueprints.single_goal import why_not_drawn
from synth.worlds.base import World
from train.measure.evaluate import Estimate, bootstrap
from train.proxy.mixtures import Floats
from train.proxy.world_study import Reinforced, StudyConfig, WorldStudy

Reason = Literal["mastered", "moved", "unsolvable", "unreadable", "ambiguous", "never succeeded", "slow", "unmeasured"]
REASONS: dict[Reason, str] = {
    "mastered": "solved before RL",
    "moved": "success rose by .1 or more",
    "unsolvable": "no task of it could be drawn",
    "unreadable": "most held-out requests have a word, not of a value, that no training request has",
    "ambiguous": "its requests do not say all that the calls need, so no task was admitted",
    "never succeeded": "no rollout of RL ever solved one, so RL has nothing to learn from",
    "slow": "solved sometimes, but success did not rise",
    "unmeasured": "none of its tasks was drawn, or none is held out",
}
_MASTERED, _MOVED = 0.9, 0.1
_PLATEAU = 0.02


class LearnConfig(StudyConfig):
    """Configuration of `headrace worlds learn`."""

    held_out: int = Field(240, ge=10, description="Held-out tasks that policies are measured on.")
    steps: int = Field(240, ge=1, description="RL steps of 8 tasks and 8 rollouts each.")
    control_steps: int = Field(80, ge=0, description="RL steps of the control with shuffled rewards; 0: no control.")


@dataclass(frozen=True)
class IntentProgress:
    """Success of an intent's held-out tasks before and after RL, and why it moved or not. tasks: number of held-out tasks."""

    intent: str
    tasks: int
    before: float
    after: float
    reason: Reason


@dataclass(frozen=True)
class Learned:
    """What a policy learned of a world.

    before, after: success on held-out tasks, two draws at temperature 1; gain, control_gain: paired differences with 95 % intervals; the
    control's is None if it was not run.
    curve: mean success of the rollouts on fresh tasks, by windows of 10 steps.
    is_rising: whether the last quarter of the curve is above the quarter before it by more than .02; None for a curve of fewer than four
        windows.
    """

    world: str
    before: float
    after: float
    gain: Estimate
    control_gain: Estimate | None
    curve: tuple[float, ...]
    is_rising: bool | None
    intents: tuple[IntentProgress, ...]
    left_out: int
    cpu_s: float

    @property
    def climbs(self) -> bool:
        """Whether success rose by more than chance, or was mastered before, and the control's did not rise by as much."""
        rises = self.before >= _MASTERED or (self.gain.low > 0 and self.gain.mean >= 0.05)
        return rises and (self.control_gain is None or self.control_gain.low <= 0 or self.control_gain.mean < self.gain.mean / 2)

    @property
    def moved_share(self) -> float:
        """Share of the intents that moved or were mastered; those unmeasured left out."""
        return self._share(lambda one: one.reason in ("moved", "mastered"))

    @property
    def fell_share(self) -> float:
        """Share of the intents whose success fell by .1 or more; those unmeasured left out."""
        return self._share(lambda one: one.before - one.after >= _MOVED)

    def _share(self, holds: Callable[[IntentProgress], bool]) -> float:
        measured = [holds(one) for one in self.intents if one.reason != "unmeasured"]
        return sum(measured) / len(measured) if measured else 0.0


def learn_world(world: type[World], config: LearnConfig | None = None, *, progress: Progress | None = None) -> Learned:
    """Trains a tiny policy in a world.

    Raises:
        BadInput: the world gives too few tasks.
    """
    config, report = config or LearnConfig(), progress or (lambda *_: None)
    begun = time.process_time()
    study = WorldStudy(world, config)
    report("learning from experts", 0, 0)
    policy = study.first_policy()
    before = study.measure(policy)
    control = copy.deepcopy(policy)
    learned = study.reinforce(policy, config.steps, "success", lambda step: report("RL", step, config.steps))
    after = study.measure(policy)
    control_gain = None
    if config.control_steps:
        study.reinforce(control, config.control_steps, "shuffled", lambda step: report("control", step, config.control_steps))
        control_gain = bootstrap([study.measure(control) - before])
    return Learned(
        world=world.name,
        before=float(before.mean()),
        after=float(after.mean()),
        gain=bootstrap([after - before]),
        control_gain=control_gain,
        curve=learned.curve,
        is_rising=_is_rising(learned.curve),
        intents=tuple(explain(study, before, after, learned)),
        left_out=study.left_out,
        cpu_s=time.process_time() - begun,
    )


def _is_rising(curve: Sequence[float]) -> bool | None:
    quarter = len(curve) // 4
    return None if not quarter else float(np.mean(curve[-quarter:]) - np.mean(curve[-2 * quarter : -quarter])) > _PLATEAU


def explain(study: WorldStudy, before: Floats, after: Floats, learned: Reinforced) -> list[IntentProgress]:
    """Every intent of the world that needs no program, with its success before and after, and the reason."""
    places: dict[str, list[int]] = defaultdict(list)
    for at, task in enumerate(study.held_out):
        places[task.intent].append(at)
    drawn = {source.frame.intent for source in study.sources}
    read = {word for task in (*study.experts, *learned.tasks) for word in _words(_request(task))}
    rows: list[IntentProgress] = []
    for intent in study.world.intents:
        if intent not in drawn:
            if CODE_TOOL not in _tools(study.world, intent):
                refused = why_not_drawn(study.world, intent, seed=study.config.seed)
                reason: Reason = "unmeasured" if not refused else "ambiguous" if refused == "undetermined" else "unsolvable"
                rows.append(IntentProgress(intent, 0, 0.0, 0.0, reason))
            continue
        if intent not in places:
            rows.append(IntentProgress(intent, 0, 0.0, 0.0, "unmeasured"))
            continue
        own = places[intent]
        old, new = float(before[own].mean()), float(after[own].mean())
        rows.append(
            IntentProgress(
                intent, len(own), old, new, _reason([study.held_out[at] for at in own], old, new, read, learned.succeeded[intent])
            )
        )
    return rows


def _reason(tasks: Sequence[Task], before: float, after: float, read: set[str], successes: int) -> Reason:
    """Of an intent, by its held-out tasks, the words that training read, and the successful rollouts of RL."""
    if before >= _MASTERED:
        return "mastered"
    if after - before >= _MOVED:
        return "moved"
    if sum(bool(_words(_request(task)) - read - _words(_values(task))) for task in tasks) > len(tasks) / 2:
        return "unreadable"
    return "slow" if successes else "never succeeded"


def _tools(world: type[World], intent: str) -> tuple[str, ...]:
    declared = world.intents[intent]
    return declared.shape(frozenset(slot.name for slot in declared.slots if slot.is_required)).tools


def _request(task: Task) -> str:
    return " ".join(message.content or "" for message in task.messages if message.role == "user")


def _values(task: Task) -> str:
    """The texts among the values of a task, such as the name of an individual: held-out tasks have others than training."""
    return " ".join(_texts([task.slots, task.given]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, Sequence):
        yield from itertools.chain.from_iterable(map(_texts, value))


def _words(text: str) -> set[str]:
    """Words without digits: an identifier or a number is never known beforehand."""
    return {word.strip(".,?!:;'\"()") for word in text.lower().split() if not any(letter.isdigit() for letter in word)}
