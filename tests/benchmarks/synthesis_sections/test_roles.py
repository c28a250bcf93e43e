"""The benchmark of simulated users and judges: what it says of scripted ones."""

from __future__ import annotations

import math

import pytest

from benchmarks.harness import Deadline
from benchmarks.synthesis_sections import roles


def test_the_scripted_user_keeps_to_its_script_and_the_scripted_judge_misses_what_no_rule_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "BLUEPRINTS", 60)
    found = roles.measure_scripted(Deadline(math.inf))
    assert found["user_adherence"] == 1.0
    assert 0.6 < found["judge_agreement"] < 0.95


def test_a_user_that_says_something_else_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    from synth.roles import user_script

    monkeypatch.setattr(roles, "BLUEPRINTS", 20)
    real = user_script.script_problems
    monkeypatch.setattr(user_script, "script_problems", lambda own, turn, text, dialogue: real(own, turn, f"{text} 4711", dialogue))
    assert roles.measure_scripted(Deadline(math.inf))["user_adherence"] < 0.1
