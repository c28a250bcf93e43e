"""Ctrl-C, also where a library makes another error of it, or none.

One idea: Python raises KeyboardInterrupt in the code that runs at that moment. Some compiled libraries turn it into an error of their own
(Polars into a TypeError, Pydantic into a serialisation error), or swallow it. So Ctrl-C is noted as well: a flow that fails afterwards, or
reports progress, ends as interrupted.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_noted = threading.Event()


@contextlib.contextmanager
def note_interrupts() -> Iterator[None]:
    """Inside the block, note Ctrl-C and raise KeyboardInterrupt. No effect in another thread, or where Ctrl-C is ignored or handled."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def note(number: int, frame: Any) -> None:
        _noted.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _noted.clear()


@contextlib.contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Inside the block, an error after a noted Ctrl-C becomes a KeyboardInterrupt."""
    try:
        yield
    except Exception as error:
        if _noted.is_set():
            raise KeyboardInterrupt from error
        raise


def raise_noted() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was noted."""
    if _noted.is_set():
        raise KeyboardInterrupt
