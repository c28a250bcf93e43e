"""What people said by hand of the rows that a run reads: which are dropped, which are kept, and how some are to be read.

A row is dropped by its id or by its frame. A row that a person keeps is not dropped for taste or want of room (`Step.soft`); what repeats
another row, was not read, cannot be executed, or is near a held-out question is dropped all the same. A label is a frame that a person
gave; it is kept, and admission executes it like any other.

Only what concerns the run's files is here, so an annotation of another log does not change the id of the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from filters.ingest import ID_DIGITS, Source
from storage.by_hand.hand_rows import DECISIONS
from storage.errors import BadInput
from storage.records import Frame, content_id
from storage.store import Store
from synth.worlds import WORLDS


@dataclass(frozen=True)
class HandDecisions:
    """What counts in one run.

    dropped, kept: ids of requests. Those with a label are kept.
    labels: id of a request -> its frame.
    dropped_frames: ids of frames.
    frame_labels: id of a frame -> the frame in its place.
    """

    dropped: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    labels: Mapping[str, Frame] = field(default_factory=dict)
    dropped_frames: frozenset[str] = frozenset()
    frame_labels: Mapping[str, Frame] = field(default_factory=dict)

    @property
    def made_by(self) -> tuple[str, ...]:
        """What decides the verdicts, for the id of a run; nothing where nothing was said."""
        said = [sorted(self.dropped), sorted(self.kept), sorted(self.dropped_frames)]
        labels = [sorted((id, frame.id) for id, frame in each.items()) for each in (self.labels, self.frame_labels)]
        return (content_id("by_hand", said, labels),) if any(said) or any(labels) else ()


NOTHING_BY_HAND = HandDecisions()


def read_decisions(store: Store, files: Iterable[Source]) -> HandDecisions:
    """What counts for rows of these files, and for frames.

    A frame that a person keeps stands for the requests that were read so.

    Raises BadInput: the world or intent of a label does not exist here.
    """
    said = store.query(f"SELECT item_id, verdict, world, intent, slots FROM {DECISIONS} ORDER BY item_id")
    if said.is_empty():
        return NOTHING_BY_HAND
    hashes = {file.content_hash[:ID_DIGITS] for file in files}
    rows = said.filter(pl.col("item_id").str.extract(r"^q-([0-9a-f]+)-").is_in(hashes))
    frames = said.filter(pl.col("item_id").str.starts_with("frame-"))
    labels, kept_frames = _labels(rows), frames.filter(verdict="keep")["item_id"].to_list()
    read_so = store.query("SELECT DISTINCT query_id FROM frames WHERE frame_id IN (SELECT unnest(?))", [kept_frames])["query_id"]
    kept = {*rows.filter(verdict="keep")["item_id"], *labels, *(id for id in read_so if id.split("-")[1] in hashes)}
    dropped = frozenset(rows.filter(verdict="drop")["item_id"])
    return HandDecisions(
        dropped=dropped,
        kept=frozenset(kept - dropped),
        labels=labels,
        dropped_frames=frozenset(frames.filter(verdict="drop")["item_id"]),
        frame_labels=_labels(frames),
    )


def row_numbers(ids: Iterable[str], files: Sequence[Source]) -> pl.Series:
    """The numbers, in a run, of the rows with these ids, ascending (UInt32); of other files' rows there is none."""
    first = {file.content_hash[:ID_DIGITS]: (file.first_row, file.rows) for file in files}
    numbers = []
    for id in ids:
        _, file, row = id.split("-")
        start, count = first.get(file, (0, 0))
        numbers += [start + int(row)] if int(row) < count else []
    return pl.Series(sorted(numbers), dtype=pl.UInt32)


def check_label(world: str, intent: str, slots: Mapping[str, object]) -> Frame:
    """The frame of a label.

    Raises BadInput: the world or intent does not exist, or a slot is unknown, missing, or neither text nor a number.
    """
    if world not in WORLDS:
        raise BadInput(f"there is no world {world!r}; worlds are {WORLDS.listed()}")
    declared = WORLDS[world].intents.get(intent)
    if declared is None:
        raise BadInput(f"{world} has no intent {intent!r}; its intents are {', '.join(sorted(WORLDS[world].intents))}")
    names = [slot.name for slot in declared.slots]
    if unknown := next((name for name in slots if name not in names), None):
        raise BadInput(f"{intent} has no slot {unknown!r}; its slots are {', '.join(names) or 'none'}")
    if missing := next((slot.name for slot in declared.slots if slot.is_required and slot.name not in slots), None):
        raise BadInput(f"{intent} needs the slot {missing}; its slots are {', '.join(names)}")
    values: dict[str, str | int | float | bool] = {}
    for name, value in slots.items():
        if not isinstance(value, str | int | float) or value == "" or (isinstance(value, float) and not math.isfinite(value)):
            raise BadInput(f"slot {name} is {json.dumps(value, default=str)}; give a text or a number")
        values[name] = value
    return Frame(world=world, intent=intent, slots=dict(sorted(values.items())))


def _labels(said: pl.DataFrame) -> dict[str, Frame]:
    labels: dict[str, Frame] = {}
    for id, world, intent, slots in said.filter(verdict="relabel").select("item_id", "world", "intent", "slots").iter_rows():
        if world not in WORLDS or intent not in WORLDS[world].intents:
            raise BadInput(f"{id} was labelled {world}/{intent} by hand, which is not here; register its world, or withdraw the label")
        labels[id] = Frame(world=world, intent=intent, slots=json.loads(slots))
    return labels
