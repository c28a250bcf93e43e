"""Client for RayJobs and their pods, by the command kubectl.

One idea: kubectl has the user's clusters, logins and contexts, so this process needs none of them. `create` refuses a name that exists, so
of two launchers one creates the job and both follow it; `create --dry-run=server` checks a manifest against the cluster's own schema,
rights and quotas.

Source: KubeRay 1.7, RayJobStatus of ray.io/v1. Tried against a scripted kubectl, not against a cluster.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any

from storage.errors import BadInput, HeadraceError
from train.backends.cluster import ClusterConfig
from train.backends.schedulers.rayjob_manifest import check_section
from train.backends.schedulers.scheduler_commands import POLL_S, Answer, Tools

_DELETE_S = 30
"""How long the end of a job's pods is waited for, in seconds."""


@dataclass(frozen=True)
class RayJobStatus:
    """What KubeRay says of a job. deployment: state of its Ray cluster; job: that of the Ray Job; cluster: name of the Ray cluster."""

    deployment: str
    job: str
    reason: str
    message: str
    cluster: str
    is_being_deleted: bool

    @property
    def is_over(self) -> bool:
        return self.deployment in ("Complete", "Failed", "ValidationFailed") or self.is_being_deleted

    @property
    def has_succeeded(self) -> bool:
        return self.deployment == "Complete" and self.job == "SUCCEEDED"


class Kubectl:
    """RayJobs of the namespace that `train.cluster.kubernetes` names, by kubectl.

    Raises, all methods:
        BadInput: kubectl is not installed. OutOfReach: the cluster has not answered for the patience.
    """

    def __init__(self, cluster: ClusterConfig, patience_s: float | None = None) -> None:
        check_section(cluster)
        where, kubernetes = "where kubectl is, or choose another train.backend", cluster.kubernetes
        self._tools = Tools("Kubernetes", where, cluster.patience_s if patience_s is None else patience_s)
        self._options = [f"--context={kubernetes.context}"] if kubernetes.context else []
        self._options += [f"--namespace={kubernetes.namespace}"] if kubernetes.namespace else []

    def find(self, name: str) -> RayJobStatus | None:
        answer = self._call("get", "rayjob.ray.io", name, "--output=json")
        if answer.code:
            if "NotFound" in answer.error and "the server doesn't have" not in answer.error:
                return None
            raise BadInput(_refusal(answer))
        found: dict[str, Any] = json.loads(answer.output)
        status = found.get("status") or {}

        def text(key: str) -> str:
            return str(status.get(key) or "")

        return RayJobStatus(
            deployment=text("jobDeploymentStatus"),
            job=text("jobStatus"),
            reason=text("reason"),
            message=text("message"),
            cluster=text("rayClusterName"),
            is_being_deleted="deletionTimestamp" in found["metadata"],
        )

    def create(self, job: dict[str, Any], *options: str) -> None:
        """Creates a RayJob; does nothing if its name exists (another process was faster, or an answer was lost).

        Raises:
            BadInput: Kubernetes refuses it.
        """
        answer = self._call("create", "--filename=-", *options, given=json.dumps(job))
        if answer.code and "AlreadyExists" not in answer.error:
            raise BadInput(_refusal(answer))

    def delete(self, name: str) -> None:
        """Deletes a job and waits for the end of its pods."""
        self._call("delete", "rayjob.ray.io", name, "--ignore-not-found", "--cascade=foreground", f"--timeout={_DELETE_S}s", patience_s=0)

    def wait_for_deletion(self, name: str) -> RayJobStatus | None:
        """Waits while a job is being deleted: its pods may still write. Returns what is there then; None: no job of this name.

        Raises:
            HeadraceError: it is still being deleted after the time that a deletion may take.
        """
        end = time.monotonic() + _DELETE_S
        while (status := self.find(name)) is not None and status.is_being_deleted:
            if time.monotonic() >= end:
                raise HeadraceError(f"the RayJob {name} is still being deleted; call the same command again")
            time.sleep(min(POLL_S, 0.5))
        return status

    def log(self, name: str) -> str | None:
        """The stage's output so far, from the pod that submitted it; None if there is none yet."""
        answer = self._tools.try_once("kubectl", *self._options, "logs", f"job/{name}", "--tail=-1")
        return None if answer.code else answer.output

    def why_pods_wait(self, cluster: str) -> str:
        """What the scheduler or the node says of the first pod that waits, in brackets; empty if it says nothing."""
        for pod in self._pods(cluster):
            for condition in pod.get("status", {}).get("conditions") or ():
                if condition.get("reason") == "Unschedulable":
                    return f" ({condition.get('message', '')[:200]})"
            for state in _container_states(pod):
                if reason := (state.get("waiting") or {}).get("reason"):
                    return f" ({reason})"
        return ""

    def is_out_of_memory(self, cluster: str) -> bool:
        """Whether the kernel killed a container of the job for its memory limit."""
        states = [state for pod in self._pods(cluster) for state in _container_states(pod)]
        return any((state.get("terminated") or {}).get("reason") == "OOMKilled" for state in states)

    def _pods(self, cluster: str) -> list[dict[str, Any]]:
        if not cluster:
            return []
        answer = self._tools.try_once("kubectl", *self._options, "get", "pods", f"--selector=ray.io/cluster={cluster}", "--output=json")
        pods: list[dict[str, Any]] = [] if answer.code else json.loads(answer.output)["items"]
        return pods

    def _call(self, *words: str, given: str = "", patience_s: float | None = None) -> Answer:
        return self._tools.call("kubectl", *self._options, *words, given=given, patience_s=patience_s)


def _container_states(pod: dict[str, Any]) -> list[dict[str, Any]]:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return [status.get(key) or {} for status in statuses for key in ("state", "lastState")]


def _refusal(answer: Answer) -> str:
    """In one line: why Kubernetes refuses, and what to do."""
    if re.search(r"no matches for kind|the server doesn't have a resource type|could not find the requested resource", answer.error):
        return "this Kubernetes cluster has no RayJobs: install the KubeRay operator, or choose another train.backend"
    if "unauthorized" in answer.error.casefold():
        return f"Kubernetes does not know you any more ({answer.reason}): log in again, as your cluster's kubeconfig has it"
    if "forbidden" in answer.error.casefold():
        return f"Kubernetes forbids it ({answer.reason}): a role must allow to create, get and delete rayjobs, and to get pods and pods/log"
    return f"Kubernetes does not take the stage ({answer.reason}): see train.cluster.kubernetes"
