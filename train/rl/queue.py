"""Asynchronous RL: one process plays while another learns, with a fixed lag between them.

One idea: the lag is exact. Version v is the policy after v batches. Step s learns from the batch that version max(0, s - bound) played, and
from no older or newer one. So the result depends on the spec alone and not on the speed of the processes, a resumed stage ends as an
uninterrupted one, and at most `bound` batches wait.
The trainer passes weights to the player as files that appear by a rename. A checkpoint includes the weights that the player still needs.

    version     0       1       2       3         bound 1: learning from batch s and playing batch s + 1, by version s, go on at once;
    learning      b0      b1      b2              a larger bound evens out steps of unequal length
    playing   b0  b1      b2      b3

A batch staler than the bound is dropped and counted. A stale batch within the bound is weighted by the importance ratio to the policy that
sampled it (`train/rl/rl.py`).
What it does not do: play (`train/rl/rollout_worker.py`); use several GPUs or a rollout server (cluster engines do that).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_model

from storage.files import disk_errors
from train.rl.rollout_batches import Batch
from train.rl.rollout_worker import VERSION, Player, PlayerSetup, weights_file
from train.rl.task_sampler import FreshTasks
from train.spec import StageSpec

METRICS = ("staleness", "stale_share", "dropped", "wait_for_rollouts_s", "wait_for_updates_s")
"""Metrics of a step. staleness: versions between the sampling and the trained policy. stale_share: share of stale trajectories.
dropped: trajectories that were too stale. wait_for_rollouts_s, wait_for_updates_s: seconds that trainer and player waited."""


class RolloutQueue:
    """The batches of a stage whose `RLSettings.staleness` is above 0. A context manager that stops the player on exit.

    Args:
        source: tasks; the player gets a copy when `begin` is called.
        model: the model in training.
        scratch: folder for the folder of weights.
    """

    names = METRICS

    def __init__(self, spec: StageSpec, source: FreshTasks, model: Any, tokenizer: Any, scratch: Path) -> None:
        assert spec.rl is not None
        self._settings, self._source, self._model, self._weights = spec.rl, source, model, scratch / "weights"
        self._weights.mkdir()
        self._player = Player(PlayerSetup(spec, type(model), model.config, tokenizer, self._weights))
        self._version, self._to_ask = -1, -1
        self.metrics: Mapping[str, float] = {}
        """`METRICS` of the last batch."""

    def begin(self, checkpoint: Path | None) -> None:
        """Sends the source, in its state of the first step, to the player. checkpoint: the one to resume from, with the files of `save`."""
        for version_file in checkpoint.glob(f"{VERSION}*") if checkpoint else ():
            shutil.copyfile(version_file, self._weights / version_file.name)
        self._player.begin(self._source)

    def batch(self, step: int) -> Batch:
        """The batch of a step. The model must have learned from the batches of all earlier steps.

        Raises:
            PlayerFailed: the player died. HeadraceError: there are no tasks, or no rollout could be rated.
        """
        self._hand_over(step)
        if self._to_ask < 0:
            self._to_ask = step
        bound = self._settings.staleness
        while self._to_ask < min(step + bound + 1, self._settings.max_steps):
            self._player.ask(self._to_ask, max(0, self._to_ask - bound))
            self._to_ask += 1
        started, dropped = time.monotonic(), 0
        played = self._player.take()
        while step - played.batch.updates > bound:
            dropped += len(played.batch.rows)
            played = self._player.take()
        stale = step - played.batch.updates
        figures = (stale, stale > 0, dropped, time.monotonic() - started, played.idle_s)
        self.metrics = dict(zip(METRICS, map(float, figures), strict=True))
        return played.batch

    def save(self, checkpoint: Path) -> None:
        """Copies the versions that later batches need into the checkpoint."""
        for version in range(max(0, self._version + 1 - self._settings.staleness), self._version + 1):
            file = weights_file(self._weights, version)
            shutil.copyfile(file, checkpoint / file.name)

    def _hand_over(self, version: int) -> None:
        """Writes the current weights and removes versions that are no longer needed."""
        file = weights_file(self._weights, version)
        draft = file.with_suffix(".draft")
        with disk_errors("handing weights to the player", self._weights):
            save_model(self._model, str(draft))
            draft.rename(file)
        self._version = version
        weights_file(self._weights, version - self._settings.staleness - 1).unlink(missing_ok=True)

    def __enter__(self) -> RolloutQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self._player.close()
