"""Reads a catalogue of tools that nobody here wrote: a JSONL file (.gz too), a tool a line, in OpenAI's or MCP's form.

One idea: what a row says usably is kept, noise is cleaned away (characters that a terminal would obey among it), and what cannot be used
is dropped with its line and reason.
- OpenAI: `{"type": "function", "function": {"name", "description", "parameters"}}`, or the inner object alone.
- MCP: `name`, `description`, `inputSchema` or `input_schema`, `outputSchema` or `output_schema`, `annotations`.
- Either may name its `server` (with `server_id` where names repeat) and a `label`, the business it is about; and the `world` that
  executes it (a name, or a domain spec's file beside the catalogue), whose own tool of that name then stands in its place.

A schema that is not known (missing, unreadable, an empty list) becomes `{}`, which is not the same as a schema without properties. Lists of
parameters crawled from web pages hold words of the page: such a parameter stays if it is required, looks like an identifier
(`chat_id`, `pageSize`), or is a property of real schemas of two servers. Exact copies are folded into the first.
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
from synth.clusters.tool_words import action, raw_words
from synth.sandbox.safe_text import safe_text
from synth.worlds import WORLDS, WorldName

VERSION = 3

_FRAME = re.compile(
    r"^(Deploy Server|Claim Server)\b.*\bTry in Playground\b|^Description not available\.?$|^No description( available)?\.?$", re.S
)
"""Texts of a listing's page that stand where a description should."""
_PSEUDO_TOOLS = frozenset({"optional settings"})
_IDENTIFIER = re.compile(r"^[a-z][a-z0-9]*(?:_[a-z0-9]+)+$|^[a-z][a-z0-9]*(?:[A-Z][a-z0-9]*)+$")
_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
_KNOWN_SERVERS = 2
_NAME_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows dropped for one reason: how many, and the line of the first."""

    reason: str
    count: int
    line: int


@dataclass(frozen=True)
class Catalogue:
    """What a file held. rows: lines that are not blank. copies: tools folded into an equal one. unknown: tools of unknown parameters."""

    path: Path
    tools: tuple[Tool, ...]
    rows: int
    copies: int
    unknown: int
    dropped: tuple[Dropped, ...] = ()


@dataclass
class _Rows:
    """Usable rows, and why others are none."""

    rows: int = 0
    usable: list[dict[str, JSON]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    lines: dict[str, int] = field(default_factory=dict)

    def drop(self, line: int, reason: str) -> None:
        self.reasons[reason] += 1
        self.lines.setdefault(reason, line)


def read_catalogue(path: Path) -> Catalogue:
    """The tools of a catalogue, in the order of the file.

    A tool's server is the row's, made a key: lower-case words joined by `-`, with the `server_id` where there is one. Rows that name none
    belong to one server, named after the file. The domain is the row's `label`, else the server's name.

    Raises:
        BadInput: there is no such file, it cannot be read, it holds no usable tool, or a row names a world that is none, or that has no
            tool of the row's name.
    """
    found = _Rows()
    try:
        with _opened(path) as lines:
            _collect(lines, found)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    known = _known_properties(found.usable)
    tools: list[Tool] = []
    seen: set[str] = set()
    ids: set[str] = set()
    copies = 0
    for row in found.usable:
        tool = _tool(row, known, path) if row.get("world") is None else _executable(row, path)
        says = bool(tool.description or tool.parameters) and tool.world is None
        content = canonical_json([tool.name, tool.description, tool.parameters, tool.output, None if says else tool.server])
        if content in seen:
            copies += 1
        elif tool.id in ids:
            found.drop(row["line"], "name that its server has given already")
        else:
            tools.append(tool)
            ids.add(tool.id)
        seen.add(content)
    dropped = tuple(Dropped(reason, count, found.lines[reason]) for reason, count in found.reasons.most_common())
    if not tools:
        raise BadInput(_nothing_usable(path, dropped))
    return Catalogue(path, tuple(tools), found.rows, copies, sum(not tool.parameters for tool in tools), dropped)


def joined(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Tools of several sources, each once, in order.

    Raises:
        BadInput: two that are not the same have one id.
    """
    found: dict[str, Tool] = {}
    for tool in tools:
        other = found.setdefault(tool.id, tool)
        if other != tool:
            one, two = (f"world {each.world}" if each.world else f"a catalogue ({each.domain})" for each in (other, tool))
            raise BadInput(f"two tools are called {tool.id}: one of {one}, one of {two}; give the catalogue's server another name")
    return tuple(found.values())


def _nothing_usable(path: Path, dropped: Sequence[Dropped]) -> str:
    why = f"line {dropped[0].line}: {dropped[0].reason}" if dropped else "it is empty"
    return (
        f"{path} holds no usable tool ({why}); write one JSON object a line, with a name, a description and a schema as `parameters` "
        "(OpenAI) or `inputSchema` (MCP)"
    )


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if is_compressed else path.open("rb")  # type: ignore[return-value]


def _collect(lines: IO[bytes], found: _Rows) -> None:
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        found.rows += 1
        row = _row(raw)
        reason = row if isinstance(row, str) else _reason_against(row)
        if reason:
            found.drop(number, reason)
        else:
            found.usable.append({**_safe(_flat(row)), "line": number})


def _row(raw: bytes) -> Any:
    """The JSON object of a line, or why it is none. Half a surrogate pair is no text in any encoding: it becomes `?`."""
    try:
        text = raw.decode("utf-8-sig")
        row = _parsed(text)
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


def _parsed(text: str) -> JSON:
    """The JSON value in a text.

    Raises:
        OverflowError: a number in it is none that JSON can say.
        ValueError: it is not JSON.
    """

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise OverflowError(f"holds {number}, which JSON cannot say")
        return value

    return json.loads(text, parse_constant=finite, parse_float=finite)


def _safe(value: JSON) -> JSON:
    """The value, all texts in it safe to be shown on a terminal."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else safe_text(value.encode())
    if isinstance(value, Mapping):
        return {_safe(key): _safe(item) for key, item in value.items()}
    return [_safe(item) for item in value] if isinstance(value, list) else value


def _flat(row: Mapping[str, JSON]) -> dict[str, JSON]:
    inner = row.get("function")
    return {**row, **inner} if isinstance(inner, Mapping) else dict(row)


def _reason_against(row: Mapping[str, JSON]) -> str | None:
    name = _flat(row).get("name")
    if not isinstance(name, str) or not name.strip():
        return "no name"
    if len(name) > _NAME_LENGTH:
        return f"name longer than {_NAME_LENGTH} characters"
    if not name.strip().isprintable():
        return "name with control characters"
    return "part of a page, not a tool" if name.strip().lower() in _PSEUDO_TOOLS else None


# ---- one tool -------------------------------------------------------------------------------------------------------


def _tool(row: Mapping[str, JSON], known: Mapping[str, int], path: Path) -> Tool:
    name = row["name"].strip()
    server, label = row.get("server"), row.get("label")
    server_name = _line(server) or path.name.split(".")[0]
    output = _first(row, "outputSchema", "output_schema", "output", "response")
    annotations = row.get("annotations")
    read_only = annotations.get("readOnlyHint") if isinstance(annotations, Mapping) else None
    changes = action(raw_words(name)).kind in ("create", "change", "remove") if not isinstance(read_only, bool) else not read_only
    return Tool(
        name=name,
        description=_description(row.get("description")),
        parameters=parameters(_first(row, "parameters", "inputSchema", "input_schema"), name, known),
        server=server_key(server_name, row.get("server_id")),
        domain=_line(label) or server_name,
        output=dict(output) if isinstance(output, Mapping) and output else None,
        changes_state=changes,
    )


def _executable(row: Mapping[str, JSON], path: Path) -> Tool:
    """The tool of the world that a row names."""
    where, named = f"{path}:{row['line']}", row["world"]
    is_file = isinstance(named, str) and named.endswith((".yaml", ".yml"))
    try:
        world = TypeAdapter(WorldName).validate_python(str(path.parent / named) if is_file else named)
    except ValidationError as error:
        raise BadInput(f"{where}: world: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    name = row["name"].strip()
    found = next((tool for tool in WORLDS[world].tools if tool.name == name), None)
    if found is None:
        raise BadInput(f"{where}: world {world} has no tool {name!r}; it has {', '.join(tool.name for tool in WORLDS[world].tools)}")
    return found


def server_key(name: str, number: JSON = None) -> str:
    """`GitHub Projects`, 256 -> `github-projects-256`: one key a server, whatever its name shares with others'. It holds no dot."""
    said = "" if number is None or isinstance(number, Mapping | list) else str(number)
    return "-".join([*(_slug(name) or ["server"]), *_slug(said)])


def _slug(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _line(text: JSON) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def _first(row: Mapping[str, JSON], *keys: str) -> JSON:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _description(text: JSON) -> str:
    if not isinstance(text, str):
        return ""
    plain = text.strip()
    return "" if _FRAME.match(plain) else plain


# ---- schemas --------------------------------------------------------------------------------------------------------


def parameters(schema: JSON, tool_name: str = "", known: Mapping[str, int] | None = None) -> dict[str, JSON]:
    """A schema of an object with mappings as its properties, made of whatever stands where one should; `{}` where nothing is known.

    known: in the real schemas of how many servers a property of this name occurs.
    """
    if isinstance(schema, str):
        schema = _object_in(schema)
    if isinstance(schema, list):
        return _from_list(schema, tool_name, known or {})
    if not isinstance(schema, Mapping) or not schema:
        return {}
    found = _properties(schema)
    if found is None:
        is_bare = all(isinstance(item, Mapping) and "type" in item for item in schema.values())
        if is_bare:  # the properties themselves, without the object around them
            return {"type": "object", "properties": {name: dict(item) for name, item in schema.items()}}
        return {"type": "object", "properties": {}} if schema.get("type") in ("object", "dict") else {}
    needed = schema.get("required")
    names = [name for name in needed if isinstance(name, str) and name in found] if isinstance(needed, list) else []
    rest = {key: value for key, value in schema.items() if key not in ("type", "properties", "required", "$schema")}
    return {"type": "object", "properties": found, **({"required": names} if names else {}), **rest}


def _object_in(text: str) -> JSON:
    with suppress(ValueError, OverflowError, RecursionError):
        _parsed(text)
        return _safe(parse_arguments(text))
    return None


def _properties(schema: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """The properties of a schema and of what it is put together from; None where it has none to say."""
    own = schema.get("properties")
    found = {str(name): _property(item) for name, item in own.items()} if isinstance(own, Mapping) else None
    for key in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(key) or () if isinstance(schema.get(key), list) else ():
            inner = _properties(part) if isinstance(part, Mapping) else None
            if inner:
                found = {**inner, **(found or {})}
    return found


def _property(item: JSON) -> dict[str, JSON]:
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, str):
        return {"type": item} if item in _TYPES else {"description": item}
    return {}


def _from_list(schema: Sequence[JSON], tool_name: str, known: Mapping[str, int]) -> dict[str, JSON]:
    """Parameters crawled from a page, or listed one by one."""
    rows = [row for row in schema if isinstance(row, Mapping) and isinstance(row.get("name"), str) and row["name"].strip()]
    kept = {
        row["name"].strip(): {key: row[key] for key in ("description", "enum") if row.get(key)}
        for row in rows
        if row["name"].strip() != tool_name
        and (row.get("required") is True or _IDENTIFIER.match(row["name"].strip()) or known.get(row["name"].strip(), 0) >= _KNOWN_SERVERS)
    }
    needed = [row["name"].strip() for row in rows if row.get("required") is True and row["name"].strip() in kept]
    return {"type": "object", "properties": kept, **({"required": needed} if needed else {})} if kept else {}


def _known_properties(rows: Sequence[Mapping[str, JSON]]) -> Mapping[str, int]:
    """Property names of real schemas, with the number of servers that use them."""
    servers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        schema = _first(row, "parameters", "inputSchema", "input_schema")
        for name in (_properties(schema) or ()) if isinstance(schema, Mapping) else ():
            servers[name].add(f"{row.get('server')} {row.get('server_id')}")
    return {name: len(using) for name, using in servers.items()}
