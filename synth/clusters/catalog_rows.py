"""Reads the rows of a catalogue, in whatever form they come: a JSON object a line, a list, `{"tools": [...]}`, or a JSON-RPC answer.

One idea: a file is a sequence of JSON values, one a line or one in all; each value is a tool, a list of tools, or an object that holds
such a list (`tools` of an MCP `tools/list` result, alone or as the `result` of a JSON-RPC answer). gzip is recognised by its first bytes.
What a row means is read in `catalog.py`.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from storage.outside.safe_text import safe_text
from storage.records import JSON, MAX_NESTING

_PSEUDO_TOOLS = frozenset({"optional settings"})
_NAME_LENGTH = 256
"""Most characters of a tool's name."""
MORE_PAGES = "the answer has more pages (nextCursor): fetch them too, or read the server itself (--server)"


@dataclass
class Rows:
    """Rows of a catalogue while it is read.

    rows: number of rows.
    usable: usable rows, each with its `line`.
    unit: what `line` counts: lines, or in one document tools.
    reasons: reason -> number of dropped rows.
    lines: reason -> line of the first dropped row.
    """

    rows: int = 0
    usable: list[dict[str, JSON]] = field(default_factory=list)
    unit: str = "line"
    reasons: Counter[str] = field(default_factory=Counter)
    lines: dict[str, int] = field(default_factory=dict)

    def drop(self, line: int, reason: str) -> None:
        """Counts a dropped row."""
        self.reasons[reason] += 1
        self.lines.setdefault(reason, line)


def read_rows(path: Path) -> Rows:
    """The rows of a file.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read.
        BadInput: it holds the error of a server.
    """
    raw = path.read_bytes()
    data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    whole = _whole_document(data)
    values = [(1, whole)] if whole is not None else list(_lines(data))
    is_document = len(values) == 1 and _tools_in(values[0][1], path) is not None
    rows = Rows(unit="tool" if is_document else "line")
    for number, value in values:
        _collect(number, value, rows, path, is_document=is_document)
    return rows


def rows_of(values: list[Mapping[str, JSON]]) -> Rows:
    """Rows that a live server gave."""
    rows = Rows(unit="tool")
    for number, value in enumerate(values, 1):
        _add(number, value, rows)
    return rows


def _whole_document(data: bytes) -> JSON:
    """The one JSON value that a file is; None if it has one a line."""
    text = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    first, _, rest = text.partition(b"\n")
    if text[:1] not in (b"[", b"{") or (text[:1] == b"{" and (not rest.strip() or isinstance(_parse_row(first), Mapping))):
        return None
    value = _parse_row(text)
    return value if isinstance(value, list | Mapping) else None


def _lines(data: bytes) -> Iterator[tuple[int, Any]]:
    return ((number, _parse_row(raw)) for number, raw in enumerate(data.split(b"\n"), 1) if raw.strip())


def _collect(number: int, value: Any, rows: Rows, path: Path, *, is_document: bool) -> None:
    """Adds the tools of a JSON value. number: of its line. In a document, tools are counted instead."""
    listed = _tools_in(value, path)
    if isinstance(value, Mapping) and listed is not None and _is_partial(value):
        rows.drop(number, MORE_PAGES)
    if listed is None:
        rows.rows += 1
        _add_parsed(number, value, rows)
        return
    for at, each in enumerate(listed, 1):
        rows.rows += 1
        _add_parsed(at if is_document else number, each, rows)


def _tools_in(value: Any, path: Path) -> list[Any] | None:
    """The list of tools in a JSON value; None if it is a tool itself, or nothing of use."""
    if not isinstance(value, Mapping):
        return value if isinstance(value, list) else None
    if "jsonrpc" in value and isinstance(value.get("error"), Mapping):
        raise BadInput(f"{path} holds an error of a server: {safe_text(str(value['error'].get('message', 'unknown')).encode())}")
    if isinstance(value.get("result"), Mapping) and "name" not in value:
        return _tools_in(value["result"], path)
    return value["tools"] if isinstance(value.get("tools"), list) and "name" not in value else None


def _is_partial(value: Mapping[str, Any]) -> bool:
    result = value.get("result")
    return bool(result.get("nextCursor") if isinstance(result, Mapping) else value.get("nextCursor"))


def _add(number: int, value: Any, rows: Rows) -> None:
    rows.rows += 1
    _add_parsed(number, value, rows)


def _add_parsed(number: int, row: Any, rows: Rows) -> None:
    """Adds a row, as usable or dropped."""
    if isinstance(row, _Unread):
        reason: str | None = row
    elif not isinstance(row, Mapping):
        reason = "not a JSON object"
    else:
        reason = f"nested deeper than {MAX_NESTING} levels" if _is_deep(row) else _problem_of(row)
    if reason:
        rows.drop(number, reason)
    else:
        rows.usable.append({**safe(_flat(row)), "line": number})


class _Unread(str):
    """Why a line is no JSON object."""


def _is_deep(value: JSON) -> bool:
    level: list[JSON] = [value]
    for _ in range(MAX_NESTING):
        level = [
            item for each in level for item in (each.values() if isinstance(each, Mapping) else each) if isinstance(item, Mapping | list)
        ]
        if not level:
            return False
    return True


def _parse_row(raw: bytes) -> Any:
    """The JSON object or list of a line, or an `_Unread`. Half a surrogate pair, which no encoding can hold, becomes `?`."""
    try:
        text = raw.decode("utf-8-sig")
        row = parse_json(text)
    except UnicodeDecodeError:
        return _Unread("not UTF-8")
    except OverflowError as error:
        return _Unread(str(error))
    except (ValueError, RecursionError):
        return _Unread("not JSON")
    if not isinstance(row, Mapping | list):
        return _Unread("not a JSON object")
    return json.loads(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")) if b"\\ud" in raw.lower() else row


def parse_json(text: str) -> JSON:
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


def safe(value: JSON) -> JSON:
    """The value with all its texts safe for a terminal."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else safe_text(value.encode())
    if isinstance(value, Mapping):
        return {safe(key): safe(item) for key, item in value.items()}
    return [safe(item) for item in value] if isinstance(value, list) else value


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
