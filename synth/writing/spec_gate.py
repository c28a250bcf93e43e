"""The gate that a written domain spec has to pass: it is YAML, it compiles, its tasks are admitted, and it is like no world that is known.

One idea: each stage says what is wrong in words that whoever wrote the spec can act on, a language model too: the compiler's messages as a
person gets them, the reasons for which tasks were refused, and the tools that another world has already. The first stage that is not
passed is the outcome; later ones were not looked at. Nothing is kept here, and no world stays registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from synth.tasks.assessment import Assessment, assess
from synth.worlds.declarative.acting import Refused
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.schema import SpecHead
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.similarity import Signatures, likeness, signatures_of

Outcome = Literal["kept", "no_yaml", "does_not_compile", "not_admitted", "too_alike", "infra_failure"]

_TOLD = 15
"""Problems told at once: a model that is told of more mends fewer."""
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_TOP = re.compile(rf"^(?:(?:{'|'.join(SpecHead.model_fields)}):|\{{)", re.MULTILINE)
"""Where a spec begins: a key of its top, or a brace."""
_DOMAIN = re.compile(r"^\s*\{?\s*\"?domain\"?:", re.MULTILINE)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


class SpecGateConfig(BaseModel):
    """What a written spec must reach to be kept."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks_per_intent: int = Field(4, ge=1, le=100, description="Tasks drawn of every intent; it is admitted where half of them are.")
    least_intents: int = Field(20, ge=1, description="Intents that must be admitted.")
    least_intent_share: float = Field(0.95, ge=0, le=1, description="Share of a spec's intents that must be admitted.")
    most_alike: float = Field(0.5, gt=0, le=1, description="Likeness to any known world from which on a spec is too alike, 0 to 1.")


@dataclass(frozen=True, slots=True)
class Looked:
    """What became of a text. outcome: `kept` where it passed every stage.

    problems: what to do about it, a line each, empty where it passed. text: the spec alone. intents: (admitted, drawn). likest: the known
    world that it is most like, with how much.
    """

    outcome: Outcome
    problems: tuple[str, ...] = ()
    text: str = ""
    world: type[SpecWorld] | None = None
    intents: tuple[int, int] = (0, 0)
    likest: tuple[str, float] = ("", 0.0)


def look(answer: str, known: Mapping[str, Signatures], config: SpecGateConfig) -> Looked:
    """What becomes of what a model answered.

    Args:
        known: the worlds that it must differ from, by name.
    """
    text = yaml_in(answer)
    if text is None:
        return Looked("no_yaml", ("there is no spec in the answer; give the whole file, in one block that begins with ```yaml",))
    try:
        world = compile_spec(parse_text(text))
    except SpecError as error:
        return Looked("does_not_compile", _cut(str(problem) for problem in error.problems), text)
    drawn = _drawn(world, config)
    intents = _admitted(world, drawn, config)
    if problems := _not_admitted(world, drawn, intents, config):
        return Looked("not_admitted", problems, text, world, intents)
    likest = likest_of(signatures_of(world), known)
    if likest[1] >= config.most_alike:
        return Looked("too_alike", _alike(*likest, config), text, world, intents, likest)
    return Looked("kept", (), text, world, intents, likest)


def yaml_in(answer: str) -> str | None:
    """The spec in an answer, None where there is none: the last block in fences that has a domain, else all from where one begins."""
    said = _THOUGHT.sub("", answer).replace("\ufeff", "")
    blocks: list[str] = [block for block in _FENCED.findall(said) if _DOMAIN.search(block)]
    if blocks:
        return blocks[-1].strip() + "\n"
    found = _TOP.search(said)
    return said[found.start() :].strip() + "\n" if found and _DOMAIN.search(said) else None


def likest_of(signatures: Signatures, known: Mapping[str, Signatures]) -> tuple[str, float]:
    """The known world that is most like these tools, and how much; nothing and 0 where none is known."""
    return max(((name, likeness(signatures, other)) for name, other in known.items()), key=lambda found: found[1], default=("", 0.0))


# ---- admission -------------------------------------------------------------------------------------------------------------


def _drawn(world: type[SpecWorld], config: SpecGateConfig) -> Assessment | str:
    """Tasks of every intent, admitted one by one; or why they cannot be drawn at all."""
    try:
        return assess(world, config.tasks_per_intent * len(world.jobs()), seed=0)
    except OverflowError as error:
        return f"numbers grow out of all bounds when tasks are drawn ({error}); look at what is multiplied"
    except (ValueError, Refused) as error:
        return f"tasks cannot be drawn: {error}"


def _admitted(world: type[SpecWorld], drawn: Assessment | str, config: SpecGateConfig) -> tuple[int, int]:
    """Of how many intents half of the tasks were admitted, and how many there are."""
    counts = {} if isinstance(drawn, str) else drawn.admitted
    return sum(2 * counts.get(intent.name, 0) >= config.tasks_per_intent for intent in world.jobs()), len(world.jobs())


def _not_admitted(world: type[SpecWorld], drawn: Assessment | str, intents: tuple[int, int], config: SpecGateConfig) -> tuple[str, ...]:
    if isinstance(drawn, str):
        return (drawn,)
    admitted, of = intents
    if admitted >= max(config.least_intents, config.least_intent_share * of):
        return ()
    advice = "let more rows fit what actions need, and break one rule at a time; add actions, rules, searched entities and questions"
    least = f"at least {config.least_intents} and {config.least_intent_share:.0%} must be"
    head = f"tasks of only {admitted} of {of} intents can be solved; {least}"
    refused = (f"{why} ({count} of {config.tasks_per_intent} tasks)" for why, count in drawn.refused.most_common(_TOLD))
    left_out = (f"{name}: left out, {why}" for name, why in world.unsolvable.items())
    return _cut((f"{head}; {advice}", *refused, *left_out))


def _alike(name: str, share: float, config: SpecGateConfig) -> tuple[str, ...]:
    return (
        f"its tools are {share:.0%} the same as those of {name}, by names or by the types of their parameters; it must be below "
        f"{config.most_alike:.0%}. Other names do not help: give actions other parameters, entities other fields and references",
    )


def _cut(problems: Iterable[str]) -> tuple[str, ...]:
    told = tuple(dict.fromkeys(problems))
    return told if len(told) <= _TOLD else (*told[:_TOLD], f"and {len(told) - _TOLD} more")
