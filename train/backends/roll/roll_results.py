"""What ROLL leaves of a stage: checkpoints that are Hugging Face folders, and metrics in its state and its log.

One idea: ROLL counts steps from 0, so `checkpoint-N` is the policy after N + 1 steps. A worker writes it to `output/WORKER/checkpoint-N`
and moves it to `checkpoints/TIME/checkpoint-N`; a move that fails is only logged, so both are looked at.

Source: alibaba/ROLL at 8eb27cc, `roll/pipeline/base_pipeline.py`, `roll/distributed/strategy/fsdp2_strategy.py`, `roll/utils/`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from train.backends.engines.engine_results import Engine, Row, Saved, translate_metrics
from train.backends.roll.roll_pipeline import CHECKPOINTS, COMMIT, ENVIRONMENT, OUTPUT
from train.spec import StageSpec

_STATE = "pipeline/worker_state_pipeline.json"
_LOGGED = "metrics_tag: "
_NAMES = {
    "critic/score/mean": "reward",
    "actor/total_loss": "loss",
    "critic/entropy/mean": "entropy",
    "actor/lr": "learning_rate",
    "actor/ratio_mean": "mean_ratio",
    "actor/clipfrac": "clipped_share",
    "actor/policykl": "sampled_kl",
    f"env/{ENVIRONMENT}/num_actions": "turns",
}


def _check(spec: StageSpec) -> None:
    if spec.rl is None:
        raise BadInput(
            f"stage {spec.name} is SFT, and ROLL's SFT takes single-turn rows without tools: set its backend to verl, local or ray"
        )
    if spec.rl.max_steps < 2:
        raise BadInput(f"rl.max_steps of stage {spec.name} is 1, and ROLL saves no policy before its second step: set it to 2 or more")


def _metrics(folder: Path, log: str) -> list[Row]:
    """Rows of the last saved state, and those that were logged after it."""
    rows: dict[int, dict[str, Any]] = {}
    for values in _history(folder):
        if "system/step" in values:
            rows[int(values["system/step"]) + 1] = _without_tags(values)
    for line in log.splitlines():
        begin = line.find(_LOGGED + "{")
        if begin >= 0:
            try:
                logged, _ = json.JSONDecoder().raw_decode(line, begin + len(_LOGGED))
            except ValueError:  # the line is not written to its end
                continue
            if isinstance(logged.get("step"), int) and isinstance(logged.get("metrics"), dict):
                rows.setdefault(logged["step"] + 1, {}).update(logged["metrics"])
    return translate_metrics(rows, _NAMES, "reward")


def _history(folder: Path) -> list[dict[str, Any]]:
    states = sorted(_checkpoints(folder, _STATE), key=lambda path: _step(path.parents[1]))
    for path in reversed(states):
        try:
            return list(json.loads(path.read_text())["log_history"])
        except (OSError, ValueError, KeyError, TypeError):  # written at this moment
            continue
    return []


def _without_tags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Names without the way in which ROLL reduces them (`actor/pg_loss@sum`)."""
    return {name.rpartition("@")[0] or name: value for name, value in values.items()}


def _saved(folder: Path) -> list[Saved]:
    """The policies whose last step was saved with ROLL's own state, which it writes after the policy."""
    steps = {_step(path.parents[1]) for path in _checkpoints(folder, _STATE)}
    found = {path.parent for path in _checkpoints(folder, "config.json") if _step(path.parent) in steps}
    moved = str(folder / CHECKPOINTS)
    return [Saved(_step(path) + 1, path) for path in sorted(found, key=lambda path: (_step(path), not str(path).startswith(moved)))[::-1]]


def _checkpoints(folder: Path, name: str) -> Iterator[Path]:
    """The files of this name in all checkpoints, moved or not."""
    for place in (CHECKPOINTS, OUTPUT):
        yield from folder.glob(f"{place}/*/checkpoint-*/{name}")


def _step(checkpoint: Path) -> int:
    found = re.fullmatch(r"checkpoint-([0-9]+)", checkpoint.name)
    return int(found[1]) if found else -1


ROLL = Engine(
    name="roll",
    title="ROLL",
    version=COMMIT,
    version_command='echo "${ROLL_COMMIT:-$(git -c safe.directory=* -C "${ROLL_HOME:-.}" rev-parse HEAD)}"',
    is_prefix=True,
    resumes=False,
    removed_at_end=(CHECKPOINTS, OUTPUT),
    failure_signs={"ROLL plans with the GPUs that its driver sees": "resources"},
    check=_check,
    variables=lambda folder: {},
    metrics=_metrics,
    list_saved=_saved,
    remove_saved=lambda folder, saved: shutil.rmtree(saved.folder),
)
