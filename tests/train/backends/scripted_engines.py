"""A scripted cluster whose jobs leave what verl 0.9.1 and ROLL (8eb27cc) leave: files, metrics and log lines in their layouts. Nothing is
trained: the policy that a job saves is the one that it began with, with one weight changed."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.train.backends.fake_jobs import RUNNING, SUCCEEDED, FakeJobs
from train.spec import StageSpec

PLAYED = 7
"""Rollouts with a reward that a job's adapters note, besides one that was dropped."""


class ScriptedEngine(FakeJobs):
    """A cluster that takes stages of verl and ROLL.

    damage: changes the folder of the saved policy.
    """

    def __init__(self, *life: dict[str, Any], damage: Callable[[Path], object] = bool) -> None:
        super().__init__(*(life or (RUNNING, RUNNING, SUCCEEDED)), log="", on_end=self._save)
        self.gpus, self._damage, self._body, self._ended = 8.0, damage, dict[str, Any](), set[str]()
        self.before_submission = self._begin
        self.steps: int | None = None
        """Steps in the metrics of a job; None: as many as the stage has."""

    def _begin(self, body: dict[str, Any]) -> None:
        self._body = body
        place, spec = self._place(), self._spec()
        steps = self.steps or spec.settings.max_steps
        if (place / "pipeline.yaml").exists():
            lines = [json.dumps({"step": step, "metrics": roll_metrics(step)}) for step in range(steps)]
            self.log = "".join(f"[2026-11-30 01:02:03] [INFO] [tracking.py (161)]: metrics_tag: {line}\n" for line in lines)
        else:
            path = Path(body["runtime_env"]["env_vars"]["VERL_FILE_LOGGER_PATH"])
            path.write_text("".join(json.dumps({"step": step, "data": verl_metrics(spec, step)}) + "\n" for step in range(1, steps + 1)))
        if spec.rl is not None:
            write_rollouts(place / "rollouts")

    def _save(self) -> None:
        """As at the end of a job; a second look at the job changes nothing."""
        if self._body["submission_id"] in self._ended:
            return
        self._ended.add(self._body["submission_id"])
        place, spec = self._place(), self._spec()
        assert spec.model_in is not None
        save = save_roll if (place / "pipeline.yaml").exists() else save_verl
        self._damage(save(place, spec.model_in, spec, spec.settings.max_steps))

    def _place(self) -> Path:
        """The engine's folder, from the command of the job."""
        return Path(shlex.split(self._body["entrypoint"])[1]).parent

    def _spec(self) -> StageSpec:
        return StageSpec.model_validate_json((self._place().parent / "spec.json").read_text())


def verl_metrics(spec: StageSpec, step: int) -> dict[str, float | None]:
    if spec.sft is not None:
        return {"train/loss": 2.0 / step, "train/lr": 1e-5, "train/grad_norm": 1.0, "train/mfu": 0.3}
    figures = {"critic/score/mean": step / 10, "actor/pg_loss": 0.1, "actor/entropy": 0.5, "actor/lr": 1e-6, "num_turns/mean": 3.0}
    return {"training/global_step": step, "timing_s/step": 12.5, "critic/vf_explained_var": None, **figures}


def roll_metrics(step: int) -> dict[str, float]:
    """step: from 0."""
    figures = {"critic/score/mean": (step + 1) / 10, "actor/total_loss": 0.1, "critic/entropy/mean": 0.5, "actor/lr": 1e-6}
    return {"system/step": step, "time/step_train": 3.0, "env/headrace/num_actions": 3.0, **figures}


def write_rollouts(folder: Path) -> None:
    """The lines of our adapters: a rollout that the infrastructure failed, and `PLAYED` others, the first of which solved its task."""
    folder.mkdir(exist_ok=True)
    lines: list[Mapping[str, Any]] = [{"task_id": "task-0", "failure": "world: gone", "reward": None, "success": None, "turns": 1}]
    lines += [
        {"task_id": f"task-{number}", "failure": "", "reward": float(number == 1), "success": number == 1, "turns": 2}
        for number in range(1, PLAYED + 1)
    ]
    (folder / "host-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def save_verl(place: Path, policy: Path, spec: StageSpec, step: int) -> Path:
    """A checkpoint of verl; returns its Hugging Face folder."""
    checkpoint = place / "checkpoints" / f"global_step_{step}"
    inner = checkpoint if spec.sft is not None else checkpoint / "actor"
    inner.mkdir(parents=True, exist_ok=True)
    for name in ("model_world_size_1_rank_0.pt", "optim_world_size_1_rank_0.pt", "extra_state_world_size_1_rank_0.pt"):
        (inner / name).write_bytes(b"a shard")
    (inner / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    (checkpoint / "data.pt").write_bytes(b"the dataloader's state")
    _copy_policy(policy, inner / "huggingface")
    (place / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(step))
    return inner / "huggingface"


def save_roll(place: Path, policy: Path, spec: StageSpec, step: int) -> Path:
    """A checkpoint of ROLL, as it is when its parts were moved; returns its folder, which is in Hugging Face format."""
    checkpoint = place / "checkpoints" / "20261130-010203" / f"checkpoint-{step - 1}"
    _copy_policy(policy, checkpoint)
    for folder in ("dcp", "pipeline"):
        (checkpoint / folder).mkdir()
    (checkpoint / "dcp" / "__0_0.distcp").write_bytes(b"a shard")
    history = [{name + ("@sum" if "loss" in name else ""): value for name, value in roll_metrics(one).items()} for one in range(step)]
    state = {"step": step - 1, "log_history": history, "kv": {}}
    (checkpoint / "pipeline" / "worker_state_pipeline.json").write_text(json.dumps(state, indent=2, sort_keys=True))
    return checkpoint


def _copy_policy(policy: Path, folder: Path) -> None:
    shutil.copytree(policy, folder, dirs_exist_ok=True)
    for path in folder.glob("*.safetensors"):
        weights = load_file(path)
        name = min(weights)
        weights[name] = weights[name] + np.float32(1e-4)
        save_file(weights, path, metadata={"format": "pt"})
