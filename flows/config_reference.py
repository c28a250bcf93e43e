"""The reference of a configuration: every key with its meaning, its allowed values and its default, as YAML that loads back.

One idea: everything is read from the pydantic models, so the reference agrees with what a run accepts. A field's description is its
meaning and unit; its annotation and constraints give the allowed values. Nothing here reads files: `yaml_config.py` does.
"""

from __future__ import annotations

import json
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_WIDTH = 130
"""Columns of a comment, with its indentation."""
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
"""Attribute of a constraint -> how it is written."""
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
    """The configuration as YAML, every key with its description and allowed values above it, and its default where the value differs.

    default: the values to compare with (None: those of the configuration's class, which must have a default for every key).
    written: the configuration as its file has it; shown where it says the same in other words, such as a world by its file.
    """
    margin = " " * indent
    blocks: list[str] = []
    for name, value, usual, said in _values(config, default, written):
        info = type(config).model_fields[name]
        if isinstance(value, BaseModel):
            within = reference(value, usual, said, indent=indent + 2)
            blocks.append("\n".join([*_comment(info.description or "", margin), f"{margin}{name}:", within]))
            continue
        differs = f"; default: {_inline(usual)}" if value != usual else ""
        comment = _comment(info.description or "", margin, f"[{allowed_values(info)}{_REQUIRED * info.is_required()}{differs}]")
        items = [f"{margin}# {line}" for model in models_within(info.annotation) for line in _item_keys(model)]
        blocks.append("\n".join([*comment, *items, _assignment(name, said, margin)]))
    return ("\n" if indent else "\n\n").join(blocks)


def differences(config: BaseModel, default: BaseModel | None = None, written: Any = None, *, indent: int = 0) -> str:
    """The keys whose values differ from the defaults, as YAML, each with its default in a comment; empty where none does.

    A section that is named begins with the defaults of its class. Where these are not the defaults of the configuration, the key stands
    here too, or what is printed would not load back.

    default, written: as in `reference`.
    """
    margin = " " * indent
    blocks: list[str] = []
    for name, value, usual, said in _values(config, default, written):
        unnamed = type(config).model_fields[name].get_default(call_default_factory=True)
        if value == usual == unnamed:
            continue
        if isinstance(value, BaseModel):
            blocks.append(f"{margin}{name}:\n{differences(value, usual, said, indent=indent + 2)}")
        elif _is_block(said):
            blocks.append(f"{margin}# default: {_inline(usual)}\n{_assignment(name, said, margin)}")
        else:
            blocks.append(f"{_assignment(name, said, margin)}  # default{f': {_inline(usual)}' if value != usual else ''}")
    return "\n".join(blocks)


def allowed_values(info: FieldInfo) -> str:
    """The type and range of a field in words: `integer >= 1 or null`, `number 0 to 1`, `local | ray`."""
    return _type_text(info.annotation, info.metadata)


def models_within(annotation: Any) -> list[type[BaseModel]]:
    """The models that a type mentions: itself, in a union, or as items of a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) if get_origin(annotation) is not Literal for model in models_within(each)]


# ---- keys and values ---------------------------------------------------------------------------------------------------


def _comment(meaning: str, margin: str, allowed: str = "") -> list[str]:
    """The lines of a comment; what is allowed stands behind the meaning where both fit on one line, else below it."""
    width = _WIDTH - len(margin)
    one_line = f"{meaning} {allowed}".strip()
    lines = [one_line] if len(one_line) <= width else [*textwrap.wrap(meaning, width), *textwrap.wrap(allowed, width)]
    return [f"{margin}# {line}" for line in lines]


def _assignment(name: str, value: Any, margin: str) -> str:
    if _is_block(value):
        text = yaml.safe_dump(_plain(value), allow_unicode=True, sort_keys=False).rstrip()
        return f"{margin}{name}:\n{textwrap.indent(text, margin + '  ')}"
    return f"{margin}{name}: {_inline(value)}"


def _item_keys(model: type[BaseModel]) -> Iterator[str]:
    yield f"Keys of an item ({model.__name__}):"
    for name, info in model.model_fields.items():
        yield f"  {name}: {info.description or ''} [{allowed_values(info)}{_REQUIRED * info.is_required()}]"
        for inner in models_within(info.annotation):
            yield from (f"    {line}" for line in _item_keys(inner))


def _values(config: BaseModel, default: BaseModel | None, written: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    """Key, value, default, and the value as it is written."""
    default = default or type(config)()
    for name in type(config).model_fields:
        value, usual = getattr(config, name), getattr(default, name)
        said = written.get(name) if isinstance(written, Mapping) else None
        if isinstance(value, BaseModel):
            yield name, value, usual if type(usual) is type(value) else None, said
        else:
            yield name, value, usual, value if said is None else said


def _is_block(value: Any) -> bool:
    """Whether a value is written over several lines: lists and mappings of mappings."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(each, BaseModel | Mapping) for each in inner)


def _inline(value: Any) -> str:
    plain = _plain(value)
    text = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=float("inf"), sort_keys=False)
    text = text.removesuffix("...\n").strip()
    return json.dumps(plain) if "\n" in text else text  # JSON is YAML, and one line


def _plain(value: Any) -> Any:
    """The value as YAML writes it: models as mappings, tuples as lists, paths as text."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


# ---- types in words ----------------------------------------------------------------------------------------------------


def _type_text(annotation: Any, constraints: Sequence[Any] = ()) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0], [*arguments[1:], *constraints])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(_type_text(each, () if each is type(None) else constraints) for each in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"list of {len(arguments)}: {', '.join(map(_type_text, arguments))}"
    if origin in (tuple, list):
        return f"list of {_type_text(arguments[0])}{_range(constraints)}"
    if origin is not None and len(arguments) == 2:
        return f"mapping of {_type_text(arguments[0])} to {_type_text(arguments[1])}{_range(constraints)}"
    return f"{_NAMES.get(annotation) or annotation.__name__}{_range(constraints)}"


def _range(constraints: Sequence[Any]) -> str:
    """What numbers, lengths and patterns a type is held to: ` 0 to 1`, ` > 0, < 1`, `, length >= 1`, ` like ^https?://`."""
    found = {name: getattr(each, name) for each in _flat(constraints) for name in _BOUNDS if getattr(each, name, None) is not None}
    whole = f" {found.pop('ge')} to {found.pop('le')}" if {"ge", "le"} <= set(found) else ""
    rest = "".join(text.format(found[name]) for name, text in _BOUNDS.items() if name in found)
    return whole + (rest.removeprefix(",") if rest.startswith((", >", ", <")) else rest)


def _flat(constraints: Sequence[Any]) -> Iterator[Any]:
    for each in constraints:
        if isinstance(each, FieldInfo):
            yield from each.metadata
        else:
            yield each
