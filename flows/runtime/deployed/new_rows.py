"""How much a store has grown since a flow last worked on it: the threshold of deployments that events start (`least_new`).

One idea: a flow of a deployment that did its work notes the time of the last commit that it saw, in `STORE/.headrace/seen.json`. Later
commits are new. Without the file everything is new.
"""

from __future__ import annotations

import json
from pathlib import Path

from flows.runtime import events
from flows.runtime.notes.run_records import notes_folder
from storage.files import replace_atomically
from storage.store import Store

_NEW = "SELECT coalesce(sum(rows), 0) FROM parts WHERE table_name IN ('tasks', 'trajectories') AND epoch_us(committed_at) > ?"


def too_few_new(flow: str, store: Path, least_new: int) -> str:
    """Why the flow has nothing to do, in words; empty if the store has at least `least_new` new tasks and conversations."""
    if least_new <= 0:
        return ""
    new = int(Store(store).query(_NEW, [_read(store).get(flow, 0)]).item())
    if new >= least_new:
        return ""
    return f"nothing to do: {new:,} new tasks and conversations since the last run, fewer than {least_new:,}"


def note_seen(flow: str, store: Path) -> None:
    """Note that a flow of a deployment has worked on everything that the store has now; other runs start no others, and note nothing."""
    if events.is_root_of_a_deployment():
        last = Store(store).query("SELECT coalesce(max(epoch_us(committed_at)), 0) FROM parts").item()
        seen = json.dumps(_read(store) | {flow: int(last)})
        replace_atomically(_note(store), lambda draft: draft.write_text(seen))


def _read(store: Path) -> dict[str, int]:
    try:
        return dict(json.loads(_note(store).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _note(store: Path) -> Path:
    return notes_folder(store) / "seen.json"
