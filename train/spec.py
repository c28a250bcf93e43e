"""What a training stage is told: one file, whatever runs it.

One idea: a stage is a function of its spec. Everything that decides its result is in it (input policy, release split, algorithm,
hyper-parameters, budget in steps, seed); where it runs is not. The contract between stages is a Hugging Face model folder.
This module imports no trainer, so that configurations can be read where none is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class SftConfig(BaseModel):
    """Supervised fine-tuning on trajectories, loss on what the assistant wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_steps: int = Field(150, ge=1, description="Optimiser steps at most.")
    plateau_steps: int = Field(
        0, ge=0, description="Stop when the mean loss of this many steps is not 2 % below that of as many before; 0 never."
    )
    batch_size: int = Field(16, ge=1, description="Trajectories a step.")
    learning_rate: float = Field(4e-3, gt=0, description="Peak learning rate (AdamW); 1e-3 for a short second SFT that keeps its entropy.")
    warmup_steps: int = Field(20, ge=0, description="Steps of linear warm-up; then linear decay to 5 % of the peak.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's decoupled weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are clipped to this norm.")


class RlConfig(BaseModel):
    """On-policy RL with group-relative advantages on fresh siblings of the split's tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(150, ge=1, description="Updates; each rolls out prompts_per_step x group_size trajectories.")
    prompts_per_step: int = Field(8, ge=1, description="Fresh tasks a step.")
    group_size: int = Field(8, ge=2, description="Rollouts of each task: the group whose mean is the baseline.")
    learning_rate: float = Field(6e-4, gt=0, description="Peak learning rate (AdamW).")
    warmup_steps: int = Field(5, ge=0, description="Steps of linear warm-up; then linear decay to 10 % of the peak.")
    adam_beta2: float = Field(0.99, gt=0, lt=1, description="AdamW's second-moment decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are clipped to this norm.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature of the rollouts.")


class StageSpec(BaseModel):
    """One training stage.

    `model_in` None starts a fresh tiny policy whose vocabulary is that of `worlds` and the split's texts. Paths are absolute, or relative
    to the working directory of the process that runs the stage.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="For people: sft1, sft2, rl ...")
    algorithm: Literal["sft", "rl"]
    store: Path
    release_id: str
    split: str
    model_in: Path | None = None
    model_out: Path
    worlds: tuple[str, ...] = ("retail",)
    language: Literal["en", "zh"] = Field("en", description="Language of the siblings that RL draws.")
    seed: int = Field(0, ge=0)
    sft: SftConfig | None = None
    rl: RlConfig | None = None

    @model_validator(mode="after")
    def _own_hyperparameters(self) -> StageSpec:
        if getattr(self, self.algorithm) is None:
            raise ValueError(f"a stage with algorithm {self.algorithm} needs the section `{self.algorithm}`")
        return self
