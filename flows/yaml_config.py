"""A YAML file as a configuration model, with errors that a person can act on.

One idea: the file is parsed twice, once for its values and once for its nodes, so that every problem names the line it is about. An
unknown key is refused together with the valid name nearest to it, a value together with what is allowed, a doubled key because YAML
would keep the last in silence. All problems of a file are found at once.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from flows.config_reference import allowed_values
from storage.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[int | str, ...]
_SHOWN = 3
"""Problems in the message of an error; `headrace config check` shows all."""


class ConfigError(BadInput):
    """The keys or values of a configuration file cannot be used. Its message is one line with the first of them.

    problems: one line each, in the order of the file.
    """

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        more = f"; and {len(problems) - _SHOWN} more: headrace config check {path}" if len(problems) > _SHOWN else ""
        super().__init__("; ".join(problems[:_SHOWN]) + more)
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Document:
    """A YAML file: its nodes, which know their lines; its values; line and name of every key that is given twice."""

    node: yaml.Node | None
    values: dict[str, Any]
    doubled: tuple[tuple[int, str], ...]


def load(path: Path, model: type[Model]) -> Model:
    """The configuration in `path`. Keys that it leaves out keep the model's defaults.

    Raises:
        BadInput: the file is missing, unreadable or not YAML; one line.
        ConfigError: it has unknown or doubled keys, or values that are not allowed; all of them.
    """
    document = parse(path)
    problems = [(line, f"{path}:{line}: the key `{key}` is given twice; keep one") for line, key in document.doubled]
    try:
        config = model.model_validate(document.values)
    except ValidationError as error:
        problems += _complaints(path, document.node, model, error.errors())
    if problems:
        raise ConfigError(path, [text for _, text in sorted(problems, key=lambda problem: problem[0])])
    return config


def parse(path: Path) -> Document:
    """Raises BadInput: the file is missing, unreadable or not YAML, or holds no mapping; one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [other.name for other in path.parent.glob("*.y*ml")], n=1)
        raise BadInput(f"{path}: no such configuration file{f'; did you mean {path.parent / near[0]}?' if near else ''}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read as UTF-8 text ({error})") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
        doubled = tuple(_doubled_keys(node))
    except RecursionError:
        raise BadInput(f"{path}: nested too deeply, or a part of itself") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that no calendar has
        raise BadInput(f"{path}{_line_of(error)}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    if values is not None and not isinstance(values, dict):
        raise BadInput(f"{path}:1: a configuration is a mapping of keys to values, this is a {type(values).__name__}")
    return Document(node, values or {}, doubled)


def _line_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark else ""


def _doubled_keys(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Line and name of every key that its mapping has already."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key.start_mark.line + 1, key.value
            seen.add(key.value)
            yield from _doubled_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _doubled_keys(item)


def _complaints(path: Path, node: yaml.Node | None, model: type[BaseModel], errors: Sequence[Any]) -> list[tuple[int, str]]:
    """Line and text of every problem. What the alternatives of one value each say against it is one problem."""
    places = [(error, *_find(node, _place(error))) for error in errors]
    reasons: dict[tuple[int, str], list[str]] = {}
    allowed: dict[tuple[int, str], str] = {}
    for error, line, written in places:
        if len(written) < len(_place(error)) and any(len(other) > len(written) == _agreement(other, written) for _, _, other in places):
            continue  # an alternative that does not fit at all, beside one that fits but for a part
        name = ".".join(str(part) for part in written) or "the file"
        if error["type"] == "extra_forbidden":
            reasons[line, f"unknown key `{name}`{_nearest(model, _place(error))}"] = []
        else:
            reasons.setdefault((line, f"`{name}`: "), []).append(_reason(error))
            allowed[line, f"`{name}`: "] = _allowed(model, error)
    return [
        (line, f"{path}:{line}: {what}{', or: '.join(dict.fromkeys(said))}{allowed.get((line, what), '')}")
        for (line, what), said in reasons.items()
    ]


def _place(error: Any) -> Place:
    """The keys that lead to what is wrong. A validator of ours may name the end of the way itself, as `place` of the error's context."""
    return (*error["loc"], *error.get("ctx", {}).get("place", ()))


def _agreement(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Parts that two places have in common, from the first on."""
    return next((number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _reason(error: Any) -> str:
    is_ours = error["type"] == "value_error"
    given = f", not {error['input']!r}" if isinstance(error["input"], str | int | float | bool) and not is_ours else ""
    return f"{error['msg'].removeprefix('Value error, ')}{given}"


def _allowed(model: type[BaseModel], error: Any) -> str:
    """What the field allows, where the reason does not say it all."""
    if error["type"] in ("value_error", "literal_error", "missing"):
        return ""
    field = _field_at(model, _place(error))
    return f" (allowed: {allowed_values(field)})" if field is not None else ""


def _find(node: yaml.Node | None, place: Sequence[int | str]) -> tuple[int, list[int | str]]:
    """The line (from 1) of the deepest part of `place` that is in the file, and that part's path without the model's own labels."""
    line, written = 1, []
    for part in place:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if found is not None:
                line, node = found[0].start_mark.line + 1, found[1]
                written.append(part)
                continue
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
            written.append(part)
            continue
        if part is place[-1] and isinstance(part, str) and part.isidentifier() and isinstance(node, yaml.MappingNode):
            written.append(part)
    return line, written


def _nearest(model: type[BaseModel], place: Place) -> str:
    valid = sorted({name for each in _models_at(model, place[:-1]) for name in each.model_fields})
    near = difflib.get_close_matches(str(place[-1]), valid, n=1, cutoff=0.5)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; valid here: {', '.join(valid)}" if valid else ""


def _field_at(model: type[BaseModel], place: Place) -> FieldInfo | None:
    """The deepest field on the way to `place`."""
    for depth in range(len(place), 0, -1):
        for owner in _models_at(model, place[: depth - 1]):
            if place[depth - 1] in owner.model_fields:
                return owner.model_fields[str(place[depth - 1])]
    return None


def _models_at(annotation: Any, place: Place) -> list[type[BaseModel]]:
    """The models that stand at `place` below a type: through fields, lists, mappings and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not place:
            return [annotation]
        if place[0] in annotation.model_fields:
            return _models_at(annotation.model_fields[str(place[0])].annotation, place[1:])
        return _models_at(annotation, place[1:])  # a label of the model's own, such as a union's tag
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _models_at(arguments[0], place)
    if origin in (Union, types.UnionType):
        return [found for each in arguments for found in _models_at(each, place)]
    if origin is not None and arguments and place:
        return _models_at(arguments[-1] if origin is dict else arguments[0], place[1:])
    return []
