"""The state of a live world as one JSON value, read from its folder or by calls; and the difference of two states.

One idea: a state is a mapping of mappings down to values, keyed by what tells rows apart (a primary key, an id, a file's path), so that the
difference is a flat mapping `path -> new value` with None for what is gone, which is what `Success.changes` holds.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from storage.records import JSON
from synth.worlds.live.copies.copy_errors import ServerSpoke
from synth.worlds.live.copies.private_folder import Contents
from synth.worlds.live.live_spec import StatePart

TEXT_BYTES = 4_096
"""A longer file is told by its hash."""
MOST_ROWS = 200_000
_ID_KEYS = ("id", "name", "key", "path", "uuid", "uid")
ReadCall = Callable[[str, Mapping[str, JSON]], JSON]


def read_state(
    parts: Sequence[StatePart], contents: Contents, call: ReadCall, cache: dict[str, tuple[bytes, JSON]] | None = None
) -> dict[str, JSON]:
    """The state; a key that two parts share stands under the number of the second. Lists stay lists: `differences` compares lists of rows
    by what tells the rows apart.

    Args:
        call: makes a read-only call, and returns its observation as JSON.
        cache: of files that were read before, by path; those of the same bytes are not parsed again.

    Raises:
        ServerSpoke: a file is not what the spec says.
    """
    state: dict[str, Any] = {}
    for number, part in enumerate(parts):
        read = _read_part(part, contents, call, {} if cache is None else cache)
        for key, value in (_without(read, part.ignore, "") if part.ignore else read).items():
            state[key if key not in state else f"{number}:{key}"] = value
    return state


def differences(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> dict[str, JSON]:
    """Path -> new value, None for what is gone; the paths go as deep as both are mappings, and to the leaves of what is new."""
    return dict(_differences(before, after, ""))


def _differences(before: JSON, after: JSON, path: str) -> Iterator[tuple[str, JSON]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            inner = f"{path}/{key}" if path else key
            if key not in after:
                yield inner, None
            elif key not in before:
                yield from _leaves(after[key], inner)
            elif before[key] != after[key]:
                yield from _differences(before[key], after[key], inner)
    elif isinstance(before, list) and isinstance(after, list):
        first, second = keyed(before), keyed(after)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            yield from _differences(first, second, path)
        elif before != after:
            yield path, after
    elif isinstance(after, Mapping):
        yield from _leaves(after, path)
    elif before != after:
        yield path, after


def _leaves(value: JSON, path: str) -> Iterator[tuple[str, JSON]]:
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from _leaves(value[key], f"{path}/{key}")
    else:
        yield path, value


def _without(value: Mapping[str, JSON], patterns: Sequence[str], path: str) -> dict[str, JSON]:
    kept: dict[str, JSON] = {}
    for key, inner in value.items():
        here = f"{path}/{key}" if path else key
        if not any(fnmatch.fnmatchcase(here, pattern) for pattern in patterns):
            kept[key] = _without(inner, patterns, here) if isinstance(inner, Mapping) else inner
    return kept


def _read_part(part: StatePart, contents: Contents, call: ReadCall, cache: dict[str, tuple[bytes, JSON]]) -> dict[str, JSON]:
    if part.calls is not None:
        return {_call_name(tool, arguments): call(tool, arguments) for tool, arguments in part.calls}
    if part.files is not None:
        return _files(part.files, contents)
    pattern = part.sqlite or part.json_file or part.jsonl or ""
    paths = [path for path, entry in contents.items() if entry.data is not None and fnmatch.fnmatchcase(path, pattern)]
    read: dict[str, JSON] = {}
    for path in paths:
        data = contents[path].data or b""
        name = f"{part.at}:{path}"
        known = cache.get(name)
        if known is not None and known[0] is data and part.sqlite is None:
            value = known[1]
        elif part.sqlite is not None:
            value = _sqlite(data, contents, path)
        elif part.json_file is not None:
            value = _at(_parsed(data, path), part.at)
        else:
            value = _json_lines(data, path, part.key)
        cache[name] = (data, value)
        read |= value if len(paths) == 1 and isinstance(value, dict) else {path: value}
    return read


def _call_name(tool: str, arguments: Mapping[str, JSON]) -> str:
    return f"{tool}({', '.join(f'{name}={json.dumps(value)}' for name, value in arguments.items())})" if arguments else tool


def keyed(rows: list[JSON]) -> JSON:
    """A list of rows as a mapping by the field that tells the rows apart, so that a row has a path; any other list stays."""
    if rows and all(isinstance(each, Mapping) for each in rows):
        for name in _key_names(rows[0]):
            keys = [row.get(name) for row in rows]
            if all(isinstance(key, str | int) for key in keys) and len({str(key) for key in keys}) == len(rows):
                return {str(row[name]): row for row in rows}
    return rows


def _key_names(row: Mapping[str, JSON]) -> list[str]:
    return [name for name in row if name in _ID_KEYS] + [name for name in row if name.endswith(("_id", "Id"))]


def _files(pattern: str, contents: Contents) -> dict[str, JSON]:
    tree: dict[str, Any] = {}
    for path, entry in contents.items():
        if not fnmatch.fnmatchcase(path, pattern if pattern != "**" else "*"):
            continue
        here = tree
        *folders, name = path.split("/")
        for folder in folders:
            here = here.setdefault(folder, {})
            if not isinstance(here, dict):
                break
        if isinstance(here, dict):
            here[name] = (
                {}
                if entry.is_folder
                else "no plain file"
                if entry.is_special
                else f"link to {entry.link}"
                if entry.data is None
                else shown_bytes(entry.data)
            )
    return tree


def shown_bytes(data: bytes) -> str:
    """A file's text, or its hash where it is long or no text."""
    if len(data) <= TEXT_BYTES:
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("utf-8")
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _parsed(data: bytes, path: str) -> JSON:
    try:
        return orjson.loads(data) if data.strip() else {}
    except ValueError as error:
        raise ServerSpoke(f"{path} of the private folder is no JSON: {str(error)[:100]}") from None


def _at(value: JSON, keys: str) -> JSON:
    for key in filter(None, keys.split(".")):
        value = value.get(key, {}) if isinstance(value, Mapping) else {}
    return value


def _json_lines(data: bytes, path: str, key: Sequence[str]) -> dict[str, JSON]:
    rows: dict[str, JSON] = {}
    for line in data.splitlines():
        if line.strip():
            row = _parsed(line, path)
            names = [name for name in key if isinstance(row, Mapping) and name in row]
            name = " ".join(str(row[each]) for each in names) if names else json.dumps(row, sort_keys=True)
            rows[name.replace("/", "|")] = row
    return rows


def _sqlite(data: bytes, contents: Contents, path: str) -> dict[str, JSON]:
    """All tables, rows by primary key. What another connection has not merged yet (`-wal`) counts."""
    if not data:
        return {}
    wal = contents.get(f"{path}-wal")
    try:
        if wal is not None and wal.data:
            with tempfile.TemporaryDirectory(prefix="headrace-sqlite-") as folder:
                (Path(folder) / "db").write_bytes(data)
                (Path(folder) / "db-wal").write_bytes(wal.data)
                with contextlib.closing(sqlite3.connect(Path(folder) / "db")) as database:
                    return _tables(database)
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(data[:18] + b"\x01\x01" + data[20:])
            return _tables(database)
    except (sqlite3.Error, ValueError, OverflowError) as error:
        raise ServerSpoke(f"{path} of the private folder is no SQLite database that can be read: {error}") from None


def _tables(database: sqlite3.Connection) -> dict[str, JSON]:
    database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    names = [
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1")
    ]
    return {name: _rows(database, name) for name in names}


def _rows(database: sqlite3.Connection, table: str) -> dict[str, JSON]:
    quoted = '"' + table.replace('"', '""') + '"'
    columns = list(database.execute(f"PRAGMA table_info({quoted})"))
    keys = [column[1] for column in sorted(columns, key=lambda column: column[5]) if column[5]]
    rows: dict[str, JSON] = {}
    cursor = database.execute(f"SELECT * FROM {quoted} LIMIT {MOST_ROWS + 1}")
    names = [column[0] for column in cursor.description]
    for at, values in enumerate(cursor):
        row = {name: _cell(value) for name, value in zip(names, values, strict=True)}
        rows[" ".join(str(row[key]) for key in keys).replace("/", "|") if keys else str(at)] = row
    if len(rows) > MOST_ROWS:
        raise ServerSpoke(f"table {table} has more than {MOST_ROWS:,} rows")
    return rows


def _cell(value: Any) -> JSON:
    return shown_bytes(value) if isinstance(value, bytes) else value
