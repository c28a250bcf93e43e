"""verl's agent loop over our worlds: tokens in, tokens out, and the reward of the environment. Imported in verl's processes only.

One idea: an exported row is a conversation of `train/backends/environment.py`. The tokens of an answer are those that the engine sampled;
only what the tools and the user say is tokenised, as the difference that it makes in the chat template (verl's continuous tokens), with
mask 0 and log-probability 0. Whatever blocks (a world, the store) runs in threads of its own, never in verl's event loop.

A reward of None means that the world or the verifier failed. The rollout is then dropped: `run` raises `RolloutDropped`. verl (0.9.1,
trainer v1) stores nothing of a session that raises, marks its group as `failure`, and pads the batch with rows without loss. The group's
other rollouts are kept, and the baseline is their mean alone. If all of a group fail, the group is missing from the batch; if all of a
batch fail, verl stops. An empty list in place of an output would be dropped too, but it ends the training if a whole group fails while
groups of equal rewards are filtered (`dapo`, `gspo`). A reward of 0 would be learned from, and an empty mask would stay in the baseline.
Of a group of which one rollout is left, verl's baseline is 0. The trainer before v1 cannot drop, so the loop refuses it.

Figures of every rollout, dropped ones too, are lines in the folder `rollouts` (`rollout_lines.py`); those of kept ones are in
`extra_fields` too. Source: verl's `experimental/agent_loop`, `trainer/ppo/v1/agent_loop_tq.py` and `replay_buffer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import ValidationError
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.utils.profiler import simple_timer

from storage.errors import HeadraceError
from storage.records import JSON
from storage.store import Store
from synth.rollouts.episode import IN_FLIGHT
from synth.worlds.stored_worlds import register_stored
from train.backends.environment import OpenAIMessage, Step, WorldEnvironment
from train.backends.rollout_lines import append_rollout
from train.backends.verl.answer_message import answer_message
from train.spec import AggregateName, ScorerName

Result = TypeVar("Result")

_THREADS = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="headrace-world")
_REGISTERING = Lock()
_registered: set[str] = set()


class RolloutDropped(HeadraceError):
    """The world, the verifier or the engine failed, not the policy: the rollout has no reward."""


@dataclass(slots=True)
class _Play:
    """A rollout so far. ids: all tokens, the prompt's too; mask, logprobs: of the tokens after the prompt."""

    request_id: str
    messages: list[OpenAIMessage]
    tools: list[dict[str, JSON]]
    ids: list[int]
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None
    calls: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def prompt_length(self) -> int:
        return len(self.ids) - len(self.mask)


class HeadraceLoop(AgentLoopBase):
    """Plays one exported row. Its settings are the keys of `agent_loop.yaml`, which `headrace render verl` writes.

    Args:
        max_turns, reward, collapse: of the environment.
        max_tokens: most tokens of one answer; an answer that reaches it, or the response length, is a failure of the policy.
        store: store with the user's own worlds, read once in a process.
        rollouts: folder for the figures of rollouts; None: they are not written.

    Raises:
        HeadraceError: the trainer is older than v1.
        ValueError: `multi_turn.format` names no parser of verl.
    """

    def __init__(
        self,
        *args: Any,
        max_turns: int,
        max_tokens: int,
        reward: ScorerName | Mapping[ScorerName, float] = "success",
        collapse: AggregateName = "mean",
        store: str | None = None,
        rollouts: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if not self.config.trainer.use_v1:
            raise HeadraceError("trainer.use_v1 is false: that trainer of verl cannot drop a rollout whose world failed; set it to true")
        self._parser = ToolParser.get_tool_parser(self.rollout_config.multi_turn.format, self.tokenizer)
        self._max_tokens, self._store = max_tokens, store
        self._rollouts = Path(rollouts) if rollouts is not None else None
        weights: ScorerName | dict[ScorerName, float] = reward if isinstance(reward, str) else dict(reward.items())
        self._new_environment = partial(WorldEnvironment, max_turns=max_turns, reward=weights, collapse=collapse)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Plays the row's task to its end. Shapes of the output: `response_mask` and `response_logprobs` are as long as `response_ids`.

        Raises:
            RolloutDropped: the world or the verifier failed, or the prompt is longer than `rollout.prompt_length`.
            BadInput: the row has no task, or its world is unknown.
        """
        environment = self._new_environment()
        play: _Play | None = None
        try:
            play = await self._open(environment, row)
            step = await self._play_to_end(environment, play, sampling_params)
        except Exception as error:
            await self._log(environment, play, row, None, f"{type(error).__name__}: {error}")
            raise
        await self._log(environment, play, row, step.reward, step.failure)
        if step.reward is None:
            raise RolloutDropped(f"{environment.figures['outcome']}: {step.failure}")
        return self._output(environment, play, step.reward)

    async def _open(self, environment: WorldEnvironment, row: Mapping[str, Any]) -> _Play:
        if self._store is not None and self._store not in _registered:
            await self._in_thread(partial(_register, self._store))
        messages, tools = await self._in_thread(partial(environment.reset, row))
        ids = await self._in_thread(partial(self.continuous_token_builder.build_initial_tokens, messages, tools=tools))
        if len(ids) > self.rollout_config.prompt_length:
            raise RolloutDropped(f"the prompt has {len(ids)} tokens, and rollout.prompt_length is {self.rollout_config.prompt_length}")
        return _Play(uuid4().hex, messages, tools, ids)

    async def _play_to_end(self, environment: WorldEnvironment, play: _Play, sampling_params: Mapping[str, Any]) -> Step:
        while True:
            message, is_cut = await self._answer(play, sampling_params)
            with simple_timer("tool_calls", play.metrics):
                step = await self._in_thread(partial(environment.step, message, cut_short=is_cut))
            play.messages.append(message)
            if step.done:
                return step
            if not await self._observe(play, step.messages):
                return await self._in_thread(environment.close)

    async def _answer(self, play: _Play, sampling_params: Mapping[str, Any]) -> tuple[OpenAIMessage, bool]:
        """Samples an answer and adds its tokens; returns its message and whether it was cut at the limit."""
        limit = min(self._max_tokens, self.rollout_config.response_length - len(play.mask))
        stops = self._parser.stop_token_ids
        stopping = {"stop_token_ids": sorted({*(sampling_params.get("stop_token_ids") or ()), *stops})} if stops else {}
        with simple_timer("generate_sequences", play.metrics):
            output = await self.server_manager.generate(
                request_id=play.request_id, prompt_ids=play.ids, sampling_params={**sampling_params, **stopping, "max_tokens": limit}
            )
        if not output.token_ids:
            raise RolloutDropped(f"the engine returned no tokens (stop reason {output.stop_reason})")
        _merge_fields(play, output)
        merged, play.mask, play.logprobs = await self.ct_merge_assistant_token(
            play.ids,
            output.token_ids,
            play.mask,
            (play.logprobs or [0.0] * len(play.mask)) if output.log_probs else None,
            assistant_logprobs=output.log_probs or None,
        )
        play.ids = merged.token_ids
        _, calls = await self._parser.extract_tool_calls(output.token_ids, _schemas(play.tools))
        text = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
        message = answer_message(text, [(call.name, call.arguments) for call in calls], play.calls)
        play.calls += len(message.get("tool_calls", ()))
        ends = {self.tokenizer.eos_token_id, *stops}
        return message, output.stop_reason == "length" or (len(output.token_ids) >= limit and output.token_ids[-1] not in ends)

    async def _observe(self, play: _Play, messages: Sequence[OpenAIMessage]) -> bool:
        """Adds what the tools or the user say; False, with nothing added, if no room for an answer would be left."""
        updated = [*play.messages, *messages]
        merged, mask, logprobs = await self.ct_merge_context_msg(
            play.messages, updated, play.ids, play.mask, play.logprobs, tools=play.tools
        )
        if len(mask) >= self.rollout_config.response_length:
            return False
        play.messages, play.ids, play.mask, play.logprobs = updated, merged.token_ids, mask, logprobs
        return True

    def _output(self, environment: WorldEnvironment, play: _Play, reward: float) -> AgentLoopOutput:
        length, figures = self.rollout_config.response_length, environment.figures
        rated = {name: float(figures[name]) for name in ("success", "turns", "calls")}
        return AgentLoopOutput(
            prompt_ids=play.ids[: play.prompt_length],
            response_ids=play.ids[play.prompt_length :][:length],
            response_mask=play.mask[:length],
            response_logprobs=None if play.logprobs is None else play.logprobs[:length],
            reward_score=reward,
            num_turns=figures["turns"],
            metrics=AgentLoopMetrics(**play.metrics),
            extra_fields={
                **play.fields,
                "turn_scores": [],
                "tool_rewards": [],
                "headrace": {**figures, "reward": reward},
                "reward_extra_info": rated,
            },
        )

    async def _log(
        self, environment: WorldEnvironment, play: _Play | None, row: Mapping[str, Any], reward: float | None, failure: str
    ) -> None:
        if self._rollouts is None:
            return
        place = {name: row[name] for name in ("uid", "session_id", "global_steps") if name in row}
        line = {**_plain(place), **environment.figures, "reward": reward, "failure": failure}
        if play is not None:
            line |= {"prompt_tokens": play.prompt_length, "response_tokens": len(play.mask), "trained_tokens": sum(play.mask)}
            line |= {f"{name}_s": play.metrics.get(key, 0.0) for name, key in (("generate", "generate_sequences"), ("tools", "tool_calls"))}
        await self._in_thread(partial(append_rollout, self._rollouts, line))

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        result: Result = await self.loop.run_in_executor(_THREADS, work)
        return result


def _register(store: str) -> None:
    with _REGISTERING:
        if store not in _registered:
            register_stored(Store(Path(store)))
            _registered.add(store)


def _schemas(tools: Sequence[Mapping[str, JSON]]) -> list[OpenAIFunctionToolSchema]:
    """The tools whose signature verl's class can hold; some parsers read the types of arguments there."""
    found = []
    for tool in tools:
        try:
            found.append(OpenAIFunctionToolSchema.model_validate(tool))
        except ValidationError:
            continue
    return found


def _merge_fields(play: _Play, output: Any) -> None:
    """Keeps what the engine says of an answer, as verl's own loops do: the first version of the weights and the last one, preemptions."""
    newest = output.extra_fields.get("max_global_steps")
    play.fields = {**output.extra_fields, **play.fields} | ({"max_global_steps": newest} if newest is not None else {})
    preempted = play.metrics.get("num_preempted", -1)
    if output.num_preempted is not None:
        play.metrics["num_preempted"] = max(preempted, 0) + output.num_preempted


def _plain(values: Mapping[str, Any]) -> dict[str, JSON]:
    """Numbers of NumPy and PyTorch as Python's own."""
    return {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
