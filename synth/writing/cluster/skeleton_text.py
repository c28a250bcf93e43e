"""Writes the skeleton of a cluster's world as a spec (`headrace worlds draft --cluster`): YAML with `# ?` at every guess."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from storage.errors import BadInput
from storage.records import CODE_TOOL, Tool
from synth.clusters.business_clusters import Cluster
from synth.worlds.declarative.common_names import plural_of
from synth.writing.cluster.names import usable_key
from synth.writing.cluster.skeleton import Skeleton, build_skeleton
from synth.writing.draft_spec import flow, id_prefixes, quoted

_ROWS = 90
_ABOUT = 300
"""Characters of a tool's description in the spec."""


def draft_cluster(cluster: Cluster, tools: Sequence[Tool], out: Path | None = None) -> str:
    """The text of a spec whose tools are those of a cluster. out: the file, for its head.

    Raises:
        BadInput: a tool of the cluster has the name of Headrace's own tool, or two have one name.
    """
    check_tools(cluster, tools)
    skeleton = build_skeleton(cluster, tools)
    name = usable_key((out.stem if out is not None else cluster.domain).replace("-", "_").replace(" ", "_"), "mine")
    lines = [*_head(cluster, name, skeleton, out), *_entities(skeleton), *_actions(skeleton), *_signatures(skeleton)]
    return "\n".join(lines) + "\n"


def check_tools(cluster: Cluster, tools: Sequence[Tool]) -> None:
    """Checks that one world can have these tools; BadInput says why not."""
    names = [tool.name for tool in tools]
    if CODE_TOOL in names:
        raise BadInput(f"{cluster.id} has a tool called {CODE_TOOL}, as Headrace's own for programs; give it another name in the catalogue")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"{cluster.id} has several tools called {twice[0]}; a world's tools differ in their names")


def _head(cluster: Cluster, name: str, skeleton: Skeleton, out: Path | None) -> list[str]:
    nouns = [each.noun for each in skeleton.entities.values()]
    file = out.name if out is not None else "FILE"
    return [
        f"# Drafted from {cluster.id} ({cluster.domain}): its tools as a world. Lines with `# ?` are guesses: mend them, then",
        f"#   headrace worlds check {file}   and   headrace worlds try {file}",
        f"domain: {name}",
        "languages: [en]",
        f"about: {quoted(f'a service that keeps {_listed(nouns)}')}  # ?",
        "",
    ]


def _listed(nouns: Sequence[str]) -> str:
    plurals = [plural_of(noun) for noun in nouns]
    return plurals[0] if len(plurals) == 1 else f"{', '.join(plurals[:-1])} and {plurals[-1]}"


def _entities(skeleton: Skeleton) -> Iterator[str]:
    yield "entities:"
    prefixes = id_prefixes(list(skeleton.entities))
    for name, entity in skeleton.entities.items():
        yield f"  {name}:"
        yield f"    noun: {quoted(entity.noun)}  # ?"
        yield f"    id: {prefixes[name]}###"
        yield f"    rows: {_ROWS}"
        yield f"    tools: [{', '.join(entity.tools)}]"
        yield "    fields:  # ? what is known of one"
        yield from (f"      {key}: {flow(keys)}" for key, keys in entity.all_fields().items())


def _first_rows(creates: Mapping[str, Mapping[str, str]], prefixes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """`creates`, with the id of a first row in place of `entity:0`."""
    return {
        name: {key: f"'{prefixes[value[:-2]]}000'" if value.endswith(":0") else value for key, value in columns.items()}
        for name, columns in creates.items()
    }


def _actions(skeleton: Skeleton) -> Iterator[str]:
    prefixes = id_prefixes(list(skeleton.entities))
    actions = [plan for plan in skeleton.tools if plan.form == "action"]
    yield from ("", "actions:" if actions else "actions: {}")
    for plan in actions:
        keys = plan.action
        yield f"  {plan.name}:"
        yield f"    verb: {quoted(str(keys['verb']))}  # ?"
        yield from _block("takes", keys["takes"])
        needs = keys.get("needs") or ()
        if needs:
            yield "    needs:  # ?"
            yield from (f"      - {flow(need)}" for need in needs)  # type: ignore[attr-defined]
        for key in ("sets", "creates", "finds", "shows"):
            if key in keys:
                values = _first_rows(keys[key], prefixes) if key == "creates" else keys[key]  # type: ignore[arg-type]
                yield f"    {key}: {flow(values)}  # ?"  # type: ignore[arg-type]


def _block(key: str, values: object) -> Iterator[str]:
    if not isinstance(values, Mapping) or not values:
        return
    yield f"    {key}:"
    yield from (f"      {name}: {flow(each)}" for name, each in values.items())


def _signatures(skeleton: Skeleton) -> Iterator[str]:
    yield from ("", "signatures:  # the cluster's tools, as the catalogue has them")
    for plan in skeleton.tools:
        yield f"  {plan.name}:"
        yield f"    tool: {quoted(plan.tool.id)}"
        about = " ".join(plan.tool.description.split())
        if about:
            yield f"    about: {quoted(about if len(about) <= _ABOUT else about[: _ABOUT - 1] + '…')}"
        if plan.takes:
            yield f"    takes: {flow(plan.takes)}" + ("" if plan.tool.parameters else "  # ? the catalogue does not say what it takes")
