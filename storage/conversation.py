"""Derives from a stored conversation its turns, the sources of all arguments, and its reasoning-mode tokens.

One idea: all of them follow from the messages (definitions P0 and P3), by `derive_turns` alone; they are not stored. Parsed results are
cached, because a conversation is read many times during its generation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from storage.records import CODE_TOOL, JSON, Message, ToolCall, canonical_json, is_error, leaves, parse_arguments


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    call_id: str
    tool: str
    arguments: dict[str, JSON] | None
    """None if the text is not a JSON object."""
    sources: dict[str, str]
    """Argument name (dotted for nested ones) -> `user`, `const`, or `<call id>` of the earlier result it came from."""
    result: str
    status: Literal["ok", "error", "empty", "missing"]


@dataclass(frozen=True, slots=True)
class Step:
    """One assistant message: its reasoning-mode token (P3) and its calls."""

    mode: str
    calls: tuple[ExecutedCall, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    user: str
    steps: tuple[Step, ...]


MODES = {
    "N": "no call",
    "A": "ask the user",
    "R": "repair",
    "V": "check again",
    "X": "run code",
    "S": "use a result",
    "P": "parallel calls",
    "C": "call",
    "F": "final answer",
}
"""Mode token -> what it means in words; `derive_turns` says when each holds."""

_NO_JSON = object()
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
    return _has_word(_fold_case(text), str(value).casefold().strip())


@lru_cache(maxsize=512)
def _fold_case(text: str) -> str:
    return text.casefold()


@lru_cache(maxsize=512)
def _numbers_of(text: str) -> frozenset[float]:
    return frozenset(float(digits.replace(",", "")) for digits in _NUMBER.findall(text))


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
    """Whether the two characters beside a word make it part of a longer one: `o17`, `2.5`."""
    return (near.isascii() and near.isalnum()) or (near == "." and far.isdecimal())


class _Result:
    """A successful observation as a source of values: its scalars without those of its call's arguments. Parsed at the first use.

    code: the program of a call that computes; its values are excluded too."""

    def __init__(self, call_id: str, result: str, arguments: dict[str, JSON], code: str) -> None:
        self.call_id, self._result, self._arguments, self._code = call_id, result, arguments, code

    @cached_property
    def _own(self) -> _Index:
        return _index_without_arguments(self._result, canonical_json(self._arguments))

    def holds(self, value: JSON) -> bool:
        if self._code and mentions(self._code, value):
            return False
        return _may_hold(self._result, value) and self._own.holds(value)


def _may_hold(result: str, value: JSON) -> bool:
    """A quick check: False if the text cannot contain the value (a word without an escape that is not in the text)."""
    if not isinstance(value, str) or "\\" in result:
        return True
    needle = value.casefold().strip()
    return not needle[:1].isalpha() or needle in _fold_case(result)


@lru_cache(maxsize=512)
def _index_without_arguments(result: str, arguments: str) -> _Index:
    given = _Index.of([value for _, value in leaves(json.loads(arguments))])
    return _Index.of([value for value in _values_of(result) if not given.has(value)])


def _values_of(result: str) -> tuple[JSON, ...]:
    """All scalars of an observation, and those of its keys that are data."""
    value = _parse_result(result)
    try:
        return (result,) if value is _NO_JSON else (*(leaf for _, leaf in leaves(value)), *_data_keys(value))
    except RecursionError:
        return (result,)


@lru_cache(maxsize=512)
def _parse_result(result: str) -> JSON:
    """The JSON value of an observation, or `_NO_JSON`. It is cached: do not change it."""
    try:
        return json.loads(result)
    except (ValueError, RecursionError):
        return _NO_JSON


@dataclass(frozen=True, slots=True)
class _Index:
    """Scalars by equality: a number equals any number of its value; a text equals any value with the same spelling, regardless of case.

    texts: the scalars that are texts. folded: all texts in one, case-folded."""

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
        return needle in self.folded and any(_has_word(_fold_case(text), needle) for text in self.texts)


def _data_keys(value: JSON) -> list[JSON]:
    """Keys of a JSON value that are data (`{"o17": ...}`, `{"Blue Café": ...}`) and not names of fields."""
    if isinstance(value, dict):
        keys = [key for key in value if _is_data(key)]
        return keys + [key for item in value.values() if isinstance(item, (dict, list)) for key in _data_keys(item)]
    if isinstance(value, list):
        return [key for item in value if isinstance(item, (dict, list)) for key in _data_keys(item)]
    return []


@lru_cache(maxsize=4096)
def _is_data(key: str) -> bool:
    return any(char.isdigit() for char in key) or not key.isidentifier() or not key.isascii()


def _is_empty(result: str) -> bool:
    """Whether a result found nothing: no value at all, or only empty lists beside zeros (`{"count": 0, "places": []}`)."""
    value = _parse_result(result) if result.strip() else None
    if not isinstance(value, dict):
        return value in (None, "", [])
    lists = [item for item in value.values() if isinstance(item, list)]
    others = [item for item in value.values() if not isinstance(item, list)]
    return not any(lists) and all(item is None or item in ("", 0) for item in others) and (bool(lists) or not others)


class ArgumentSources:
    """Finds the sources of argument values in a conversation read from its start: the latest earlier result that contains them, else `user`
    if an earlier user or system message mentions them, else `const`."""

    def __init__(self) -> None:
        self._spoken: list[str] = []
        self._results: list[_Result] = []

    def add_message(self, text: str) -> None:
        """Adds a user or system message."""
        self._spoken.append(text)

    def add_result(self, tool: str, call_id: str, result: str, arguments: dict[str, JSON]) -> None:
        """Adds the result of a successful call, without the values of the call's arguments."""
        code = str(arguments.get("code", "")) if tool == CODE_TOOL else ""
        self._results.append(_Result(call_id, result, arguments, code))

    def sources_of(self, tool: str, arguments: dict[str, JSON]) -> dict[str, str]:
        """Argument name (dotted for nested ones) -> `user`, `const` or the id of a call."""
        by_path: dict[str, str] = {}
        for path, value in leaves(arguments):
            if isinstance(value, bool) or value is None:
                by_path[path] = "const"
                continue
            if tool == CODE_TOOL and path == "code":
                by_path[path] = self._of_code(str(value))
                continue
            holding = next((result.call_id for result in reversed(self._results) if result.holds(value)), None)
            by_path[path] = holding if holding is not None else "user" if self._is_mentioned(value) else "const"
        return by_path

    def _of_code(self, code: str) -> str:
        """The source of a program: the latest result with most of its numbers, if these are at least half of them."""
        numbers = sorted(_numbers_of(code))
        counts = {result.call_id: sum(result.holds(number) for number in numbers) for result in reversed(self._results)}
        best = max(counts, key=counts.__getitem__, default="")
        if counts and 2 * counts[best] >= len(numbers) > 0:
            return best
        return "user" if any(map(self._is_mentioned, numbers)) else "const"

    def _is_mentioned(self, value: JSON) -> bool:
        return any(mentions(text, value) for text in self._spoken)


def _mode(message: Message, calls: Sequence[ExecutedCall], earlier_calls: set[tuple[str, str]], *, repairs: bool, is_last: bool) -> str:
    """The reasoning-mode token of one assistant step: the first rule of P3 that fits."""
    if not calls:
        asks = (message.content or "").strip().endswith(("?", "？"))
        return "A" if asks and not is_last else "F"
    if repairs:
        return "R"
    if any((call.tool, canonical_json(call.arguments)) in earlier_calls for call in calls):
        return "V"
    if any(call.tool == CODE_TOOL for call in calls):
        return "X"
    if any(source not in ("user", "const") for call in calls for source in call.sources.values()):
        return "S"
    return "P" if len(calls) >= 2 else "C"


def _observations(messages: Sequence[Message], start: int) -> dict[str, str]:
    """The results that directly follow an assistant message, by call id (ids may be reused later in a conversation)."""
    by_call: dict[str, str] = {}
    for message in messages[start + 1 :]:
        if message.role != "tool":
            break
        by_call[message.tool_call_id or ""] = message.content or ""
    return by_call


@lru_cache(maxsize=512)
def call_status(result: str | None) -> Literal["ok", "error", "empty", "missing"]:
    """The status of a call by its result: `missing` without one, `empty` if the result contains nothing."""
    if result is None:
        return "missing"
    if is_error(result):
        return "error"
    return "empty" if _is_empty(result) else "ok"


def _executed_call(call: ToolCall, result: str | None, sources: ArgumentSources) -> ExecutedCall:
    arguments = parse_arguments(call.function.arguments)
    return ExecutedCall(
        call_id=call.id,
        tool=call.function.name,
        arguments=arguments,
        sources=sources.sources_of(call.function.name, arguments or {}),
        result=result or "",
        status=call_status(result),
    )


def derive_turns(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """Turns, argument sources and mode tokens of a conversation (definitions P0 and P3).

    An argument's source is the latest earlier result that contains its value, else `user` if earlier user or system text mentions it,
    else `const`. The values of a call's arguments do not count in its result: a tool that echoes an argument is no source of it, nor is a
    program that prints its literals. The source of a program is the result that contains most of its numbers.
    Mode tokens: N (a whole turn without any call, not a question: refusal or no tool), A ask the user, R after an error or empty
    result (within the turn, or the same tool after the user's answer), V a call that succeeded before, X code tool, S a call that
    uses an earlier result, P two or more parallel calls, C other call, F final answer (the last message is one even if it asks).
    """
    last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
    turns: list[Turn] = []
    user, steps = "", list[Step]()
    sources = ArgumentSources()
    earlier_calls: set[tuple[str, str]] = set()
    failed: set[str] = set()
    """Tools whose call failed in the latest step that made calls."""
    is_same_turn = False

    def close() -> None:
        if not steps and not user:
            return
        if steps and not any(step.calls for step in steps) and steps[-1].mode == "F":
            steps[-1] = replace(steps[-1], mode="N")
        turns.append(Turn(user=user, steps=tuple(steps)))

    for index, message in enumerate(messages):
        if message.role in ("user", "system"):
            sources.add_message(message.content or "")
        if message.role == "user":
            close()
            user, steps, is_same_turn = message.content or "", [], False
        if message.role != "assistant":
            continue
        results = _observations(messages, index)
        calls = tuple(_executed_call(call, results.get(call.id), sources) for call in message.tool_calls)
        repairs = bool(failed) if is_same_turn else any(call.tool in failed for call in calls)
        mode = _mode(message, calls, earlier_calls, repairs=repairs, is_last=index == last)
        steps.append(Step(mode=mode, calls=calls, text=message.content or ""))
        if calls:
            failed, is_same_turn = {call.tool for call in calls if call.status in ("error", "empty")}, True
            earlier_calls |= {(call.tool, canonical_json(call.arguments)) for call in calls if call.status == "ok"}
            for call in calls:
                if call.status == "ok":
                    sources.add_result(call.tool, call.call_id, call.result, call.arguments or {})
    close()
    return tuple(turns)


KINDS = {"act": "acts", "look-up": "look-ups", "refusal": "refusals"}
"""Values of facet `kind`, and their plurals. A headline gives the rate of each: one average would hide that refusals are learned first."""


def mode_in_words(signature: str) -> str:
    """A signature of mode tokens (`C>S+>F`) in words: `call, then use a result (repeated), then final answer`."""
    tokens = signature.split(">")
    if any(token.rstrip("+") not in MODES for token in tokens):
        return signature
    return ", then ".join(MODES[token.rstrip("+")] + (" (repeated)" if token.endswith("+") else "") for token in tokens)
