"""Is a world learnable? A tiny policy learns from a few experts of it, then by RL on fresh tasks; its success must rise within minutes.

RL is that of a stage (`train/rl/rl.py`): it can only climb if requests can be read, plans can be executed, and the reward follows from
what was done. The control is the same RL with success dealt at random among the rollouts: if that climbs too, the reward teaches nothing.
Success is measured before and after, on siblings with individuals that training never names, and by intent. An intent that does not move
is explained by what can be seen: its tasks cannot be drawn, its requests have words that no training request has, equal requests want
different things, or no rollout ever succeeded.

Not measured: how well a large model does in the world. A request that no word-level policy can read may be plain to it.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput, HeadraceError
from storage.execution import Progress
from storage.records import CODE_TOOL, Language, Message, Outcome, Task
from synth.blueprints.single_goal import draw_drills, why_not_drawn
from synth.conversations.expert import expert_trajectory
from synth.rollouts.draws import rollout
from synth.tasks.solver import NotAdmitted
from synth.tasks.split import STANDARD
from synth.worlds.base import World
from train.data.task_pool import Source, draw, fresh
from train.measure.evaluate import Estimate, bootstrap
from train.proxy.mixtures import Floats
from train.proxy.token_training import TokenTraining, encode, train
from train.spec import RLSettings, TinyConfig

Reason = Literal["mastered", "moved", "unsolvable", "unreadable", "ambiguous", "never succeeded", "slow"]
REASONS: dict[Reason, str] = {
    "mastered": "solved before RL",
    "moved": "success rose",
    "unsolvable": "no task of it could be drawn",
    "unreadable": "most held-out requests have a word that no training request has",
    "ambiguous": "its requests do not say all that the calls need, so no task was admitted",
    "never succeeded": "no rollout of RL ever solved one, so RL has nothing to learn from",
    "slow": "solved sometimes, but success did not rise",
}
_MASTERED, _MOVED = 0.9, 0.1
_WINDOW = 10
"""Steps of a point of the curve."""
_PLATEAU = 0.02
_FIRST_RL_INDEX = 500_000
_TRIES_PER_TASK = 4


class LearnConfig(BaseModel):
    """Configuration of `headrace worlds learn`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    frames: int = Field(160, ge=10, description="Most frames that experts, fresh tasks and held-out tasks are siblings of.")
    experts: int = Field(240, ge=10, description="Expert conversations that the policy learns from first.")
    sft_tokens: int = Field(300_000, ge=1_000, description="Tokens that it reads of them, repetitions counted.")
    steps: int = Field(80, ge=1, description="RL steps of 8 tasks and 8 rollouts each.")
    control_steps: int = Field(40, ge=0, description="RL steps of the control with shuffled rewards; 0: no control.")
    held_out: int = Field(120, ge=10, description="Held-out tasks that are measured before and after.")
    seed: int = Field(0, ge=0, description="Seed of weights, tasks and rollouts.")
    language: Language = Field("en", description="Language of the requests, if the world has it.")
    positions: int = Field(640, ge=64, description="Longest conversation in tokens; longer ones are left out.")


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
    is_rising: whether the last quarter of the curve is above the quarter before it.
    """

    world: str
    before: float
    after: float
    gain: Estimate
    control_gain: Estimate | None
    curve: tuple[float, ...]
    is_rising: bool
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
        """Share of the intents that moved or were mastered."""
        return sum(one.reason in ("moved", "mastered") for one in self.intents) / len(self.intents) if self.intents else 0.0


def learn_world(world: type[World], config: LearnConfig | None = None, *, progress: Progress | None = None) -> Learned:
    """Trains a tiny policy in a world.

    Raises:
        BadInput: the world gives too few tasks.
    """
    config, report = config or LearnConfig(), progress or (lambda *_: None)
    begun = time.process_time()
    study = _Study(world, config)
    report("learning from experts", 0, 0)
    policy = study.first_policy()
    before = study.measure(policy)
    control = copy.deepcopy(policy)
    curve, succeeded = study.reinforce(policy, config.steps, "success", lambda step: report("RL", step, config.steps))
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
        curve=curve,
        is_rising=_is_rising(curve),
        intents=tuple(study.explain(before, after, succeeded)),
        left_out=study.left_out,
        cpu_s=time.process_time() - begun,
    )


def _is_rising(curve: Sequence[float]) -> bool:
    """Whether the mean of the last quarter is above that of the quarter before by `_PLATEAU`; False for fewer than four windows."""
    quarter = len(curve) // 4
    return quarter > 0 and float(np.mean(curve[-quarter:]) - np.mean(curve[-2 * quarter : -quarter])) > _PLATEAU


class _Study:
    """Tasks, tokenizer and experts of one world."""

    def __init__(self, world: type[World], config: LearnConfig) -> None:
        self.world, self.config = world, config
        drills = draw_drills(world, config.frames, [], STANDARD, seed=config.seed)
        plain = [one.task for one in drills if all(call.tool != CODE_TOOL for call in one.task.plan.calls)]
        self.sources = [Source.of(task) for task in plain]
        if len(self.sources) < 5:
            raise BadInput(f"{world.name} gives {len(self.sources)} tasks, too few to learn from: describe more intents or rows")
        language = world.language_near(config.language)
        try:
            self.experts = draw(self.sources, config.experts, use="train", language=language, fewest=10)
            self.held_out = draw(self.sources, config.held_out, use="eval_in", language=language, fewest=10)
        except HeadraceError as error:
            raise BadInput(f"{world.name}: {error}") from error
        self._set_tokenizer(language)

    def _set_tokenizer(self, language: Language) -> None:
        from train import tiny

        conversations = {task.id: expert_trajectory(self.world, task).messages for task in (*self.experts, *self.held_out)}
        texts = [tiny.render(messages) for messages in conversations.values()]
        self.tokenizer = tiny.build_tokenizer([*texts, *tiny.vocabulary_texts([self.world], [language])])
        tokens = {id: example.tokens for id, example in zip(conversations, self._encoded(conversations.values()), strict=True)}
        self.left_out = sum(count > self.config.positions for count in tokens.values())
        self.experts = [task for task in self.experts if tokens[task.id] <= self.config.positions]
        self.held_out = [task for task in self.held_out if tokens[task.id] <= self.config.positions]
        if not self.experts or not self.held_out:
            raise BadInput(f"{self.world.name}: all conversations are longer than {self.config.positions} tokens: raise --positions")
        self._conversations = conversations

    def _encoded(self, conversations: Any) -> list[Any]:
        return encode(self.tokenizer, list(conversations))

    def first_policy(self) -> Any:
        from train import tiny

        model = tiny.build_model(TinyConfig(positions=self.config.positions), self.tokenizer, self.config.seed)
        examples = self._encoded(self._conversations[task.id] for task in self.experts)
        train(model, examples, TokenTraining(tokens=self.config.sft_tokens), seed=self.config.seed)
        return model

    def measure(self, model: Any) -> Floats:
        """Mean success of two draws of every held-out task, in order.

        Raises:
            HeadraceError: a task could not be rated.
        """
        from synth.engines.local.hf import HFEngine

        draws = rollout(HFEngine(model, self.tokenizer, policy_version="proxy"), self.held_out, 2, seed=self.config.seed)
        if failed := [one for one in draws if not one.outcome.is_rated]:
            raise HeadraceError(f"{len(failed)} of {len(draws)} tasks of {self.world.name} could not be rated: {failed[0].failure}")
        hits = np.array([one.outcome is Outcome.SUCCESS for one in draws], dtype=np.float64)
        rates: Floats = hits.reshape(len(self.held_out), 2).mean(axis=1)
        return rates

    def reinforce(
        self, model: Any, steps: int, reward: Literal["success", "shuffled"], on_step: Callable[[int], object]
    ) -> tuple[tuple[float, ...], Counter[str]]:
        """Trains `model` in place; the curve, and intent -> number of successful rollouts."""
        from train.rl.rl import train_rl
        from train.rl.rollout_batches import Batch

        intents: dict[str, str] = {}
        rates: list[float] = []
        succeeded: Counter[str] = Counter()
        settings = RLSettings(max_steps=steps, reward=reward, resample_rounds=0)

        def source(step: int, again: int = 0) -> Sequence[Task]:
            tasks, rng = list[Task](), np.random.default_rng((self.config.seed, step, again))
            for attempt in range(settings.tasks_a_step * _TRIES_PER_TASK):
                origin = self.sources[int(rng.integers(len(self.sources)))]
                index = _FIRST_RL_INDEX + step * 1_000 + attempt
                try:
                    tasks.append(fresh(origin, index, language=self.config.language, use="train"))
                except NotAdmitted:
                    continue
                if len(tasks) == settings.tasks_a_step:
                    break
            if len(tasks) < settings.tasks_a_step:
                tasks = [*tasks, *self.experts[: settings.tasks_a_step - len(tasks)]]
            intents.update({task.id: task.intent for task in tasks})
            return tasks

        def watch(batch: Batch) -> None:
            hits = [row for row in batch.rows if row.outcome is Outcome.SUCCESS]
            succeeded.update(intents[row.task_id] for row in hits)
            rates.append(len(hits) / len(batch.rows))
            on_step(len(rates))

        with tempfile.TemporaryDirectory(prefix="headrace-learn-") as scratch:
            train_rl(model, self.tokenizer, source, settings, seed=self.config.seed, scratch=Path(scratch), watch=watch)
        windows = [rates[start : start + _WINDOW] for start in range(0, len(rates), _WINDOW)]
        return tuple(round(float(np.mean(window)), 4) for window in windows), succeeded

    def explain(self, before: Any, after: Any, succeeded: Counter[str]) -> list[IntentProgress]:
        """Every intent of the world that needs no program, with its success before and after, and the reason."""
        places: dict[str, list[int]] = defaultdict(list)
        for at, task in enumerate(self.held_out):
            places[task.intent].append(at)
        drawn = {source.frame.intent for source in self.sources}
        read = {word for task in self.experts for word in _words(task.messages)}
        rows: list[IntentProgress] = []
        for intent in self.world.intents:
            if intent not in drawn:
                if CODE_TOOL not in _tools(self.world, intent):
                    refused = why_not_drawn(self.world, intent, seed=self.config.seed)
                    rows.append(IntentProgress(intent, 0, 0.0, 0.0, "ambiguous" if refused == "undetermined" else "unsolvable"))
                continue
            own = places.get(intent, [])
            if own:
                old, new = float(before[own].mean()), float(after[own].mean())
                rows.append(IntentProgress(intent, len(own), old, new, self._reason(intent, own, old, new, read, succeeded)))
        return rows

    def _reason(self, intent: str, at: Sequence[int], before: float, after: float, read: set[str], succeeded: Counter[str]) -> Reason:
        if before >= _MASTERED:
            return "mastered"
        if after - before >= _MOVED:
            return "moved"
        tasks = [self.held_out[place] for place in at]
        if sum(bool(_words(task.messages) - read) for task in tasks) > len(tasks) / 2:
            return "unreadable"
        return "slow" if succeeded[intent] else "never succeeded"


def _tools(world: type[World], intent: str) -> tuple[str, ...]:
    declared = world.intents[intent]
    return declared.shape(frozenset(slot.name for slot in declared.slots if slot.is_required)).tools


def _words(messages: Sequence[Message]) -> set[str]:
    """Words of the user's messages, without digits: an identifier or a number is never known beforehand."""
    texts = " ".join(message.content or "" for message in messages if message.role == "user").lower()
    return {word.strip(".,?!:;'\"()") for word in texts.split() if not any(letter.isdigit() for letter in word)}
