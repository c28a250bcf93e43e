"""The division of a frame: `seed` is trained on, `probe` measures certainty, `held_out` only evaluates.

A hash of the frame's id decides, so synthesis, funnel and evaluation agree without communicating, and no frame is in two divisions.
Frames that differ in an individual alone may fall into different divisions; `train/data/task_pool.py` then leaves out the held-out ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.records import JSON, Division, Frame, content_id, frame_id
from synth.text.slot_kinds import SlotKind, Vocabulary
from synth.worlds.base import World

_RESOLUTION = 2**32


class DivisionConfig(BaseModel):
    """How frames are divided."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, description="Seed of the division; another seed gives another division.")
    seed_share: float = Field(0.4, gt=0, lt=1, description="Share of frames that training may see.")
    probe_share: float = Field(
        0.4, gt=0, lt=1, description="Share of frames on which certainty is measured; frames in neither share are held out."
    )

    @model_validator(mode="after")
    def _leaves_some_out(self) -> DivisionConfig:
        if self.seed_share + self.probe_share >= 1:
            raise ValueError("seed_share + probe_share must leave some frames held out: their sum must be below 1")
        return self


STANDARD = DivisionConfig()


def division_of(frame: Frame, world: type[World], config: DivisionConfig) -> Division:
    """The division of a frame of a real request, which may have names that nobody listed (`Vocabulary.is_open`).

    Such a frame is held out if one of its names is, so no name of a held-out task is ever given to a world of training. Otherwise it is in
    one division with the frames that differ in these names alone.
    """
    names = [
        slot.name
        for slot in world.intents[frame.intent].slots
        if slot.name in frame.slots and _is_unlisted(world.kinds[slot.kind], frame.slots[slot.name])
    ]
    if not names:
        return division(frame.id, config)
    seen_share = config.seed_share + config.probe_share
    if any(_position(config, "name", str(frame.slots[name]).casefold()) >= seen_share for name in names):
        return "held_out"
    masked = {**frame.slots, **dict.fromkeys(names, "*")}
    return _division(seen_share * _position(config, frame_id(frame.world, frame.intent, masked)), config)


def _is_unlisted(kind: SlotKind, value: JSON) -> bool:
    return isinstance(kind, Vocabulary) and kind.is_open and value not in kind.names


def division(frame_id: str, config: DivisionConfig) -> Division:
    """The division of a frame."""
    return _division(_position(config, frame_id), config)


def _position(config: DivisionConfig, *key: str) -> float:
    """A number from 0 to 1 that follows from the key."""
    return int(content_id("division", config.seed, *key)[-8:], 16) / _RESOLUTION


def _division(position: float, config: DivisionConfig) -> Division:
    if position < config.seed_share:
        return "seed"
    return "probe" if position < config.seed_share + config.probe_share else "held_out"


@lru_cache(maxsize=64)
def is_in_division(side: Division, divisions: DivisionConfig = STANDARD) -> Callable[[str], bool]:
    """Whether the frame of an id is in a division. Cached, so that planners can cache by this function."""
    return lambda frame_id: division(frame_id, divisions) == side
