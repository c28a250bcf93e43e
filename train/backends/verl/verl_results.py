"""What verl 0.9.1 leaves of a stage: checkpoints with a Hugging Face folder, and a JSONL of metrics.

One idea: `latest_checkpointed_iteration.txt` is written after a checkpoint, so a later folder than it names is not whole. A further attempt
goes on from there, and its file of metrics begins there, so every attempt has a file of its own.

Source: verl's `trainer/ppo/v1/trainer_base.py`, `trainer/sft_trainer_ray.py`, `utils/checkpoint/`, `utils/tracking.py`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from storage.files import replace_atomically
from train.backends.engines.engine_results import Engine, Row, Saved, translate_metrics
from train.backends.rollout_lines import json_lines
from train.backends.verl.verl_overrides import VERSION
from train.spec import StageSpec

_CHECKPOINTS, _LATEST = "checkpoints", "latest_checkpointed_iteration.txt"
_METRICS = "verl-metrics-{}.jsonl"
_RL = {
    "critic/score/mean": "reward",
    "actor/pg_loss": "loss",
    "actor/entropy": "entropy",
    "actor/lr": "learning_rate",
    "actor/pg_clipfrac": "clipped_share",
    "actor/ppo_kl": "sampled_kl",
    "actor/kl_loss": "kl",
    "num_turns/mean": "turns",
}
_SFT = {"train/loss": "loss", "train/lr": "learning_rate"}


def _check(spec: StageSpec) -> None:
    if spec.settings.lora is not None:
        raise BadInput(
            f"{spec.algorithm}.lora: verl saves adapters beside the weights and does not merge them, so stage {spec.name} would have no "
            "policy: set it to null, or train it with the backend local or ray"
        )


def _variables(folder: Path) -> Mapping[str, str]:
    """verl empties the file that it begins, so each attempt gets a new one."""
    return {"VERL_FILE_LOGGER_PATH": str(folder / _METRICS.format(max(map(_number, _metrics_stems(folder)), default=0) + 1))}


def _metrics_stems(folder: Path) -> list[str]:
    return sorted((path.stem for path in folder.glob(_METRICS.format("*"))), key=_number)


def _metrics(folder: Path, log: str) -> list[Row]:
    """Rows of all attempts; of a step that two have made, the later one's."""
    rows: dict[int, dict[str, Any]] = {}
    for stem in _metrics_stems(folder):
        for line in json_lines(folder / f"{stem}.jsonl"):
            if isinstance(line.get("step"), int) and isinstance(line.get("data"), dict):
                rows.setdefault(line["step"], {}).update(line["data"])
    is_sft = any("train/loss" in row for row in rows.values())
    return translate_metrics(rows, _SFT if is_sft else _RL, "loss" if is_sft else "reward")


def _saved(folder: Path) -> list[Saved]:
    checkpoints = folder / _CHECKPOINTS
    try:
        latest = int((checkpoints / _LATEST).read_text())
    except (FileNotFoundError, ValueError):
        return []
    found = []
    for path in checkpoints.glob("global_step_*"):
        inner = path / "actor" if (path / "actor").is_dir() else path
        if _number(path.name) <= latest:
            found.append(Saved(_number(path.name), inner / "huggingface"))
    return sorted(found, key=lambda saved: -saved.step)


def _drop(folder: Path, saved: Saved) -> None:
    checkpoints = folder / _CHECKPOINTS
    before = [one.step for one in _saved(folder) if one.step < saved.step]
    if before:
        replace_atomically(checkpoints / _LATEST, lambda path: path.write_text(str(before[0])))
    else:
        (checkpoints / _LATEST).unlink(missing_ok=True)
    shutil.rmtree(checkpoints / f"global_step_{saved.step}")


def _number(name: str) -> int:
    """The number at the end of a name."""
    found = re.search(r"[0-9]+\Z", name)
    return int(found[0]) if found else 0


VERL = Engine(
    name="verl",
    title="verl",
    version=VERSION,
    version_command="python3 -c 'from importlib.metadata import version; print(version(\"verl\"))'",
    is_prefix=False,
    resumes=True,
    removed_at_end=(_CHECKPOINTS,),
    failure_signs={"is less than total desired GPUs": "resources"},
    check=_check,
    variables=_variables,
    metrics=_metrics,
    list_saved=_saved,
    remove_saved=_drop,
)
