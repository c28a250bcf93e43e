"""Runs a training stage on this machine: the same entry as everywhere, `python -P -m train.run SPEC`, in a child process.

The child gets a process group of its own and dies with its parent (the kernel sends it SIGKILL), so nothing is left after a `kill -9`, and
there is never a child to find again: the next launch goes on from the last checkpoint.
One thread for BLAS and torch: equal specs then give equal weights on one machine.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.errors import BadInput
from storage.files import replace_atomically
from train.backends.base import FAILURE, LOG, Backend, FailureKind, Handle, Need, StageFailed, StepProgress, Steps, tells_of_memory
from train.child_process import OFFLINE, THREADS, dying_with_parent
from train.spec import StageSpec

_TELL_EVERY_S = 1.0
_LIBRARIES = ("accelerate", "datasets", "torch", "transformers", "trl")


@dataclass(frozen=True)
class Child(Handle):
    """A stage in a child process. name: its process id."""

    process: subprocess.Popen[bytes]


class LocalBackend(Backend[Child]):
    """Child processes of this one."""

    def launch(self, spec: StageSpec, folder: Path) -> Child:
        path = folder / "spec.json"
        path.write_text(spec.model_dump_json(indent=1))
        process = start([sys.executable, "-P", "-m", "train.run", str(path)], folder / LOG)
        return Child(spec, folder, str(process.pid), process)

    def follow(self, handle: Child, progress: StepProgress = lambda *_: None) -> None:
        """Of two ways to fail it says `memory`, or `stage` for all others; failure.json keeps it. An error here ends the child."""
        steps = Steps.of(handle)
        try:
            while (returncode := _ended_within(handle.process, _TELL_EVERY_S)) is None:
                progress(*steps.now())
        except BaseException:
            self.cancel(handle)
            raise
        if returncode != 0:
            raise _failure(handle, returncode)

    def cancel(self, handle: Child) -> None:
        if handle.process.poll() is None:
            os.killpg(handle.process.pid, signal.SIGKILL)
            handle.process.wait()

    def needs(self, spec: StageSpec) -> Sequence[Need]:
        return (Need("extra `train`", "PyTorch and TRL on this machine (the extra `train`)", _check_libraries),)


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts a stage's command as a child that dies with this process; what it prints goes to the log."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | THREADS | {key: os.environ.get(key, value) for key, value in OFFLINE.items()},
            start_new_session=True,
            preexec_fn=dying_with_parent(),  # noqa: PLW1509 (the child execs at once; nothing here takes a lock)
        )


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The return code; None: it still runs."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _failure(handle: Child, returncode: int) -> StageFailed:
    """What to raise; the folder keeps it in failure.json."""
    log = handle.folder / LOG
    with log.open(errors="replace") as lines:
        tail = "".join(deque(lines, 15))
    was_killed = returncode == -signal.SIGKILL
    kind: FailureKind = "memory" if was_killed or tells_of_memory(tail) else "stage"
    killed = "was killed, probably because memory ran out (smaller batches hold less: micro_batch_size, batch_size)"
    message = f"stage {handle.spec.name} {killed if was_killed else f'ended with code {returncode}'}"
    text = json.dumps({"kind": kind, "message": message}, indent=1)
    replace_atomically(handle.folder / FAILURE, lambda path: path.write_text(text))
    return StageFailed(f"{message}; the end of {log}:\n{tail}", kind)


def _check_libraries(_: float | None) -> None:
    """Raises BadInput: a library is missing. None is imported."""
    if missing := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        raise BadInput(f"training needs {', '.join(missing)}: pip install 'headrace[train]'")
