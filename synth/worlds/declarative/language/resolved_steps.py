"""A spec's own jobs with all names resolved: slots with their kinds, and steps with entities, actions and compiled expressions.

`job_steps.py` builds them from `job_schema.py`; `intents/spec_jobs.py` makes plans of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.records import RefusalReason
from synth.worlds.declarative.domain import Act, Entity, Field
from synth.worlds.declarative.language import job_schema
from synth.worlds.declarative.language.expression_types import Compiled, Type
from synth.worlds.declarative.language.values import Words


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of slots. words: the values of a choice or mark."""

    name: str
    spec: job_schema.KindSpec
    type: Type
    words: Mapping[str, Words]

    @property
    def is_mark(self) -> bool:
        return isinstance(self.spec, job_schema.MarkKind)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a step. slot: the slot if `value` is just that; the argument is left out where a request leaves the slot out."""

    value: Compiled
    slot: str = ""


@dataclass(frozen=True, slots=True)
class GetRow:
    """Gets the row that a slot names."""

    row: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class ListRow:
    """Lists the rows of an owner (`of`) and takes the only one with these values."""

    row: str
    entity: Entity
    owner: Field
    of: Argument
    where: tuple[tuple[Field, Argument], ...]


@dataclass(frozen=True, slots=True)
class SearchRow:
    """Searches and takes the first row; without an order the only one. where: by filter."""

    row: str
    entity: Entity
    where: Mapping[str, tuple[Field, Argument]]
    sort: Argument | None


@dataclass(frozen=True, slots=True)
class DoAction:
    """Calls an action. words: what the assistant says afterwards; None for the action's own reply."""

    act: Act
    given: Mapping[str, Argument]
    words: Words | None


@dataclass(frozen=True, slots=True)
class Choose:
    """Runs the steps of the first case whose test holds."""

    cases: tuple[tuple[Compiled, tuple[Any, ...]], ...]


@dataclass(frozen=True, slots=True)
class Require:
    """Without this condition, the request does not fit the world."""

    test: Compiled


@dataclass(frozen=True, slots=True)
class TellValue:
    """States a value in the answer.

    row, name: the row and its field; or the action and the field of its reply.
    value, of: the compiled value and the field; None for a field of a reply.
    unit: the unit of a field of a reply.
    """

    spec: job_schema.TellStep
    row: str
    name: str
    value: Compiled | None = None
    of: Field | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: RefusalReason
    words: Words


@dataclass(frozen=True, slots=True)
class AnswerQuestion:
    """Answers without a tool, by the value of a slot."""

    slot: str
    answers: Mapping[str, job_schema.Answer]


ResolvedStep = GetRow | ListRow | SearchRow | DoAction | Choose | Require | TellValue | Refuse | AnswerQuestion


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """A job. kinds: by slot, in order, its kind, or the entity whose row it names."""

    name: str
    spec: job_schema.IntentSpec
    kinds: Mapping[str, Kind | Entity]
    steps: tuple[ResolvedStep, ...]


def branches(steps: Sequence[ResolvedStep]) -> list[list[ResolvedStep]]:
    """All sequences of steps that a job can take, one per combination of cases."""
    prefixes: list[list[ResolvedStep]] = [[]]
    for step in steps:
        if isinstance(step, Choose):
            prefixes = [[*prefix, step, *rest] for prefix in prefixes for _, case in step.cases for rest in branches(case)]
        else:
            prefixes = [[*prefix, step] for prefix in prefixes]
    return prefixes


def last_steps(steps: Sequence[ResolvedStep]) -> list[ResolvedStep]:
    """The last step of every branch."""
    return [branch[-1] for branch in branches(steps) if branch]
