"""Processes that work for another: none lives longer than its parent, whom the kernel may kill without a word."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
"""Environment of a training stage."""


def dying_with_parent(parent: int | None = None) -> Callable[[], None]:
    """What a child is to call, before it execs or as its first act, so that it ends with its parent: this process, where none is named."""
    parent = os.getpid() if parent is None else parent  # 0 is a parent too: whoever started the first process of a container
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return die_with_parent


def start_worker(parent: int) -> None:
    """To be called first in a process that `parent` has started: it is settled as a stage is."""
    dying_with_parent(parent)()
    from train.device import settle

    settle()
