"""Operations of an OpenAPI description (3.x, JSON or YAML) as tools: the part that the server in the box needs, as JSON.

One idea: some fifty lines do what is needed here, so no dependency: parameters of path, query and header and a JSON body become one flat
object; local references are inlined. It does not follow references to other files or addresses, and knows no other bodies than JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from storage.errors import BadInput
from storage.records import JSON
from synth.worlds.live.json_references import without_references

METHODS = ("get", "post", "put", "patch", "delete", "head")
MOST_BYTES, SHOWN = 20_000_000, 3


class _Loader(yaml.SafeLoader):
    """Dates stay texts, as in JSON."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_NAME = re.compile(r"[^A-Za-z0-9_]+")


def read_operations(path: Path) -> dict[str, dict[str, JSON]]:
    """Tool name -> operation: method, path, places of its arguments, and the tool as MCP lists it.

    Raises:
        BadInput: the file is not there or no OpenAPI description; or some of its operations cannot be read: the first three, and how many.
    """
    document = _read(path)
    problems: list[str] = []
    operations: dict[str, dict[str, JSON]] = {}
    for url, method, operation, shared in _operations(document):
        where = f"{method.upper()} {url}"
        try:
            name = _NAME.sub("_", str(operation.get("operationId") or f"{method}_{url}")).strip("_")
            if name in operations:
                raise ValueError(f"its name {name} is taken")
            operations[name] = _operation(document, name, method, url, operation, shared)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            problems.append(f"{where}: {error}")
    if problems:
        more = f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
        raise BadInput(f"{path}: {len(problems):,} operations cannot be read: {'; '.join(problems[:SHOWN])}{more}")
    if not operations:
        raise BadInput(f"{path}: describes no operation (`paths` is empty)")
    return operations


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(f"{path}: larger than {MOST_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, _Loader)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise BadInput(f"{path}: cannot be read as JSON or YAML: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(document, dict) or "openapi" not in document or not isinstance(document.get("paths"), dict):
        raise BadInput(f"{path}: is no OpenAPI 3 description (it has no `openapi` and `paths`)")
    return document


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], list[Any]]]:
    for url, item in document["paths"].items():
        for method in METHODS:
            if isinstance(item, dict) and isinstance(item.get(method), dict):
                yield url, method, item[method], item.get("parameters") or []


def _operation(document: Any, name: str, method: str, url: str, operation: Any, shared: list[Any]) -> dict[str, JSON]:
    properties: dict[str, JSON] = {}
    required: list[str] = []
    places: dict[str, str] = {}
    for raw in (*shared, *(operation.get("parameters") or [])):
        parameter = without_references(raw, document)
        if parameter["in"] not in ("path", "query", "header"):
            continue
        schema = dict(parameter.get("schema") or {"type": "string"})
        schema |= {"description": parameter["description"]} if parameter.get("description") else {}
        properties[parameter["name"]], places[parameter["name"]] = schema, parameter["in"]
        required += [parameter["name"]] if parameter.get("required") or parameter["in"] == "path" else []
    body = without_references(operation.get("requestBody") or {}, document)
    sent = _json_schema(body)
    is_whole = sent is not None and not isinstance(sent.get("properties"), dict)
    if sent is not None and is_whole:
        properties["body"] = sent
        required += ["body"] if body.get("required") else []
    elif sent is not None:
        properties |= sent["properties"]
        required += [key for key in sent.get("required", ()) if key not in required]
    parameters = {"type": "object", "properties": properties, "required": list(dict.fromkeys(required)), "additionalProperties": False}
    text = " ".join(str(operation.get("summary") or operation.get("description") or name).split())
    hints = {"readOnlyHint": method in ("get", "head"), "destructiveHint": method == "delete"}
    tool = {"name": name, "description": text, "inputSchema": parameters, "annotations": hints}
    return {
        "method": method.upper(),
        "path": url,
        "places": places,
        "has_body": sent is not None,
        "is_whole_body": is_whole,
        "tool": tool,
    }


def _json_schema(body: Mapping[str, Any]) -> dict[str, Any] | None:
    content = body.get("content") or {}
    if not content:
        return None
    for kind, media in content.items():
        if "json" in kind:
            return dict(media.get("schema") or {})
    raise ValueError(f"its body is {', '.join(content)}; only JSON bodies can be sent")
