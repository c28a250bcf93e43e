"""Metrics of a stage while it trains: a row a step in `metrics.jsonl`, for whoever follows it.

One idea: the file holds what the trainer's own log holds. A stage that goes on from a checkpoint begins by writing the rows up to there
again, so that none is there twice, torn or missing, and the file ends as that of a stage that was never killed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from storage.files import replace_atomically


class LiveMetrics(TrainerCallback):
    """Writes these metrics of every logged step.

    Args:
        path: the file; None: nothing is written. names: of the metrics; a log entry without the second one is none of a step.
    """

    def __init__(self, path: Path | None, names: Sequence[str]) -> None:
        self._path, self._names = path, names
        self._file: IO[str] | None = None

    def rows(self, state: TrainerState) -> list[dict[str, float]]:
        """All steps so far."""
        return [{name: float(entry[name]) for name in self._names} for entry in state.log_history if self._names[1] in entry]

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._path is not None and state.is_world_process_zero:
            text = "".join(_line(row) for row in self.rows(state))
            replace_atomically(self._path, lambda draft: draft.write_text(text) and None)
            self._file = self._path.open("a")

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._file is not None and self._names[1] in state.log_history[-1]:
            self._file.write(_line({name: float(state.log_history[-1][name]) for name in self._names}))
            self._file.flush()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._file is not None:
            self._file.close()


def _line(row: dict[str, float]) -> str:
    return json.dumps(row) + "\n"
