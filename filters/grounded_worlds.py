"""The worlds whose requests are read out of raw queries.

Grounding gets its worlds as an argument. A step of the funnel calls `grounded_worlds` itself, because a world compiled from a spec does not
pickle: on a cluster each process compiles its own.
"""

from __future__ import annotations

from synth.worlds import GROUNDED, WORLDS
from synth.worlds.base import World

Worlds = tuple[type[World], ...]


def grounded_worlds() -> Worlds:
    """The worlds that `GROUNDED` names, in its order."""
    return tuple(WORLDS[name] for name in GROUNDED)
