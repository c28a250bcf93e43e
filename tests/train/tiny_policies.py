"""Small policies for tests, and expert conversations of the retail world for them to learn."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from storage.record_rows import tasks_frame
from storage.records import Message, Task, Trajectory
from storage.store import Store, part_id
from synth.conversations.expert import expert_trajectory
from synth.roles.simulate import trajectories_frame
from synth.tasks.solver import NotAdmitted, expert_messages, sibling
from synth.worlds import WORLDS
from tests.synth.retail_tasks import frame_of
from train import tiny
from train.spec import TinyConfig

RetailWorld = WORLDS["retail"]

SMALL = TinyConfig(width=32, layers=1, heads=2, feed_forward=64, positions=256)


def retail_tasks(*intents: str, each: int = 1) -> list[Task]:
    """The first `each` English siblings of each intent."""
    found: list[Task] = []
    for intent in intents or RetailWorld.intents:
        for seed in itertools.count():
            try:
                found.append(sibling(WORLDS["retail"], frame_of(intent, seed), index=seed, language="en", division="seed", use="train"))
            except NotAdmitted:
                continue
            if sum(task.intent == intent for task in found) == each:
                break
    return found


def expert_store(root: Path, tasks: Sequence[Task]) -> tuple[Store, list[Trajectory]]:
    """A store with these tasks and one expert trajectory per task."""
    store = Store(root)
    experts = [expert_trajectory(WORLDS[task.world], task) for task in tasks]
    store.commit(
        [
            store.write("tasks", part_id("tasks", [], {}, 1), tasks_frame(tasks)),
            store.write("trajectories", part_id("trajectories", [], {}, 1), trajectories_frame(experts, tasks)),
        ]
    )
    return store, experts


def expert_conversations(tasks: Sequence[Task]) -> list[list[Message]]:
    return [expert_messages(WORLDS[task.world], task) for task in tasks]


def small_policy(conversations: Sequence[Sequence[Message]], *, seed: int = 0, config: TinyConfig = SMALL) -> tuple[Any, Any]:
    """A fresh model, and a tokenizer that covers the conversations and the retail world."""
    texts = [tiny.render(messages) for messages in conversations]
    tokenizer = tiny.build_tokenizer([*texts, *tiny.vocabulary_texts([RetailWorld], ["en"])])
    return tiny.build_model(config, tokenizer, seed), tokenizer


def copy_of(model: Any) -> Any:
    """The same weights in a model of its own: a trainer binds `forward` to the one that it was given, and `deepcopy` keeps that."""
    other = type(model)(model.config)
    other.load_state_dict(model.state_dict())
    return other


def digest(model: Any) -> str:
    """Equal for equal weights, to the bit."""
    found = hashlib.sha256()
    for name, weights in model.state_dict().items():
        found.update(name.encode() + weights.detach().numpy().tobytes())
    return found.hexdigest()
