"""Refuses what overlaps a suite: a release with its questions, or the measurement of a policy that was trained on one.

One idea: the questions of a suite are a held-out set of the contamination gate, which drops queries that are near one
(`filters/steps/selection/contamination.py`). What is frozen cannot be dropped, so here one near copy refuses the whole. Near is the gate's
own: a Jaccard similarity of byte 6-grams of at least .7.

Only texts of at least 24 characters count: "yes, please" is in every conversation. A question in other words is not found here; the gate's
semantic threshold is for rows that may be dropped in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from filters.normalised_text import normalise_text
from filters.steps.selection.contamination import ContaminationConfig, nearest_texts
from storage.errors import BadInput
from storage.releases.lineage_graph import origins
from storage.releases.release import EVALUATION_SPLITS, ReleasedItem, load_split, manifest_of
from storage.store import Store

SHORTEST = 24
"""Characters of a normalised text from which a copy tells something."""
NEAR = ContaminationConfig().near


@dataclass(frozen=True)
class Overlap:
    """A text of an item that is near a question."""

    item_id: str
    text: str
    question: str
    similarity: float


def find_overlap(texts: Sequence[tuple[str, str]], questions: Sequence[str]) -> list[Overlap]:
    """The texts that are near a question, nearest first.

    texts: (id of the item, what its user says).
    """
    rows = _long(pl.DataFrame(texts, schema={"item": pl.String, "text": pl.String}, orient="row"))
    asked = _long(pl.DataFrame({"text": list(dict.fromkeys(questions))}, schema={"text": pl.String}))
    if rows.is_empty() or asked.is_empty():
        return []
    near, place = nearest_texts(rows["norm"], asked["norm"])
    found = [
        Overlap(item, text, asked["text"][int(at)], float(similarity))
        for (item, text), similarity, at in zip(rows.select("item", "text").iter_rows(), near, place, strict=True)
        if similarity >= NEAR
    ]
    return sorted(found, key=lambda one: -one.similarity)


def check_release_overlap(store: Store, release_id: str, suite: str, questions: Sequence[str]) -> None:
    """Refuses a release of which a split that is trained on overlaps a suite.

    Raises:
        BadInput: it does; or the release does not exist.
    """
    splits = [split for split in manifest_of(store, release_id)["splits"] if not split.startswith(EVALUATION_SPLITS)]
    items = (item for split in splits for item in load_split(store, release_id, split))
    _refuse(find_overlap(_said_in(items), questions), f"release {release_id}", suite)


def check_policy_overlap(store: Store, policy_id: str, suite: str, questions: Sequence[str]) -> None:
    """Refuses a policy of which a release, its own or of a policy that it started from, overlaps a suite. An engine has none.

    Raises:
        BadInput: one does.
    """
    for split_id in origins(store, "policy", policy_id).filter(kind="split")["id"]:
        release_id, _, split = split_id.rpartition("/")
        overlaps = find_overlap(_said_in(load_split(store, release_id, split)), questions)
        _refuse(overlaps, f"policy {policy_id} (release {release_id})", suite)


def _refuse(overlaps: Sequence[Overlap], what: str, suite: str) -> None:
    if overlaps:
        first, count = overlaps[0], len({one.item_id for one in overlaps})
        raise BadInput(
            f"{what} overlaps suite {suite}: {count} items, such as {first.item_id} ({first.text[:40]!r}); "
            f"curate with `--held-out {suite}` and train again"
        )


def _said_in(items: Iterable[ReleasedItem]) -> list[tuple[str, str]]:
    """What users say in the items of a split."""
    texts = []
    for released in items:
        messages = released.conversation.messages if released.conversation is not None else released.task.messages if released.task else ()
        texts += [(released.item.item_id, message.content) for message in messages if message.role == "user" and message.content]
    return texts


def _long(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(norm=normalise_text(pl.col("text"))).filter(pl.col("norm").str.len_chars() >= SHORTEST)
