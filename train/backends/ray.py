"""Runs a training stage as a Ray Job: the same entry and spec as everywhere, on the cluster that `train.cluster` or RAY_ADDRESS names.

One idea: a job's id is made of the stage's id and its spec, so whoever wants the stage finds its job. A launcher that was killed leaves it
running, and the next one follows it on; two never get two. Only a job that has ended without a result is followed by another, under the
next id (`-2`, `-3` ...), and only by the next call.
The store's folder is the same on all nodes, or a stage's files go through a URL (`train/backends/remote_sync.py`). Logs are asked for
whole, and from the start, every `POLL_S` seconds: what a stage prints is short. Five calls of Ray's REST API, and not its own client: that
one has no time-outs, lets RAY_ADDRESS win over what it is told, says every failure as a text, and wants Ray on the machine that runs the
flow.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from storage.errors import BadInput, HeadraceError
from storage.files import file_lock, replace_atomically
from train.backends.cluster import LOGIN, ClusterConfig, job, taken_by
from train.backends.local import Kind, StageFailed, Steps, Told, tells_of_memory
from train.backends.on_nodes import NO_NODES
from train.backends.remote_sync import Mirror, inside
from train.spec import CHECKPOINTS, METRICS, StageSpec

OLDEST, NEWEST = "2.60", "3"
"""Ray's versions that jobs are known to run under, as the extra `ray` has them: from, and below."""
POLL_S = 2.0
_ANSWER_S = 30.0
_ARRIVAL_S = 10.0
"""How long a network file system may take to show what a job has written."""
_STOP_S = 20.0
_LONGEST_WAIT_S = 86_400.0
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")

_ADVICE: dict[Kind, str] = {
    "start": "it did not start: are Headrace and its extra `train` in the image, in `pip`, or on the nodes?",
    "resources": "no node with what `train.cluster` asks for was free in time (`ray status` on the head tells which there are)",
    "memory": "it ran out of memory: a smaller micro_batch_size, or larger nodes or more of them in `train.cluster`",
    "lost": "its node was lost; the same command starts it again",
    "version": "its Python or Ray is not the cluster's: use an image that is made for the cluster",
    "stopped": "somebody stopped it; the same command starts it again",
    "stage": "the end of its log says why",
}
_OF_ERROR_TYPE: dict[str, Kind] = {
    "RUNTIME_ENV_SETUP_FAILURE": "start",
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": "start",
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": "start",
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": "resources",
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": "resources",
    "JOB_SUPERVISOR_ACTOR_DIED": "lost",
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": "lost",
}


class NoAnswer(HeadraceError):
    """The cluster does not answer, or not as one does; what runs there may still run."""


@dataclass(frozen=True)
class Job:
    """What the cluster says of a job."""

    status: str
    message: str
    error_type: str
    exit_code: int | None

    @property
    def is_over(self) -> bool:
        return self.status in _OVER


class Jobs:
    """The jobs of one cluster, by its REST API.

    address: of the dashboard. patience_s: how long it is asked again where it does not answer, has too much to do, or says that something
    broke. The token that Ray's own clients would show goes along.

    Raises:
        BadInput: RAY_AUTH_TOKEN_PATH names no file with a token.
    """

    def __init__(self, address: str, patience_s: float) -> None:
        self.address, self._patience_s = address.rstrip("/"), patience_s
        token = _token()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def version(self) -> str:
        """Of Ray. Raises NoAnswer: what answers there is no Ray."""
        status, said = self._ask("GET", "/api/version")
        if status != 200 or not isinstance(said, dict) or "ray_version" not in said:
            raise NoAnswer(f"{self.address} is no dashboard of a Ray cluster (status {status}); it is at port 8265 of the head as a rule")
        return str(said["ray_version"])

    def find(self, job_id: str) -> Job | None:
        status, said = self._ask("GET", f"/api/jobs/{job_id}")
        if status == 404:
            return None
        if status != 200 or not isinstance(said, dict) or "status" not in said:
            raise NoAnswer(f"{self.address} answers what no Ray cluster does (status {status}): {_last_line(said)}")
        return Job(said["status"], str(said.get("message") or ""), str(said.get("error_type") or ""), said.get("driver_exit_code"))

    def submit(self, body: dict[str, Any]) -> None:
        """Submits a job, or finds that its id is taken, which is as good: somebody was faster, or an answer was lost.

        Raises:
            BadInput: the cluster does not take it.
        """
        status, said = self._ask("POST", "/api/jobs/", body)
        if status != 200 and self.find(body["submission_id"]) is None:
            raise BadInput(f"the Ray cluster {self.address} does not take the job (status {status}): {_last_line(said)}")

    def stop(self, job_id: str) -> None:
        self._ask("POST", f"/api/jobs/{job_id}/stop")

    def log(self, job_id: str) -> str | None:
        """All that the job has printed so far; None where its node cannot say now."""
        with suppress(NoAnswer):
            status, said = self._ask("GET", f"/api/jobs/{job_id}/logs", patience_s=0)
            return str(said["logs"]) if status == 200 and isinstance(said, dict) and "logs" in said else None
        return None

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, patience_s: float | None = None) -> tuple[int, Any]:
        """The status and what was said, as JSON where it is. Raises NoAnswer: there was none in time; a token is wanted."""
        patience_s = self._patience_s if patience_s is None else patience_s
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, self._headers, method=method)
        deadline = time.monotonic() + patience_s
        for attempt in itertools.count():
            try:
                with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
                    return answer.status, _read(answer)
            except urllib.error.HTTPError as error:
                if error.code in (401, 403):
                    wants = "takes another token" if "Authorization" in self._headers else "wants its token"
                    raise NoAnswer(
                        f"the Ray cluster {self.address} {wants}: set RAY_AUTH_TOKEN to what `ray get-auth-token` prints on its head"
                    ) from None
                said = _read(error)
                if error.code < 500 and error.code != 429:
                    return error.code, said
                why = f"status {error.code}: {_last_line(said)}"
            except (OSError, HTTPException, UnicodeError) as error:  # the last: a name that no host can have
                why = str(getattr(error, "reason", error)) or type(error).__name__
            if time.monotonic() >= deadline:
                raise NoAnswer(
                    f"the Ray cluster {self.address} does not answer ({why}; asked for {patience_s:g} s); a job that runs there goes on, "
                    "and the same command finds it again"
                )
            time.sleep(min(2.0**attempt / 4, POLL_S))
        raise AssertionError


def check(cluster: ClusterConfig, *, patience_s: float | None = None) -> None:
    """That a cluster is named, answers, has a version of Ray that is known, and that its `checkpoints` can be written.

    Raises:
        BadInput: none is named, or its Ray is too old or too new; or as `Mirror.check`. NoAnswer: it does not answer.
    """
    found = Jobs(_address(cluster), cluster.patience_s if patience_s is None else patience_s).version()
    with suppress(InvalidVersion):
        if not Version(OLDEST) <= Version(found) < Version(NEWEST):
            raise BadInput(f"the Ray cluster {_address(cluster)} runs Ray {found}; jobs need at least {OLDEST}, and less than {NEWEST}")
    if cluster.checkpoints is not None:
        Mirror(cluster.checkpoints).check()


def launch(spec: StageSpec, folder: Path, cluster: ClusterConfig, progress: Told = lambda *_: None) -> dict[str, Any]:
    """Runs a stage on a cluster to its end and returns its `result.json`; a stage whose result is there is not run again.

    folder: receives spec.json, job.json (what was submitted, and how it ended), log.txt, metrics.jsonl and result.json. progress: is told
    how far it is. Ctrl-C, and whatever else ends the flow that it can still act on, stops the job; a killed flow
    leaves it running.

    Raises:
        BadInput: the cluster does not take the job. NoAnswer: the cluster has not answered for `patience_s`. StageFailed: the job did.
        HeadraceError: the job was forgotten by the cluster, or its result cannot be seen here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f".{folder.name}.lock"), wait_s=_LONGEST_WAIT_S):
        stage = _Stage(spec, folder, cluster, progress)
        if not stage.has_arrived():
            stage.run()
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    answer: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return answer


def described(spec: StageSpec, folder: Path, cluster: ClusterConfig, *, attempt: int = 1) -> tuple[str, dict[str, Any]]:
    """The spec as the job reads it, and the job as it is submitted."""
    root, url = spec.store, cluster.checkpoints
    if url is not None:
        moved = {name: inside(root, getattr(spec, name)) for name in ("store", "model_in", "model_out")}
        spec = spec.model_copy(update=moved)
    told = spec.model_dump_json(indent=1)
    made_of = hashlib.sha256(f"{url or ''}\n{told}".encode()).hexdigest()[:8]
    name = f"headrace-{folder.name}-{made_of}{f'-{attempt}' if attempt > 1 else ''}"
    path = str(folder / "spec.json") if url is None else "spec.json"
    return told, job(taken_by(cluster, spec), name, spec.name, path, folder=None if url is None else str(inside(root, folder)))


class _Stage:
    """One stage on its way through a cluster."""

    def __init__(self, spec: StageSpec, folder: Path, cluster: ClusterConfig, progress: Told) -> None:
        self._spec, self._folder, self._cluster, self._progress = spec, folder, cluster, progress
        self._steps = Steps(folder / METRICS, spec)
        self._mirror = None if cluster.checkpoints is None else Mirror(cluster.checkpoints)
        self._place = str(inside(spec.store, folder)) if self._mirror else ""

    def has_arrived(self, within_s: float = 0.0) -> bool:
        """Whether the result is in the folder, where it is put first if it lies under the URL."""
        result, end = self._folder / "result.json", time.monotonic() + within_s
        while not result.exists():
            if self._mirror and self._mirror.has(f"{self._place}/result.json"):
                self._mirror.fetch_result(self._place, self._folder)
            elif time.monotonic() >= end:
                return False
            else:
                time.sleep(min(POLL_S, 0.5))
        return True

    def run(self) -> None:
        """From the first id whose job has not ended without a result, to the end of that job."""
        jobs = Jobs(_address(self._cluster), self._cluster.patience_s)
        for attempt in itertools.count(1):
            told, body = described(self._spec, self._folder, self._cluster, attempt=attempt)
            with _stopped_with_us(jobs, body["submission_id"]):
                known = jobs.find(body["submission_id"])
                if known is not None and known.is_over:
                    if known.status == "SUCCEEDED" and self.has_arrived(_ARRIVAL_S):
                        return
                    continue
                if known is None:
                    self._note(body)
                    self._prepare(told)
                    jobs.submit(body)
                self._end(jobs, body, self._follow(jobs, body["submission_id"]))
                return

    def _prepare(self, told: str) -> None:
        """Puts the spec, and with a URL all that the stage reads, where the job finds it."""
        for left in (METRICS, "log.txt"):
            (self._folder / left).unlink(missing_ok=True)
        replace_atomically(self._folder / "spec.json", lambda path: path.write_text(told))
        if self._mirror:
            self._mirror.send_inputs(self._spec, self._place, self._folder / "spec.json")

    def _follow(self, jobs: Jobs, job_id: str) -> Job:
        """Until the job is over; its log and metrics are brought into the folder meanwhile."""
        while True:
            found = jobs.find(job_id)
            if found is None:
                raise HeadraceError(
                    f"the Ray cluster {jobs.address} no longer knows the job {job_id}, as after a restart of its head; "
                    "the same command submits it again"
                )
            log = jobs.log(job_id)
            if log is not None:
                (self._folder / "log.txt").write_text(log)
            if self._mirror:
                with suppress(HeadraceError):  # of now; the next look shows more
                    self._mirror.fetch_metrics(self._place, self._folder)
            self._progress(*self._steps.now())
            if found.is_over:
                return found
            time.sleep(POLL_S)

    def _end(self, jobs: Jobs, body: dict[str, Any], ended: Job) -> None:
        """Raises StageFailed where the job failed; HeadraceError where its result is not here."""
        name, log = body["submission_id"], self._folder / "log.txt"
        if ended.status == "SUCCEEDED":
            self._note(body, status=ended.status)
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
        self._note(body, status=ended.status, kind=kind, message=_last_line(ended.message) if ended.message else "")
        tail = "\n".join(text.rstrip().splitlines()[-15:])
        told = f"stage {self._spec.name} failed as Ray job {name} on {jobs.address}: {_ADVICE[kind]}"
        raise StageFailed(f"{told}; the end of {log}:\n{tail}", kind)

    def _note(self, body: dict[str, Any], **more: str) -> None:
        """Of a job that another call has submitted, what that one noted stays: it may have asked for something else."""
        noted, told = self._folder / "job.json", {"address": _address(self._cluster), "job": body}
        if more and noted.exists() and (before := json.loads(noted.read_text()))["job"]["submission_id"] == body["submission_id"]:
            told = before
        text = json.dumps(told | {name: value for name, value in more.items() if value}, indent=1)
        replace_atomically(noted, lambda path: path.write_text(text))


@contextmanager
def _stopped_with_us(jobs: Jobs, job_id: str) -> Iterator[None]:
    """Stops the job where this process is asked to end; errors of ours and of the cluster leave it alone."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        hasty, end = Jobs(jobs.address, _STOP_S), time.monotonic() + _STOP_S
        with suppress(NoAnswer):
            hasty.stop(job_id)
            while (found := hasty.find(job_id)) and not found.is_over and time.monotonic() < end:
                time.sleep(0.2)
        raise


def _address(cluster: ClusterConfig) -> str:
    address = cluster.address or os.environ.get("RAY_ADDRESS", "")
    if not address:
        raise BadInput("train.cluster names no Ray cluster: set `address`, or RAY_ADDRESS, to its dashboard (http://HEAD:8265)")
    if LOGIN.search(address):
        raise BadInput("RAY_ADDRESS has a password in it, which a dashboard is not given that way: set RAY_AUTH_TOKEN to its token")
    if not address.startswith(("http://", "https://")):
        raise BadInput(f"RAY_ADDRESS is {address}, but jobs are given to the cluster's dashboard: set it to http://HEAD:8265")
    return address


def _token() -> str | None:
    """Of the cluster, from where Ray's own clients take it, in their order (Ray's token authentication, "token sources")."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    try:
        token = Path(named or Path.home() / ".ray" / "auth_token").read_text().strip()
    except (OSError, UnicodeError):
        token = ""
    if named and not token:
        raise BadInput(f"RAY_AUTH_TOKEN_PATH is {named}, which holds no token: name the file of the Ray cluster's, or unset it")
    return token or None


def _kind(ended: Job, log: str) -> Kind:
    said = f"{log[-20_000:]}\n{ended.message}"
    if ended.status == "STOPPED":
        return "stopped"
    if "Version mismatch" in said:
        return "version"
    if ended.exit_code in (-9, 137) or tells_of_memory(said):
        return "memory"
    if ended.exit_code == NO_NODES:
        return "resources"
    if "ActorDiedError" in said:
        return "lost"
    if ended.exit_code == 127 or "No module named" in said:
        return "start"
    return _OF_ERROR_TYPE.get(ended.error_type, "stage")


def _read(answer: Any) -> Any:
    """What was said, as JSON where it is; of an error's page, what came before the connection broke: nothing."""
    try:
        said: bytes = answer.read()
    except (OSError, HTTPException):
        if isinstance(answer, urllib.error.HTTPError):
            return ""
        raise
    try:
        return json.loads(said)
    except ValueError:
        return said.decode(errors="replace")


def _last_line(said: Any) -> str:
    """Of a traceback, what it comes to."""
    return next((line.strip() for line in reversed(str(said).splitlines()) if line.strip()), "nothing was said")[:300]
