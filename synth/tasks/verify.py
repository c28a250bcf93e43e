"""The verdict on a conversation, and its reward R: the same for filtering, certainty, training and evaluation.

One idea: a policy is judged by the outcome, never by comparison with the expert's plan. All of these checks must hold:

| check | it holds if |
|---|---|
| ended_with_text | the last message is a text of the assistant |
| own_words | the answer holds no JSON object |
| known_tools | every call names a tool on offer |
| well_formed | the arguments of every call are a JSON object |
| grounded_arguments | every argument that its tool marks `x-grounded` has a source before the call |
| evidence | the required observations were shown before the first call that changed the state |
| end_state | the end state differs from the start in exactly the ways that the task asks for |
| facts | the answer states the required facts, and none of their rivals; names and ids only if the conversation holds them |
| grounded_answer | every figure, id and name of the answer has a source: the veto (`synth/tasks/grounding.py`) |
| to_the_point | the answer does not list nearly all observed values (four or more) that the task does not ask for |
| refusal | a refusal task: the right reason and no other (`synth/text/refusals.py`); any other task: no claim that a tool is missing |

Sources of an argument are the user's texts, earlier results, and canonical forms of the request (`World.slot_forms`: tomorrow's date, 1500
for 1.5 km). A point in time may combine a day and a time of day that the user stated. A schema default needs no source.
Output of the policy's own program (`run_python`) is a source of numbers, times and dates that the program does not spell out, and of
nothing else (`synth/tasks/code_output.py`). A rival is allowed if another fact or a number of the request has its value.

Of a task with a context (`Task.context`) the results are what the policy was shown: what a mark hides is no source until `read_more` shows
it, notes and reminders never are one, and of a mark only the total counts.

`judge` trusts the recorded observations (the caller ran the world itself); `verify` replays every call in a fresh world first;
`verify_teacher` also requires the plan to be covered. `synth/tasks/reward.py` computes R. Style is not judged here.
Source: definitions P2 and P8 (STAgent's veto).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any

from storage.context.context_tools import NOTE_TOOLS
from storage.records import CODE_TOOL, JSON, Fact, Message, RefusalReason, Task, canonical_json, is_error, leaves, parse_arguments
from synth.context.marks import without_marks, without_reminder
from synth.context.view import open_world
from synth.tasks.code_output import computed_figures
from synth.tasks.conversation_context import ConversationContext, minute_of
from synth.tasks.grounding import is_grounded, stated_claims
from synth.tasks.reward import Findings, Marks, mark, reward
from synth.text.claims import Claims, NameIndex, has_word, is_near, minutes_in, normalise, numbers_in
from synth.text.refusals import refusal_reasons
from synth.worlds.base import World, cached_per_world

_JSON_OBJECT = re.compile(r'\{\s*"[^"]*"\s*:')
_NO_DEFAULT = object()
_MANY, _NEARLY_ALL = 4, 0.75
_NO_RESULT = '{"error"'


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one conversation.

    success: all checks hold.
    reward: R in [0, 1]; above 0 if success.
    checks: check name -> whether it holds, in a fixed order.
    marks: the dimensions of R; None for an empty conversation.
    unstated, unshown: the facts and the observations that checks `facts` and `evidence` miss.
    """

    success: bool
    reward: float
    checks: dict[str, bool]
    marks: Marks | None = None
    unstated: tuple[Fact, ...] = ()
    unshown: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the checks need to know of a world.

    changing: names of the tools that change the state.
    grounded: tool -> argument that needs a source -> its default.
    names: names in this world, and names that any world of its kind may draw.
    """

    changing: frozenset[str]
    grounded: dict[str, dict[str, Any]]
    names: tuple[NameIndex, ...]


@cached_per_world(maxsize=1024)
def _rules(kind: type[World], seed: int) -> _Rules:
    world = kind(seed)
    return _Rules(
        changing=frozenset(tool.name for tool in world.tools if tool.changes_state),
        grounded={
            tool.name: {
                name: schema.get("default", _NO_DEFAULT)
                for name, schema in tool.parameters["properties"].items()
                if schema.get("x-grounded")
            }
            for tool in world.tools
        },
        names=tuple(index for index in (NameIndex(world.known_names()), _names_of_kind(world.possible_names)) if index),
    )


@lru_cache(maxsize=16)
def _names_of_kind(possible_names: Callable[[], Mapping[str, tuple[str, ...]]]) -> NameIndex:
    return NameIndex(possible_names())


@cached_per_world(maxsize=1024)
def _names_given(world: type[World], given: str) -> tuple[NameIndex, ...]:
    """The names in what a world is given. given: JSON text."""
    names = world.names_given(json.loads(given))
    return (NameIndex(names),) if names else ()


@cached_per_world(maxsize=1024)
def _slot_forms(world: type[World], seed: int, intent: str, slots: str) -> frozenset[str]:
    parsed = parse_arguments(slots)
    assert parsed is not None
    return frozenset(normalise(form) for form in world(seed).slot_forms(intent, parsed))


def slot_forms(world: type[World], task: Task) -> frozenset[str]:
    """Every spelling in which a call may hold what the task's slots say, normalised."""
    return _slot_forms(world, task.world_seed if world.has_seeded_names else 0, task.intent, canonical_json(task.slots))


@dataclass(slots=True)
class _CallChecks:
    """Results of one pass over the calls of a conversation.

    known_tools, well_formed, grounded_arguments: the checks of these names.
    shown_in_time: observations before the first call that changed the state, normalised.
    calls: number of calls after the opening.
    failed: those of them with an error or no result, or of a tool that is not on offer.
    """

    known_tools: bool = True
    well_formed: bool = True
    grounded_arguments: bool = True
    shown_in_time: list[str] = field(default_factory=list)
    calls: int = 0
    failed: int = 0


def judge(world: type[World], task: Task, messages: Sequence[Message], changes: Mapping[str, JSON]) -> Verdict:
    """The verdict on a whole conversation.

    world: the task's world.
    messages: opening included; the calls were executed.
    changes: `World.changes()` at the end.
    """
    seed = task.world_seed if world.has_seeded_names else 0
    rules = _rules(world, seed)
    if task.given:
        rules = replace(rules, names=(*rules.names, *_names_given(world, canonical_json(task.given))))
    context = ConversationContext(_slot_forms(world, seed, task.intent, canonical_json(task.slots)))
    call_checks = _check_calls(task, messages, rules, context)
    last = messages[-1]
    answer = normalise(last.content or "").strip() if last.role == "assistant" and not last.tool_calls else ""
    system = [normalise(message.content or "") for message in messages if message.role == "system"]
    claims, success = stated_claims(answer), task.success
    bounds = (str(value) for value in task.slots.values() if isinstance(value, (int, float)))
    given_values = frozenset(fact.value for fact in success.facts).union(bounds)
    stated = [_is_stated(fact, answer, claims, given_values) and _has_source(fact, context) for fact in success.facts]
    shown = [_is_shown(fact, call_checks.shown_in_time) for fact in success.evidence]
    checks = {
        "ended_with_text": bool(answer),
        "own_words": _JSON_OBJECT.search(answer) is None,
        "known_tools": call_checks.known_tools,
        "well_formed": call_checks.well_formed,
        "grounded_arguments": call_checks.grounded_arguments,
        "evidence": all(shown),
        "end_state": dict(changes) == success.changes,
        "facts": all(stated),
        "grounded_answer": is_grounded((last.content or "") if answer else "", context.sources(world, system), rules.names),
        "to_the_point": not _dumps_observations(answer, context, _required_values(task)),
        "refusal": _refuses_rightly(answer, success.refusal),
    }
    passed = all(checks.values())
    new_facts = _new_facts(success.facts, stated, context, given_values)
    findings = Findings(changes, shown, new_facts, last.content or "", call_checks.calls, call_checks.failed)
    marks = mark(task, checks, findings)
    unstated, unshown = _missing(success.facts, stated), _missing(success.evidence, shown)
    return Verdict(passed, reward(task, marks, success=passed), checks, marks, unstated, unshown)


def _missing(facts: Sequence[Fact], found: Sequence[bool]) -> tuple[Fact, ...]:
    return tuple(fact for fact, is_found in zip(facts, found, strict=True) if not is_found)


def verify(world: type[World], task: Task, messages: Sequence[Message]) -> Verdict:
    """`judge` after a replay of every call in a fresh world of the task's seed. Check `observations` fails if the opening or an observation
    differs from the replay or is missing."""
    changes, is_faithful = _replay(world, task, messages)
    verdict = judge(world, task, messages, changes) if messages else Verdict(False, 0.0, {})
    return _add_check(verdict, "observations", is_faithful)


def verify_teacher(world: type[World], task: Task, messages: Sequence[Message]) -> Verdict:
    """`verify`, and check `plan_covered`: every call of the plan was made (same tool and arguments, defaults apart) without an error."""
    return _add_check(verify(world, task, messages), "plan_covered", _covers_plan(world, task, messages))


# ---- one pass over the conversation -----------------------------------------------------------------------------------------


def _check_calls(task: Task, messages: Sequence[Message], rules: _Rules, context: ConversationContext) -> _CallChecks:
    call_checks, offered = _CallChecks(), set(task.tools)
    has_changed = False
    programs: dict[str | None, str] = {}
    notes: set[str | None] = set()
    for place, message in enumerate(messages):
        content = message.content or "" if task.context is None else without_reminder(message.content or "")
        if message.role == "user":
            context.requests.append(normalise(message.content or ""))
            context.texts.append(context.requests[-1])
        elif message.role == "tool" and message.tool_call_id in programs:
            context.computed.append(computed_figures(without_marks(content), programs[message.tool_call_id]))
            context.texts.append(context.computed[-1])
        elif message.role == "tool" and message.tool_call_id not in notes:
            text = normalise(content if task.context is None else without_marks(content))
            context.texts.append(text)
            context.results.append(content)
            if not has_changed:
                call_checks.shown_in_time.append(text)
        elif message.role == "assistant" and message.tool_calls:
            results = _results_after(messages, place)
            programs, notes = {}, set()
            for call in message.tool_calls:
                name, arguments = call.function.name, parse_arguments(call.function.arguments)
                call_checks.known_tools &= name in offered
                call_checks.well_formed &= arguments is not None
                if name == CODE_TOOL:
                    programs[call.id] = str((arguments or {}).get("code", ""))
                if task.context is not None and name in NOTE_TOOLS:
                    notes.add(call.id)
                if arguments is not None:
                    call_checks.grounded_arguments &= _are_grounded(arguments, rules.grounded.get(name, {}), context)
                has_failed = is_error(results.get(call.id, _NO_RESULT))
                has_changed |= name in rules.changing and not has_failed
                if place >= len(task.messages):
                    call_checks.calls += 1
                    call_checks.failed += has_failed or name not in offered
    return call_checks


def _results_after(messages: Sequence[Message], place: int) -> dict[str | None, str]:
    """Call id -> result, for the calls of the message at `place`; an id need only be unique within one message."""
    results: dict[str | None, str] = {}
    for message in takewhile(lambda message: message.role == "tool", islice(messages, place + 1, None)):
        results.setdefault(message.tool_call_id, message.content or "")
    return results


def _are_grounded(arguments: Mapping[str, JSON], grounded: Mapping[str, Any], context: ConversationContext) -> bool:
    return all(value == grounded[name] or context.supports(value) for name, value in arguments.items() if name in grounded)


# ---- facts ------------------------------------------------------------------------------------------------------------------


def _spellings(fact: Fact) -> Iterable[str]:
    return (normalise(spelling) for spelling in (fact.value, *fact.alternatives))


def _is_shown(fact: Fact, texts: Sequence[str]) -> bool:
    """Whether one of the observations shows the fact."""
    if fact.kind in ("number", "price"):
        fact_number = float(fact.value)
        return any(
            is_near(reading, fact_number) for text in texts for number in numbers_in(text, also_parts=True) for reading in number.readings
        )
    if fact.kind == "time":
        return any(minute_of(fact.value) in minutes_in(text) for text in texts)
    return any(has_word(text, spelling) for spelling in _spellings(fact) for text in texts)


def _is_stated(fact: Fact, answer: str, claims: Claims, given_values: frozenset[str]) -> bool:
    """Whether the answer states the fact and none of its rivals. given_values: values of other facts and numbers of the request, which
    an answer may state though they are rivals."""
    if any(_states(answer, claims, rival) for rival in fact.rivals if rival not in given_values):
        return False
    if fact.kind in ("number", "price"):
        fact_number = float(fact.value)
        return any(is_near(reading, fact_number) for number in claims.numbers for reading in number.readings)
    if fact.kind == "exact":
        return _states(answer, claims, fact.value)
    if fact.kind == "time":
        return minute_of(fact.value) in claims.minutes
    if fact.kind == "date" and not claims.dates.isdisjoint({fact.value, f"-{fact.value[4:]}"}):
        return True
    return any(has_word(answer, spelling) for spelling in _spellings(fact))


def _new_facts(facts: Sequence[Fact], stated: Sequence[bool], context: ConversationContext, given_values: frozenset[str]) -> Sequence[bool]:
    """`stated`; if some fact is not stated, those that a request itself states count as not stated either."""
    if all(stated) or not any(stated):
        return stated
    request_claims = [(text, stated_claims(text)) for text in context.requests]
    return [
        is_stated and not any(_is_stated(fact, *request, given_values) for request in request_claims)
        for fact, is_stated in zip(facts, stated, strict=True)
    ]


def _has_source(fact: Fact, context: ConversationContext) -> bool:
    """Whether a name or identifier is in the conversation; the grounding veto checks numbers, times and dates."""
    return fact.kind not in ("name", "id") or any(context.has(spelling) for spelling in _spellings(fact))


def _required_values(task: Task) -> set[str]:
    """Every value in the task's success criteria, normalised."""
    success = task.success
    facts = (spelling for fact in (*success.facts, *success.evidence) for spelling in _spellings(fact))
    scalars = (leaf for value in success.changes.values() for _, leaf in leaves(value))
    parts = (part for path in success.changes for part in path.split("/"))
    return {*facts, *(normalise(str(each)) for each in (*parts, *scalars))}


def _dumps_observations(answer: str, context: ConversationContext, required: Set[str]) -> bool:
    """Whether the answer lists nearly all observed values that the task does not ask for and the user did not name."""
    observed = context.observed
    if sum(has_word(answer, value) for value in observed) < _MANY:
        return False
    others = {value for value in observed - required if not any(has_word(text, value) for text in context.requests)}
    other_count = sum(has_word(answer, value) for value in others)
    return other_count >= _MANY and other_count >= _NEARLY_ALL * len(others)


def _refuses_rightly(answer: str, reason: RefusalReason | None) -> bool:
    reasons = refusal_reasons(answer)
    return RefusalReason.MISSING_TOOL not in reasons if reason is None else reasons == {reason}


def _states(answer: str, claims: Claims, value: str) -> bool:
    """Whether the answer states exactly this number, time or word."""
    if ":" in value:
        return minute_of(value) in claims.minutes
    try:
        stated_number = float(value)
    except ValueError:
        return has_word(answer, normalise(value))
    return any(number.value == stated_number for number in claims.numbers)


# ---- replay -----------------------------------------------------------------------------------------------------------------


def _replay(kind: type[World], task: Task, messages: Sequence[Message]) -> tuple[dict[str, JSON], bool]:
    """The changes of a replay in a fresh world, and whether opening and observations equal the recorded ones."""
    world = open_world(kind, task)
    is_faithful = tuple(messages[: len(task.messages)]) == task.messages
    pending: dict[str, str] = {}
    for message in messages[len(task.messages) :]:
        if message.role == "assistant":
            is_faithful &= not pending
            pending = {call.id: world.call(call.function.name, call.function.arguments).content for call in message.tool_calls}
            is_faithful &= len(pending) == len(message.tool_calls)
        elif message.role == "tool":
            is_faithful &= pending.pop(message.tool_call_id or "", None) == message.content
    return world.changes(), is_faithful and not pending


def _covers_plan(world: type[World], task: Task, messages: Sequence[Message]) -> bool:
    defaults = {
        tool.name: {name: schema["default"] for name, schema in tool.parameters["properties"].items() if "default" in schema}
        for tool in world.tools
    }

    def key(name: str, arguments: Mapping[str, JSON]) -> str:
        absent = defaults.get(name, {})
        return f"{name} {canonical_json({key: value for key, value in arguments.items() if absent.get(key, _NO_DEFAULT) != value})}"

    executed: list[str] = []
    for place, message in enumerate(messages):
        results = _results_after(messages, place) if message.tool_calls else {}
        for call in message.tool_calls:
            arguments = parse_arguments(call.function.arguments)
            if arguments is not None and not is_error(results.get(call.id, _NO_RESULT)):
                executed.append(key(call.function.name, arguments))
    return not Counter(key(call.tool, call.arguments) for call in task.plan.calls) - Counter(executed)


def _add_check(verdict: Verdict, name: str, holds: bool) -> Verdict:
    checks = {**verdict.checks, name: holds}
    return replace(verdict, success=verdict.success and holds, reward=verdict.reward * holds, checks=checks)
