"""Worlds as pages show them: found by name, called within a limit of time, and what a call changed, row by row.

One idea: only worlds that compute in this process's memory are called. Live worlds (tools of MCP servers, functions, APIs) would start
other people's programs, so their pages show what is known of them and call nothing; neither is `run_python` called.
Calls by a form, forks and replays are made by one thread, one after the other; a call that does not return holds the others up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from storage.errors import BadInput
from storage.records import CODE_TOOL, JSON, Tool
from storage.store import Store

if TYPE_CHECKING:
    from synth.worlds.base import World

TIME_LIMIT_S = 10.0
"""For the calls of one page, waiting included."""
MOST_SHOWN = 20_000
"""Characters of a result that a page shows."""
T = TypeVar("T")

_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worlds")


def within_time(work: Callable[[Callable[[], None]], T]) -> T:
    """Does work with worlds. work: gets a function to call between its steps, which raises once the time is over.

    Raises:
        BadInput: it took longer than `TIME_LIMIT_S`.
    """
    end = time.monotonic() + TIME_LIMIT_S
    too_long = f"this takes longer than {TIME_LIMIT_S:.0f} seconds, the most that a page may take; make fewer calls, or try again"

    def check_time() -> None:
        if time.monotonic() > end:
            raise BadInput(too_long)

    running = _thread.submit(work, check_time)
    try:
        return running.result(timeout=TIME_LIMIT_S)
    except TookTooLong:
        running.cancel()
        raise BadInput(too_long) from None


def find_world(store: Store, name: str) -> type[World]:
    """The world of that name, also one of the user's own that the store holds.

    Raises:
        BadInput: this Headrace does not know it, or cannot compile it.
    """
    from synth.worlds import WORLDS
    from synth.worlds.stored_worlds import register_stored

    if name not in WORLDS:
        register_stored(store)
    if name not in WORLDS:
        raise BadInput(
            f"{name} is no world that comes with Headrace, and the store does not hold its spec; only what its rows say of it is known here"
        )
    try:
        return within_time(lambda _: WORLDS[name])
    except KeyError:
        raise BadInput(f"there is no world {name}") from None


def why_not_called(kind: type[World]) -> str | None:
    """Why the viewer calls no tool of a world; None if it does."""
    from synth.worlds.declarative.compiled_world import SpecWorld

    if issubclass(kind, SpecWorld) or kind.name == "city":
        return None
    return (
        "Its tools are programs of others, and the viewer starts none: this page shows what is known of them. "
        "`headrace worlds try FILE` calls them at a prompt."
    )


def why_tool_not_called(tool: Tool) -> str | None:
    """Why the viewer does not call a tool of a world that it calls; None if it does."""
    return "It runs a program in a sandbox, and the viewer starts none." if tool.name == CODE_TOOL else None


def stored_tools(store: Store, world: str) -> list[Tool]:
    """The tools of a world as the store's clusters were built from them."""
    rows = store.query("SELECT DISTINCT ON (name) * EXCLUDE part_id FROM tools WHERE world = ? ORDER BY name", [world]).to_dicts()
    plain = ("name", "description", "server", "domain", "world", "changes_state")
    return [Tool(**{key: row[key] for key in plain}, parameters=json.loads(row["parameters"] or "{}")) for row in rows]


# ---- states -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateChange:
    """A value of a state that is another one after a call. place: keys from the outside in. before, after: JSON text; None if absent."""

    place: tuple[str, ...]
    before: str | None
    after: str | None


def state_changes(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> list[StateChange]:
    """The values in which two states of a world differ; of a row that is new or gone, each of its fields."""
    return list(_changes(before, after, ()))


_ABSENT: Any = object()


def _changes(before: JSON, after: JSON, place: tuple[str, ...]) -> Iterator[StateChange]:
    if before == after and type(before) is type(after):
        return
    left, right = (side if isinstance(side, Mapping) else {} for side in (before, after))
    if (left or right) and all(side is _ABSENT or isinstance(side, Mapping) for side in (before, after)):
        for key in dict.fromkeys((*left, *right)):
            yield from _changes(left.get(key, _ABSENT), right.get(key, _ABSENT), (*place, str(key)))
        return
    yield StateChange(place, *(None if side is _ABSENT else json.dumps(side, ensure_ascii=False) for side in (before, after)))


def change_of_path(changes: Mapping[str, JSON], expected: Mapping[str, JSON]) -> list[tuple[str, str, str]]:
    """Path, what is expected there, and what is there now, of all paths that changed or should have."""

    def text(side: Mapping[str, JSON], path: str) -> str:
        return "as at the start" if path not in side else "removed" if side[path] is None else json.dumps(side[path], ensure_ascii=False)

    return [(path, text(expected, path), text(changes, path)) for path in sorted(changes.keys() | expected.keys())]


@dataclass(frozen=True)
class StateTable:
    """Rows of one part of a state. columns: of the rows, after their key. count: of all rows."""

    name: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    count: int


def state_table(state: Mapping[str, JSON], name: str, first: int, most: int) -> StateTable:
    """The rows of a part of a state from number `first` on, at most so many; a part that has no rows by a key is numbered.

    Raises:
        BadInput: the state has no such part.
    """
    if name not in state:
        raise BadInput(f"the state has no {name}; it has {', '.join(state) or 'nothing'}")
    part = state[name]
    pairs = list(part.items()) if isinstance(part, Mapping) else list(enumerate(part)) if isinstance(part, list) else [("", part)]
    columns = list(dict.fromkeys(key for _, row in pairs if isinstance(row, Mapping) for key in row))
    is_plain = any(not isinstance(row, Mapping) for _, row in pairs)

    def cells(row: JSON) -> list[str]:
        fields = row if isinstance(row, Mapping) else {}
        return [*(_cell(fields.get(column, "")) for column in columns), *([""] if fields else [_cell(row)] if is_plain else [])]

    shown = [(str(key), cells(row)) for key, row in pairs[first : first + most]]
    return StateTable(name, [*columns, *(["value"] if is_plain else [])], shown, len(pairs))


def _cell(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cut(text: str) -> str:
    """A result as a page shows it: indented, and no longer than a page bears."""
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}\n… {len(text) - MOST_SHOWN:,} more characters are not shown"
