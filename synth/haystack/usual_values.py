"""The values that slots have in ordinary queries, and their spellings."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from storage.records import JSON, Language
from synth.haystack.noise import CLOSE, OPEN
from synth.tasks.wording import load_grounding
from synth.text.slot_kinds import Identifier, Quantity, SlotKind, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.worlds import WORLDS

Codes = NDArray[np.int64]


@lru_cache(maxsize=256)
def usual_values(world: str, kind: str) -> tuple[JSON, ...]:
    """The usual canonical values of a slot kind, for dates all days up to the horizon."""
    declared: SlotKind = WORLDS[world].kinds[kind]
    if isinstance(declared, Vocabulary):
        return tuple(declared.names)
    if isinstance(declared, Identifier):
        return declared.choices
    if isinstance(declared, Quantity):
        return tuple(int(value) if float(value).is_integer() else value for value in declared.choices)
    return tuple(range(declared.horizon_days + 1))


@lru_cache(maxsize=512)
def marked_spellings(world: str, kind: str, language: Language) -> tuple[NDArray[np.object_], Codes, Codes]:
    """All spellings of all usual values of a slot kind, with the marks of `synth.haystack.noise`.

    Returns: the spellings of all values in one array; for each value, the index of its first spelling; for each value, their number.
    """
    declared, synonyms = WORLDS[world].kinds[kind], load_grounding(WORLDS[world]).synonyms.get(kind)
    lists = [value_spellings(declared, value, language, synonyms) for value in usual_values(world, kind)]
    counts = np.array([len(spellings) for spellings in lists], dtype=np.int64)
    marked = np.array([f"{OPEN}{text}{CLOSE}" for spellings in lists for text in spellings], dtype=object)
    return marked, np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64), counts
