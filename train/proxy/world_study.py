"""One world as a tiny policy meets it: experts, fresh tasks, held-out tasks, and a policy that learns from the first.

The policy starts with words and experts of the world alone, so that it trains in a minute on a CPU. Held-out tasks are siblings of the
same frames, with individuals that training never names.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput, HeadraceError
from storage.records import CODE_TOOL, Language, Message, Outcome, Task
from synth.blueprints.single_goal import draw_drills
from synth.conversations.expert import expert_trajectory
from synth.rollouts.draws import rollout
from synth.tasks.solver import NotAdmitted
from synth.tasks.split import STANDARD
from synth.worlds.base import World
from train.data.task_pool import Source, draw, fresh
from train.proxy.mixtures import Floats
from train.proxy.token_training import Example, TokenTraining, encode, train
from train.spec import RLSettings, TinyConfig

WINDOW = 10
"""Steps of a point of RL's curve."""
_FIRST_RL_INDEX = 500_000
_TRIES_PER_TASK = 4


class StudyConfig(BaseModel):
    """How much of a world is drawn, and the first policy's training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    frames: int = Field(160, ge=10, description="Most frames that experts, fresh tasks and held-out tasks are siblings of.")
    experts: int = Field(240, ge=10, description="Expert conversations that the policy learns from first.")
    sft_tokens: int = Field(300_000, ge=1_000, description="Tokens that it reads of them, repetitions counted.")
    held_out: int = Field(120, ge=10, description="Held-out tasks that policies are measured on.")
    seed: int = Field(0, ge=0, description="Seed of weights, tasks and rollouts.")
    language: Language = Field("en", description="Language of the requests, if the world has it.")
    positions: int = Field(640, ge=64, description="Longest conversation in tokens; longer ones are left out.")


@dataclass(frozen=True)
class Reinforced:
    """What RL did. curve: mean success of its rollouts by `WINDOW` steps; succeeded: intent -> successful rollouts; tasks: those drawn."""

    curve: tuple[float, ...]
    succeeded: Counter[str]
    tasks: tuple[Task, ...]


class WorldStudy:
    """Tasks, tokenizer and experts of one world; of experts, `extra` more that the first policy does not learn from.

    Attributes:
        experts, more_experts, held_out: tasks. left_out: number that are longer than the policy's window.

    Raises:
        BadInput: the world gives too few tasks, or all are too long.
    """

    def __init__(self, world: type[World], config: StudyConfig, *, extra: int = 0) -> None:
        self.world, self.config = world, config
        drills = draw_drills(world, config.frames, [], STANDARD, seed=config.seed)
        plain = [one.task for one in drills if all(call.tool != CODE_TOOL for call in one.task.plan.calls)]
        self.sources = [Source.of(task) for task in plain]
        if len(self.sources) < 5:
            raise BadInput(f"{world.name} gives {len(self.sources)} tasks, too few to learn from: describe more intents or rows")
        language = world.language_near(config.language)
        try:
            experts = draw(self.sources, config.experts + extra, use="train", language=language, fewest=10)
            self.held_out = draw(self.sources, config.held_out, use="eval_in", language=language, fewest=10)
        except HeadraceError as error:
            raise BadInput(f"{world.name}: {error}") from error
        self.experts, self.more_experts = experts[: config.experts], experts[config.experts :]
        self._set_tokenizer(language)

    def _set_tokenizer(self, language: Language) -> None:
        from train import tiny

        conversations = {
            task.id: expert_trajectory(self.world, task).messages for task in (*self.experts, *self.more_experts, *self.held_out)
        }
        texts = [tiny.render(messages) for messages in conversations.values()]
        self.tokenizer = tiny.build_tokenizer([*texts, *tiny.vocabulary_texts([self.world], [language])])
        tokens = {id: example.tokens for id, example in zip(conversations, self._encoded(conversations.values()), strict=True)}
        self.left_out = sum(count > self.config.positions for count in tokens.values())
        for tasks in (self.experts, self.more_experts, self.held_out):
            tasks[:] = [task for task in tasks if tokens[task.id] <= self.config.positions]
        if not self.experts or not self.held_out:
            raise BadInput(f"{self.world.name}: all conversations are longer than {self.config.positions} tokens, the policy's window")
        self._conversations = conversations

    def _encoded(self, conversations: Iterable[Sequence[Message]]) -> list[Example]:
        return encode(self.tokenizer, list(conversations))

    def first_policy(self) -> Any:
        """A policy that has learned from `experts`."""
        from train import tiny

        model = tiny.build_model(TinyConfig(positions=self.config.positions), self.tokenizer, self.config.seed)
        self.imitate(model, self.experts, self.config.sft_tokens)
        return model

    def imitate(self, model: Any, tasks: Sequence[Task], tokens: int, *, learning_rate: float = 4e-3) -> None:
        """Trains `model` in place on the experts' conversations of these tasks."""
        examples = self._encoded(self._conversations[task.id] for task in tasks)
        train(model, examples, TokenTraining(tokens=tokens, learning_rate=learning_rate), seed=self.config.seed)

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

    def reinforce(self, model: Any, steps: int, reward: Literal["success", "shuffled"], on_step: Callable[[int], object]) -> Reinforced:
        """Trains `model` in place by RL on fresh tasks."""
        from train.rl.rl import train_rl
        from train.rl.rollout_batches import Batch

        drawn: dict[str, Task] = {}
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
            drawn.update({task.id: task for task in tasks})
            return tasks

        def watch(batch: Batch) -> None:
            hits = [row for row in batch.rows if row.outcome is Outcome.SUCCESS]
            succeeded.update(drawn[row.task_id].intent for row in hits)
            rates.append(len(hits) / len(batch.rows))
            on_step(len(rates))

        with tempfile.TemporaryDirectory(prefix="headrace-learn-") as scratch:
            train_rl(model, self.tokenizer, source, settings, seed=self.config.seed, scratch=Path(scratch), watch=watch)
        windows = [rates[start : start + WINDOW] for start in range(0, len(rates), WINDOW)]
        return Reinforced(tuple(round(float(np.mean(window)), 4) for window in windows), succeeded, tuple(drawn.values()))
