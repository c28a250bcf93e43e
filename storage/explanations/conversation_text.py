"""A conversation as rows of text, and a plan beside the calls that were made.

One idea: a call is one line, `tool(argument=value)`, and its result the next; long texts are cut, and say how much is missing.
It reads no store and judges nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.conversation import ExecutedCall, derive_turns
from storage.records import JSON, Message, canonical_json, parse_arguments
from storage.releases.text_layout import cut

RESULT, TEXT, SYSTEM = 200, 1_000, 200
"""Most characters of a result, of a text or call, and of the system message."""


@dataclass(frozen=True)
class PlannedCall:
    """A call of a plan.

    turn: user turn of the plan, from 1; None for a plan without turns.
    note: what else the plan says of it, such as a planned fault.
    """

    tool: str
    arguments: Mapping[str, JSON]
    turn: int | None = None
    note: str = ""


@dataclass(frozen=True)
class PlanMatch:
    """A planned call beside the call that was made, or a call that was not planned.

    call: the call as text. note: what follows on it. made: number of the made call in the conversation, from 0; None: it was not made.
    """

    what_happened: str
    call: str
    note: str
    made: int | None


def parse_messages(text: str | None) -> tuple[Message, ...]:
    """The messages of a stored conversation."""
    return tuple(Message.model_validate(message) for message in json.loads(text or "[]"))


def conversation_rows(messages: Sequence[Message], *, full: bool = False) -> list[tuple[str, str]]:
    """(who, text) of a conversation in order; user turns are numbered. full: nothing is cut."""
    rows, turn = list[tuple[str, str]](), 0
    for place, message in enumerate(messages):
        if message.role == "tool":
            continue
        turn += message.role == "user"
        label = f"user {turn}" if message.role == "user" else message.role
        if message.content:
            rows.append((label, cut(message.content, None if full else SYSTEM if message.role == "system" else TEXT)))
        answers = itertools.takewhile(lambda each: each.role == "tool", messages[place + 1 :])
        results = [(each.tool_call_id, each.content or "") for each in answers]
        for call in message.tool_calls:
            rows.append(("  call", cut(call_text(call.function.name, call.function.arguments), None if full else TEXT)))
            result = next((text for name, text in results if name == call.id), None)
            if result is not None:
                results.remove((call.id, result))
            rows.append(("  result", "none" if result is None else cut(result, None if full else RESULT) or "empty"))
    return rows


def call_text(tool: str, arguments: str | Mapping[str, Any]) -> str:
    """`tool(argument=value, ...)`; arguments that are not a JSON object are shown as they are."""
    parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
    if parsed is None:
        return f"{tool}({arguments}), which is not JSON"
    shown = (f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for name, value in parsed.items())
    return f"{tool}({', '.join(shown)})"


def plan_rows(planned: Sequence[PlannedCall], messages: Sequence[Message], *, full: bool = False) -> list[tuple[str, str]]:
    """(what happened, call) of every planned call in order, then the calls that the plan does not have. full: nothing is cut."""
    limit = None if full else TEXT
    return [(one.what_happened, cut(one.call, limit) + one.note) for one in match_plan(planned, messages)]


def match_plan(planned: Sequence[PlannedCall], messages: Sequence[Message]) -> list[PlanMatch]:
    """Every planned call in order, then the calls that the plan does not have."""
    turns = derive_turns(messages)
    made = list(enumerate((number, call) for number, turn in enumerate(turns, 1) for step in turn.steps for call in step.calls))
    matches = []
    for plan in planned:
        fits = [one for one in made if one[1][1].tool == plan.tool and _is_equal(one[1][1], plan.arguments)]
        best = next((one for one in fits if one[1][1].status in ("ok", "empty")), fits[0] if fits else None)
        if best is not None:
            made.remove(best)
        turn = f"turn {plan.turn}: " if plan.turn is not None else ""
        matches.append(
            PlanMatch(
                _what_happened(best and best[1], plan.turn),
                turn + call_text(plan.tool, plan.arguments),
                f" ({plan.note})" if plan.note else "",
                best and best[0],
            )
        )
    return matches + [
        PlanMatch("not in the plan", (f"turn {number}: " if len(turns) > 1 else "") + _made_text(call), _status(call), place)
        for place, (number, call) in made
    ]


def _made_text(call: ExecutedCall) -> str:
    return f"{call.tool}(...), whose arguments are not JSON" if call.arguments is None else call_text(call.tool, call.arguments)


def _is_equal(call: ExecutedCall, arguments: Mapping[str, JSON]) -> bool:
    return canonical_json(call.arguments) == canonical_json(dict(arguments))


def _what_happened(made: tuple[int, ExecutedCall] | None, turn: int | None) -> str:
    if made is None:
        return "not done"
    number, call = made
    word = "failed" if call.status in ("error", "missing") else "done"
    return word if turn in (None, number) else f"{word} in turn {number}"


def _status(call: ExecutedCall) -> str:
    return {"error": " -> error", "empty": " -> nothing found", "missing": " -> no result", "ok": ""}[call.status]
