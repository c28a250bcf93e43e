"""The form of a spec file: entities with their reading tools, actions with conditions and effects, business rules, the head.

One idea: every part is a pydantic model that is read apart from the others (`read.py`), so a part that cannot be read does not hide the
problems of the next one. Whether the parts fit together (references, expressions) is checked in `resolve.py`. Fields and parameters are in
`schema.py`, a spec's own jobs in `job_schema.py`.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from storage.records import Language
from synth.worlds.declarative.language.values import (
    Currency,
    Expression,
    Key,
    Phrase,
    Strict,
    Template,
    Text,
    Unit,
    Words,
    check_plain,
    read_date,
)

MAX_ENTITIES, MAX_FIELDS, MAX_ACTIONS, MAX_ROWS = 16, 24, 40, 999
MAX_KINDS, MAX_INTENTS = 40, 60
MIN_ENTITIES, MIN_ROWS, MIN_TOOLS, MIN_RULES = 3, 200, 8, 2
"""Of a spec that may choose its tools: one with tables, jobs of its own alone, or `signatures` may be smaller."""
DEFAULT_LIMIT, MAX_LIMIT = 3, 6
"""Rows that a search shows if a call sets no limit, and the highest limit."""


# ---- reading tools ----------------------------------------------------------------------------------------------------------------


class _ReadingTool(Strict):
    """What all reading tools share.

    name: the public name.
    about: the description.
    words: words in a request that name this tool's work.
    """

    name: Key | None = None
    about: str | None = Field(default=None, max_length=200)
    words: tuple[Text, ...] = Field(default=(), max_length=30)


class GetTool(_ReadingTool):
    """shows: the fields in the reply, in this order."""

    shows: tuple[Key, ...] = ()


class ListTool(GetTool):
    """bare: the reply is a plain list of rows, without their number."""

    bare: bool = False


class SearchTool(ListTool):
    """A search.

    needs: filters that every call must give.
    sort: the order if a call gives none.
    limit: rows in the reply if a call gives no limit.
    most: the highest limit.
    """

    needs: tuple[Key, ...] = ()
    sort: Key | None = None
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=20)
    most: int = Field(default=MAX_LIMIT, ge=1, le=20)

    @model_validator(mode="after")
    def _shows_enough(self) -> SearchTool:
        if self.most < self.limit:
            raise ValueError("most: no less than `limit`")
        return self


class ReadingTools(Strict):
    """The reading tools of an entity. Rows with an owner have a list anyway; `list` only changes it."""

    get: GetTool | None = None
    search: SearchTool | None = None
    list: ListTool | None = None

    def __contains__(self, name: str) -> bool:
        return getattr(self, name) is not None

    @property
    def is_usual(self) -> bool:
        """Whether the replies are the default ones; names, descriptions and words may differ."""
        tools = [each.model_copy(update={"name": None, "about": None, "words": ()}) for each in (self.get, self.search, self.list) if each]
        return all(each == type(each)() for each in tools)


def _as_mapping(value: Any) -> Any:
    """`[get, search]` as keys."""
    return {str(name): {} for name in value} if isinstance(value, (list, tuple)) else value


# ---- entities ---------------------------------------------------------------------------------------------------------------------


def _check_id_pattern(text: str) -> str:
    if not re.fullmatch(r"[a-z]{1,3}#{2,4}", text):
        raise ValueError("one to three letters and two to four #, e.g. a### for a000, a001, ...")
    return text


class EntitySpec(Strict):
    """A kind of row that the business keeps. Its fields are read one by one.

    measure: the Chinese measure word.
    id: pattern of the ids: `m###` gives m000, m001, ...
    rows: number of rows in a fresh world.
    grows: whether actions may create rows.
    person: whether the rows are users, who speak of themselves ("I am m012").
    tools: the reading tools.
    called: the field that tells rows of one owner apart ("my savings account").
    group: the server of its tools.
    table: rows of a table of the user's own, from which a fresh world has some (`tables/inline.py`); fields without a cell are drawn.
    """

    noun: Phrase
    plural: Annotated[Text, AfterValidator(check_plain)] | None = None
    measure: Annotated[str, Field(pattern=r"^[\u4e00-\u9fff]{1,2}$")] = "个"
    id: Annotated[str, AfterValidator(_check_id_pattern)]
    rows: int = Field(ge=2, le=MAX_ROWS)
    grows: bool = True
    person: bool = False
    tools: Annotated[ReadingTools, BeforeValidator(_as_mapping)] = ReadingTools(get=GetTool(), search=SearchTool())
    called: Key | None = None
    group: Key | None = None
    table: tuple[dict[str, str], ...] = Field(default=(), alias="rows_from")
    fields: dict[str, Any] = Field(default_factory=dict, max_length=MAX_FIELDS)

    @model_validator(mode="after")
    def _ids_suffice(self) -> EntitySpec:
        if self.rows > 10 ** self.id.count("#"):
            raise ValueError(f"rows: {self.rows} rows need a longer id than {self.id}")
        if self.table and self.rows > len(self.table):
            raise ValueError(f"rows: the table has {len(self.table)} that can be used")
        return self


# ---- actions and rules ------------------------------------------------------------------------------------------------------------


class Need(Strict):
    """A condition without which an action fails. message: the error of the tool then."""

    condition: Expression = Field(alias="if")
    message: str | None = Field(default=None, alias="else", max_length=120)


class Rule(Strict):
    """A business rule: something possible that the business forbids.

    words: the rule as a full sentence in the system prompt.
    ask, answer: a question about the rule and its short answer ("how often a loan can be renewed": 2).
    """

    condition: Expression = Field(alias="if")
    words: Phrase
    ask: Phrase | None = None
    answer: str | None = Field(default=None, max_length=40)

    @model_validator(mode="after")
    def _asks_with_answer(self) -> Rule:
        _check_answer(self.ask, self.answer, self.words)
        return self


class Info(Strict):
    """A question about the business, its short answer, and the sentence with that answer."""

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
    if answer is not None and not re.search(rf"(?<![\w.]){re.escape(answer.lower())}(?![\w])", words.en.lower(), re.ASCII):
        raise ValueError(f"answer: the words must contain it as it stands: {answer!r}")


class Move(Strict):
    """An amount that goes from one field to another; the action is refused if the source has less."""

    amount: Expression
    source: str = Field(alias="from")
    target: str = Field(alias="to")


class CountSpec(Strict):
    """A running total of the action: each call adds `add` to the total of its values of `by`, which are parameters."""

    by: tuple[Key, ...] = Field(min_length=1, max_length=4)
    add: Expression = "1"


class ReplyField(Strict):
    """A value in the reply of an action. unit: the unit of a number."""

    value: Expression
    unit: Unit | Currency | None = None


class ActionSpec(Strict):
    """A tool that changes the state; with `shows` or `finds` one that only reads.

    verb: infinitive, e.g. `renew / 续借`, with _ for its object unless that comes last (`change the level of _ / 更改_的级别`).
    done: the participle (`renewed / 续借`), if it is irregular.
    description: of the tool.
    group: the server of the tool.
    on: the entity whose row it changes; the id of that row is the first parameter.
    takes: the other parameters.
    needs, rules: conditions.
    sets: new values of fields.
    moves: amounts that go from one field to another.
    creates: per entity, the values of a new row: all stored fields.
    counts: running totals, by name.
    either: a name for several rows of which each call gives exactly one.
    tells: the fields of the reply; by default it shows the changed rows.
    shows: the fields of the reply of a tool that only reads, each a field along references or a number.
    finds: the rows in the reply of a tool that only reads: an entity, and the values that its rows have.
    reply: what the assistant says afterwards.
    words: words in a request that name this tool's work.
    says: whole requests with {parameter} fields, in addition to the generated ones.
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
    shows: dict[Key, Expression] = Field(default_factory=dict, max_length=12)
    finds: dict[Key, dict[Key, Expression]] = Field(default_factory=dict, max_length=1)
    reply: Template | None = None
    words: tuple[Text, ...] = Field(default=(), max_length=30)
    says: tuple[Template, ...] = Field(default=(), max_length=12)


# ---- signatures that are given ----------------------------------------------------------------------------------------------------

JsonType = Literal["string", "integer", "number", "boolean", "array", "object"]


class Taken(Strict):
    """What a parameter of a given signature is; one of the first three.

    argument: the parameter of this spec's tool that it stands for. A text alone means this.
    unused: its JSON type; calls may give it, and it has no effect here.
    always: the one value that every call gives.
    type: the JSON type where it is not that of `argument`: a list of one (`array`), an `object` with one
        property, which is called as the argument, the digits of an id as a number (`integer`: 12 for f012).
    """

    argument: Key | None = None
    unused: JsonType | None = None
    always: str | None = None
    type: JsonType | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_name(cls, value: Any) -> Any:
        return {"argument": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_one(self) -> Taken:
        if sum(each is not None for each in (self.argument, self.unused, self.always)) != 1:
            raise ValueError("write the name of a parameter here, {unused: string}, or {always: value}")
        return self


_TOOL_ID = re.compile(r"[^\s.]+\.(.*\S)?")


class Signature(Strict):
    """The signature of a tool that is given from outside, as by a catalogue.

    tool: its id, `server.name`.
    about: its description.
    takes: all its parameters.
    """

    tool: Annotated[str, Field(max_length=400)]
    about: str = Field(default="", max_length=4000)
    takes: dict[Annotated[str, Field(min_length=1, max_length=128)], Taken] = Field(default_factory=dict, max_length=60)

    @model_validator(mode="after")
    def _has_a_server(self) -> Signature:
        if not _TOOL_ID.fullmatch(self.tool):
            raise ValueError("tool: write it as server.name, as the catalogue has it")
        return self

    @property
    def server(self) -> str:
        return self.tool.partition(".")[0]

    @property
    def name(self) -> str:
        return self.tool.partition(".")[2]


# ---- the head ---------------------------------------------------------------------------------------------------------------------


class Naming(Strict):
    """Public names of tools and parameters; the default is `get_loan(loan)`.

    order: `noun_first` for `loan_get`.
    get, search, list: the verbs of reading tools.
    prefix: of every tool.
    ids: `entity_id` for the parameter `loan_id`, `id` for `id` if only one entity is possible.
    server: the server of all tools.
    row_ids: the key of a row's id in replies: `id`, or the name of its entity.
    """

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
    """The top level of a file. Entities, actions, info, kinds, procedures and intents are read one by one.

    languages: of the users, and of the spec's words; None: `languages_of` finds them.
    today: the day on which every conversation takes place.
    prompt: the system prompt, instead of the generated one.
    combined: whether jobs are generated from entities and actions, in addition to `intents`.
    signatures: by the name of a tool here, how it is given from outside; then every tool has one.
    info: questions that need no tool.
    unsupported, impossible: requests that no tool can do, and requests that nothing can do.
    """

    domain: Key
    languages: tuple[Language, ...] | None = Field(default=None, min_length=1, max_length=2)
    about: Phrase
    today: Annotated[date, BeforeValidator(read_date)] = date(2026, 5, 13)
    currency: Currency = "dollars"
    naming: Naming = Naming()
    entities: dict[str, Any] = Field(max_length=MAX_ENTITIES)
    actions: dict[str, Any] = Field(max_length=MAX_ACTIONS)
    prompt: str | None = Field(default=None, max_length=2000)
    combined: bool = True
    kinds: dict[str, Any] = Field(default_factory=dict, max_length=MAX_KINDS)
    procedures: dict[str, Any] = Field(default_factory=dict, max_length=MAX_INTENTS)
    intents: dict[str, Any] = Field(default_factory=dict, max_length=MAX_INTENTS)
    signatures: dict[Annotated[str, Field(max_length=120)], Signature] = Field(default_factory=dict, max_length=MAX_ACTIONS)
    info: tuple[Any, ...] = Field(default=(), max_length=20)
    unsupported: tuple[Phrase, ...] = Field(default=(), max_length=20)
    impossible: tuple[Phrase, ...] = Field(default=(), max_length=20)
