"""Reads a spec's values into the models of `spec_schema.py`, `schema.py` and `job_schema.py`.

One idea: every entity, field, action, need, rule and move is read apart from the others, so one pass reports *all* problems of a file, each
with its path and a remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from storage.records import Language
from synth.worlds.declarative.language.job_schema import KIND_TYPES, STEP_TYPES, Answer, AnswerStep, Case, ChooseStep, IntentSpec, KindSpec
from synth.worlds.declarative.language.problems import FOLLOWS, ROOT, USUAL, Problem, nearest
from synth.worlds.declarative.language.schema import FIELD_TYPES, PARAM_TYPES, FieldSpec, ParamSpec
from synth.worlds.declarative.language.spec_schema import (
    ActionSpec,
    CountSpec,
    EntitySpec,
    Info,
    Move,
    Need,
    ReplyField,
    Rule,
    SpecHead,
)
from synth.worlds.declarative.language.values import Strict, check_key
from synth.worlds.declarative.languages import BOTH, IN_BOTH, chinese_places, languages_of, word_form

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Action:
    """An action with its parts read."""

    spec: ActionSpec
    takes: Mapping[str, ParamSpec]
    needs: tuple[Need, ...]
    rules: Mapping[str, Rule]
    moves: tuple[Move, ...]
    counts: Mapping[str, CountSpec]
    tells: Mapping[str, ReplyField]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a job. cases: of `choose`, each with its steps. answers: of `answer`, by the value of the slot."""

    spec: Any
    cases: tuple[tuple[Case, tuple[Step, ...]], ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """An intent of the spec's own with its steps read."""

    spec: IntentSpec
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """A spec all of whose parts could be read. languages: of its users. fields: by entity and name."""

    head: SpecHead
    languages: tuple[Language, ...]
    entities: Mapping[str, EntitySpec]
    fields: Mapping[str, Mapping[str, FieldSpec]]
    actions: Mapping[str, Action]
    info: tuple[Info, ...]
    kinds: Mapping[str, KindSpec]
    procedures: Mapping[str, tuple[Step, ...]]
    intents: Mapping[str, Job]


class Reader:
    """Reads the parts of a file one by one and collects their problems. languages: in which the file's words are."""

    def __init__(self, languages: tuple[Language, ...] = BOTH) -> None:
        self.languages = languages
        self.problems: list[Problem] = []

    def add(self, path: str, text: str, rank: int = USUAL) -> None:
        self.problems.append(Problem(path, text, rank))

    def part(self, model: type[Any], raw: Any, path: str) -> Any:
        """`raw` as a model; None after a problem was reported."""
        if raw is None and not path:
            self.add("", "holds nothing; `headrace worlds new FILE` writes a spec to start from")
            return None
        if not isinstance(raw, Mapping):
            self.add(path, f"expected keys and values ({', '.join(_keys(model))})")
            return None
        try:
            return model.model_validate(raw, context=self.languages)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            unknown = [str(each["loc"][0]) for each in errors if each["type"] == "extra_forbidden"]
            for each in errors:
                is_misspelt = each["type"] == "missing" and difflib.get_close_matches(str(each["loc"][-1]), unknown)
                if not is_misspelt:  # else the unknown key says it
                    self._report(model, each, path)
            return None

    def check_key(self, name: Any, path: str) -> bool:
        """Whether `name` can be a key; reports a problem if not."""
        try:
            check_key(str(name))
        except ValueError as error:
            self.add(f"{path}.{name}", str(error))
            return False
        return True

    def _report(self, model: type[Any], error: Any, path: str) -> None:
        place = [f"[{part}]" if isinstance(part, int) else str(part) for part in error["loc"] if part != "[key]"]
        where = ".".join(filter(None, [path, *place])).replace(".[", "[")
        if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            keys = _keys(model) if len(place) == 1 else ("en", "zh")
            self.add(where, f"unknown key; {nearest(place[-1], keys)}", ROOT)
        elif error["type"] == "missing":
            hint = _HINTS.get(place[-1], "").replace("{form}", word_form(self.languages))
            self.add(where, f"is missing{hint}", FOLLOWS)
        elif where.startswith("languages"):
            self.add("languages", "expected [en], [zh] or [en, zh]: the languages of your users", ROOT)
        else:
            self.add(where, _message(error))


def _message(error: Any) -> str:
    """A pydantic error as a message for the author of a spec."""
    template = next((text for kind, text in _MESSAGES.items() if str(error["type"]).startswith(kind)), None)
    if template is not None:
        return template.format(value=str(error["input"])[:40], **error.get("ctx", {}))
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


_MESSAGES = {
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
    "dict_type": "write keys and values here, e.g. {{first: one, second: two}}",
    "mapping_type": "write keys and values here, as key: value",
    "dataclass_type": IN_BOTH,
    "model_type": "write keys and values here, as key: value",
    "string_pattern_mismatch": "{value!r} does not look like that; one or two Chinese characters, e.g. 张",
    "literal_error": "{value!r} is none of {expected}",
    "greater_than_equal": "{value} is too small; at least {ge}",
    "less_than_equal": "{value} is too large; at most {le}",
}
"""By the beginning of pydantic's error type."""

_HINTS = {
    "noun": "; what one of them is called{form}",
    "verb": "; what the action is called{form}",
    "words": "; the rule as a sentence{form}",
    "id": "; e.g. a### for a000, a001, ...",
    "rows": "; how many of them a fresh world holds",
    "to": "; the name of an entity for type ref, the field that it arrives at for a move, else the last value",
    "from": "; the field that it leaves for a move, else the first value",
    "if": "; the condition that must hold, e.g. loan.renewals < 2",
    "about": "; what the business is{form}",
}


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(info.alias or name for name, info in model.model_fields.items())


def _present(parts: Mapping[str, T | None]) -> dict[str, T]:
    """The parts that could be read."""
    return {name: part for name, part in parts.items() if part is not None}


def read_spec(raw: Any) -> tuple[Spec | None, list[Problem]]:
    """The spec in a file's values (None if a part could not be read), and all its problems."""
    languages = languages_of(raw)
    reader = Reader(languages)
    head: SpecHead | None = reader.part(SpecHead, raw, "")
    source = raw if isinstance(raw, Mapping) else {}
    entities: dict[str, EntitySpec] = {}
    fields: dict[str, dict[str, FieldSpec]] = {}
    for name, part in _items(source.get("entities")):
        entity = reader.part(EntitySpec, part, f"entities.{name}") if reader.check_key(name, "entities") else None
        entity_fields = _read_fields(reader, part, f"entities.{name}.fields")
        if entity is not None:
            entities[name], fields[name] = entity, entity_fields
    actions = _read_items(reader, source, "actions", _read_action)
    listed = source.get("info")
    info = [reader.part(Info, part, f"info[{at}]") for at, part in enumerate(listed if isinstance(listed, (list, tuple)) else ())]
    kinds = _read_items(reader, source, "kinds", lambda reader, part, path: _read_typed(reader, KIND_TYPES, part, path))
    procedures = _read_items(reader, source, "procedures", _read_steps)
    intents = _read_items(reader, source, "intents", _read_job)
    if languages == ("en",):
        for path in chinese_places(raw):
            reader.add(path, "Chinese characters in a world of English alone; write English, or `languages: [en, zh]` at the top")
    if head is None or reader.problems:
        return None, reader.problems
    return Spec(head, languages, entities, fields, actions, tuple(info), kinds, procedures, intents), []


def _read_items(reader: Reader, source: Mapping[Any, Any], key: str, read: Callable[[Reader, Any, str], T | None]) -> dict[str, T]:
    """The parts under a key of the file that could be read."""
    return _present({name: read(reader, part, f"{key}.{name}") for name, part in _items_with_keys(reader, source.get(key), key)})


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


def _items_with_keys(reader: Reader, part: Any, path: str) -> Iterable[tuple[str, Any]]:
    """The items whose names can be keys."""
    return ((name, value) for name, value in _items(part) if reader.check_key(name, path))


def _read_fields(reader: Reader, entity: Any, path: str) -> dict[str, FieldSpec]:
    items = _items_with_keys(reader, entity.get("fields") if isinstance(entity, Mapping) else None, path)
    return _present({name: _read_typed(reader, FIELD_TYPES, raw, f"{path}.{name}") for name, raw in items})


def _read_typed(reader: Reader, types: Mapping[str, type[Strict]], raw: Any, path: str) -> Any:
    if not isinstance(raw, Mapping) or "type" not in raw:
        reader.add(path, f"say its type: {', '.join(types)}")
        return None
    model = types.get(str(raw["type"]))
    if model is None:
        suggestions = [each for each in _TYPE_HINTS.get(str(raw["type"]).lower(), ()) if each.split()[0] in types]
        hint = f"write {' or '.join(suggestions)}" if suggestions else nearest(str(raw["type"]), types)
        reader.add(f"{path}.type", f"no type {raw['type']!r}; {hint}", ROOT)
        return None
    return reader.part(model, raw, path)


_WORDS = ("choice (one of a few values)", "name (a proper name)")
_TYPE_HINTS = {
    "boolean": ("flag",), "bool": ("flag",), "text": _WORDS, "int": ("integer",), "string": _WORDS, "str": _WORDS, "float": ("number",),
    "decimal": ("number",), "enum": ("choice",), "reference": ("ref",), "datetime": ("date", "time"), "price": ("money",),
}  # fmt: skip
"""By a type of another language, the types that its author may want."""


def _read_action(reader: Reader, source: Any, path: str) -> Action | None:
    spec = reader.part(ActionSpec, source, path)
    if spec is None:
        return None
    before = len(reader.problems)
    takes = {
        name: _read_typed(reader, PARAM_TYPES, {"type": "ref", "to": part} if isinstance(part, str) else part, f"{path}.takes.{name}")
        for name, part in _items_with_keys(reader, spec.takes, f"{path}.takes")
    }
    need_parts = [{"if": part} if isinstance(part, (str, bool)) else part for part in spec.needs]
    needs = tuple(reader.part(Need, part, f"{path}.needs[{at}]") for at, part in enumerate(need_parts))
    rules = {name: reader.part(Rule, part, f"{path}.rules.{name}") for name, part in _items_with_keys(reader, spec.rules, f"{path}.rules")}
    moves = tuple(reader.part(Move, part, f"{path}.moves[{at}]") for at, part in enumerate(spec.moves))
    counts = {name: reader.part(CountSpec, part, f"{path}.counts.{name}") for name, part in _items(spec.counts)}
    tell_parts = {name: part if isinstance(part, Mapping) else {"value": part} for name, part in _items(spec.tells)}
    tells = {name: reader.part(ReplyField, part, f"{path}.tells.{name}") for name, part in tell_parts.items()}
    return Action(spec, takes, needs, rules, moves, counts, tells) if len(reader.problems) == before else None
