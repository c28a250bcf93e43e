"""`headrace value` and `headrace worlds learn`: plans, tables and refusals of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.store import Store
from synth.run.config import SynthesisConfig
from synth.run.synthesize import synthesize

SPEC = Path(__file__).resolve().parents[2] / "synth" / "car_workshop.yaml"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose conversations are in a world of the user's and in one of the library."""
    root = tmp_path_factory.mktemp("value-command") / "store"
    worlds = {"worlds": [str(SPEC), "library"], "accepted": 30, "calibration": 24, "chinese_share": 0.0, "code_share": 0.0}
    synthesize(Store(root), SynthesisConfig.model_validate(worlds))
    return root


def test_a_dry_run_of_value_prints_the_sources_and_trains_nothing(store: Path) -> None:
    code, printed = run("value", "--store", str(store), "--dry-run")

    assert code == 0
    assert "library" in printed
    assert "car_workshop" in printed
    assert "proxies to train" in printed
    assert not (store.parent / "value").exists()


def test_value_prints_gains_and_says_how_far_to_trust_them(store: Path) -> None:
    code, printed = run("value", "--store", str(store), "--runs", "8", "--data-tokens", "5000", "--train-tokens", "10000")

    assert code == 0, printed
    assert "Spearman" in printed
    (folder,) = (store.parent / "value").iterdir()
    assert {"value.json", "value.html", "weights.json"} <= {path.name for path in folder.iterdir()}


def test_worlds_learn_plans_for_names_files_and_ranges() -> None:
    code, printed = run("worlds", "learn", "library", str(SPEC), "gen-1..3", "--dry-run")

    assert code == 0
    assert "library, car_workshop" in printed
    assert "gen-1" in printed


def test_worlds_learn_refuses_what_is_no_world() -> None:
    code, printed = run("worlds", "learn", "librari", "--dry-run")

    assert code == 2
    assert "did you mean 'library'?" in printed
