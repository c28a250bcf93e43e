"""Checkpoints of a stage: one that was killed goes on from its last whole one, and ends as it would have ended.

One idea: a checkpoint is whole or absent. The trainer writes its own (weights, optimiser, learning rate, random state, the log) into a
draft, what else must be known (running tags, the order of rows) and what the checkpoint was made by are put beside it, and then it gets its
name by a rename; so only the last one is kept. What was made by another spec or by other code is not gone on from: it is removed.

What it does not do: say when (`checkpoint_steps`), or outlive its stage: `train/run.py` removes the folder when the stage is done. Of
several processes one completes and removes, when all have written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from storage.files import disk_errors, sync_dir, sync_file
from train.device import is_main, wait_for_all

_STAGE_STATE = "stage.json"
_WHOLE = "step-"


class Kept(Protocol):
    """What a checkpoint holds beside the trainer's own."""

    def state(self) -> Any:
        """As JSON."""

    def restore(self, state: Any) -> None:
        """Makes it as it was when `state` was taken."""


class Checkpoints(TrainerCallback):
    """The checkpoints of one stage.

    Args:
        folder: theirs alone. made_by: the same for what may go on from one another. running: saved with each, restored from the last.
        also: adds files of its own to each, given its folder.
    """

    def __init__(self, folder: Path, made_by: str, running: Kept, also: Callable[[Path], None] = lambda _: None) -> None:
        self._folder, self._made_by, self._running, self._also = folder, made_by, running, also
        self.draft = folder / ".draft"
        """Where the trainer is to write."""

    def last(self) -> Path | None:
        """The checkpoint to go on from, with what it holds restored; None: begin at the beginning. All else is removed."""
        whole = sorted(self._folder.glob(f"{_WHOLE}*"))
        state = _note_of(whole[-1]) if whole else {}
        latest = whole[-1] if state.get("made_by") == self._made_by else None
        wait_for_all()
        self._remove_all_but(latest)
        wait_for_all()
        if latest is not None:
            self._running.restore(state["running"])
        return latest

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The trainer has written its part: completes it, and removes the checkpoint before it."""
        draft, whole = self.draft / f"checkpoint-{state.global_step}", self._folder / f"{_WHOLE}{state.global_step:09d}"
        wait_for_all()
        if is_main():
            self._complete(draft, whole)
        wait_for_all()

    def _complete(self, draft: Path, whole: Path) -> None:
        with disk_errors("saving a checkpoint", self._folder):
            (draft / _STAGE_STATE).write_text(json.dumps({"made_by": self._made_by, "running": self._running.state()}))
            self._also(draft)
            for path in draft.iterdir():
                sync_file(path)
            sync_dir(draft)
            draft.rename(whole)
            sync_dir(self._folder)
        self._remove_all_but(whole)

    def _remove_all_but(self, keep: Path | None) -> None:
        for path in self._folder.glob("*") if is_main() else ():
            if path != keep:
                shutil.rmtree(path)


def _note_of(whole: Path) -> dict[str, Any]:
    """What was put beside the trainer's part; nothing where that is gone, as in a checkpoint whose removal was killed."""
    try:
        state: dict[str, Any] = json.loads((whole / _STAGE_STATE).read_text())
    except FileNotFoundError:
        return {}
    return state
