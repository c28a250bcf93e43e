"""`headrace worlds`: the starter compiles, all problems of a spec are listed, and the prompt works from a pipe."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app


def run_worlds(*arguments: str, code: int = 0, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, ["worlds", *arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    run_worlds("new", str(path))
    return path


def test_a_starter_is_written_once_and_is_valid(spec: Path) -> None:
    written = spec.read_text()
    assert "exists; name another file" in run_worlds("new", str(spec), code=2)
    assert spec.read_text() == written
    output = run_worlds("check", str(spec), "--n", "40")
    assert "entities  4 (branch 8, member 60, tool 100, loan 90), 258 rows" in output
    assert "rules     3" in output
    assert "solvable  40 of 40 tasks drawn (100.0%)" in output
    assert sum(line.startswith("en ") for line in output.splitlines()) == sum(line.startswith("zh ") for line in output.splitlines()) == 3


def test_all_problems_of_a_spec_are_listed_one_per_line(spec: Path) -> None:
    spec.write_text(spec.read_text().replace("loan.renewals < 2", "loan.renewal < 2").replace("loan.due >= today", "loan.due >= todai"))
    output = run_worlds("check", str(spec), code=2).splitlines()
    assert output[:2] == [
        "actions.renew_loan.rules.renewal_limit.if: no field 'renewal' of loan; did you mean 'renewals'?",
        "actions.renew_loan.rules.not_overdue.if: 'todai' is no date; write it as '2026-05-13'",
    ]
    assert output[2].endswith("2 problems; mend the first one first. docs/worlds.md describes the language")
    assert "no such file" in run_worlds("check", str(spec.with_name("other.yaml")), code=2)


def test_a_problem_at_many_places_is_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    run_worlds("new", str(path), "--languages", "en")
    path.write_text(path.read_text().replace("languages: [en] ", "languages: [en, zh] "))
    output = run_worlds("check", str(path), code=2).splitlines()
    assert len(output) == 3
    assert " more places: write it in both languages, as: english / 中文, or say `languages: [en]`" in output[0]
    assert output[1].startswith("    the other places: ")
    assert output[2].endswith("1 problem. docs/worlds.md describes the language")


def test_a_library_world_is_copied_with_its_comments_under_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "inn.yaml"
    run_worlds("new", str(path), "--like", "hotel", "--languages", "en")
    assert "# A seaside hotel: rooms, reservations" in path.read_text()
    output = run_worlds("check", str(path), "--n", "20")
    assert output.startswith("inn@")
    assert "languages English\n" in output
    assert "did you mean 'hotel'?" in run_worlds("new", str(tmp_path / "b.yaml"), "--like", "hotle", code=2)
    assert "--languages fr: expected en, zh or en,zh" in run_worlds("new", str(tmp_path / "b.yaml"), "--languages", "fr", code=2)
    assert not (tmp_path / "b.yaml").exists()


def test_a_world_of_one_language_is_tried_in_it(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    run_worlds("new", str(path), "--languages", "en")
    output = run_worlds("try", str(path), stdin="task zh\n/task\nquit\n")
    assert "no request of tool_library" in output
    assert "its `languages` are en" in output
    assert output.isascii()


@pytest.mark.parametrize("command", [["synthesize", "--n", "4", "--world"], ["worlds", "try"]])
def test_every_command_refuses_a_broken_spec_with_its_first_cause_and_the_check(spec: Path, command: list[str]) -> None:
    spec.write_text(spec.read_text().replace("loan.renewals < 2", "loan.renewal < 2").replace("id: m###", "id: b##"))
    where = [] if command[0] == "worlds" else ["--store", str(spec.with_name("store"))]
    result = CliRunner().invoke(app, [*command, str(spec), *where])
    told = " ".join(result.output.split())
    assert result.exit_code == 2
    assert "entities.member.id: 'b' is that of branch already" in told
    assert "1 more problem" in told
    assert "headrace worlds check" in told
    assert len(result.output.splitlines()) <= 3


def test_a_shipped_spec_is_checked_with_the_wording_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Path(str(files("synth.worlds"))) / "library"
    (tmp_path / "specs").symlink_to(library)
    monkeypatch.chdir(tmp_path)
    for spec in (library / "retail.yaml", Path("specs/retail.yaml")):
        assert "solvable  20 of 20 tasks drawn (100.0%)" in run_worlds("check", str(spec), "--n", "20")


def test_worlds_are_listed() -> None:
    output = run_worlds("list")
    for name in ("city", "retail", "banking", "telecom"):
        assert name in output


def test_a_world_can_be_tried_from_a_pipe(spec: Path) -> None:
    lines = [
        "tools",
        "help renew_loan",
        "get_loan loan=l001",
        'get_loan {"loan": "l001"}',
        "task return_tool",
        "solve",
        "changes",
        "snapshot",
    ]
    lines += ["seed 3", "changes", "state loan l001", "state moon", "intents", "renew", "quit", "never reached"]
    output = run_worlds("try", str(spec), "--seed", "2", stdin="\n".join(lines) + "\n")
    assert "renew_loan           * Renew a loan." in output
    assert output.count('{"id":"l001",') == 2
    assert "acts/return_tool/l" in output
    assert "a fresh world of seed 3\nnothing has changed" in output
    assert "no moon; there is branch, member, tool, loan, acts" in output
    assert "renew_loan: get_loan > renew_loan" in output
    assert "no command or tool 'renew'; did you mean renew_loan?" in output
    assert "never" not in output


def test_any_world_can_be_tried_and_an_unknown_one_is_refused() -> None:
    assert "order (100)" in run_worlds("try", "retail", stdin="state\nask zh\nsolve\n")
    assert "[" in run_worlds("try", "gen-7", stdin="task zh\nsolve\n")
    assert "no world is called 'bankin'; did you mean 'banking'?" in " ".join(run_worlds("try", "bankin", code=2).split())
