"""Garbage collection, paused.

Work that makes millions of objects which stay, or which refer to nothing that refers back, has no garbage to find; the collector would
look through all that there is, again and again.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Inside:
    """How many are in it now, in all threads, and whether it was on when the first came."""

    lock = threading.Lock()
    count = 0
    was_on = False


@contextmanager
def no_collection() -> Iterator[None]:
    """Pauses it, where it was not paused already, until the last of those who are inside at once, in whatever thread, has left."""
    with _Inside.lock:
        if _Inside.count == 0:
            _Inside.was_on = gc.isenabled()
            gc.disable()
        _Inside.count += 1
    try:
        yield
    finally:
        with _Inside.lock:
            _Inside.count -= 1
            if _Inside.count == 0 and _Inside.was_on:
                gc.enable()
