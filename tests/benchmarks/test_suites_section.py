"""The benchmark of suites: on references and damaged ones, both checkers of BFCL are asked, and they can differ."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.live_sections.suites import _both
from benchmarks.tags_sections.bfcl import argument_values, damaged

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason="pip install --no-deps bfcl-eval")


def test_damaged_runs_are_refused_by_both_and_a_call_of_no_tool_by_ours_alone() -> None:
    from synth.worlds.bfcl_world import cases

    every = cases()
    values, case = argument_values(every), every[0]
    assert _both(case, [list(turn.calls) for turn in case.turns]) == (True, True)
    for kind, verdicts in {"dropped": (False, False), "altered": (False, False), "hallucinated": (True, False)}.items():
        made = damaged(case, kind, values)
        assert made is not None and _both(case, made) == verdicts, kind
