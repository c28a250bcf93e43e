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
from flows.config import Config, read
from flows.dry_run import list_needs, plan, write_rendered
from flows.runtime.doctor import configured_findings
from flows.train import run_as_task
from storage.errors import BadInput
from storage.store import Store
from tests.conftest import Serve
from tests.train.backends.fake_jobs import RUNNING, FakeJobs
from train.backends.base import Backend, Handle, Need, StepProgress
from train.backends.named import BACKENDS
from train.cascade import Cascade
from train.config import CascadeConfig
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
    assert "what the backends would hand over: runs/cluster/dry-run" in result.output
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


def test_a_dry_run_shows_what_a_stage_of_verl_and_one_of_roll_would_run_and_need(here: Path) -> None:
    cluster = {"gpus_per_node": 4, "engine": {"prompt_tokens": 300, "response_tokens": 200}}
    stages = [{"name": "sft2", "backend": "verl"}, {"name": "rl", "backend": "roll"}]
    config = Config.model_validate({"store": "s/store", "train": {"cluster": cluster, "stages": stages}})
    assert write_rendered(config) == Path("s/dry-run")
    files = {str(path.relative_to("s/dry-run")) for path in Path("s/dry-run").glob("*/*")}
    assert {"sft2/entrypoint.sh", "sft2/start.sh", "sft2/job.json", "rl/pipeline.yaml", "rl/start.sh", "rl/job.json"} <= files
    job = json.loads((here / "s" / "dry-run" / "rl" / "job.json").read_text())
    assert job["entrypoint"] == f"bash {here / 's' / 'store' / 'models' / 'STAGE-rl' / 'roll' / 'start.sh'}"
    needs = list_needs(config)
    assert "sft2: needs 4 GPUs for verl, free when a stage of sft starts" in needs
    assert any(need.startswith("rl: needs ROLL 8eb27cc and Headrace in the image") for need in needs), needs
    few = Config.model_validate({"store": "s/store", "train": {"stages": stages}})
    with pytest.raises(BadInput, match=r"^stage sft2 runs with verl, which trains on GPUs: set train\.cluster\.gpus_per_node"):
        write_rendered(few)


def test_the_plan_has_a_line_a_stage_and_counts_probes_and_a_verdict_a_policy() -> None:
    def steps(*stages: dict[str, Any]) -> dict[str, str]:
        config = Config.model_validate({"train": {"stages": list(stages)}})
        return {row["step"]: row["what"] for row in plan(config, ["train"]).rows}

    default = steps()
    assert list(default) == ["sft1", "sft2", "rl", "probes", "gates", "all"]
    assert default["sft1"] == "960 conversations (up to 480 of synthesis, the others experts of single tasks), up to 220 steps"
    assert default["sft2"] == "the same and own trajectories, up to 60 steps"
    assert default["rl"] == "120 steps of 8 fresh tasks x 8"
    assert default["probes"].startswith("1 x 480 probe tasks") and default["gates"].startswith("3 policies x 300 held-out tasks, 4,500")
    again = steps({"name": "again", "algorithm": "rl", "split": "rl", "parent": "sft2"})
    assert list(again)[:4] == ["sft1", "sft2", "rl", "again"]
    assert again["probes"].startswith("1 x ") and again["gates"].startswith("4 policies"), "all share the first probe"
    alone = steps({"name": "sft2", "skip": True}, {"name": "rl", "skip": True})
    assert list(alone) == ["sft1", "gates", "all"]


@pytest.mark.parametrize("name", ["sft1", "rl"])
def test_a_dry_run_writes_the_spec_of_the_cascade_except_unknown_values(here: Path, name: str) -> None:
    CliRunner().invoke(app, ["train", "--config", str(CONFIG), "--dry-run"])
    written = json.loads((here / "runs" / "cluster" / "dry-run" / name / "spec.json").read_text())
    launched: list[StageSpec] = []

    def run(_: Backend[Any], spec: StageSpec, __: Path) -> dict[str, Any]:
        launched.append(spec)
        raise InterruptedError

    config = read(CONFIG)
    split = "seed" if name == "sft1" else "rl"
    with pytest.raises(InterruptedError):
        Cascade(Store(config.store), config.train, run=run).stage(name, None, "release-1", split, config.train.stage(name).settings)
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
from flows.train import run_as_task
from train.backends.cluster import ClusterConfig
from train.backends.ray import RayBackend
from train.spec import SFTSettings, StageSpec

@flow
def one_stage() -> None:
    spec = StageSpec.model_validate_json(Path(sys.argv[1]).read_text())
    run_as_task(RayBackend(ClusterConfig(address=sys.argv[2])), spec, spec.model_out.parent)

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


class Scripted(Backend[Handle]):
    """Ends at once with a result that names it."""

    def launch(self, spec: StageSpec, folder: Path) -> None:
        result = {"weights_hash": "00", "metrics": {"ran": type(self).__name__}}
        (folder / "result.json").write_text(json.dumps(result))

    def follow(self, handle: Handle, progress: StepProgress = lambda *_: None) -> None: ...

    def cancel(self, handle: Handle) -> None: ...

    def needs(self, spec: StageSpec) -> list[Need]:
        return [Need("machine", f"a machine of {type(self).__name__}")]

    def render(self, spec: StageSpec, folder: Path) -> dict[str, str]:
        return {"told.txt": spec.name}


class Other(Scripted): ...


def test_every_stage_is_run_by_the_backend_that_it_names_or_by_the_cascades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "scripted", Scripted)
    monkeypatch.setitem(BACKENDS, "other", Other)
    config = CascadeConfig.model_validate({"backend": "scripted", "stages": [{"name": "sft2", "backend": "other"}]})
    cascade = Cascade(Store(tmp_path / "store"), config)
    for stage in config.cascade[:2]:
        cascade.stage(stage.name, None, "release-1", "seed", stage.settings, stage.backend)
    rows = cascade.store.query("SELECT name, backend, metrics FROM stages ORDER BY name").rows()
    assert rows == [("sft1", "scripted", '{"ran": "Scripted"}'), ("sft2", "other", '{"ran": "Other"}')]


def test_a_backend_of_ones_own_is_asked_for_its_needs_and_files_and_no_command_knows_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "scripted", Scripted)
    (here / "own.yaml").write_text("store: s/store\ntrain: {stages: [{name: rl, backend: scripted}]}\n")
    result = CliRunner().invoke(app, ["train", "--config", "own.yaml", "--dry-run"])
    assert "rl: needs a machine of Scripted" in result.output and "sft1, sft2: needs PyTorch and TRL" in result.output, result.output
    assert [str(path.relative_to(here)) for path in here.glob("s/dry-run/**/*.txt")] == ["s/dry-run/rl/told.txt"]
    found = {finding.what: finding for finding in configured_findings(read(Path("own.yaml")))}
    assert (found["machine"].state, found["machine"].detail) == ("note", "a machine of Scripted (rl)")
    assert found["extra `train`"].state == "ok"


@pytest.mark.server
def test_a_stage_is_a_task_that_its_backend_runs(prefect_server: str, tmp_path: Path) -> None:
    spec = stage_in(tmp_path)
    assert run_as_task(Other(), spec, tmp_path)["metrics"] == {"ran": "Other"}
