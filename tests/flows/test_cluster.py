"""Training on a cluster, by command line and flow: what a dry run writes, what is checked first, and what runs a stage."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.config import read
from flows.runtime.doctor import configured_findings
from flows.train import launcher
from storage.store import Store
from tests.conftest import Serve
from tests.train.backends.fake_jobs import RUNNING, FakeJobs
from train.backends import local, ray
from train.backends.cluster import ClusterConfig
from train.cascade import Cascade
from train.spec import SFTSettings, StageSpec

CONFIG = Path(__file__).parents[2] / "configs" / "cluster.yaml"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return tmp_path


def stage_in(folder: Path) -> StageSpec:
    fields = {"name": "sft1", "algorithm": "sft", "release_id": "r", "split": "s", "sft": SFTSettings()}
    return StageSpec(store=folder, model_out=folder / "models" / "stage-1" / "model", **fields)


def test_a_dry_run_writes_every_stages_spec_and_job_and_submits_nothing(here: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeJobs()
    monkeypatch.setenv("RAY_ADDRESS", serve(fake).removesuffix("/v1"))
    result = CliRunner().invoke(app, ["train", "--config", str(CONFIG), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "jobs for the Ray cluster: runs/cluster/dry-run" in result.output
    assert not fake.calls
    folder = here / "runs" / "cluster" / "dry-run"
    assert sorted(path.name for path in folder.iterdir()) == ["rl", "sft1", "sft2"]
    store = here / "runs" / "cluster" / "store"
    assert not store.exists()
    models = []
    for name in ("sft1", "sft2", "rl"):
        spec = StageSpec.model_validate_json((folder / name / "spec.json").read_text())
        job = json.loads((folder / name / "job.json").read_text())
        assert job["entrypoint"] == f"python -P -m train.run {store / 'models' / f'STAGE-{name}' / 'spec.json'}"
        assert job["submission_id"].startswith(f"headrace-STAGE-{name}-")
        models.append((spec.model_in, spec.model_out))
    assert [model_in for model_in, _ in models] == [None, models[0][1], models[1][1]]


@pytest.mark.parametrize("name", ["sft1", "rl"])
def test_a_dry_run_writes_the_spec_of_the_cascade_except_unknown_values(here: Path, name: str) -> None:
    CliRunner().invoke(app, ["train", "--config", str(CONFIG), "--dry-run"])
    written = json.loads((here / "runs" / "cluster" / "dry-run" / name / "spec.json").read_text())
    launched: list[StageSpec] = []

    def launch(spec: StageSpec, _: Path) -> dict[str, Any]:
        launched.append(spec)
        raise InterruptedError

    config = read(CONFIG)
    split = "seed" if name == "sft1" else "rl"
    with pytest.raises(InterruptedError):
        Cascade(Store(config.store), config.train, launch=launch).stage(name, None, "release-1", split, getattr(config.train, name))
    unknown = {"release_id", "model_in", "model_out"}
    assert {key: value for key, value in written.items() if key not in unknown} == launched[0].model_dump(mode="json", exclude=unknown)


def test_a_missing_cluster_is_reported_before_the_flow_starts(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_and_fail() -> str:
        result = CliRunner().invoke(app, ["run", "--config", str(CONFIG)])
        assert result.exit_code in (1, 2) and result.stderr.count("\n") == 1, result.output
        return result.stderr

    assert "names no Ray cluster: set `address`, or RAY_ADDRESS" in run_and_fail()
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")
    assert "the Ray cluster http://127.0.0.1:9 does not answer" in run_and_fail()
    assert not list(here.iterdir())


def test_doctor_checks_whether_the_cluster_of_a_configuration_answers(here: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", serve(FakeJobs()).removesuffix("/v1"))
    assert [finding.state for finding in configured_findings(read(CONFIG)) if finding.what == "cluster"] == ["ok"]
    monkeypatch.setenv("RAY_ADDRESS", serve(FakeJobs(version="2.9.3")).removesuffix("/v1"))
    assert [finding.state for finding in configured_findings(read(CONFIG)) if finding.what == "cluster"] == ["broken"]


CANCELLED = """
import sys
from pathlib import Path
from prefect import flow
from flows.train import launcher
from train.backends.cluster import ClusterConfig
from train.spec import SFTSettings, StageSpec

@flow
def one_stage() -> None:
    spec = StageSpec.model_validate_json(Path(sys.argv[1]).read_text())
    launcher(ClusterConfig(backend="ray", address=sys.argv[2]))(spec, spec.model_out.parent)

one_stage()
"""


@pytest.mark.server
def test_a_flow_run_that_is_cancelled_stops_its_job(prefect_server: str, serve: Serve, tmp_path: Path) -> None:
    """Given a flow whose stage runs as a job, when it gets Prefect's cancel signal, then the job is stopped."""
    fake = FakeJobs(RUNNING)
    (tmp_path / "spec.json").write_text(stage_in(tmp_path).model_dump_json())
    command = [sys.executable, "-c", CANCELLED, str(tmp_path / "spec.json"), serve(fake).removesuffix("/v1")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not fake.submitted and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    assert ("POST", f"/api/jobs/{fake.submitted[0]['submission_id']}/stop") in fake.calls


@pytest.mark.server
def test_the_configuration_selects_the_backend_of_a_stage(prefect_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "launch", lambda *_: {"ran": "here"})
    monkeypatch.setattr(ray, "launch", lambda *_: {"ran": "there"})
    spec = stage_in(tmp_path)
    assert launcher(ClusterConfig())(spec, tmp_path) == {"ran": "here"}
    assert launcher(ClusterConfig(backend="ray"))(spec, tmp_path) == {"ran": "there"}
