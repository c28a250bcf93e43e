"""Scripted parts around verl's real classes, for its own environment: an engine that says what it is told, and a queue in memory.

One idea: what is measured is verl's agent-loop worker, its replay buffer and its advantages. They need two things that a CPU here does not
have: an inference server, and TransferQueue's Ray actors. `ScriptedEngine` has the interface of `LLMServerClient`; `MemoryQueue` has the
functions of `transfer_queue` that these classes call, and is put in that module's place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import torch
from tensordict import TensorDict
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.rollout.replica import TokenOutput

LOGPROB = -0.25
"""Log-probability of every scripted token."""
_MODULES = ("v1.agent_loop_tq", "v1.replay_buffer", "v1.trainer_base", "padding_utils")


class ScriptedEngine:
    """Conversation after conversation takes the next script: the token ids of its answers in turn. Its weights are version 3 at the first
    answer of a conversation, and one more at each that follows."""

    def __init__(self, scripts: Sequence[Sequence[Sequence[int]]]) -> None:
        self._waiting = list(scripts)
        self._begun: dict[str, list[Sequence[int]]] = {}
        self.seen: list[tuple[str, tuple[int, ...], Mapping[str, Any]]] = []
        """(request, prompt, sampling parameters) of every call."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> TokenOutput:
        self.seen.append((request_id, tuple(prompt_ids), dict(sampling_params)))
        if request_id not in self._begun:
            self._begun[request_id] = list(self._waiting.pop(0))
        ids = list(self._begun[request_id].pop(0))[: sampling_params["max_tokens"]]
        version = 2 + sum(request == request_id for request, *_ in self.seen)
        versions = dict.fromkeys(("global_steps", "min_global_steps", "max_global_steps"), version)
        return TokenOutput(token_ids=ids, log_probs=[LOGPROB] * len(ids), stop_reason="completed", extra_fields=versions)


class MemoryQueue:
    """Rows and tags by partition and key. Entered as a context, it stands in the place of `transfer_queue` in verl's modules."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.tags: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._patches = [patch(f"verl.trainer.ppo.{module}.tq", self) for module in _MODULES]

    def __enter__(self) -> MemoryQueue:
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._patches:
            each.stop()

    def init(self) -> None:
        pass

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.tags[partition_id].setdefault(key, {}).update(tag)

    async def async_kv_batch_put(self, **batch: Any) -> None:
        self.kv_batch_put(**batch)

    def kv_batch_put(self, keys: Sequence[str], partition_id: str, fields: TensorDict | None = None, tags: Any = None) -> Any:
        for place, key in enumerate(keys):
            if fields is not None:
                row = {name: value[place] for name, value in fields.items()}
                self.rows[partition_id].setdefault(key, {}).update(row)
            if tags is not None:
                self.tags[partition_id].setdefault(key, {}).update(tags[place])

    def kv_list(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {name: {key: dict(tag) for key, tag in tags.items()} for name, tags in self.tags.items()}

    def kv_clear(self, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            self.tags[partition_id].pop(key, None)
            self.rows[partition_id].pop(key, None)

    def kv_batch_get(self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str] | None = None) -> TensorDict:
        rows = [self.rows[partition_id][key] for key in keys]
        kept = [name for name in rows[0] if select_fields is None or name in select_fields]
        return list_of_dict_to_tensordict([{name: _ragged(row[name]) for name in kept} for row in rows])


def _ragged(value: Any) -> Any:
    return value.data if not isinstance(value, torch.Tensor) and hasattr(value, "data") else value
