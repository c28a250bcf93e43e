"""Figures of rollouts, a file a process."""

from __future__ import annotations

from train.backends.rollout_lines import append_rollout, read_rollouts


def test_rollouts_of_several_processes_are_read_back_without_a_line_that_was_cut(tmp_path):
    folder = tmp_path / "rollouts"
    append_rollout(folder, {"task_id": "a", "reward": 1.0})
    append_rollout(folder, {"task_id": "b", "reward": None, "failure": "the disk is gone"})
    (folder / "other-1.jsonl").write_text('{"task_id": "c"}\n{"task_id": "d", "rew')
    assert sorted(line["task_id"] for line in read_rollouts(folder)) == ["a", "b", "c"]
    assert read_rollouts(tmp_path / "nothing") == []
