"""Our worlds as any trainer meets them: a row begins a conversation, an assistant's message goes on with it, the last one has a reward.

One idea: the neutral form that every engine's own interface can be filled from is OpenAI messages in and out, over the rows that
`storage/releases/export.py` writes. A verl agent loop, a GEM environment under ROLL's `ToolCallRunner` and TRL's environments differ in
what they do with tokens, and in nothing about worlds, tools or rewards. All of that is `synth/episodes.Episode`, as in our own trainer.

A reward of None is nobody's merit (a world or the verifier broke): leave the trajectory out, or play it again; never count it as 0.

What it does not do: sample, count tokens, or know any engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from storage.errors import BadInput, HeadraceError
from storage.records import JSON, Message, Task
from storage.store import Store
from synth.engines.base import ChatAnswer
from synth.rollouts.episode import MAX_TURNS, Episode, tools_of, world_of
from synth.worlds.stored_worlds import register_stored
from train.rl.rewards import AGGREGATES, SCORERS, of_episodes
from train.spec import AggregateName, ScorerName

OpenAIMessage = dict[str, JSON]
_MESSAGE_KEYS = ("role", "content", "tool_calls")


@dataclass(frozen=True, slots=True)
class Step:
    """What a message led to: the messages that go on the conversation (the tools' results), its reward, and whether it is over.

    reward: None until it is over, and where no doing of the policy's has spoilt it (`failure` says what did).
    """

    messages: list[OpenAIMessage]
    reward: float | None
    done: bool
    failure: str = ""


class Environment(Protocol):
    """One conversation at a time; `reset` begins the next."""

    def reset(self, row: Mapping[str, Any]) -> tuple[list[OpenAIMessage], list[dict[str, JSON]]]:
        """The opening messages, and the tools on offer in OpenAI form."""

    def step(self, message: Mapping[str, Any] | str, *, cut_short: bool = False) -> Step:
        """Takes the assistant's next message; its bare text will do where it calls no tool.

        cut_short: whether it ended because it might have no more tokens.
        """


class WorldEnvironment:
    """`Environment` over our worlds.

    Args:
        max_turns: assistant messages at most; more is a failure.
        reward, collapse: what is learned from, as in `RLSettings`; its negative control, which needs a whole batch, is not among them.
        store: where worlds that a user wrote are defined; None: only the built-in ones are known.
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
        """As `Environment.reset`.

        row: of an export's file of prompts, in any of its formats.

        Raises:
            BadInput: it carries no task, or its world or a tool of it is not known here.
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
        """As `Environment.step`.

        Raises:
            HeadraceError: no conversation is going on.
            BadInput: this is no message of an assistant.
        """
        episode = self._episode
        if episode is None or episode.outcome is not None:
            raise HeadraceError("no conversation is going on: call reset with a row first")
        answer = _message(message)
        goes_on = episode.step(ChatAnswer(answer, "length" if cut_short else "tool_calls" if answer.tool_calls else "stop"))
        if goes_on is not None:
            return Step([one.to_openai() for one in goes_on], None, False)
        (reward,) = of_episodes([episode], self._scorers, self._weights, self._collapse)
        return Step([], reward, True, episode.failure)


def task_of(row: Mapping[str, Any]) -> tuple[Task, list[dict[str, JSON]]]:
    """The task that a row of an export carries, and its tools in OpenAI form.

    Raises:
        BadInput: there is none in it.
    """
    try:
        inner = row.get("extra_info") or row
        return Task.model_validate_json(inner.get("task") or inner["ground_truth"]), json.loads(inner["tools"])
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError):
        raise BadInput(
            f"a row with the columns {', '.join(sorted(row))} carries no task: give rows of a file *.prompts of `headrace export`"
        ) from None


def _message(raw: Mapping[str, Any] | str) -> Message:
    """Servers add fields of their own to a message, and some give a call's arguments as an object."""
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
