"""Shape of the cluster that a rendered stage runs on, and the checks before it is rendered.

One idea: besides the stage's spec, an engine on a cluster needs the number of machines and the longest conversation: a `ClusterShape`. Its
defaults suit a policy of 8 B parameters. A setting that only our own trainer supports is refused by name, never dropped silently.

What it does not do: check batches. Users may override keys, so each engine's module checks the final values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput
from storage.releases.release import ReleasedItem
from synth.engines.local.model_folder import check_folder
from train.spec import LossName, RatioName, RLSettings, SFTSettings, StageSpec

Rules = TypeVar("Rules")

MEMORY_SHARE = 0.6
"""Share of a GPU's memory for the inference engine; the trainer uses the same GPU."""
CALL_MARK = "<tool_call>"
"""What begins a call in the answers that the rendered tool parsers (verl's `hermes`, ROLL's `qwen25`) read."""
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
"""Files of a model folder that may have its chat template."""
_OURS: Mapping[str, tuple[str | bool, ...]] = {
    "precision": ("fp32",),
    "loss": ("rft", "ipa"),
    "credit": ("errors_unrewarded", "chunk_return"),
    "ratio": ("unweighted", "chunk"),
    "start": ("rollback",),
    "reward": ("shuffled",),
    "follow_tags": (True,),
    "rollouts": ("hf",),
}
"""Setting -> the values that neither engine supports."""
RENDERED_LOSSES: tuple[LossName, ...] = tuple(name for name in get_args(LossName) if name not in _OURS["loss"])
"""Losses that both engines have an equal of."""


class ClusterShape(BaseModel):
    """Machines, lengths of a conversation, and layout of the policy on the GPUs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(2, ge=1, description="Machines.")
    gpus_per_node: int = Field(8, ge=1, description="GPUs of each machine; all are used.")
    tensor_parallel: int = Field(2, ge=1, description="GPUs of a node that share one copy of the policy during rollouts.")
    prompt_tokens: int = Field(4096, ge=1, description="Longest opening of a conversation in tokens, tools included.")
    response_tokens: int = Field(12288, ge=1, description="Most tokens after the opening: answers and tool results together.")

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def context_tokens(self) -> int:
        return self.prompt_tokens + self.response_tokens


def check_stage(spec: StageSpec, shape: ClusterShape, items: Sequence[ReleasedItem]) -> Path:
    """Checks that a stage, its split and its input policy can be rendered; returns the policy's folder.

    items: the stage's split.

    Raises:
        BadInput: the first problem.
    """
    if spec.model_in is None:
        raise BadInput(f"stage {spec.name} starts from no model folder; only the backend local makes a fresh tiny policy: name a folder")
    check_settings(spec)
    check_folder(spec.model_in)
    _check_model(spec.model_in, shape)
    if spec.rl is not None:
        _check_calls(spec.model_in)
    if shape.gpus_per_node % shape.tensor_parallel:
        raise BadInput(
            f"tensor_parallel {shape.tensor_parallel} does not divide gpus_per_node {shape.gpus_per_node}; a copy of the policy may not "
            "span nodes"
        )
    settings = spec.settings
    if isinstance(settings, SFTSettings):
        kind, count, batch = "conversations", sum(item.conversation is not None for item in items), settings.batch_size
    else:
        kind, count, batch = "tasks", sum(item.item.kind == "task" for item in items), settings.tasks_a_step
    if count < batch:
        raise BadInput(
            f"split {spec.split} of release {spec.release_id} has {count} {kind}, and a step of stage {spec.name} takes {batch}; "
            "an engine drops a batch that is not full: lower the batch, or make a larger release"
        )
    if spec.rl is not None and spec.rl.max_tokens > shape.response_tokens:
        raise BadInput(f"one answer may have {spec.rl.max_tokens} tokens (rl.max_tokens) but a whole conversation {shape.response_tokens}")
    return spec.model_in


def ratio_of(settings: RLSettings) -> RatioName:
    """The ratio that the settings name, else that of the loss."""
    return settings.ratio or ("sequence" if settings.loss == "gspo" else "token")


def rules_of(settings: RLSettings, rules: Mapping[LossName, Rules], engine: str) -> Rules:
    """Changes of the loss to an engine's configuration.

    Raises:
        BadInput: the engine's table lacks the loss.
    """
    if settings.loss not in rules:
        raise BadInput(f"rl.loss is {settings.loss}, which is not rendered for {engine}: set one of {', '.join(rules)}")
    return rules[settings.loss]


def check_settings(spec: StageSpec) -> None:
    """Raises BadInput for a setting that only our own trainer has."""
    for key, values in _OURS.items():
        if (value := getattr(spec.settings, key, None)) in values:
            raise BadInput(
                f"{spec.algorithm}.{key} is {str(value).lower()}, which only our own trainer has (backends local and ray): set another "
                f"value to render stage {spec.name}"
            )
    if spec.sft is not None and spec.sft.pack_tokens is not None:
        raise BadInput(f"sft.pack_tokens is {spec.sft.pack_tokens}, and an engine packs conversations by itself: set it to null to render")
    for key in ("first_draws", "max_rollouts"):
        if getattr(spec.rl, key, None) is not None:
            raise BadInput(
                f"rl.{key} is {getattr(spec.rl, key)}, which only our own trainer has: set it to null to render stage {spec.name}"
            )
    if spec.rl is not None and spec.rl.staleness:
        raise BadInput(f"rl.staleness is {spec.rl.staleness}, and a rendered stage plays and learns in turn, on the same GPUs: set it to 0")


def _check_calls(folder: Path) -> None:
    """Checks that the policy's chat template has the mark of calls that the rendered tool parsers read."""
    texts = [path.read_text(encoding="utf-8") for name in _TEMPLATES if (path := folder / name).is_file()]
    if not any(CALL_MARK in text for text in texts):
        raise BadInput(
            f"the chat template of {folder} writes calls in another form than {CALL_MARK}, the only one that is rendered: train it with "
            "the backend local or ray"
        )


def _check_model(folder: Path, shape: ClusterShape) -> None:
    """Checks that the longest conversation fits the model's positions and that `tensor_parallel` divides its heads."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    positions, heads = config.get("max_position_embeddings"), config.get("num_attention_heads")
    if isinstance(positions, int) and shape.context_tokens > positions:
        raise BadInput(
            f"a conversation may have {shape.context_tokens} tokens (prompt_tokens + response_tokens), and the model in {folder} reads "
            f"{positions}; lower one of them"
        )
    if isinstance(heads, int) and heads % shape.tensor_parallel:
        raise BadInput(f"tensor_parallel {shape.tensor_parallel} does not divide the {heads} attention heads of the model in {folder}")
