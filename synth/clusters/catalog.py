"""Reads a user's catalogue of tools: a JSONL file (also .gz) with a tool per line, in OpenAI's or MCP's form.

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

import gzip
import json
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from storage.errors import BadInput
from storage.records import JSON, MAX_NESTING, Tool, canonical_json, parse_arguments
from synth.clusters.tool_words import parse_name, raw_words
from synth.sandbox.safe_text import safe_text
from synth.worlds import WORLDS, WorldName

VERSION = 3

_PAGE_TEXT = re.compile(
    r"^(Deploy Server|Claim Server)\b.*\bTry in Playground\b|^Description not available\.?$|^No description( available)?\.?$", re.S
)
"""Texts of a listing's web page in place of a description."""
_PSEUDO_TOOLS = frozenset({"optional settings"})
_IDENTIFIER = re.compile(r"^[a-z][a-z0-9]*(?:_[a-z0-9]+)+$|^[a-z][a-z0-9]*(?:[A-Z][a-z0-9]*)+$")
_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
_KNOWN_SERVERS = 2
"""Fewest servers whose schemas have a property, for a crawled parameter of its name to stay."""
_NAME_LENGTH = 256
"""Most characters of a tool's name."""


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
    """

    path: Path
    tools: tuple[Tool, ...]
    rows: int
    copies: int
    unknown: int
    dropped: tuple[Dropped, ...] = ()


@dataclass
class _Rows:
    """Rows of a catalogue while it is read.

    rows: number of lines that are not blank.
    usable: usable rows, each with its `line`.
    reasons: reason -> number of dropped rows.
    lines: reason -> line of the first dropped row.
    """

    rows: int = 0
    usable: list[dict[str, JSON]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    lines: dict[str, int] = field(default_factory=dict)

    def drop(self, line: int, reason: str) -> None:
        """Counts a dropped row."""
        self.reasons[reason] += 1
        self.lines.setdefault(reason, line)


def read_catalogue(path: Path) -> Catalogue:
    """Reads the tools of a catalogue, in the order of the file.

    A tool's server is the key of the row's server (`server_key`). Rows without a server belong to one server, named after the file. The
    domain is the row's `label`, else the server's name.

    Raises:
        BadInput: the file does not exist, cannot be read or has no usable tool; a row names an unknown world, or a world without a tool of
            the row's name.
    """
    read = _Rows()
    try:
        with _open(path) as lines:
            _collect(lines, read)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
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
        raise BadInput(_no_tool_message(path, dropped))
    return Catalogue(path, tuple(tools), read.rows, copies, sum(not tool.parameters for tool in tools), dropped)


def merge_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Tools of several sources without duplicates, in order.

    Raises:
        BadInput: two different tools have the same id.
    """
    by_id: dict[str, Tool] = {}
    for tool in tools:
        first = by_id.setdefault(tool.id, tool)
        if first != tool:
            origins = (f"world {source.world}" if source.world else f"a catalogue ({source.domain})" for source in (first, tool))
            listed = ", ".join(f"one of {origin}" for origin in origins)
            raise BadInput(f"two tools are called {tool.id}: {listed}; give the catalogue's server another name")
    return tuple(by_id.values())


def _no_tool_message(path: Path, dropped: Sequence[Dropped]) -> str:
    why = f"line {dropped[0].line}: {dropped[0].reason}" if dropped else "it is empty"
    return (
        f"{path} holds no usable tool ({why}); write one JSON object a line, with a name, a description and a schema as `parameters` "
        "(OpenAI) or `inputSchema` (MCP)"
    )


def _open(path: Path) -> IO[bytes]:
    """Opens a plain or gzipped file, which its first bytes show."""
    with path.open("rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if is_compressed else path.open("rb")  # type: ignore[return-value]


def _collect(lines: IO[bytes], rows: _Rows) -> None:
    """Adds each line to `rows`, as usable or dropped."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        rows.rows += 1
        row = _parse_row(raw)
        reason = row if isinstance(row, str) else _problem_of(row)
        if reason:
            rows.drop(number, reason)
        else:
            rows.usable.append({**_safe(_flat(row)), "line": number})


def _parse_row(raw: bytes) -> Any:
    """The JSON object of a line, or a text that says why it is none. Half a surrogate pair, which no encoding can hold, becomes `?`."""
    try:
        text = raw.decode("utf-8-sig")
        row = _parse_json(text)
    except UnicodeDecodeError:
        return "not UTF-8"
    except OverflowError as error:
        return str(error)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(row, Mapping):
        return "not a JSON object"
    if text.count("{") + text.count("[") > MAX_NESTING and parse_arguments(text) is None:
        return f"nested deeper than {MAX_NESTING} levels"
    return json.loads(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")) if b"\\ud" in raw.lower() else row


def _parse_json(text: str) -> JSON:
    """The JSON value of a text.

    Raises:
        OverflowError: a number is infinite or no number (NaN), which JSON does not allow.
        ValueError: the text is not JSON.
    """

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise OverflowError(f"contains {number}, which JSON does not allow")
        return value

    return json.loads(text, parse_constant=finite, parse_float=finite)


def _safe(value: JSON) -> JSON:
    """The value with all its texts safe for a terminal."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else safe_text(value.encode())
    if isinstance(value, Mapping):
        return {_safe(key): _safe(item) for key, item in value.items()}
    return [_safe(item) for item in value] if isinstance(value, list) else value


def _flat(row: Mapping[str, JSON]) -> dict[str, JSON]:
    """The row with the keys of its `function` object, if any."""
    inner = row.get("function")
    return {**row, **inner} if isinstance(inner, Mapping) else dict(row)


def _problem_of(row: Mapping[str, JSON]) -> str | None:
    """Why a row is no usable tool, or None."""
    name = _flat(row).get("name")
    if not isinstance(name, str) or not name.strip():
        return "no name"
    if len(name) > _NAME_LENGTH:
        return f"name longer than {_NAME_LENGTH} characters"
    if not name.strip().isprintable():
        return "name with control characters"
    return "part of a page, not a tool" if name.strip().lower() in _PSEUDO_TOOLS else None


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
        _parse_json(text)
        return _safe(parse_arguments(text))
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
