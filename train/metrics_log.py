"""Metrics of a stage while it trains: a row a step in `metrics.jsonl`, for whoever follows it.

One idea: the file holds what the trainer's own log holds. A stage that goes on from a checkpoint begins by writing the rows up to there
again, so that none is there twice, torn or missing, and the file ends as that of a stage that was never killed. So there are no times in
it: how long steps take, and how many tokens a second that is, is printed now and then, into the stage's log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from storage.files import replace_atomically

_TELL_EVERY_S = 10.0


class LiveMetrics(TrainerCallback):
    """Writes these metrics of every logged step.

    Args:
        path: the file; None: nothing is written. names: of the metrics; a log entry without the second one is none of a step.
        logged_as_one: steps of the trainer that make one of ours.
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
            self._begun = self._told = time.monotonic()
            self._first, self._tokens = state.global_step, state.num_input_tokens_seen

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._file is not None and self._names[1] in state.log_history[-1]:
            self._file.write(_line(self._row(state.log_history[-1])))
            self._file.flush()
            if time.monotonic() - self._told >= _TELL_EVERY_S or state.global_step == state.max_steps:
                self._tell(state)

    def _tell(self, state: TrainerState) -> None:
        self._told, entry = time.monotonic(), state.log_history[-1]
        first, step, most = (number // self._logged_as_one for number in (self._first, state.global_step, state.max_steps))
        took = self._told - self._begun
        each = took / max(1, step - first)
        rate = f", {(entry['num_tokens'] - self._tokens) / took:,.0f} tokens a second" if "num_tokens" in entry else ""
        figure, left = f"{self._names[1]} {entry[self._names[1]]:.4g}", f"about {each * (most - step):.0f} s left"
        print(f"step {step} of {most}: {figure}, {took:.1f} s, {each:.2g} s a step{rate}, {left}", flush=True)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._file is not None:
            self._file.close()


def _line(row: dict[str, float]) -> str:
    return json.dumps(row) + "\n"
