"""`headrace config` prints all keys, all problems of a file, and its differences from the defaults."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from flows.cli.main import app
from flows.config import Config, read
from flows.yaml_config import load

ROOT = Path(__file__).parents[3]
WRONG = """store: x/store
curate:
  coverage: {kepe: 3, keep: 0}
  near: {rule: all}
  contamination: {held_out: [{name: a, fil: b}]}
synthesize:
  worlds: [retial]
  seed: many
  seed: 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["config", *arguments])


def test_the_reference_is_a_configuration_file_of_the_defaults(here: Path) -> None:
    shown = call("show")
    assert (shown.exit_code, shown.stdout) == (0, call().stdout)
    Path("full.yaml").write_text(shown.stdout)
    assert load(Path("full.yaml"), Config) == Config()


def test_values_of_a_file_are_shown_with_their_defaults(here: Path) -> None:
    Path("c.yaml").write_text("curate: {coverage: {keep: 7}}\n")
    shown = call("show", "c.yaml").stdout
    assert "[integer >= 1; default: 100]\n    keep: 7\n" in shown
    Path("full.yaml").write_text(shown)
    assert read(Path("full.yaml")) == read(Path("c.yaml"))


def test_all_problems_of_a_file_are_told_at_once_a_line_each(here: Path) -> None:
    Path("c.yaml").write_text(WRONG)
    result = call("check", "c.yaml")
    assert result.exit_code == 2 and result.stderr == ""
    assert sorted(result.stdout.splitlines()[:-1]) == [
        "c.yaml:3: `curate.coverage.keep`: must be greater than or equal to 1, not 0",
        "c.yaml:3: unknown key `curate.coverage.kepe`; did you mean `keep`?",
        "c.yaml:4: `curate.near.rule`: must be 'keep_first' or 'components', not 'all'",
        "c.yaml:5: `curate.contamination.held_out.0.file`: Field required",
        "c.yaml:5: unknown key `curate.contamination.held_out.0.fil`; did you mean `file`?",
        "c.yaml:7: `synthesize.worlds.0`: no world is called 'retial'; did you mean 'retail'?",
        "c.yaml:9: the key `seed` is given twice; keep one",
    ]
    assert result.stdout.splitlines()[-1] == "c.yaml: 7 problems; `headrace config` explains every key"


def test_a_run_is_refused_with_the_first_problems_and_the_command_that_lists_all(here: Path) -> None:
    Path("c.yaml").write_text(WRONG)
    result = CliRunner().invoke(app, ["run", "--config", "c.yaml", "--dry-run"])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "unknown key `curate.coverage.kepe`" in result.stderr
    assert "; and 5 more: headrace config check c.yaml" in result.stderr
    assert "retial" not in result.stderr


def test_a_correct_file_is_valid_and_an_unreadable_one_is_bad_input(here: Path) -> None:
    Path("c.yaml").write_text("store: x/store\n")
    right = call("check", "c.yaml")
    assert (right.exit_code, right.stdout) == (0, "c.yaml: valid\n")
    Path("d.yaml").write_text("synthesize: [")
    Path("e.yaml").write_text("families: nowhere.yaml\n")
    for name, says in (("b.yaml", "no such configuration file"), ("d.yaml", "not valid YAML"), ("e.yaml", "nowhere.yaml")):
        for command in ("check", "show", "diff"):
            result = call(command, name)
            assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), (command, name, result.output)
            assert says in result.stderr


def test_the_differences_from_the_defaults_are_a_configuration_file(here: Path) -> None:
    Path("c.yaml").write_text("curate: {coverage: {keep: 7, rare_share: 0.75}}\ntrain: {worlds: [retail]}\n")
    shown = call("diff", "c.yaml").stdout
    assert shown.splitlines() == [
        "curate:",
        "  coverage:",
        "    keep: 7  # default: 100",
        "train:",
        "  worlds: [retail]  # default: [retail, library]",
    ]
    Path("d.yaml").write_text("store: runs/sample/store\n")
    same = call("diff", "d.yaml").stdout
    assert same == "# d.yaml: every value is the default\n" and yaml.safe_load(same) is None


def examples(command: str) -> list[str]:
    """The example commands in the help of a command."""
    group = typer.main.get_command(app).commands["config"]  # type: ignore[attr-defined]
    text = (group.commands[command] if command else group).help
    return re.findall(r"^ *(?:Example: )?headrace (config\b.*)$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("command", ["", "show", "check", "diff"])
def test_the_examples_of_the_help_work(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(ROOT)
    assert examples(command)
    for example in examples(command):
        result = CliRunner().invoke(app, shlex.split(example.split(" > ")[0]))
        assert result.exit_code == 0 and result.stdout, (example, result.output)
