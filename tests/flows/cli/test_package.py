"""`headrace package`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.store import Store, part_id
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file
from synth.worlds.stored_worlds import worlds_frame


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


def test_a_world_of_a_store_is_found_and_travels(tmp_path):
    world = compile_file(Path("tests/synth/car_workshop.yaml"))
    WORLDS.register(world)
    store = Store(tmp_path / "store")
    store.commit([store.write("worlds", part_id("worlds", [world.name], {}, 1), worlds_frame([world.name]))])
    WORLDS.forget(world.name)
    drawn = ("--for", "openenv", "--world", world.name, "--n", 4)
    try:
        unknown = call(*drawn, "--out", tmp_path / "none")
        done = call(*drawn, "--store", store.root, "--out", tmp_path / "garage")
    finally:
        WORLDS.forget(world.name)
    assert unknown.exit_code != 0 and "no world is called" in unknown.output
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "garage" / "data" / "worlds.jsonl").read_text())["world"] == world.name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--world", "retail"), "--for verifiers --out DIR"),
        (("--for", "inspect", "--out", "x", "--world", "retial"), "did you mean 'retail'"),
        (("--for", "inspect", "--out", "x", "rl", "--world", "retail"), "the release does not go with --world"),
        (("--for", "inspect", "--out", "x", "--licence", "a=b", "--world", "retail"), "--licence does not go with --world"),
        (("--for", "inspect", "--out", "x", "--n", "50"), "--n is for tasks that are drawn; name a --world"),
        (("--for", "inspect", "--out", "x", "--seed", "0"), "--seed is for tasks that are drawn; name a --world"),
        (("--for", "inspect", "--out", "x", "--world", "retail", "--programs", "bin"), "--programs goes with --check DIR"),
        (("--check", "docs", "--for", "inspect"), "--for is for writing a package; leave it out"),
        (("--check", "docs", "--store", "x"), "--store is for writing a package; leave it out"),
        (("--check", "docs", "--n", "3"), "--n is for writing a package; leave it out"),
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
