"""Did this conversation do its task? The one verdict that filtering, certainty, training and evaluation share, and the reward R.

One idea: a policy is judged by *outcome*, whatever way it went, never by comparison with the expert's plan. All of these must hold:

- it ends with a text of its own, in its own words: observations passed on as JSON are no answer;
- no call names a tool that was not on offer or carries text that is not a JSON object;
- every argument that its tool marks `x-grounded` was in the conversation before the call: in what the user said, in an earlier result,
  or as a canonical form of what the user said (`World.slot_forms`: tomorrow's date, 1500 for 1.5 km); a point in time may be put together
  from a day and a time of day that the user said; a schema default needs no source;
- what a program of the policy's own (`run_python`) prints grounds numbers, times and dates that do not stand in the program, and nothing
  else (`synth/tasks/code_output.py`): no identifier, no name, no evidence;
- what had to be looked at was shown before the first call that changed the state, and the end state differs from the start in exactly
  the ways that the task asks for;
- the answer states the facts that were asked for (names and identifiers only if somebody brought them up), and none of their rivals
  (unless another fact or a number of the request has that value);
- it tells no figure, identifier or name that neither an observation nor the conversation supports: the veto (`synth/tasks/grounding.py`);
- the answer does not simply say everything that was observed: of four or more values that nobody asked for, some are left out;
- a refusal task wants the refusal, for the right reason and no other (`synth/text/refusals.py`); no other task wants to be told that there
is no
  tool for it.

`judge` trusts the recorded observations (the caller ran the world itself); `verify` replays every call in a fresh world first;
`verify_teacher` also wants the plan covered. What a conversation that fails was worth all the same, and one that passes, says
`synth/tasks/reward.py`, from what is found here. Not done here: judging style.
Source: definitions P2 and P8 (STAgent's veto).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from storage.records import CODE_TOOL, JSON, Fact, Message, RefusalReason, Task, canonical_json, is_error, leaves, parse_arguments
from synth.tasks.code_output import computed_figures
from synth.tasks.grounding import Sources, is_grounded, stated_claims
from synth.tasks.reward import Found, Marks, mark, reward
from synth.text.claims import Claims, NameIndex, Number, dates_in, has_word, is_near, minutes_in, normalise, numbers_in
from synth.text.refusals import refusal_reasons
from synth.worlds.base import World, cached_per_world

_POINT_IN_TIME = re.compile(r"\d{4}-\d\d-\d\dt\d\d:\d\d(?::\d\d)?")
_DATA = re.compile(r'\{\s*"[^"]*"\s*:')
"""A JSON object begins."""
_NO_DEFAULT = object()
_MANY, _NEARLY_ALL = 4, 0.75
_NO_RESULT = '{"error"'


@dataclass(frozen=True, slots=True)
class Verdict:
    """success: all checks hold. reward: R in [0, 1], more than 0 where they do. checks: by name, in a fixed order. marks: what R is made
    of; None where there is no conversation."""

    success: bool
    reward: float
    checks: dict[str, bool]
    marks: Marks | None = None


@dataclass(frozen=True, slots=True)
class _Rules:
    """What judging needs of a world: which tools change the state, grounded arguments with their defaults, known names."""

    changing: frozenset[str]
    grounded: dict[str, dict[str, Any]]
    names: tuple[NameIndex, ...]
    """Of the world itself, and of all worlds of its kind."""


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
def _slot_forms(world: type[World], seed: int, intent: str, slots: str) -> frozenset[str]:
    parsed = parse_arguments(slots)
    assert parsed is not None
    return frozenset(normalise(form) for form in world(seed).slot_forms(intent, parsed))


@dataclass(slots=True)
class _Heard:
    """What has been said so far, by anyone but the policy: normalised texts, their numbers read when first asked for."""

    forms: frozenset[str]
    texts: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """Those of the texts that are the user's."""
    results: list[str] = field(default_factory=list)
    """Those that the world's tools have answered, as they came."""
    computed: list[str] = field(default_factory=list)
    """What programs have printed that they do not spell out."""
    _numbers: list[Number] = field(default_factory=list)
    _read: int = 0

    @property
    def observed(self) -> set[str]:
        """Every value in the results, normalised."""
        values = (value for text in self.results for _, value in leaves(parse_arguments(text) or {}))
        return {normalise(str(value)) for value in values if value is not None and not isinstance(value, bool)} - {""}

    def sources(self, world: type[World], system: Sequence[str]) -> Sources:
        return Sources(world, self.texts, self.results, (*self.requests, *self.computed, *system), self.forms)

    def numbers(self) -> list[Number]:
        if self._read == 0:
            self._numbers += [number for form in self.forms for number in numbers_in(form)]
        for text in self.texts[self._read :]:
            self._numbers += numbers_in(text, also_parts=True)
        self._read = len(self.texts)
        return self._numbers

    def has(self, needle: str) -> bool:
        return needle in self.forms or any(has_word(text, needle) for text in self.texts)

    def has_moment(self, moment: str) -> bool:
        day, minute = moment[:10], _minute(moment[11:16])
        claims = (*self.requests, *self.forms)
        return any(day in dates_in(text) for text in claims) and any(minute in minutes_in(text) for text in claims)

    def supports(self, value: JSON) -> bool:
        """Whether an argument's value was said: a string literally, a point in time by its date and its time of day, a number exactly (or
        in a larger unit), a list item by item."""
        if value is None or isinstance(value, bool):
            return True
        if isinstance(value, (int, float)):
            return any(value == reading for number in self.numbers() for reading in number.readings)
        if isinstance(value, str):
            text = normalise(value.strip())
            return self.has(text) or (
                _POINT_IN_TIME.fullmatch(text) is not None and (self.has(text.replace("t", " ")) or self.has_moment(text))
            )
        return all(self.supports(item) for item in (value.values() if isinstance(value, Mapping) else value))


@dataclass(slots=True)
class _Walk:
    """What one pass over a conversation finds."""

    known_tools: bool = True
    well_formed: bool = True
    grounded_arguments: bool = True
    shown_in_time: list[str] = field(default_factory=list)
    """Observations before the first call that changed the state."""
    calls: int = 0
    failed: int = 0
    """Of the calls after the opening, those that were answered with an error, not answered, or of a tool that was not on offer."""


def judge(world: type[World], task: Task, messages: Sequence[Message], changes: Mapping[str, JSON]) -> Verdict:
    """The verdict on a whole conversation (opening included) whose calls were run, with these `World.changes()` at its end.

    world: that of the task, here and below.
    """
    seed = task.world_seed if world.has_seeded_names else 0
    rules = _rules(world, seed)
    heard = _Heard(_slot_forms(world, seed, task.intent, canonical_json(task.slots)))
    walk = _walk(task, messages, rules, heard)
    last = messages[-1]
    answer = normalise(last.content or "").strip() if last.role == "assistant" and not last.tool_calls else ""
    system = [normalise(message.content or "") for message in messages if message.role == "system"]
    claims, success = stated_claims(answer), task.success
    bounds = (str(value) for value in task.slots.values() if isinstance(value, (int, float)))
    given_values = frozenset(fact.value for fact in success.facts).union(bounds)
    stated = [_is_stated(fact, answer, claims, given_values) and _is_backed(fact, heard) for fact in success.facts]
    shown = [_is_shown(fact, walk.shown_in_time) for fact in success.evidence]
    checks = {
        "ended_with_text": bool(answer),
        "own_words": _DATA.search(answer) is None,
        "known_tools": walk.known_tools,
        "well_formed": walk.well_formed,
        "grounded_arguments": walk.grounded_arguments,
        "evidence": all(shown),
        "end_state": dict(changes) == success.changes,
        "facts": all(stated),
        "grounded_answer": is_grounded((last.content or "") if answer else "", heard.sources(world, system), rules.names),
        "to_the_point": not _says_all(answer, heard, _required_values(task)),
        "refusal": _refuses_rightly(answer, success.refusal),
    }
    passed = all(checks.values())
    evidence = Found(changes, shown, _news(success.facts, stated, heard, given_values), last.content or "", walk.calls, walk.failed)
    marks = mark(task, checks, evidence)
    return Verdict(passed, reward(task, marks, success=passed), checks, marks)


def verify(world: type[World], task: Task, messages: Sequence[Message]) -> Verdict:
    """`judge`, after every call was made again in a fresh world of the task's seed: an opening or an observation that differs from the
    recorded one, or is missing, fails the check `observations`."""
    changes, is_faithful = _replay(world, task, messages)
    verdict = judge(world, task, messages, changes) if messages else Verdict(False, 0.0, {})
    return _with(verdict, "observations", is_faithful)


def verify_teacher(world: type[World], task: Task, messages: Sequence[Message]) -> Verdict:
    """`verify`, and every call of the plan was made (same tool, same arguments apart from defaults) and answered without an error."""
    return _with(verify(world, task, messages), "plan_covered", _covers_plan(world, task, messages))


# ---- one pass over the conversation -----------------------------------------------------------------------------------------


def _walk(task: Task, messages: Sequence[Message], rules: _Rules, heard: _Heard) -> _Walk:
    walk, offered = _Walk(), set(task.tools)
    has_changed = False
    programs: dict[str | None, str] = {}
    for place, message in enumerate(messages):
        if message.role == "user":
            heard.requests.append(normalise(message.content or ""))
            heard.texts.append(heard.requests[-1])
        elif message.role == "tool" and message.tool_call_id in programs:
            heard.computed.append(computed_figures(message.content or "", programs[message.tool_call_id]))
            heard.texts.append(heard.computed[-1])
        elif message.role == "tool":
            text = normalise(message.content or "")
            heard.texts.append(text)
            heard.results.append(message.content or "")
            if not has_changed:
                walk.shown_in_time.append(text)
        elif message.role == "assistant" and message.tool_calls:
            results = _results_after(messages, place)
            programs = {}
            for call in message.tool_calls:
                name, arguments = call.function.name, parse_arguments(call.function.arguments)
                walk.known_tools &= name in offered
                walk.well_formed &= arguments is not None
                if name == CODE_TOOL:
                    programs[call.id] = str((arguments or {}).get("code", ""))
                if arguments is not None:
                    walk.grounded_arguments &= _are_grounded(arguments, rules.grounded.get(name, {}), heard)
                has_failed = is_error(results.get(call.id, _NO_RESULT))
                has_changed |= name in rules.changing and not has_failed
                if place >= len(task.messages):
                    walk.calls += 1
                    walk.failed += has_failed or name not in offered
    return walk


def _results_after(messages: Sequence[Message], place: int) -> dict[str | None, str]:
    """What the calls of the message at `place` were answered, by call id: ids need only be unique within one message."""
    results: dict[str | None, str] = {}
    place += 1
    while place < len(messages) and messages[place].role == "tool":
        results.setdefault(messages[place].tool_call_id, messages[place].content or "")
        place += 1
    return results


def _are_grounded(arguments: Mapping[str, JSON], grounded: Mapping[str, Any], heard: _Heard) -> bool:
    return all(value == grounded[name] or heard.supports(value) for name, value in arguments.items() if name in grounded)


# ---- facts ------------------------------------------------------------------------------------------------------------------


def _spellings(fact: Fact) -> Iterable[str]:
    return (normalise(spelling) for spelling in (fact.value, *fact.alternatives))


def _minute(value: str) -> int:
    hour, minute = value.split(":")[:2]
    return int(hour[-2:]) * 60 + int(minute[:2])


def _is_shown(fact: Fact, texts: Sequence[str]) -> bool:
    """Whether one of the observations shows the fact."""
    if fact.kind in ("number", "price"):
        fact_number = float(fact.value)
        return any(
            is_near(reading, fact_number) for text in texts for number in numbers_in(text, also_parts=True) for reading in number.readings
        )
    if fact.kind == "time":
        return any(_minute(fact.value) in minutes_in(text) for text in texts)
    return any(has_word(text, spelling) for spelling in _spellings(fact) for text in texts)


def _is_stated(fact: Fact, answer: str, claims: Claims, given_values: frozenset[str]) -> bool:
    """Whether the answer states the fact, and none of its rivals but those that are `asked` for (other facts' values, the request's
    numbers)."""
    if any(_states(answer, claims, rival) for rival in fact.rivals if rival not in given_values):
        return False
    if fact.kind in ("number", "price"):
        fact_number = float(fact.value)
        return any(is_near(reading, fact_number) for number in claims.numbers for reading in number.readings)
    if fact.kind == "exact":
        return _states(answer, claims, fact.value)
    if fact.kind == "time":
        return _minute(fact.value) in claims.minutes
    if fact.kind == "date" and not claims.dates.isdisjoint({fact.value, f"-{fact.value[4:]}"}):
        return True
    return any(has_word(answer, spelling) for spelling in _spellings(fact))


def _news(facts: Sequence[Fact], stated: Sequence[bool], heard: _Heard, given_values: frozenset[str]) -> Sequence[bool]:
    """`told`, but where some fact is not told, without those that the requests say themselves."""
    if all(stated) or not any(stated):
        return stated
    request_claims = [(text, stated_claims(text)) for text in heard.requests]
    return [
        is_told and not any(_is_stated(fact, *request, given_values) for request in request_claims)
        for fact, is_told in zip(facts, stated, strict=True)
    ]


def _is_backed(fact: Fact, heard: _Heard) -> bool:
    """Whether a name or identifier that is to be told was heard (numbers, times and dates are up to the grounding veto)."""
    return fact.kind not in ("name", "id") or any(heard.has(spelling) for spelling in _spellings(fact))


def _required_values(task: Task) -> set[str]:
    """Every value that the task's own success is made of, normalised."""
    success = task.success
    facts = (spelling for fact in (*success.facts, *success.evidence) for spelling in _spellings(fact))
    changes = (normalise(str(part)) for path, value in success.changes.items() for part in (*path.split("/"), *_scalars(value)))
    return {*facts, *changes}


def _scalars(value: JSON) -> list[JSON]:
    return [leaf for _, leaf in leaves(value)]


def _says_all(answer: str, heard: _Heard, values: Set[str]) -> bool:
    """Whether the answer states nearly all values that were observed, beyond those that the task is about or the user named."""
    observed = heard.observed
    if sum(has_word(answer, value) for value in observed) < _MANY:
        return False
    others = {value for value in observed - values if not any(has_word(text, value) for text in heard.requests)}
    other_count = sum(has_word(answer, value) for value in others)
    return other_count >= _MANY and other_count >= _NEARLY_ALL * len(others)


def _refuses_rightly(answer: str, reason: RefusalReason | None) -> bool:
    reasons = refusal_reasons(answer)
    return RefusalReason.MISSING_TOOL not in reasons if reason is None else reasons == {reason}


def _states(answer: str, claims: Claims, value: str) -> bool:
    """Whether the answer states exactly this number, time or word."""
    if ":" in value:
        return _minute(value) in claims.minutes
    try:
        stated_number = float(value)
    except ValueError:
        return has_word(answer, normalise(value))
    return any(number.value == stated_number for number in claims.numbers)


# ---- replay -----------------------------------------------------------------------------------------------------------------


def _replay(kind: type[World], task: Task, messages: Sequence[Message]) -> tuple[dict[str, JSON], bool]:
    """What the calls change in a fresh world, and whether opening and observations are what they were."""
    world = kind(task.world_seed)
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


def _with(verdict: Verdict, name: str, holds: bool) -> Verdict:
    return Verdict(verdict.success and holds, verdict.reward * holds, {**verdict.checks, name: holds}, verdict.marks)
