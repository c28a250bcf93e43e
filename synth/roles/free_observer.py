"""What code can check of a conversation whose tools no world executed.

There is no end state and no fact to compare with. Checked are: every turn came to an end, and with a text; calls keep to their tools'
signatures, and none failed; the planned tools were called, each after those that it depends on, with whatever arguments; nothing was
changed that the plan does not change; identifiers in calls had been said or shown; and every reply's numbers, times, dates and identifiers
stand in what was said or shown before it. Sums are not followed: a total that no result holds is unsupported. The rest is the judge's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from storage.conversation import ExecutedCall, Turn
from storage.records import JSON, Message, Tool, parse_arguments
from synth.clusters.signatures import argument_problems
from synth.roles.free_plan import FreePlan, is_grounded
from synth.roles.observer import Seen
from synth.text.claims import dates_in, has_word, is_near, minutes_in, normalise, numbers_in, read

_TOKEN = re.compile(r"[!-~]*\d[!-~]*")
_PLAIN_NUMBER = re.compile(r"[-+]?[\d.,]+%?")
_AROUND = ".,;:!?()[]{}<>\"'`*"


def observe_free(plan: FreePlan, seen: Seen, tools: Mapping[str, Tool]) -> dict[str, bool]:
    """All checks by name, in a fixed order; a conversation that holds them all is worth a judge. tools: those on offer, by name."""
    calls = [call for turn in seen.turns for step in turn.steps for call in step.calls]
    changing = {call.tool for call in calls if call.tool in tools and tools[call.tool].changes_state}
    return {
        "complete": len(seen.turns) == len(plan.turns) == len(seen.changes),
        "answered": all(turn.steps and turn.steps[-1].text.strip() for turn in seen.turns),
        "schema_valid": all(_is_valid(call, tools) for call in calls),
        "no_unplanned_errors": all(call.status not in ("error", "missing") for call in calls),
        "covers_plan": covers(plan, seen.turns),
        "no_forbidden_tool": changing <= {call.tool for call in plan.calls},
        **_grounding(seen.messages, tools),
    }


def covers(plan: FreePlan, turns: Sequence[Turn]) -> bool:
    """Whether every planned call has a call of its own of the same tool, made in a later message than those that it depends on."""
    steps = [step.calls for turn in turns for step in turn.steps]
    free = [(at, call.tool) for at, calls in enumerate(steps) for call in calls if call.status in ("ok", "empty")]
    made: list[int] = []
    for planned in plan.calls:
        after = max((made[parent] for parent in planned.parents), default=-1)
        found = next(((at, tool) for at, tool in free if tool == planned.tool and at > after), None)
        if found is None:
            return False
        free.remove(found)
        made.append(found[0])
    return True


def unsupported(text: str, heard: str) -> list[str]:
    """Numbers, times, dates and identifiers of a text that do not stand in what was heard; lengths of lists in results count as heard.

    heard: normalised, as `_heard` joins it."""
    said = read(_TOKEN.sub(lambda token: " " if _stands_in(token.group().strip(_AROUND), heard) else token.group(), normalise(text)))
    found = sorted(one for one in said.ids if not has_word(heard, one)) + sorted(said.dates - dates_in(heard))
    found += [f"{minute // 60}:{minute % 60:02d}" for minute in sorted(said.minutes - minutes_in(heard))]
    known = [reading for number in numbers_in(heard, also_parts=True) for reading in number.readings] if said.numbers else []
    return found + [f"{n.value:g}" for n in said.numbers if not any(is_near(one, other) for one in n.readings for other in known)]


def _stands_in(token: str, heard: str) -> bool:
    """Whether a code, date or address stands there as it is; of a number its value is asked for, not its digits."""
    return _PLAIN_NUMBER.fullmatch(token) is None and has_word(heard, token)


def _is_valid(call: ExecutedCall, tools: Mapping[str, Tool]) -> bool:
    return call.tool in tools and call.arguments is not None and not argument_problems(tools[call.tool], call.arguments)


def _grounding(messages: Sequence[Message], tools: Mapping[str, Tool]) -> dict[str, bool]:
    """Whether identifiers in calls, and all that replies state, had been heard before."""
    checks = {"grounded_arguments": True, "grounded_answers": True}
    heard = ""
    for message in messages:
        if message.role != "assistant":
            heard = f"{heard}\n{_heard(message)}"
            continue
        for call in message.tool_calls:
            tool, arguments = tools.get(call.function.name), parse_arguments(call.function.arguments)
            if tool is not None and arguments is not None:
                checks["grounded_arguments"] &= is_grounded(tool, arguments, heard)
        if not message.tool_calls:
            checks["grounded_answers"] &= not unsupported(message.content or "", heard)
    return checks


def _heard(message: Message) -> str:
    """A message as what an answer may rest on: its text, and of a result how long its lists are."""
    text = normalise(message.content or "")
    if message.role != "tool":
        return text
    try:
        value = json.loads(message.content or "")
    except ValueError:
        return text
    return f"{text}\n{' '.join(str(length) for length in _lengths(value))}"


def _lengths(value: JSON) -> list[int]:
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return ([len(items)] if isinstance(value, list) else []) + [length for item in items for length in _lengths(item)]
