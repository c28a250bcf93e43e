"""What all backends share, by a scripted one: a stage is run once, and ended where this process is asked to end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from storage.errors import HeadraceError
from train.backends.base import Backend, Handle, Need, StageFailed, StepProgress, run_stage
from train.backends.cluster import ClusterConfig
from train.backends.ray import RayBackend
from train.backends.schedulers.kuberay import KubeRayBackend
from train.backends.schedulers.slurm import SlurmBackend
from train.spec import RLSettings, SFTSettings, StageSpec

RESULT = {"weights_hash": "00", "metrics": {}}


class Scripted(Backend[Handle]):
    """Notes what is asked of it. ends: how `follow` does; None: with a result."""

    def __init__(self, ends: BaseException | None = None, *, has_result: bool = False) -> None:
        super().__init__()
        self.calls: list[str] = []
        self._ends, self._has_result = ends, has_result

    def launch(self, spec: StageSpec, folder: Path) -> Handle | None:
        self.calls.append("launch")
        if self._has_result:
            _arrive(folder)
        return None if self._has_result else Handle(spec, folder, "job-1")

    def follow(self, handle: Handle, progress: StepProgress = lambda *_: None) -> None:
        self.calls.append(f"follow {handle.name}")
        progress(1, 2, "loss 1")
        if self._ends is not None:
            raise self._ends
        _arrive(handle.folder)

    def cancel(self, handle: Handle) -> None:
        self.calls.append(f"cancel {handle.name}")

    def needs(self, spec: StageSpec) -> Sequence[Need]:
        return ()


def _arrive(folder: Path) -> None:
    (folder / "result.json").write_text(json.dumps(RESULT))


@pytest.fixture
def spec(tmp_path: Path) -> StageSpec:
    fields: dict[str, Any] = {"name": "sft1", "algorithm": "sft", "release_id": "r", "split": "seed", "sft": SFTSettings()}
    return StageSpec(store=tmp_path, model_out=tmp_path / "models" / "stage-1" / "model", **fields)


def test_a_stage_is_launched_followed_and_not_run_again(spec: StageSpec, tmp_path: Path) -> None:
    backend, reports, folder = Scripted(), list[tuple[int, int, str]](), tmp_path / "models" / "stage-1"
    assert run_stage(backend, spec, folder, lambda *steps: reports.append(steps)) == RESULT
    assert (backend.calls, reports) == (["launch", "follow job-1"], [(1, 2, "loss 1")])
    assert run_stage(backend, spec, folder) == RESULT
    assert len(backend.calls) == 2


def test_a_result_that_the_launch_has_found_is_not_waited_for(spec: StageSpec, tmp_path: Path) -> None:
    backend = Scripted(has_result=True)
    assert run_stage(backend, spec, tmp_path / "stage-1") == RESULT
    assert backend.calls == ["launch"]


def test_a_stage_that_is_done_leaves_neither_checkpoints_nor_an_earlier_failure(spec: StageSpec, tmp_path: Path) -> None:
    folder = tmp_path / "stage-1"
    (folder / "checkpoints" / "step-1").mkdir(parents=True)
    (folder / "failure.json").write_text("{}")
    run_stage(Scripted(), spec, folder)
    assert [path.name for path in folder.iterdir()] == ["result.json"]


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), SystemExit()])
def test_a_request_to_end_cancels_the_stage(spec: StageSpec, tmp_path: Path, ends: BaseException) -> None:
    backend = Scripted(ends)
    with pytest.raises(type(ends)):
        run_stage(backend, spec, tmp_path / "stage-1")
    assert backend.calls == ["launch", "follow job-1", "cancel job-1"]


@pytest.mark.parametrize("ends", [StageFailed("out of memory", "memory"), HeadraceError("no answer"), ValueError("a fault of ours")])
def test_an_error_leaves_the_stage_alone_and_its_checkpoints_too(spec: StageSpec, tmp_path: Path, ends: Exception) -> None:
    backend, folder = Scripted(ends), tmp_path / "stage-1"
    (folder / "checkpoints").mkdir(parents=True)
    with pytest.raises(type(ends)):
        run_stage(backend, spec, folder)
    assert backend.calls == ["launch", "follow job-1"] and (folder / "checkpoints").exists()


def test_a_backend_needs_no_more_than_four_methods(spec: StageSpec, tmp_path: Path) -> None:
    assert (Scripted().processes(spec), Scripted().render(spec, tmp_path)) == (1, {})


@pytest.mark.parametrize("backend", [RayBackend, SlurmBackend, KubeRayBackend])
@pytest.mark.parametrize(("sharding", "nodes", "processes"), [("none", 1, 4), ("fsdp", 2, 8)])
def test_a_backend_of_a_cluster_says_the_gpus_of_its_section(
    spec: StageSpec, backend: Any, sharding: Any, nodes: int, processes: int
) -> None:
    """Then SFT uses all of them, and RL one."""
    on = backend(ClusterConfig(nodes=nodes, gpus_per_node=4, sharding=sharding))
    rl = spec.model_copy(update={"algorithm": "rl", "sft": None, "rl": RLSettings()})
    assert (on.processes(spec), on.gpus(spec), on.is_sharded(spec)) == (processes, processes, sharding == "fsdp")
    assert (on.processes(rl), on.gpus(rl), on.is_sharded(rl)) == (1, 1, False)
