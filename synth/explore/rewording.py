"""Requests of found plans in other words, by a language model; what is kept says all that the template says.

A rewording is kept if it has the same slots, as often, and, with the values of an example, is admitted as the template was. A template
with a constant (a yes, a choice) that no slot stands for is left as it is, since nothing could tell whether its rewording still says it.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence

from storage.records import JSON, Frame
from synth.engines.base import ChatRequest, Engine
from synth.engines.structured import ask
from synth.prompts import prompt
from synth.tasks.solver import NotAdmitted, admit
from synth.worlds.live.copies.copy_errors import ServerFailed
from synth.worlds.live.live_world import LiveWorld
from synth.worlds.live.lock import FoundIntent
from synth.worlds.live.plans import form_of

PROMPT = "reword"
COUNT, REPAIRS, AT_ONCE, MAX_TOKENS, TEMPERATURE = 3, 1, 16, 500, 1.0
LONGEST = 600
_SCHEMA: Mapping[str, JSON] = {
    "type": "object",
    "properties": {"requests": {"type": "array", "items": {"type": "string", "maxLength": LONGEST}, "minItems": 1, "maxItems": COUNT}},
    "required": ["requests"],
}


def reword(
    engine: Engine, world: type[LiveWorld], *, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Iterator[list[FoundIntent]]:
    """The intents of a world, each with up to three further wordings; all of them after every batch of answers.

    Raises:
        EngineFailure, EngineUnusable, BudgetSpent: as the engine's `chat`.
    """
    intents = list(world.lock.intents)
    chosen = [place for place, intent in enumerate(intents) if not has_constants(intent)]
    for start in range(0, len(chosen), AT_ONCE):
        places = chosen[start : start + AT_ONCE]
        requests = [_request(intents[place], seed + place) for place in places]
        asked = [intents[place] for place in places]
        results = ask(engine, requests, repairs=REPAIRS, check=_checker(asked))
        for place, result in zip(places, results, strict=True):
            if result.value is not None:
                kept = [text for text in dict.fromkeys(result.value["requests"]) if _is_admitted(world, intents[place], text)]
                says = tuple(dict.fromkeys((*intents[place].says, *kept)))
                intents[place] = intents[place].model_copy(update={"says": says})
        if progress is not None:
            progress(start + len(places), len(chosen))
        yield list(intents)


def has_constants(intent: FoundIntent) -> bool:
    """Whether a call of the plan has a value that no slot and no look-up gives."""
    return any(_is_constant(source) for call in intent.calls for source in call.arguments.values())


def _is_constant(source: JSON) -> bool:
    if form_of(source):
        return False
    if isinstance(source, Mapping):
        return any(_is_constant(inner) for inner in source.values())
    return any(_is_constant(inner) for inner in source) if isinstance(source, list) else True


def _request(intent: FoundIntent, seed: int) -> ChatRequest:
    says = intent.says[0]
    messages = prompt(PROMPT).messages(request=says, example=says.format_map(dict(intent.examples[0])), count=COUNT)
    return ChatRequest(messages, (), TEMPERATURE, MAX_TOKENS, seed, schema=_SCHEMA)


def _checker(intents: Sequence[FoundIntent]) -> Callable[[int, JSON], list[str]]:
    return lambda at, value: _problems(intents[at], value)


def _problems(intent: FoundIntent, value: JSON) -> list[str]:
    wanted = sorted(_slots_in(intent.says[0]))
    tools = {call.tool for call in intent.calls if not call.tool.islower() or not call.tool.isalpha()}
    problems = []
    for text in value["requests"]:
        try:
            found = sorted(_slots_in(text))
        except ValueError as error:
            problems.append(f"{text!r}: {error}")
            continue
        if found != wanted:
            names = ", ".join(f"{{{name}}}" for name in wanted) or "no name in braces"
            problems.append(f"{text!r} must hold {names}, as often as the request does")
        elif named := [tool for tool in tools if tool in text]:
            problems.append(f"{text!r} names the tool {named[0]}")
    return problems


def _slots_in(text: str) -> Iterator[str]:
    """Raises ValueError: braces that do not match, or that hold more than a name."""
    for _, name, form, conversion in string.Formatter().parse(text):
        if name is not None:
            if not name.isidentifier() or form or conversion:
                raise ValueError("braces hold a name and nothing else")
            yield name


def _is_admitted(world: type[LiveWorld], intent: FoundIntent, text: str) -> bool:
    slots: dict[str, JSON] = dict(intent.examples[0])
    frame = Frame(world=world.name, intent=intent.name, slots=slots)
    try:
        admit(world, frame, text=text.format_map(slots), language="en", seed=0, division="seed")
    except (NotAdmitted, ServerFailed):
        return False
    return True


def reworded_count(before: Sequence[FoundIntent], after: Sequence[FoundIntent]) -> int:
    """How many wordings were added."""
    return sum(len(intent.says) for intent in after) - sum(len(intent.says) for intent in before)
