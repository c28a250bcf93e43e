"""Playing and learning at once: figures are ratios of wall times, in turn to side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cascade_sections import rollout_queue
from benchmarks.cascade_sections.rollout_queue import BOUNDS, Stage, figures, sections
from train.spec import RLSettings, StageSpec

START_S = 10.0
A_STEP_S = {0: 0.4, 1: 0.25, 2: 0.2, 4: 0.1}


def spec(steps: int) -> StageSpec:
    settings = RLSettings(max_steps=steps)
    return StageSpec(name="rl", algorithm="rl", store=Path("none"), release_id="none", split="rl", model_out=Path("none"), rl=settings)


def test_a_speed_up_is_what_playing_in_turn_takes_over_what_side_by_side_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given scripted wall times, with one slow round in three."""

    def scripted(told: StageSpec, bound: int, folder: Path) -> Stage:
        assert told.rl is not None
        slow = 50.0 if folder.name.endswith("-2") else 0.0
        return Stage(START_S + slow + told.rl.max_steps * A_STEP_S[bound], 1.0, f"weights of bound {bound}", [{"reward": 0.5}] * 4)

    monkeypatch.setattr(rollout_queue, "run_bound", scripted)
    monkeypatch.setattr(rollout_queue, "_print_hand_over", lambda _: None)
    found = figures(spec, tmp_path, (20, 120), rounds=3)

    assert set(found) == set(sections()[0].keys)
    assert found["async_speedup"] == pytest.approx((10 + 120 * 0.4) / (10 + 120 * 0.25))
    assert found["async4_speedup"] == pytest.approx((10 + 120 * 0.4) / (10 + 120 * 0.1))
    assert [found[f"{name}_step_speedup"] for name in ("async", "async2", "async4")] == pytest.approx([1.6, 2.0, 4.0])
    assert "bound 1: 0.250 s a step, starts aside: 4.00 steps and 256 rollouts a second" in capsys.readouterr().out


def test_bound_0_is_what_all_others_are_held_against() -> None:
    assert set(rollout_queue.NAMES) == set(BOUNDS) - {0}
