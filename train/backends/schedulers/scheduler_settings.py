"""Sections `train.cluster.slurm` and `train.cluster.kubernetes`.

One idea: the resources of a stage (nodes, GPUs, CPU cores, environment) are those of `train.cluster`, whatever the scheduler; these
sections hold only what one scheduler needs besides.
Other users of a cluster can read jobs and manifests, so texts that hold a secret are refused.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from storage.outside.known_secrets import holds_secret

OURS: tuple[str, ...] = (
    *("array", "chdir", "cpus-per-task", "dependency", "gpus-per-node", "job-name", "nodes", "ntasks", "ntasks-per-node", "open-mode"),
    *("account", "partition", "time", "output", "error", "export", "wrap", "parsable", "test-only", "wait"),
)
"""Options of sbatch that `options` may not name."""
_TIME = r"^(\d+(:\d\d){0,2}|\d+-\d+(:\d\d){0,2})$"


class SlurmSettings(BaseModel):
    """What the backend `slurm` tells sbatch besides the resources of `train.cluster`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: str | None = Field(None, pattern=r"^[\w.,-]+$", description="Partition of the stage; null: the cluster's default.")
    account: str | None = Field(None, pattern=r"^[\w.-]+$", description="Account that the stage is charged to; null: the user's default.")
    time_limit: str | None = Field(
        None, pattern=_TIME, description="Longest time of a task, as sbatch takes it (90, 12:00:00, 2-00); null: that of the partition."
    )
    attempts: int = Field(
        1,
        ge=1,
        le=100,
        description="Tasks of the stage's array, one after another: where the time limit or a lost node ends one, the next continues from "
        "its last checkpoint.",
    )
    options: tuple[str, ...] = Field((), description="More options of sbatch, such as --mem=64G, --qos=high or --constraint=h100.")
    setup: tuple[str, ...] = Field((), description="Lines of shell that the stage's script runs first, such as `module load cuda`.")

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for option in options:
            if not option.startswith("--"):
                raise ValueError(f"{option!r} is no long option of sbatch: write --NAME=VALUE")
            if (name := option[2:].partition("=")[0]) in OURS:
                raise ValueError(f"--{name} is set from the other keys of train.cluster: leave it out of `options`")
        return options

    @field_validator("options", "setup")
    @classmethod
    def _check_lines(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        for line in lines:
            if "\n" in line:
                raise ValueError("an item is one line: give several as several items")
            if holds_secret(line):
                raise ValueError("a line holds a secret, and a cluster keeps the scripts of its jobs: read it from a file on the node")
        return lines


class KubernetesSettings(BaseModel):
    """What the backend `kuberay` puts into the manifest of a stage besides the resources of `train.cluster`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: str | None = Field(None, pattern=r"^[a-z0-9-]+$", description="Namespace of the stage; null: that of kubectl's context.")
    context: str | None = Field(None, description="Context of kubectl's configuration; null: its current one.")
    claim: str | None = Field(
        None,
        pattern=r"^[a-z0-9.-]+$",
        description="Persistent volume claim with the store's folder; null: no volume (`checkpoints`).",
    )
    mount_path: str | None = Field(None, pattern="^/", description="Path of the claim's volume in the pods; null: the store's folder.")
    memory: str = Field("8Gi", pattern=r"^\d+(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$", description="Memory of each worker, in Kubernetes' units.")
    gpu_resource: str = Field("nvidia.com/gpu", description="Name of the resource that a GPU is.")
    node_selector: dict[str, str] = Field(default_factory=dict, description="Labels that the workers' Kubernetes nodes must have.")
    service_account: str | None = Field(None, description="Service account of the pods; null: the namespace's default.")
    secrets: tuple[str, ...] = Field(
        (), description="Names of Kubernetes secrets whose keys become environment variables of the pods: here secrets may go."
    )
    time_limit_s: int | None = Field(None, ge=1, description="Longest time of the stage in seconds, waiting included; null: no limit.")
