"""Runs a training stage of our own trainer as a Ray Job on the cluster that `train.cluster` or RAY_ADDRESS names.

One idea: the job runs `train.run` with the stage's spec, on the nodes and GPUs of the section; how jobs are submitted and found again is
`train/backends/job_backend.py`. The store's folder has the same path on all nodes, or a stage's files go through a URL
(`train/backends/remote_sync.py`).

What it does not do: build the job (`train/backends/cluster.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train.backends import job_backend
from train.backends.base import Need
from train.backends.cluster import ClusterConfig, check_journal, job, resources_of
from train.backends.job_backend import NEWEST, OLDEST, JobBackend, JobFiles, RayJob, check_ray
from train.backends.remote_sync import RemoteStore, StageFiles, inside
from train.spec import StageSpec


def check(cluster: ClusterConfig, *, patience_s: float | None = None) -> None:
    """Checks that a cluster is configured, answers, runs a supported Ray, and that its `checkpoints` can be written.

    Raises:
        BadInput: no cluster is configured, or its Ray is too old or too new; or as `RemoteStore.check`. NoAnswer: it does not answer.
    """
    check_ray(cluster, patience_s)
    if cluster.checkpoints is not None:
        RemoteStore(cluster.checkpoints).check()


class RayBackend(JobBackend):
    """Runs stages with our own trainer. A stage's folder gets spec.json, job.json (the job and its end), log.txt, metrics.jsonl and
    result.json."""

    def describe(self, spec: StageSpec, folder: Path, *, attempt: int = 1) -> dict[str, Any]:
        return describe_job(spec, folder, self.cluster, attempt=attempt)[1]

    def files(self, job: RayJob) -> JobFiles:
        return _RayFiles(job, self.cluster)

    def needs(self, spec: StageSpec) -> Sequence[Need]:
        requirement = f"a Ray cluster (version {OLDEST} up to {NEWEST}) whose dashboard answers"
        needs = [Need("cluster", requirement, lambda patience_s: check(self.cluster, patience_s=patience_s))]
        if self.cluster.checkpoints is not None and spec.rl is not None and spec.rl.rollout_workers is not None:
            needs.append(Need("journal", f"a store's folder that {spec.name}'s nodes share", lambda _: check_journal(self.cluster, spec)))
        resources = resources_of(self.cluster, spec)
        if resources.gpus_per_node:
            needs.append(Need("GPUs", f"{resources.nodes} x {resources.gpus_per_node} GPUs, free when a stage of {spec.algorithm} starts"))
        if spec.rl is not None and spec.rl.rollouts == "vllm":
            needs.append(Need("vLLM", "vLLM in the Python of the node that runs RL (rollouts: vllm)"))
        return needs

    def render(self, spec: StageSpec, folder: Path) -> Mapping[str, str]:
        text, body = describe_job(spec, folder, self.cluster)
        return {"spec.json": text, "job.json": json.dumps(body, indent=1)}


def describe_job(spec: StageSpec, folder: Path, cluster: ClusterConfig, *, attempt: int = 1) -> tuple[str, dict[str, Any]]:
    """The spec file's text and the body of the job.

    Raises:
        BadInput: as `check_journal`.
    """
    check_journal(cluster, spec)
    root, url = spec.store, cluster.checkpoints
    if url is not None:
        moved = {name: inside(root, getattr(spec, name)) for name in ("store", "model_in", "model_out")}
        spec = spec.model_copy(update=moved)
    spec_json = spec.model_dump_json(indent=1)
    made_of = hashlib.sha256(f"{url or ''}\n{spec_json}".encode()).hexdigest()[:8]
    name = f"headrace-{folder.name}-{made_of}{f'-{attempt}' if attempt > 1 else ''}"
    path = str(folder / "spec.json") if url is None else "spec.json"
    return spec_json, job(resources_of(cluster, spec), name, spec.name, path, folder=None if url is None else str(inside(root, folder)))


class _RayFiles(JobFiles):
    """Files of a stage, in its folder and under the cluster's URL."""

    def __init__(self, job: RayJob, cluster: ClusterConfig) -> None:
        super().__init__(job, cluster)
        self._shared = StageFiles(job.spec, job.folder, cluster.checkpoints)

    def has_arrived(self) -> bool:
        return self._shared.has_arrived(0.0)

    def fetch(self) -> bool:
        return self._shared.has_arrived(job_backend.ARRIVAL_S)

    def prepare(self) -> None:
        """Also writes the spec and, with a URL, sends what the stage reads."""
        self.clear()
        self._shared.send_inputs(describe_job(self.spec, self.folder, self.cluster)[0])

    def bring(self, log: str | None) -> None:
        super().bring(log)
        self._shared.fetch_metrics()

    def missing(self) -> str:
        where = self.cluster.checkpoints or self.folder
        return f"its result is not under {where}: nodes that do not see the store under the same path need `train.cluster.checkpoints`"
