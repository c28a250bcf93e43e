"""What a simulated user has to say, turn by turn, and whether it did: the measured error of a user that is a language model.

A published finding makes this a part of its own: a user simulator that strays from its goal cost a policy ten points in RL. So every turn
is checked by code before the assistant sees it. Checked: the facts that the turn has to tell are there, in a spelling that a call may
carry; what is withheld is not; no number, date or identifier is made up; the language; nothing that only a machine would say; and that it
is not a list of instructions (`over_specified.py`). Not checked: tone, and whether a turn without facts ("yes, go ahead") says the
opposite.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.records import Language, Message
from synth.blueprints.blueprint import Blueprint, Goal, TurnPlan
from synth.blueprints.phrases import slots_of
from synth.roles.observer import fact_forms
from synth.roles.over_specified import spelled_out
from synth.text.claims import has_chinese, has_word, normalise, numbers_in, read_claims
from synth.worlds import WORLDS
from synth.worlds.base import World

LONGEST_TURN = 1200
"""Characters of a turn."""
_MACHINE = re.compile(r"</?tool_call>|<\|im_|```|^\s*[{\[]", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Line:
    """One user turn.

    text: as the plan words it. says: of every fact that it tells, the spellings, one of which must be there. hides: spellings of what must
    not be said: not yet, or not at all, where it is only pointed at.
    """

    text: str
    says: tuple[frozenset[str], ...] = ()
    hides: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Script:
    """What a user knows: who they are, what they want, and what they are going to say. tools: names that only a machine would say."""

    language: Language
    persona: str
    goal: str
    lines: tuple[Line, ...]
    tools: tuple[str, ...] = ()
    parameters: frozenset[str] = frozenset()


def script_of(blueprint: Blueprint) -> Script:
    """The user's part of a blueprint, whose goals and turn plan are all that it sees."""
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
        told = tuple(forms for forms in facts.values() if tells(turn.text, forms))
        hidden = _pointed_at(kind, blueprint, turn).union(*withheld.values())
        lines.append(Line(turn.text, told, frozenset(form for form in hidden if not tells(turn.text, {form}))))
    return Script(
        language=blueprint.language,
        persona=blueprint.persona,
        goal="\n".join(f"- {goal.intent.replace('_', ' ')}: {_listed(goal)}" for goal in blueprint.goals),
        lines=tuple(lines),
        tools=tuple(tool.name for tool in offered),
        parameters=frozenset(name for tool in offered for name in tool.parameters.get("properties", {})),
    )


def _pointed_at(world: type[World], blueprint: Blueprint, turn: TurnPlan) -> frozenset[str]:
    """Spellings of what a turn's goals leave to the answer before."""
    goals = {blueprint.nodes[n].goal for step in turn.steps for n in step}.union(turn.settles)
    goals |= {int(fact.split(".", 1)[0]) for fact in (*turn.withholds, *turn.reveals)}
    pointed = [f"{index}.{name}" for index in sorted(goals) for name in blueprint.goals[index].hidden]
    return frozenset(form for fact in pointed for form in fact_forms(world, blueprint, fact))


def strayed(script: Script, turn: int, text: str, dialogue: Sequence[Message]) -> list[str]:
    """What is wrong with what the user says in a turn, in words that can be told to it; empty if it keeps to the script.

    dialogue: so far; what was said or shown there may be said again.
    """
    line, said = script.lines[turn], normalise(text)
    if not text.strip() or len(text) > LONGEST_TURN:
        return [f"say something, in at most {LONGEST_TURN:,} characters" if not text.strip() else "that is far too long"]
    problems = [f"say which: {min(forms, key=len)!r} is missing" for forms in line.says if not tells(text, forms)]
    problems += [f"do not say {form!r} yet" for form in sorted(line.hides) if tells(text, {form})]
    problems += [f"you bring up {thing!r}, which is none of what you want" for thing in _made_up(said, line, dialogue)]
    if _MACHINE.search(text):
        problems.append("write as a person writes: no JSON, no code, no markup")
    if not _is_in(script.language, text, line.text):
        problems.append(f"write in {'Chinese' if script.language == 'zh' else 'English'}")
    if not spelled_out(line.text, script.tools, script.parameters):
        problems += spelled_out(text, script.tools, script.parameters)
    return problems


def tells(text: str, forms: Mapping[str, object] | Sequence[str] | frozenset[str] | set[str]) -> bool:
    """Whether a text holds one of these spellings (normalised), word for word, or as a number of the same value."""
    said = normalise(text)
    values = {reading for number in numbers_in(said) for reading in number.readings}
    return any(has_word(said, form) or (_is_number(form) and float(form) in values) for form in forms)


def _is_number(form: str) -> bool:
    return _NUMBER.fullmatch(form) is not None


def _made_up(said: str, line: Line, dialogue: Sequence[Message]) -> list[str]:
    """Numbers of more than one digit, dates and identifiers that neither the plan nor anybody before has brought up."""
    known = normalise("\n".join([line.text, *(message.content or "" for message in dialogue)]))
    there, claimed = read_claims(known), read_claims(said)
    values = {reading for number in (*numbers_in(known, also_parts=True), *there.numbers) for reading in number.readings}
    found = [f"{number.value:g}" for number in claimed.numbers if abs(number.value) >= 10 and values.isdisjoint(number.readings)]
    found += sorted(claimed.dates - there.dates)
    return found + sorted(identifier for identifier in claimed.ids if not has_word(known, identifier))


def _is_in(language: Language, text: str, planned: str) -> bool:
    """A text of numbers and names alone is of every language."""
    if language == "zh":
        return has_chinese(text) or not has_chinese(planned)
    return not has_chinese(text) or has_chinese(planned)


def _listed(goal: Goal) -> str:
    """The slots that the user knows; what a goal only points at, nobody has told them."""
    known = {name: value for name, value in goal.slots.items() if name not in goal.hidden}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in known.items()) or "nothing more to say about it"
