"""Metrics of a running stage: one row per step in `metrics.jsonl`.

One idea: the file equals the trainer's own log. A stage that resumes from a checkpoint first writes the rows up to there again. So no row
is missing, torn or repeated, and the file equals that of an uninterrupted stage. Therefore it holds no times: durations and tokens per
second are printed into the stage's log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from storage.files import replace_atomically

_PRINT_EVERY_S = 10.0


class LiveMetrics(TrainerCallback):
    """Writes metrics of every logged step.

    Args:
        path: the file; None: writes nothing.
        names: of the metrics. A log entry without the second one does not belong to a step.
        logged_as_one: steps of the trainer per step of ours.
    """

    def __init__(self, path: Path | None, names: Sequence[str], *, logged_as_one: int = 1) -> None:
        self._path, self._names, self._logged_as_one = path, names, logged_as_one
        self._file: IO[str] | None = None

    def rows(self, state: TrainerState) -> list[dict[str, float]]:
        """All steps so far."""
        return [self._row(entry) for entry in state.log_history if self._names[1] in entry]

    def _row(self, entry: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(entry[name]) / (self._logged_as_one if name == "step" else 1) for name in self._names}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._path is not None and state.is_world_process_zero:
            text = "".join(_line(row) for row in self.rows(state))
            replace_atomically(self._path, lambda draft: draft.write_text(text) and None)
            self._file = self._path.open("a")
            self._started = self._printed = time.monotonic()
            self._first, self._tokens = state.global_step, state.num_input_tokens_seen

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._file is not None and self._names[1] in state.log_history[-1]:
            self._file.write(_line(self._row(state.log_history[-1])))
            self._file.flush()
            if time.monotonic() - self._printed >= _PRINT_EVERY_S or state.global_step == state.max_steps:
                self._print_progress(state)

    def _print_progress(self, state: TrainerState) -> None:
        self._printed, entry = time.monotonic(), state.log_history[-1]
        first, step, most = (number // self._logged_as_one for number in (self._first, state.global_step, state.max_steps))
        took = self._printed - self._started
        each = took / max(1, step - first)
        rate = f", {(entry['num_tokens'] - self._tokens) / took:,.0f} tokens a second" if "num_tokens" in entry else ""
        figure, left = f"{self._names[1]} {entry[self._names[1]]:.4g}", f"about {each * (most - step):.0f} s left"
        print(f"step {step} of {most}: {figure}, {took:.1f} s, {each:.2g} s a step{rate}, {left}", flush=True)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._file is not None:
            self._file.close()


def _line(row: dict[str, float]) -> str:
    return json.dumps(row) + "\n"
