"""The policy that every arm of a seed starts from: it has practised calls in other businesses, and can write one expression.

One idea: a policy of half a million parameters from scratch spends most of what it reads on learning to copy and to write a call at all,
which says little about the conversations of an arm. What a language model brings along is made here instead, once a seed, the same for
all arms: single acts in domains of other themes, and tiny code tasks (`code_tasks.py`). Of the experiment's domains it knows nothing; how
many of their tasks it can do all the same, the result says (`base_success`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiment.code_tasks import draw_code_tasks
from benchmarks.experiment.config import DiversityExperimentConfig
from benchmarks.experiment.domains import draw_tasks, other_domains
from benchmarks.experiment.learn import examples_of, train
from benchmarks.experiment.prompts import prompted_task
from storage.records import Message
from synth.tasks.solver import expert_messages
from synth.worlds import WORLDS
from synth.worlds.base import World
from train import tiny

_CODE_TASKS = 5_000
_DOMAINS_A_THEME = 3


def make_base(tokenizer: Any, config: DiversityExperimentConfig, seed: int, folder: Path) -> list[float]:
    """Trains a base policy and writes its model folder; returns its losses."""
    conversations = [*practice(config, seed), *(task.conversation() for task in draw_code_tasks(_CODE_TASKS, f"train/{seed}"))]
    model = tiny.build_model(config.tiny, tokenizer, seed)
    losses = train(model, examples_of(tokenizer, conversations), config.base, seed=seed)
    tiny.save_policy(model, tokenizer, folder)
    return losses


def practice(config: DiversityExperimentConfig, seed: int) -> list[Sequence[Message]]:
    """Expert conversations of single acts in domains of other themes."""
    tasks = draw_tasks(practice_worlds(config), config.practice_tasks, use="train", seed=seed)
    return [expert_messages(WORLDS[task.world], prompted_task(task, config.shown_tools)) for task in tasks]


def practice_worlds(config: DiversityExperimentConfig) -> tuple[type[World], ...]:
    return other_domains(config.domains, config.practice_themes, _DOMAINS_A_THEME)
