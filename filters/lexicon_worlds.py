"""The worlds whose requests are read out of raw queries.

A world with a lexicon (`grounding.yaml`) is read by the parser. The reader reads every other one, and requests that name what no lexicon
lists: real places in the city. Grounding gets its worlds as an argument. A step of the funnel calls `lexicon_worlds` itself, because a
world compiled from a spec does not pickle: on a cluster each process compiles its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.text.slot_kinds import Vocabulary
from synth.worlds import WITH_LEXICON, WORLDS
from synth.worlds.base import World

Worlds = tuple[type[World], ...]


def lexicon_worlds(names: Sequence[str] | None = None) -> Worlds:
    """Those of these worlds that have a lexicon, in the order of `WITH_LEXICON`; all that have one for None."""
    return tuple(WORLDS[name] for name in WITH_LEXICON if names is None or name in names)


def reader_worlds(names: Sequence[str] | None) -> tuple[str, ...]:
    """Those of these worlds that the reader reads: they have no lexicon, or names that it does not list. Empty for None."""
    return tuple(name for name in names or () if name not in WITH_LEXICON or _has_open_names(WORLDS[name]))


def _has_open_names(world: type[World]) -> bool:
    return any(isinstance(kind, Vocabulary) and kind.is_open for kind in world.kinds.values())
