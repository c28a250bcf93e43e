"""Reads a YAML file as a configuration model, with errors that a user can act on.

One idea: the file is parsed twice, once for its values and once for its nodes, so every error names its line. The error of an unknown
key suggests the nearest valid key. The error of a value names the allowed values. A duplicate key is an error, because YAML would
silently keep the last value. All problems of a file are found at once.
"""

from __future__ import annotations

import difflib
import re
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
from storage.outside.known_secrets import holds_secret

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[int | str, ...]
_SHOWN = 2
"""Most problems in an error message; `headrace config check` shows all."""
_NAMED = 9
"""Most valid keys in an error message."""


class ConfigError(BadInput):
    """A configuration file has wrong keys or values. The message is one line with the first problems.

    problems: all problems, one line each, in the order of the file.
    """

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        more = f"; and {len(problems) - _SHOWN} more: headrace config check {path}" if len(problems) > _SHOWN else ""
        super().__init__("; ".join(problems[:_SHOWN]) + more)
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Document:
    """A parsed YAML file.

    node: root of the nodes, which have line numbers.
    values: the file's values.
    duplicate_keys: line and name of every key that is given twice.
    """

    node: yaml.Node | None
    values: dict[str, Any]
    duplicate_keys: tuple[tuple[int, str], ...]


def load(path: Path, model: type[Model]) -> Model:
    """Read the configuration in `path`. Missing keys keep the model's defaults.

    Raises:
        BadInput: the file is missing, unreadable, empty or not YAML.
        ConfigError: the file has unknown or duplicate keys, or wrong values; it lists all of them.
    """
    document = parse(path)
    problems = [(line, f"{path}:{line}: the key `{key}` is given twice; keep one") for line, key in document.duplicate_keys]
    problems += _list_secrets(path, document.node)
    try:
        config = model.model_validate(document.values)
    except ValidationError as error:
        problems += _list_problems(path, document.node, model, error.errors())
    if problems:
        raise ConfigError(path, [text for _, text in sorted(problems, key=lambda problem: problem[0])])
    return config


def parse(path: Path) -> Document:
    """Parse a YAML file. Raises BadInput if the file is missing, unreadable, empty, not YAML, or not a mapping."""
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
        duplicate_keys = tuple(_find_duplicate_keys(node))
    except RecursionError:
        raise BadInput(f"{path}: nested too deeply, or it contains itself") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that no calendar has
        raise BadInput(f"{path}{_line_of(error)}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    if values is None:
        raise BadInput(f"{path}: the file is empty or has only comments; write a key into it, or leave it out for the defaults")
    if not isinstance(values, dict):
        raise BadInput(f"{path}:1: a configuration is a mapping of keys to values, this is a {type(values).__name__}")
    return Document(node, values, duplicate_keys)


def _line_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark else ""


def _find_duplicate_keys(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Line and name of every key that its mapping already has."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key.start_mark.line + 1, key.value
            seen.add(key.value)
            yield from _find_duplicate_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _find_duplicate_keys(item)


def _list_secrets(path: Path, node: yaml.Node | None) -> list[tuple[int, str]]:
    """Line and text of every value that holds a secret: a configuration is stored, and given to servers and jobs."""
    if isinstance(node, yaml.MappingNode):
        return [problem for pair in node.value for part in pair for problem in _list_secrets(path, part)]
    if isinstance(node, yaml.SequenceNode):
        return [problem for item in node.value for problem in _list_secrets(path, item)]
    if node is None or not holds_secret(str(node.value)):
        return []
    line = node.start_mark.line + 1
    return [(line, f"{path}:{line}: a password or key stands here, and a configuration is stored; set it in the environment instead")]


def _list_problems(path: Path, node: yaml.Node | None, model: type[BaseModel], errors: Sequence[Any]) -> list[tuple[int, str]]:
    """Line and text of every problem. The errors of all alternatives of one value are joined into one problem."""
    places = [(error, *_find(node, _place(error))) for error in errors]
    reasons: dict[tuple[int, str], list[str]] = {}
    allowed: dict[tuple[int, str], str] = {}
    for error, line, written in places:
        place = _place(error)
        if len(written) < len(place) and any(len(other) > len(written) == _common_prefix(other, written) for _, _, other in places):
            continue  # another alternative fits this value better: its error is deeper
        deeper = (_place(other) for other in errors if other is not error)
        if error["type"] == "too_short" and any(_common_prefix(place, other) == len(place) for other in deeper):
            continue  # its items are wrong, and so do not count
        name = ".".join(str(part) for part in written) or "the file"
        if error["type"] == "extra_forbidden":
            reasons[line, f"unknown key `{name}`{_nearest(model, _place(error))}"] = []
        else:
            reasons.setdefault((line, f"`{name}`: "), []).append(_reason(error))
            allowed[line, f"`{name}`: "] = _allowed(model, error)
    return [
        (line, f"{path}:{line}: {message}{', or: '.join(dict.fromkeys(texts))}{allowed.get((line, message), '')}")
        for (line, message), texts in reasons.items()
    ]


def _place(error: Any) -> Place:
    """The keys that lead to what is wrong. A validator of ours may name the end of the way itself, as `place` of the error's context."""
    return (*error["loc"], *error.get("ctx", {}).get("place", ()))


def _common_prefix(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Length of the common prefix of two paths."""
    return next((number for number, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))


def _reason(error: Any) -> str:
    is_ours = error["type"] == "value_error"
    actual = f", not {error['input']!r}" if isinstance(error["input"], str | int | float | bool) and not is_ours else ""
    reason = error["msg"].removeprefix("Value error, ").partition(", unable to parse")[0].replace("Input should be", "must be")
    return f"{reason}{actual}"


def _allowed(model: type[BaseModel], error: Any) -> str:
    """The allowed values of the field, if the reason does not name them."""
    if error["type"] in ("value_error", "literal_error", "missing"):
        return ""
    field = _field_at(model, _place(error))
    allowed = allowed_values(field) if field is not None else ""
    is_said = error["type"].startswith(("greater_than", "less_than")) and re.fullmatch(r"\w+ [<>]=? \S+", allowed)
    return f" (allowed: {allowed})" if allowed and not is_said else ""


def _find(node: yaml.Node | None, place: Sequence[int | str]) -> tuple[int, list[int | str]]:
    """Line (from 1) of the deepest part of `place` in the file, and the path to that part without the model's own labels."""
    line, written = 1, []
    for part in place:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if pair is not None:
                line, node = pair[0].start_mark.line + 1, pair[1]
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
    valid = sorted({name for owner in _models_at(model, place[:-1]) for name in owner.model_fields})
    nearest = difflib.get_close_matches(str(place[-1]), valid, n=1, cutoff=0.5)
    if nearest:
        return f"; did you mean `{nearest[0]}`?"
    more = f" and {len(valid) - _NAMED} more" if len(valid) > _NAMED else ""
    return f"; valid here: {', '.join(valid[:_NAMED])}{more}" if valid else ""


def _field_at(model: type[BaseModel], place: Place) -> FieldInfo | None:
    """The deepest field on the path `place`."""
    for depth in range(len(place), 0, -1):
        for owner in _models_at(model, place[: depth - 1]):
            if place[depth - 1] in owner.model_fields:
                return owner.model_fields[str(place[depth - 1])]
    return None


def _models_at(annotation: Any, place: Place) -> list[type[BaseModel]]:
    """The models at `place` below a type. Follows fields, lists, mappings and unions."""
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
        return [model for argument in arguments for model in _models_at(argument, place)]
    if origin is not None and arguments and place:
        return _models_at(arguments[-1] if origin is dict else arguments[0], place[1:])
    return []
