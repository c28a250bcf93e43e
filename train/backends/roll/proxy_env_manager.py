"""ROLL's manager of one environment: its `ProxyEnvManager` over our worlds. Imported in ROLL's processes only.

One idea: ROLL's own classes play (`ToolCallRunner`), sample (its proxy server) and keep the tokens (`MessageTracker`); this one adds what
they lack for our worlds. Its import registers the GEM environment `headrace`. ROLL starts its proxy server only if `env_manager_cls` has
`proxy_env_manager` in it: hence this module's name, and a subclass's module needs it too.

- No reward: ROLL would count a failed world, verifier or inference server as score 0. Here the rollout is played again with the same row,
  `_ATTEMPTS` times in all. If it still fails, its column `failure` makes `FailedGroups` refuse the group: no loss and no baseline has it.
- A conversation that exceeds `sequence_length` has the reward of the goals reached before, as in our own trainer; ROLL's is 0.
- A malformed call, which ROLL's parser skips, and an answer cut at the token limit end the conversation as the policy's failure.
- ROLL tokenises each message alone, behind a system message that it cuts off with the tools in it. A conversation without a system message
  would offer no tools, and results of parallel calls would be a turn each: `TemplateTracker` renders both as the chat template does.

Figures of every rollout, dropped ones too, are lines in the folder `env_config.rollouts` (`rollout_lines.py`); those of kept ones are in
ROLL's metrics too (`env/headrace/...`). Source: alibaba/ROLL at 8eb27cc, `env_manager/proxy_env_manager.py`, `message_tracker.py`.
"""

from __future__ import annotations

import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import gem
import numpy as np
from roll.pipeline.agentic.agent_runner.base import EpisodeResult
from roll.pipeline.agentic.env_manager.message_tracker import MessageTracker
from roll.pipeline.agentic.env_manager.proxy_env_manager import ProxyEnvManager

from storage.errors import BadInput, HeadraceError
from synth.engines.local.call_texts import all_sound
from train.backends.roll.failed_groups import FAILURE, FailedGroups
from train.backends.roll.gem_environment import HeadraceEnvironment
from train.backends.rollout_lines import append_rollout

_ATTEMPTS = 3
_MOST_FAILURES = 8
"""Rollouts of one environment that may fail in a row before the training stops."""
_TOO_LONG = "Sequence length exceeded"
"""What ROLL's manager says, and nothing else does, of a conversation that does not fit `sequence_length`."""

gem.register("headrace", entry_point=HeadraceEnvironment)


class TemplateTracker(MessageTracker):
    """ROLL's tracker, whose prompts are what the chat template writes: the first message with the tools, whatever its role, and results of
    the calls of one message together."""

    def tokenize_single_message(
        self, msg: dict[str, Any], add_generation_prompt: bool = False, tools: list[dict[str, Any]] | None = None
    ) -> list[int]:
        if self.msg_item_dict or msg["role"] == "system":
            return list(super().tokenize_single_message(msg, add_generation_prompt=add_generation_prompt, tools=tools))
        return self._tokenize([msg], add_generation_prompt, tools)

    def process_messages(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, add_generation_prompt: bool = True
    ) -> list[int]:
        ids = list(super().process_messages(messages, tools=tools, add_generation_prompt=add_generation_prompt))
        results = len(list(takewhile(lambda message: message["role"] == "tool", reversed(messages))))
        if results < 2:
            return ids
        path = self.trace_path_to_root(self.current_pre_hash)
        items = [self.msg_item_dict[key] for key in path[-results:]]
        together = self._tokenize([*self.base_chat_history, *(item.message for item in items)], add_generation_prompt, self.tools)
        for item in items:
            item.token_ids = []
        items[-1].token_ids = together[self.base_offset :]
        return list(self.build_sample_from_path(path)["token_ids"])

    def _tokenize(self, messages: list[dict[str, Any]], add_generation_prompt: bool, tools: list[dict[str, Any]] | None) -> list[int]:
        ids = self.tokenizer.apply_chat_template(
            [self.prepare_message_for_tokenize(message) for message in messages],
            tokenize=True,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            enable_thinking=self.enable_thinking,
            return_dict=False,
        )
        return list(ids)


class HeadraceEnvManager(ProxyEnvManager):
    """Plays rows of `env_config.rows` for one environment of ROLL, in the thread that ROLL gives it.

    Raises:
        BadInput: ROLL started no proxy server; the filter of groups is ROLL's own; the rows cannot be read.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "proxy_port" not in self.env_config:
            raise BadInput(
                "ROLL started no proxy server for this environment: env_manager_cls must name a class in a module "
                "called proxy_env_manager, such as train.backends.roll.proxy_env_manager.HeadraceEnvManager"
            )
        if self.worker_config.group_filter_cls.startswith("roll."):
            raise BadInput(
                f"group_filter_cls is ROLL's own, which would count a failed world as score 0: name {FailedGroups.__module__}."
                f"{FailedGroups.__name__}, or a subclass, in train_env_manager and val_env_manager"
            )
        self._environment: HeadraceEnvironment = self.agent_runner.env
        rollouts = self.env_config["config"].get("rollouts")
        self._rollouts = Path(rollouts) if rollouts else None
        self._failures_in_a_row = 0
        self._engine_failure, self._is_too_long = "", False
        self._play_once = self.agent_runner.run_job
        self.agent_runner.run_job = self._play
        self.agent_runner.max_steps = sys.maxsize  # the environment itself ends a conversation, by answers for each user turn

    def reset_stats(self) -> None:
        """Also ROLL's place for a new tracker, before each conversation."""
        super().reset_stats()
        settings = self.env_config["config"]
        self.message_tracker = TemplateTracker(
            self.tokenizer, enable_thinking=settings.get("enable_thinking", False), enable_fork=settings.get("enable_fork", False)
        )
        self._engine_failure, self._is_too_long = "", False

    def formulate_rollouts(self, harbor_result: dict[str, Any]) -> Any:
        """ROLL's sample, with the column `failure`, and with our figures among its metrics."""
        rollout = super().formulate_rollouts(harbor_result)
        failure, tag = harbor_result[FAILURE], self.env_config["tag"]
        rollout.non_tensor_batch[FAILURE] = np.array([failure] * len(rollout), dtype=object)
        rollout.meta_info["metrics"] |= {
            f"env/{tag}/success": float(self._environment.figures.get("success") is True),
            f"env/{tag}/attempts": float(harbor_result["attempts"]),
        }
        return rollout

    def process_tool_calls(self, text: str, tools: list[Any], finish_reason: str) -> tuple[list[dict[str, Any]] | None, str, str]:
        """ROLL's parser; an answer of which it skips a call has none, and keeps its whole text."""
        calls, rest, reason = super().process_tool_calls(text, tools, finish_reason)
        if calls and all_sound(text, [(call["function"]["name"], call["function"]["arguments"]) for call in calls]):
            return calls, rest, reason
        return None, text, "stop"

    async def _process_request_dict(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            response: dict[str, Any] = await super()._process_request_dict(body)
        except Exception as error:
            self._is_too_long = _TOO_LONG in str(error)
            self._engine_failure = "" if self._is_too_long else f"engine: {type(error).__name__}: {error}"
            raise
        self._environment.cut_short = self._is_cut(self.history[-1])
        return response

    def _is_cut(self, turn: dict[str, Any]) -> bool:
        """Whether an answer ended at its token limit and not by a token that ends answers."""
        most = min(
            self.env_config["max_tokens_per_step"],
            self.worker_config.generating_args.max_new_tokens,
            self.pipeline_config.sequence_length - len(turn["prompt_ids"]),
        )
        ids = turn["response_ids"]
        return len(ids) >= most and ids[-1] not in (self.tokenizer.eos_token_id, self.tokenizer.pad_token_id)

    def _play(self, seed: int) -> EpisodeResult:
        """Plays the seed's row, again while no fault of the policy ends it.

        Raises:
            BadInput: the row cannot be played. HeadraceError: rollouts fail one after another: the world, the verifier or the server is
                broken.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            if attempt > 1:
                self.history.clear()
                self.reset_stats()
            result, failure = self._attempted(seed)
            result.metrics |= {FAILURE: failure, "attempts": attempt}
            if self._rollouts is not None:
                figures = {**self._environment.figures, "failure": failure, "reward": None if failure else result.score}
                append_rollout(self._rollouts, {**figures, "seed": seed, "attempt": attempt})
            if not failure:
                self._failures_in_a_row = 0
                return result
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= _MOST_FAILURES:
            raise HeadraceError(f"{_MOST_FAILURES} rollouts in a row failed {_ATTEMPTS} times each, not by the policy; the last: {failure}")
        return result

    def _attempted(self, seed: int) -> tuple[EpisodeResult, str]:
        """The result of playing once, and what failed; what ROLL's runner raises is a failure too."""
        try:
            return self._judged(self._play_once(seed))
        except BadInput:
            raise
        except Exception as error:
            return EpisodeResult(status="Failed", score=0.0), f"engine: {type(error).__name__}: {error}"

    def _judged(self, result: EpisodeResult) -> tuple[EpisodeResult, str]:
        """The result, its score that of a conversation which did not fit where that ended it, and what failed."""
        if self._environment.failure or self._environment.is_over:
            return result, self._environment.failure
        if self._is_too_long and self._environment.figures["turns"]:
            result.score = self._environment.end()
            return result, self._environment.failure
        if self._is_too_long:
            return result, f"the opening and its tools do not fit sequence_length {self.pipeline_config.sequence_length}"
        return result, self._engine_failure or f"engine: {result.agent_exit_reason or 'no answer'}"
