"""The records that every room speaks in: messages, tools, frames, tasks, trajectories, rollouts.

One idea: a conversation is stored once, as OpenAI chat messages; whatever else is asked of it (turns, where an argument
came from, reasoning-mode tokens) is derived by `derive_turns`, here and nowhere else.
Tool-call `arguments` are JSON *strings* in every stored row: nested Arrow structs would invent null keys.
Records are frozen pydantic models: unknown fields are refused, and `model_dump_json` / `model_validate_json` are exact inverses.

This module does not read or write anything; `storage/store.py` does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

JSON = Any
"""A value that `json.dumps` takes."""

Language = Literal["en", "zh"]
Division = Literal["seed", "probe", "held_out"]


def canonical_json(value: JSON) -> str:
    """`value` as JSON with sorted keys and no spaces: equal values give equal text, in every process."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def content_id(prefix: str, *parts: JSON) -> str:
    """`prefix-` and 16 hex digits of the SHA-256 of the parts: the one way in which ids are made."""
    return f"{prefix}-{hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:16]}"


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# ---- conversation ---------------------------------------------------------------------------------------------------


class FunctionCall(Record):
    name: str
    arguments: str
    """A JSON object as text, exactly as it was produced (it may be malformed when a policy wrote it)."""


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
        """The message as an OpenAI request takes it: absent fields are left out."""
        out: dict[str, JSON] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [call.model_dump() for call in self.tool_calls]
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


# ---- what is asked ----------------------------------------------------------------------------------------------------


class RefusalReason(StrEnum):
    MISSING_TOOL = "missing_tool"
    MISSING_INFORMATION = "missing_information"
    RULE = "rule"
    NOT_ACTIONABLE = "not_actionable"


class Frame(Record):
    """The canonical meaning of a query: an intent of a world, and its normalised slots. It has no language and no wording."""

    world: str
    intent: str
    slots: dict[str, JSON] = Field(default_factory=dict)

    @property
    def id(self) -> str:
        return content_id("frame", self.world, self.intent, self.slots)

    @property
    def combination(self) -> str:
        """Intent and slot *names*: what rarity is counted on (together with the plan shape)."""
        return f"{self.world}/{self.intent}({','.join(sorted(self.slots))})"


class Call(Record):
    """One call of a plan."""

    tool: str
    arguments: dict[str, JSON] = Field(default_factory=dict)


class Fact(Record):
    """Something that an answer must say, or an observation must have shown.

    `value` is the canonical form. `kind` decides how it is looked for in text: numbers and prices by value (tolerance 1 % or
    1 unit), times by the minute, names and ids by their words; `alternatives` are other spellings (the other language).
    """

    kind: Literal["number", "price", "time", "date", "name", "id", "word"]
    value: str
    alternatives: tuple[str, ...] = ()


class Success(Record):
    """When a task counts as done. All that is given must hold.

    changes: the exact difference between the end state and the start state, `{path: new value}` with "/"-joined paths and
        None for a removed key. Empty means: nothing may have changed.
    evidence: facts that observations must have shown *before* the first call that changes state (for read-only tasks: at all).
        An act whose condition was never looked at is luck, not success.
    facts: facts that the final answer must state, each supported by an observation or the conversation.
    refusal: the task is to refuse, and the answer must name this reason; nothing may have been changed.
    """

    changes: dict[str, JSON] = Field(default_factory=dict)
    evidence: tuple[Fact, ...] = ()
    facts: tuple[Fact, ...] = ()
    refusal: RefusalReason | None = None


class Plan(Record):
    """An expert plan: a minimal sequence of calls, and the answer that ends it."""

    calls: tuple[Call, ...] = ()
    answer: str = ""


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
    """The opening: an optional system message and the user's first."""
    tools: tuple[str, ...]
    """Names of the tools on offer, in the order in which they are shown."""
    plan: Plan
    success: Success
    difficulty: int = Field(ge=-1, le=5)
    query_id: str | None = None
    blueprint_id: str | None = None
    division: Division
    use: Literal["train", "eval_in", "eval_out"] = "train"


# ---- what became of it -------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """What became of a trajectory. Only the first two say anything about a policy, and only they enter a rate."""

    SUCCESS = "success"
    POLICY_FAILURE = "policy_failure"
    USER_FAILURE = "user_failure"
    TOOL_FAILURE = "tool_failure"
    INFRA_FAILURE = "infra_failure"
    JUDGE_FAILURE = "judge_failure"
    UNFINISHED = "unfinished"

    @property
    def is_rated(self) -> bool:
        return self in (Outcome.SUCCESS, Outcome.POLICY_FAILURE)


class Cost(Record):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0


class Trajectory(Record):
    """A conversation that was really executed, and what became of it. `reward` is None unless the outcome is rated."""

    id: str
    task_id: str
    messages: tuple[Message, ...]
    outcome: Outcome
    reward: float | None = Field(default=None, ge=0, le=1)
    checks: dict[str, bool] = Field(default_factory=dict)
    teacher: str = ""
    """Who made it: `scripted`, or the engine and model."""
    cost: Cost = Cost()

    def model_post_init(self, _: JSON) -> None:
        if (self.reward is not None) != self.outcome.is_rated:
            raise ValueError(f"a trajectory with outcome {self.outcome.value} must {'' if self.outcome.is_rated else 'not '}have a reward")


class SampledTurn(Record):
    """One assistant turn as it was sampled: token ids, their log-probabilities (natural log), the policy that made them."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_version: str


class Rollout(Trajectory):
    """A trajectory by the policy being trained; `draw` counts the k repetitions of one task from 0."""

    policy_id: str
    draw: int
    turns: tuple[SampledTurn, ...] = ()


# ---- what is derived ---------------------------------------------------------------------------------------------------


class ExecutedCall(Record):
    call_id: str
    tool: str
    arguments: dict[str, JSON] | None
    """None where the text was not a JSON object."""
    sources: dict[str, str]
    """Argument name (dotted for nested ones) -> `user`, `const`, or `<call id>` of the earlier result it came from."""
    result: str
    status: Literal["ok", "error", "empty", "missing"]


class Step(Record):
    """One assistant message: its reasoning-mode token (P3) and its calls."""

    mode: str
    calls: tuple[ExecutedCall, ...] = ()
    text: str = ""


class Turn(Record):
    user: str
    steps: tuple[Step, ...]


_EMPTY_RESULTS = {"", "[]", "{}", "null"}


def is_error(result: str) -> bool:
    """Whether an observation reports a failed call: worlds answer a bad call with a JSON object that has the key `error`."""
    return result.lstrip().startswith('{"error"')


def parse_arguments(text: str) -> dict[str, JSON] | None:
    """The JSON object in `text`, or None where it is not one."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def leaves(value: JSON, path: str = "") -> list[tuple[str, JSON]]:
    """All scalars of a JSON value with their dotted paths."""
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, f"{path}.{index}" if path else str(index))]
    return [(path, value)]


def mentions(text: str, value: JSON) -> bool:
    """Whether `text` contains the scalar `value` as a word of its own, regardless of case.

    Numbers count however they are written (3, 3.0, 1,200); in unspaced scripts a plain substring counts.
    """
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, (int, float)):
        wanted = float(value)
        return any(float(found.replace(",", "")) == wanted for found in re.findall(r"-?\d[\d,]*(?:\.\d+)?", text) if found.strip(",-"))
    needle = str(value).casefold().strip()
    if not needle:
        return False
    if needle.isascii():
        return re.search(rf"(?<![A-Za-z0-9]){re.escape(needle)}(?![A-Za-z0-9])", text.casefold()) is not None
    return needle in text.casefold()


def _sources(arguments: Mapping[str, JSON], results: Sequence[tuple[str, str]], user_text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, value in leaves(arguments):
        found[path] = next(
            (call_id for call_id, result in reversed(results) if mentions(result, value)),
            "user" if mentions(user_text, value) else "const",
        )
    return found


def _mode(message: Message, calls: Sequence[ExecutedCall], seen: set[tuple[str, str]], failed_before: bool, is_last: bool) -> str:
    """The reasoning-mode token of one assistant step: the first rule of P3 that fits."""
    text = (message.content or "").strip()
    if not calls:
        if is_last:
            return "F"
        return "A" if text.endswith(("?", "？")) else "F"
    if failed_before:
        return "R"
    if any((call.tool, canonical_json(call.arguments)) in seen for call in calls):
        return "V"
    if any(call.tool == "run_python" for call in calls):
        return "X"
    if any(source not in ("user", "const") for call in calls for source in call.sources.values()):
        return "S"
    return "P" if len(calls) >= 2 else "C"


def derive_turns(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """Turns, argument sources and mode tokens of a conversation (definitions P0 and P3).

    An argument's source is the latest earlier result that mentions its value, else `user` where earlier user text does, else `const`.
    Mode tokens: N (a whole turn without any call, not a question: refusal or no tool), A ask the user, R after an error or empty
    result, V a call made before, X code tool, S a call that uses an earlier result, P two or more parallel calls, C other call, F final answer.
    """
    results = {message.tool_call_id: message.content or "" for message in messages if message.role == "tool"}
    turns: list[Turn] = []
    user_text, user, steps = "", "", list[Step]()
    seen_results: list[tuple[str, str]] = []
    seen_calls: set[tuple[str, str]] = set()
    failed_before = False

    def close() -> None:
        if steps or user:
            made_calls = any(step.calls for step in steps)
            if steps and not made_calls and steps[-1].mode == "F":
                steps[-1] = steps[-1].model_copy(update={"mode": "N"})
            turns.append(Turn(user=user, steps=tuple(steps)))

    for index, message in enumerate(messages):
        if message.role == "user":
            close()
            user, steps = message.content or "", []
            user_text += "\n" + user
        elif message.role == "assistant":
            calls = []
            for call in message.tool_calls:
                arguments = parse_arguments(call.function.arguments)
                result = results.get(call.id)
                status: Literal["ok", "error", "empty", "missing"] = (
                    "missing" if result is None else "error" if is_error(result) else "empty" if result.strip() in _EMPTY_RESULTS else "ok"
                )
                sources = _sources(arguments or {}, seen_results, user_text)
                calls.append(ExecutedCall(call_id=call.id, tool=call.function.name, arguments=arguments, sources=sources, result=result or "", status=status))
            is_last = all(later.role != "assistant" for later in messages[index + 1 :])
            steps.append(Step(mode=_mode(message, calls, seen_calls, failed_before, is_last), calls=tuple(calls), text=message.content or ""))
            if calls:
                failed_before = any(call.status in ("error", "empty") for call in calls)
                seen_calls |= {(call.tool, canonical_json(call.arguments)) for call in calls}
                seen_results += [(call.call_id, call.result) for call in calls if call.status == "ok"]
    close()
    return tuple(turns)
