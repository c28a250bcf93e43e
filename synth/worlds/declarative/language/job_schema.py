"""The form of a spec's own jobs: kinds of slots, and intents as steps that look, act, tell or refuse (docs/worlds.md, "Jobs of your own").

One idea: a step is a mapping whose first key says what it does (`get: order`, `do: buy`), so a job reads as a list of what is done.
`job_steps.py` gives steps their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from storage.records import RefusalReason
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import Expression, Key, Phrase, Strict, Template

MAX_STEPS, MAX_REQUESTS = 12, 40


# ---- kinds of slots ---------------------------------------------------------------------------------------------------------------


class ChoiceKind(schema.ChoiceParam):
    """A few values; `like: entity.field` takes those of a choice or name."""


class _Usual(Strict):
    """usual: values that people usually say; by default all steps from min to max."""

    usual: tuple[float, ...] = Field(default=(), max_length=40)


class IntegerKind(schema.IntegerParam, _Usual):
    pass


class NumberKind(schema.NumberParam, _Usual):
    pass


class MoneyKind(schema.MoneyParam, _Usual):
    pass


class DateKind(schema.DateParam):
    pass


class TimeKind(schema.TimeParam):
    pass


class MarkKind(Strict):
    """Something that a request mentions or not: yes or no in expressions. words: how a request mentions it."""

    type: Literal["mark"]
    words: Phrase


KindSpec = ChoiceKind | IntegerKind | NumberKind | MoneyKind | DateKind | TimeKind | MarkKind
KIND_TYPES: Mapping[str, type[Strict]] = {
    "choice": ChoiceKind, "integer": IntegerKind, "number": NumberKind, "money": MoneyKind, "date": DateKind, "time": TimeKind,
    "mark": MarkKind,
}  # fmt: skip


# ---- steps ------------------------------------------------------------------------------------------------------------------------


class GetStep(Strict):
    """Gets the row that a slot names."""

    get: Key


class ListStep(Strict):
    """Lists the rows of an owner and takes the only one with these values.

    list: the entity.
    row: the name of the row in later steps; by default that of its entity.
    of: the owner.
    """

    list: Key
    row: Key | None = Field(default=None, alias="as")
    of: Expression
    where: dict[Key, Expression] = Field(min_length=1, max_length=4)


class SearchStep(Strict):
    """Searches and takes the first row. where: filters. sort: an order that the search has; without one, any row that fits will
    do where only its name is told, and for all else exactly one may fit."""

    search: Key
    row: Key | None = Field(default=None, alias="as")
    where: dict[Key, Expression] = Field(default_factory=dict, max_length=16)
    sort: Expression | None = None


class DoStep(Strict):
    """Calls an action.

    given: its arguments; by default, the slot or row with the parameter's name.
    words: what the assistant says afterwards, with {parameter} fields, instead of the action's own reply.
    """

    do: Key
    given: dict[Key, Expression] = Field(default_factory=dict, alias="with", max_length=8)
    words: Template | None = None


class RunStep(Strict):
    """Runs the steps of a procedure."""

    run: Key


class ChooseStep(Strict):
    """Runs the steps of the first case that holds. Earlier steps must have shown what its condition reads."""

    choose: tuple[Any, ...] = Field(min_length=1, max_length=6)


class Case(Strict):
    condition: Expression = Field(alias="if")
    steps: tuple[Any, ...] = Field(min_length=1, max_length=MAX_STEPS)


class FitsStep(Strict):
    """A condition without which the request makes no sense. No step needs to show it."""

    fits: Expression


class TellStep(Strict):
    """States a value in the answer: a field of a row, or a number in the reply of an action (`buy.total`).

    condition: a mark; without it the value is not stated.
    words: with {value}, and rows by their names.
    """

    tell: Annotated[str, Field(pattern=r"^\w+\.\w+$", max_length=80)]
    condition: Key | None = Field(default=None, alias="if")
    words: Template | None = None


class RefuseStep(Strict):
    """Refuses, for this reason."""

    refuse: RefusalReason
    words: Phrase


class Answer(Strict):
    """An answer without a tool; the words contain the value."""

    value: str = Field(min_length=1, max_length=40)
    words: Phrase

    @model_validator(mode="after")
    def _says_the_value(self) -> Answer:
        if any(self.value.lower() not in words.lower() for words in (self.words.en, self.words.zh)):
            raise ValueError(f"words: both languages must contain {self.value!r}")
        return self


class AnswerStep(Strict):
    """Answers from the system prompt, by the value of a slot."""

    answer: Key
    given: dict[Key, Any] = Field(alias="from", min_length=2, max_length=40)


STEP_TYPES: Mapping[str, type[Strict]] = {
    "get": GetStep, "list": ListStep, "search": SearchStep, "do": DoStep, "run": RunStep, "choose": ChooseStep, "fits": FitsStep,
    "tell": TellStep, "refuse": RefuseStep, "answer": AnswerStep,
}  # fmt: skip


class IntentSpec(Strict):
    """A job of the spec's own.

    leaf: its place in the taxonomy, below the domain.
    slots: what a request says: by slot, its kind, or the entity whose row it names.
    optional: slots that a request may leave out.
    steps: what is done.
    says: whole requests with {slot} fields.
    """

    leaf: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$", max_length=80)]
    slots: dict[Key, Key] = Field(default_factory=dict, max_length=24)
    optional: tuple[Key, ...] = ()
    steps: tuple[Any, ...] = Field(min_length=1, max_length=MAX_STEPS)
    says: tuple[Template, ...] = Field(default=(), max_length=MAX_REQUESTS)
