"""The division of a frame: `seed` is trained on, `probe` measures certainty, `held_out` only evaluates.

A hash of the frame's id alone decides, so synthesis, funnel and evaluation agree without communicating, and no frame is in two divisions.
Frames that differ in an individual alone may fall into different divisions; `train/data/task_pool.py` then leaves out the held-out ones.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.records import Division, content_id

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


def division(frame_id: str, config: DivisionConfig) -> Division:
    """The division of a frame."""
    position = int(content_id("division", config.seed, frame_id)[-8:], 16) / _RESOLUTION
    if position < config.seed_share:
        return "seed"
    return "probe" if position < config.seed_share + config.probe_share else "held_out"
