"""What a launcher on this machine does with its child; the child itself is tried in tests/train/test_run.py."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from storage.errors import BadInput
from tests.train.backends.small_stages import is_alive
from train.backends import local
from train.backends.base import StageFailed
from train.backends.local import Child, LocalBackend
from train.spec import SFTSettings, StageSpec


@pytest.fixture
def spec(tmp_path: Path) -> StageSpec:
    return StageSpec(
        name="sft1", algorithm="sft", store=tmp_path, release_id="r", split="seed", model_out=tmp_path / "model", sft=SFTSettings()
    )


def test_a_failure_says_its_kind_in_another_process_too() -> None:
    """Tasks of a flow hand their errors on as pickles."""
    failure = pickle.loads(pickle.dumps(StageFailed("stage rl was killed", "memory")))
    assert (str(failure), failure.kind) == ("stage rl was killed", "memory")


def test_a_cancelled_child_is_gone_and_cancelled_again_nothing_happens(spec: StageSpec, tmp_path: Path) -> None:
    process = local.start([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log.txt")
    child = Child(spec, tmp_path, str(process.pid), process)
    assert is_alive(process.pid)
    LocalBackend().cancel(child)
    assert not is_alive(process.pid)
    LocalBackend().cancel(child)


def test_a_child_does_not_outlive_an_error_of_whoever_follows_it(spec: StageSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("the terminal is gone")

    monkeypatch.setattr(local, "_REPORT_EVERY_S", 0.01)
    process = local.start([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log.txt")
    with pytest.raises(ValueError, match="the terminal is gone"):
        LocalBackend().follow(Child(spec, tmp_path, str(process.pid), process), fails)
    assert not is_alive(process.pid)


def test_a_library_that_is_missing_is_named_before_anything_is_started(spec: StageSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    (need,) = LocalBackend().needs(spec)
    assert need.check is not None
    need.check(0.0)
    monkeypatch.setattr(local, "_LIBRARIES", ("json", "no_such_trl"))
    with pytest.raises(BadInput, match=r"^training needs no_such_trl: pip install 'headrace\[train\]'$"):
        need.check(0.0)
