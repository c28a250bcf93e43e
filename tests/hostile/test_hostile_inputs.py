"""Hostile input is taken or refused in one line, and neither hangs nor runs; each case in a process with a limit of time and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from synth.worlds.declarative.compile import compile_file
from tests.hostile.forty_calls import call_forty_times
from tests.hostile.hostile_catalogues import catalogue_files
from tests.hostile.hostile_policies import SPOILS
from tests.hostile.hostile_queries import QUERY_FILES
from tests.hostile.hostile_runs import outcomes
from tests.hostile.hostile_worlds import LIBRARY, world_files

MUTATED = 20
EXPECTED = {"worlds": world_files(MUTATED), "catalogues": catalogue_files(), "queries": QUERY_FILES, "policies": SPOILS}


@pytest.mark.slow
@pytest.mark.parametrize("group", EXPECTED)
def test_hostile_input_is_taken_or_refused(group):
    found = outcomes(group, MUTATED)
    assert found.keys() == EXPECTED[group].keys()
    assert {name: told for name, told in found.items() if told.partition(":")[0] not in ("taken", "refused")} == {}
    assert sum(told.startswith("refused: ") for told in found.values()) > len(found) // 4


def test_a_number_that_is_squared_forty_times_is_refused(tmp_path: Path):
    """Given a tool that squares a stored number, then it says so before the number is out of all bounds."""
    (tmp_path / "world.yaml").write_text(LIBRARY)
    assert any("would be out of all bounds" in last for last in call_forty_times(compile_file(tmp_path / "world.yaml")))
