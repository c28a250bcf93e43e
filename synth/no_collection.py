"""Garbage collection, paused.

Work that makes millions of objects which stay, or which refer to nothing that refers back, has no garbage to find; the collector would
look through all that there is, again and again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Pauses it, where it was not paused already."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
