"""`headrace package`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from flows.cli.main import app


def call(*arguments):
    return CliRunner().invoke(app, ["package", *map(str, arguments)])


def test_tasks_drawn_in_worlds_become_a_package(tmp_path):
    done = call("--for", "inspect", "-w", "retail", "-w", "banking", "--n", 4, "--out", tmp_path / "shop")
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "shop" / "manifest.json").read_text())
    assert manifest["package_for"] == "inspect" and sum(manifest["tasks"].values()) == 8
    assert "train" in done.output and "headrace package --check" in done.output


def test_a_world_of_a_file_travels(tmp_path):
    done = call("--for", "openenv", "--world", "tests/synth/car_workshop.yaml", "--n", 4, "--out", tmp_path / "garage")
    assert done.exit_code == 0, done.output
    row = json.loads((tmp_path / "garage" / "data" / "worlds.jsonl").read_text())
    assert row["world"].startswith("car_workshop@") and row["spec"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--world", "retail"), "--for verifiers --out DIR"),
        (("--for", "inspect", "--out", "x", "--world", "retial"), "did you mean 'retail'"),
        (("--for", "inspect", "--out", "x", "rl", "--world", "retail"), "leave out the release"),
        (("--check", "docs"), "holds no package"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, words, tmp_path, monkeypatch):
    done = call(*arguments)
    assert done.exit_code != 0
    assert words in " ".join(done.output.split())
    assert len(done.output.strip().splitlines()) <= 3


def test_a_folder_with_something_else_is_not_touched(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = call("--for", "harbor", "--world", "retail", "--n", 2, "--out", tmp_path)
    assert done.exit_code != 0 and "not an export of Headrace" in " ".join(done.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
