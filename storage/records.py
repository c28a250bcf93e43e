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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

JSON = Any
"""A value that `json.dumps` takes."""

Language = Literal["en", "zh"]
Division = Literal["seed", "probe", "held_out"]


def _encoder(*, key_separator: str, item_separator: str, sort_keys: bool) -> Callable[[JSON, int], Iterable[str]]:
    """What `json.dumps(..., ensure_ascii=False)` makes anew for every value, made once: it takes most of the time of a small value."""
    made = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
        None, json.JSONEncoder().default, json.encoder.encode_basestring, None, key_separator, item_separator, sort_keys, False, True
    )
    return cast("Callable[[JSON, int], Iterable[str]]", made)


_CANONICAL = _encoder(key_separator=":", item_separator=",", sort_keys=True)
_PLAIN = _encoder(key_separator=": ", item_separator=", ", sort_keys=False)


def canonical_json(value: JSON) -> str:
    """`value` as JSON with sorted keys and no spaces: equal values give equal text, in every process."""
    return "".join(_CANONICAL(value, 0))


def plain_json(value: JSON) -> str:
    """`value` as JSON with spaces and keys as they come: how arguments of calls are written."""
    return "".join(_PLAIN(value, 0))


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
    1 unit; none for `exact` ones, which had to be computed), times by the minute, names and ids by their words; `alternatives` are other
    spellings (the other language).
    `rivals` are wrong answers to the same question: an answer that states one beside the value is hedging, and fails.
    """

    kind: Literal["number", "price", "exact", "time", "date", "name", "id", "word"]
    value: str
    alternatives: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()


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


CODE_TOOL = "run_python"
"""The tool that computes: what it returns follows from the code that it is given."""


def is_error(result: str) -> bool:
    """Whether an observation reports a failed call: worlds answer a bad call with a JSON object that has the key `error`."""
    return result.lstrip().startswith('{"error"')


MAX_NESTING = 64
"""Arguments nested deeper are none: whoever walks through them would run out of stack."""


def parse_arguments(text: str) -> dict[str, JSON] | None:
    """The JSON object in `text`, or None where it is not one, or has more than 64 levels."""
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
    """All scalars of a JSON value with their dotted paths."""
    found: list[tuple[str, JSON]] = []
    _add_leaves(value, path, found)
    return found


def _add_leaves(value: JSON, path: str, found: list[tuple[str, JSON]]) -> None:
    if isinstance(value, (str, int, float)) or value is None:
        found.append((path, value))
    elif isinstance(value, (dict, Mapping)):
        for key, item in value.items():
            _add_leaves(item, f"{path}.{key}" if path else str(key), found)
    elif isinstance(value, (list, tuple, Sequence)):
        for index, item in enumerate(value):
            _add_leaves(item, f"{path}.{index}" if path else str(index), found)
    else:
        found.append((path, value))


_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


def mentions(text: str, value: JSON) -> bool:
    """Whether `text` contains the scalar `value` as a word of its own, regardless of case.

    Numbers count however they are written (3, 3.0, 1,200), but not as part of a word (the 17 of `o17`); in unspaced scripts a plain
    substring counts. Booleans and None are never mentioned.
    """
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, (int, float)):
        return value in _numbers_of(text)
    return _has_word(_folded(text), str(value).casefold().strip())


@lru_cache(maxsize=512)
def _folded(text: str) -> str:
    return text.casefold()


@lru_cache(maxsize=512)
def _numbers_of(text: str) -> frozenset[float]:
    return frozenset(float(found.replace(",", "")) for found in _NUMBER.findall(text))


def _has_word(text: str, needle: str) -> bool:
    """Whether folded text holds the folded needle: ASCII ones as a word of their own (and not as the part of a decimal number)."""
    start = text.find(needle) if needle else -1
    if start < 0 or not needle.isascii():
        return start >= 0
    while start >= 0:
        end = start + len(needle)
        if not (_continues(text[start - 1 : start], text[max(0, start - 2) : start - 1]) if start else False) and not _continues(
            text[end : end + 1], text[end + 1 : end + 2]
        ):
            return True
        start = text.find(needle, start + 1)
    return False


def _continues(near: str, far: str) -> bool:
    """Whether the character beside a word, and the one beyond it, make it part of something longer: `o17`, `2.5`."""
    return (near.isascii() and near.isalnum()) or (near == "." and far.isdecimal())


class _Result:
    """A successful observation as a source of values: its own scalars, less those that its call put in. Read when first asked.

    code: of a call that computes: what stands in it is not held either."""

    def __init__(self, call_id: str, result: str, arguments: Mapping[str, JSON], code: str) -> None:
        self.call_id, self._result, self._arguments, self._code = call_id, result, arguments, code

    @cached_property
    def _own(self) -> _Index:
        return _own_of(self._result, canonical_json(self._arguments))

    def holds(self, wanted: JSON) -> bool:
        if self._code and mentions(self._code, wanted):
            return False
        return _may_hold(self._result, wanted) and self._own.holds(wanted)


def _may_hold(result: str, wanted: JSON) -> bool:
    """False where a look at the text rules it out: of words without an escape, that is where they do not stand in it."""
    if not isinstance(wanted, str) or "\\" in result:
        return True
    needle = wanted.casefold().strip()
    return not needle[:1].isalpha() or needle in _folded(result)


@lru_cache(maxsize=512)
def _own_of(result: str, arguments: str) -> _Index:
    given = _Index.of([value for _, value in leaves(json.loads(arguments))])
    return _Index.of([value for value in _values_of(result) if not given.has(value)])


@lru_cache(maxsize=512)
def _values_of(result: str) -> tuple[JSON, ...]:
    """All scalars of an observation, and those of its keys that are data."""
    try:
        value = json.loads(result)
        return (*(leaf for _, leaf in leaves(value)), *_data_keys(value))
    except (ValueError, RecursionError):
        return (result,)


@dataclass(frozen=True, slots=True)
class _Index:
    """Scalars by what they equal: a number any number of its value, a text any value written like it, regardless of case.

    texts: those of them that are text. folded: all of these in one."""

    numbers: frozenset[float]
    written: frozenset[str]
    written_numbers: frozenset[str]
    texts: tuple[str, ...]
    folded: str

    @classmethod
    def of(cls, values: Sequence[JSON]) -> _Index:
        numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        texts = tuple(value for value in values if isinstance(value, str))
        return cls(
            frozenset(numbers),
            frozenset(text.casefold().strip() for text in texts),
            frozenset(str(number).casefold() for number in numbers),
            texts,
            "\n".join(texts).casefold(),
        )

    def has(self, value: JSON) -> bool:
        if isinstance(value, bool) or value is None:
            return False
        plain = str(value).casefold().strip()
        if isinstance(value, (int, float)):
            return value in self.numbers or plain in self.written
        return plain in self.written or plain in self.written_numbers

    def holds(self, value: JSON) -> bool:
        """Whether a scalar equals the value, or is a text that mentions it."""
        if self.has(value):
            return True
        if isinstance(value, (int, float)):
            return any(value in _numbers_of(text) for text in self.texts)
        needle = str(value).casefold().strip()
        return needle in self.folded and any(_has_word(_folded(text), needle) for text in self.texts)


def _data_keys(value: JSON) -> list[JSON]:
    """Keys of a JSON value that are data (`{"o17": ...}`, `{"Blue Café": ...}`) and not names of fields."""
    if isinstance(value, dict):
        own = [key for key in value if _is_data(key)]
        return own + [key for item in value.values() if isinstance(item, (dict, list)) for key in _data_keys(item)]
    if isinstance(value, list):
        return [key for item in value if isinstance(item, (dict, list)) for key in _data_keys(item)]
    return []


@lru_cache(maxsize=4096)
def _is_data(key: str) -> bool:
    return any(char.isdigit() for char in key) or not key.isidentifier() or not key.isascii()


def _is_empty(result: str) -> bool:
    """Whether a result found nothing: no value at all, or only empty lists beside zeros (`{"count": 0, "places": []}`)."""
    try:
        value = json.loads(result) if result.strip() else None
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, Mapping):
        return value in (None, "", [])
    lists = [item for item in value.values() if isinstance(item, list)]
    others = [item for item in value.values() if not isinstance(item, list)]
    return not any(lists) and all(item is None or item in ("", 0) for item in others) and (bool(lists) or not others)


class ArgumentSources:
    """Where values of arguments come from, in a conversation that is read from its start: the latest earlier result that holds them, else
    `user` where earlier user or system text mentions them, else `const`."""

    def __init__(self) -> None:
        self._said = ""
        self._results: list[_Result] = []

    def hear(self, text: str) -> None:
        """What the user or the system says."""
        self._said += "\n" + text

    def show(self, tool: str, call_id: str, result: str, arguments: Mapping[str, JSON]) -> None:
        """What a call that succeeded returned; what it put in itself is not held by it."""
        code = str(arguments.get("code", "")) if tool == CODE_TOOL else ""
        self._results.append(_Result(call_id, result, arguments, code))

    def of(self, tool: str, arguments: Mapping[str, JSON]) -> dict[str, str]:
        """Argument name (dotted for nested ones) -> `user`, `const` or the id of a call."""
        found: dict[str, str] = {}
        for path, value in leaves(arguments):
            if isinstance(value, bool) or value is None:
                found[path] = "const"
                continue
            if tool == CODE_TOOL and path == "code":
                found[path] = self._of_code(str(value))
                continue
            holding = next((result.call_id for result in reversed(self._results) if result.holds(value)), None)
            found[path] = holding if holding is not None else "user" if mentions(self._said, value) else "const"
        return found

    def _of_code(self, code: str) -> str:
        """The source of a program: the result that holds the most of its numbers, the latest of several, if that is half of them."""
        numbers = sorted(_numbers_of(code))
        held = {result.call_id: sum(result.holds(number) for number in numbers) for result in reversed(self._results)}
        best = max(held, key=held.__getitem__, default="")
        if held and 2 * held[best] >= len(numbers) > 0:
            return best
        return "user" if any(mentions(self._said, number) for number in numbers) else "const"


def _mode(message: Message, calls: Sequence[ExecutedCall], seen: set[tuple[str, str]], *, repairs: bool, is_last: bool) -> str:
    """The reasoning-mode token of one assistant step: the first rule of P3 that fits."""
    if not calls:
        asks = (message.content or "").strip().endswith(("?", "？"))
        return "A" if asks and not is_last else "F"
    if repairs:
        return "R"
    if any((call.tool, canonical_json(call.arguments)) in seen for call in calls):
        return "V"
    if any(call.tool == CODE_TOOL for call in calls):
        return "X"
    if any(source not in ("user", "const") for call in calls for source in call.sources.values()):
        return "S"
    return "P" if len(calls) >= 2 else "C"


def _observations(messages: Sequence[Message], start: int) -> dict[str, str]:
    """The results that directly follow an assistant message, by call id (ids may be used again later in a conversation)."""
    found: dict[str, str] = {}
    for message in messages[start + 1 :]:
        if message.role != "tool":
            break
        found[message.tool_call_id or ""] = message.content or ""
    return found


@lru_cache(maxsize=512)
def call_status(result: str | None) -> Literal["ok", "error", "empty", "missing"]:
    """What a result says of its call: `missing` where there is none, `empty` where it found nothing."""
    if result is None:
        return "missing"
    if is_error(result):
        return "error"
    return "empty" if _is_empty(result) else "ok"


def _executed(call: ToolCall, result: str | None, sources: ArgumentSources) -> ExecutedCall:
    arguments = parse_arguments(call.function.arguments)
    return ExecutedCall(
        call_id=call.id,
        tool=call.function.name,
        arguments=arguments,
        sources=sources.of(call.function.name, arguments or {}),
        result=result or "",
        status=call_status(result),
    )


def derive_turns(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """Turns, argument sources and mode tokens of a conversation (definitions P0 and P3).

    An argument's source is the latest earlier result that holds its value, else `user` where earlier user or system text mentions it,
    else `const`. A result does not hold what its own call put in: a tool that echoes an argument is no source of it, and a program that
    prints what stands in it is none either. A program's own source is the result that holds the most of its numbers.
    Mode tokens: N (a whole turn without any call, not a question: refusal or no tool), A ask the user, R after an error or empty
    result (within the turn, or the same tool after the user's answer), V a call that succeeded before, X code tool, S a call that
    uses an earlier result, P two or more parallel calls, C other call, F final answer (the last message is one even if it asks).
    """
    last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
    turns: list[Turn] = []
    user, steps = "", list[Step]()
    sources = ArgumentSources()
    seen: set[tuple[str, str]] = set()
    failed: set[str] = set()
    """Tools whose call failed in the latest step that made calls."""
    is_same_turn = False

    def close() -> None:
        if not steps and not user:
            return
        if steps and not any(step.calls for step in steps) and steps[-1].mode == "F":
            steps[-1] = steps[-1].model_copy(update={"mode": "N"})
        turns.append(Turn(user=user, steps=tuple(steps)))

    for index, message in enumerate(messages):
        if message.role in ("user", "system"):
            sources.hear(message.content or "")
        if message.role == "user":
            close()
            user, steps, is_same_turn = message.content or "", [], False
        if message.role != "assistant":
            continue
        results = _observations(messages, index)
        calls = tuple(_executed(call, results.get(call.id), sources) for call in message.tool_calls)
        repairs = bool(failed) if is_same_turn else any(call.tool in failed for call in calls)
        mode = _mode(message, calls, seen, repairs=repairs, is_last=index == last)
        steps.append(Step(mode=mode, calls=calls, text=message.content or ""))
        if calls:
            failed, is_same_turn = {call.tool for call in calls if call.status in ("error", "empty")}, True
            seen |= {(call.tool, canonical_json(call.arguments)) for call in calls if call.status == "ok"}
            for call in calls:
                if call.status == "ok":
                    sources.show(call.tool, call.call_id, call.result, call.arguments or {})
    close()
    return tuple(turns)
