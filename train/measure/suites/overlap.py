"""Refuses what overlaps a suite: a release with its questions, or the measurement of a policy that was trained on one.

One idea: the questions of a suite are a held-out set of the contamination gate, which drops queries that are near one
(`filters/steps/selection/contamination.py`). What is frozen cannot be dropped, so here one near copy refuses the whole. Near is the gate's
own: a Jaccard similarity of byte 6-grams of at least .7.

Only texts of at least 24 characters count: "yes, please" is in every conversation. A question in other words is not found here; the gate's
semantic threshold is for rows that may be dropped in vain.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import polars as pl

from filters.normalised_text import normalise_text
from filters.steps.selection.contamination import SUITES, ContaminationConfig, QuestionIndex, questions_of
from storage.errors import BadInput
from storage.releases.lineage_graph import origins
from storage.releases.release import EVALUATION_SPLITS, ReleasedItem, load_split, manifest_of
from storage.store import Store
from synth.suites.child import SuiteFailure
from synth.suites.suite_questions import SuiteName

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
    asked, index = _indexed(tuple(questions))
    if rows.is_empty() or asked.is_empty():
        return []
    near, place = index.nearest(rows["norm"])
    found = [
        Overlap(item, text, asked[int(at)], float(similarity))
        for (item, text), similarity, at in zip(rows.select("item", "text").iter_rows(), near, place, strict=True)
        if similarity >= NEAR
    ]
    return sorted(found, key=lambda one: -one.similarity)


@lru_cache(maxsize=len(SUITES))
def _indexed(questions: tuple[str, ...]) -> tuple[pl.Series, QuestionIndex]:
    """The long ones of these questions, each once, and their index, which every release of a cascade is compared with."""
    asked = _long(pl.DataFrame({"text": list(dict.fromkeys(questions))}, schema={"text": pl.String}))
    return asked["text"], QuestionIndex(asked["norm"])


def held_out_questions(suites: Sequence[Literal["bfcl"] | SuiteName] | None) -> dict[str, list[str]]:
    """Suite -> its questions. suites: None: all that are installed here; one warning names the others.

    Raises:
        BadInput: a suite that is named is not installed. SuiteFailure: its program failed.
    """
    questions, missing = dict[str, list[str]](), dict[str, list[str]]()
    for suite in SUITES if suites is None else suites:
        try:
            questions[suite] = questions_of(suite)
        except (BadInput, SuiteFailure) as problem:
            if suites is not None:
                raise
            missing.setdefault("not installed (`make suites`)" if isinstance(problem, BadInput) else str(problem), []).append(suite)
    if missing:
        told = "; ".join(f"{', '.join(names)}: {why}" for why, names in missing.items())
        warnings.warn(f"no release is compared with {told}", stacklevel=2)
    return questions


def check_release_overlap(store: Store, release_id: str, questions: Mapping[str, Sequence[str]]) -> None:
    """Refuses a release of which a split that is trained on overlaps a suite. questions: by suite; without any, nothing is read.

    Raises:
        BadInput: it does; or the release does not exist.
    """
    if not questions:
        return
    splits = [split for split in manifest_of(store, release_id)["splits"] if not split.startswith(EVALUATION_SPLITS)]
    said = _said_in(item for split in splits for item in load_split(store, release_id, split))
    for suite, asked in questions.items():
        way_out = f"curate with `--held-out {suite}` and train again, or name the other suites in train.held_out"
        _refuse(find_overlap(said, asked), f"release {release_id}", suite, way_out)


def check_policy_overlap(store: Store, policy_id: str, suite: str, questions: Sequence[str]) -> None:
    """Refuses a policy of which a release, its own or of a policy that it started from, overlaps a suite. An engine has none.

    Raises:
        BadInput: one does.
    """
    for split_id in origins(store, "policy", policy_id).filter(kind="split")["id"]:
        release_id, _, split = split_id.rpartition("/")
        overlaps = find_overlap(_said_in(load_split(store, release_id, split)), questions)
        _refuse(overlaps, f"policy {policy_id} (release {release_id})", suite, f"curate with `--held-out {suite}` and train again")


def _refuse(overlaps: Sequence[Overlap], what: str, suite: str, way_out: str) -> None:
    if overlaps:
        first, count = overlaps[0], len({one.item_id for one in overlaps})
        raise BadInput(f"{what} overlaps suite {suite}: {count} items, such as {first.item_id} ({first.text[:40]!r}); {way_out}")


def _said_in(items: Iterable[ReleasedItem]) -> list[tuple[str, str]]:
    """What users say in the items of a split."""
    texts = []
    for released in items:
        messages = released.conversation.messages if released.conversation is not None else released.task.messages if released.task else ()
        texts += [(released.item.item_id, message.content) for message in messages if message.role == "user" and message.content]
    return texts


def _long(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(norm=normalise_text(pl.col("text"))).filter(pl.col("norm").str.len_chars() >= SHORTEST)
