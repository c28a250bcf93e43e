"""Runs a training stage on this machine, as a child process `python -P -m train.run SPEC`.

The child has its own process group and dies with its parent (the kernel sends SIGKILL). So no child survives a `kill -9`, and the next
launch resumes from the last checkpoint. BLAS and torch use one thread: equal specs then give equal weights on one machine.
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from storage.errors import BadInput
from storage.files import replace_atomically
from synth.engines.vllm import VLLMConfig, check_installed, has_gpu
from train.backends.base import FAILURE, LOG, Backend, FailureKind, Handle, Need, StageFailed, StepProgress, Steps, is_out_of_memory
from train.child_process import OFFLINE, THREADS, dying_with_parent
from train.rl.trajectories.reward_client import check_service
from train.spec import StageSpec

_REPORT_EVERY_S = 1.0
_LIBRARIES = ("accelerate", "datasets", "peft", "torch", "transformers", "trl")


@dataclass(frozen=True)
class Child(Handle):
    """A stage in a child process. name: its process id. oom_kills: see `_oom_kills`, when it was started."""

    process: subprocess.Popen[bytes]
    oom_kills: int = 0


class LocalBackend(Backend[Child]):
    """Runs stages as child processes."""

    def launch(self, spec: StageSpec, folder: Path) -> Child:
        path = folder / "spec.json"
        path.write_text(spec.model_dump_json(indent=1))
        process = start([sys.executable, "-P", "-m", "train.run", str(path)], folder / LOG)
        return Child(spec, folder, str(process.pid), process, _oom_kills())

    def follow(self, handle: Child, progress: StepProgress = lambda *_: None) -> None:
        """As `Backend.follow`. A failure is of kind `memory`, `stopped` (by a signal) or `stage`, and is written to failure.json. An error
        here kills the child."""
        steps = Steps(handle)
        try:
            while (returncode := _ended_within(handle.process, _REPORT_EVERY_S)) is None:
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

    def gpus(self, spec: StageSpec) -> int:
        return min(1, len(list(Path("/dev").glob("nvidia[0-9]*"))))

    def needs(self, spec: StageSpec) -> Sequence[Need]:
        libraries = Need("extra `train`", "PyTorch and TRL on this machine (the extra `train`)", _check_libraries)
        return (libraries, *_rollout_needs(spec))


def _rollout_needs(spec: StageSpec) -> Sequence[Need]:
    """What the setting `rollouts` needs of this machine; for `auto`, what it chooses, where there is a choice."""
    vllm = VLLMConfig(model="policy")
    if spec.rl is not None and (url := spec.rl.reward_url) is not None:
        return (Need("rewards", f"a reward service that answers at {url}", lambda patience_s: check_service(url, patience_s)),)
    if spec.rl is None or spec.rl.rollouts == "hf":
        return ()
    if spec.rl.rollouts == "vllm":
        return (Need("vLLM", "vLLM on this machine, for rollouts (rollouts: vllm)", lambda _: check_installed(vllm)),)
    if not has_gpu() or spec.rl.staleness:
        return ()
    engine = f"vLLM for a base model, by {vllm.python}" if vllm.python.exists() else "our engine, as vLLM is not installed (`make vllm`)"
    return (Need("rollouts", f"an engine for rollouts (rollouts: auto): {engine}", lambda _: None),)


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts a stage's command as a child that dies with this process; its output goes to the log."""
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
    """The return code; None if the process still runs."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _failure(handle: Child, returncode: int) -> StageFailed:
    """The error to raise; also written to failure.json."""
    log = handle.folder / LOG
    with log.open(errors="replace") as lines:
        tail = "".join(deque(lines, 15))
    is_killed = returncode == -signal.SIGKILL
    may_be_memory = is_killed and _oom_kills() > handle.oom_kills
    of_signal: FailureKind = "killed" if is_killed else "stopped"
    kind: FailureKind = "memory" if may_be_memory or is_out_of_memory(tail) else of_signal if returncode < 0 else "stage"
    message = f"stage {handle.spec.name} {_how_it_ended(returncode, may_be_memory)}"
    text = json.dumps({"kind": kind, "message": message}, indent=1)
    replace_atomically(handle.folder / FAILURE, lambda path: path.write_text(text))
    return StageFailed(f"{message}; the end of {log}:\n{tail}", kind)


def _how_it_ended(returncode: int, may_be_memory: bool) -> str:
    """In words: what is known, and a guess as a guess."""
    smaller = "smaller batches hold less: micro_batch_size, batch_size"
    if may_be_memory:
        return f"was killed by signal 9 (SIGKILL); the kernel has killed for memory meanwhile, so probably this process ({smaller})"
    if returncode == -signal.SIGKILL:
        return f"was killed by signal 9 (SIGKILL), not by the kernel for memory, as far as it says (if it was for memory: {smaller})"
    if returncode < 0:
        return f"was ended by signal {-returncode} ({signal.Signals(-returncode).name})"
    return f"ended with code {returncode}"


def _oom_kills() -> int:
    """How many processes the kernel has killed for memory, on this machine or in this container; 0 where it does not say."""
    counts = [0]
    for path in (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events")):
        with suppress(OSError):
            counts += [int(count) for name, count in map(str.split, path.read_text().splitlines()) if name == "oom_kill"]
    return max(counts)


def _check_libraries(_: float | None) -> None:
    """Raises BadInput if a library is missing; imports none."""
    if missing := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        raise BadInput(f"training needs {', '.join(missing)}: pip install 'headrace[train]'")
