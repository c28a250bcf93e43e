"""Reading a spec's values, part by part, into the models of `schema.py`.

One idea: every entity, field, action, need, rule and move is read apart from the others, so one reading reports *all* that is wrong with
a file, each problem with its path and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from synth.worlds.declarative.language.job_schema import KIND_TYPES, STEP_TYPES, Answer, AnswerStep, Case, ChooseStep, IntentSpec, KindSpec
from synth.worlds.declarative.language.problems import Problem, nearest
from synth.worlds.declarative.language.schema import (
    FIELD_TYPES,
    PARAM_TYPES,
    ActionSpec,
    EntitySpec,
    FieldSpec,
    Info,
    Move,
    Need,
    ParamSpec,
    Rule,
    SpecHead,
    Tally,
    Told,
)
from synth.worlds.declarative.language.values import Strict, check_key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Action:
    """An action with its parts read."""

    spec: ActionSpec
    takes: Mapping[str, ParamSpec]
    needs: tuple[Need, ...]
    rules: Mapping[str, Rule]
    moves: tuple[Move, ...]
    counts: Mapping[str, Tally]
    tells: Mapping[str, Told]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a job. cases: of a choice, each with its steps. answers: by the value of a slot."""

    spec: Any
    cases: tuple[tuple[Case, tuple[Step, ...]], ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """An intent of the file's own with its steps read."""

    spec: IntentSpec
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """A spec whose parts could all be read. fields: by entity and name."""

    head: SpecHead
    entities: Mapping[str, EntitySpec]
    fields: Mapping[str, Mapping[str, FieldSpec]]
    actions: Mapping[str, Action]
    info: tuple[Info, ...]
    kinds: Mapping[str, KindSpec]
    procedures: Mapping[str, tuple[Step, ...]]
    intents: Mapping[str, Job]


class Reader:
    """Reads the parts of a file one by one and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, path: str, text: str) -> None:
        self.problems.append(Problem(path, text))

    def part(self, model: type[Any], raw: Any, path: str) -> Any | None:
        """`raw` as a model, or None after a complaint."""
        if not isinstance(raw, Mapping):
            self.add(path, f"expected keys and values ({', '.join(_keys(model))})")
            return None
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                self._complain(model, each, path)
            return None

    def key(self, name: Any, path: str) -> bool:
        try:
            check_key(str(name))
        except ValueError as error:
            self.add(f"{path}.{name}", str(error))
            return False
        return True

    def _complain(self, model: type[Any], error: Any, path: str) -> None:
        place = [str(part) for part in error["loc"] if part != "[key]"]
        where = ".".join(filter(None, [path, *place]))
        if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            keys = _keys(model) if len(place) == 1 else ("en", "zh")
            self.add(where, f"unknown key; {nearest(place[-1], keys)}")
        elif error["type"] == "missing":
            self.add(where, f"is missing{_HINTS.get(place[-1], '')}")
        else:
            self.add(where, _in_plain_words(error))


def _in_plain_words(error: Any) -> str:
    """A pydantic error as a message for the author of a spec."""
    form = next((form for kind, form in _PLAIN.items() if str(error["type"]).startswith(kind)), None)
    if form is not None:
        return form.format(value=str(error["input"])[:40], **error.get("ctx", {}))
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


_PLAIN = {
    "int_": "{value!r} is not a whole number; write digits, e.g. 30",
    "float_": "{value!r} is not a number; write digits, e.g. 2.5",
    "finite_number": "{value!r} is not a number; write digits, e.g. 2.5",
    "bool_": "{value!r} is neither true nor false",
    "string_type": "write text here, not a list or keys and values",
    "string_too_short": "is empty; write some text",
    "string_too_long": "too long; at most {max_length} characters",
    "tuple_type": "write a list here, e.g. [..., ...], or a line with - for each",
    "too_long": "{actual_length} of them; at most {max_length}",
    "too_short": "none; give at least {min_length}",
    "dict_type": "write keys and values here, as key: value",
    "mapping_type": "write keys and values here, as key: value",
    "dataclass_type": "write it in both languages, as: english / 中文",
    "model_type": "write keys and values here, as key: value",
    "string_pattern_mismatch": "{value!r} does not look like that; one or two Chinese characters, e.g. 张",
    "literal_error": "{value!r} is none of {expected}",
    "greater_than_equal": "{value} is too small; at least {ge}",
    "less_than_equal": "{value} is too large; at most {le}",
}
"""By the beginning of pydantic's name for a mistake."""


_HINTS = {
    "noun": "; what one of them is called, as: english / 中文",
    "verb": "; what the action is called, as: english / 中文",
    "words": "; the rule as a sentence, as: english / 中文",
    "id": "; e.g. a### for a000, a001, ...",
    "rows": "; how many of them a fresh world holds",
    "to": "; the name of an entity for type ref, the field that it arrives at for a move, else the last value",
    "from": "; the field that it leaves for a move, else the first value",
    "if": "; the condition that must hold, e.g. loan.renewals < 2",
    "about": "; what the business is, as: english / 中文",
}


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(info.alias or name for name, info in model.model_fields.items())


def _present(parts: Mapping[str, T | None]) -> dict[str, T]:
    """The parts that could be read."""
    return {name: part for name, part in parts.items() if part is not None}


def read_spec(raw: Any) -> tuple[Spec | None, list[Problem]]:
    """The spec in a file's values (None if a part could not be read), and all problems found."""
    reader = Reader()
    head: SpecHead | None = reader.part(SpecHead, raw, "")
    source = raw if isinstance(raw, Mapping) else {}
    entities: dict[str, EntitySpec] = {}
    fields: dict[str, dict[str, FieldSpec]] = {}
    for name, part in _items(source.get("entities")):
        entity = reader.part(EntitySpec, part, f"entities.{name}") if reader.key(name, "entities") else None
        entity_fields = _read_fields(reader, part, f"entities.{name}.fields")
        if entity is not None:
            entities[name], fields[name] = entity, entity_fields
    actions = {}
    for name, part in _items(source.get("actions")):
        action = _read_action(reader, part, f"actions.{name}") if reader.key(name, "actions") else None
        if action is not None:
            actions[name] = action
    listed = source.get("info")
    info = [reader.part(Info, part, f"info[{at}]") for at, part in enumerate(listed if isinstance(listed, (list, tuple)) else ())]
    kinds = {
        name: _read_typed(reader, KIND_TYPES, part, f"kinds.{name}")
        for name, part in _items(source.get("kinds"))
        if reader.key(name, "kinds")
    }
    procedures = {
        name: _read_steps(reader, part, f"procedures.{name}")
        for name, part in _items(source.get("procedures"))
        if reader.key(name, "procedures")
    }
    intents = {
        name: _read_job(reader, part, f"intents.{name}") for name, part in _items(source.get("intents")) if reader.key(name, "intents")
    }
    if head is None or reader.problems:
        return None, reader.problems
    entries = tuple(each for each in info if each is not None)
    return Spec(head, entities, fields, actions, entries, _present(kinds), procedures, _present(intents)), []


def _read_job(reader: Reader, part: Any, path: str) -> Job | None:
    spec = reader.part(IntentSpec, part, path)
    return None if spec is None else Job(spec, _read_steps(reader, spec.steps, f"{path}.steps"))


def _read_steps(reader: Reader, part: Any, path: str) -> tuple[Step, ...]:
    if not isinstance(part, (list, tuple)):
        reader.add(path, "write a list here, a step a line, each with -")
        return ()
    steps = (_read_step(reader, each, f"{path}[{at}]") for at, each in enumerate(part))
    return tuple(step for step in steps if step is not None)


def _read_step(reader: Reader, part: Any, path: str) -> Step | None:
    kind = next((key for key in part if key in STEP_TYPES), None) if isinstance(part, Mapping) else None
    if kind is None:
        reader.add(path, f"is no step; one begins with {', '.join(STEP_TYPES)}")
        return None
    spec = reader.part(STEP_TYPES[kind], part, path)
    if isinstance(spec, ChooseStep):
        cases = [(reader.part(Case, each, f"{path}.choose[{at}]"), at) for at, each in enumerate(spec.choose)]
        read = [(case, _read_steps(reader, case.steps, f"{path}.choose[{at}].steps")) for case, at in cases if case is not None]
        return Step(spec, cases=tuple(read))
    if isinstance(spec, AnswerStep):
        return Step(spec, answers=_present({key: reader.part(Answer, each, f"{path}.from.{key}") for key, each in spec.given.items()}))
    return None if spec is None else Step(spec)


def _items(part: Any) -> Iterable[tuple[str, Any]]:
    return [(str(name), value) for name, value in part.items()] if isinstance(part, Mapping) else ()


def _read_fields(reader: Reader, part: Any, path: str) -> dict[str, FieldSpec]:
    fields = {}
    for name, raw in _items(part.get("fields") if isinstance(part, Mapping) else None):
        if reader.key(name, path):
            read = _read_typed(reader, FIELD_TYPES, raw, f"{path}.{name}")
            if read is not None:
                fields[name] = read
    return fields


def _read_typed(reader: Reader, types: Mapping[str, type[Strict]], raw: Any, path: str) -> Any | None:
    if not isinstance(raw, Mapping) or "type" not in raw:
        reader.add(path, f"say its type: {', '.join(types)}")
        return None
    model = types.get(str(raw["type"]))
    if model is None:
        suggestions = [each for each in _MEANT.get(str(raw["type"]).lower(), ()) if each.split()[0] in types]
        hint = f"write {' or '.join(suggestions)}" if suggestions else nearest(str(raw["type"]), types)
        reader.add(f"{path}.type", f"no type {raw['type']!r}; {hint}")
        return None
    return reader.part(model, raw, path)


_WORDS = ("choice (one of a few values)", "name (a proper name)")
_MEANT = {
    "boolean": ("flag",), "bool": ("flag",), "text": _WORDS, "int": ("integer",), "string": _WORDS, "str": _WORDS, "float": ("number",),
    "decimal": ("number",), "enum": ("choice",), "reference": ("ref",), "datetime": ("date", "time"), "price": ("money",),
}  # fmt: skip
"""What other languages call the types of fields."""


def _read_action(reader: Reader, source: Any, path: str) -> Action | None:
    spec = reader.part(ActionSpec, source, path)
    if spec is None:
        return None
    before = len(reader.problems)
    takes = {}
    for name, part in _items(spec.takes):
        given = {"type": "ref", "to": part} if isinstance(part, str) else part
        if reader.key(name, f"{path}.takes"):
            takes[name] = _read_typed(reader, PARAM_TYPES, given, f"{path}.takes.{name}")
    needs = []
    for at, part in enumerate(spec.needs):
        raw = {"if": part} if isinstance(part, (str, bool)) else part
        needs.append(reader.part(Need, raw, f"{path}.needs[{at}]"))
    rule_parts = [(name, part) for name, part in _items(spec.rules) if reader.key(name, f"{path}.rules")]
    rules = {name: reader.part(Rule, part, f"{path}.rules.{name}") for name, part in rule_parts}
    moves = [reader.part(Move, part, f"{path}.moves[{at}]") for at, part in enumerate(spec.moves)]
    counts = {name: reader.part(Tally, part, f"{path}.counts.{name}") for name, part in _items(spec.counts)}
    tell_parts = {name: part if isinstance(part, Mapping) else {"value": part} for name, part in _items(spec.tells)}
    tells = {name: reader.part(Told, part, f"{path}.tells.{name}") for name, part in tell_parts.items()}
    if len(reader.problems) > before:
        return None
    conditions = tuple(each for each in needs if each is not None)
    transfers = tuple(each for each in moves if each is not None)
    return Action(spec, _present(takes), conditions, _present(rules), transfers, _present(counts), _present(tells))
