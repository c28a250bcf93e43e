"""The tools of a live world as they are offered: without what the spec hides or fixes, with schemas that can be checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from storage.errors import BadInput
from storage.records import CODE_TOOL
from synth.explore.sql import takes_sql
from synth.tasks.determined import FREE_TEXTS
from synth.worlds.arguments import compile_checker
from synth.worlds.live.copies.mcp_session import RawTool
from synth.worlds.live.json_references import without_references
from synth.worlds.live.live_spec import LiveSpec
from synth.worlds.live.lock import LiveTool
from synth.worlds.live.observations import RESTORE_TOOL, SNAPSHOT_TOOL, STATE_TOOL

MOST_TOOLS = 300


def offered_tools(raw: Sequence[RawTool], spec: LiveSpec) -> tuple[list[LiveTool], list[str]]:
    """The tools of a spec, and notes on those that are left out or changed. Whether a tool changes the state is its hint, or yes.

    Raises:
        BadInput: no tool is left, the spec names one that is not there, or more than 300 are.
    """
    names = {tool.name for tool in raw}
    for key in ("only", "hide", "reads", "writes"):
        unknown = [name for name in getattr(spec, key) if name not in names]
        if unknown:
            raise BadInput(
                f"{spec.live}: `{key}` names {unknown[0]}, which is no tool of the server; it has {', '.join(sorted(names)[:8])}"
            )
    tools: list[LiveTool] = []
    notes: list[str] = []
    for tool in raw:
        if tool.name in spec.hide or (spec.only and tool.name not in spec.only) or tool.name in (STATE_TOOL, SNAPSHOT_TOOL, RESTORE_TOOL):
            continue
        if tool.name == CODE_TOOL:
            notes.append(f"{CODE_TOOL} is left out: Headrace's own tool for programs has this name")
            continue
        parameters, note = _parameters(tool, spec)
        notes += [f"{tool.name}: {note}"] if note else []
        changes = tool.name in spec.writes or (tool.name not in spec.reads and tool.is_read_only is not True)
        tools.append(
            LiveTool(name=tool.name, description=tool.description, parameters=parameters, output=tool.output, changes_state=changes)
        )
    if not tools:
        raise BadInput(f"{spec.live}: the server has no tool that can be offered")
    if len(tools) > MOST_TOOLS:
        raise BadInput(
            f"{spec.live}: the server has {len(tools):,} tools, and a world at most {MOST_TOOLS}; "
            "name those that belong together (--only TOOL, or `only` in the file)"
        )
    return tools, notes


def _parameters(tool: RawTool, spec: LiveSpec) -> tuple[dict[str, Any], str]:
    """The schema of a tool's arguments, and what was done to it."""
    schema, note = dict(tool.parameters), ""
    try:
        schema = without_references(schema, schema)
        schema.pop("$schema", None)
        schema.setdefault("type", "object")
        schema["properties"] = {
            name: dict(_plain(inner)) for name, inner in (schema.get("properties") or {}).items() if name not in spec.fixed
        }
        schema["required"] = [name for name in schema.get("required") or () if name not in spec.fixed]
        _mark_grounded(schema, tool.description)
        compile_checker(schema)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        note = f"its schema cannot be read ({str(error)[:100]}); any arguments are passed on"
        schema = {"type": "object", "properties": {}}
    return schema, note


def _plain(schema: Any) -> Mapping[str, Any]:
    """A schema with schemas in the place of `true` and `false`, and without empty lists of choices."""
    if not isinstance(schema, Mapping):
        return {}
    plain = {key: value for key, value in schema.items() if not (key == "enum" and not value)}
    if "items" in plain:
        plain["items"] = dict(_plain(plain["items"]))
    if isinstance(plain.get("properties"), Mapping):
        plain["properties"] = {name: dict(_plain(inner)) for name, inner in plain["properties"].items()}
    return plain


def _mark_grounded(schema: dict[str, Any], description: str) -> None:
    """Marks required arguments that must have a source in the conversation: names, numbers and ids, but no choices and no free texts."""
    for name in schema["required"]:
        inner = schema["properties"].get(name)
        if inner is None or "enum" in inner or "const" in inner:
            continue
        kind = inner.get("type")
        is_free = name.lower() in FREE_TEXTS or takes_sql(name, f"{inner.get('description', '')} {description}")
        if kind in ("string", "integer", "number", "array") and not is_free:
            inner["x-grounded"] = True
