"""Checkpoints of a stage: a killed stage resumes from the last one and ends with the same result.

One idea: a checkpoint is complete or absent. The trainer writes its state (weights, optimiser, learning rate, random state, log) into a
draft folder. This module adds our state (running tags, order of rows), the hash of spec and code and those of the files, and renames the
draft. Only the last checkpoint is kept. A checkpoint of another spec or other code, or with a damaged file, is removed.

What it does not do: choose the interval (`checkpoint_steps`), or remove the folder of a finished stage (`train/run.py` does). With several
processes, one process completes and removes checkpoints after all have written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from storage.files import disk_errors, sync_dir, sync_file
from train.device import is_main, of_main, wait_for_all

_STAGE_STATE = "stage.json"
_WHOLE = "step-"


class SavedState(Protocol):
    """State that a checkpoint holds beside the trainer's."""

    def state(self) -> Any:
        """The state, as JSON values."""

    def restore(self, state: Any) -> None:
        """Sets the state."""


class SavedParts:
    """Several states as one, by name."""

    def __init__(self, **parts: SavedState) -> None:
        self._parts = parts

    def state(self) -> dict[str, Any]:
        return {name: part.state() for name, part in self._parts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts.items():
            part.restore(state[name])


class Checkpoints(TrainerCallback):
    """The checkpoints of one stage.

    Args:
        folder: used for nothing else.
        made_by: hash of spec and code; only a checkpoint with the same hash is resumed.
        running: state that is saved with each checkpoint and restored from the last.
        also: adds files to a checkpoint, given its folder.
    """

    def __init__(self, folder: Path, made_by: str, running: SavedState, also: Callable[[Path], None] = lambda _: None) -> None:
        self._folder, self._made_by, self._running, self._also = folder, made_by, running, also
        self.draft = folder / ".draft"
        """Folder for the trainer's files."""

    def last(self) -> Path | None:
        """Restores the state of the checkpoint to resume from and returns its folder; None: start anew. Removes all others."""
        latest = of_main(self._find)
        self._remove_all_but(latest)
        wait_for_all()
        if latest is not None:
            self._running.restore(_read_stage_state(latest)["running"])
        return latest

    def _find(self) -> Path | None:
        """The last checkpoint, if it is of this spec and code, and whole; reads all of it."""
        whole = sorted(self._folder.glob(f"{_WHOLE}*"))
        state = _read_stage_state(whole[-1]) if whole else {}
        if state.get("made_by") != self._made_by:
            return None
        if damaged := _damaged(whole[-1], state.get("files", {})):
            print(f"{whole[-1] / damaged} is damaged: the stage starts again from its input policy", file=sys.stderr)
            return None
        return whole[-1]

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Completes the checkpoint that the trainer wrote, and removes the one before."""
        draft, whole = self.draft / f"checkpoint-{state.global_step}", self._folder / f"{_WHOLE}{state.global_step:09d}"
        wait_for_all()
        if is_main():
            self._complete(draft, whole)
        wait_for_all()

    def _complete(self, draft: Path, whole: Path) -> None:
        with disk_errors("saving a checkpoint", self._folder):
            self._also(draft)
            state = {"made_by": self._made_by, "running": self._running.state(), "files": _hashes(draft)}
            (draft / _STAGE_STATE).write_text(json.dumps(state))
            for path in draft.rglob("*"):
                (sync_dir if path.is_dir() else sync_file)(path)
            sync_dir(draft)
            draft.rename(whole)
            sync_dir(self._folder)
        self._remove_all_but(whole)

    def _remove_all_but(self, keep: Path | None) -> None:
        for path in self._folder.glob("*") if is_main() else ():
            if path != keep:
                (shutil.rmtree if path.is_dir() else Path.unlink)(path)


def _read_stage_state(whole: Path) -> dict[str, Any]:
    """Our state in a checkpoint; empty if the file is missing, as after an interrupted removal, or damaged."""
    try:
        return dict(json.loads((whole / _STAGE_STATE).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file under a folder but our own state; relative path -> hex digits."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / _STAGE_STATE)
    return {str(path.relative_to(folder)): _hash(path) for path in files}


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(whole: Path, hashes: Mapping[str, str]) -> str:
    """The first file of a checkpoint that is missing, cut or altered; empty if there is none."""
    found = _hashes(whole)
    return next((name for name, digest in hashes.items() if found.get(name) != digest), "")
