"""The script of a simulated user, turn by turn, and the checks of each message against it.

A user simulator that strays from its goal cost a policy ten points in RL (a published finding), so code checks every turn before the
assistant sees it: the turn's facts are there, in a spelling that a call may carry; withheld facts are not; no number, date or identifier
is invented; the language is right; the text is not JSON or markup; it is not a list of instructions. Not checked: the tone, and whether a
turn without facts ("yes, go ahead") says the opposite.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from storage.records import Language, Message
from synth.blueprints.blueprint import Blueprint, Goal, TurnPlan
from synth.blueprints.phrases import says_cue, slots_of
from synth.blueprints.schedule import Cue
from synth.roles.observer import fact_forms
from synth.text.claims import has_chinese, has_word, normalise, numbers_in, read_claims
from synth.worlds import WORLDS
from synth.worlds.base import World

MAX_TURN_CHARACTERS = 1200
_MACHINE = re.compile(r"</?tool_call>|<\|im_|```|^\s*[{\[]", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_STEP = re.compile(r"^\s*(?:\d{1,2}\s*[.)、:：]|step\s+\d+\b|第\s*[一二三四五六七八九十\d]+\s*步)", re.MULTILINE | re.IGNORECASE)
_CUES: Mapping[Cue, str] = {
    "ask_first": "say that you want to be asked before anything is changed",
    "double_check": "say that you want it checked again before the answer",
    "together": "say that what can be done at the same time shall be done together",
}
_MIN_STEPS, _MIN_PARAMETERS = 3, 2
"""Numbered lines, and `name=value` pairs, from which on a text is a list of instructions."""


@dataclass(frozen=True, slots=True)
class Line:
    """One user turn.

    text: the wording of the plan.
    says: for each fact of the turn, its spellings; the message must contain one of them.
    hides: spellings that the message must not contain: of facts that are revealed later, or only referred to.
    cues: what the message must ask for, beside its goals.
    """

    text: str
    says: tuple[frozenset[str], ...] = ()
    hides: frozenset[str] = frozenset()
    cues: tuple[Cue, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """What a user knows: persona, goal and lines. tools, parameters: names that a person would not use."""

    language: Language
    persona: str
    goal: str
    lines: tuple[Line, ...]
    tools: tuple[str, ...] = ()
    parameters: frozenset[str] = frozenset()


def script_of(blueprint: Blueprint) -> Script:
    """The user's part of a blueprint: its goals and turn plan."""
    kind = WORLDS[blueprint.world]
    world = kind(blueprint.world_seed)
    try:
        facts = {
            f"{index}.{name}": frozenset(normalise(form) for form in world.slot_forms(goal.intent, {name: value}))
            for index, goal in enumerate(blueprint.goals)
            for name, value in goal.slots.items()
            if name in slots_of(kind, goal.intent) and name not in goal.hidden
        }
        offered = [tool for tool in world.tools if tool.name in blueprint.tools]
    finally:
        world.close()
    lines, withheld = [], dict[str, frozenset[str]]()
    for turn in blueprint.turns:
        withheld |= {fact: frozenset(fact_forms(kind, blueprint, fact)) for fact in turn.withholds}
        withheld = {fact: forms for fact, forms in withheld.items() if fact not in turn.reveals}
        says = tuple(forms for forms in facts.values() if mentions(turn.text, forms))
        hidden = _referenced_forms(kind, blueprint, turn).union(*withheld.values())
        lines.append(Line(turn.text, says, frozenset(form for form in hidden if not mentions(turn.text, {form})), turn.cues))
    return Script(
        language=blueprint.language,
        persona=blueprint.persona,
        goal="\n".join(f"- {goal.intent.replace('_', ' ')}: {_known_slots(goal)}" for goal in blueprint.goals),
        lines=tuple(lines),
        tools=tuple(tool.name for tool in offered),
        parameters=frozenset(name for tool in offered for name in tool.parameters.get("properties", {})),
    )


def _referenced_forms(world: type[World], blueprint: Blueprint, turn: TurnPlan) -> frozenset[str]:
    """Spellings of the slots that a turn's goals only refer to ("that order")."""
    goals = {blueprint.nodes[n].goal for step in turn.steps for n in step}.union(turn.settles)
    goals |= {int(fact.split(".", 1)[0]) for fact in (*turn.withholds, *turn.reveals)}
    facts = [f"{index}.{name}" for index in sorted(goals) for name in blueprint.goals[index].hidden]
    return frozenset(form for fact in facts for form in fact_forms(world, blueprint, fact))


def _known_slots(goal: Goal) -> str:
    """The slots that the user knows, without those that the goal only refers to."""
    known_slots = {name: value for name, value in goal.slots.items() if name not in goal.hidden}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in known_slots.items()) or "nothing more to say about it"


def script_problems(script: Script, turn: int, text: str, dialogue: Sequence[Message]) -> list[str]:
    """What is wrong with a user message, as instructions for its author; empty if it follows the script.

    dialogue: the messages so far; the user may repeat what they contain.
    """
    line = script.lines[turn]
    if not text.strip() or len(text) > MAX_TURN_CHARACTERS:
        return [f"say something, in at most {MAX_TURN_CHARACTERS:,} characters" if not text.strip() else "that is far too long"]
    problems = [f"say which: {shortest(forms)!r} is missing" for forms in line.says if not mentions(text, forms)]
    problems += [f"do not say {form!r} yet" for form in sorted(line.hides) if mentions(text, {form})]
    problems += [_CUES[cue] for cue in line.cues if not says_cue(text, cue)]
    problems += [f"you bring up {thing!r}, which is none of what you want" for thing in _invented_values(normalise(text), line, dialogue)]
    if _MACHINE.search(text):
        problems.append("write as a person writes: no JSON, no code, no markup")
    if has_chinese(text) != (script.language == "zh") and has_chinese(text) != has_chinese(line.text):
        problems.append(f"write in {'Chinese' if script.language == 'zh' else 'English'}")
    if not instruction_problems(line.text, script.tools, script.parameters):
        problems += instruction_problems(text, script.tools, script.parameters)
    return problems


def shortest(forms: Iterable[str]) -> str:
    """The shortest spelling; of several, the first by code point, so that a model is asked the same in every process."""
    return min(forms, key=lambda form: (len(form), form))


def mentions(text: str, forms: Iterable[str]) -> bool:
    """Whether a text contains one of these normalised spellings, word for word or as a number of the same value."""
    normal = normalise(text)
    values = {reading for number in numbers_in(normal) for reading in number.readings}
    return any(has_word(normal, form) or (_NUMBER.fullmatch(form) and float(form) in values) for form in forms)


def _invented_values(text: str, line: Line, dialogue: Sequence[Message]) -> list[str]:
    """Numbers of two or more digits, dates and identifiers that are neither in the plan nor in the dialogue."""
    known_text = normalise("\n".join([line.text, *(message.content or "" for message in dialogue)]))
    allowed, claimed = read_claims(known_text), read_claims(text)
    values = {reading for number in (*numbers_in(known_text, also_parts=True), *allowed.numbers) for reading in number.readings}
    numbers = [f"{number.value:g}" for number in claimed.numbers if abs(number.value) >= 10 and values.isdisjoint(number.readings)]
    return numbers + sorted(claimed.dates - allowed.dates) + sorted(one for one in claimed.ids if not has_word(known_text, one))


def instruction_problems(text: str, tools: Collection[str], parameters: Collection[str]) -> list[str]:
    """What makes a request a list of instructions that no person would write, as instructions for its author; empty if it is none.

    A policy that trains on such requests learns to copy. Found by form alone, in both languages: a tool is called by its name, parameters
    are given as `name=value`, or steps are numbered. A list of things ("order o17, two of them, in blue") is fine.

    Args:
        tools: names of the tools on offer; those that are ordinary words may be used.
        parameters: names of their parameters.
    """
    normal = normalise(text)
    coined = [tool for tool in sorted(tools) if "_" in tool or tool[1:] != tool[1:].lower()]
    problems = [f"do not name the tool {tool}; say what you want" for tool in coined if has_word(normal, tool.lower())]
    given = [name for name in sorted(parameters) if re.search(rf"(?<![a-z0-9_]){re.escape(name.lower())}\s*[=:：]\s*\S", normal)]
    if len(given) >= _MIN_PARAMETERS:
        problems.append(
            f"do not give arguments as a machine would ({', '.join(given[:4])}); say them in a sentence, and only what you care about"
        )
    if len(_STEP.findall(text)) >= _MIN_STEPS:
        problems.append("do not number the steps; say what you want to have in the end")
    return problems
