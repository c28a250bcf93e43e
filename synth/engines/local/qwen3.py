"""Qwen3's forward pass for many conversations of different lengths on a CPU, without padding.

One idea: the new tokens of all conversations form one flat batch. Matrix products see only that batch; a compiled attention kernel walks
each token's own keys and values. So a prompt of twenty tokens, a tool result of thirty and a single sampled token are computed together,
and nothing is computed for waiting conversations.
Matches `Qwen3ForCausalLM` in fp32 to the last digits (tested), for any number of key-value heads. Not supported (see `fits`): a sliding
window, scaled rotary positions, other dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@numba.njit(cache=True, fastmath=True)  # type: ignore[untyped-decorator]
def _rms_normalise(x: Floats, epsilon: float) -> Floats:
    """Rows of `x` at root-mean-square 1; the norm's weights are part of the next product."""
    out = np.empty_like(x)
    for row in range(x.shape[0]):
        total = np.float32(0.0)
        for column in range(x.shape[1]):
            total += x[row, column] * x[row, column]
        scale = np.float32(1.0) / np.sqrt(total / np.float32(x.shape[1]) + np.float32(epsilon))
        for column in range(x.shape[1]):
            out[row, column] = x[row, column] * scale
    return out


@numba.njit(cache=True, fastmath=True)  # type: ignore[untyped-decorator]
def _rotate(vector: Floats, weight: Floats, cosine: Floats, sine: Floats, epsilon: float, out: Floats) -> None:
    """One head's query or key: normalised, weighted, and rotated by its position."""
    size = vector.shape[0]
    half = size // 2
    total = np.float32(0.0)
    for index in range(size):
        total += vector[index] * vector[index]
    scale = np.float32(1.0) / np.sqrt(total / np.float32(size) + np.float32(epsilon))
    for index in range(half):
        low, high = vector[index] * scale * weight[index], vector[index + half] * scale * weight[index + half]
        out[index] = low * cosine[index] - high * sine[index]
        out[index + half] = high * cosine[index] + low * sine[index]


@numba.njit(cache=True, fastmath=True)  # type: ignore[untyped-decorator]
def _write_cache(
    mixed: Floats,
    slots: Ints,
    positions: Ints,
    keys: Floats,
    values: Floats,
    norms: Floats,
    cosines: Floats,
    sines: Floats,
    epsilon: float,
) -> None:
    """Writes the keys and values of tokens into the caches; arguments as in `_attend`."""
    kv_heads, size = keys.shape[1], keys.shape[3]
    heads = mixed.shape[1] // size - 2 * kv_heads
    for token in range(mixed.shape[0]):
        slot, position = slots[token], positions[token]
        for head in range(kv_heads):
            start = (heads + head) * size
            _rotate(mixed[token, start : start + size], norms[1], cosines[position], sines[position], epsilon, keys[slot, head, position])
            start += kv_heads * size
            values[slot, head, position] = mixed[token, start : start + size]


@numba.njit(cache=True, fastmath=True)  # type: ignore[untyped-decorator]
def _attend(
    mixed: Floats,
    slots: Ints,
    positions: Ints,
    keys: Floats,
    values: Floats,
    norms: Floats,
    cosines: Floats,
    sines: Floats,
    epsilon: float,
) -> Floats:
    """Attention of tokens over their own conversations, [tokens, heads * size]. Adds the tokens to the caches first.

    mixed: [tokens, (heads + 2 kv_heads) * size], queries, keys, values.
    keys, values: the caches, [slots, kv_heads, length, size], written at `positions`.
    norms: [2, size], of queries and keys.
    """
    tokens, kv_heads, size = mixed.shape[0], keys.shape[1], keys.shape[3]
    heads = mixed.shape[1] // size - 2 * kv_heads
    shared = heads // kv_heads
    _write_cache(mixed, slots, positions, keys, values, norms, cosines, sines, epsilon)
    out = np.empty((tokens, heads * size), dtype=np.float32)
    query, weights = np.empty(size, dtype=np.float32), np.empty(keys.shape[2], dtype=np.float32)
    softness = np.float32(1.0) / np.sqrt(np.float32(size))
    for token in range(tokens):
        slot, position = slots[token], positions[token]
        for head in range(heads):
            start = head * size
            _rotate(mixed[token, start : start + size], norms[0], cosines[position], sines[position], epsilon, query)
            key, value = keys[slot, head // shared], values[slot, head // shared]
            top = np.float32(-np.inf)
            for step in range(position + 1):
                score = np.float32(0.0)
                for index in range(size):
                    score += query[index] * key[step, index]
                weights[step] = score * softness
                top = max(top, weights[step])
            total = np.float32(0.0)
            for step in range(position + 1):
                weights[step] = np.exp(weights[step] - top)
                total += weights[step]
            result = out[token, start : start + size]
            result[:] = 0.0
            for step in range(position + 1):
                weight = weights[step] / total
                for index in range(size):
                    result[index] += weight * value[step, index]
    return out


MAX_CACHE_BYTES = 32 * 2**20
"""Most memory of a conversation's caches, which are made for the whole window."""


def cache_bytes(config: Any, tokens: int) -> int:
    """Memory of a conversation's keys and values in 32-bit floats."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * 4 * int(config.num_hidden_layers * heads * head_size * tokens)


def _projections(layer: Any) -> tuple[Any, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    return attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj


class Qwen3Decoder:
    """The caches of one batch of conversations, each in a slot. Weights are read at `start`, `allocate` and `load_weights`;
    a trainer may change them afterwards."""

    def __init__(self, model: Any) -> None:
        self._model, config = model, model.config
        self._kv_heads, self._head_dim = config.num_key_value_heads, config.head_dim
        self._epsilon = float(config.rms_norm_eps)
        half = torch.arange(0, self._head_dim, 2) / self._head_dim
        angles = torch.arange(config.max_position_embeddings)[:, None] * config.rope_parameters["rope_theta"] ** -half
        self._cosines, self._sines = angles.cos().numpy(), angles.sin().numpy()
        self._caches: list[tuple[Floats, Floats]] = []

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether the model is a plain dense Qwen3 in fp32 on the CPU, without adapters."""
        config = model.config
        if config.model_type != "qwen3" or config.attention_bias or config.use_sliding_window or config.hidden_act != "silu":
            return False
        plain = config.rope_parameters.get("rope_type", "default") == "default"
        has_adapters = any(type(module) is not torch.nn.Linear for layer in model.model.layers for module in _projections(layer))
        if cache_bytes(config, config.max_position_embeddings) > MAX_CACHE_BYTES:
            return False
        return bool(plain and not has_adapters and model.dtype == torch.float32 and model.device.type == "cpu")

    def start(self, prompts: Sequence[Sequence[int]], length: int) -> torch.Tensor:
        """Opens a slot per prompt, with room for `length` tokens; last hidden states, [prompts, width]. Equal prompts are read once."""
        self.allocate(len(prompts), length)
        return self.read(range(len(prompts)), prompts)

    def allocate(self, slots: int, length: int) -> None:
        """Opens empty slots, with room for `length` tokens each, and reads the weights."""
        self.load_weights()
        shape = (slots, self._kv_heads, length, self._head_dim)
        self._caches = [(np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)) for _ in self._layers]
        self._lengths = np.zeros(slots, dtype=np.int64)

    def free(self, slot: int) -> None:
        """Empties a slot."""
        self._lengths[slot] = 0

    def read(self, slots: Sequence[int], contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Replaces the content of these distinct slots; last hidden states, [slots, width]. Equal contexts are read once."""
        self._lengths[slots] = 0
        first: dict[tuple[int, ...], int] = {}
        origin = [first.setdefault(tuple(context), slot) for slot, context in zip(slots, contexts, strict=True)]
        context_of = dict(zip(slots, contexts, strict=True))
        unique = sorted(set(origin))
        hidden = self.feed(unique, [context_of[slot] for slot in unique])
        copies = [slot for slot, source in zip(slots, origin, strict=True) if slot != source]
        sources = [source for slot, source in zip(slots, origin, strict=True) if slot != source]
        if copies:
            longest = int(self._lengths[sources].max())
            for keys, values in self._caches:
                keys[copies, :, :longest] = keys[sources, :, :longest]
                values[copies, :, :longest] = values[sources, :, :longest]
            self._lengths[copies] = self._lengths[sources]
        place = {slot: index for index, slot in enumerate(unique)}
        return hidden[torch.tensor([place[source] for source in origin])]

    def feed(self, slots: Sequence[int], chunks: Sequence[Sequence[int]]) -> torch.Tensor:
        """Appends a chunk of at least one token to each of these distinct slots; last hidden states, [slots, width]."""
        sizes = [len(chunk) for chunk in chunks]
        where, starts = np.repeat(np.asarray(slots, dtype=np.int64), sizes), self._lengths[slots]
        ends = np.cumsum(sizes)
        positions = np.arange(ends[-1]) - np.repeat(ends - sizes - starts, sizes)
        self._lengths[slots] = starts + sizes
        tokens = torch.tensor([token for chunk in chunks for token in chunk])
        hidden = self._forward(tokens, where, positions)
        return hidden if len(tokens) == len(slots) else hidden[torch.from_numpy(ends - 1)]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, width] -> [n, vocabulary]."""
        return F.linear(torch.from_numpy(_rms_normalise(hidden.numpy(), self._epsilon)), self._head)

    def load_weights(self) -> None:
        """Concatenates projections of the same input, and multiplies each norm's weights into the next product."""
        base = self._model.model
        with torch.no_grad():
            self._layers = [
                (
                    torch.cat([layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight, layer.self_attn.v_proj.weight])
                    * layer.input_layernorm.weight,
                    torch.stack([layer.self_attn.q_norm.weight, layer.self_attn.k_norm.weight]).detach().numpy(),
                    layer.self_attn.o_proj.weight.detach(),
                    torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]) * layer.post_attention_layernorm.weight,
                    layer.mlp.down_proj.weight.detach(),
                )
                for layer in base.layers
            ]
            self._embeddings = base.embed_tokens.weight.detach()
            self._head = self._model.lm_head.weight * base.norm.weight

    def _forward(self, tokens: torch.Tensor, slots: Ints, positions: Ints) -> torch.Tensor:
        epsilon = self._epsilon
        x = F.embedding(tokens, self._embeddings)
        for (qkv, norms, out, gate_up, down), (keys, values) in zip(self._layers, self._caches, strict=True):
            mixed = F.linear(torch.from_numpy(_rms_normalise(x.numpy(), epsilon)), qkv)
            attended = _attend(mixed.numpy(), slots, positions, keys, values, norms, self._cosines, self._sines, epsilon)
            x = torch.addmm(x, torch.from_numpy(attended), out.T)
            gate, up = F.linear(torch.from_numpy(_rms_normalise(x.numpy(), epsilon)), gate_up).chunk(2, dim=-1)
            x = torch.addmm(x, F.silu(gate).mul_(up), down.T)
        return x
