"""`headrace worlds`: a starter that compiles, all problems of a spec, a list, and a prompt that works from a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app


def said(*arguments: str, code: int = 0, given: str | None = None) -> str:
    result = CliRunner().invoke(app, ["worlds", *arguments], input=given)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    said("new", str(path))
    return path


def test_a_starter_is_written_once_and_checks_out(spec: Path) -> None:
    written = spec.read_text()
    assert "exists; name another file" in said("new", str(spec), code=2)
    assert spec.read_text() == written
    told = said("check", str(spec), "--n", "40")
    assert "entities  4 (branch 8, member 60, tool 100, loan 90), 258 rows" in told
    assert "rules     3" in told
    assert "solvable  40 of 40 tasks drawn (100.0%)" in told
    assert sum(line.startswith("en ") for line in told.splitlines()) == sum(line.startswith("zh ") for line in told.splitlines()) == 3


def test_all_problems_of_a_spec_are_told_a_line_each(spec: Path) -> None:
    spec.write_text(spec.read_text().replace("loan.renewals < 2", "loan.renewal < 2").replace("loan.due >= today", "loan.due >= todai"))
    told = said("check", str(spec), code=2).splitlines()
    assert told[:2] == [
        "actions.renew_loan.rules.renewal_limit.if: no field 'renewal' of loan; did you mean 'renewals'?",
        "actions.renew_loan.rules.not_overdue.if: 'todai' is no date; write it as '2026-05-13'",
    ]
    assert told[2].endswith("2 problems; docs/worlds.md describes the language")
    assert "no such file" in said("check", str(spec.with_name("other.yaml")), code=2)


def test_worlds_are_listed() -> None:
    told = said("list")
    for name in ("city", "retail", "banking", "telecom"):
        assert name in told


def test_a_world_is_tried_from_a_pipe(spec: Path) -> None:
    lines = [
        "tools",
        "help renew_loan",
        "get_loan loan=l001",
        'get_loan {"loan": "l001"}',
        "ask return_tool",
        "solve",
        "changes",
        "snapshot",
    ]
    lines += ["seed 3", "changes", "state loan l001", "state moon", "intents", "renew", "quit", "never reached"]
    told = said("try", str(spec), "--seed", "2", given="\n".join(lines) + "\n")
    assert "renew_loan           * Renew a loan." in told
    assert told.count('{"id":"l001",') == 2
    assert "acts/return_tool/l" in told
    assert "a fresh world of seed 3\nnothing has changed" in told
    assert "no moon; there is branch, member, tool, loan, acts" in told
    assert "renew_loan: get_loan > renew_loan" in told
    assert "no command or tool 'renew'; did you mean renew_loan?" in told
    assert "never" not in told


def test_any_world_can_be_tried_and_an_unknown_one_is_refused() -> None:
    assert "order (100)" in said("try", "retail", given="state\nask zh\nsolve\n")
    assert "[" in said("try", "gen-7", given="ask zh\nsolve\n")
    assert "no world is called 'bankin'; did you mean 'banking'?" in " ".join(said("try", "bankin", code=2).split())
