"""Runs a stage as a Ray Job, whatever the job does: submits it, finds it again, follows it, stops it, and names the kind of its failure.

One idea: a job's id is made from the stage, so every caller finds the stage's job. A job survives a killed launcher, and the next launcher
follows it; two launchers never start two jobs. Only if a job ended without a result does the next call start another, under the next id
(`-2`, `-3` ...).

What it does not do: send requests (`train/backends/ray_jobs.py`), or know what a job runs and what it leaves: our own trainer
(`train/backends/ray.py`), verl or ROLL (`train/backends/engines/engine_stage.py`).
"""

from __future__ import annotations

import itertools
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
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
    ClusterBackend,
    FailureKind,
    Handle,
    StageFailed,
    StepProgress,
    Steps,
    cancel_on_exit,
    is_out_of_memory,
)
from train.backends.cluster import ClusterConfig
from train.backends.on_nodes import NO_NODES
from train.backends.ray_jobs import POLL_S, Job, Jobs, NoAnswer, last_line
from train.spec import METRICS, StageSpec

OLDEST, NEWEST = "2.60", "3"
"""Supported versions of Ray (from, below), as in the extra `ray`."""
ARRIVAL_S = 60.0
"""How long a network file system may take to show a job's files."""
_STOP_S = 10.0

ADVICE: Mapping[FailureKind, str] = {
    "start": "it did not start: are Headrace and its extra `train` in the image, in `pip`, or on the nodes?",
    "resources": "no node with what `train.cluster` asks for was free in time (`ray status` on the head tells which there are)",
    "memory": "it ran out of memory: a smaller micro_batch_size, or larger nodes or more of them in `train.cluster`",
    "lost": "its node was lost; the same command starts it again",
    "version": "its Python or Ray is not the cluster's: use an image that is made for the cluster",
    "killed": "it was killed (signal 9), and nothing says by whom; if for memory: a smaller micro_batch_size, or larger nodes",
    "stopped": "it was stopped; the same command starts it again",
    "stage": "the end of its log says why",
}
KILLED_RANK = "Signal 9 (SIGKILL) received"
"""What `accelerate launch` says of a process that was killed."""
_LOST = ("ActorDiedError", "NodeDiedError", "ActorUnavailableError", "its node has died")
"""What Ray says in a job's log of a process or object that was lost with its node."""
_OF_ERROR_TYPE: dict[str, FailureKind] = {
    "RUNTIME_ENV_SETUP_FAILURE": "start",
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": "start",
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": "start",
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": "resources",
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": "resources",
    "JOB_SUPERVISOR_ACTOR_DIED": "lost",
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": "lost",
}


def address_of(cluster: ClusterConfig) -> str:
    """Address of the cluster's dashboard.

    Raises:
        BadInput: neither the section nor RAY_ADDRESS names one, or RAY_ADDRESS is no dashboard's.
    """
    address = cluster.address or os.environ.get("RAY_ADDRESS", "")
    if not address:
        raise BadInput("train.cluster names no Ray cluster: set `address`, or RAY_ADDRESS, to its dashboard (http://HEAD:8265)")
    if holds_secret(address):
        raise BadInput("RAY_ADDRESS has a password in it, which a dashboard is not given that way: set RAY_AUTH_TOKEN to its token")
    if not address.startswith(("http://", "https://")):
        raise BadInput(f"RAY_ADDRESS is {address}, but jobs are given to the cluster's dashboard: set it to http://HEAD:8265")
    return address


def jobs_of(cluster: ClusterConfig, patience_s: float | None = None) -> Jobs:
    """The jobs of the cluster. patience_s: None: that of the section."""
    return Jobs(address_of(cluster), cluster.patience_s if patience_s is None else patience_s)


def check_ray(cluster: ClusterConfig, patience_s: float | None = None) -> None:
    """Checks that a cluster is configured, answers, and runs a supported Ray.

    Raises:
        BadInput: no cluster is configured, or its Ray is too old or too new. NoAnswer: it does not answer.
    """
    version = jobs_of(cluster, patience_s).version()
    with suppress(InvalidVersion):
        if not Version(OLDEST) <= Version(version) < Version(NEWEST):
            raise BadInput(f"the Ray cluster {address_of(cluster)} runs Ray {version}; jobs need at least {OLDEST}, and less than {NEWEST}")


@dataclass(frozen=True)
class RayJob(Handle):
    """A stage as a job. name: its submission id. body: the request that submits it."""

    body: dict[str, Any]


class JobFiles(ABC):
    """What a job reads and leaves: the stage's folder gets job.json (the job and its end), log.txt and, by subclasses, the rest.

    log_every_s: how often the log is fetched, which is whole each time.
    """

    log_every_s = 0.0

    def __init__(self, job: RayJob, cluster: ClusterConfig) -> None:
        self.spec, self.folder, self.body, self.cluster = job.spec, job.folder, job.body, cluster

    @abstractmethod
    def has_arrived(self) -> bool:
        """Whether the result is in the folder, or could be fetched there without asking the cluster."""

    @abstractmethod
    def prepare(self) -> None:
        """Writes what the job reads, before it is submitted, and removes what an earlier attempt left.

        Raises:
            BadInput: the stage cannot be run this way.
        """

    @abstractmethod
    def fetch(self) -> bool:
        """Brings the result of a job that has succeeded into the folder, within `ARRIVAL_S`; False: there is none.

        Raises:
            StageFailed: what the job left is no result.
        """

    def bring(self, log: str | None) -> None:
        """Writes the log (None: not available now) to the folder; subclasses also bring the metrics."""
        if log is not None:
            (self.folder / LOG).write_text(log)

    def missing(self) -> str:
        """What to tell the user of a job that has succeeded without a result here."""
        return f"its result is not under {self.folder}"

    def kind(self, ended: Job, log: str) -> FailureKind:
        """Why a job failed."""
        return failure_kind(ended, log)

    def advice(self, kind: FailureKind) -> str:
        return ADVICE[kind]

    def clear(self) -> None:
        """Removes the log and metrics of an earlier attempt."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in (METRICS, LOG):
            (self.folder / left).unlink(missing_ok=True)

    def end(self, address: str, ended: Job) -> None:
        """Raises StageFailed if the job failed; HeadraceError if its result is missing."""
        name, log = self.body["submission_id"], self.folder / LOG
        if ended.status == "SUCCEEDED":
            self.note(address, status=ended.status)
            if not self.fetch():
                raise HeadraceError(f"the Ray job {name} has succeeded, but {self.missing()}")
            return
        text = log.read_text() if log.exists() else ""
        if not text.strip() or (ended.error_type in _OF_ERROR_TYPE and ended.message not in text):
            text = f"{text.rstrip()}\n{ended.message}".lstrip()
        kind = self.kind(ended, text)
        self.note(address, status=ended.status, kind=kind, message=last_line(ended.message) if ended.message else "")
        tail = "\n".join(text.rstrip().splitlines()[-15:])
        message = f"stage {self.spec.name} failed as Ray job {name} on {address}: {self.advice(kind)}"
        raise StageFailed(f"{message}; the end of {log}:\n{tail}", kind)

    def note(self, address: str, **more: str) -> None:
        """Writes job.json. The body of a job that another call submitted stays, because it may differ."""
        record_path, record = self.folder / "job.json", {"address": address, "job": self.body}
        if (
            more
            and record_path.exists()
            and (before := json.loads(record_path.read_text()))["job"]["submission_id"] == self.body["submission_id"]
        ):
            record = before
        text = json.dumps(record | {name: value for name, value in more.items() if value}, indent=1)
        replace_atomically(record_path, lambda path: path.write_text(text))


class JobBackend(ClusterBackend[RayJob]):
    """Runs stages as jobs on the cluster that `train.cluster` or RAY_ADDRESS names."""

    @abstractmethod
    def describe(self, spec: StageSpec, folder: Path, *, attempt: int = 1) -> dict[str, Any]:
        """The body of the stage's job. attempt: one more than the jobs of the stage that ended without a result."""

    @abstractmethod
    def files(self, job: RayJob) -> JobFiles:
        """The files of a job."""

    def launch(self, spec: StageSpec, folder: Path) -> RayJob | None:
        """As `Backend.launch`, with the first id whose job did not end without a result. If this process is ended meanwhile, the job stops.

        Raises:
            BadInput: the cluster refuses the job, or the stage cannot be run this way. NoAnswer: the cluster has not answered for
                `patience_s`.
        """
        for attempt in itertools.count(1):
            body = self.describe(spec, folder, attempt=attempt)
            stage_job = RayJob(spec, folder, body["submission_id"], body)
            files = self.files(stage_job)
            if attempt == 1 and files.has_arrived():
                return None
            jobs = jobs_of(self.cluster)
            with cancel_on_exit(self, stage_job):
                submitted = jobs.find(stage_job.name)
                if submitted is not None and submitted.is_over:
                    if submitted.status == "SUCCEEDED":
                        files.bring(jobs.log(stage_job.name))
                        if _is_fetched(files):
                            files.note(jobs.address, status=submitted.status)
                            return None
                    continue
                if submitted is None:
                    files.prepare()
                    files.note(jobs.address)
                    jobs.submit(body)
                return stage_job
        raise AssertionError

    def follow(self, handle: RayJob, progress: StepProgress = lambda *_: None) -> None:
        """As `Backend.follow`.

        Raises:
            NoAnswer: the cluster has not answered for `patience_s`. StageFailed: the job failed, or left no usable result.
            HeadraceError: the cluster has forgotten the job, or its result cannot be seen here.
        """
        jobs, files, steps, due = jobs_of(self.cluster), self.files(handle), Steps(handle), 0.0
        while True:
            submitted = jobs.find(handle.name)
            if submitted is None:
                raise HeadraceError(
                    f"the Ray cluster {jobs.address} no longer knows the job {handle.name}, as after a restart of its head; "
                    "the same command submits it again"
                )
            if submitted.is_over or time.monotonic() >= due:
                files.bring(jobs.log(handle.name))
                due = time.monotonic() + files.log_every_s
            progress(*steps.now())
            if submitted.is_over:
                files.end(jobs.address, submitted)
                return
            time.sleep(POLL_S)

    def cancel(self, handle: RayJob) -> None:
        """Waits for the end of the job, unless the cluster does not answer."""
        jobs, end = jobs_of(self.cluster, _STOP_S), time.monotonic() + _STOP_S
        with suppress(NoAnswer):
            jobs.stop(handle.name)
            while (submitted := jobs.find(handle.name)) and not submitted.is_over and time.monotonic() < end:
                time.sleep(0.2)


def _is_fetched(files: JobFiles) -> bool:
    """Whether an ended job has a usable result; if not, another job makes one."""
    try:
        return files.fetch()
    except StageFailed:
        return False


def failure_kind(ended: Job, log: str, start: str | None = None) -> FailureKind:
    """Why a job failed, by its status, exit code and the end of its log.

    start: the text that tells of a missing module if the job did not start; None: the end of the log.
    """
    output = f"{log[-20_000:]}\n{ended.message}"
    if ended.status == "STOPPED":
        return "stopped"
    if "Version mismatch" in output:
        return "version"
    if is_out_of_memory(output):
        return "memory"
    if ended.exit_code in (-9, 137) or KILLED_RANK in output:
        return "killed"
    if ended.exit_code == NO_NODES:
        return "resources"
    if any(words in output for words in _LOST):
        return "lost"
    if ended.exit_code == 127 or "No module named" in (output if start is None else start):
        return "start"
    return _OF_ERROR_TYPE.get(ended.error_type, "stage")
