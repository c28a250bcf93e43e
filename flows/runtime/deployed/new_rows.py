"""How much a store has grown since a flow last worked on it: the threshold of deployments that events start (`least_new`), and which
synthesis has news to tell.

One idea: a flow of a deployment that did its work notes the time of the last commit that it saw, in `STORE/.headrace/seen.json`. Later
commits are new. Without the file everything is new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.runtime import events
from flows.runtime.notes.run_records import notes_folder
from storage.files import replace_atomically
from storage.parts import read_part
from storage.store import Store

_NEW = "SELECT rows, path FROM parts WHERE table_name = ? AND epoch_us(committed_at) > ?"
_ROUNDS = """
    WITH dated AS (SELECT run, coalesce(reason, '') AS reason, epoch_us(committed_at) AS at_us FROM decisions JOIN parts USING (part_id)),
      last AS (SELECT run FROM dated WHERE at_us > $1 ORDER BY at_us DESC, run LIMIT 1)
    SELECT run, reason, count(*) AS proposals, count(*) FILTER (at_us > $1) AS new
    FROM dated WHERE run = (SELECT run FROM last) GROUP BY 1, 2 ORDER BY 2"""


@dataclass(frozen=True)
class NewRounds:
    """The synthesis run whose rounds were committed last.

    proposals, accepted, rejected: of all its rounds; rejected: reason -> number of proposals.
    newly_accepted: accepted conversations of its new rounds.
    """

    run: str
    proposals: int
    accepted: int
    rejected: Mapping[str, int]
    newly_accepted: int


def too_few_new(flow: str, store: Path, least_new: int) -> str:
    """Why the flow has nothing to do, in words; empty if the store has at least `least_new` new tasks and accepted conversations."""
    if least_new <= 0:
        return ""
    new = count_new(flow, store)
    if new >= least_new:
        return ""
    return f"nothing to do: {new:,} new tasks and accepted conversations since the last run, fewer than {least_new:,}"


def count_new(flow: str, store: Path) -> int:
    """Number of tasks and accepted conversations that were committed since the flow last noted what it has seen."""
    opened, seen = Store(store), _read(store).get(flow, 0)
    tasks, conversations = (opened.query(_NEW, [table, seen]) for table in ("tasks", "trajectories"))
    accepted = (int(read_part(opened.root, path, ["accepted"])["accepted"].sum()) for path in conversations["path"])
    return int(tasks["rows"].sum()) + sum(accepted)


def new_rounds(store: Path) -> NewRounds | None:
    """What `synthesize` has not told yet; None: no rounds were committed since a run of its deployment noted what it has seen.

    Of a store that machines share each tells its news, also what it got from the others.
    """
    rows = Store(store).query(_ROUNDS, [_read(store).get("synthesize", 0)]).rows()
    if not rows:
        return None
    counts = {reason: (proposals, new) for _, reason, proposals, new in rows}
    accepted, newly_accepted = counts.pop("", (0, 0))
    rejected = {reason: proposals for reason, (proposals, _) in counts.items()}
    return NewRounds(rows[0][0], accepted + sum(rejected.values()), accepted, rejected, newly_accepted)


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
