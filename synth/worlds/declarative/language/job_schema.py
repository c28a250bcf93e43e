"""The form of a spec's own jobs: kinds of slots, and intents as steps that look, act, tell or refuse (docs/worlds.md, "Jobs of your own").

One idea: a step is a mapping whose one leading key says what it does (`get: order`, `do: buy`), so that a job reads as what is done,
line by line. What steps mean is `job_steps.py`'s business, as `resolve.py` is the rest's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from storage.records import RefusalReason
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import Expression, Key, Phrase, Strict, Template

MAX_STEPS, MAX_SAID = 12, 40


# ---- kinds of slots ---------------------------------------------------------------------------------------------------------------


class ChoiceKind(schema.ChoiceParam):
    """Some words with a meaning each; `like: entity.field`: the values of that field, a name's too."""


class _Usual(Strict):
    """usual: the values that people usually say; the steps from min to max if none are given."""

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
    """Something that a request says or does not say: yes or no for expressions. words: how it is said."""

    type: Literal["mark"]
    words: Phrase


KindSpec = ChoiceKind | IntegerKind | NumberKind | MoneyKind | DateKind | TimeKind | MarkKind
KIND_TYPES: Mapping[str, type[Strict]] = {
    "choice": ChoiceKind, "integer": IntegerKind, "number": NumberKind, "money": MoneyKind, "date": DateKind, "time": TimeKind,
    "mark": MarkKind,
}  # fmt: skip


# ---- steps ------------------------------------------------------------------------------------------------------------------------


class GetStep(Strict):
    """The row of a slot is looked at."""

    get: Key


class ListStep(Strict):
    """The only one that has these values among the rows of an owner, in their list. list: the entity; row: what it is called from here on,
    if not as its entity."""

    list: Key
    row: Key | None = Field(default=None, alias="as")
    of: Expression
    where: dict[Key, Expression] = Field(min_length=1, max_length=4)


class SearchStep(Strict):
    """The first one of a search. where: filters. sort: the order, one that the search has."""

    search: Key
    row: Key | None = Field(default=None, alias="as")
    where: dict[Key, Expression] = Field(min_length=1, max_length=8)
    sort: Expression


class DoStep(Strict):
    """An action is done. given: its parameters, where they are not what goes by their names here. words: what one says of it, in place of
    the action's own reply; with its parameters by name."""

    do: Key
    given: dict[Key, Expression] = Field(default_factory=dict, alias="with", max_length=8)
    words: Template | None = None


class RunStep(Strict):
    """The steps of a procedure."""

    run: Key


class ChooseStep(Strict):
    """The steps of the first case that holds; what decides it has to be seen."""

    choose: tuple[Any, ...] = Field(min_length=1, max_length=6)


class Case(Strict):
    condition: Expression = Field(alias="if")
    steps: tuple[Any, ...] = Field(min_length=1, max_length=MAX_STEPS)


class FitsStep(Strict):
    """A condition without which the request makes no sense; nobody has to see it."""

    fits: Expression


class TellStep(Strict):
    """A value that the answer says: a field of a row, or a number that an action has told (`buy.total`). condition: a mark without which it
    is not said. words: with {value}, and rows by their names."""

    tell: Annotated[str, Field(pattern=r"^\w+\.\w+$", max_length=80)]
    condition: Key | None = Field(default=None, alias="if")
    words: Template | None = None


class RefuseStep(Strict):
    """The right act is to refuse, for this reason."""

    refuse: RefusalReason
    words: Phrase


class Answer(Strict):
    """What is told without a tool; the words contain the value."""

    value: str = Field(min_length=1, max_length=40)
    words: Phrase

    @model_validator(mode="after")
    def _says_the_value(self) -> Answer:
        if any(self.value.lower() not in words.lower() for words in (self.words.en, self.words.zh)):
            raise ValueError(f"words: both languages must contain {self.value!r}")
        return self


class AnswerStep(Strict):
    """What the opening of the conversation says, by the value of a slot."""

    answer: Key
    given: dict[Key, Any] = Field(alias="from", min_length=2, max_length=40)


STEP_TYPES: Mapping[str, type[Strict]] = {
    "get": GetStep, "list": ListStep, "search": SearchStep, "do": DoStep, "run": RunStep, "choose": ChooseStep, "fits": FitsStep,
    "tell": TellStep, "refuse": RefuseStep, "answer": AnswerStep,
}  # fmt: skip


class IntentSpec(Strict):
    """A job of the file's own.

    leaf: its place in the taxonomy, below the domain. slots: what a request says, each with its kind, or the entity whose row it names;
    optional: those that it may leave out. steps: what is done. says: whole requests, with
    {slot} fields.
    """

    leaf: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$", max_length=80)]
    slots: dict[Key, Key] = Field(default_factory=dict, max_length=12)
    optional: tuple[Key, ...] = ()
    steps: tuple[Any, ...] = Field(min_length=1, max_length=MAX_STEPS)
    says: tuple[Template, ...] = Field(default=(), max_length=MAX_SAID)
