"""Compiles a spec to a world class.

One idea: tools, intents and wording are built once and stored in a class. Equal specs compile to the same class, from a small cache. The
world of a shipped or generated spec has the spec's name; any other has its domain and a hash (`bakery@1a2b3c4d`), so a name always means
the same world.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.records import Tool
from synth.worlds import run_python
from synth.worlds.declarative.acting import Refused
from synth.worlds.declarative.admission import problems_of, try_intents
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.domain import Domain, system_prompt
from synth.worlds.declarative.intents import intents_of
from synth.worlds.declarative.intents.request_templates import Wording
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.problems import Problem, SpecError
from synth.worlds.declarative.language.resolve import resolve
from synth.worlds.declarative.language.yaml_text import parse_file
from synth.worlds.declarative.languages import languages_of, reduce_to
from synth.worlds.declarative.naming import public_callees, public_names
from synth.worlds.declarative.signatures import given_callee, given_name, signature_problems
from synth.worlds.declarative.tables.inline import inline_tables
from synth.worlds.declarative.tools import Callee, callees, get_name, list_count_key, list_name, search_count_key, search_name

VERSION = 5
"""Increased when the same spec compiles to a different world."""
CACHED = 256
"""Classes in memory, almost a megabyte each; a run over more domains compiles some of them again."""

_compiled: OrderedDict[tuple[str | None, str], type[SpecWorld]] = OrderedDict()


def compile_spec(raw: Any, *, name: str | None = None, where: str = "", files: Path | None = None) -> type[SpecWorld]:
    """The world of a spec's values.

    Args:
        raw: content of the YAML file, as plain values.
        name: name of the world; None for its domain and hash.
        where: the file, for error messages.
        files: a folder with the world's `families.yaml` and `grounding.yaml`; None if its wording comes from the spec.

    Raises:
        SpecError: with all problems of the spec.
    """
    languages = languages_of(raw)
    if len(languages) == 1:
        raw = reduce_to(raw, languages[0])
    domain = resolve(raw, where, is_worded=files is not None)
    key = (name, domain.digest)
    world = _compiled.get(key)
    if world is None:
        world = _compiled[key] = _build_class(domain, raw, name or f"{domain.name}@{domain.digest[:8]}", where, files)
        if len(_compiled) > CACHED:
            _compiled.popitem(last=False)
    else:
        _compiled.move_to_end(key)
    return world


def compile_file(path: Path, *, name: str | None = None, files: Path | None = None) -> type[SpecWorld]:
    """`compile_spec` of a YAML file."""
    raw = inline_tables(parse_file(path), path.parent, str(path))
    return compile_spec(raw, name=name, where=str(path), files=files)


def _build_class(domain: Domain, raw: Any, name: str, where: str, files: Path | None) -> type[SpecWorld]:
    spec_callees = callees(domain)
    signatures = domain.spec.head.signatures
    public_tools = _name_tools(domain, spec_callees, where)
    if run_python.TOOL.name in public_tools:
        clash = f"a tool would be called {run_python.TOOL.name}, as the one for programs is; take other verbs or a prefix"
        raise SpecError([Problem("naming", clash)], where)
    suffix = "" if name == domain.name else f"-{name.removeprefix(f'{domain.name}@')}"  # two worlds never have the same server
    tools: tuple[Tool, ...] = tuple(
        each.tool.model_copy(update={"world": name, "server": each.tool.server + ("" if signatures else suffix)})
        for each in public_tools.values()  # a given server stays: the tools are those of the catalogue
    )
    code = run_python.TOOL.model_copy(update={"world": name, "server": f"{domain.name}-python{suffix}", "domain": domain.name})
    intents = intents_of(domain)
    try:
        refused = try_intents(domain, intents)
    except (OverflowError, ValueError, Refused):
        raise SpecError([Problem("", "numbers grow out of all bounds; look at what is multiplied")], where) from None
    if problems := problems_of(domain, intents, refused):
        raise SpecError(problems, where)
    admitted = {intent.name: intent for intent in intents if intent.name not in refused}
    return type(
        "SpecWorld_" + domain.name,
        (SpecWorld,),
        {
            "name": name,
            "version": VERSION << 32 | int(domain.digest[:8], 16),
            "domain": domain,
            "languages": domain.languages,
            "tools_are_given": bool(signatures),
            "source": raw,
            "callees": public_tools,
            "tools": (*tools, code) if domain.spec.head.combined else tools,
            "intents": admitted,
            "unsolvable": refused,
            "kinds": {kind: of for intent in admitted.values() for kind, of in intent.kinds.items()},
            "system_prompt": system_prompt(domain),
            "wording": Wording(domain, tuple(admitted.values())) if files is None else None,
            "files": files,
            "tool_words": tool_words(domain),
            "person_names": proper_names(domain),
            "units": units_of(domain),
        },
    )


def _name_tools(domain: Domain, spec_callees: Mapping[str, Callee], where: str) -> dict[str, Callee]:
    """The tools by the names that callers use, which it also gives to plans (`Domain.public`)."""
    signatures = domain.spec.head.signatures
    if not signatures:
        domain.public = public_names(domain, spec_callees)
        return public_callees(domain, spec_callees, domain.public)
    if problems := list(signature_problems(domain, spec_callees)):
        raise SpecError(problems, where)
    domain.public = {name: given_name(signatures[name], callee) for name, callee in spec_callees.items()}
    return {signatures[name].name: given_callee(signatures[name], callee) for name, callee in spec_callees.items()}


def tool_words(domain: Domain) -> dict[str, tuple[str, ...]]:
    """By tool, words of a request that ask for it: those of the spec, else the usual ones."""
    words_of: dict[str, tuple[str, ...]] = {}
    for entity in domain.by_number:
        tools = entity.spec.tools
        words_of[get_name(entity)] = tuple(tools.get.words if tools.get else ()) or ("look up", "check", "查")
        usual = ("search", "find", "how many", "搜", "找", "多少")
        words_of[search_name(entity)] = tuple(tools.search.words if tools.search else ()) or usual
        usual_of_list = ("list", f"all {entity.plural}", "所有", "列出")
        for owner in entity.owners():
            words_of[list_name(entity, owner)] = tuple(tools.list.words if tools.list else ()) or usual_of_list
    for act in domain.acts.values():
        english = act.spec.verb.en.partition("_")[0].strip()
        chinese = act.spec.verb.zh.partition("_")[0] or act.spec.verb.zh.partition("_")[2]
        words_of[act.name] = tuple(act.spec.words) or (english.lower(), chinese)
    by_tool = {domain.public[name].tool: words for name, words in words_of.items() if name in domain.public}
    return {**by_tool, run_python.TOOL.name: ("calculate", "compute", "work out", "算")} if domain.spec.head.combined else by_tool


def proper_names(domain: Domain) -> dict[str, tuple[str, ...]]:
    """Each spelling of a value of a name field or a guarded field -> all spellings of that value."""
    names: dict[str, tuple[str, ...]] = {}
    for entity in domain.by_number:
        for field in entity.fields.values():
            if field.type.kind == "name" or getattr(field.spec, "guarded", False):
                for words in field.words.values():
                    names[words.en] = names[words.zh] = (words.en, words.zh)
    return names


def units_of(domain: Domain) -> dict[str, str]:
    """Units of fields that have the same unit in every entity, and of the row counts in lists and searches."""
    by_name: dict[str, set[str]] = {}
    for entity in domain.by_number:
        for field in entity.fields.values():
            is_money = isinstance(field.spec, schema.MoneyField)
            unit = domain.spec.head.currency if is_money else getattr(field.spec, "unit", "")
            by_name.setdefault(field.name, set()).add(unit if isinstance(field.spec, schema.IntegerField) or unit != "count" else "")
        by_name[search_count_key(entity)] = by_name[list_count_key(entity)] = {"count"}
    for action in domain.spec.actions.values():
        for name, field_of_reply in action.tells.items():
            if field_of_reply.unit is not None:
                by_name.setdefault(name, set()).add(field_of_reply.unit)
    return {name: min(units) for name, units in by_name.items() if len(units) == 1 and "" not in units}
