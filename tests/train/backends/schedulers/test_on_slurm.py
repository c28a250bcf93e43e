"""The backend slurm on a real Slurm cluster, which this machine starts for itself where Slurm is installed (`own_slurm.py`)."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput
from tests.train.backends.schedulers.own_slurm import OwnSlurm, missing, own_slurm
from tests.train.backends.small_stages import SFT, released, spec_of
from train.backends.base import StageFailed, run_stage
from train.backends.cluster import ClusterConfig
from train.backends.schedulers import slurm
from train.backends.schedulers.slurm import SlurmBackend
from train.spec import StageSpec

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnSlurm]:
    folder = Path(tempfile.mkdtemp(prefix="own-slurm-", dir="/tmp"))
    try:
        with own_slurm(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stage(cluster: OwnSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[StageSpec, Path]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
    monkeypatch.setattr(slurm, "POLL_S", 0.5)
    folder = tmp_path / "store" / "models" / "stage-1"
    spec = spec_of(*released(tmp_path / "store"), folder)
    folder.mkdir(parents=True)
    return spec, folder


def backend(**section: Any) -> SlurmBackend:
    return SlurmBackend(ClusterConfig.model_validate(section))


def test_a_stage_trains_as_one_job_whose_launcher_was_killed(stage: tuple[StageSpec, Path], cluster: OwnSlurm) -> None:
    spec, folder = stage
    section = {"cpus": 2, "gpus_per_node": 1, "slurm": {"partition": "main", "attempts": 2, "options": ["--mem=2G"]}}
    first = backend(**section).launch(spec, folder)
    second = backend(**section).launch(spec, folder)
    assert first is not None and second == first
    said: list[str] = []
    result = run_stage(backend(**section), spec, folder, lambda *steps: said.append(steps[2]))
    assert result["metrics"]["steps"] == SFT.max_steps and (folder / "model" / "config.json").exists()
    assert json.loads((folder / "job.json").read_text())["state"] == "COMPLETED" and "step 6 of 6" in (folder / "log.txt").read_text()
    if cluster.has_accounts:
        sacct = ["sacct", "-X", "-n", "-P", f"--name={first.name}", "--format=JobID,State"]
        rows = subprocess.run(sacct, capture_output=True, text=True, check=True).stdout.split("\n")
        assert [row.partition("_")[2].split(" by ")[0] for row in rows if row and "CANCELLED" not in row] == ["1|COMPLETED"]


def test_a_cancelled_job_ends_and_says_so(stage: tuple[StageSpec, Path]) -> None:
    spec, folder = stage
    here = backend(slurm={"options": ["--hold"]})
    handle = here.launch(spec, folder)
    assert handle is not None
    here.cancel(handle)
    with pytest.raises(StageFailed, match=r"\(CANCELLED\): it was cancelled; the same command starts it again") as failed:
        here.follow(handle)
    assert failed.value.kind == "stopped"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"slurm": {"partition": "nowhere"}}, "Invalid partition name specified"),
        ({"gpus_per_node": 8}, "Requested node configuration is not available.*no node has so many GPUs"),
        ({"slurm": {"partition": "cpu"}, "nodes": 2, "gpus_per_node": 1}, "not available|Node count"),
        ({"slurm": {"time_limit": "9:00:00"}}, "time limit"),
        ({"slurm": {"options": ["--constraint=h100"]}}, "Invalid feature specification"),
    ],
)
def test_slurm_itself_refuses_what_it_does_not_have_before_a_stage_is_submitted(
    stage: tuple[StageSpec, Path], section: dict[str, Any], words: str
) -> None:
    spec, folder = stage
    (need,) = backend(**section).needs(spec)
    assert need.check is not None
    for refused in (lambda: need.check(5.0), lambda: backend(**section).launch(spec, folder)):
        with pytest.raises(BadInput, match=rf"^Slurm does not take the stage \(.*({words})"):
            refused()
