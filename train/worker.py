"""A process that works for another: one thread, and no life after its parent's."""

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
    import torch

    from train.device import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
