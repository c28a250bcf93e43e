"""What verl and ROLL leave of a stage, in one form: saved policies and metrics.

One idea: an engine is described by one `Engine`; the functions here turn what it wrote into what the cascade reads. A saved policy becomes
the stage's only if its folder is whole and has the tensors of the policy that the stage began with.

What it does not do: run the stage (`train/backends/engines/engine_stage.py`), or know the engines' own files
(`train/backends/verl/verl_results.py`, `train/backends/roll/roll_results.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from synth.engines.local.model_folder import check_folder
from train.backends.base import FailureKind
from train.backends.render_stage import RenderEngine
from train.models.weight_files import check_weights, shapes_of
from train.spec import StageSpec

Row = dict[str, float]
_TIED = "lm_head.weight"
"""Left out by a model whose output layer is its embedding."""


@dataclass(frozen=True)
class Saved:
    """A policy that an engine saved. step: number of finished steps. folder: in Hugging Face format."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Engine:
    """How one engine is started and what it leaves. A `folder` is that of the engine's files in the stage's folder.

    version: that stages are rendered for. version_command: prints the installed one. is_prefix: whether `version` is only its beginning.
    resumes: whether a further attempt goes on from the last checkpoint, in the same folder.
    removed_at_end: folders and files that are removed when the stage is done.
    failure_signs: text in the log of a failed job -> kind of the failure.
    check: raises BadInput for a stage that the engine cannot bring to a saved policy.
    variables: (folder) -> environment. metrics: (folder, log) -> rows by step.
    list_saved: newest first.
    remove_saved: removes a saved policy that is not whole, so that the engine does not go on from it.
    """

    name: RenderEngine
    title: str
    version: str
    version_command: str
    is_prefix: bool
    resumes: bool
    removed_at_end: Sequence[str]
    failure_signs: Mapping[str, FailureKind]
    check: Callable[[StageSpec], None]
    variables: Callable[[Path], Mapping[str, str]]
    metrics: Callable[[Path, str], list[Row]]
    list_saved: Callable[[Path], list[Saved]]
    remove_saved: Callable[[Path, Saved], None]


def check_policy(folder: Path, model_in: Path) -> None:
    """Checks that a saved policy is whole, by its files and headers.

    Raises:
        BadInput: a file is missing or cut off, or the tensors are not those of the policy that the stage began with.
    """
    check_folder(folder)
    check_weights(folder)
    if not any(model_in.glob("*.safetensors")):
        return
    found, expected = shapes_of(folder), shapes_of(model_in)
    for name, shape in expected.items():
        if found.get(name, shape if name == _TIED else None) != shape:
            raise BadInput(f"{folder} has {found.get(name, 'no tensor')} as {name}, and the policy before it {shape}")


def translate_metrics(rows: Mapping[int, Mapping[str, Any]], names: Mapping[str, str], required: str) -> list[Row]:
    """An engine's metrics as rows of `metrics.jsonl`, in order of steps.

    rows: step, from 1 -> the engine's metrics. names: the engine's name -> ours.
    required: our metric without which a step is not finished.
    """
    found: list[Row] = []
    for step in sorted(rows):
        row = {own: float(rows[step][name]) for name, own in names.items() if _is_number(rows[step].get(name))}
        if required in row:
            found.append({"step": float(step), **row})
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
