"""How a stored request is read: which words give which slot, which no slot has, and what its world is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from storage.records import JSON, canonical_json
from storage.store import Store

if TYPE_CHECKING:
    from filters.reading.world_reader import WorldReader
    from synth.worlds.base import World


@dataclass(frozen=True)
class Piece:
    """A part of a text. slot: that it gives; empty for none. is_unread: nothing explains it. certainty: that it gives the slot, 0 to 1."""

    text: str
    slot: str = ""
    is_unread: bool = False
    certainty: float = 0.0


@dataclass(frozen=True)
class SlotRow:
    """A slot of the stored frame. said: the words of the text that give it; empty if none do."""

    slot: str
    value: JSON
    said: str


@dataclass(frozen=True)
class ReadRequest:
    """A request beside its stored frame. agrees: whether a reading of today gives the stored frame. now: that reading in words, if not."""

    pieces: list[Piece]
    slots: list[SlotRow]
    given: str
    confidence: float
    agrees: bool
    now: str


def read_request(store: Store, text: str, frame: Mapping[str, Any]) -> ReadRequest | None:
    """Reads the text again, by the reader that is compiled from its frame's world.

    None if the world is gone, or does not speak the language of the text.
    """
    from filters.reading.of_world import slots_of
    from filters.reading.world_reader import UNREAD
    from synth.worlds import WORLDS
    from synth.worlds.stored_worlds import register_stored

    register_stored(store)
    if frame["world"] not in WORLDS:
        return None
    world = WORLDS[frame["world"]]
    (reading,) = _reader_of(world).read([text])
    if reading is UNREAD:
        return None
    stored: dict[str, JSON] = json.loads(frame["slots"] or "{}")
    found = slots_of(world, reading.intent, reading.values) or {}
    is_intent = reading.intent == frame["intent"]
    agrees = is_intent and canonical_json(found) == canonical_json(stored)
    said = {value.slot: value.said for value in reading.values} if is_intent else {}
    slots = [SlotRow(slot, value, said.get(slot, "")) for slot, value in stored.items()]
    now = f"{reading.world}/{reading.intent} {canonical_json(found)}"
    spans = [(value.start, value.end, value.slot, value.probability) for value in reading.values]
    return ReadRequest(_pieces(text, spans, reading.foreign), slots, _given(store, frame), reading.confidence, agrees, now)


@lru_cache(maxsize=8)
def _reader_of(world: type[World]) -> WorldReader:
    from filters.reading.world_reader import WorldReader

    return WorldReader([world])


def _given(store: Store, frame: Mapping[str, Any]) -> str:
    """The rows that the world of its task is made to hold, as JSON; empty for none."""
    spec = store.query("SELECT spec FROM tasks WHERE frame_id = ? LIMIT 1", [frame["frame_id"]])["spec"]
    given = json.loads(spec[0]).get("given") if len(spec) else None
    return json.dumps(given, ensure_ascii=False, indent=2) if given else ""


def _pieces(text: str, spans: Sequence[tuple[int, int, str, float]], unread: Sequence[str]) -> list[Piece]:
    """The text in pieces. spans: start, end, slot, certainty. unread: words that nothing explains, in the order of the text."""
    marked = sorted(spans)
    at = 0
    for word in unread:
        start = text.casefold().find(word.casefold(), at)
        start = start if start >= 0 else text.casefold().find(word.casefold())
        if start >= 0 and not any(begin < start + len(word) and start < end for begin, end, *_ in marked):
            marked.append((start, start + len(word), "", 0.0))
            at = start + len(word)
    pieces, at = list[Piece](), 0
    for start, end, slot, certainty in sorted(marked):
        if start < at:
            continue
        pieces += [Piece(text[at:start])] if start > at else []
        pieces.append(Piece(text[start:end], slot, not slot, certainty))
        at = end
    return [*pieces, *([Piece(text[at:])] if at < len(text) else [])]
