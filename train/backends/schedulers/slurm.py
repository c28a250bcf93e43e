"""Runs a training stage as a Slurm job on the cluster that this machine's Slurm commands know.

One idea: a job's name is made from the stage's id and spec, so every caller finds the stage's job. A job survives a killed launcher, and
the next launcher follows it. Only if a job ended without a result does the next call submit another.
The store has the same path on all nodes: log.txt, metrics.jsonl, checkpoints and result.json are written there by the job itself.

What it does not do: talk to Slurm (`slurm_client.py`), or write the script (`slurm_script.py`), both in this folder.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage.errors import HeadraceError, OutOfReach
from storage.files import replace_atomically
from train.backends import job_backend
from train.backends.base import (
    LOG,
    ClusterBackend,
    FailureKind,
    Handle,
    Need,
    StageFailed,
    StepProgress,
    Steps,
    cancel_on_exit,
    is_out_of_memory,
)
from train.backends.cluster import resources_of
from train.backends.remote_sync import StageFiles
from train.backends.schedulers.scheduler_commands import POLL_S
from train.backends.schedulers.slurm_client import Slurm, SlurmArray, Task
from train.backends.schedulers.slurm_script import check_section, job_name, script
from train.spec import StageSpec

_STOP_S = 10.0
_NEVER = (
    "PartitionTimeLimit",
    "PartitionNodeLimit",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "AccountNotAllowed",
    "QOSNotAllowed",
)
"""Why a job waits for ever."""
_KINDS: dict[str, FailureKind] = {
    "OUT_OF_MEMORY": "memory",
    "NODE_FAIL": "lost",
    "BOOT_FAIL": "lost",
    "REVOKED": "lost",
    "TIMEOUT": "stopped",
    "DEADLINE": "stopped",
    "PREEMPTED": "stopped",
    "CANCELLED": "stopped",
}
_ADVICE = {
    "OUT_OF_MEMORY": "it ran out of memory: a smaller micro_batch_size, or more memory (train.cluster.slurm.options: [--mem=64G])",
    "TIMEOUT": "it reached its time limit: raise train.cluster.slurm.time_limit, or slurm.attempts and the stage's checkpoint_steps",
    "DEADLINE": "it reached its deadline",
    "NODE_FAIL": "its node failed; the same command starts it again",
    "BOOT_FAIL": "its node did not start; the same command starts it again",
    "PREEMPTED": "a job of higher priority took its nodes; the same command starts it again",
    "CANCELLED": "it was cancelled; the same command starts it again",
}
_OF_KIND: dict[FailureKind, str] = {
    "memory": _ADVICE["OUT_OF_MEMORY"],
    "killed": "it was killed (signal 9), and nothing says by whom; if for memory: a smaller micro_batch_size, or more memory",
    "start": "it did not start: do the nodes see this Python, with the extra `train`, under the same path?",
}
_OVER_LIMIT = "exceeded memory limit"
"""What slurmstepd writes into the log of a job that it kills where no cgroup does."""


class SlurmBackend(ClusterBackend[Handle]):
    """Runs stages as jobs of Slurm.

    A stage's folder gets spec.json, job.sh (what was submitted), job.json (the job and its end), log.txt, metrics.jsonl and result.json.
    """

    def launch(self, spec: StageSpec, folder: Path) -> Handle | None:
        """As `Backend.launch`.

        Raises:
            BadInput: Slurm is not installed here, or refuses the job. OutOfReach: Slurm has not answered for `patience_s`.
        """
        text, name, slurm = script(spec, folder, self.cluster), job_name(spec, folder), self._slurm()
        found = slurm.find(name)
        if found is not None and found.is_over and found.end.state == "COMPLETED" and _has_arrived(spec, folder):
            return None
        if found is None or found.is_over:
            (folder / LOG).unlink(missing_ok=True)
            _write(folder / "spec.json", spec.model_dump_json(indent=1))
            _write(folder / "job.sh", text)
            with cancel_on_exit(self, Handle(spec, folder, name)):
                number = slurm.submit(name, text)
        else:
            number = found.number
        _note(folder, number, name)
        return Handle(spec, folder, name)

    def follow(self, handle: Handle, progress: StepProgress = lambda *_: None) -> None:
        """As `Backend.follow`; while the job waits, the third argument of `progress` says in which queue and why.

        Raises:
            OutOfReach: Slurm has not answered for `patience_s`. StageFailed: the job failed, or can never start.
            HeadraceError: Slurm has forgotten the job, or its result cannot be seen here.
        """
        slurm, steps, seen = self._slurm(), Steps(handle), time.monotonic()
        while True:
            job = slurm.find(handle.name)
            if job is not None:
                seen = time.monotonic()
                done, most, figure = steps.now()
                progress(done, most, figure if job.is_running or job.is_over else self._queue(handle, job))
            if (job is None and _has_arrived(handle.spec, handle.folder, 0)) or (job is not None and job.is_over):
                break
            if time.monotonic() - seen > job_backend.ARRIVAL_S:  # so long Slurm's database may lack a job's end
                raise HeadraceError(f"Slurm no longer knows the job {handle.name}; the same command submits it again")
            time.sleep(POLL_S)
        if job is not None:
            _end(handle, job)

    def cancel(self, handle: Handle) -> None:
        """Waits for the end of the job, unless Slurm does not answer."""
        slurm, end = Slurm(0), time.monotonic() + _STOP_S
        try:
            while (job := slurm.find(handle.name)) and not job.is_over and time.monotonic() < end:
                slurm.cancel(job.number)
                time.sleep(0.2)
        except OutOfReach:
            return

    def needs(self, spec: StageSpec) -> Sequence[Need]:
        resources = resources_of(self.cluster, spec)
        share = f"{resources.nodes} x {resources.gpus_per_node} GPUs" if resources.gpus_per_node else f"{resources.cpus:g} CPU cores"
        requirement = f"a Slurm cluster that takes a stage of {spec.algorithm} with {share}"

        def check(patience_s: float | None) -> None:
            Slurm(self.cluster.patience_s if patience_s is None else patience_s).check(script(spec, spec.model_out.parent, self.cluster))

        return (Need("Slurm", requirement, check),)

    def render(self, spec: StageSpec, folder: Path) -> Mapping[str, str]:
        return {"spec.json": spec.model_dump_json(indent=1), "job.sh": script(spec, folder, self.cluster)}

    def _slurm(self) -> Slurm:
        check_section(self.cluster)
        return Slurm(self.cluster.patience_s)

    def _queue(self, handle: Handle, job: SlurmArray) -> str:
        """In words: where and why the job waits. Raises StageFailed and cancels the job if it can never start."""
        waits = next(task for task in job.tasks if not task.is_over)
        if waits.reason in _NEVER:
            self.cancel(handle)
            asked = "time limit, nodes, account and constraints"
            raise StageFailed(
                f"stage {handle.spec.name} can never start on partition {waits.partition} of Slurm ({waits.reason}): compare its {asked} "
                "in train.cluster with `scontrol show partition`",
                "resources",
            )
        why = f" ({waits.reason})" if waits.reason not in ("", "None") else ""
        return f"waiting in the queue of partition {waits.partition}{why}"


def _has_arrived(spec: StageSpec, folder: Path, within_s: float | None = None) -> bool:
    """Whether the result is in the folder. within_s: how long it is waited for; None: as long as a file system may take."""
    return StageFiles(spec, folder, None).has_arrived(job_backend.ARRIVAL_S if within_s is None else within_s)


def _end(handle: Handle, job: SlurmArray) -> None:
    """Raises StageFailed if the job failed; HeadraceError if its result is missing."""
    folder, task = handle.folder, job.end
    if task.state == "COMPLETED" or _has_arrived(handle.spec, folder, 0):
        _note(folder, job.number, handle.name, state=task.state)
        if not _has_arrived(handle.spec, folder):
            raise HeadraceError(
                f"the Slurm job {job.number} has completed, but its result is not in {folder}: the nodes and this machine must see the "
                "store under the same path"
            )
        return
    log = folder / LOG
    tail = ""
    if log.exists():
        with log.open(errors="replace") as lines:
            tail = "".join(deque(lines, 15))
    kind = _kind(task, tail)
    _note(folder, job.number, handle.name, state=task.state, kind=kind)
    advice = _ADVICE.get(task.state) or _OF_KIND.get(kind) or "the end of its log says why"
    message = f"stage {handle.spec.name} failed as Slurm job {job.number} ({task.state}): {advice}"
    raise StageFailed(f"{message}; the end of {log}:\n{tail}" if tail else message, kind)


def _kind(task: Task, log: str) -> FailureKind:
    if task.state in _KINDS:
        return _KINDS[task.state]
    if is_out_of_memory(log) or _OVER_LIMIT in log:
        return "memory"
    if task.exit_code == 137 or job_backend.KILLED_RANK in log:
        return "killed"
    if task.exit_code in (126, 127) or "No module named" in log or task.reason == "JobLaunchFailure":
        return "start"
    return "stopped" if task.exit_code > 128 else "stage"


def _note(folder: Path, number: int, name: str, **more: str) -> None:
    """Writes job.json."""
    _write(folder / "job.json", json.dumps({"job": number, "name": name} | more, indent=1))


def _write(path: Path, text: str) -> None:
    replace_atomically(path, lambda draft: draft.write_text(text) and None)
