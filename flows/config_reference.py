"""The configuration reference: every key with its meaning, allowed values and default, as YAML that loads back.

One idea: everything comes from the pydantic models, so the reference matches what a run accepts. A field's description gives its meaning
and unit; its annotation and constraints give the allowed values. This module reads no files; `yaml_config.py` does.
"""

from __future__ import annotations

import json
import re
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_WIDTH = 130
"""Most columns of a comment, indentation included."""
_REQUIRED = ", required"
_BOUNDS = {
    "ge": ", >= {}",
    "gt": ", > {}",
    "le": ", <= {}",
    "lt": ", < {}",
    "min_length": ", length >= {}",
    "max_length": ", length <= {}",
    "pattern": " like {}",
}
"""Attribute of a constraint -> its text."""
_NAMES: Mapping[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    type(None): "null",
    Any: "any value",
}


def reference(config: BaseModel, default: BaseModel | None = None, written: Any = None, *, indent: int = 0) -> str:
    """The configuration as YAML. The comment above a key has its description, its allowed values, and its default if the value differs.

    default: values to compare with; None: the defaults of the configuration's class, which must have one for every key.
    written: values as the file writes them, such as a world given by its file; they are printed instead of the parsed values.
    indent: columns of indentation.
    """
    margin = " " * indent
    blocks: list[str] = []
    for name, value, usual, shown in _values(config, default, written):
        info = type(config).model_fields[name]
        if isinstance(value, BaseModel):
            section = reference(value, usual, shown, indent=indent + 2)
            blocks.append("\n".join([*_comment(info.description or "", margin), f"{margin}{name}:", section]))
            continue
        differs = f"; default: {_inline(usual)}" if value != usual else ""
        comment = _comment(info.description or "", margin, f"[{allowed_values(info)}{_REQUIRED * info.is_required()}{differs}]")
        items = [f"{margin}# {line}" for model in models_within(info.annotation) for line in _item_keys(model)]
        blocks.append("\n".join([*comment, *items, _assignment(name, shown, margin)]))
    return ("\n" if indent else "\n\n").join(blocks)


def differences(config: BaseModel, default: BaseModel | None = None, written: Any = None, *, indent: int = 0) -> str:
    """The keys whose values differ from the defaults, as YAML, each with its default in a comment; empty if none differs.

    A section in a file starts from the defaults of its class. If these differ from the configuration's defaults, the key is printed too,
    because the text would not load back without it.

    default, written, indent: as in `reference`.
    """
    margin = " " * indent
    blocks: list[str] = []
    for name, value, usual, shown in _values(config, default, written):
        class_default = type(config).model_fields[name].get_default(call_default_factory=True)
        if value == usual == class_default:
            continue
        if isinstance(value, BaseModel):
            blocks.append(f"{margin}{name}:\n{differences(value, usual, shown, indent=indent + 2)}")
        elif _is_block(shown):
            blocks.append(f"{margin}# default: {_inline(usual)}\n{_assignment(name, shown, margin)}")
        else:
            blocks.append(f"{_assignment(name, shown, margin)}  # default{f': {_inline(usual)}' if value != usual else ''}")
    return "\n".join(blocks)


def allowed_values(info: FieldInfo) -> str:
    """Type and range of a field as text: `integer >= 1 or null`, `number 0 to 1`, `local | ray`."""
    return _type_text(info.annotation, info.metadata)


def models_within(annotation: Any) -> list[type[BaseModel]]:
    """The models in a type: the type itself, members of a union, or items of a list or mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) if get_origin(annotation) is not Literal for model in models_within(each)]


# ---- keys and values ---------------------------------------------------------------------------------------------------


def _comment(meaning: str, margin: str, allowed: str = "") -> list[str]:
    """Lines of a comment: meaning and allowed values on one line if they fit, else the allowed values below."""
    width = _WIDTH - len(margin)
    one_line = f"{meaning} {allowed}".strip()
    lines = [one_line] if len(one_line) <= width else [*textwrap.wrap(meaning, width), *textwrap.wrap(allowed, width)]
    return [f"{margin}# {line}" for line in lines]


def _assignment(name: str, value: Any, margin: str) -> str:
    if _is_block(value):
        text = _to_yaml(_plain(value), default_flow_style=False).rstrip()
        return f"{margin}{name}:\n{textwrap.indent(text, margin + '  ')}"
    return f"{margin}{name}: {_inline(value)}"


def _item_keys(model: type[BaseModel]) -> Iterator[str]:
    yield f"Keys of an item ({model.__name__}):"
    for name, info in model.model_fields.items():
        yield f"  {name}: {info.description or ''} [{allowed_values(info)}{_REQUIRED * info.is_required()}]"
        for inner in models_within(info.annotation):
            yield from (f"    {line}" for line in _item_keys(inner))


def _values(config: BaseModel, default: BaseModel | None, written: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield key, value, default, and the value to print."""
    default = default or type(config)()
    for name in type(config).model_fields:
        value, usual = getattr(config, name), getattr(default, name)
        as_written = written.get(name) if isinstance(written, Mapping) else None
        if isinstance(value, BaseModel):
            yield name, value, usual if type(usual) is type(value) else None, as_written
        else:
            yield name, value, usual, value if as_written is None else as_written


def _is_block(value: Any) -> bool:
    """Whether a value needs several lines: a list or mapping of mappings."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(item, BaseModel | Mapping) for item in inner)


def _inline(value: Any) -> str:
    plain = _plain(value)
    text = _to_yaml(plain, default_flow_style=True, width=float("inf"))
    text = text.removesuffix("...\n").strip(" \n")
    return _SURROGATES.sub(_as_yaml, json.dumps(plain)) if "\n" in text else text  # JSON is nearly YAML, and one line


_SURROGATES = re.compile(r"\\\\|\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")
"""An escaped backslash, or a character beyond U+FFFF as JSON escapes it: two numbers, which YAML would read as two characters."""


def _as_yaml(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    return f"\\U{0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00:08x}"


def _to_yaml(plain: Any, **style: Any) -> str:
    """YAML text of a plain value. YAML reads the line breaks NEL, LS and PS as a newline, so a text with one of them is escaped."""
    text = str(yaml.safe_dump(plain, allow_unicode=True, sort_keys=False, **style))
    has_unicode_breaks = any(line_break in text for line_break in "\x85\u2028\u2029")
    return str(yaml.safe_dump(plain, sort_keys=False, **style)) if has_unicode_breaks else text


def _plain(value: Any) -> Any:
    """The value as YAML writes it: models as mappings, tuples as lists, paths as text."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


# ---- types as text -----------------------------------------------------------------------------------------------------


def _type_text(annotation: Any, constraints: Sequence[Any] = ()) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0], [*arguments[1:], *constraints])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(_type_text(argument, () if argument is type(None) else constraints) for argument in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"list of {len(arguments)}: {', '.join(map(_type_text, arguments))}"
    if origin in (tuple, list):
        return f"list of {_type_text(arguments[0])}{_range(constraints)}"
    if origin is not None and len(arguments) == 2:
        return f"mapping of {_type_text(arguments[0])} to {_type_text(arguments[1])}{_range(constraints)}"
    return f"{_NAMES.get(annotation) or annotation.__name__}{_range(constraints)}"


def _range(constraints: Sequence[Any]) -> str:
    """Bounds of numbers, lengths and patterns as text: ` 0 to 1`, ` > 0, < 1`, `, length >= 1`, ` like ^https?://`."""
    bounds = {name: getattr(item, name) for item in _flatten(constraints) for name in _BOUNDS if getattr(item, name, None) is not None}
    interval = f" {bounds.pop('ge')} to {bounds.pop('le')}" if {"ge", "le"} <= set(bounds) else ""
    rest = "".join(text.format(bounds[name]) for name, text in _BOUNDS.items() if name in bounds)
    return interval + (rest.removeprefix(",") if rest.startswith((", >", ", <")) else rest)


def _flatten(constraints: Sequence[Any]) -> Iterator[Any]:
    for constraint in constraints:
        if isinstance(constraint, FieldInfo):
            yield from constraint.metadata
        else:
            yield constraint
