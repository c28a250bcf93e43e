"""Answers that must be JSON of a schema: parsed, validated, and asked for again with the validator's messages.

A server may enforce the schema while it samples (`ChatRequest.schema`), but some ignore the field, so every answer is validated. Text and
code fences around the value are skipped; the value itself is never repaired here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jsonschema import Draft202012Validator

from storage.records import JSON, Cost, Message
from synth.engines.base import ChatAnswer, ChatRequest, Engine

_MAX_PROBLEMS, _PROBLEM_LENGTH = 5, 300

_MOST_READ, _START = 5_000_000, 5_000
"""Characters that are read in search of a value, again from each brace and bracket, and what each of these
counts besides; a hostile text has many that begin none."""

Check = Callable[[int, JSON], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Structured:
    """The result of a request with a schema.

    value: None if no answer was valid.
    problems: of the last answer; empty if it was valid.
    answers: of all attempts.
    """

    value: JSON
    problems: tuple[str, ...]
    answers: tuple[ChatAnswer, ...]

    @property
    def cost(self) -> Cost:
        return sum((answer.cost for answer in self.answers), Cost())


def ask(engine: Engine, requests: Sequence[ChatRequest], *, repairs: int = 2, check: Check | None = None) -> list[Structured]:
    """One result per request; all requests with an invalid answer are repeated together.

    Args:
        repairs: most repeats of a request.
        check: (place in `requests`, valid value) -> further problems.

    Raises:
        EngineFailure: as `Engine.chat`. ValueError: a request without a schema.
    """
    if any(request.schema is None for request in requests):
        raise ValueError("a request without a schema")
    results = [Structured(None, ("not asked",), ()) for _ in requests]
    waiting = dict(enumerate(requests))
    for _ in range(repairs + 1):
        answers = engine.chat(list(waiting.values()))
        again: dict[int, ChatRequest] = {}
        for (place, request), answer in zip(waiting.items(), answers, strict=True):
            value, problems = parse_and_check(answer.message.content or "", request.schema or {})
            if check is not None and not problems and (wrong := tuple(check(place, value))):
                value, problems = None, wrong[:_MAX_PROBLEMS]
            results[place] = Structured(value, problems, (*results[place].answers, answer))
            if problems:
                lines = "\n".join(f"- {problem}" for problem in problems)
                text = f"That is not valid:\n{lines}\nAnswer again with the whole corrected JSON, and nothing else."
                again[place] = replace(request, messages=(*request.messages, answer.message, Message(role="user", content=text)))
        waiting = again
        if not waiting:
            break
    return results


def parse_and_check(text: str, schema: Mapping[str, JSON]) -> tuple[JSON, tuple[str, ...]]:
    """The value in a text and no problems, or None and its problems."""
    try:
        value = read(text)
    except ValueError as error:
        return None, (str(error),)
    errors = sorted(Draft202012Validator(schema).iter_errors(value), key=lambda error: error.json_path)
    problems = tuple(f"{error.json_path}: {error.message}"[:_PROBLEM_LENGTH] for error in errors[:_MAX_PROBLEMS])
    return (None, problems) if problems else (value, ())


def read(text: str) -> JSON:
    """The first JSON object or array in a text.

    Raises:
        ValueError: there is no complete value, or it cannot be stored: NaN, infinity, half a surrogate pair.
    """
    decoder, reason, left = json.JSONDecoder(), "no JSON object in it", _MOST_READ
    for start, character in enumerate(text):
        if character in "{[":
            try:
                value = decoder.raw_decode(text, start)[0]
            except RecursionError:
                raise ValueError("no JSON: nested too deep") from None
            except ValueError as error:
                reason, left = f"no JSON: {error}", left - getattr(error, "pos", start) + start - _START
                if left < 0:
                    break
            else:
                _check_storable(value)
                return value
    raise ValueError(reason)


def _check_storable(value: JSON) -> None:
    """Raises ValueError if the value cannot be written as JSON in UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair in it; write the character itself") from None
    except RecursionError:
        raise ValueError("no JSON: nested too deep") from None
    except ValueError:
        raise ValueError("no JSON: NaN and infinities are no numbers") from None
