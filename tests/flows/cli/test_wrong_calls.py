"""Every wrong call is refused in at most three lines that name what was wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hour_sections.wrong_calls import WRONG_CALLS, Refusal, WrongCall, find_fault, refuse, write_wrong_files

MOST_LINES = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wrong")
    write_wrong_files(made)
    return made


def test_there_are_many_wrong_calls() -> None:
    assert len({call.arguments for call in WRONG_CALLS}) == len(WRONG_CALLS) >= 60


@pytest.mark.parametrize("call", WRONG_CALLS, ids=lambda call: call.arguments)
def test_a_wrong_call_is_refused_in_few_lines(call: WrongCall, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = {path for path in folder.rglob("*") if ".headrace" not in path.parts}
    refusal = refuse(call)
    assert not find_fault(call, refusal)
    assert 1 <= refusal.lines <= MOST_LINES, refusal.text
    assert {path for path in folder.rglob("*") if ".headrace" not in path.parts} == before


@pytest.mark.parametrize(
    ("refusal", "fault"),
    [
        (Refusal(0, "headrace: no world is called 'moon'"), "exit code 0"),
        (Refusal(2, "headrace: no such world"), "does not say"),
        (Refusal(1, "headrace: unexpected KeyError: 'moon'"), "an error that nobody planned"),
    ],
)
def test_a_refusal_that_is_none_is_found(refusal: Refusal, fault: str) -> None:
    assert find_fault(WrongCall("worlds try moon", "moon|exit"), refusal).startswith(fault)
