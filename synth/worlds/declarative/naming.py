"""What the tools of a domain and their parameters are called from outside: `get_loan(loan)`, `loanFetch(loanId)`, `acme_find_loans(...)`.

One idea: inside, everything goes by the names that the spec gives (`get_loan`, `loan`); only what leaves (tools, plans) and what comes in
(calls) is put into the style that `naming` asks for. A domain that asks for nothing is called from outside as from inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from synth.worlds.declarative.domain import Domain, Entity, key_of
from synth.worlds.declarative.language.spec_schema import Naming
from synth.worlds.declarative.tools import Callee, get_name, list_name, search_name


@dataclass(frozen=True, slots=True)
class Public:
    """A tool's name outside, and its parameters' by their names inside."""

    tool: str
    arguments: Mapping[str, str]


def public_names(domain: Domain, inside: Mapping[str, Callee]) -> dict[str, Public]:
    """By a tool's name inside. Where two tools, or two parameters of one, would be called the same, the inner names stay."""
    style = domain.spec.head.naming
    tools = {**{name: _apply_case(style, name) for name in domain.acts}, **_reading(domain, style)}
    if len({tools[name] for name in inside}) < len(inside):
        tools = {}
    return {name: Public(tools.get(name, name), _arguments(style, callee, name in domain.acts)) for name, callee in inside.items()}


def public_callees(domain: Domain, inside: Mapping[str, Callee], names: Mapping[str, Public]) -> dict[str, Callee]:
    """The tools under their names outside."""
    by_name = {}
    for name, callee in inside.items():
        public = names[name]
        parameters = {
            **callee.tool.parameters,
            "properties": {public.arguments[key]: schema for key, schema in callee.tool.parameters["properties"].items()},
            "required": [public.arguments[key] for key in callee.tool.parameters["required"]],
        }
        tool = callee.tool.model_copy(update={"name": public.tool, "parameters": parameters})
        arguments = {public.arguments[key]: argument for key, argument in callee.arguments.items()}
        has_style = any(key != outside for key, outside in public.arguments.items())
        by_name[public.tool] = Callee(
            tool, arguments, callee.work, {outside: key for key, outside in public.arguments.items()} if has_style else None
        )
    return by_name


def _reading(domain: Domain, style: Naming) -> dict[str, str]:
    names: dict[str, str] = {}
    for entity in domain.by_number:
        names[get_name(entity)] = _join_words(style, style.get, entity.name)
        names[search_name(entity)] = _join_words(style, style.search, key_of(entity))
        for owner in entity.owners():
            names[list_name(entity, owner)] = _list_name(style, entity, owner.name)
        for view, inside in (("get", get_name(entity)), ("search", search_name(entity)), ("list", _only_list(entity))):
            tool_spec = getattr(entity.spec.tools, view)
            if tool_spec is not None and tool_spec.name is not None and inside:
                names[inside] = tool_spec.name
    return names


def _only_list(entity: Entity) -> str:
    """The name inside of the list of the first owner."""
    return next((list_name(entity, owner) for owner in entity.owners()), "")


def _list_name(style: Naming, entity: Entity, owner: str) -> str:
    if style.order == "noun_first":
        return _apply_case(style, f"{key_of(entity)}_{style.list}_of_{owner}")
    return _apply_case(style, f"{style.list}_{key_of(entity)}_of_{owner}")


def _join_words(style: Naming, verb: str, noun: str) -> str:
    return _apply_case(style, f"{noun}_{verb}" if style.order == "noun_first" else f"{verb}_{noun}")


def _apply_case(style: Naming, name: str) -> str:
    whole = f"{style.prefix}_{name}" if style.prefix else name
    return _camel(whole) if style.case == "camel" else whole


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _arguments(style: Naming, callee: Callee, is_act: bool) -> dict[str, str]:
    """Outer names of a tool's parameters."""
    names: dict[str, str] = {}
    ids = [key for key, argument in callee.arguments.items() if argument.is_id]
    for key in callee.arguments:
        name = key
        if key in ids and style.ids != "plain":
            name = "id" if style.ids == "id" and key == ids[0] and (is_act or len(callee.arguments) == 1) else f"{key}_id"
        names[key] = _camel(name) if style.case == "camel" else name
    return names if len(set(names.values())) == len(names) else {key: key for key in names}
