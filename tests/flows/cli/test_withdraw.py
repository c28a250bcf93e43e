"""`headrace withdraw`: what it prints, what it asks for, and that later commands take nothing of the source."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.config import Config, recall, remember
from flows.runtime.store_lock import hold_store
from storage.errors import BadInput
from storage.report.page import write_report
from storage.store import Store
from storage.withdrawals.withdraw_source import withdraw_source
from storage.withdrawals.withdrawal_plan import find_source
from tests.storage.conftest import build_sample, write


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sample(tmp_path_factory.mktemp("built") / "store").store.root


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "store"))


def call(root: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["withdraw", *arguments, "--store", str(root)])
    assert result.exit_code == code, result.output
    return " ".join((result.stdout + result.stderr).split())


def test_a_dry_run_prints_the_numbers_and_changes_nothing(root: Path) -> None:
    before = Store(root).content_hash()

    said = call(root, "log.txt", "--dry-run")

    assert "query file log.txt would be withdrawn" in said
    assert "queries 6" in said
    assert "rollouts 8" in said
    assert "policy-1, policy-2" in said
    assert "nothing was done" in said
    assert Store(root).content_hash() == before


def test_it_hides_the_rows_and_says_what_replaced_what(root: Path) -> None:
    report = write_report(Store(root))
    assert "buy me a lamp" in report.read_text()

    said = call(root, "log.txt", "--reason", "the customer asked", "--author", "Ada", "--yes")

    assert "by Ada: the customer asked" in said
    assert "is replaced by release-" in said
    assert "has nothing left, and no successor" in said
    assert "policies that learned from it: policy-1, policy-2" in said
    assert Store(root).query("SELECT count(*) FROM queries").item() == 0
    assert "buy me a lamp" not in report.read_text(), "the report is written anew"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("log.txt", "--author", "Ada", "--yes"), "say why"),
        (("log.txt", "--reason", "why", "--author", "Ada"), "add --yes"),
        (("absent.txt", "--reason", "why", "--yes"), "has no rows of 'absent.txt'"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_done(root: Path, arguments: tuple[str, ...], says: str) -> None:
    before = Store(root).content_hash()
    assert says in call(root, *arguments, code=2)
    assert Store(root).content_hash() == before


def test_a_store_that_is_worked_on_is_left_alone(root: Path) -> None:
    """Given a flow of another process on the store, then the command is refused with its name."""
    held = "import sys, pathlib; from flows.runtime.store_lock import hold_store\nwith hold_store('train', pathlib.Path(sys.argv[1])):\n"
    held += " print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", held, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        said = call(root, "log.txt", "--reason", "why", "--yes", code=1)
        other.communicate("")

    assert "is being worked on by train" in said
    assert Store(root).query("SELECT count(*) FROM queries").item() == 6


def test_a_later_run_in_a_withdrawn_world_is_refused_and_a_default_leaves_it_out(root: Path) -> None:
    named = Config.model_validate(
        {"store": root, "synthesize": {"worlds": ["retail", "banking"]}, "train": {"worlds": ["retail", "banking"]}}
    )
    remember(named, "synthesize", "train")
    withdraw(root, "retail")

    for flow, key in (("synthesize", "synthesize.worlds"), ("train", "train.worlds")):
        with pytest.raises(BadInput, match=f"{key} names a withdrawn source.*world retail, withdrawn on"):
            remember(named, flow)  # type: ignore[arg-type]
    assert recall(Config.model_validate({"store": root})).synthesize.worlds == ("banking",)
    assert recall(Config.model_validate({"store": root})).train.worlds == ("banking",)


def test_a_withdrawn_teacher_plays_no_role_again(root: Path) -> None:
    store = Store(root)
    store.commit([write(store, "trajectories", {"trajectory_id": "trajectory-9", "teacher": "openai:big", "world": "retail"}, n=9)])
    withdraw(root, "openai:big")

    with pytest.raises(BadInput, match=r"synthesize\.roles names a withdrawn source.*teacher openai:big"):
        remember(Config.model_validate({"store": root, "synthesize": {"roles": {"assistant": "openai:big"}}}), "synthesize")
    with pytest.raises(BadInput, match=r"train\.experts\.engine"):
        remember(Config.model_validate({"store": root, "train": {"experts": {"engine": "openai:big"}}}), "train")


def withdraw(root: Path, name: str) -> None:
    with hold_store("withdraw", root):
        withdraw_source(Store(root), find_source(Store(root), name), reason="why", author="Ada", at="2026-11-29")
