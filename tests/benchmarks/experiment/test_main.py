"""`python -m benchmarks.experiment`: its plan, and configurations that it refuses at the door."""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from benchmarks.experiment.__main__ import main

app = typer.Typer()
app.command()(main)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, " ".join(result.output.split())


def test_a_dry_run_shows_arms_sizes_and_minutes_and_writes_nothing(tmp_path: Path) -> None:
    code, output = run("--dry-run", "--store", str(tmp_path / "store"))
    assert code == 0
    assert "51 trainings" in output
    assert "minutes" in output
    assert "controller without run_python" in output
    assert not (tmp_path / "store").exists()


def test_a_wrong_configuration_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("sizes: [125, 250]\nablated_sise: 250\n")
    code, output = run("--config", str(file), "--store", str(tmp_path / "store"))
    assert code == 2
    assert "experiment.yaml:2" in output
    assert "ablated_size" in output
    assert not (tmp_path / "store").exists()
