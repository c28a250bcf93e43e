"""Runs a training stage on this machine: the same entry as everywhere, `python -P -m train.run SPEC`, in a child process.

The child gets a process group of its own and dies with its parent (the kernel sends it SIGKILL), so nothing is left after a `kill -9`.
Two that want the same stage at once get one training: the second waits for the first and takes its result.
One thread for BLAS and torch: equal specs then give equal weights on one machine.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from storage.errors import HeadraceError
from storage.files import file_lock
from train.spec import CHECKPOINTS, StageSpec

_PR_SET_PDEATHSIG = 1
_LONGEST_WAIT_S = 86_400.0
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}


def launch(spec: StageSpec, folder: Path) -> dict[str, Any]:
    """Runs a stage to its end and returns its `result.json`; a stage whose result is there is not run again.

    folder: receives spec.json, the log, metrics.jsonl and result.json.

    Raises:
        HeadraceError: the stage failed; the message has the end of its log. Or another process has trained it for a day.
    """
    result = folder / "result.json"
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f".{folder.name}.lock"), wait_s=_LONGEST_WAIT_S):
        if not result.exists():
            spec_path = folder / "spec.json"
            spec_path.write_text(spec.model_dump_json(indent=1))
            log = folder / "log.txt"
            returncode = _run([sys.executable, "-P", "-m", "train.run", str(spec_path)], log)
            if returncode != 0:
                with log.open(errors="replace") as lines:
                    tail = "".join(deque(lines, 15))
                raise HeadraceError(f"stage {spec.name} ended with code {returncode}; the end of {log}:\n{tail}")
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    answer: dict[str, Any] = json.loads(result.read_text())
    return answer


def _run(command: list[str], log: Path) -> int:
    parent = os.getpid()
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | _THREADS | {key: os.environ.get(key, value) for key, value in _OFFLINE.items()},
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 (the child execs at once; nothing here takes a lock)
        )
        try:
            return process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
