"""Our worlds as an environment for other trainers: a row starts a conversation, each assistant message is a step, the last has a reward.

One idea: OpenAI messages in and out, over the rows of `storage/releases/export.py`, fit every engine's interface. A verl agent loop, a GEM
environment under ROLL's `ToolCallRunner` and TRL's environments differ only in how they treat tokens. Worlds, tools and rewards come from
`synth.rollouts.episode.Episode`, as in our own trainer.

A reward of None means that a world or the verifier failed, not the policy: drop the trajectory or play it again; never count it as 0.

What it does not do: sample, count tokens, or depend on an engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from storage.errors import BadInput, HeadraceError
from storage.records import JSON, Message, Outcome, Task
from storage.store import Store
from synth.context.offered_tools import tools_of
from synth.engines.base import ChatAnswer
from synth.rollouts.episode import MAX_TURNS, Episode, world_of
from synth.worlds.stored_worlds import register_stored
from train.rl.rewards import AGGREGATES, SCORERS, score_episodes
from train.spec import AggregateName, ScorerName

OpenAIMessage = dict[str, JSON]
_MESSAGE_KEYS = ("role", "content", "tool_calls")


@dataclass(frozen=True, slots=True)
class Step:
    """Result of a message.

    messages: the next messages of the conversation, from the tools or, where a task has several user turns, from the simulated user.
    reward: None before the end, and if the infrastructure failed (see `failure`).
    done: whether the conversation is over.
    failure: what failed; empty if nothing did.
    """

    messages: list[OpenAIMessage]
    reward: float | None
    done: bool
    failure: str = ""


class WorldEnvironment:
    """Our worlds as an environment: one conversation at a time; `reset` starts the next.

    Args:
        max_turns: most assistant messages for one user turn; a longer answer is a failure.
        reward, collapse: as in `RLSettings`, without the negative control `shuffled`, which needs a whole batch.
        store: store with the user's worlds; None: built-in worlds only.
    """

    def __init__(
        self,
        *,
        max_turns: int = MAX_TURNS,
        reward: ScorerName | Mapping[ScorerName, float] = "success",
        collapse: AggregateName = "mean",
        store: Path | None = None,
    ) -> None:
        weights = {reward: 1.0} if isinstance(reward, str) else reward
        self._max_turns, self._collapse = max_turns, AGGREGATES[collapse]
        self._scorers, self._weights = [SCORERS[name] for name in weights], list(weights.values())
        self._episode: Episode | None = None
        if store is not None:
            register_stored(Store(store))

    def reset(self, row: Mapping[str, Any]) -> tuple[list[OpenAIMessage], list[dict[str, JSON]]]:
        """Opening messages, and available tools in OpenAI form.

        row: a row of an exported prompts file, in any format.

        Raises:
            BadInput: the row has no task, or its world or one of its tools is unknown.
        """
        task, tools = task_of(row)
        try:
            world = world_of(task)
            tools_of(world, task)
        except LookupError as error:
            raise BadInput(
                f"task {task.id} plays in world {task.world}: {error}; name the store that defines it, or export it again"
            ) from None
        self._episode = Episode(task, 0, self._max_turns, world)
        return [message.to_openai() for message in self._episode.messages], tools

    def step(self, message: Mapping[str, Any] | str, *, cut_short: bool = False) -> Step:
        """Takes the assistant's next message, or its text if it calls no tool.

        cut_short: whether the message reached the token limit.

        Raises:
            HeadraceError: no conversation is open.
            BadInput: this is no assistant message.
        """
        episode = self._episode
        if episode is None or episode.outcome is not None:
            raise HeadraceError("no conversation is going on: call reset with a row first")
        answer = _message(message)
        goes_on = episode.step(ChatAnswer(answer, "length" if cut_short else "tool_calls" if answer.tool_calls else "stop"))
        if goes_on is not None:
            return Step([one.to_openai() for one in goes_on], None, False)
        return self._last_step(episode)

    def close(self) -> Step:
        """Ends a conversation whose last messages do not fit the policy's window: a failure of the policy, as an answer that is too long.

        Raises:
            HeadraceError: no conversation is open.
        """
        episode = self._episode
        if episode is None or episode.outcome is not None:
            raise HeadraceError("no conversation is going on: call reset with a row first")
        episode.close()
        return self._last_step(episode)

    @property
    def figures(self) -> dict[str, JSON]:
        """Figures of the conversation: `task_id`, `world`, `outcome` (None while it goes on), `success` (None unless the outcome is one
        of the policy's), `turns` (answers of the assistant), `calls`, `failure`; empty before the first reset."""
        episode = self._episode
        if episode is None:
            return {}
        outcome = episode.outcome
        return {
            "task_id": episode.task.id,
            "world": episode.task.world,
            "outcome": outcome.value if outcome is not None else None,
            "success": outcome is Outcome.SUCCESS if outcome is not None and outcome.is_rated else None,
            "turns": len(episode.turns),
            "calls": sum(len(message.tool_calls) for message in episode.messages[len(episode.task.messages) :]),
            "failure": episode.failure,
        }

    def _last_step(self, episode: Episode) -> Step:
        (reward,) = score_episodes([episode], self._scorers, self._weights, self._collapse)
        return Step([], reward, True, episode.failure)


def task_of(row: Mapping[str, Any]) -> tuple[Task, list[dict[str, JSON]]]:
    """Task and tools (in OpenAI form) of an exported row, whether the reader has parsed the JSON of its tools or not.

    Raises:
        BadInput: the row has no task.
    """
    try:
        inner = row.get("extra_info") or row
        tools = inner["tools"] or []
        offered = json.loads(tools) if isinstance(tools, str) else [json.loads(tool) if isinstance(tool, str) else tool for tool in tools]
        return Task.model_validate_json(inner.get("task") or inner["ground_truth"]), offered
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError):
        raise BadInput(
            f"a row with the columns {', '.join(sorted(row))} carries no task: give rows of a file *.prompts of `headrace export`"
        ) from None


def _message(raw: Mapping[str, Any] | str) -> Message:
    """The assistant message without the fields that servers add; some servers send a call's arguments as an object."""
    if isinstance(raw, str):
        return Message(role="assistant", content=raw)
    fields = {key: raw[key] for key in _MESSAGE_KEYS if raw.get(key) is not None}
    if fields.get("role", "assistant") != "assistant":
        raise BadInput(f"a message of role {fields['role']} was given where the assistant's was due")
    try:
        return Message.model_validate(fields | {"role": "assistant", "tool_calls": [_call(one) for one in fields.get("tool_calls", ())]})
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"this is no message of an assistant ({type(error).__name__}): {str(raw)[:200]}") from None


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments: Any = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call["id"], "function": {"name": function["name"], "arguments": text}}
