"""What a query is about: a leaf of the taxonomy, a second one, and the constraints that it states.

The tree is read from the worlds' intents (the city's: 5 top classes, 16 groups, 30 leaves after STAgent, 2512.24957; the shop adds its
own) and has a forced child `other` at every node, so that whatever is new shows up there. One idea: labels are multi-label,
V = <primary, secondary, constraints>, and need no complete request: an intent is near when its cues and the kinds of its values are
there. So rows that no world can execute are labelled too, and what they are about can be counted.

Labels are for quotas, buckets and reports. Nothing is dropped for them; what a query asks for exactly is `ground.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import polars as pl

from filters import ground, lexicon, parser
from filters.intents import nearest
from filters.parser import Parse
from filters.symbols import read
from synth.worlds import WORLDS

VERSION = 1
OTHER = "other"
Labels = tuple[str | None, str | None, str]
_LABELS: dict[bytes, Labels] = {}
"""Labels by row of class codes, kept for the life of the process."""

CONSTRAINTS: Mapping[str, tuple[str, ...]] = {
    "spatial_range": ("distance_m",),
    "time": ("date", "clock", "minutes", "days", "far_days"),
    "budget": ("price", "max_price"),
    "transport": ("mode", "along_mode", "preference"),
    "rating": ("rating", "poi_criterion"),
    "features": ("feature", "open_now", "in_stock", "colour"),
    "order": ("poi_sort", "central_sort", "travel_pick", "fare_pick", "pick"),
    "party": ("people", "quantity", "count"),
}
"""Constraint label -> kinds of slots that state it."""


@lru_cache(maxsize=1)
def leaves() -> tuple[str, ...]:
    """All leaves, dotted: those that worlds' intents name, and those that the city's published tree has besides."""
    from synth.worlds.city.taxonomy import LEAVES

    return tuple(dict.fromkeys((*LEAVES, *(intent.leaf for world in WORLDS.values() for intent in world.intents.values()))))


@lru_cache(maxsize=1)
def nodes() -> tuple[str, ...]:
    """Every node of the tree, dotted, the root's children first, each inner node's `other` after its own children."""
    inner = dict.fromkeys(".".join(leaf.split(".")[:depth]) for leaf in leaves() for depth in range(1, leaf.count(".") + 1))
    return tuple(dict.fromkeys((*inner, *leaves(), *(f"{node}.{OTHER}" for node in inner), OTHER)))


def step(rows: pl.DataFrame) -> pl.DataFrame:
    """The batch step (columns norm, language): adds leaf, leaf_2 (dotted; null = other) and constraints (labels with blanks between)."""
    symbols = read(rows)
    signatures, which = symbols.signatures()
    parses, _ = ground.parsed(symbols)
    labels = [
        _LABELS.get(signature) or _LABELS.setdefault(signature, _labels(signature, found))
        for signature, found in zip(signatures, parses, strict=True)
    ]
    table = pl.DataFrame(labels, schema={"leaf": pl.String, "leaf_2": pl.String, "constraints": pl.String}, orient="row")
    return rows.with_columns(table[which]).with_columns(reason=pl.lit(None, pl.String))


def _labels(signature: bytes, found: Parse | parser.Reason) -> Labels:
    symbols = parser.classes_of(np.frombuffer(signature, np.uint16).tolist(), lexicon.lexicon().classes)
    kinds = {name for symbol in symbols if symbol is not None for _, name in symbol.written}
    stated = " ".join(label for label, names in CONSTRAINTS.items() if kinds & set(names))
    near = nearest(symbols)
    first = WORLDS[found.world].intents[found.intent].leaf if isinstance(found, Parse) else next(iter(near), None)
    return first, next((leaf for leaf in near if leaf != first), None), stated
