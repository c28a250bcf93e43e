"""Runs a training stage on this machine: the same entry as everywhere, `python -P -m train.run SPEC`, in a child process.

The child gets a process group of its own and dies with its parent (the kernel sends it SIGKILL), so nothing is left after a `kill -9`.
Two that want the same stage at once get one training: the second waits for the first and takes its result.
One thread for BLAS and torch: equal specs then give equal weights on one machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from storage.errors import HeadraceError
from storage.files import file_lock, replace_atomically
from train.child_process import dying_with_parent
from train.spec import CHECKPOINTS, METRICS, StageSpec

_FAILURE = "failure.json"
_LONGEST_WAIT_S = 86_400.0
_TELL_EVERY_S = 1.0
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
Kind = Literal["start", "resources", "memory", "lost", "version", "stopped", "stage"]
_MEMORY = ("out of memory", "outofmemory", "cannot allocate memory", "bad_alloc", "memory pressure", "signal 9 (sigkill)")
"""The last is how `accelerate launch` tells of a process of its own that was killed."""
Told = Callable[[int, int, str], None]
"""Is told how many steps are done, of how many if nothing ends it before, and the latest figure ("loss 0.41")."""


class StageFailed(HeadraceError):
    """A stage has ended without a result; `kind` says in which way: here `memory`, or `stage` for whatever its log says."""

    def __init__(self, told: str, kind: Kind = "stage") -> None:
        super().__init__(told)
        self.kind = kind


def launch(spec: StageSpec, folder: Path, progress: Told = lambda *_: None) -> dict[str, Any]:
    """Runs a stage to its end and returns its `result.json`; a stage whose result is there is not run again.

    folder: receives spec.json, the log, metrics.jsonl and result.json, or failure.json (the kind, and how it ended). progress: is told how
    far it is, every second.

    Raises:
        StageFailed: the stage did; the message has the end of its log. HeadraceError: another process has trained it for a day.
    """
    result = folder / "result.json"
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f".{folder.name}.lock"), wait_s=_LONGEST_WAIT_S):
        if not result.exists():
            spec_path = folder / "spec.json"
            spec_path.write_text(spec.model_dump_json(indent=1))
            log = folder / "log.txt"
            steps = Steps(folder / METRICS, spec)
            returncode = _run([sys.executable, "-P", "-m", "train.run", str(spec_path)], log, lambda: progress(*steps.now()))
            if returncode != 0:
                with log.open(errors="replace") as lines:
                    tail = "".join(deque(lines, 15))
                kind: Kind = "memory" if returncode == -signal.SIGKILL or tells_of_memory(tail) else "stage"
                told = f"stage {spec.name} {_ended(returncode)}"
                noted = json.dumps({"kind": kind, "message": told}, indent=1)
                replace_atomically(folder / _FAILURE, lambda path: path.write_text(noted))
                raise StageFailed(f"{told}; the end of {log}:\n{tail}", kind)
        (folder / _FAILURE).unlink(missing_ok=True)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    answer: dict[str, Any] = json.loads(result.read_text())
    return answer


class Steps:
    """How far a stage is, by the file of its metrics."""

    def __init__(self, metrics: Path, spec: StageSpec) -> None:
        settings = spec.sft or spec.rl
        assert settings is not None
        self._metrics, self._most, self._figure = metrics, settings.max_steps, "loss" if spec.sft else "reward"

    def now(self) -> tuple[int, int, str]:
        """What `Told` is told; 0 steps and no figure before the first."""
        try:
            rows = self._metrics.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            rows = []
        return len(rows), self._most, f"{self._figure} {json.loads(rows[-1])[self._figure]:.3g}" if rows else ""


def tells_of_memory(log: str) -> bool:
    """Whether a stage ended because memory ran out, by what it has printed."""
    return any(words in log.casefold() for words in _MEMORY)


def _ended(returncode: int) -> str:
    if returncode == -signal.SIGKILL:
        return "was killed, probably because memory ran out (smaller batches hold less: micro_batch_size, batch_size)"
    return f"ended with code {returncode}"


def _run(command: list[str], log: Path, tell: Callable[[], None]) -> int:
    """Calls `tell` every second meanwhile."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | THREADS | {key: os.environ.get(key, value) for key, value in OFFLINE.items()},
            start_new_session=True,
            preexec_fn=dying_with_parent(),  # noqa: PLW1509 (the child execs at once; nothing here takes a lock)
        )
        try:
            while True:
                try:
                    return process.wait(_TELL_EVERY_S)
                except subprocess.TimeoutExpired:
                    tell()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
