"""TRL itself in our shop: `GRPOTrainer` with an `environment_factory` around the retail world's tools, and its rollouts alone.

One idea: environments are reset, turns are generated and parsed, calls are made in a world of each conversation's own, and the verifier
judges. A turn may have as many tokens, and a conversation as many turns, as ours.
Rollouts alone are what the trainer calls for a batch before its first forward pass (`_generate_and_score_completions`, with settings by
which that computes no log-probabilities).
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from storage.records import JSON, FunctionCall, Message, Task, Tool, ToolCall
from synth.tasks.verify import judge
from synth.worlds import WORLDS, make_world
from synth.worlds.base import World
from train.device import device_arguments, keep_freed_memory

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
from trl import GRPOConfig, GRPOTrainer  # after the variable that it reads
from trl.chat_template_utils import qwen3_template

WORLD = "retail"
_TYPES: Mapping[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}


class Shop:
    """An environment as TRL wants it; `shop_of` gives it the tools as methods."""

    tasks: Mapping[str, Task]

    def reset(self, task: str, **_: Any) -> None:
        self._task = self.tasks[task]
        self._world: World | None = None

    def _call(self, tool: str, arguments: Mapping[str, JSON]) -> str:
        if self._world is None:
            self._world = make_world(self._task.world, self._task.world_seed, self._task.given)
        return self._world.call(tool, arguments).content

    def _reward(self, completion: Sequence[Mapping[str, Any]], *, has_ended: bool) -> float:
        """1 for success, else 0."""
        last = completion[-1]
        if not has_ended or last["role"] != "assistant" or last.get("tool_calls") or "<tool_call>" in (last.get("content") or ""):
            return 0.0
        changes = self._world.changes() if self._world is not None else {}
        return float(judge(WORLDS[self._task.world], self._task, [*self._task.messages, *messages(completion)], changes).success)


def shop_of(tasks: Sequence[Task]) -> type[Shop]:
    """The environment for these tasks: each tool is a method with a signature, type hints and a docstring of its own."""
    methods = {tool.name: _method(tool) for tool in WORLDS[WORLD].tools if tool.name in tasks[0].tools}
    return type("RetailShop", (Shop,), {"tasks": {task.id: task for task in tasks}, **methods})


def _method(tool: Tool) -> Any:
    def method(self: Shop, **arguments: JSON) -> str:
        return self._call(tool.name, arguments)

    properties: Mapping[str, Any] = tool.parameters["properties"]
    required = set(tool.parameters["required"])
    hints = {name: _TYPES[schema["type"]] for name, schema in properties.items()}
    anyhow, by_name, nothing = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    own = inspect.Parameter("self", anyhow)
    rest = [
        inspect.Parameter(name, by_name, default=nothing if name in required else None, annotation=hint)
        for name, hint in sorted(hints.items(), key=lambda pair: pair[0] not in required)
    ]
    lines = "".join(f"    {name}: {schema.get('description', name)}\n" for name, schema in properties.items())
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = f"{tool.description}\n\nArgs:\n{lines}\nReturns:\n    What the tool answers.\n"
    method.__annotations__ = {**hints, "return": str}
    method.__signature__ = inspect.Signature([own, *rest], return_annotation=str)  # type: ignore[attr-defined]
    return method


def messages(completion: Sequence[Mapping[str, Any]]) -> list[Message]:
    """TRL's messages as ours."""
    found: list[Message] = []
    open_calls: list[str] = []
    made = 0
    for message in completion:
        if message["role"] == "tool":
            found.append(Message(role="tool", content=message["content"], tool_call_id=open_calls.pop(0)))
            continue
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        open_calls = [f"call_{made + index}" for index in range(len(calls))]
        made += len(calls)
        told = tuple(
            ToolCall(id=identity, function=FunctionCall(name=call["name"], arguments=json.dumps(call["arguments"], ensure_ascii=False)))
            for identity, call in zip(open_calls, calls, strict=True)
        )
        found.append(Message(role="assistant", content=message.get("content") or None, tool_calls=told))
    return found


def shop_trainer(
    model: Any,
    tokenizer: Any,
    tasks: Sequence[Task],
    *,
    max_turns: int,
    max_tokens: int,
    watch: Callable[[list[float]], None],
    **arguments: Any,
) -> GRPOTrainer:
    """TRL's trainer of this policy in a shop with these tasks, in their order.

    max_tokens: of one turn. watch: is told of every batch of rollouts, 1 for each success. arguments: further ones of `GRPOConfig`.
    """
    tokenizer.response_template = qwen3_template
    end = tokenizer.eos_token_id

    def reward(completions: Any, completion_ids: Any, environments: Any, **_: Any) -> list[float]:
        rewards = [
            shop._reward(completion, has_ended=bool(ids) and ids[-1] == end)
            for shop, completion, ids in zip(environments, completions, completion_ids, strict=True)
        ]
        watch(rewards)
        return rewards

    told = GRPOConfig(
        max_completion_length=model.config.max_position_embeddings,
        generation_kwargs={"max_new_tokens": max_tokens},
        max_tool_calling_iterations=max_turns - 1,
        beta=0.0,
        **arguments,
        **device_arguments(),
    )
    return GRPOTrainer(
        model=model,
        args=told,
        train_dataset=Dataset.from_list([row(task) for task in tasks]),
        processing_class=tokenizer,
        reward_funcs=reward,
        environment_factory=shop_of(tasks),
    )


class TRLRollouts:
    """Rolls out by TRL: called with some of the tasks, it gives 1 for each success, draw by draw of each task in turn."""

    def __init__(
        self, model: Path, tasks: Sequence[Task], *, draws: int, max_turns: int, max_tokens: int, seed: int, scratch: Path
    ) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        keep_freed_memory()
        torch.set_num_threads(1)
        self._draws, self._rewards = draws, list[float]()
        self._trainer = shop_trainer(
            AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
            AutoTokenizer.from_pretrained(model),
            tasks,
            max_turns=max_turns,
            max_tokens=max_tokens,
            watch=self._keep,
            output_dir=str(scratch),
            per_device_train_batch_size=draws,
            num_generations=draws,
            temperature=1.0,
            seed=seed,
            max_steps=1,
        )

    def __call__(self, batch: Sequence[Task]) -> list[float]:
        self._trainer._generate_and_score_completions([row(task) for task in batch for _ in range(self._draws)])
        return self._rewards

    def _keep(self, rewards: list[float]) -> None:
        self._rewards = rewards


def row(task: Task) -> dict[str, Any]:
    return {"task": task.id, "prompt": [{"role": message.role, "content": message.content} for message in task.messages]}
