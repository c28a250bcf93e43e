"""Start-up is measured in whole processes, of every command."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks.hour_sections.start_up import call_s, list_commands


def test_commands_inside_groups_are_found() -> None:
    found = list_commands()
    assert ["train"] in found and ["worlds"] in found and ["worlds", "try"] in found
    assert len(found) == len({tuple(words) for words in found}) >= 30


@pytest.mark.slow
def test_a_call_that_fails_is_no_figure() -> None:
    assert call_s(["--help"]) > 0
    with pytest.raises(subprocess.CalledProcessError):
        call_s(["trian"])
