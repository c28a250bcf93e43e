"""Public names of a domain's tools and their parameters: `get_loan(loan)`, `loanFetch(loanId)`, `acme_find_loans(...)`.

One idea: inside this package, everything has the names of the spec (`get_loan`, `loan`). Tools and plans (which go to callers) and calls
(which come from callers) use the style of the spec's `naming`. Without `naming`, public names are those of the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.records import JSON
from synth.worlds.declarative.domain import Domain, plural_key
from synth.worlds.declarative.language.spec_schema import Naming
from synth.worlds.declarative.tools import Callee, get_name, list_name, search_name


@dataclass(frozen=True, slots=True)
class PublicName:
    """The public name of a tool.

    arguments: public names of its parameters, by their names in the spec.
    packed: by name in the spec, the JSON type of a parameter that holds one value (array, object), or the digits of an id.
    always: parameters that every call gives, with their one value.
    """

    tool: str
    arguments: Mapping[str, str]
    packed: Mapping[str, str] = field(default_factory=dict)
    always: Mapping[str, JSON] = field(default_factory=dict)

    def public_arguments(self, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
        """Arguments of a call by their public names."""
        return {self.arguments[name]: self._pack(name, value) for name, value in arguments.items()} | dict(self.always)

    def _pack(self, name: str, value: Any) -> JSON:
        kind = self.packed.get(name)
        if kind is None:
            return value
        if kind == "object":
            return {name: value}
        return [value] if kind == "array" else int("".join(filter(str.isdigit, value)))


def public_names(domain: Domain, callees: Mapping[str, Callee]) -> dict[str, PublicName]:
    """Public names by a tool's name in the spec. If two tools, or two parameters of a tool, would get one name, all keep theirs."""
    style = domain.spec.head.naming
    tools = {**{name: _apply_case(style, name) for name in domain.acts}, **_reading_tools(domain, style)}
    if len({tools[name] for name in callees}) < len(callees):
        tools = {}
    return {name: PublicName(tools.get(name, name), _arguments(style, callee, name in domain.acts)) for name, callee in callees.items()}


def public_callees(domain: Domain, callees: Mapping[str, Callee], names: Mapping[str, PublicName]) -> dict[str, Callee]:
    """The tools by their public names."""
    by_public_name = {}
    for name, callee in callees.items():
        public = names[name]
        parameters = {
            **callee.tool.parameters,
            "properties": {public.arguments[key]: schema for key, schema in callee.tool.parameters["properties"].items()},
            "required": [public.arguments[key] for key in callee.tool.parameters["required"]],
        }
        tool = callee.tool.model_copy(update={"name": public.tool, "parameters": parameters})
        arguments = {public.arguments[key]: argument for key, argument in callee.arguments.items()}
        spec_names = {public_key: key for key, public_key in public.arguments.items()}
        is_renamed = any(key != public_key for public_key, key in spec_names.items())
        by_public_name[public.tool] = Callee(tool, arguments, callee.work, spec_names if is_renamed else None)
    return by_public_name


def _reading_tools(domain: Domain, style: Naming) -> dict[str, str]:
    names: dict[str, str] = {}
    for entity in domain.by_number:
        get, search, lists = get_name(entity), search_name(entity), [list_name(entity, owner) for owner in entity.owners()]
        names[get] = _join_words(style, style.get, entity.name)
        names[search] = _join_words(style, style.search, plural_key(entity))
        for owner, spec_name in zip(entity.owners(), lists, strict=True):
            names[spec_name] = _join_words(style, style.list, plural_key(entity), f"_of_{owner.name}")
        for view, spec_name in (("get", get), ("search", search), ("list", lists[0] if lists else "")):
            tool_spec = getattr(entity.spec.tools, view)
            if tool_spec is not None and tool_spec.name is not None and spec_name:
                names[spec_name] = tool_spec.name
    return names


def _join_words(style: Naming, verb: str, noun: str, ending: str = "") -> str:
    words = f"{noun}_{verb}" if style.order == "noun_first" else f"{verb}_{noun}"
    return _apply_case(style, words + ending)


def _apply_case(style: Naming, name: str) -> str:
    whole = f"{style.prefix}_{name}" if style.prefix else name
    return _camel(whole) if style.case == "camel" else whole


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _arguments(style: Naming, callee: Callee, is_act: bool) -> dict[str, str]:
    """Public names of a tool's parameters."""
    names: dict[str, str] = {}
    ids = [key for key, argument in callee.arguments.items() if argument.is_id]
    for key in callee.arguments:
        name = key
        if key in ids and style.ids != "plain":
            name = "id" if style.ids == "id" and key == ids[0] and (is_act or len(callee.arguments) == 1) else f"{key}_id"
        names[key] = _camel(name) if style.case == "camel" else name
    return names if len(set(names.values())) == len(names) else {key: key for key in names}
