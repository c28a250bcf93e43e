"""What the command line makes of a configuration."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from flows.checks import synthesis
from flows.config import Config


def test_each_world_that_is_named_gets_tasks_and_a_range_gets_none(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "mine.yaml").write_bytes(files("synth.worlds.spec").joinpath("starter.yaml").read_bytes())
    above = str(tmp_path / "deep" / ".." / "mine.yaml")

    drills = synthesis(Config(), [above, "banking", "gen-1..3"], None, 5).synthesize.drills

    assert [name.partition("@")[0] for name in drills] == ["tool_library", "banking"]
    assert set(drills.values()) == {3}, "of five, rounded up"
