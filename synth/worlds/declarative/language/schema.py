"""The form of a domain spec: entities with typed fields, actions with conditions and effects, business rules, all in two languages.

One idea: every part is a pydantic model of its own, so that each can be read apart from the others (`read.py`) and a part that cannot be
read does not hide what is wrong with the next one. Here is what a file may say; whether its parts fit together (references, expressions)
is `resolve.py`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.tool_schema import Getting, Reading, Searching, as_reading
from synth.worlds.declarative.language.values import (
    Clock,
    Currency,
    Expression,
    Key,
    NameList,
    Phrase,
    Strict,
    Template,
    Text,
    Unit,
    Words,
    day_of,
    plain_text,
)

MAX_ENTITIES, MAX_FIELDS, MAX_ACTIONS, MAX_ROWS, MAX_VALUES = 16, 24, 40, 999, 40
MAX_KINDS, MAX_INTENTS = 40, 60
MAX_WEIGHT = 1_000_000
MIN_ENTITIES, MIN_ROWS, MIN_TOOLS, MIN_RULES = 3, 200, 8, 2


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
    first: Clock = Field(default="08:00", alias="from")
    last: Clock = Field(default="18:00", alias="to")

    @model_validator(mode="after")
    def _is_a_range(self) -> _Time:
        if self.first >= self.last:
            raise ValueError("`from` must be before `to`")
        return self


class _Said(Strict):
    """What fields and parameters share. label: what it is called. phrase: how a request mentions a value, with _ in its place
    (`under _ / _以内`)."""

    label: Phrase | None = None
    phrase: Phrase | None = None

    @model_validator(mode="after")
    def _has_a_place(self) -> _Said:
        if self.phrase is not None and not (self.phrase.en.count("_") == 1 == self.phrase.zh.count("_")):
            raise ValueError("phrase: put _ where the value stands, once in each language, e.g. for _ / _的")
        return self


class _Held(_Said):
    """What all fields of a row share.

    detail: shown by the `get` tool alone, not in lists. filter: how `search` filters by it (`only`: by a flag, or not at all). starts: its
    value in a fresh world, worked out from the other fields (its own name is the value that was drawn). derived: always worked out, never
    stored.
    """

    detail: bool = False
    filter: Literal["equal", "max", "min", "only", "none"] | None = None
    starts: Expression | None = None
    derived: Expression | None = None


class _Ranked(Strict):
    """low, high: the superlatives (`cheapest / 最便宜的`) that make it a search order and a question for the best."""

    low: Phrase | None = None
    high: Phrase | None = None


class _Grouped(Strict):
    """within: a field above; in a fresh world, rows that have the same there differ here."""

    within: Key | None = None


class RefField(_Ref, _Held, _Grouped):
    """A row of another entity. owned: these rows belong to that one, which then has a list of them. even: a fresh world refers to each as
    often. apart: the field of the rows referred to in which those of one group differ (`within`)."""

    type: Literal["ref"]
    owned: bool = False
    even: bool = False
    apart: Key | None = None

    @model_validator(mode="after")
    def _is_dealt_in_one_way(self) -> RefField:
        if self.apart is not None and self.within is None:
            raise ValueError("apart: say `within` which field's groups they are to differ")
        if self.even and self.within is not None:
            raise ValueError("give `even` or `within`, not both")
        return self


class ChoiceField(_Choice, _Held, _Grouped):
    """like: `entity.field`, whose values it has; for what is derived. even: a fresh world has each value as often. mix: how many rows of a
    group have its first value, its second one, ... (`within`): `[4, 3, 3]`. guarded: an answer may bring up only values that somebody did
    before."""

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
            raise ValueError("values: give at least two, each as key: english / 中文")
        if unknown := sorted(set(self.weights) - set(self.values)):
            raise ValueError(f"weights: {unknown[0]!r} is no value; {nearest(unknown[0], self.values)}")
        is_out = any(not 0 <= weight <= MAX_WEIGHT for weight in self.weights.values())
        if is_out or (self.weights and not any(self.weights.get(key, 1) for key in self.values)):
            raise ValueError(f"weights: from 0 to {MAX_WEIGHT:,}, and one at least above 0")
        return self


class IntegerField(_Integer, _Held, _Ranked, _Grouped):
    type: Literal["integer"]


class NumberField(_Number, _Held, _Ranked):
    type: Literal["number"]


class MoneyField(_Whole, _Held, _Ranked, _Grouped):
    """Whole units of the domain's currency."""

    type: Literal["money"]


class DateField(_Date, _Held, _Ranked):
    type: Literal["date"]


class TimeField(_Time, _Held, _Ranked):
    type: Literal["time"]


class FlagField(_Held):
    """Yes or no. want: how a request asks for it: `with breakfast / 含早餐的`."""

    type: Literal["flag"]
    share: float = Field(default=0.5, ge=0, le=1)
    want: Phrase | None = None


class NameField(_Held):
    """A proper name, from a list of ours or of the file's own; rows have different names as long as there are enough."""

    type: Literal["name"]
    list: NameList | None = None
    values: tuple[Phrase, ...] = Field(default=(), max_length=200)

    @model_validator(mode="after")
    def _has_one_source(self) -> NameField:
        if (self.list is None) == (not self.values):
            raise ValueError("give either `list` (person, city, company, street) or `values`")
        if len({words.en for words in self.values}) < len(self.values) or len({words.zh for words in self.values}) < len(self.values):
            raise ValueError("values: two names are the same")
        return self


FieldSpec = RefField | ChoiceField | IntegerField | NumberField | MoneyField | DateField | TimeField | FlagField | NameField
FIELD_TYPES: Mapping[str, type[Strict]] = {
    "ref": RefField, "choice": ChoiceField, "integer": IntegerField, "number": NumberField, "money": MoneyField, "date": DateField,
    "time": TimeField, "flag": FlagField, "name": NameField,
}  # fmt: skip


class _Given(_Said):
    """What all parameters share. default: makes it optional."""

    default: Any = None


class RefParam(_Ref, _Given):
    type: Literal["ref"]


class ChoiceParam(_Choice, _Given):
    """like: `entity.field`, whose values it takes."""

    type: Literal["choice"]
    like: str | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> ChoiceParam:
        if (self.like is None) == (not self.values):
            raise ValueError("give either `values` or `like: entity.field`")
        return self


class IntegerParam(_Integer, _Given):
    type: Literal["integer"]


class NumberParam(_Number, _Given):
    type: Literal["number"]


class MoneyParam(_Whole, _Given):
    type: Literal["money"]


class DateParam(_Date, _Given):
    type: Literal["date"]

    @model_validator(mode="after")
    def _is_ahead(self) -> DateParam:
        if self.first < 0:
            raise ValueError("from: a request can only name days from today on (0 or more)")
        return self


class TimeParam(_Time, _Given):
    type: Literal["time"]


class FlagParam(_Given):
    type: Literal["flag"]


ParamSpec = RefParam | ChoiceParam | IntegerParam | NumberParam | MoneyParam | DateParam | TimeParam | FlagParam
PARAM_TYPES: Mapping[str, type[Strict]] = {
    "ref": RefParam, "choice": ChoiceParam, "integer": IntegerParam, "number": NumberParam, "money": MoneyParam, "date": DateParam,
    "time": TimeParam, "flag": FlagParam,
}  # fmt: skip


# ---- the parts of a spec ----------------------------------------------------------------------------------------------------------


def _id_pattern(text: str) -> str:
    if not re.fullmatch(r"[a-z]{1,3}#{2,4}", text):
        raise ValueError("one to three letters and two to four #, e.g. a### for a000, a001, ...")
    return text


class EntitySpec(Strict):
    """A kind of thing that the business keeps rows of.

    measure: its Chinese measure word. id: `m###` gives m000, m001, ... rows: how many a fresh world holds. grows: whether acts may create
    some. person: somebody who speaks of themselves ("I am m012"). tools: which reading tools it gets. called: the field by which an owner's
    rows are told apart ("my savings account"). group: the server its tools belong to. fields are read one by one.
    """

    noun: Phrase
    plural: Annotated[Text, AfterValidator(plain_text)] | None = None
    measure: Annotated[str, Field(pattern=r"^[\u4e00-\u9fff]{1,2}$")] = "个"
    id: Annotated[str, AfterValidator(_id_pattern)]
    rows: int = Field(ge=2, le=MAX_ROWS)
    grows: bool = True
    person: bool = False
    tools: Annotated[Reading, BeforeValidator(as_reading)] = Reading(get=Getting(), search=Searching())
    called: Key | None = None
    group: Key | None = None
    fields: dict[str, Any] = Field(default_factory=dict, max_length=MAX_FIELDS)

    @model_validator(mode="after")
    def _ids_suffice(self) -> EntitySpec:
        if self.rows > 10 ** self.id.count("#"):
            raise ValueError(f"rows: {self.rows} rows need a longer id than {self.id}")
        return self


class Need(Strict):
    """A condition without which an action fails; `else` is what its tool then says."""

    condition: Expression = Field(alias="if")
    message: str | None = Field(default=None, alias="else", max_length=120)


class Rule(Strict):
    """A business rule: what the domain forbids although it could be done. words: as the rule book has it, a full sentence; the system
    prompt says it. ask, answer: a question that it answers ("how often a loan can be renewed": 2)."""

    condition: Expression = Field(alias="if")
    words: Phrase
    ask: Phrase | None = None
    answer: str | None = Field(default=None, max_length=40)

    @model_validator(mode="after")
    def _asks_with_answer(self) -> Rule:
        _check_answer(self.ask, self.answer, self.words)
        return self


class Info(Strict):
    """Something that the domain tells anybody who asks."""

    ask: Phrase
    answer: str = Field(max_length=40)
    words: Phrase

    @model_validator(mode="after")
    def _says_the_answer(self) -> Info:
        _check_answer(self.ask, self.answer, self.words)
        return self


def _check_answer(ask: Words | None, answer: str | None, words: Words) -> None:
    if (ask is None) != (answer is None):
        raise ValueError("give `ask` and `answer` together")
    if answer is not None and not re.search(rf"(?<![\w.]){re.escape(answer.lower())}(?![\w])", words.en.lower()):
        raise ValueError(f"answer: the English words must contain it as it stands: {answer!r}")


class Move(Strict):
    """An amount that leaves one field and arrives at another; refused where there is not enough."""

    amount: Expression
    source: str = Field(alias="from")
    target: str = Field(alias="to")


class Tally(Strict):
    """A number that is kept of what was done: `add` more for the same `by`, parameters of the action."""

    by: tuple[Key, ...] = Field(min_length=1, max_length=4)
    add: Expression = "1"


class Told(Strict):
    """A value that a tool tells. unit: of a number."""

    value: Expression
    unit: Unit | Currency | None = None


class ActionSpec(Strict):
    """Something that changes the state: a tool of its own.

    verb: infinitive, e.g. `renew / 续借`, with _ where its object stands if that is not at the end (`change the level of _ / 更改_的级别`);
    done: the same as a participle (`renewed / 续借`), where it is not regular. on: the entity whose row it acts on; its id is the first
    parameter. takes: other parameters. needs, rules: what must hold. sets: new values of fields. moves: money from here to there.
    creates: a new row an entity, every stored field given. counts: numbers that are kept of what was done, by name. either: a name for
    whichever of some rows is given: one of them must be. says: whole requests, with {parameter} fields, used beside our own wordings.
    tells: what its tool answers, in place of the rows that changed. reply: what one says once it is done. words: with which people name
    outright what it does.
    """

    verb: Phrase
    done: Phrase | None = None
    description: str | None = Field(default=None, max_length=200)
    group: Key | None = None
    on: Key | None = None
    takes: dict[str, Any] = Field(default_factory=dict, max_length=8)
    needs: tuple[Any, ...] = Field(default=(), max_length=8)
    rules: dict[str, Any] = Field(default_factory=dict, max_length=8)
    sets: dict[str, Expression] = Field(default_factory=dict, max_length=12)
    moves: tuple[Any, ...] = Field(default=(), max_length=4)
    creates: dict[Key, dict[Key, Expression]] = Field(default_factory=dict, max_length=3)
    counts: dict[Key, Any] = Field(default_factory=dict, max_length=3)
    either: dict[Key, tuple[Key, ...]] = Field(default_factory=dict, max_length=1)
    tells: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)], Any] = Field(default_factory=dict, max_length=12)
    reply: Template | None = None
    words: tuple[Text, ...] = Field(default=(), max_length=30)
    says: tuple[Template, ...] = Field(default=(), max_length=12)


class Naming(Strict):
    """How tools and parameters are called from outside, in place of `get_loan(loan)`. get, search, list: the verbs of reading tools. order:
    `noun_first` for `loan_get`. prefix: of every tool. ids: `entity_id` for `loan_id`, `id` for `id` where it is plain whose it is. server:
    to which all tools belong. row_ids: under which key tools show the id of a row: `id`, or what its entity is called."""

    case: Literal["snake", "camel"] = "snake"
    order: Literal["verb_first", "noun_first"] = "verb_first"
    get: Key = "get"
    search: Key = "search"
    list: Key = "list"
    prefix: Key | None = None
    ids: Literal["plain", "entity_id", "id"] = "plain"
    server: Key | None = None
    row_ids: Literal["id", "entity"] = "id"


class SpecHead(Strict):
    """The top of a file; its entities, actions, info, kinds, procedures and intents are read one by one.

    prompt: what every conversation opens with, in place of what we would say. combined: whether jobs are put together from entities and
    actions, beside those of the file's own.
    """

    domain: Key
    about: Phrase
    today: Annotated[date, BeforeValidator(day_of)] = date(2026, 5, 13)
    currency: Currency = "dollars"
    naming: Naming = Naming()
    entities: dict[str, Any] = Field(max_length=MAX_ENTITIES)
    actions: dict[str, Any] = Field(max_length=MAX_ACTIONS)
    prompt: str | None = Field(default=None, max_length=2000)
    combined: bool = True
    kinds: dict[str, Any] = Field(default_factory=dict, max_length=MAX_KINDS)
    procedures: dict[str, Any] = Field(default_factory=dict, max_length=MAX_INTENTS)
    intents: dict[str, Any] = Field(default_factory=dict, max_length=MAX_INTENTS)
    info: tuple[Any, ...] = Field(default=(), max_length=20)
    unsupported: tuple[Phrase, ...] = Field(default=(), max_length=20)
    impossible: tuple[Phrase, ...] = Field(default=(), max_length=20)
