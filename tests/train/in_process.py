"""Stages in the test's own process: they are spared the seconds that a process of their own takes to import its trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from train.run import run
from train.spec import StageSpec


def run_here(_: object, spec: StageSpec, folder: Path) -> dict[str, Any]:
    """In place of `train.backends.base.run_stage`. What a stage sets in torch is set back: deterministic algorithms, one thread."""
    threads = torch.get_num_threads()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(spec)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result
