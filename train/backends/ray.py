"""Runs a training stage as a Ray Job on the cluster that `train.cluster` or RAY_ADDRESS names.

One idea: a job's id is made from the stage's id and spec, so every caller finds the stage's job. A job survives a killed launcher, and the
next launcher follows it; two launchers never start two jobs. Only if a job ended without a result does the next call start another, under
the next id (`-2`, `-3` ...).
The store's folder has the same path on all nodes, or a stage's files go through a URL (`train/backends/remote_sync.py`). The whole log is
fetched every `POLL_S` seconds; it is short.

What it does not do: send requests (`train/backends/ray_jobs.py`), or build the job (`train/backends/cluster.py`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from storage.errors import BadInput, HeadraceError
from storage.files import replace_atomically
from storage.outside.known_secrets import holds_secret
from train.backends.base import (
    LOG,
    RESULT,
    Backend,
    FailureKind,
    Handle,
    Need,
    StageFailed,
    StepProgress,
    Steps,
    cancel_on_exit,
    is_out_of_memory,
)
from train.backends.cluster import ClusterConfig, job, resources_of
from train.backends.on_nodes import NO_NODES
from train.backends.ray_jobs import POLL_S, Job, Jobs, NoAnswer, last_line
from train.backends.remote_sync import RemoteStore, inside
from train.spec import METRICS, StageSpec

OLDEST, NEWEST = "2.60", "3"
"""Supported versions of Ray (from, below), as in the extra `ray`."""
_ARRIVAL_S = 10.0
"""How long a network file system may take to show a job's files."""
_STOP_S = 10.0

_ADVICE: dict[FailureKind, str] = {
    "start": "it did not start: are Headrace and its extra `train` in the image, in `pip`, or on the nodes?",
    "resources": "no node with what `train.cluster` asks for was free in time (`ray status` on the head tells which there are)",
    "memory": "it ran out of memory: a smaller micro_batch_size, or larger nodes or more of them in `train.cluster`",
    "lost": "its node was lost; the same command starts it again",
    "version": "its Python or Ray is not the cluster's: use an image that is made for the cluster",
    "killed": "it was killed (signal 9), and nothing says by whom; if for memory: a smaller micro_batch_size, or larger nodes",
    "stopped": "somebody stopped it; the same command starts it again",
    "stage": "the end of its log says why",
}
_KILLED_RANK = "Signal 9 (SIGKILL) received"
"""What `accelerate launch` says of a process that was killed."""
_OF_ERROR_TYPE: dict[str, FailureKind] = {
    "RUNTIME_ENV_SETUP_FAILURE": "start",
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": "start",
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": "start",
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": "resources",
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": "resources",
    "JOB_SUPERVISOR_ACTOR_DIED": "lost",
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": "lost",
}


def check(cluster: ClusterConfig, *, patience_s: float | None = None) -> None:
    """Checks that a cluster is configured, answers, runs a supported Ray, and that its `checkpoints` can be written.

    Raises:
        BadInput: no cluster is configured, or its Ray is too old or too new; or as `RemoteStore.check`. NoAnswer: it does not answer.
    """
    version = Jobs(_address(cluster), cluster.patience_s if patience_s is None else patience_s).version()
    with suppress(InvalidVersion):
        if not Version(OLDEST) <= Version(version) < Version(NEWEST):
            raise BadInput(f"the Ray cluster {_address(cluster)} runs Ray {version}; jobs need at least {OLDEST}, and less than {NEWEST}")
    if cluster.checkpoints is not None:
        RemoteStore(cluster.checkpoints).check()


@dataclass(frozen=True)
class RayJob(Handle):
    """A stage as a job. name: its submission id. body: the request that submits it."""

    body: dict[str, Any]


class RayBackend(Backend[RayJob]):
    """Runs stages as jobs on the cluster that `train.cluster` or RAY_ADDRESS names.

    A stage's folder gets spec.json, job.json (the job and its end), log.txt, metrics.jsonl and result.json.
    """

    def launch(self, spec: StageSpec, folder: Path) -> RayJob | None:
        """As `Backend.launch`, with the first id whose job did not end without a result. If this process is ended meanwhile, the job stops.

        Raises:
            BadInput: the cluster refuses the job. NoAnswer: the cluster has not answered for `patience_s`.
        """
        stage = _Stage(spec, folder, self.cluster)
        if stage.has_arrived():
            return None
        jobs = Jobs(_address(self.cluster), self.cluster.patience_s)
        for attempt in itertools.count(1):
            spec_text, body = describe_job(spec, folder, self.cluster, attempt=attempt)
            stage_job = RayJob(spec, folder, body["submission_id"], body)
            with cancel_on_exit(self, stage_job):
                submitted = jobs.find(stage_job.name)
                if submitted is not None and submitted.is_over:
                    if submitted.status == "SUCCEEDED" and stage.has_arrived(_ARRIVAL_S):
                        return None
                    continue
                if submitted is None:
                    stage.note(body)
                    stage.prepare(spec_text)
                    jobs.submit(body)
                return stage_job
        raise AssertionError

    def follow(self, handle: RayJob, progress: StepProgress = lambda *_: None) -> None:
        """As `Backend.follow`.

        Raises:
            NoAnswer: the cluster has not answered for `patience_s`. StageFailed: the job failed.
            HeadraceError: the cluster has forgotten the job, or its result cannot be seen here.
        """
        jobs, stage, steps = Jobs(_address(self.cluster), self.cluster.patience_s), self._stage(handle), Steps(handle)
        while True:
            submitted = jobs.find(handle.name)
            if submitted is None:
                raise HeadraceError(
                    f"the Ray cluster {jobs.address} no longer knows the job {handle.name}, as after a restart of its head; "
                    "the same command submits it again"
                )
            stage.bring(jobs.log(handle.name))
            progress(*steps.now())
            if submitted.is_over:
                stage.end(jobs.address, handle.body, submitted)
                return
            time.sleep(POLL_S)

    def cancel(self, handle: RayJob) -> None:
        """Waits for the end of the job, unless the cluster does not answer."""
        jobs, end = Jobs(_address(self.cluster), _STOP_S), time.monotonic() + _STOP_S
        with suppress(NoAnswer):
            jobs.stop(handle.name)
            while (submitted := jobs.find(handle.name)) and not submitted.is_over and time.monotonic() < end:
                time.sleep(0.2)

    def needs(self, spec: StageSpec) -> Sequence[Need]:
        requirement = f"a Ray cluster (version {OLDEST} up to {NEWEST}) whose dashboard answers"
        needs = [Need("cluster", requirement, lambda patience_s: check(self.cluster, patience_s=patience_s))]
        resources = resources_of(self.cluster, spec)
        if resources.gpus_per_node:
            needs.append(Need("GPUs", f"{resources.nodes} x {resources.gpus_per_node} GPUs, free when a stage of {spec.algorithm} starts"))
        if spec.rl is not None and spec.rl.rollouts == "vllm":
            needs.append(Need("vLLM", "vLLM in the Python of the node that runs RL (rollouts: vllm)"))
        return needs

    def processes(self, spec: StageSpec) -> int:
        """One per GPU."""
        return max(1, self.gpus(spec))

    def gpus(self, spec: StageSpec) -> int:
        resources = resources_of(self.cluster, spec)
        return resources.nodes * resources.gpus_per_node

    def is_sharded(self, spec: StageSpec) -> bool:
        return resources_of(self.cluster, spec).sharding == "fsdp"

    def render(self, spec: StageSpec, folder: Path) -> Mapping[str, str]:
        text, body = describe_job(spec, folder, self.cluster)
        return {"spec.json": text, "job.json": json.dumps(body, indent=1)}

    def _stage(self, handle: RayJob) -> _Stage:
        return _Stage(handle.spec, handle.folder, self.cluster)


def describe_job(spec: StageSpec, folder: Path, cluster: ClusterConfig, *, attempt: int = 1) -> tuple[str, dict[str, Any]]:
    """The spec file's text and the body of the job."""
    root, url = spec.store, cluster.checkpoints
    if url is not None:
        moved = {name: inside(root, getattr(spec, name)) for name in ("store", "model_in", "model_out")}
        spec = spec.model_copy(update=moved)
    spec_json = spec.model_dump_json(indent=1)
    made_of = hashlib.sha256(f"{url or ''}\n{spec_json}".encode()).hexdigest()[:8]
    name = f"headrace-{folder.name}-{made_of}{f'-{attempt}' if attempt > 1 else ''}"
    path = str(folder / "spec.json") if url is None else "spec.json"
    return spec_json, job(resources_of(cluster, spec), name, spec.name, path, folder=None if url is None else str(inside(root, folder)))


class _Stage:
    """Files of a stage, in its folder and under the cluster's URL."""

    def __init__(self, spec: StageSpec, folder: Path, cluster: ClusterConfig) -> None:
        self._spec, self._folder, self._cluster = spec, folder, cluster
        self._remote = None if cluster.checkpoints is None else RemoteStore(cluster.checkpoints)
        self._place = str(inside(spec.store, folder)) if self._remote else ""

    def has_arrived(self, within_s: float = 0.0) -> bool:
        """Whether the result is in the folder; fetches it if it is under the URL."""
        result, end = self._folder / RESULT, time.monotonic() + within_s
        while not result.exists():
            if self._remote and self._remote.has(f"{self._place}/result.json"):
                self._remote.fetch_result(self._place, self._folder)
            elif time.monotonic() >= end:
                return False
            else:
                time.sleep(min(POLL_S, 0.5))
        return True

    def prepare(self, spec_text: str) -> None:
        """Removes the log and metrics of an earlier attempt, writes the spec and, with a URL, sends what the stage reads."""
        for left in (METRICS, LOG):
            (self._folder / left).unlink(missing_ok=True)
        replace_atomically(self._folder / "spec.json", lambda path: path.write_text(spec_text))
        if self._remote:
            self._remote.send_inputs(self._spec, self._place, self._folder / "spec.json")

    def bring(self, log: str | None) -> None:
        """Writes the log (None: not available now) and the metrics to the folder."""
        if log is not None:
            (self._folder / LOG).write_text(log)
        if self._remote:
            with suppress(HeadraceError):  # the next call tries again
                self._remote.fetch_metrics(self._place, self._folder)

    def end(self, address: str, body: dict[str, Any], ended: Job) -> None:
        """Raises StageFailed if the job failed; HeadraceError if its result is missing."""
        name, log = body["submission_id"], self._folder / LOG
        if ended.status == "SUCCEEDED":
            self.note(body, status=ended.status)
            if not self.has_arrived(_ARRIVAL_S):
                where = self._cluster.checkpoints or self._folder
                raise HeadraceError(
                    f"the Ray job {name} has succeeded, but its result is not under {where}: "
                    "nodes that do not see the store under the same path need `train.cluster.checkpoints`"
                )
            return
        text = log.read_text() if log.exists() else ""
        if not text.strip() or (ended.error_type in _OF_ERROR_TYPE and ended.message not in text):
            text = f"{text.rstrip()}\n{ended.message}".lstrip()
        kind = _kind(ended, text)
        self.note(body, status=ended.status, kind=kind, message=last_line(ended.message) if ended.message else "")
        tail = "\n".join(text.rstrip().splitlines()[-15:])
        message = f"stage {self._spec.name} failed as Ray job {name} on {address}: {_ADVICE[kind]}"
        raise StageFailed(f"{message}; the end of {log}:\n{tail}", kind)

    def note(self, body: dict[str, Any], **more: str) -> None:
        """Writes job.json. The body of a job that another call submitted stays, because it may differ."""
        record_path, record = self._folder / "job.json", {"address": _address(self._cluster), "job": body}
        if (
            more
            and record_path.exists()
            and (before := json.loads(record_path.read_text()))["job"]["submission_id"] == body["submission_id"]
        ):
            record = before
        text = json.dumps(record | {name: value for name, value in more.items() if value}, indent=1)
        replace_atomically(record_path, lambda path: path.write_text(text))


def _address(cluster: ClusterConfig) -> str:
    address = cluster.address or os.environ.get("RAY_ADDRESS", "")
    if not address:
        raise BadInput("train.cluster names no Ray cluster: set `address`, or RAY_ADDRESS, to its dashboard (http://HEAD:8265)")
    if holds_secret(address):
        raise BadInput("RAY_ADDRESS has a password in it, which a dashboard is not given that way: set RAY_AUTH_TOKEN to its token")
    if not address.startswith(("http://", "https://")):
        raise BadInput(f"RAY_ADDRESS is {address}, but jobs are given to the cluster's dashboard: set it to http://HEAD:8265")
    return address


def _kind(ended: Job, log: str) -> FailureKind:
    output = f"{log[-20_000:]}\n{ended.message}"
    if ended.status == "STOPPED":
        return "stopped"
    if "Version mismatch" in output:
        return "version"
    if is_out_of_memory(output):
        return "memory"
    if ended.exit_code in (-9, 137) or _KILLED_RANK in output:
        return "killed"
    if ended.exit_code == NO_NODES:
        return "resources"
    if "ActorDiedError" in output:
        return "lost"
    if ended.exit_code == 127 or "No module named" in output:
        return "start"
    return _OF_ERROR_TYPE.get(ended.error_type, "stage")
