"""Reads a user's catalogue of tools, in OpenAI's or MCP's form: a file (`catalog_rows.py` has its forms), or a live server.

One idea: the reader keeps the usable content of a row, removes noise (such as control characters of terminals), and drops unusable rows
with their line and reason.
- OpenAI: `{"type": "function", "function": {"name", "description", "parameters"}}`, or the inner object alone.
- MCP: `name`, `description`, `inputSchema` or `input_schema`, `outputSchema` or `output_schema`, `annotations`.
- Both may have a `server` (with a `server_id` if names repeat), a `label` (the line of business), and a `world` that executes the tool (a
  name, or a domain spec's file beside the catalogue). The world's tool of that name then replaces the row.

An unknown schema (missing, unreadable, an empty list) becomes `{}`, which differs from a schema without properties. Lists of parameters
crawled from web pages contain words of the page: such a parameter stays if it is required, looks like an identifier (`chat_id`,
`pageSize`), or is a property of schemas of two servers. Exact copies are dropped after the first.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from storage.errors import BadInput
from storage.records import JSON, Tool, canonical_json, parse_arguments
from synth.clusters.catalog_rows import Rows, parse_json, read_rows, rows_of, safe
from synth.clusters.live_catalog import live_tools
from synth.clusters.tool_words import parse_name, raw_words
from synth.worlds import WORLDS, WorldName

VERSION = 3

_PAGE_TEXT = re.compile(
    r"^(Deploy Server|Claim Server)\b.*\bTry in Playground\b|^Description not available\.?$|^No description( available)?\.?$", re.S
)
"""Texts of a listing's web page in place of a description."""
_IDENTIFIER = re.compile(r"^[a-z][a-z0-9]*(?:_[a-z0-9]+)+$|^[a-z][a-z0-9]*(?:[A-Z][a-z0-9]*)+$")
_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
_KNOWN_SERVERS = 2
"""Fewest servers whose schemas have a property, for a crawled parameter of its name to stay."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows dropped for one reason. line: number of the first, from 1."""

    reason: str
    count: int
    line: int


@dataclass(frozen=True)
class Catalogue:
    """The content of a catalogue file.

    rows: number of lines that are not blank.
    copies: number of tools that equal an earlier one.
    unknown: number of tools with unknown parameters.
    unit: what the lines of dropped rows count: `line`, or `tool` in a file that is one document.
    """

    path: Path
    tools: tuple[Tool, ...]
    rows: int
    copies: int
    unknown: int
    dropped: tuple[Dropped, ...] = ()
    unit: str = "line"


def read_catalogue(path: Path) -> Catalogue:
    """Reads the tools of a catalogue, in the order of the file.

    A tool's server is the key of the row's server (`server_key`). Rows without a server belong to one server, named after the file. The
    domain is the row's `label`, else the server's name.

    Raises:
        BadInput: the file does not exist, cannot be read or has no usable tool; a row names an unknown world, or a world without a tool of
            the row's name.
    """
    try:
        read = read_rows(path)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _catalogue(read, path)


def live_catalogue(server: str) -> Catalogue:
    """The tools of a live MCP server. server: a command, or a URL.

    Raises:
        BadInput: as `live_tools`; or the server has no usable tool.
    """
    name, rows = live_tools(server)
    return _catalogue(rows_of(rows), Path(name))


def _catalogue(read: Rows, path: Path) -> Catalogue:
    servers_by_property = _servers_by_property(read.usable)
    tools: list[Tool] = []
    names: set[str] = set()
    ids: set[str] = set()
    copies = 0
    for row in read.usable:
        tool = _tool(row, servers_by_property, path) if row.get("world") is None else _world_tool(row, path)
        has_content = bool(tool.description or tool.parameters) and tool.world is None
        content = canonical_json([tool.name, tool.description, tool.parameters, tool.output, None if has_content else tool.server])
        if content in names:
            copies += 1
        elif tool.id in ids:
            read.drop(row["line"], "server has another tool of this name")
        else:
            tools.append(tool)
            ids.add(tool.id)
        names.add(content)
    dropped = tuple(Dropped(reason, count, read.lines[reason]) for reason, count in read.reasons.most_common())
    if not tools:
        raise BadInput(_no_tool_message(path, dropped, read.unit))
    return Catalogue(path, tuple(tools), read.rows, copies, sum(not tool.parameters for tool in tools), dropped, read.unit)


def merge_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Tools of several sources without duplicates, in order. A catalogue's tool gives way to that of a world made for it (`signatures`).

    Raises:
        BadInput: two different tools have the same id.
    """
    by_id: dict[str, Tool] = {}
    for tool in tools:
        first = by_id.setdefault(tool.id, tool)
        if first.world is None and tool.world is not None and WORLDS[tool.world].tools_are_given:
            by_id[tool.id] = tool
        elif tool.world is None and first.world is not None and WORLDS[first.world].tools_are_given:
            continue
        elif first != tool:
            origins = (f"world {source.world}" if source.world else f"a catalogue ({source.domain})" for source in (first, tool))
            listed = ", ".join(f"one of {origin}" for origin in origins)
            raise BadInput(f"two tools are called {tool.id}: {listed}; give the catalogue's server another name")
    return tuple(by_id.values())


def _no_tool_message(path: Path, dropped: Sequence[Dropped], unit: str) -> str:
    why = f"{unit} {dropped[0].line}: {dropped[0].reason}" if dropped else "it is empty"
    return (
        f"{path} holds no usable tool ({why}); write one JSON object a line, with a name, a description and a schema as `parameters` "
        "(OpenAI) or `inputSchema` (MCP)"
    )


# ---- one tool -------------------------------------------------------------------------------------------------------


def _tool(row: Mapping[str, JSON], servers_by_property: Mapping[str, int], path: Path) -> Tool:
    name = row["name"].strip()
    server, label = row.get("server"), row.get("label")
    server_name = _one_line(server) or path.name.split(".")[0]
    output = _first(row, "outputSchema", "output_schema", "output", "response")
    annotations = row.get("annotations")
    read_only = annotations.get("readOnlyHint") if isinstance(annotations, Mapping) else None
    changes = parse_name(raw_words(name)).kind in ("create", "change", "remove") if not isinstance(read_only, bool) else not read_only
    return Tool(
        name=name,
        description=_description(row.get("description")),
        parameters=clean_schema(_first(row, "parameters", "inputSchema", "input_schema"), name, servers_by_property),
        server=server_key(server_name, row.get("server_id")),
        domain=_one_line(label) or server_name,
        output=dict(output) if isinstance(output, Mapping) and output else None,
        changes_state=changes,
    )


def _world_tool(row: Mapping[str, JSON], path: Path) -> Tool:
    """The tool of this name of the row's world."""
    where, world_name = f"{path}:{row['line']}", row["world"]
    is_file = isinstance(world_name, str) and world_name.endswith((".yaml", ".yml"))
    try:
        world = TypeAdapter(WorldName).validate_python(str(path.parent / world_name) if is_file else world_name)
    except ValidationError as error:
        raise BadInput(f"{where}: world: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    name = row["name"].strip()
    tool = next((tool for tool in WORLDS[world].tools if tool.name == name), None)
    if tool is None:
        raise BadInput(f"{where}: world {world} has no tool {name!r}; it has {', '.join(tool.name for tool in WORLDS[world].tools)}")
    return tool


def server_key(name: str, number: JSON = None) -> str:
    """Key of a server: its name and number as lower-case words joined by `-`, without a dot. `GitHub App`, 256 -> `github-app-256`."""
    suffix = "" if number is None or isinstance(number, Mapping | list) else str(number)
    return "-".join([*(_slug_words(name) or ["server"]), *_slug_words(suffix)])


def _slug_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _one_line(text: JSON) -> str:
    """The text on one line; empty for any other value."""
    return " ".join(text.split()) if isinstance(text, str) else ""


def _first(row: Mapping[str, JSON], *keys: str) -> JSON:
    """The first value of these keys that is not null."""
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _description(text: JSON) -> str:
    """The text without surrounding space; empty for a text of a listing's page, and for any other value."""
    if not isinstance(text, str):
        return ""
    description = text.strip()
    return "" if _PAGE_TEXT.match(description) else description


# ---- schemas --------------------------------------------------------------------------------------------------------


def clean_schema(schema: JSON, tool_name: str = "", servers_by_property: Mapping[str, int] | None = None) -> dict[str, JSON]:
    """A clean schema of a tool's parameters: an object whose properties are mappings. `{}` if the parameters are unknown.

    Args:
        schema: any JSON value of a row, also JSON text or a list of parameters.
        tool_name: a crawled parameter of this name is dropped.
        known: property name -> number of servers whose schemas have it.
    """
    if isinstance(schema, str):
        schema = _object_in(schema)
    if isinstance(schema, list):
        return _from_list(schema, tool_name, servers_by_property or {})
    if not isinstance(schema, Mapping) or not schema:
        return {}
    items = _properties(schema)
    if items is None:
        is_bare = all(isinstance(item, Mapping) and "type" in item for item in schema.values())
        if is_bare:  # properties without the object around them
            return {"type": "object", "properties": {name: dict(item) for name, item in schema.items()}}
        return {"type": "object", "properties": {}} if schema.get("type") in ("object", "dict") else {}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str) and name in items] if isinstance(required, list) else []
    rest = {key: value for key, value in schema.items() if key not in ("type", "properties", "required", "$schema")}
    return {"type": "object", "properties": items, **({"required": names} if names else {}), **rest}


def _object_in(text: str) -> JSON:
    """The JSON object of a text, or None."""
    with suppress(ValueError, OverflowError, RecursionError):
        parse_json(text)
        return safe(parse_arguments(text))
    return None


def _properties(schema: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """The properties of a schema and of its `allOf`, `anyOf` and `oneOf` parts; None if it declares none."""
    declared = schema.get("properties")
    items = {str(name): _property(item) for name, item in declared.items()} if isinstance(declared, Mapping) else None
    for key in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(key) or () if isinstance(schema.get(key), list) else ():
            inner = _properties(part) if isinstance(part, Mapping) else None
            if inner:
                items = {**inner, **(items or {})}
    return items


def _property(item: JSON) -> dict[str, JSON]:
    """The schema of a property; a text is its type or description."""
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, str):
        return {"type": item} if item in _TYPES else {"description": item}
    return {}


def _from_list(schema: Sequence[JSON], tool_name: str, servers_by_property: Mapping[str, int]) -> dict[str, JSON]:
    """A schema of listed parameters (`name`, `required` ...), without those that are only words of a crawled page."""
    rows = [row for row in schema if isinstance(row, Mapping) and isinstance(row.get("name"), str) and row["name"].strip()]
    cleaned = {
        row["name"].strip(): {key: row[key] for key in ("description", "enum") if row.get(key)}
        for row in rows
        if row["name"].strip() != tool_name
        and (
            row.get("required") is True
            or _IDENTIFIER.match(row["name"].strip())
            or servers_by_property.get(row["name"].strip(), 0) >= _KNOWN_SERVERS
        )
    }
    required = [row["name"].strip() for row in rows if row.get("required") is True and row["name"].strip() in cleaned]
    return {"type": "object", "properties": cleaned, **({"required": required} if required else {})} if cleaned else {}


def _servers_by_property(rows: Sequence[Mapping[str, JSON]]) -> Mapping[str, int]:
    """Property name -> number of servers whose schemas have it. Lists of parameters do not count."""
    servers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        schema = _first(row, "parameters", "inputSchema", "input_schema")
        for name in (_properties(schema) or ()) if isinstance(schema, Mapping) else ():
            servers[name].add(f"{row.get('server')} {row.get('server_id')}")
    return {name: len(keys) for name, keys in servers.items()}
