"""Withdrawn sources: the list of them, what still names their rows, and the words in which they are refused.

One idea: the catalogue hides every row with a tombstone (`storage/duckdb_catalog.py`), so no reader meets one. Releases name rows by id and
stay as they are; what is said here of releases, stages and policies follows from these ids.

What it does not do: withdraw (`storage/withdrawals/`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from storage.errors import BadInput
from storage.store import Store
from storage.tables import FILE_LENGTH

SOURCE_KINDS = {"file": "query file", "world": "world", "teacher": "teacher"}
"""Kind of a source -> what it is."""
HELD_SQL = """(SELECT i.release_id, i.split, i.position, w.withdrawal_id FROM release_items i
    JOIN withdrawn w ON w.kind = 'task' AND w.id = i.task_id
UNION SELECT i.release_id, i.split, i.position, w.withdrawal_id FROM release_items i
    JOIN withdrawn w ON w.kind = i.kind AND w.id = i.item_id)"""
"""SQL: the withdrawn items of releases."""
_TAUGHT_SQL = f"""WITH RECURSIVE held AS (SELECT DISTINCT release_id, split, withdrawal_id FROM {HELD_SQL}),
taught(policy_id, withdrawal_id) AS (
    SELECT p.policy_id, h.withdrawal_id FROM stages s JOIN held h USING (release_id, split) JOIN policies p USING (stage_id)
    UNION SELECT p.policy_id, t.withdrawal_id FROM taught t JOIN stages s ON s.input_policy_id = t.policy_id
        JOIN policies p USING (stage_id))
"""
"""Start of a query: `taught`, the policies that learned from withdrawn rows, or began as a policy that did."""


@dataclass(frozen=True)
class Withdrawal:
    """A source that was withdrawn. at: time in ISO form; rows: JSON, table -> number of its rows that were hidden."""

    withdrawal_id: str
    kind: str
    source: str
    reason: str
    author: str
    at: str
    rows: str

    def __str__(self) -> str:
        return f"{SOURCE_KINDS[self.kind]} {self.source}, withdrawn on {self.at[:10]} by {self.author}: {self.reason}"


def list_withdrawals(store: Store) -> list[Withdrawal]:
    """All of them, in the order of their commits."""
    rows = store.query("SELECT w.* EXCLUDE (part_id) FROM withdrawals w JOIN parts USING (part_id) ORDER BY parts.rowid")
    return [Withdrawal(**row) for row in rows.iter_rows(named=True)]


def tombstone_of(store: Store, item: str) -> tuple[str, Withdrawal] | None:
    """The kind of an id whose row was withdrawn (`query`, `task`, `trajectory`, `rollout`, `blueprint`, `world`), and its withdrawal."""
    found = store.query(
        f"""SELECT kind, withdrawal_id FROM withdrawn WHERE kind NOT IN ('unserved', 'teacher')
            AND id = CASE kind WHEN 'file' THEN left(?, {FILE_LENGTH}) ELSE ? END LIMIT 1""",
        [item] * 2,
    )
    if found.is_empty():
        return None
    kind, withdrawal_id = found.row(0)
    return "query" if kind == "file" else kind, next(one for one in list_withdrawals(store) if one.withdrawal_id == withdrawal_id)


def held_by(store: Store, release_id: str) -> list[tuple[Withdrawal, int]]:
    """What was withdrawn of a release, with the number of its items."""
    return _with_words(store, f"SELECT withdrawal_id, count(*) AS n FROM {HELD_SQL} WHERE release_id = ? GROUP BY 1 ORDER BY 1", release_id)


def read_by(store: Store, stage_id: str) -> list[tuple[Withdrawal, int]]:
    """What was withdrawn of the split that a stage read, with the number of items."""
    return _with_words(
        store,
        f"""SELECT withdrawal_id, count(*) AS n FROM {HELD_SQL} JOIN stages USING (release_id, split) WHERE stage_id = ?
            GROUP BY 1 ORDER BY 1""",
        stage_id,
    )


def taught_by(store: Store, policy_id: str) -> list[Withdrawal]:
    """The withdrawn sources that a policy, or one that it began as, learned from."""
    sql = f"{_TAUGHT_SQL} SELECT DISTINCT withdrawal_id, 1 AS n FROM taught WHERE policy_id = ? ORDER BY 1"
    return [one for one, _ in _with_words(store, sql, policy_id)]


def marked_policies(store: Store) -> dict[str, list[Withdrawal]]:
    """Policy -> the withdrawn sources that it learned from; policies that learned from none are left out."""
    found = list_withdrawals(store)
    if not found:
        return {}
    rows = store.query(f"{_TAUGHT_SQL} SELECT DISTINCT policy_id, withdrawal_id FROM taught ORDER BY ALL")
    by_id, marked = {one.withdrawal_id: one for one in found}, dict[str, list[Withdrawal]]()
    for policy, withdrawal in rows.iter_rows():
        marked.setdefault(policy, []).append(by_id[withdrawal])
    return marked


def successor_of(store: Store, release_id: str) -> str | None:
    """The release that stands for another one since rows of that one were withdrawn; of several in a row, the last."""
    rows = store.query("SELECT json_extract_string(manifest, '$.replaces') AS old, release_id FROM releases")
    next_of = {old: new for old, new in rows.iter_rows() if old is not None}
    found = None
    while (release_id := next_of.get(release_id, "")) != "":
        found = release_id
    return found


def refuse_release(store: Store, release_id: str) -> None:
    """Raises BadInput: the release has withdrawn items; the message names the release without them."""
    held = held_by(store, release_id)
    if held:
        newer = successor_of(store, release_id)
        instead = f"{newer} is the same without them" if newer else "nothing else was in it"
        what = "; ".join(f"{n:,} item{'s' * (n != 1)} of {withdrawal}" for withdrawal, n in held)
        raise BadInput(f"release {release_id} cannot be read any more: it has {what}; {instead}")


def refuse_sources(store: Store, kind: str, names: Iterable[str], where: str) -> None:
    """Raises BadInput: one of these names is of a withdrawn source. where: what named it, for the message."""
    withdrawn = {one.source: one for one in list_withdrawals(store) if one.kind == kind}
    for name in names:
        if name in withdrawn:
            raise BadInput(f"{where} names a withdrawn source, of which {store.root} takes no row again: {withdrawn[name]}; leave it out")


def withdrawn_files(store: Store) -> dict[str, Withdrawal]:
    """Withdrawn query files: by their name, and by the beginning of their rows' ids, which is a hash of their content."""
    found = {one.withdrawal_id: one for one in list_withdrawals(store) if one.kind == "file"}
    if not found:
        return {}
    ids = store.query("SELECT id, withdrawal_id FROM withdrawn WHERE kind = 'file'")
    return {one.source: one for one in found.values()} | {file: found[withdrawal] for file, withdrawal in ids.iter_rows()}


def _with_words(store: Store, sql: str, *params: Any) -> list[tuple[Withdrawal, int]]:
    by_id = {one.withdrawal_id: one for one in list_withdrawals(store)}
    return [(by_id[withdrawal], n) for withdrawal, n in store.query(sql, params).iter_rows()] if by_id else []
