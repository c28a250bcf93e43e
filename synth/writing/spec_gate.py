"""The gate for written domain specs: a spec must be YAML, compile, have tasks that are admitted, and be unlike every known world.

One idea: each stage explains its problems so that the author, also a language model, can correct them: the compiler's messages, the reasons
of refused tasks, the world that is too similar. The first failed stage is the outcome. Nothing is stored, and no world stays registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from synth.tasks.assessment import assess
from synth.worlds.declarative.acting import Refused
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.spec_schema import SpecHead
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.writing.similarity import Signatures, signatures_of, similarity

Outcome = Literal["kept", "no_yaml", "does_not_compile", "other_tools", "not_admitted", "too_alike", "infra_failure"]

_MAX_PROBLEMS = 15
"""Problems reported at once: with more, a model corrects fewer."""
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_TOP = re.compile(rf"^(?:(?:{'|'.join(SpecHead.model_fields)}):|\{{)", re.MULTILINE)
"""The beginning of a spec: a top-level key, or a brace."""
_DOMAIN = re.compile(r"^\s*\{?\s*\"?domain\"?:", re.MULTILINE)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


class SpecGateConfig(BaseModel):
    """Conditions for keeping a written spec."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks_per_intent: int = Field(4, ge=1, le=100, description="Tasks drawn of every intent; it is admitted where half of them are.")
    least_intents: int = Field(20, ge=1, description="Intents that must be admitted.")
    least_intent_share: float = Field(0.95, ge=0, le=1, description="Share of a spec's intents that must be admitted.")
    most_alike: float = Field(0.5, gt=0, le=1, description="Similarity to a known world, 0 to 1, from which on a spec is refused.")


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of the gate.

    outcome: `kept` if the spec passed every stage, else the failed stage.
    problems: one line each, as instructions for the author.
    text: the spec alone.
    intents: (admitted, drawn).
    most_similar: the most similar known world, and its similarity, 0 to 1.
    """

    outcome: Outcome
    problems: tuple[str, ...] = ()
    text: str = ""
    world: type[SpecWorld] | None = None
    intents: tuple[int, int] = (0, 0)
    most_similar: tuple[str, float] = ("", 0.0)


def check_answer(answer: str, known: Mapping[str, Signatures], config: SpecGateConfig) -> GateResult:
    """Checks a model's answer. known: the worlds that the spec must differ from, by name."""
    text = yaml_in(answer)
    if text is None:
        return GateResult("no_yaml", ("there is no spec in the answer; give the whole file, in one block that begins with ```yaml",))
    try:
        world = compile_spec(parse_text(text))
    except SpecError as error:
        return GateResult("does_not_compile", first_problems(str(problem) for problem in error.problems), text)
    intents, problems = check_tasks(world, config)
    if problems:
        return GateResult("not_admitted", problems, text, world, intents)
    signatures = signatures_of(world)
    most_similar = name, share = max(
        ((each, similarity(signatures, other)) for each, other in known.items()), key=lambda pair: pair[1], default=("", 0.0)
    )
    if share >= config.most_alike:
        problem = (
            f"its tools are {share:.0%} the same as those of {name}, by names or by the types of their parameters; it must be below "
            f"{config.most_alike:.0%}. Other names do not help: give actions other parameters, entities other fields and references"
        )
        return GateResult("too_alike", (problem,), text, world, intents, most_similar)
    return GateResult("kept", (), text, world, intents, most_similar)


def yaml_in(answer: str) -> str | None:
    """The spec in an answer: the last fenced block with a domain, else everything from the beginning of a spec; None if there is none."""
    text = _THOUGHT.sub("", answer).replace("\ufeff", "")
    blocks: list[str] = [block for block in _FENCED.findall(text) if _DOMAIN.search(block)]
    if blocks:
        return blocks[-1].strip() + "\n"
    begin = _TOP.search(text)
    return text[begin.start() :].strip() + "\n" if begin and _DOMAIN.search(text) else None


def check_tasks(world: type[SpecWorld], config: SpecGateConfig) -> tuple[tuple[int, int], tuple[str, ...]]:
    """Numbers of admitted and of all intents, and the problems, if too few are admitted. An intent is admitted if half of its tasks are."""
    jobs = world.jobs()
    try:
        assessment = assess(world, config.tasks_per_intent * len(jobs), seed=0)
    except OverflowError as error:
        return (0, len(jobs)), (f"numbers grow out of all bounds when tasks are drawn ({error}); look at what is multiplied",)
    except (ValueError, Refused) as error:
        return (0, len(jobs)), (f"tasks cannot be drawn: {error}",)
    admitted = sum(2 * assessment.admitted.get(intent.name, 0) >= config.tasks_per_intent for intent in jobs)
    if admitted >= max(config.least_intents, config.least_intent_share * len(jobs)):
        return (admitted, len(jobs)), ()
    advice = "let more rows fit what actions need, and break one rule at a time; add actions, rules, searched entities and questions"
    least = f"at least {config.least_intents} and {config.least_intent_share:.0%} must be"
    head = f"tasks of only {admitted} of {len(jobs)} intents can be solved; {least}"
    refused = (f"{why} ({count} of {config.tasks_per_intent} tasks)" for why, count in assessment.refused.most_common(_MAX_PROBLEMS))
    left_out = (f"{name}: left out, {why}" for name, why in world.unsolvable.items())
    return (admitted, len(jobs)), first_problems((f"{head}; {advice}", *refused, *left_out))


def first_problems(problems: Iterable[str]) -> tuple[str, ...]:
    """The problems without copies; of many the first."""
    distinct = tuple(dict.fromkeys(problems))
    return distinct if len(distinct) <= _MAX_PROBLEMS else (*distinct[:_MAX_PROBLEMS], f"and {len(distinct) - _MAX_PROBLEMS} more")
