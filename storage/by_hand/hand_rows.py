"""Annotations: what people say by hand of items of a store (keep, drop, relabel, comment), as rows of table `by_hand`.

One idea: rows are only ever added. Of the verdicts of one author about one item the last one counts; a comment stands beside them, and
`withdraw` takes the verdict back. Where authors differ about an item, a drop counts before anything else, and of the rest the last verdict:
precision before recall. Order is that of commits, so no clock decides.

An annotation is a part of the store like any other. It is committed in one transaction, also while a flow works on the store: that flow has
read the annotations at its start, and the next one reads them all.

This module does not act on them: the funnel does (`filters/by_hand/`), and the making of releases (`withheld`, `admissible`).
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import polars as pl

from storage.errors import BadInput
from storage.records import Frame, canonical_json, content_id
from storage.store import Store, part_id
from storage.tables import TABLES

Verdict = Literal["keep", "drop", "relabel", "comment", "withdraw"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
VERSION = 1
MOST_ITEMS = 10_000
MOST_COMMENT = 10_000
"""Characters."""
MOST_AUTHOR = 100
"""Characters."""

_TABLES = {"q": "queries", "frame": "frames", "trajectory": "trajectories", "rollout": "rollouts"}
_KEYS = {"queries": "query_id", "frames": "frame_id", "trajectories": "trajectory_id", "rollouts": "rollout_id"}
KINDS = {"q": "request", "frame": "frame", "trajectory": "trajectory", "rollout": "rollout"}
"""Beginning of an item's id -> what it is."""

_LAST = """(SELECT h.*, parts.rowid AS place FROM by_hand h JOIN parts USING (part_id) WHERE verdict <> 'comment'
QUALIFY row_number() OVER (PARTITION BY item_id, author ORDER BY parts.rowid DESC) = 1)"""
"""SQL: the last verdict of each author about each item, `withdraw` among them."""
LAST_VERDICTS = f"(SELECT * EXCLUDE (part_id, place) FROM {_LAST} WHERE verdict <> 'withdraw')"
"""SQL: the verdict of each author about each item; none where it was withdrawn."""
DECISIONS = f"""(SELECT * EXCLUDE (part_id) FROM {_LAST} WHERE verdict <> 'withdraw'
QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY verdict = 'drop' DESC, place DESC) = 1)"""
"""SQL: the verdict that counts for each item."""
WITHHELD_TASKS = f"""(SELECT DISTINCT task_id FROM tasks t WHERE query_id IS NOT NULL AND EXISTS (SELECT 1 FROM {DECISIONS} d
WHERE d.item_id IN (t.query_id, t.frame_id) AND (d.verdict = 'drop' OR (d.verdict = 'relabel' AND d.frame_id <> t.frame_id))))"""
"""SQL: tasks of requests that were dropped by hand, or that a person read otherwise than the task does."""


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """What an author says of some items.

    items: their ids.
    author: name of the person.
    label: with the verdict `relabel`: what the request asks for.
    nonce: of the form that was sent; the same form a second time adds nothing.
    """

    items: tuple[str, ...]
    author: str
    verdict: Verdict
    comment: str = ""
    label: Frame | None = None
    nonce: str = ""


def annotate(store: Store, annotation: Annotation, *, now: datetime.datetime | None = None) -> str:
    """Commits an annotation and returns its id. The same one of the same form a second time changes nothing.

    Raises:
        BadInput: the annotation does not fit, or an item is not in the store. Nothing was committed.
        HeadraceError: the disk is full, or another process is committing for longer than the store waits.
    """
    _check(store, annotation)
    label, items = annotation.label, list(annotation.items)
    said = (annotation.author, annotation.verdict, annotation.comment, label.id if label else None, annotation.nonce)
    annotation_id = content_id("annotation", items, *said)
    row = dict.fromkeys(TABLES["by_hand"].columns) | {
        "annotation_id": annotation_id,
        "author": annotation.author,
        "annotated_at": (now or datetime.datetime.now(datetime.UTC)).isoformat(timespec="microseconds"),
        "verdict": annotation.verdict,
        "comment": annotation.comment or None,
    }
    if label is not None:
        row |= {"world": label.world, "intent": label.intent, "slots": canonical_json(label.slots), "frame_id": label.id}
    rows = pl.DataFrame([row | {"item_id": item} for item in items], schema=TABLES["by_hand"].columns)
    store.commit([store.write("by_hand", part_id("by_hand", [annotation_id], {}, VERSION), rows)])
    return annotation_id


def read_annotations(store: Store, item: str | None = None) -> pl.DataFrame:
    """All annotations, or all about one item, the last first: a row an annotation and item.

    Columns: those of the table, kind (request, frame, trajectory, rollout), and counts (whether the row is its author's last verdict about
    the item, or a comment).
    """
    found = store.query(
        f"""SELECT h.* EXCLUDE (part_id), coalesce(l.annotation_id = h.annotation_id, false) OR h.verdict = 'comment' AS counts
            FROM by_hand h JOIN parts USING (part_id) LEFT JOIN {_LAST} l ON l.item_id = h.item_id AND l.author = h.author
            WHERE ? IS NULL OR h.item_id = ? ORDER BY parts.rowid DESC, h.item_id""",
        [item, item],
    )
    return found.with_columns(
        kind=pl.col("item_id").str.split("-").list.first().replace_strict(KINDS, default=None, return_dtype=pl.String)
    )


def admissible(table: str) -> str:
    """SQL, over rows of `trajectories` under this name: whether the conversation may be trained on.

    It was accepted; or a judge alone rejected it, and a person keeps it: of the checks of a conversation the judge's is the last, and
    `reason` names the first that fails. And no person dropped it.
    """
    said = f"SELECT item_id FROM {DECISIONS} WHERE verdict ="
    kept = f"{table}.reason = 'judge' AND {table}.trajectory_id IN ({said} 'keep')"
    return f"(({table}.accepted OR ({kept})) AND {table}.trajectory_id NOT IN ({said} 'drop'))"


def withheld(store: Store) -> tuple[frozenset[str], frozenset[str]]:
    """What goes into no release: ids of conversations that were dropped by hand, and ids of tasks (`WITHHELD_TASKS`)."""
    if store.query("SELECT 1 FROM by_hand LIMIT 1").is_empty():
        return frozenset(), frozenset()
    items = store.query(f"SELECT item_id FROM {DECISIONS} WHERE verdict = 'drop'")["item_id"]
    return frozenset(items), frozenset(store.query(f"SELECT task_id FROM {WITHHELD_TASKS}")["task_id"])


def check_author(author: str) -> str:
    """The name, without blanks around it.

    Raises BadInput: it is empty, too long, or has characters that cannot be written in one line.
    """
    name = author.strip()
    if not name or len(name) > MOST_AUTHOR or not name.isprintable() or not _is_text(name):
        raise BadInput(f"an author needs a name of 1 to {MOST_AUTHOR} characters in one line; name one with --author NAME")
    return name


def _check(store: Store, annotation: Annotation) -> None:
    """Raises BadInput: see `annotate`."""
    if annotation.verdict not in VERDICTS:
        raise BadInput(f"{annotation.verdict!r} is no verdict by hand; verdicts are {', '.join(VERDICTS)}")
    if check_author(annotation.author) != annotation.author:
        raise BadInput("the author's name has blanks around it; leave them out")
    if len(annotation.comment) > MOST_COMMENT or not _is_text(annotation.comment):
        raise BadInput(f"a comment is text of at most {MOST_COMMENT:,} characters")
    if annotation.verdict == "comment" and not annotation.comment.strip():
        raise BadInput("the comment is empty; write one")
    if (annotation.label is None) == (annotation.verdict == "relabel"):
        raise BadInput("a new label needs a world and an intent, and nothing else has one")
    if not 0 < len(annotation.items) <= MOST_ITEMS:
        raise BadInput(f"name 1 to {MOST_ITEMS:,} items")
    if doubled := next((item for item, count in Counter(annotation.items).items() if count > 1), None):
        raise BadInput(f"{doubled} is named twice")
    _check_items(store, annotation.items)
    if annotation.label is not None and (
        astray := next((item for item in annotation.items if KINDS[_kind(item)] not in ("request", "frame")), None)
    ):
        raise BadInput(f"{astray} cannot be read anew: only requests and frames have a label")


def _check_items(store: Store, items: Sequence[str]) -> None:
    for kind in dict.fromkeys(map(_kind, items)):
        if kind not in _TABLES:
            raise BadInput(f"{next(item for item in items if _kind(item) == kind)!r} is no request, frame, trajectory or rollout")
        table, mine = _TABLES[kind], [item for item in items if _kind(item) == kind]
        key = _KEYS[table]
        there = set(store.query(f"SELECT DISTINCT {key} FROM {table} WHERE {key} IN (SELECT unnest(?))", [mine])[key])
        if missing := next((item for item in mine if item not in there), None):
            raise BadInput(f"{missing} is not in {store.root}")


def _kind(item: str) -> str:
    return item.partition("-")[0]


def _is_text(text: str) -> bool:
    """Whether it can be stored: no lone surrogate, no character with the number 0."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
