"""Memory and time that training a base model takes, estimated from its shape alone: for dry runs, before anything is loaded.

One idea: three sums. Held: weights in fp32 (frozen ones under LoRA in bf16). Trained: a gradient and two moments of AdamW, 12 bytes a
trained parameter. Activations: 34 bytes a token, layer and hidden unit, or 2 with gradient checkpointing and one layer's 34 on top
(arXiv 2205.05198, section 4.1, without the attention matrix, which fused kernels do not keep), and the logits. Sharding divides the
first two by the number of processes.
Time: 6 operations a parameter and token, 8 with gradient checkpointing.

What it does not do: measure; tell mixtures of experts, whose passes take less time, or packed 4-bit weights from others. Frameworks'
buffers and fragmentation come on top: leave a tenth free.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from storage.errors import BadInput
from train.models.base_model import window_of
from train.models.weight_files import parameters_of
from train.spec import RLSettings, SFTSettings

ASSUMED_TOKENS = 4096
"""Length of a conversation with its tools, where nothing limits it."""
GPU_FLOPS = 4e14
"""Operations a second of a GPU in bf16, of the class of an H100 at 40 % of its peak."""


@dataclass(frozen=True)
class ModelShape:
    """parameters: number of weights. hidden, inner: sizes of the residual stream and of the feed-forward network. window: in tokens."""

    parameters: int
    hidden: int
    inner: int
    layers: int
    vocabulary: int
    window: int


def shape_of(folder: Path) -> ModelShape:
    """The shape of the model in a folder, by its configuration and the headers of its weights.

    Raises:
        BadInput: the configuration lacks a size.
    """
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    if missing := [key for key in ("hidden_size", "num_hidden_layers", "vocab_size") if key not in config]:
        raise BadInput(f"{folder}/config.json has no {missing[0]}: the memory of its training cannot be estimated")
    hidden = config["hidden_size"]
    inner = config.get("intermediate_size", 4 * hidden)
    return ModelShape(parameters_of(folder), hidden, inner, config["num_hidden_layers"], config["vocab_size"], window_of(folder))


def tokens_at_once(shape: ModelShape, settings: SFTSettings | RLSettings, processes: int) -> int:
    """Tokens of a forward and backward pass of one process."""
    if isinstance(settings, RLSettings):
        rows, length = settings.micro_batch_size or settings.tasks_a_step * settings.draws, ASSUMED_TOKENS
    else:
        share = settings.batch_size // processes
        rows, length = min(settings.micro_batch_size or share, share), settings.pack_tokens or ASSUMED_TOKENS
    return rows * min(length, shape.window)


def adapter_parameters(shape: ModelShape, rank: int) -> int:
    """Weights of LoRA adapters on four square linear layers of attention and three of the feed-forward network, in every layer; with fewer
    key-value heads than heads they are fewer."""
    return rank * shape.layers * (4 * 2 * shape.hidden + 3 * (shape.hidden + shape.inner))


def memory_gib(shape: ModelShape, settings: SFTSettings | RLSettings, *, processes: int, is_sharded: bool, in_bf16: bool) -> float:
    """Memory of one process (a GPU's) while a stage trains, in GiB."""
    trained, held = shape.parameters, 4 * shape.parameters
    if settings.lora is not None:
        trained = adapter_parameters(shape, settings.lora.rank)
        held = (2 if in_bf16 else 4) * shape.parameters + 4 * trained
    states = (held + 12 * trained) / (processes if is_sharded else 1)
    size = 1 if in_bf16 else 2
    tokens, a_layer = tokens_at_once(shape, settings, processes), 34 * size * shape.hidden
    activations = tokens * (2 * size * shape.hidden * shape.layers + a_layer if settings.gradient_checkpointing else a_layer * shape.layers)
    logits = 2 * 4 * tokens * shape.vocabulary
    return (states + activations + logits) / 2**30


def gpu_seconds(shape: ModelShape, settings: SFTSettings | RLSettings, gpus: int) -> float:
    """Time of a stage's forward and backward passes on GPUs, in seconds; rollouts are not counted."""
    rows = settings.tasks_a_step * settings.draws * settings.updates_a_batch if isinstance(settings, RLSettings) else settings.batch_size
    length = (isinstance(settings, SFTSettings) and settings.pack_tokens) or ASSUMED_TOKENS
    operations = (8 if settings.gradient_checkpointing else 6) * shape.parameters * settings.max_steps * rows * min(length, shape.window)
    return operations / (GPU_FLOPS * gpus)
