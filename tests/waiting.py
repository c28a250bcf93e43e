"""Waiting in tests for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], within_s: float = 90.0, every_s: float = 0.1) -> bool:
    """Whether it holds within so many seconds; asked again and again after `every_s`."""
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(every_s)
    return True
