"""The arguments of a domain's tools: the schema of each, and what a schema cannot say, made when the domain is compiled.

One idea: `synth.worlds.arguments` checks every argument against its schema first; a conversion then looks into the state (does this id
exist?) or turns what the caller writes into what expressions use inside (a date into days from today).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from storage.records import JSON
from synth.worlds.declarative.domain import Domain, Entity, Field, Param, filter_name
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.expression_types import Type
from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.values import CURRENCIES_ZH, OpenWords, clock_steps
from synth.worlds.declarative.rows.state import State

BAD = object()

Conversion = Callable[[State, Any], Any]
"""(state, value that its schema allows) -> value inside, or BAD."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool.

    schema: JSON schema of the value.
    is_required: whether a call without it is refused.
    convert: applied to a value that its schema allows; None where the value is used as it is.
    error: text of the error observation where `convert` returns BAD.
    is_id: the value is the id of a row.
    """

    schema: dict[str, JSON]
    is_required: bool
    convert: Conversion | None = None
    error: str = ""
    is_id: bool = False


def id_argument(domain: Domain, entity: Entity, name: str, *, is_required: bool = True) -> Argument:
    number, ids = entity.number, entity.known_ids

    def convert(state: State, value: str) -> Any:
        return value if value in ids or value in state.changed.get(number, ()) else BAD

    label = domain.text(f"{entity.noun.en} id", f"{entity.noun.zh}编号")
    described = {"type": "string", "pattern": f"^{entity.pattern}$", "description": label, "x-grounded": True}
    return Argument(described, is_required, convert, f"no such {name}", is_id=True)


def choice_argument(values: tuple[str, ...], name: str, label: str, default: Any = None, *, is_required: bool = True) -> Argument:
    described: dict[str, JSON] = {"type": "string", "enum": list(values)}
    if label != name.replace("_", " "):
        described["description"] = label
    return Argument(_with_default(described, default), is_required)


def _with_default(described: dict[str, JSON], default: Any) -> dict[str, JSON]:
    return described if default is None else {**described, "default": default}


def _name_argument(domain: Domain, field: Field | Param) -> Argument:
    keys = {words[language]: key for key, words in field.words.items() for language in ("zh", "en")}
    is_open = isinstance(field.words, OpenWords)
    label = domain.text(f"{field.label.en}, as it is written", f"{field.label.zh}，照原样填写")
    described = {"type": "string", "description": label, "x-grounded": True}
    return Argument(described, is_required=False, convert=lambda state, value: keys.get(value, value if is_open else ""))


def number_argument(label: str, low: float, high: float, *, is_whole: bool, default: Any = None, is_required: bool = True) -> Argument:
    kind = "integer" if is_whole else "number"
    described: dict[str, JSON] = {"type": kind, "minimum": low, "maximum": high, "description": label, "x-grounded": True}
    return Argument(_with_default(described, default), is_required)


@lru_cache(maxsize=4096)
def _days(today: date, first: int, last: int) -> Mapping[str, int]:
    """Days from today by how they are written: shared by all domains of that today."""
    return {(today + timedelta(days=day)).isoformat(): day for day in range(first, last + 1)}


def _date_argument(domain: Domain, name: str, label: str, first: int, last: int, *, is_required: bool = True) -> Argument:
    days = _days(domain.today, first, last)
    described = {
        "type": "string",
        "format": "date",
        "description": domain.text(f"{label}, as YYYY-MM-DD", f"{label}，格式为YYYY-MM-DD"),
        "x-grounded": True,
    }
    error = f"{name} must be a date from {domain.iso(first)} to {domain.iso(last)}"
    return Argument(described, is_required, lambda state, value: days.get(value, BAD), error)


_CLOCKS = {30: "full or half hour", 15: "quarter of an hour", 10: "time in steps of 10 minutes", 5: "time in steps of 5 minutes"}
_MINUTES = {30: "(00|30)", 15: "(00|15|30|45)", 10: "[0-5]0", 5: "[0-5][05]"}


def _clock_argument(name: str, label: str, first: str, last: str, step: int, default: Any = None, *, is_required: bool = True) -> Argument:
    pattern = rf"^\d\d:{_MINUTES[step]}$"
    described = _with_default({"type": "string", "pattern": pattern, "description": label, "x-grounded": True}, default)
    allowed = frozenset(clock_steps(first, last, step))
    error = f"{name} must be a {_CLOCKS[step]} from {first} to {max(allowed, default=last)}"
    return Argument(described, is_required, lambda state, value: value if value in allowed else BAD, error)


def _flag_argument(label: str, default: Any = None, *, is_required: bool = True) -> Argument:
    return Argument(_with_default({"type": "boolean", "description": label}, default), is_required)


def _money_unit(domain: Domain) -> str:
    return domain.text(f"in {domain.spec.head.currency}", f"单位：{CURRENCIES_ZH[domain.spec.head.currency]}")


def param_argument(domain: Domain, param: Param) -> Argument:
    """How the parameter of an action is checked."""
    spec, name, label, needed = param.spec, param.name, param.label.en, param.is_required
    if isinstance(spec, schema.RefParam):
        return id_argument(domain, domain.entities[spec.to], name, is_required=needed)
    if isinstance(spec, schema.ChoiceParam):
        return choice_argument(tuple(param.words), name, label, param.default, is_required=needed)
    if isinstance(spec, schema.NameParam):
        return replace(_name_argument(domain, param), is_required=needed)
    if isinstance(spec, schema.DateParam):
        return _date_argument(domain, name, label, spec.first, spec.last, is_required=needed)
    if isinstance(spec, schema.TimeParam):
        return _clock_argument(name, label, spec.first, spec.last, spec.step, param.default, is_required=needed)
    if isinstance(spec, schema.FlagParam):
        return _flag_argument(label, param.default, is_required=needed)
    is_whole = not isinstance(spec, schema.NumberParam)
    description = f"{label}{domain.text(' ', '，')}{_money_unit(domain)}" if isinstance(spec, schema.MoneyParam) else label
    return number_argument(description, spec.min, spec.max, is_whole=is_whole, default=param.default, is_required=needed)


_BOUNDS = {"max": {"en": "at most, ", "zh": "上限, "}, "min": {"en": "at least, ", "zh": "下限, "}}
_DAY_BOUNDS = {"max": {"en": "no later than, ", "zh": "不晚于, "}, "min": {"en": "no earlier than, ", "zh": "不早于, "}}


def filter_argument(domain: Domain, field: Field) -> Argument:
    spec, name, label = field.spec, filter_name(field), field.label.en
    if isinstance(spec, schema.RefField):
        return id_argument(domain, domain.entities[spec.to], name, is_required=False)
    if isinstance(spec, schema.ChoiceField):
        return choice_argument(tuple(field.words), name, label, is_required=False)
    if isinstance(spec, schema.NameField):
        return _name_argument(domain, field)
    if isinstance(spec, schema.FlagField):
        return _flag_argument(label, False if field.filter == "only" else None, is_required=False)
    bound = _BOUNDS.get(field.filter, {}).get(domain.languages[0], "")
    if isinstance(spec, schema.DateField):
        bound = _DAY_BOUNDS.get(field.filter, {}).get(domain.languages[0], "")
        return _date_argument(domain, name, f"{label}, {bound}".rstrip(", "), spec.first, spec.last + 366, is_required=False)
    if isinstance(spec, schema.TimeField):
        return _clock_argument(name, f"{label}, {bound}".rstrip(", "), "00:00", "23:59", spec.step, is_required=False)
    unit = f"{_money_unit(domain)}, " if isinstance(spec, schema.MoneyField) else ""
    description = f"{label}, {unit}{bound}{domain.text('inclusive', '含本数')}" if bound else label
    return number_argument(description, -1_000_000, 1_000_000, is_whole=False, is_required=False)


def default_of(spec: Any, kind: Type) -> Any:
    """A parameter's default as its type has it; raises ValueError for one that a caller could not give."""
    text = str(spec.default).lower() if isinstance(spec.default, bool) else str(spec.default)
    if kind.kind == "name":
        if kind.values is not None and text not in kind.values:
            raise ValueError(f"no value {text!r}; {nearest(text, kind.values)}")
        return text
    if kind.kind in ("ref", "date"):
        raise ValueError(f"{kind} has no default; leave it out")
    if kind.kind == "flag":
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text == "true"
    if kind.kind == "choice":
        if text not in (kind.values or ()):
            raise ValueError(f"no value {text!r}; {nearest(text, kind.values or ())}")
        return text
    if kind.kind == "time":
        if text not in clock_steps(spec.first, spec.last, spec.step):
            raise ValueError(f"{text!r} is no {_CLOCKS[spec.step]} from {spec.first} to {spec.last}")
        return text
    try:
        value = int(text) if kind.kind == "whole" else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {kind}") from None
    if not spec.min <= value <= spec.max:
        raise ValueError(f"{text} is not between {spec.min} and {spec.max}")
    return value
