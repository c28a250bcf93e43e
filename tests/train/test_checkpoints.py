"""An RL stage that is killed resumes from its last checkpoint, with the same results as an uninterrupted one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import train.checkpoints
import train.rl.task_sampler
from filters.certainty.running_tags import RunningTags
from storage.errors import HeadraceError
from tests.train import warm_processes
from tests.train.rl_stages import RL, rl_stages
from train.backends.base import run_stage
from train.backends.local import LocalBackend
from train.run import run
from train.spec import CHECKPOINTS, StageSpec

pytestmark = pytest.mark.usefixtures("in_process")

LEFT = ("metrics.jsonl", "tags.jsonl", "result.json")


class Killed(BaseException):
    """Stands in for SIGKILL where the process must go on: nothing of the project catches it."""


@pytest.fixture(scope="module")
def make_spec(tmp_path_factory) -> Callable[..., StageSpec]:
    return rl_stages(tmp_path_factory.mktemp("stages"))


@pytest.fixture(scope="module")
def undisturbed(make_spec, tmp_path_factory) -> dict[bool, dict[str, str]]:
    """What undisturbed stages leave, by whether their draws follow the tags."""
    return {follow: left(ended(make_spec(tmp_path_factory.mktemp("whole"), follow_tags=follow))) for follow in (False, True)}


def ended(spec: StageSpec) -> Path:
    run(spec)
    return spec.model_out.parent


def left(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in LEFT}


def killed_at_step(spec: StageSpec, step: int) -> None:
    """Runs a stage until it draws the tasks of a step, from 0."""

    def draw(self: Any, wanted: int) -> Any:
        if wanted == step:
            raise Killed
        return plain(self, wanted)

    plain = train.rl.task_sampler.FreshTasks._draw
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(train.rl.task_sampler.FreshTasks, "_draw", draw)
        run(spec)


def drawn(spec: StageSpec, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs a stage; the steps, from 0, whose tasks it drew."""
    steps, plain = [], train.rl.task_sampler.FreshTasks._draw
    monkeypatch.setattr(train.rl.task_sampler.FreshTasks, "_draw", lambda self, step: steps.append(step) or plain(self, step))
    run(spec)
    return steps


def weights_of(spec: StageSpec, monkeypatch: pytest.MonkeyPatch) -> dict[int, list[float]]:
    """Runs a stage; the weights that it drew each step's tasks by."""
    seen, plain = dict[int, list[float]](), train.rl.task_sampler.FreshTasks._draw
    with monkeypatch.context() as patch:
        patch.setattr(
            train.rl.task_sampler.FreshTasks, "_draw", lambda self, step: seen.update({step: list(self.weights())}) or plain(self, step)
        )
        run(spec)
    return seen


# ---- going on ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("step", "goes_on_at", "follow"), [(1, 0, False), (2, 2, True), (3, 2, True), (4, 4, False)])
def test_a_stage_killed_at_any_step_ends_as_if_it_had_not_been(undisturbed, make_spec, tmp_path, monkeypatch, step, goes_on_at, follow):
    """Given a stage that died in a step, when it is run again, then it goes on at the step after its last checkpoint, and weights, metrics
    and running tags are to the bit those of an undisturbed one."""
    spec = make_spec(tmp_path, follow_tags=follow)
    killed_at_step(spec, step)
    assert drawn(spec, monkeypatch) == list(range(goes_on_at, RL.max_steps))
    assert left(tmp_path) == undisturbed[follow]


@pytest.mark.slow
def test_a_stage_that_learns_from_each_batch_twice_goes_on_at_a_batch_it_has_not_seen(make_spec, tmp_path, monkeypatch):
    whole = left(ended(make_spec(tmp_path / "whole", updates_a_batch=2)))
    spec = make_spec(tmp_path / "killed", updates_a_batch=2)
    killed_at_step(spec, 3)
    assert drawn(spec, monkeypatch) == [2, 3, 4]
    assert left(tmp_path / "killed") == whole


@pytest.mark.slow
def test_a_stage_that_is_rolled_back_goes_on_at_its_anchors(make_spec, tmp_path):
    """Given a stage with starts in the middle of tasks, killed in a step, then it ends as if it had not been."""
    settings = {"start": "rollback", "loss": "ipa", "credit": "chunk_return", "max_steps": 7, "draws": 8}
    whole = left(ended(make_spec(tmp_path / "whole", **settings)))
    lessons = [json.loads(line)["lessons"] for line in whole["metrics.jsonl"].splitlines()]
    assert lessons[5] > 0, "a step whose lessons need the rollouts of steps before the checkpoint"
    spec = make_spec(tmp_path / "killed", **settings)
    killed_at_step(spec, 5)
    assert left(ended(spec)) == whole


@pytest.mark.slow
def test_a_stage_killed_again_and_again_ends_too(undisturbed, make_spec, tmp_path):
    spec = make_spec(tmp_path, follow_tags=True)
    for step in (2, 3, 4):
        killed_at_step(spec, step)
    assert left(ended(spec)) == undisturbed[True]


@pytest.mark.slow
def test_a_checkpoint_counts_although_the_one_before_it_is_still_there(undisturbed, make_spec, tmp_path, monkeypatch):
    spec, plain = make_spec(tmp_path), train.checkpoints.shutil.rmtree

    def remove(path: Any, **options: Any) -> None:
        if Path(path).name == "step-000000002":
            (Path(path) / "stage.json").unlink()
            raise Killed
        plain(path, **options)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(train.checkpoints.shutil, "rmtree", remove)
        run(spec)
    assert len(list((tmp_path / CHECKPOINTS).glob("step-*"))) == 2
    assert drawn(spec, monkeypatch) == [4]
    assert left(tmp_path) == undisturbed[False]


@pytest.mark.slow
def test_a_stage_killed_after_its_last_checkpoint_makes_no_step_more(undisturbed, make_spec, tmp_path, monkeypatch):
    """Given a stage that was killed when it was about to write its model, then what its last checkpoint holds is its result."""
    spec = make_spec(tmp_path)

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr("train.run._put_in_place", die)
        run(spec)
    assert [path.name for path in (tmp_path / CHECKPOINTS).iterdir()] == ["step-000000005"]
    assert drawn(spec, monkeypatch) == []
    assert left(tmp_path) == undisturbed[False]


@pytest.mark.slow
def test_a_checkpoint_whose_removal_was_killed_is_none(undisturbed, make_spec, tmp_path, monkeypatch):
    spec = make_spec(tmp_path)
    killed_at_step(spec, 3)
    (tmp_path / CHECKPOINTS / "step-000000002" / "stage.json").unlink()
    assert drawn(spec, monkeypatch) == list(range(RL.max_steps))
    assert left(tmp_path) == undisturbed[False]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Inverts 64 bytes in the middle, which no loader notices."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(255 - byte for byte in content[middle : middle + 64])
    path.write_bytes(content)


def empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


DAMAGE = [
    ("optimizer.pt", cut),
    ("model.safetensors", flip),
    ("optimizer.pt", Path.unlink),
    ("stage.json", cut),
    (".", empty),
    (".", as_file),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "harm"), DAMAGE, ids=[f"{name} {harm.__name__}" for name, harm in DAMAGE])
def test_a_damaged_checkpoint_is_none(undisturbed, make_spec, tmp_path, monkeypatch, capfd, name, harm):
    """Given a checkpoint that is cut, altered or gone, then its stage begins at the beginning and ends as an undisturbed one."""
    spec = make_spec(tmp_path)
    killed_at_step(spec, 3)
    harm(tmp_path / CHECKPOINTS / "step-000000002" / name)
    assert drawn(spec, monkeypatch) == list(range(RL.max_steps))
    assert left(tmp_path) == undisturbed[False]
    assert ("is damaged: the stage starts again" in capfd.readouterr().err) == (name not in ("stage.json", "."))


KILL = {
    "in a step": "add = filters.certainty.running_tags.RunningTags.add\n"
    "filters.certainty.running_tags.RunningTags.add = lambda self, *a, step, **k: die() if step == 3 else add(self, *a, step=step, **k)",
    "in the writing of a checkpoint": "train.checkpoints.sync_file = lambda path: 'checkpoint-4' in str(path) and die()",
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", KILL)
def test_kill_9_loses_and_doubles_nothing(undisturbed, make_spec, tmp_path, monkeypatch, moment):
    spec = make_spec(tmp_path)
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    code = (
        "import os, signal, sys, filters.certainty.running_tags, train.checkpoints\nfrom train.run import main\n"
        f"die = lambda: os.kill(os.getpid(), signal.SIGKILL)\n{KILL[moment]}\nmain(sys.argv[1:])"
    )
    log = tmp_path.with_suffix(".log")
    assert warm_processes.run_code(code, str(tmp_path / "spec.json"), log=log) == -9, log.read_text()
    assert drawn(spec, monkeypatch) == [2, 3, 4]
    assert left(tmp_path) == undisturbed[False]


@pytest.mark.slow
def test_tags_that_are_not_restored_would_show(undisturbed, make_spec, tmp_path, monkeypatch):
    """The negative control of the tests above: draws that follow the tags have weights that depend on all rollouts before them."""
    whole, spec = make_spec(tmp_path / "whole", follow_tags=True), make_spec(tmp_path / "killed", follow_tags=True)
    expected = weights_of(whole, monkeypatch)
    killed_at_step(spec, 3)
    monkeypatch.setattr(RunningTags, "restore", lambda *_: None)
    found = weights_of(spec, monkeypatch)
    assert left(tmp_path / "killed")["tags.jsonl"] != undisturbed[True]["tags.jsonl"]
    assert all(found[step] != expected[step] for step in (2, 3, 4))


# ---- what is kept, and what is not gone on from ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_last_checkpoint_is_kept_and_none_after_the_end(make_spec, tmp_path):
    spec = make_spec(tmp_path)
    killed_at_step(spec, 4)
    assert [path.name for path in (tmp_path / CHECKPOINTS).iterdir()] == ["step-000000004"]
    ended(spec)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "model", "result.json", "tags.jsonl"]


def test_what_a_stage_left_that_died_at_its_very_end_is_removed(make_spec, tmp_path):
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / CHECKPOINTS / "step-000000005").mkdir(parents=True)
    run_stage(LocalBackend(), make_spec(tmp_path), tmp_path)
    assert not (tmp_path / CHECKPOINTS).exists()


@pytest.mark.slow
def test_no_checkpoints_on_demand_and_the_same_result(undisturbed, make_spec, tmp_path, monkeypatch):
    spec = make_spec(tmp_path, checkpoint_steps=0)
    killed_at_step(spec, 3)
    assert not (tmp_path / CHECKPOINTS).exists()
    assert drawn(spec, monkeypatch) == list(range(RL.max_steps))
    assert left(tmp_path) == undisturbed[False]


@pytest.mark.slow
def test_a_checkpoint_of_another_spec_is_removed(make_spec, tmp_path, monkeypatch):
    """Given the checkpoint of a stage with another learning rate, then this one begins at the beginning; with another distance between
    checkpoints, which changes no result, it goes on."""
    killed_at_step(make_spec(tmp_path, learning_rate=1e-3), 3)
    assert drawn(make_spec(tmp_path), monkeypatch)[0] == 0
    killed_at_step(make_spec(tmp_path), 3)
    assert drawn(make_spec(tmp_path, checkpoint_steps=3), monkeypatch)[0] == 2


@pytest.mark.slow
def test_a_checkpoint_by_other_code_is_removed(make_spec, tmp_path, monkeypatch):
    killed_at_step(make_spec(tmp_path), 3)
    monkeypatch.setattr("train.run.code_hash", lambda *_: "other")
    assert drawn(make_spec(tmp_path), monkeypatch)[0] == 0


def test_a_full_disk_is_told_in_one_line(make_spec, tmp_path, monkeypatch):
    """A checkpoint that cannot be written ends the stage, and the one before it stands."""
    spec = make_spec(tmp_path)

    def full(path: Path) -> None:
        if "checkpoint-4" in str(path):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(train.checkpoints, "sync_file", full)
    with pytest.raises(HeadraceError, match=r"no space left on the disk of .* while saving a checkpoint"):
        run(spec)
    assert sorted(path.name for path in (tmp_path / CHECKPOINTS).glob("step-*")) == ["step-000000002"]
