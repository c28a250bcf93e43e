"""Runs a training stage on Kubernetes, as a RayJob of the KubeRay operator, by the command kubectl.

One idea: the name of a RayJob is made from the stage's id and spec, and Kubernetes creates a name once. So every caller finds the stage's
job, a job survives a killed launcher, and two launchers never start two. Only if a job ended without a result does the next call create
another, under the next name (`-2`, `-3` ...).
The pods write to the store's volume, or to the URL `checkpoints`; this process sees the same volume, or fetches from the URL.

What it does not do: write the manifest (`rayjob_manifest.py`), call kubectl (`kubectl.py`, both in this folder), or install KubeRay.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

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
from train.backends.cluster import ClusterConfig, resources_of
from train.backends.on_nodes import NO_NODES
from train.backends.remote_sync import StageFiles
from train.backends.schedulers.kubectl import Kubectl, RayJobStatus
from train.backends.schedulers.rayjob_manifest import manifest
from train.backends.schedulers.scheduler_commands import POLL_S
from train.spec import StageSpec

_OF_REASON: dict[str, FailureKind] = {
    "SubmissionFailed": "start",
    "ValidationFailed": "start",
    "DeadlineExceeded": "stopped",
    "PreRunningDeadlineExceeded": "resources",
    "JobDeploymentStatusTransitionGracePeriodExceeded": "lost",
    "JobStatusCheckTimeoutExceeded": "lost",
}
_ADVICE: dict[FailureKind, str] = {
    "start": "it did not start: are Headrace, its extra `train` and Ray in train.cluster.image?",
    "resources": "no node with what train.cluster asks for was free in time (`kubectl get nodes`)",
    "memory": "it ran out of memory: a smaller micro_batch_size, or more of train.cluster.kubernetes.memory",
    "lost": "its pod was lost; the same command starts it again",
    "killed": "it was killed (signal 9), and nothing says by whom; if for memory: a smaller micro_batch_size, or larger pods",
    "stopped": "it was stopped, or reached train.cluster.kubernetes.time_limit_s; the same command starts it again",
    "stage": "the end of its log says why",
}


class KubeRayBackend(ClusterBackend[Handle]):
    """Runs stages as RayJobs.

    A stage's folder gets spec.json, rayjob.json (what was created), job.json (its name and end), log.txt, metrics.jsonl and result.json.
    """

    def launch(self, spec: StageSpec, folder: Path) -> Handle | None:
        """As `Backend.launch`, under the first name whose job did not end without a result.

        Raises:
            BadInput: kubectl is not installed, or Kubernetes refuses the job. OutOfReach: it has not answered for `patience_s`.
            HeadraceError: the stage's job is being deleted, and that takes longer than a deletion should.
        """
        kubectl, files = Kubectl(self.cluster), _Files(spec, folder, self.cluster)
        if files.have_arrived(0):
            return None
        for attempt in itertools.count(1):
            text, job = manifest(spec, folder, self.cluster, attempt=attempt)
            handle = Handle(spec, folder, job["metadata"]["name"])
            status = kubectl.find(handle.name)
            if status is not None and status.has_succeeded and files.have_arrived(job_backend.ARRIVAL_S):
                return None
            if status is not None and status.is_being_deleted:
                status = kubectl.wait_for_deletion(handle.name)
            if status is not None and status.is_over:
                continue
            if status is None:
                with cancel_on_exit(self, handle):
                    files.prepare(text, job)
                    kubectl.create(job)
            files.note(handle.name)
            return handle
        raise AssertionError

    def follow(self, handle: Handle, progress: StepProgress = lambda *_: None) -> None:
        """As `Backend.follow`; while the pods wait, the third argument of `progress` says for what.

        Raises:
            OutOfReach: Kubernetes has not answered for `patience_s`. StageFailed: the job failed.
            HeadraceError: the job was deleted, or its result cannot be seen here.
        """
        kubectl, files, steps = Kubectl(self.cluster), _Files(handle.spec, handle.folder, self.cluster), Steps(handle)
        while True:
            status = kubectl.find(handle.name)
            if status is None:
                raise HeadraceError(f"the RayJob {handle.name} was deleted; the same command creates it again")
            files.bring(kubectl.log(handle.name))
            done, most, figure = steps.now()
            waits = not status.is_over and status.job not in ("RUNNING", "SUCCEEDED")
            progress(done, most, f"waiting for pods{kubectl.why_pods_wait(status.cluster)}" if waits else figure)
            if status.is_over:
                _end(handle, status, files, kubectl)
                return
            time.sleep(POLL_S)

    def cancel(self, handle: Handle) -> None:
        """Deletes the job and its pods, unless Kubernetes does not answer."""
        with suppress(OutOfReach):
            Kubectl(self.cluster).delete(handle.name)

    def needs(self, spec: StageSpec) -> Sequence[Need]:
        resources = resources_of(self.cluster, spec)
        share = f"{resources.gpus_per_node} GPUs" if resources.gpus_per_node else f"{resources.cpus:g} CPU cores"
        requirement = f"Kubernetes with KubeRay, which takes a RayJob of {resources.nodes} pods with {share} each"

        def check(patience_s: float | None) -> None:
            _, job = manifest(spec, spec.model_out.parent, self.cluster)
            job["metadata"]["name"] = "headrace-check"
            Kubectl(self.cluster, patience_s).create(job, "--dry-run=server")

        return (Need("KubeRay", requirement, check),)

    def render(self, spec: StageSpec, folder: Path) -> Mapping[str, str]:
        text, job = manifest(spec, folder, self.cluster)
        return {"spec.json": text, "rayjob.json": json.dumps(job, indent=1)}


class _Files:
    """Files of a stage: in its folder, which the pods see too, or under the URL `checkpoints`."""

    def __init__(self, spec: StageSpec, folder: Path, cluster: ClusterConfig) -> None:
        self._folder, self._shared = folder, StageFiles(spec, folder, cluster.checkpoints)
        self.have_arrived = self._shared.has_arrived

    def prepare(self, spec_text: str, job: dict[str, Any]) -> None:
        """Writes the spec and the manifest, and sends what the stage reads if there is a URL."""
        (self._folder / LOG).unlink(missing_ok=True)
        self._write("rayjob.json", json.dumps(job, indent=1))
        self._shared.send_inputs(spec_text)

    def bring(self, log: str | None) -> None:
        """Writes the log (None: none now), and fetches the metrics if there is a URL."""
        if log is not None:
            self._write(LOG, log)
        self._shared.fetch_metrics()

    def note(self, name: str, **more: str) -> None:
        self._write("job.json", json.dumps({"rayjob": name} | more, indent=1))

    def _write(self, name: str, text: str) -> None:
        replace_atomically(self._folder / name, lambda path: path.write_text(text) and None)


def _end(handle: Handle, status: RayJobStatus, files: _Files, kubectl: Kubectl) -> None:
    """Raises StageFailed if the job failed; HeadraceError if its result is missing."""
    if status.has_succeeded:
        files.note(handle.name, status=status.job)
        if not files.have_arrived(job_backend.ARRIVAL_S):
            raise HeadraceError(
                f"the RayJob {handle.name} has succeeded, but its result is not in {handle.folder}: the claim must hold the store that "
                "this machine sees, at train.cluster.kubernetes.mount_path"
            )
        return
    log = handle.folder / LOG
    text = log.read_text() if log.exists() else status.message
    kind = "memory" if kubectl.is_out_of_memory(status.cluster) else _kind(status, text)
    files.note(handle.name, status=status.job or status.deployment, kind=kind)
    tail = "\n".join(text.rstrip().splitlines()[-15:])
    message = f"stage {handle.spec.name} failed as RayJob {handle.name} ({status.reason or status.job or 'deleted'}): {_ADVICE[kind]}"
    raise StageFailed(f"{message}; the end of {log}:\n{tail}" if tail else message, kind)


def _kind(status: RayJobStatus, log: str) -> FailureKind:
    output = f"{log[-20_000:]}\n{status.message}"
    if status.is_being_deleted or status.job == "STOPPED":
        return "stopped"
    if status.reason in _OF_REASON:
        return _OF_REASON[status.reason]
    if is_out_of_memory(output):
        return "memory"
    if job_backend.KILLED_RANK in output or "exit code 137" in output:
        return "killed"
    if f"exit code {NO_NODES}" in output:
        return "resources"
    if "ActorDiedError" in output or "node has died" in output:
        return "lost"
    return "start" if "No module named" in output else "stage"
