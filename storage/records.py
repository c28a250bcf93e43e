"""The records that all packages share: messages, tools, frames, tasks, trajectories, rollouts.

One idea: a conversation is stored once, as OpenAI chat messages; everything else about it is derived (`storage/conversation.py`).
Tool-call `arguments` are JSON *strings* in every stored row: nested Arrow structs would invent null keys.
Records are frozen pydantic models: unknown fields are refused, and `model_dump_json` / `model_validate_json` are exact inverses.

This module reads and writes no files; `storage/store.py` does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from storage.context.settings import PolicyContext

JSON = Any
"""A value that `json.dumps` takes."""

Language = Literal["en", "zh"]
Division = Literal["seed", "probe", "held_out"]


def _encoder(*, key_separator: str, item_separator: str, sort_keys: bool) -> Callable[[JSON, int], Iterable[str]]:
    """The encoder of `json.dumps(..., ensure_ascii=False)`, built once: `json.dumps` builds one per call, half the time of a small value.

    It is CPython's undocumented C encoder, so tests compare its output with `json.dumps`."""
    encoder = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
        None, json.JSONEncoder().default, json.encoder.encode_basestring, None, key_separator, item_separator, sort_keys, False, True
    )
    return cast("Callable[[JSON, int], Iterable[str]]", encoder)


_CANONICAL = _encoder(key_separator=":", item_separator=",", sort_keys=True)
_PLAIN = _encoder(key_separator=": ", item_separator=", ", sort_keys=False)


def canonical_json(value: JSON) -> str:
    """`value` as JSON with sorted keys and no spaces: equal values give equal text, in every process."""
    return "".join(_CANONICAL(value, 0))


def plain_json(value: JSON) -> str:
    """`value` as JSON with spaces, keys in their order: the form of call arguments."""
    return "".join(_PLAIN(value, 0))


def content_id(prefix: str, *parts: JSON) -> str:
    """`prefix-` and 16 hex digits of the SHA-256 of the parts. All ids are made by this function."""
    return f"{prefix}-{hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:16]}"


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# ---- conversation ---------------------------------------------------------------------------------------------------


class FunctionCall(Record):
    name: str
    arguments: str
    """A JSON object as text, exactly as generated; a policy may write malformed JSON."""


class ToolCall(Record):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Record):
    """One OpenAI chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    def to_openai(self) -> dict[str, JSON]:
        """The message in the form of an OpenAI request, without absent fields."""
        out: dict[str, JSON] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [
                {"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": call.function.arguments}}
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        return out


class Tool(Record):
    """A callable with a JSON-schema signature.

    A property of `parameters` that carries `"x-grounded": true` must take its values from the conversation (identifiers,
    names, quantities, dates, places); all others (enums, booleans, defaults, free search text) need not.
    """

    name: str
    description: str
    parameters: dict[str, JSON]
    server: str
    domain: str
    world: str | None = None
    output: dict[str, JSON] | None = None
    changes_state: bool = False

    @property
    def id(self) -> str:
        return f"{self.server}.{self.name}"

    def to_openai(self) -> dict[str, JSON]:
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        }


# ---- tasks ------------------------------------------------------------------------------------------------------------


class RefusalReason(StrEnum):
    MISSING_TOOL = "missing_tool"
    MISSING_INFORMATION = "missing_information"
    RULE = "rule"
    NOT_ACTIONABLE = "not_actionable"


def frame_id(world: str, intent: str, slots: Mapping[str, JSON]) -> str:
    """`Frame.id` without constructing the frame."""
    return content_id("frame", world, intent, slots)


class Frame(Record):
    """The canonical meaning of a query: an intent of a world, and its normalised slots. It has no language and no wording."""

    world: str
    intent: str
    slots: dict[str, JSON] = Field(default_factory=dict)

    @property
    def id(self) -> str:
        return frame_id(self.world, self.intent, self.slots)

    @property
    def combination(self) -> str:
        """Intent and slot *names*. Rarity is counted per combination and plan shape."""
        return f"{self.world}/{self.intent}({','.join(sorted(self.slots))})"


class Call(Record):
    """One call of a plan."""

    tool: str
    arguments: dict[str, JSON] = Field(default_factory=dict)


class Fact(Record):
    """A fact that an answer must state, or that an observation must have shown.

    kind: how the value is found in text: numbers and prices by value (tolerance 1 % or 1 unit; none for `exact`, a computed number), times
        by the minute, names and ids by their words.
    value: the canonical form.
    alternatives: other spellings, such as those of the other language.
    rivals: wrong answers to the same question; an answer that states one beside the value is hedging, and fails.
    """

    kind: Literal["number", "price", "exact", "time", "date", "name", "id", "word"]
    value: str
    alternatives: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()


class Success(Record):
    """The conditions under which a task is solved. All given conditions must hold.

    changes: the exact difference between the end state and the start state, `{path: new value}` with "/"-joined paths and
        None for a removed key. Empty means: nothing may have changed.
    evidence: facts that observations must have shown *before* the first call that changes state (for read-only tasks: at all).
        A change whose condition was never observed is luck, not success.
    facts: facts that the final answer must state, each supported by an observation or the conversation.
    refusal: the task is to refuse, and the answer must name this reason; nothing may have been changed.
    """

    changes: dict[str, JSON] = Field(default_factory=dict)
    evidence: tuple[Fact, ...] = ()
    facts: tuple[Fact, ...] = ()
    refusal: RefusalReason | None = None


class Plan(Record):
    """An expert plan: a minimal sequence of calls, and the final answer."""

    calls: tuple[Call, ...] = ()
    answer: str = ""


Given = Mapping[str, Sequence[Mapping[str, JSON]]]
"""What a world is given beside its seed: per entity, descriptions of rows by their filters, as `{"restaurant": [{"name": "Sino"}]}`.
Exactly one row of the world fits each description."""


class Task(Record):
    """An executable job for a policy."""

    id: str
    world: str
    world_seed: int
    intent: str
    leaf: str
    frame_id: str
    slots: dict[str, JSON]
    language: Language
    messages: tuple[Message, ...]
    """The opening: an optional system message and the user's first message."""
    tools: tuple[str, ...]
    """Names of the offered tools, in the order of the prompt."""
    plan: Plan
    success: Success
    given: dict[str, list[dict[str, JSON]]] = Field(default_factory=dict)
    """What its world is given beside the seed (`Given`)."""
    difficulty: int = Field(ge=-1, le=5)
    query_id: str | None = None
    blueprint_id: str | None = None
    division: Division
    use: Literal["train", "eval_in", "eval_out"] = "train"
    conversation: dict[str, JSON] | None = None
    """The blueprint of a conversation in which the user goes on after the opening; None: the user says nothing more. Then intent, slots and
    leaf are those of its first goal with calls, and `success` is that of the end state."""
    context: PolicyContext | None = None
    """How the policy sees the world; None: as it is."""


# ---- outcomes ----------------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """Outcome of a trajectory. Only the first two are rated: they count in success rates of the policy."""

    SUCCESS = "success"
    POLICY_FAILURE = "policy_failure"
    USER_FAILURE = "user_failure"
    TOOL_FAILURE = "tool_failure"
    INFRA_FAILURE = "infra_failure"
    JUDGE_FAILURE = "judge_failure"
    UNFINISHED = "unfinished"
    NOT_EXECUTED = "not_executed"
    """A general conversation, which uses no tools."""

    @property
    def is_rated(self) -> bool:
        return self in (Outcome.SUCCESS, Outcome.POLICY_FAILURE)


class Cost(Record):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            usd=self.usd + other.usd,
        )

    def times(self, factor: float) -> Cost:
        return Cost(
            prompt_tokens=round(self.prompt_tokens * factor),
            completion_tokens=round(self.completion_tokens * factor),
            usd=self.usd * factor,
        )


class Trajectory(Record):
    """An executed conversation and its outcome. `reward` is None unless the outcome is rated."""

    id: str
    task_id: str
    messages: tuple[Message, ...]
    outcome: Outcome
    reward: float | None = Field(default=None, ge=0, le=1)
    checks: dict[str, bool] = Field(default_factory=dict)
    teacher: str = ""
    """`scripted`, or the engine and model that generated it."""
    cost: Cost = Cost()

    def model_post_init(self, _: JSON) -> None:
        if (self.reward is not None) != self.outcome.is_rated:
            raise ValueError(f"a trajectory with outcome {self.outcome.value} must {'' if self.outcome.is_rated else 'not '}have a reward")


class SampledTurn(Record):
    """One sampled assistant turn.

    token_ids: ids of the sampled tokens.
    logprobs: natural-log probability of each token.
    policy_version: version of the policy that sampled the turn.
    context_ids: tokens between the end of the previous exact turn and this turn (observations, or the whole prompt); empty if the engine
        does not report them.
    is_exact: False if the prompt of a later turn has other tokens for this turn; such a turn is not trained on.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_version: str
    context_ids: tuple[int, ...] = ()
    is_exact: bool = True


class Rollout(Trajectory):
    """A trajectory of the policy in training; `draw` is the number, from 0, of k repetitions of one task."""

    policy_id: str
    draw: int
    turns: tuple[SampledTurn, ...] = ()
    attempts: int = Field(default=1, ge=1)
    """Number of starts; above 1 if earlier ones failed through no fault of the policy."""
    failure: str = ""
    """The last failure that was not the policy's fault; empty: none."""


# ---- calls and results as text ------------------------------------------------------------------------------------------

CODE_TOOL = "run_python"
"""The tool that runs a program."""


def is_error(result: str) -> bool:
    """Whether an observation reports a failed call: worlds answer a bad call with a JSON object that has the key `error`."""
    return result.lstrip().startswith('{"error"')


MAX_NESTING = 64
"""Most levels of nested arguments; deeper ones are refused, because recursive functions would overflow the stack."""


@lru_cache(maxsize=512)
def parse_arguments(text: str) -> dict[str, JSON] | None:
    """The JSON object in `text`, or None if it is not one, or has more than 64 levels. The result is cached: do not change it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not _is_too_deep(text, value) else None


def _is_too_deep(text: str, value: JSON) -> bool:
    if text.count("{") + text.count("[") <= MAX_NESTING:
        return False
    level = [value]
    for _ in range(MAX_NESTING):
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each) if isinstance(item, dict | list)]
    return bool(level)


def leaves(value: JSON, path: str = "") -> list[tuple[str, JSON]]:
    """All scalars of a JSON value (of dicts, lists and tuples) with their dotted paths."""
    pairs: list[tuple[str, JSON]] = []
    _add_leaves(value, path, pairs)
    return pairs


def _add_leaves(value: JSON, path: str, pairs: list[tuple[str, JSON]]) -> None:
    if isinstance(value, (str, int, float)) or value is None:
        pairs.append((path, value))
    elif isinstance(value, dict):
        for key, item in value.items():
            _add_leaves(item, f"{path}.{key}" if path else str(key), pairs)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _add_leaves(item, f"{path}.{index}" if path else str(index), pairs)
    else:
        pairs.append((path, value))
