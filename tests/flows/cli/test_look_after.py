"""`headrace store` on a store that no other command opens: damaged, of another version, or not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.store import Store
from storage.tables import schema_version
from tests.storage.health.test_damage_and_repair import cut, part_file, work
from tests.storage.health.test_upgrade import OLDER, unpacked


def call(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["store", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def root(tmp_path: Path) -> Path:
    work(Store(tmp_path / "store"))
    return tmp_path / "store"


@pytest.mark.parametrize("name", ["catalog.read.duckdb", "catalog.duckdb"])
def test_a_store_that_cannot_be_opened_is_checked_and_repaired(root: Path, name: str) -> None:
    """Given a file of the catalogue that was cut, then the check names it, and the repair brings the store back."""
    expected = Store(root).content_hash()
    (root / name).write_bytes((root / name).read_bytes()[:4_000])
    assert f"{name} cannot be read" in call("check", "--store", str(root), code=1)
    assert "set aside" in call("repair", "--store", str(root))
    assert "is whole" in call("check", "--store", str(root))
    assert Store(root).content_hash() == expected


def test_a_lost_part_is_told_with_the_commands_that_make_it_again(root: Path) -> None:
    cut(part_file(root))
    told = call("repair", "--store", str(root))
    assert "forgotten, by table and parts: funnel 1, policies 1, queries 1, rollouts 1, verdicts 1" in told
    assert "headrace curate, headrace train, headrace tag" in told
    assert "nothing was done" in call("repair", "--store", str(root))


@pytest.mark.parametrize("version", OLDER)
def test_an_older_store_is_upgraded_only_with_yes(tmp_path: Path, version: str) -> None:
    root = unpacked(version, tmp_path)
    assert "nothing was done, --yes does it" in call("upgrade", "--store", str(root))
    assert f"from schema version {version} to {schema_version()}" in call("upgrade", "--yes", "--store", str(root))
    assert "is of this version" in call("upgrade", "--yes", "--store", str(root))
    assert Store(root).query("FROM policies").height == 2


def test_a_backup_is_restored_and_pruned_files_go_only_with_yes(root: Path, tmp_path: Path) -> None:
    assert "files, " in call("backup", str(tmp_path / "backup"), "--store", str(root))
    assert "as it was backed up" in call("restore", str(tmp_path / "backup"), "--store", str(tmp_path / "new"))
    (root / "damaged/2026").mkdir(parents=True)
    (root / "damaged/2026/x").write_text("x")
    shown = call("prune", "--older-than", "0", "--store", str(root))
    assert shown.startswith(str(root)[:60]) and "nothing was done; --yes would free 23 B" in shown
    assert "removed; 23 B are free" in call("prune", "--older-than", "0", "--yes", "--store", str(root))
    assert not (root / "damaged/2026").exists()
    rows = json.loads(call("stat", "--json", "--store", str(root)))
    assert {"rollouts", "catalogue", "models"} <= {row["what"] for row in rows}


@pytest.mark.parametrize("command", ["check", "repair", "upgrade"])
def test_a_folder_that_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path, command: str) -> None:
    assert "is no store" in call(command, "--store", str(tmp_path / "typo"), code=2)
    assert not (tmp_path / "typo").exists()


def test_a_size_that_is_none_is_refused(root: Path) -> None:
    assert "is no size; write it as 20G or 500M" in call("prune", "--keep", "many", "--store", str(root), code=2)


@pytest.mark.parametrize("command", ["repair", "upgrade", "prune"])
def test_a_command_that_writes_says_so(command: str) -> None:
    told = " ".join(call(command, "--help").replace("│", " ").split())
    assert "Store to work on" in told and "Store to read" not in told
    assert command != "prune" or ("parts that were never committed" in told and "stages that were not finished" in told)


def test_an_older_store_is_not_called_damaged(tmp_path: Path) -> None:
    root = unpacked(OLDER[0], tmp_path)
    for command in ("check", "repair"):
        told = call(command, "--store", str(root), code=2)
        assert "headrace store upgrade" in told and "damaged" not in told
