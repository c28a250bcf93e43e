"""How much a store has grown since a flow last worked on it: the threshold of deployments that events start (`least_new`).

One idea: a flow that did its work notes the size of the store, `STORE/.headrace/seen.json`. It is a help for schedules, not data of the
store: without it, everything counts as new.
"""

from __future__ import annotations

import json
from pathlib import Path

from flows.runtime.notes.run_records import notes_folder
from storage.files import replace_atomically
from storage.store import Store


def too_few_new(flow: str, store: Path, least_new: int) -> str:
    """Why the flow has nothing to do, in words; empty if the store has at least `least_new` new tasks and accepted conversations."""
    if least_new <= 0:
        return ""
    new = _count_rows(store) - _read(store).get(flow, 0)
    return f"nothing to do: {max(new, 0):,} new tasks and conversations since the last run, fewer than {least_new:,}" * (new < least_new)


def note_seen(flow: str, store: Path) -> None:
    """Note that the flow has worked on everything that the store has now."""
    seen = json.dumps(_read(store) | {flow: _count_rows(store)})
    replace_atomically(_note(store), lambda draft: draft.write_text(seen))


def _count_rows(path: Path) -> int:
    store = Store(path)
    if not store.exists():
        return 0
    return int(store.query("SELECT (SELECT count(*) FROM tasks) + (SELECT count(*) FROM trajectories WHERE accepted)").row(0)[0])


def _read(store: Path) -> dict[str, int]:
    try:
        return dict(json.loads(_note(store).read_text()))
    except (OSError, ValueError):
        return {}


def _note(store: Path) -> Path:
    return notes_folder(store) / "seen.json"
