"""A YAML file as a configuration model, with errors that a person can act on.

One idea: the file is parsed twice, once for its values and once for its nodes, so that every complaint of the model can name the
line it is about; an unknown key is refused together with the valid name nearest to it, a doubled key because YAML would keep the
last in silence.
"""

from __future__ import annotations

import difflib
import textwrap
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from storage.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[int | str, ...]


def load(path: Path, model: type[Model]) -> Model:
    """The configuration in `path`. Keys that it leaves out keep the model's defaults.

    Raises BadInput for a missing or unreadable file, bad YAML, unknown or doubled keys and values out of range, all in one line.
    """
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
        doubled = next(_doubled_keys(node), None)
    except RecursionError:
        raise BadInput(f"{path}: nested too deeply, or a part of itself") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that no calendar has
        raise BadInput(f"{path}{_line_of(error)}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    if doubled is not None:
        raise BadInput(f"{path}:{doubled.start_mark.line + 1}: the key `{doubled.value}` is given twice; keep one")
    if values is not None and not isinstance(values, dict):
        raise BadInput(f"{path}:1: a configuration is a mapping of keys to values, this is a {type(values).__name__}")
    try:
        return model.model_validate(values or {})
    except ValidationError as error:
        raise BadInput("; ".join(_complaint(path, node, model, each) for each in error.errors()[:3])) from None


def _line_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark else ""


def _doubled_keys(node: yaml.Node | None) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key
            seen.add(key.value)
            yield from _doubled_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _doubled_keys(item)


def _complaint(path: Path, node: yaml.Node | None, model: type[BaseModel], error: Any) -> str:
    place: Place = error["loc"]
    line, written = _find(node, place)
    where = f"{path}:{line}: "
    name = ".".join(str(part) for part in written) or "the file"
    if error["type"] == "extra_forbidden":
        return f"{where}unknown key `{name}`{_nearest(model, place)}"
    given = f", not {error['input']!r}" if isinstance(error["input"], str | int | float | bool) else ""
    return f"{where}`{name}`: {error['msg'].removeprefix('Value error, ')}{given}"


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
        if part is place[-1] and isinstance(part, str) and isinstance(node, yaml.MappingNode):
            written.append(part)
    return line, written


def _nearest(model: type[BaseModel], place: Place) -> str:
    valid = sorted({name for each in _models_at(model, place[:-1]) for name in each.model_fields})
    near = difflib.get_close_matches(str(place[-1]), valid, n=1, cutoff=0.5)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; valid here: {', '.join(valid)}" if valid else ""


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


def commented(model: BaseModel, *, indent: int = 0) -> str:
    """The model as YAML, every key with its description above it; `load` reads it back."""
    lines: list[str] = []
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        margin = " " * indent
        lines += [f"{margin}# {line}" for line in textwrap.wrap(info.description or "", 130 - indent)]
        if isinstance(value, BaseModel):
            lines += [f"{margin}{name}:", commented(value, indent=indent + 2)]
        else:
            plain = model.model_dump(mode="json", include={name})[name]
            text = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=1000)
            lines.append(f"{margin}{name}: {text.removesuffix('...' + chr(10)).strip()}")
    return "\n".join(lines)
