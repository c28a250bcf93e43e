"""Answers that must be JSON of a schema: asked for, read leniently, checked always, and asked again with what was wrong.

A server may enforce the schema while it samples (`ChatRequest.schema`); not every server does, and some drop the field without a word, so
nothing is taken on trust. Read leniently means: fences and talk around the value are passed over. Nothing in the value itself is mended
here; who wrote it is told what is wrong, in the validator's words, and writes it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jsonschema import Draft202012Validator

from storage.records import JSON, Cost, Message
from synth.engines.base import ChatAnswer, ChatRequest, Engine

_PROBLEMS_TOLD, _PROBLEM_LENGTH = 5, 300

Check = Callable[[int, JSON], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Structured:
    """value: None where no answer was of the schema; problems: what was wrong with the last, empty where it was right. answers: of all
    tries, for what they took."""

    value: JSON
    problems: tuple[str, ...]
    answers: tuple[ChatAnswer, ...]

    @property
    def cost(self) -> Cost:
        return sum((answer.cost for answer in self.answers), Cost())


def ask(engine: Engine, requests: Sequence[ChatRequest], *, repairs: int = 2, check: Check | None = None) -> list[Structured]:
    """One value a request, each of the request's own schema; those that are not yet right are asked again together.

    Args:
        repairs: how often a request is asked again at most.
        check: what is wrong with a value of the schema, by the request's place in `requests`.

    Raises:
        EngineFailure: as `Engine.chat`. ValueError: a request without a schema.
    """
    if any(request.schema is None for request in requests):
        raise ValueError("a request without a schema")
    found = [Structured(None, ("not asked",), ()) for _ in requests]
    waiting = dict(enumerate(requests))
    for _ in range(repairs + 1):
        answers = engine.chat(list(waiting.values()))
        again: dict[int, ChatRequest] = {}
        for (place, request), answer in zip(waiting.items(), answers, strict=True):
            value, problems = checked(answer.message.content or "", request.schema or {})
            if check is not None and not problems and (wrong := tuple(check(place, value))):
                value, problems = None, wrong[:_PROBLEMS_TOLD]
            found[place] = Structured(value, problems, (*found[place].answers, answer))
            if problems:
                again[place] = replace(request, messages=(*request.messages, answer.message, _told(problems)))
        waiting = again
        if not waiting:
            break
    return found


def checked(text: str, schema: Mapping[str, JSON]) -> tuple[JSON, tuple[str, ...]]:
    """The value in a text, and what is wrong with it: None, and why, where there is none or it is not of the schema."""
    try:
        value = read(text)
    except ValueError as error:
        return None, (str(error),)
    errors = sorted(Draft202012Validator(schema).iter_errors(value), key=lambda error: error.json_path)
    problems = tuple(f"{error.json_path}: {error.message}"[:_PROBLEM_LENGTH] for error in errors[:_PROBLEMS_TOLD])
    return (None, problems) if problems else (value, ())


def read(text: str) -> JSON:
    """The first JSON object or array in a text.

    Raises:
        ValueError: there is none that is whole, or it holds what no JSON file can: NaN, an infinity, half a surrogate pair.
    """
    decoder, reason = json.JSONDecoder(), "no JSON object in it"
    for start, character in enumerate(text):
        if character in "{[":
            try:
                value = decoder.raw_decode(text, start)[0]
            except (ValueError, RecursionError) as error:
                reason = f"no JSON: {error}"
            else:
                return _storable(value)
    raise ValueError(reason)


def _storable(value: JSON) -> JSON:
    """The value, if it can be written again as JSON in UTF-8.

    Raises:
        ValueError: it cannot.
    """
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair in it; write the character itself") from None
    except RecursionError:
        raise ValueError("no JSON: nested too deep") from None
    except ValueError:
        raise ValueError("no JSON: NaN and infinities are no numbers") from None
    return value


def _told(problems: Sequence[str]) -> Message:
    lines = "\n".join(f"- {problem}" for problem in problems)
    return Message(role="user", content=f"That is not valid:\n{lines}\nAnswer again with the whole corrected JSON, and nothing else.")
