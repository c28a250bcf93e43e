"""The worlds whose requests are read out of raw queries.

A world with a lexicon (`grounding.yaml`) is read by the parser, every other one by the reader. Grounding gets its worlds as an argument. A
step of the funnel calls `grounded_worlds` itself, because a world compiled from a spec does not pickle: on a cluster each process compiles
its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.worlds import GROUNDED, WORLDS
from synth.worlds.base import World

Worlds = tuple[type[World], ...]


def grounded_worlds(names: Sequence[str] | None = None) -> Worlds:
    """Those of these worlds that have a lexicon, in the order of `GROUNDED`; all that have one for None."""
    return tuple(WORLDS[name] for name in GROUNDED if names is None or name in names)


def reader_worlds(names: Sequence[str] | None) -> tuple[str, ...]:
    """Those of these worlds that the reader reads: they have no lexicon."""
    return tuple(name for name in names or () if name not in GROUNDED)
