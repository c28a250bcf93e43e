"""Python's garbage collector, less often.

Code that makes millions of objects without reference cycles leaves nothing for the collector, which would scan all objects again and again.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 50_000
"""New objects before a collection; Python's own default is 700."""
_DEFAULT = 700


def collect_seldom() -> None:
    """For a process that imports large libraries and makes many objects: the collector runs seldom."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def collect_again() -> None:
    """For a process that has started and lives long: what it has made is never scanned, and the rest as often as Python's default says.

    Without this, cycles that hold much memory wait for tens of thousands of objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_DEFAULT)


class _Contexts:
    """Number of open `pause_gc` contexts in all threads, and whether the collector was on before the first one."""

    lock = threading.Lock()
    count = 0
    was_on = False


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pauses the collector until the last open context, in any thread, is closed. Does nothing if it was off before."""
    with _Contexts.lock:
        if _Contexts.count == 0:
            _Contexts.was_on = gc.isenabled()
            gc.disable()
        _Contexts.count += 1
    try:
        yield
    finally:
        with _Contexts.lock:
            _Contexts.count -= 1
            if _Contexts.count == 0 and _Contexts.was_on:
                gc.enable()
