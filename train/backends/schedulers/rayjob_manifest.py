"""The RayJob manifest of a stage, for the KubeRay operator.

One idea: a stage on Kubernetes is the Ray Job of the backend `ray` (same id, entry point and environment) and a Ray cluster of its own,
which KubeRay makes for it and removes after it. The head takes no work; each worker is a node of the stage. The stage's files are on the
volume of `kubernetes.claim`, mounted at the store's path, or go through the URL `checkpoints`.
Every user with read access to the namespace can read the manifest, so it holds no secret: pods get them from Kubernetes secrets
(`kubernetes.secrets`).

Source: KubeRay 1.7, ray.io/v1 RayJob (CRD ray.io_rayjobs.yaml); a name has at most 47 characters.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from train.backends.cluster import ClusterConfig, resources_of
from train.backends.ray import describe_job
from train.spec import StageSpec

HEAD_MEMORY = "4Gi"
_KEEP_S = 60
"""How long the Ray cluster stays after the stage, so that its log can be read."""
_RAYS = ("resources", "labels", "working_dir", "pip")


def check_section(cluster: ClusterConfig) -> None:
    """Raises BadInput if the section cannot be a manifest."""
    for key in _RAYS:
        if getattr(cluster, key):
            raise BadInput(f"train.cluster.{key} is for a Ray cluster that stands, and the backend kuberay makes one: remove it")
    if cluster.image is None:
        raise BadInput("train.cluster.image is not set: the backend kuberay needs an image with Headrace and Ray (docker/train.Dockerfile)")
    if (cluster.kubernetes.claim is None) == (cluster.checkpoints is None):
        raise BadInput(
            "the pods need the stage's files one way: set train.cluster.kubernetes.claim (a volume with the store), or "
            "train.cluster.checkpoints (a URL)"
        )


def manifest(spec: StageSpec, folder: Path, cluster: ClusterConfig, *, attempt: int = 1) -> tuple[str, dict[str, Any]]:
    """The spec file's text, and the RayJob as an object.

    Raises:
        BadInput: as `check_section`.
    """
    check_section(cluster)
    text, job = describe_job(spec, folder, cluster.model_copy(update={"image": None}), attempt=attempt)
    resources, kubernetes = resources_of(cluster, spec), cluster.kubernetes
    labels = {"app.kubernetes.io/managed-by": "headrace", "headrace/stage": folder.name}
    head = _pod(cluster, spec, labels, {"cpu": "1", "memory": HEAD_MEMORY}, selector={})
    gpus = {kubernetes.gpu_resource: str(resources.gpus_per_node)} if resources.gpus_per_node else {}
    limits = {"cpu": str(math.ceil(resources.cpus)), "memory": kubernetes.memory} | gpus
    worker = _pod(cluster, spec, labels, limits, selector=kubernetes.node_selector)
    body: dict[str, Any] = {
        "entrypoint": job["entrypoint"],
        "jobId": job["submission_id"],
        "metadata": job["metadata"],
        "runtimeEnvYAML": json.dumps(job["runtime_env"], indent=1),
        "submissionMode": "K8sJobMode",
        "backoffLimit": 0,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": _KEEP_S,
        "rayClusterSpec": {
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"}, "template": head},
            "workerGroupSpecs": [
                {
                    "groupName": "stage",
                    "replicas": resources.nodes,
                    "minReplicas": resources.nodes,
                    "maxReplicas": resources.nodes,
                    "rayStartParams": {},
                    "template": worker,
                }
            ],
        },
    }
    for key, ours in (("entrypointNumCpus", "entrypoint_num_cpus"), ("entrypointNumGpus", "entrypoint_num_gpus")):
        if job.get(ours):
            body[key] = job[ours]
    if kubernetes.time_limit_s is not None:
        body["activeDeadlineSeconds"] = kubernetes.time_limit_s
    about: dict[str, Any] = {"name": job["submission_id"], "labels": labels}
    if kubernetes.namespace is not None:
        about["namespace"] = kubernetes.namespace
    return text, {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": about, "spec": body}


def _pod(
    cluster: ClusterConfig, spec: StageSpec, labels: dict[str, str], limits: dict[str, str], *, selector: dict[str, str]
) -> dict[str, Any]:
    """Template of a pod with one container. limits: its resources, of which it also gets as much at least."""
    kubernetes = cluster.kubernetes
    container: dict[str, Any] = {"name": "ray", "image": cluster.image, "resources": {"limits": limits, "requests": limits}}
    pod: dict[str, Any] = {"containers": [container]}
    if kubernetes.secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in kubernetes.secrets]
    if kubernetes.claim is not None:
        path = kubernetes.mount_path or str(spec.store.absolute())
        container["volumeMounts"] = [{"name": "store", "mountPath": path}]
        pod["volumes"] = [{"name": "store", "persistentVolumeClaim": {"claimName": kubernetes.claim}}]
    if kubernetes.service_account is not None:
        pod["serviceAccountName"] = kubernetes.service_account
    if selector:
        pod["nodeSelector"] = selector
    return {"metadata": {"labels": labels}, "spec": pod}
