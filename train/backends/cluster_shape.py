"""What a rendered stage runs on, and what is asked of any such stage before a line of its configuration is written.

One idea: `train/spec.py` says everything that decides a stage's result; what an engine on a cluster must know besides is how many machines
there are and how long a conversation may be. That is a `ClusterShape`, and its defaults suit a policy of 8 B parameters.

A setting that decides a stage's result and that no engine but our own trainer has is refused by name, never left out silently.

What it does not do: check batches. They may be overridden key by key, so each engine's own module checks what it has finally rendered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput
from storage.releases.release import ReleasedItem
from synth.engines.local.model_folder import check_folder
from train.spec import LossName, RatioName, RLSettings, StageSpec

Rules = TypeVar("Rules")

MEMORY_SHARE = 0.6
"""Share of a GPU's memory for the engine that answers, which the trainer's weights and states lie beside."""


_OURS = {
    "leave_out": "erred",
    "loss": "rft",
    "credit": "errors_unrewarded",
    "ratio": "unweighted",
    "reward": "shuffled",
    "follow_tags": True,
}
"""Setting -> the value of it that neither engine has an equal of."""


class ClusterShape(BaseModel):
    """Machines, the lengths of a conversation, and how the policy is laid out over the GPUs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(2, ge=1, description="Machines.")
    gpus_per_node: int = Field(8, ge=1, description="GPUs of each, all of them used.")
    tensor_parallel: int = Field(2, ge=1, description="GPUs of a node that hold one copy of the policy while it answers.")
    prompt_tokens: int = Field(4096, ge=1, description="Longest opening of a conversation, tools included.")
    response_tokens: int = Field(12288, ge=1, description="All that follows the opening: answers and results of tools together.")

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def context_tokens(self) -> int:
        return self.prompt_tokens + self.response_tokens


def check_stage(spec: StageSpec, shape: ClusterShape, items: Sequence[ReleasedItem]) -> Path:
    """The input policy's folder, once stage, split and policy are fit to be handed to an engine on a cluster.

    items: of the stage's split.

    Raises:
        BadInput: the first thing that is wrong.
    """
    if spec.model_in is None:
        raise BadInput(f"stage {spec.name} starts from no model folder; only the backend local makes a fresh tiny policy: name a folder")
    _check_settings(spec)
    check_folder(spec.model_in)
    _check_model(spec.model_in, shape)
    if shape.gpus_per_node % shape.tensor_parallel:
        raise BadInput(
            f"tensor_parallel {shape.tensor_parallel} does not divide gpus_per_node {shape.gpus_per_node}; a copy of the policy may not "
            "span nodes"
        )
    kind, count = ("tasks", sum(item.item.kind == "task" for item in items))
    if spec.sft is not None:
        kind, count = ("conversations", sum(item.conversation is not None for item in items))
    batch = spec.sft.batch_size if spec.sft else spec.rl.tasks_a_step if spec.rl else 0
    if count < batch:
        raise BadInput(
            f"split {spec.split} of release {spec.release_id} has {count} {kind}, and a step of stage {spec.name} takes {batch}; "
            "an engine drops a batch that is not full: lower the batch, or make a larger release"
        )
    if spec.rl is not None and spec.rl.max_tokens > shape.response_tokens:
        raise BadInput(f"one answer may have {spec.rl.max_tokens} tokens (rl.max_tokens) but a whole conversation {shape.response_tokens}")
    return spec.model_in


def ratio_of(settings: RLSettings) -> RatioName:
    """The ratio that a stage's loss takes, where the settings name no other."""
    return settings.ratio or ("sequence" if settings.loss == "gspo" else "token")


def rules_of(settings: RLSettings, rules: Mapping[LossName, Rules], engine: str) -> Rules:
    """What a loss changes in an engine's configuration.

    Raises:
        BadInput: the engine's table lacks the loss.
    """
    if settings.loss not in rules:
        raise BadInput(f"rl.loss is {settings.loss}, which is not rendered for {engine}: set one of {', '.join(rules)}")
    return rules[settings.loss]


def _check_settings(spec: StageSpec) -> None:
    for key, value in _OURS.items():
        if getattr(spec.sft or spec.rl, key, None) == value:
            raise BadInput(
                f"{spec.algorithm}.{key} is {str(value).lower()}, which only our own trainer has (backends local and ray): set another "
                f"value to render stage {spec.name}"
            )
    if spec.rl is not None and spec.rl.staleness:
        raise BadInput(f"rl.staleness is {spec.rl.staleness}, and a rendered stage plays and learns in turn, on the same GPUs: set it to 0")


def _check_model(folder: Path, shape: ClusterShape) -> None:
    """The conversation fits the model's positions, and its heads can be shared out."""
    model_config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    positions, heads = model_config.get("max_position_embeddings"), model_config.get("num_attention_heads")
    if isinstance(positions, int) and shape.context_tokens > positions:
        raise BadInput(
            f"a conversation may have {shape.context_tokens} tokens (prompt_tokens + response_tokens), and the model in {folder} reads "
            f"{positions}; lower one of them"
        )
    if isinstance(heads, int) and heads % shape.tensor_parallel:
        raise BadInput(f"tensor_parallel {shape.tensor_parallel} does not divide the {heads} attention heads of the model in {folder}")
