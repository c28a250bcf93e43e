"""Asynchronous RL: one process plays while another learns, and a bound says how far apart they may be.

One idea: the bound is kept to exactly. Step s learns from the batch that version max(0, s - bound) has played, the policy that has learned
from so many batches: neither an older one, nor a newer one that happened to be there. So a stage is a function of its spec, whichever
process was the faster, and a killed one ends as it would have ended; at most `bound` whole batches wait to be learned from.
Weights go from process to process as a file that appears by a rename. A checkpoint keeps those that the player has still to play with.

    version     0       1       2       3         bound 1: learning from batch s and playing batch s + 1, by version s, go on at once;
    learning      b0      b1      b2              a larger bound evens out steps of unequal length
    playing   b0  b1      b2      b3

What is staler than the bound is dropped and counted, whoever has played it; what is stale within it is learned from by its importance
ratio to the policy that sampled it (`train/rl/rl.py`).
What it does not do: play (`train/rl/rollout_worker.py`); train on several GPUs, or beside a server of rollouts (that is what cluster
engines do).
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
from train.rl.rollout_worker import VERSION, Player, Told, weights_file
from train.rl.task_sampler import FreshTasks
from train.spec import StageSpec

METRICS = ("staleness", "stale_share", "dropped", "wait_for_rollouts_s", "wait_for_updates_s")
"""Of a step. staleness: batches that the policy has learned from since the one that played; stale_share: of the trajectories learned from;
dropped: trajectories that were too stale; seconds that the trainer waited for this batch, and the player for a version to play it."""


class RolloutQueue:
    """The batches of a stage whose `RLSettings.staleness` is above 0. As a context, it ends the player when it ends.

    Args:
        source: the player draws from a copy, of what it is when `begin` is called. model: is the one that learns.
        scratch: receives a folder of weights.
    """

    def __init__(self, spec: StageSpec, source: FreshTasks, model: Any, tokenizer: Any, scratch: Path) -> None:
        assert spec.rl is not None
        self._settings, self._source, self._model, self._weights = spec.rl, source, model, scratch / "weights"
        self._weights.mkdir()
        self._player = Player(Told(spec, type(model), model.config, tokenizer, self._weights))
        self._version, self._to_ask = -1, -1
        self.metrics: Mapping[str, float] = {}
        """Of the batch that was given last, by the names of `METRICS`."""

    def begin(self, checkpoint: Path | None) -> None:
        """The source stands at the step that is asked for first, running tags and all. checkpoint: one that `save` has added to."""
        for version_folder in checkpoint.glob(f"{VERSION}*") if checkpoint else ():
            shutil.copyfile(version_folder, self._weights / version_folder.name)
        self._player.begin(self._source)

    def batch(self, step: int) -> Batch:
        """What a step learns from. The model must have learned from the batches of all steps before, and from nothing else.

        Raises:
            PlayerFailed: the player died. HeadraceError: it has no tasks, or could rate no rollout.
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
        """Adds the versions that batches after it are still to be played by; the newest is the checkpoint itself."""
        for version in range(max(0, self._version + 1 - self._settings.staleness), self._version + 1):
            file = weights_file(self._weights, version)
            shutil.copyfile(file, checkpoint / file.name)

    def _hand_over(self, version: int) -> None:
        """The weights of now, and no longer those that nothing more is played by."""
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
