"""The form of a spec's fields and parameters: one pydantic model per type. Everything else in a file is in `spec_schema.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.values import Clock, Expression, Key, NameList, Phrase, ProperName, Strict, Unit

MAX_VALUES = 40
MAX_WEIGHT = 1_000_000
CLOCK_STEPS = (5, 10, 15, 30)


# ---- typed values -----------------------------------------------------------------------------------------------------------------


class _Ref(Strict):
    to: Key


class _Choice(Strict):
    values: dict[Key, Phrase] = Field(default_factory=dict, max_length=MAX_VALUES)


class _Whole(Strict):
    min: int
    max: int
    step: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _is_a_range(self) -> _Whole:
        _check_range(self.min, self.max, self.step)
        return self


class _Integer(_Whole):
    unit: Unit = "count"


class _Number(Strict):
    """Numbers with at most one decimal."""

    min: float
    max: float
    step: float = Field(default=0.5, ge=0.1)
    unit: Unit = "count"

    @model_validator(mode="after")
    def _is_a_range(self) -> _Number:
        _check_range(self.min, self.max, self.step)
        if any(round(value, 1) != value for value in (self.min, self.max, self.step)):
            raise ValueError("min, max and step have one decimal at most")
        return self


def _check_range(low: float, high: float, step: float) -> None:
    if not low < high:
        raise ValueError("min must be below max")
    if abs(low) > 1_000_000 or abs(high) > 1_000_000:
        raise ValueError("keep it within a million")
    if (high - low) / step > 100_000:
        raise ValueError("too many steps between min and max; take a larger step")


class _Date(Strict):
    first: int = Field(alias="from", ge=-3650, le=3650)
    last: int = Field(alias="to", ge=-3650, le=3650)

    @model_validator(mode="after")
    def _is_a_range(self) -> _Date:
        if self.first >= self.last:
            raise ValueError("`from` must be below `to` (days from today; past days are negative)")
        return self


class _Time(Strict):
    """step: minutes between two times."""

    first: Clock = Field(default="08:00", alias="from")
    last: Clock = Field(default="18:00", alias="to")
    step: int = 30

    @model_validator(mode="after")
    def _is_a_range(self) -> _Time:
        if self.first >= self.last:
            raise ValueError("`from` must be before `to`")
        if self.step not in CLOCK_STEPS:
            raise ValueError(f"step: {', '.join(map(str, CLOCK_STEPS))} minutes, one of these")
        return self


class _Labelled(Strict):
    """What fields and parameters share.

    label: the name.
    phrase: how a request mentions a value, with _ for the value (`under _ / _以内`).
    """

    label: Phrase | None = None
    phrase: Phrase | None = None

    @model_validator(mode="after")
    def _has_a_place(self) -> _Labelled:
        if self.phrase is not None and not (self.phrase.en.count("_") == 1 == self.phrase.zh.count("_")):
            raise ValueError("phrase: put _ where the value stands, once in each language, e.g. for _")
        return self


class _RowField(_Labelled):
    """What all fields of a row share.

    detail: only the `get` tool shows it; lists and searches do not.
    filter: how `search` filters by it (`between`: by least and most; `only`: a flag that a call may require but not exclude).
    starts: expression for the value in a fresh world; there the field's name stands for the random value.
    derived: expression for a value that is never stored.
    """

    detail: bool = False
    filter: Literal["equal", "max", "min", "between", "only", "none"] | None = None
    starts: Expression | None = None
    derived: Expression | None = None


class _Ranked(Strict):
    """low, high: superlatives (`cheapest / 最便宜的`). Each adds a search order and a question for the first row in it."""

    low: Phrase | None = None
    high: Phrase | None = None


class _Grouped(Strict):
    """within: a field above; in a fresh world, rows with equal values there differ in this field."""

    within: Key | None = None


class RefField(_Ref, _RowField, _Grouped):
    """A row of another entity.

    owned: the row belongs to that row; a tool lists the rows of one owner.
    even: in a fresh world, each row of the other entity is referred to equally often.
    apart: a field of the other entity; the rows that one group (`within`) refers to differ in it.
    """

    type: Literal["ref"]
    owned: bool = False
    even: bool = False
    apart: Key | None = None

    @model_validator(mode="after")
    def _is_distributed_in_one_way(self) -> RefField:
        if self.apart is not None and self.within is None:
            raise ValueError("apart: say `within` which field's groups they are to differ")
        if self.even and self.within is not None:
            raise ValueError("give `even` or `within`, not both")
        return self


class ChoiceField(_Choice, _RowField, _Grouped):
    """One of a few values.

    like: `entity.field`, whose values a derived field shares.
    weights: relative frequencies in a fresh world; 1 if not given.
    even: in a fresh world, each value occurs equally often.
    guarded: an answer may name only values that occurred earlier in the conversation.
    mix: rows of a group (`within`) per value: `[4, 3, 3]` gives three values.
    """

    type: Literal["choice"]
    like: str | None = None
    weights: dict[Key, float] = Field(default_factory=dict)
    even: bool = False
    guarded: bool = False
    mix: tuple[Annotated[int, Field(ge=1, le=999)], ...] = Field(default=(), max_length=MAX_VALUES)

    @model_validator(mode="after")
    def _has_values(self) -> ChoiceField:
        if bool(self.mix) != (self.within is not None):
            raise ValueError("give `within` and `mix` together: which rows are a group, and how often it has each of its values")
        if (self.even, bool(self.mix), bool(self.weights)).count(True) > 1:
            raise ValueError("give `even`, `mix` or `weights`, one of them")
        if self.like is not None:
            if self.values:
                raise ValueError("give either `values` or `like: entity.field`")
            if self.derived is None:
                raise ValueError("like: only for a field that is `derived`; give `values`")
            return self
        if len(self.mix) > len(self.values):
            raise ValueError(f"mix: {len(self.mix)} values of {len(self.values)}")
        if len(self.values) < 2:
            raise ValueError("values: give at least two, each as key: words")
        if unknown := sorted(set(self.weights) - set(self.values)):
            raise ValueError(f"weights: {unknown[0]!r} is no value; {nearest(unknown[0], self.values)}")
        is_outside = any(not 0 <= weight <= MAX_WEIGHT for weight in self.weights.values())
        if is_outside or (self.weights and not any(self.weights.get(key, 1) for key in self.values)):
            raise ValueError(f"weights: from 0 to {MAX_WEIGHT:,}, and one at least above 0")
        return self


class IntegerField(_Integer, _RowField, _Ranked, _Grouped):
    type: Literal["integer"]


class NumberField(_Number, _RowField, _Ranked):
    type: Literal["number"]


class MoneyField(_Whole, _RowField, _Ranked, _Grouped):
    """Whole units of the domain's currency."""

    type: Literal["money"]


class DateField(_Date, _RowField, _Ranked):
    type: Literal["date"]


class TimeField(_Time, _RowField, _Ranked):
    type: Literal["time"]


class FlagField(_RowField):
    """Yes or no.

    share: the fraction of rows with yes in a fresh world.
    want: how a request asks for it: `with breakfast / 含早餐的`.
    """

    type: Literal["flag"]
    share: float = Field(default=0.5, ge=0, le=1)
    want: Phrase | None = None


ONE_SOURCE = "give either `list` (person, city, company, street) or `values`"


class NameField(_RowField):
    """A proper name, from a built-in list or from `values`; rows have different names while there are enough.

    open: a request may have any other name, and then the world has a row of that name.
    """

    type: Literal["name"]
    open: bool = False
    list: NameList | None = None
    values: tuple[ProperName, ...] = Field(default=(), max_length=200)

    @model_validator(mode="after")
    def _has_one_source(self) -> NameField:
        if self.list is not None and self.values:
            raise ValueError(ONE_SOURCE)
        if any(len({words[language] for words in self.values}) < len(self.values) for language in ("en", "zh")):
            raise ValueError("values: two names are the same")
        return self


FieldSpec = RefField | ChoiceField | IntegerField | NumberField | MoneyField | DateField | TimeField | FlagField | NameField
FIELD_TYPES: Mapping[str, type[Strict]] = {
    "ref": RefField, "choice": ChoiceField, "integer": IntegerField, "number": NumberField, "money": MoneyField, "date": DateField,
    "time": TimeField, "flag": FlagField, "name": NameField,
}  # fmt: skip


class _Parameter(_Labelled):
    """What all parameters share.

    default: its value if a call leaves it out.
    optional: of a tool that only reads: a call may leave it out, and then nothing is filtered by it.
    """

    default: Any = None
    optional: bool = False


class RefParam(_Ref, _Parameter):
    type: Literal["ref"]


class ChoiceParam(_Choice, _Parameter):
    """One of a few values. like: `entity.field`, whose values it takes."""

    type: Literal["choice"]
    like: str | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> ChoiceParam:
        if (self.like is None) == (not self.values):
            raise ValueError("give either `values` or `like: entity.field`")
        return self


class NameParam(_Parameter):
    """Any name. like: `entity.field`, a name that is `open`."""

    type: Literal["name"]
    like: str


class IntegerParam(_Integer, _Parameter):
    type: Literal["integer"]


class NumberParam(_Number, _Parameter):
    type: Literal["number"]


class MoneyParam(_Whole, _Parameter):
    type: Literal["money"]


class DateParam(_Date, _Parameter):
    type: Literal["date"]

    @model_validator(mode="after")
    def _is_ahead(self) -> DateParam:
        if self.first < 0:
            raise ValueError("from: a request can only name days from today on (0 or more)")
        return self


class TimeParam(_Time, _Parameter):
    type: Literal["time"]


class FlagParam(_Parameter):
    type: Literal["flag"]


ParamSpec = RefParam | ChoiceParam | NameParam | IntegerParam | NumberParam | MoneyParam | DateParam | TimeParam | FlagParam
PARAM_TYPES: Mapping[str, type[Strict]] = {
    "ref": RefParam, "choice": ChoiceParam, "name": NameParam, "integer": IntegerParam, "number": NumberParam, "money": MoneyParam,
    "date": DateParam, "time": TimeParam, "flag": FlagParam,
}  # fmt: skip
