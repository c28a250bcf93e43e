"""Our worlds as a GEM environment for ROLL's `ToolCallRunner`: OpenAI messages in, the whole conversation out.

One idea: a seed is a row. ROLL gives all members of a group one seed, and adds the episode's number to it. So the members share their row,
and a group takes the rows of the file in turn, from a row of its own on. A message of the policy goes back into the conversation as it
came: ROLL finds its sampled tokens again by a hash of the message, and tokenises a changed one anew, with mask 0.

ROLL adds rewards up, so a reward is always a number here. Where it is None (the world or the verifier failed, not the policy), `failure`
says so, and the caller must drop the trajectory (`proxy_env_manager.py` does).

What it does not do: sample, count tokens, or import GEM or ROLL; GEM registers any class with these methods. It plays in the thread that
calls it and shares nothing with other environments but the rows and the worlds' classes, so a slow world holds up its own thread alone.
Source: alibaba/ROLL at 8eb27cc, `agent_runner/gem_runner.py`, `agentic_config.py`; gem-llm 0.0.4, `gem/core.py`.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from storage.errors import BadInput
from storage.records import JSON
from storage.store import Store
from synth.engines.local.call_texts import without_thought
from synth.rollouts.episode import MAX_TURNS
from synth.worlds.stored_worlds import register_stored
from train.backends.environment import OpenAIMessage, Step, WorldEnvironment
from train.spec import AggregateName, ScorerName

Observation = list[OpenAIMessage]
_AGGREGATION = {"success": "last", "world_failed": "last"}
"""Of GEM's `metrics_agg_mode`: these figures are known at the end alone."""

_LOADING = Lock()
_row_files: dict[Path, RowFile] = {}
_registered: set[Path] = set()


class RowFile:
    """Rows of an exported file `*.prompts.jsonl`, read one at a time; memory holds only where each line begins.

    Raises:
        BadInput: the file cannot be read, or has no rows.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._starts = path, array("Q", [0])
        try:
            with path.open("rb") as file:
                for line in file:
                    self._starts.append(self._starts[-1] + len(line))
        except OSError as error:
            raise BadInput(f"the rows at {path} cannot be read ({error.strerror}): every node must see the rendered folder") from None
        if not len(self):
            raise BadInput(f"{path} has no rows: render the stage again")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        with self._path.open("rb") as file:
            file.seek(self._starts[index])
            row: dict[str, Any] = json.loads(file.read(self._starts[index + 1] - self._starts[index]))
        return row


class HeadraceEnvironment:
    """One conversation at a time; `reset` starts the next.

    Args: the keys of `custom_envs.headrace.env_config`.
        rows: file `*.prompts.jsonl` of an export for ROLL.
        store: store with the user's worlds, read once a process; None: built-in worlds only.
        max_turns, reward, collapse: as for `WorldEnvironment`.
        _: keys that ROLL itself reads, such as `tool_call_parser`.

    Attributes:
        failure: what failed that the policy did not cause; empty if nothing did.
        cut_short: to be set before `step` if the message reached the token limit.

    Raises:
        BadInput: the file of rows cannot be read.
    """

    def __init__(
        self,
        *,
        rows: str,
        store: str | None = None,
        max_turns: int = MAX_TURNS,
        reward: ScorerName | Mapping[ScorerName, float] = "success",
        collapse: AggregateName = "mean",
        **_: Any,
    ) -> None:
        self._rows = _load(Path(rows), Path(store) if store is not None else None)
        weights: ScorerName | dict[ScorerName, float] = reward if isinstance(reward, str) else dict(reward.items())
        self._world = WorldEnvironment(max_turns=max_turns, reward=weights, collapse=collapse)
        self._messages: Observation = []
        self.failure, self.cut_short, self.is_over = "", False, True

    def reset(self, seed: int = 0) -> tuple[Observation, dict[str, Any]]:
        """The opening messages; `tools` of the second result are the offered tools in OpenAI form.

        seed: picks the row, seed modulo the number of rows.

        Raises:
            BadInput: the row has no task, or its world is unknown.
        """
        self._messages, tools = self._world.reset(self._rows[seed % len(self._rows)])
        self.failure, self.cut_short, self.is_over = "", False, False
        return list(self._messages), {"tools": tools, "task_id": self.figures["task_id"]}

    def step(self, action: OpenAIMessage | str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Takes the assistant's message, or its text if it calls no tool.

        Returns messages of the whole conversation, the reward (0 before the end, and where `failure` says that there is none), whether the
        conversation is over, False (nothing is truncated from outside), and GEM's metrics.

        Raises:
            HeadraceError: no conversation is open.
        """
        message: OpenAIMessage = {"role": "assistant", "content": action} if isinstance(action, str) else dict(action)
        step = self._world.step(_without_thoughts(message), cut_short=self.cut_short)
        self._messages += [message, *step.messages]
        return self._result(step)

    def end(self) -> float:
        """Ends a conversation that exceeded the policy's window, a failure of the policy; returns its reward."""
        return self._result(self._world.close())[1]

    def close(self) -> None:
        """Nothing is held between conversations."""

    @property
    def figures(self) -> dict[str, JSON]:
        """Figures of the conversation, as `WorldEnvironment.figures`; its `outcome` tells whose fault a failure was."""
        return self._world.figures

    def _result(self, step: Step) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.failure, self.is_over = step.failure, step.done
        figures = {"success": float(self.figures["success"] is True), "world_failed": float(step.done and step.reward is None)}
        info = {"metrics": figures, "metrics_agg_mode": dict(_AGGREGATION), "failure": step.failure}
        return list(self._messages), step.reward or 0.0, step.done, False, info


def _load(rows: Path, store: Path | None) -> RowFile:
    """The rows, and the store's worlds made known; each once a process."""
    with _LOADING:
        if store is not None and store not in _registered:
            register_stored(Store(store))
            _registered.add(store)
        if rows not in _row_files:
            _row_files[rows] = RowFile(rows)
        return _row_files[rows]


def _without_thoughts(message: OpenAIMessage) -> OpenAIMessage:
    """The message without what a model thought before it (`<think>`), which is not said to the user."""
    content = message.get("content")
    return message | {"content": without_thought(content).strip()} if isinstance(content, str) else message
