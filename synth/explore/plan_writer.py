"""Plans that a language model proposes for a live world: it writes a request and calls, a program makes the calls and checks the plan.

One idea: the model writes values, and code finds out where each comes from: it stands in the request (a slot), it stands in one place of an
earlier result that the request determines (a look-up), or it is a constant. From there on the plan is one that exploration could have
found, and is admitted as such; every refusal goes back to the model with its reason.

What it does not do: believe the model. Whether the request reads like a person's is not judged here.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.records import JSON, Cost, canonical_json
from synth.engines.base import ChatRequest, Engine
from synth.engines.structured import ask
from synth.explore.explorer import Explorer
from synth.explore.found_plan import FoundPlan
from synth.explore.lookups import Route, routes_to, scalar_routes
from synth.explore.value_records import slot_name, words_of
from synth.prompts import prompt
from synth.worlds.live.live_intents import fact_of
from synth.worlds.live.lock import LiveTool
from synth.worlds.live.plans import PlanCall

PROMPT = "plan_writer"
TEMPERATURE, MAX_TOKENS, REPAIRS, AT_ONCE = 0.9, 1200, 2, 8
EXAMPLES, EXAMPLE_CHARACTERS, MOST_TOOLS, MOST_TOLD, MOST_CALLS = 14, 700, 40, 12, 6
_LENGTHS = ("one call", "two calls", "three calls", "two or three calls, with a look-up")


@dataclass
class Written:
    """What became of the plans that a model was asked for.

    asked, kept: plans. problems: of each that was not kept, the first one of its last answer.
    """

    asked: int = 0
    kept: int = 0
    problems: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)


class PlanRefused(Exception):
    """The reason is told to the model."""


def write_plans(
    engine: Engine, explorer: Explorer, count: int, *, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Written:
    """Asks for `count` plans, each with at most two repairs; those that are admitted are kept by the explorer.

    Raises:
        EngineFailure, EngineUnusable, BudgetSpent: as the engine's `chat`; what was admitted until then is kept.
    """
    rng = random.Random(f"{seed}/plans")
    written = Written()
    for start in range(0, count, AT_ONCE):
        requests = [request_for_plan(explorer, rng) for _ in range(min(AT_ONCE, count - start))]
        results = ask(engine, requests, repairs=REPAIRS, check=lambda _, value: try_plan(explorer, value))
        written.asked += len(results)
        written.kept += sum(not result.problems for result in results)
        written.problems += tuple(result.problems[0] for result in results if result.problems)
        written.cost += sum((result.cost for result in results), Cost())
        if progress is not None:
            progress(written.asked, written.kept)
    return written


def request_for_plan(explorer: Explorer, rng: random.Random) -> ChatRequest:
    """The question for one plan, about a tool drawn by lot."""
    tools = sorted(explorer.tools, key=lambda tool: tool.name)
    wanted = rng.choice(tools)
    shown = sorted({wanted.name, *(tool.name for tool in rng.sample(tools, min(MOST_TOOLS - 1, len(tools))))})
    reads = rng.sample(explorer.reads, min(EXAMPLES, len(explorer.reads)))
    messages = prompt(PROMPT).messages(
        about=explorer.about,
        tools=[
            {"name": tool.name, "changes_state": tool.changes_state, "description": tool.description, "parameters": _schema_text(tool)}
            for tool in tools
            if tool.name in shown
        ],
        examples=[(call, canonical_json(result)[:EXAMPLE_CHARACTERS]) for call, result in reads],
        told=rng.sample(explorer.kinds, min(MOST_TOLD, len(explorer.kinds))),
        length=rng.choice(_LENGTHS),
        tool=wanted.name,
    )
    return ChatRequest(messages, (), TEMPERATURE, MAX_TOKENS, rng.randrange(2**31), schema=_schema(shown))


def try_plan(explorer: Explorer, proposed: JSON) -> list[str]:
    """The problems of a proposed plan; none if it was admitted."""
    try:
        plan = plan_of(explorer, proposed["request"], proposed["calls"], proposed["asks_for"])
    except PlanRefused as refused:
        return [str(refused)]
    reason = explorer.admit(plan)
    return [reason] if reason else []


def plan_of(explorer: Explorer, request: str, calls: Sequence[Mapping[str, JSON]], asks_for: str | None) -> FoundPlan:
    """The template of a proposed plan.

    Raises:
        PlanRefused: a call cannot be made, a value comes from nowhere, or the field that is asked for is not there, or not in one place.
    """
    if "{" in request or "}" in request:
        raise PlanRefused("the request holds braces, which people do not say")
    by_name = {tool.name: tool for tool in explorer.tools}
    slots: dict[str, JSON] = {}
    made: list[PlanCall] = []
    results: list[JSON] = []
    for call in calls:
        schemas = by_name[call["tool"]].parameters.get("properties") or {}
        arguments = {
            name: _source(name, schemas.get(name) or {}, value, request, slots, results) for name, value in call["arguments"].items()
        }
        made.append(PlanCall(tool=call["tool"], arguments=arguments))
        executed = explorer.execute(made, slots)
        if executed is None:
            raise PlanRefused(f"call {len(made) - 1} ({call['tool']}) cannot be made: {explorer.last_error}")
        results = executed.results()
    told = _told(results[-1], asks_for, request, slots) if asks_for else None
    labels = {slot: " ".join(words_of(slot)) or slot for slot in slots}
    return FoundPlan(tuple(made), slots, labels, _template(request, slots), told, " ".join(words_of(asks_for or "")))


# ---- where a value comes from ----------------------------------------------------------------------------------------------


def _source(name: str, schema: Mapping[str, Any], value: JSON, request: str, slots: dict[str, JSON], results: Sequence[JSON]) -> JSON:
    """The value as a part of a template: said, found, or a choice that stands for itself. New slots are added.

    Raises:
        PlanRefused: it is none of these.
    """
    if isinstance(value, Mapping):
        of_parts = schema.get("properties") or {}
        return {key: _source(key, of_parts.get(key) or {}, inner, request, slots, results) for key, inner in value.items()}
    if isinstance(value, list):
        return [_source(name, schema.get("items") or {}, inner, request, slots, results) for inner in value]
    if isinstance(value, bool) or value is None:
        return value
    if _stands_in(value, request):
        return {"said": _slot(name, value, slots)}
    for at, result in enumerate(results):
        for route in routes_to(value, result, f"{(*words_of(name), 'x')[0]}_"):
            if all(_stands_in(each, request) for each in route.slots.values()):
                return {"found": [at, list(_path(route, slots))]}
    if "enum" in schema or value == schema.get("default", ...):
        return value
    raise PlanRefused(
        f"{name}: {value!r} stands neither in the request, exactly so, nor in one place of an earlier result that the request tells apart"
    )


def _slot(name: str, value: JSON, slots: dict[str, JSON]) -> str:
    """The slot of a value: the one that has it, or a new one."""
    known = next((slot for slot, each in slots.items() if each == value and type(each) is type(value)), None)
    if known is not None:
        return known
    plain = slot_name(name)
    free = next(each for each in (plain, *(f"{plain}_{number}" for number in range(2, 99))) if each not in slots)
    slots[free] = value
    return free


def _path(route: Route, slots: dict[str, JSON]) -> tuple[Any, ...]:
    """The path of a route, with the slots of its conditions among the plan's."""
    renamed = {slot: _slot(slot, value, slots) for slot, value in route.slots.items()}
    return tuple({"where": [step["where"][0], renamed[step["where"][1]]]} if isinstance(step, Mapping) else step for step in route.path)


def _told(result: JSON, asks_for: str, request: str, slots: dict[str, JSON]) -> tuple[Any, ...]:
    """The path to the field that is asked for."""
    routes = [
        (route, value)
        for route, value in scalar_routes(result)
        if next((step for step in reversed(route.path) if isinstance(step, str) and step != "*"), "") == asks_for
        and all(_stands_in(each, request) for each in route.slots.values())
    ]
    if len({canonical_json(value) for _, value in routes}) != 1:
        raise PlanRefused(f"the result of the last call has {'several' if routes else 'no'} {asks_for} that the request determines")
    route, value = routes[0]
    if fact_of(value) is None:
        raise PlanRefused(f"{asks_for} is no short value; ask for a name, a number or a date")
    return _path(route, slots)


def _stands_in(value: JSON, request: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", request) is not None if str(value).strip() else False


def _template(request: str, slots: Mapping[str, JSON]) -> str:
    """The request with slots in the places of their values, the longest first."""
    by_text = {str(value): slot for slot, value in slots.items()}
    if not by_text:
        return request
    pattern = "|".join(rf"(?<!\w){re.escape(text)}(?!\w)" for text in sorted(by_text, key=len, reverse=True))
    parts, at = [], 0
    for found in re.finditer(pattern, request):
        parts += [request[at : found.start()], f"{{{by_text[found[0]]}}}"]
        at = found.end()
    return "".join([*parts, request[at:]])


def _schema(tools: Sequence[str]) -> dict[str, JSON]:
    call = {
        "type": "object",
        "properties": {"tool": {"enum": list(tools)}, "arguments": {"type": "object"}},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
    properties = {
        "request": {"type": "string", "minLength": 8, "maxLength": 1200},
        "calls": {"type": "array", "items": call, "minItems": 1, "maxItems": MOST_CALLS},
        "asks_for": {"type": ["string", "null"]},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _schema_text(tool: LiveTool) -> str:
    text = json.dumps(tool.parameters.get("properties") or {}, ensure_ascii=False)
    return text if len(text) <= 4 * EXAMPLE_CHARACTERS else f"{text[: 4 * EXAMPLE_CHARACTERS]} ..."
