"""Withdraws a source: tombstones for all that was made from it, and releases without these rows.

One idea: everything is a part of the store, so a withdrawal is committed like any other work. The tombstones come first, in one
transaction; then each release that had such rows gets a successor, whose manifest names it. Both have ids from their inputs: killed
anywhere and run again, the command ends with the same store.

What it does not do: change what training wrote, exports that were written before, or the immutable parts, which keep the hidden rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from storage.errors import BadInput, HeadraceError
from storage.records import canonical_json
from storage.releases.release import ReleaseItem, make_release, manifest_of
from storage.store import Store, part_id
from storage.tables import TABLES
from storage.tombstones.withdrawn_rows import HELD_SQL, Withdrawal, list_withdrawals, marked_policies
from storage.withdrawals.withdrawal_plan import SourceName, plan_withdrawal

VERSION = 1
MOST_REASON = 1_000
"""Characters."""


@dataclass(frozen=True)
class Withdrawn:
    """What a withdrawal did. releases: old id -> new id, None where nothing is left; policies: ids of all that learned from the source."""

    withdrawal: Withdrawal
    releases: dict[str, str | None]
    policies: list[str]
    notes: list[str]


def withdraw_source(store: Store, source: SourceName, *, reason: str, author: str, at: str) -> Withdrawn:
    """Hides all rows of a source for good. A second time it changes nothing but what a killed call left undone.

    Args:
        reason, author: who withdraws it and why, shown wherever a row was.
        at: time in ISO form.

    Raises:
        BadInput: no reason or author is given.
        HeadraceError: another process holds the store for too long; the disk is full. The next call continues.
    """
    check_words(reason, author)
    known = {one.withdrawal_id: one for one in list_withdrawals(store)}
    if source.withdrawal_id not in known:
        _bury(store, source, reason.strip(), author.strip(), at)
        known = {one.withdrawal_id: one for one in list_withdrawals(store)}
    releases, notes = _replace_releases(store)
    policies = [policy for policy, ones in marked_policies(store).items() if any(one.withdrawal_id == source.withdrawal_id for one in ones)]
    return Withdrawn(known[source.withdrawal_id], releases, policies, notes)


def check_words(reason: str, author: str) -> None:
    """Raises BadInput: no reason or author is given, or one that does not fit."""
    if not reason.strip() or len(reason) > MOST_REASON:
        raise BadInput(f"say why in 1 to {MOST_REASON:,} characters: --reason 'the customer asked for it'")
    if not author.strip() or not author.isprintable():
        raise BadInput("say who withdraws it: --author NAME")


def _bury(store: Store, source: SourceName, reason: str, author: str, at: str) -> None:
    planned, name = plan_withdrawal(store, source), source.withdrawal_id
    row = {
        "withdrawal_id": name,
        "kind": source.kind,
        "source": source.name,
        "reason": reason,
        "author": author,
        "at": at,
        "rows": canonical_json(planned.rows),
    }
    tombstones = planned.tombstones.select(pl.lit(name).alias("withdrawal_id"), "kind", "id")
    frames = {"withdrawals": pl.DataFrame([row], schema=TABLES["withdrawals"].columns), "withdrawn": tombstones}
    store.commit([store.write(table, part_id(table, [name], {}, VERSION), frame) for table, frame in frames.items()])


def _replace_releases(store: Store) -> tuple[dict[str, str | None], list[str]]:
    """Makes a release without withdrawn items of each that has some and no successor yet: old id -> new id, and what was not possible."""
    rows = store.query(
        f"""SELECT DISTINCT r.release_id, parts.rowid AS place
            FROM {HELD_SQL} h JOIN releases r USING (release_id) JOIN parts USING (part_id)
            WHERE r.release_id NOT IN (SELECT json_extract_string(manifest, '$.replaces') FROM releases
                WHERE json_exists(manifest, '$.replaces')) ORDER BY place"""
    )
    made, notes = dict[str, str | None](), list[str]()
    for release_id in rows["release_id"]:
        splits, withdrawals = _what_is_left(store, release_id), _withdrawals_of(store, release_id)
        made[release_id] = None
        if splits:
            manifest = {key: value for key, value in manifest_of(store, release_id).items() if key != "splits"}
            name = manifest.pop("name")
            without = sorted({*manifest.get("without", ()), *withdrawals})
            try:
                made[release_id] = make_release(store, name, splits, manifest | {"replaces": release_id, "without": without})
            except HeadraceError as error:
                notes.append(f"release {release_id} got no successor: {error}")
    return made, notes


def _withdrawals_of(store: Store, release_id: str) -> list[str]:
    return store.query(f"SELECT DISTINCT withdrawal_id FROM {HELD_SQL} WHERE release_id = ?", [release_id])["withdrawal_id"].to_list()


def _what_is_left(store: Store, release_id: str) -> dict[str, list[ReleaseItem]]:
    """The splits of a release without its withdrawn items; a split of which nothing is left is left out."""
    rows = store.query(
        f"""SELECT split, kind, item_id, task_id, weight FROM release_items
            ANTI JOIN {HELD_SQL} held USING (release_id, split, position) WHERE release_id = ? ORDER BY split, position""",
        [release_id],
    )
    splits: dict[str, list[ReleaseItem]] = {}
    for split, kind, item, task, weight in rows.iter_rows():
        splits.setdefault(split, []).append(ReleaseItem(kind, item, task, weight))
    return {split: splits[split] for split in manifest_of(store, release_id)["splits"] if split in splits}
