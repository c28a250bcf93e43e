"""Figures of rollouts, a file a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.backends.rollout_lines import append_rollout, forget_after, rollout_figures


def test_figures_are_of_the_rollouts_of_all_processes_without_a_line_that_was_cut(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts"
    append_rollout(folder, {"task_id": "a", "reward": 1.0, "success": True, "turns": 3})
    append_rollout(folder, {"task_id": "b", "reward": None, "failure": "the disk is gone"})
    (folder / "other-1.jsonl").write_text('{"task_id": "c", "reward": 0.0, "turns": 1}\n{"task_id": "d", "rew')
    assert rollout_figures(folder) == {"rollouts_played": 2.0, "rollouts_dropped": 1.0, "success_share": 0.5, "rollout_turns": 2.0}
    assert rollout_figures(tmp_path / "nothing") == {}


def test_a_line_that_cannot_be_written_is_left_out_and_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rollouts").write_text("a file in place of the folder")
    for _ in range(2):
        append_rollout(tmp_path / "rollouts", {"task_id": "a"})
    assert capfd.readouterr().err.count("figures of rollouts cannot be written to") == 1


def test_the_rollouts_of_steps_that_are_played_again_are_forgotten(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        append_rollout(tmp_path, {"global_steps": step, "reward": 1.0, "turns": 1})
    forget_after(tmp_path, 2)
    assert rollout_figures(tmp_path)["rollouts_played"] == 2.0
