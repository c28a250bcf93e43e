"""A process that works for another: settled as a stage is, and no life after its parent's."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def start_worker(parent: int) -> None:
    """To be called first in a process that `parent` has started."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    from train.device import settle

    settle()
