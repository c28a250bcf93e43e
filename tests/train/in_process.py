"""Runs stages in the test's own process, which saves the import of the trainer in a new process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from train.run import run
from train.spec import StageSpec


def run_here(_: object, spec: StageSpec, folder: Path) -> dict[str, Any]:
    """Replaces `train.backends.base.run_stage`. Afterwards restores torch's number of threads and switches deterministic algorithms off."""
    threads = torch.get_num_threads()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(spec)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result
