"""The backends by their names in `train.backend` and in a stage's `backend`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from train.backends.base import Backend
from train.backends.engines.engine_stage import RollBackend, VerlBackend
from train.backends.local import LocalBackend
from train.backends.ray import RayBackend
from train.backends.schedulers.kuberay import KubeRayBackend
from train.backends.schedulers.slurm import SlurmBackend

BACKENDS: dict[str, type[Backend[Any]]] = {
    "local": LocalBackend,
    "ray": RayBackend,
    "verl": VerlBackend,
    "roll": RollBackend,
    "slurm": SlurmBackend,
    "kuberay": KubeRayBackend,
}


def _check_name(name: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"there is no backend of this name; there are {', '.join(BACKENDS)}")
    return name


BackendName = Annotated[str, AfterValidator(_check_name)]
