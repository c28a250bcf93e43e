"""Metrics while a stage trains: rows come as they are made, and a stage that goes on writes none twice."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import TrainerControl, TrainerState, TrainingArguments

from train.metrics_log import LiveMetrics

NAMES = ("step", "loss")


def entry(step: int) -> dict[str, float]:
    return {"step": step, "loss": 1.0 / step, "grad_norm": 3.0}


def written(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def log(live: LiveMetrics, state: TrainerState, arguments: TrainingArguments, *entries: dict[str, float]) -> None:
    for one in entries:
        state.log_history.append(one)
        live.on_log(arguments, state, TrainerControl())


def test_rows_come_as_they_are_made_and_a_resumed_stage_writes_none_twice(tmp_path: Path) -> None:
    """Given a stage that was killed in its fourth step, half a line written, with a checkpoint of its second."""
    path, arguments = tmp_path / "metrics.jsonl", TrainingArguments(output_dir=str(tmp_path / "out"), use_cpu=True)
    live, state = LiveMetrics(path, NAMES), TrainerState()
    live.on_train_begin(arguments, state, TrainerControl())
    for step in (1, 2, 3):
        log(live, state, arguments, entry(step))
        assert written(path) == list(range(1, step + 1))
    with path.open("a") as file:
        file.write('{"step": 4, "lo')

    again, resumed = LiveMetrics(path, NAMES), TrainerState(log_history=[entry(1), entry(2)])
    again.on_train_begin(arguments, resumed, TrainerControl())
    assert written(path) == [1, 2]
    log(again, resumed, arguments, entry(3), entry(4), {"step": 4, "train_runtime": 9.0})
    again.on_train_end(arguments, resumed, TrainerControl())
    assert written(path) == [1, 2, 3, 4]
    assert again.rows(resumed) == [json.loads(line) for line in path.read_text().splitlines()]
    assert json.loads(path.read_text().splitlines()[0]) == {"step": 1.0, "loss": 1.0}


def test_only_the_main_process_writes(tmp_path: Path) -> None:
    path, arguments = tmp_path / "metrics.jsonl", TrainingArguments(output_dir=str(tmp_path / "out"), use_cpu=True)
    live, state = LiveMetrics(path, NAMES), TrainerState(is_world_process_zero=False)
    live.on_train_begin(arguments, state, TrainerControl())
    log(live, state, arguments, entry(1))
    assert not path.exists()
    assert [row["step"] for row in live.rows(state)] == [1]
