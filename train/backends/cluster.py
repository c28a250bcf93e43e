"""Section `train.cluster`: the cluster, the resources of a stage, and the Ray Job made from them.

One idea: where a stage runs is no part of its spec, so a change here trains no stage again. A job is plain JSON, which `--dry-run` writes
to a file. SFT uses all nodes and GPUs of the section; RL plays and learns in one process and uses at most one GPU. verl and ROLL use all
of them for every stage; their job is one command, which asks Ray for the GPUs itself.
Every user of a cluster can read the environment and command of its jobs, so values that look like secrets are refused.

What it does not do: talk to the cluster (`train/backends/ray_jobs.py`, `train/backends/job_backend.py`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from storage.errors import BadInput
from storage.outside.known_secrets import holds_secret, is_secret_name
from train.backends.schedulers.scheduler_settings import KubernetesSettings, SlurmSettings
from train.child_process import OFFLINE, THREADS
from train.spec import StageSpec

_OURS = {**THREADS, **OFFLINE, "PYTHONSAFEPATH": "1"}
_HUB_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Environment of our own trainer, and of verl and ROLL; `train.cluster.env` adds to it."""
_INSTEAD = "give it to the nodes themselves (a secret of the cluster, a role of its machines), whose environment every job has"


class EngineShape(BaseModel):
    """What verl and ROLL need to know besides nodes and GPUs: lengths of a conversation, and layout of the policy during rollouts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tensor_parallel: int = Field(1, ge=1, description="GPUs of a node that share one copy of the policy during rollouts.")
    prompt_tokens: int = Field(4096, ge=1, description="Longest opening of a conversation in tokens, tools included.")
    response_tokens: int = Field(12288, ge=1, description="Most tokens after the opening: answers and tool results together.")


class ClusterConfig(BaseModel):
    """Cluster of the backends `ray`, `verl`, `roll`, `slurm` and `kuberay`, and the resources of a stage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = Field(None, description="Address of the cluster's dashboard, http://HEAD:8265; null: that of RAY_ADDRESS.")
    nodes: int = Field(1, ge=1, description="Nodes of a stage; RL of the backend ray uses one.")
    gpus_per_node: int = Field(
        0, ge=0, description="GPUs of each node; with several in all, ray starts the stage by `accelerate launch`, and RL uses one of them."
    )
    sharding: Literal["none", "fsdp"] = Field(
        "none",
        description="What each of several GPUs of an SFT stage of ray holds: all weights (none), or a part of them (fsdp: FSDP2).",
    )
    cpus: float = Field(1.0, gt=0, description="CPU cores of each node.")
    resources: dict[str, float] = Field(default_factory=dict, description="Custom Ray resources that each node must provide.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels that the nodes must have, in Ray's syntax.")
    image: str | None = Field(None, description="Container image of the stage, with Headrace in it; null: the nodes' environment.")
    working_dir: str | None = Field(
        None, description="URL of an archive (s3://...zip) that becomes the stage's working directory; null: none."
    )
    pip: tuple[str, ...] = Field((), description="Packages to install for the stage, as pip takes them: names, or wheels by path or URL.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables of the stage. No secrets: the cluster shows them.")
    checkpoints: str | None = Field(
        None,
        description="URL (s3://, gs://, file:// ...) for the files of stages; null: all nodes see the store under its path.",
    )
    engine: EngineShape = Field(default_factory=EngineShape, description="Stages of the backends verl and roll.")
    patience_s: float = Field(120.0, ge=0, description="Longest time without an answer of the cluster before a stage fails, in seconds.")
    slurm: SlurmSettings = Field(default_factory=SlurmSettings, description="What only the backend `slurm` needs.")
    kubernetes: KubernetesSettings = Field(default_factory=KubernetesSettings, description="What only the backend `kuberay` needs.")

    @field_validator("env")
    @classmethod
    def _check_secrets(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if is_secret_name(name) or holds_secret(value):
                raise ValueError(f"{name} looks like a secret, and a cluster shows the environment of its jobs to all; {_INSTEAD}")
        return env

    @field_validator("address", "image", "working_dir", "checkpoints")
    @classmethod
    def _check_login(cls, value: str | None) -> str | None:
        if value is not None and holds_secret(value):
            raise ValueError(f"the URL has a password or a token in it, and a cluster shows its jobs to all; {_INSTEAD}")
        return value

    @field_validator("pip")
    @classmethod
    def _check_packages(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        for each in packages:
            cls._check_login(each)
        return packages

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        if address is not None and not address.startswith(("http://", "https://")):
            raise ValueError("jobs are given to the cluster's dashboard; say http://HEAD:8265")
        return address

    @field_validator("working_dir", "checkpoints")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and "://" not in value:
            raise ValueError("a folder of one machine is not there on another; give a URL (s3://, gs://, file:// on a shared disk ...)")
        return value

    @model_validator(mode="after")
    def _check_combination(self) -> ClusterConfig:
        if self.nodes > 1 and not self.gpus_per_node:
            raise ValueError("several nodes need gpus_per_node: a stage is spread over GPUs")
        if self.sharding != "none" and self.nodes * self.gpus_per_node < 2:
            raise ValueError("sharding divides the weights among several GPUs: raise gpus_per_node or nodes, or set sharding to none")
        if self.sharding != "none" and self.nodes > 1 and self.checkpoints is not None:
            raise ValueError(
                "each node keeps its part of a sharded checkpoint, and node 0 alone sends to `checkpoints`: share the store's folder"
            )
        if self.image is not None and (self.pip or self.working_dir is not None):
            raise ValueError("Ray takes `image` with neither `pip` nor `working_dir`: put into the image what the stage needs")
        return self


def resources_of(cluster: ClusterConfig, spec: StageSpec) -> ClusterConfig:
    """The cluster section with the nodes and GPUs that a stage uses."""
    return (
        cluster
        if spec.rl is None
        else cluster.model_copy(update={"nodes": 1, "gpus_per_node": min(1, cluster.gpus_per_node), "sharding": "none"})
    )


def check_journal(cluster: ClusterConfig, spec: StageSpec) -> None:
    """Raises BadInput if the stage keeps a journal that would not be sent to `checkpoints`: a stage started again would play all anew."""
    if cluster.checkpoints is not None and spec.rl is not None and spec.rl.rollout_workers is not None:
        raise BadInput(
            f"stage {spec.name}: rollout_workers keep a journal beside the model folder: share the store's folder (no "
            "train.cluster.checkpoints), or set rollout_workers to null"
        )


def job(cluster: ClusterConfig, submission_id: str, stage: str, spec: str, *, folder: str | None = None) -> dict[str, Any]:
    """The body of Ray's `POST /api/jobs/` for a stage.

    stage: its name, for display. spec: path of its spec on the node. folder: folder of the stage under `checkpoints`, if that is set;
    `spec` is then among the files fetched from there.
    """
    command = entry_command(cluster, spec)
    if cluster.checkpoints is not None:
        assert folder is not None
        command = [*_module("train.backends.remote_sync"), cluster.checkpoints, folder, *command]
    resources = {"CPU": cluster.cpus, "GPU": float(cluster.gpus_per_node)} | cluster.resources
    environment = _runtime_env(cluster, _OURS)
    body: dict[str, Any] = {"submission_id": submission_id, "metadata": {"headrace_stage": stage}, "runtime_env": environment}
    if cluster.nodes > 1:
        spread = json.dumps({"nodes": cluster.nodes, "take": resources, "labels": cluster.labels}, separators=(",", ":"))
        return body | {"entrypoint": shlex.join([*_module("train.backends.on_nodes"), spread, *command])}
    body |= {"entrypoint": shlex.join(command), "entrypoint_num_cpus": resources.pop("CPU"), "entrypoint_num_gpus": resources.pop("GPU")}
    more = {"entrypoint_resources": resources, "entrypoint_label_selector": cluster.labels}
    return body | {name: value for name, value in more.items() if value}


def engine_job(
    cluster: ClusterConfig, submission_id: str, stage: str, script: str, *, variables: Mapping[str, str], about: Mapping[str, str]
) -> dict[str, Any]:
    """The body of Ray's `POST /api/jobs/` for a stage that verl or ROLL trains.

    The job takes no GPU and no CPU: the engine asks Ray for them, and a driver with GPUs of its own would not see the others.

    script: path of the start script on the nodes. variables: of the engine's environment. about: more metadata.
    """
    body: dict[str, Any] = {
        "submission_id": submission_id,
        "metadata": {"headrace_stage": stage, **about},
        "runtime_env": _runtime_env(cluster, {**_HUB_OFFLINE, **variables}),
        "entrypoint": shlex.join(["bash", script]),
    }
    more = {"entrypoint_resources": cluster.resources, "entrypoint_label_selector": cluster.labels}
    return body | {name: value for name, value in more.items() if value}


def entry_command(cluster: ClusterConfig, spec: str) -> list[str]:
    """The command that trains: `train.run`, or one process per GPU by `accelerate launch`, which on several nodes has the placeholders
    `{rank}`, `{ip}` and `{port}` (see `train/backends/on_nodes.py`)."""
    processes = cluster.nodes * cluster.gpus_per_node
    if processes <= 1:
        return [*_module("train.run"), spec]
    several = {"num_processes": processes, "num_machines": cluster.nodes, "mixed_precision": "no", "dynamo_backend": "no"}
    if cluster.nodes > 1:
        several |= {"machine_rank": "{rank}", "main_process_ip": "{ip}", "main_process_port": "{port}", "rdzv_backend": "static"}
    options = [word for name, value in several.items() for word in (f"--{name}", str(value))]
    how = ["--use_fsdp", "--fsdp_version", "2"] if cluster.sharding == "fsdp" else ["--multi_gpu"]
    return ["accelerate", "launch", *how, *options, "-m", "train.run", spec]


def _module(name: str) -> list[str]:
    return ["python", "-P", "-m", name]


def stage_variables(cluster: ClusterConfig) -> dict[str, str]:
    """Environment variables of a stage."""
    return {**_OURS, **cluster.env}


def _runtime_env(cluster: ClusterConfig, variables: Mapping[str, str]) -> dict[str, Any]:
    given = {"image_uri": cluster.image, "working_dir": cluster.working_dir, "pip": list(cluster.pip)}
    return {"env_vars": {**variables, **cluster.env}} | {name: value for name, value in given.items() if value}
