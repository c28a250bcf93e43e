"""What the launcher of Ray Jobs does with whatever a cluster may answer, by a scripted stand-in for one (`fake_jobs.py`)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput, HeadraceError
from tests.conftest import Serve
from tests.train.backends.fake_jobs import RUNNING, STOPPED, SUCCEEDED, FakeJobs
from train.backends import job_backend
from train.backends.base import StageFailed, run_stage
from train.backends.cluster import ClusterConfig
from train.backends.on_nodes import NO_NODES
from train.backends.ray import RayBackend, check, describe_job
from train.backends.ray_jobs import NoAnswer
from train.backends.remote_sync import RemoteStore
from train.spec import SFTSettings, StageSpec

RESULT = {"weights_hash": "00", "metrics": {"loss": 1.0}}
ROOT = Path(__file__).parents[3]


def failed(error_type: str = "JOB_ENTRYPOINT_COMMAND_ERROR", exit_code: int | None = 1, message: str = "") -> dict[str, Any]:
    return {"status": "FAILED", "error_type": error_type, "driver_exit_code": exit_code, "message": message}


class Stage:
    """A stage to launch, and the cluster that would run it."""

    def __init__(self, folder: Path, serve: Serve) -> None:
        self.folder = folder / "models" / "stage-1"
        settings = {"name": "sft1", "algorithm": "sft", "release_id": "release-1", "split": "seed", "sft": SFTSettings()}
        self.spec = StageSpec(store=folder, model_out=self.folder / "model", **settings)
        self._serve = serve

    def arrive(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "result.json").write_text(json.dumps(RESULT))

    def cluster(self, fake: FakeJobs, **changes: Any) -> ClusterConfig:
        return ClusterConfig(address=self._serve(fake).removesuffix("/v1"), **({"patience_s": 0.3} | changes))

    def launch(self, cluster: ClusterConfig) -> dict[str, Any]:
        return run_stage(RayBackend(cluster), self.spec, self.folder)

    def id(self, cluster: ClusterConfig, attempt: int = 1) -> str:
        return str(describe_job(self.spec, self.folder, cluster, attempt=attempt)[1]["submission_id"])

    @property
    def noted(self) -> dict[str, Any]:
        noted: dict[str, Any] = json.loads((self.folder / "job.json").read_text())
        return noted


@pytest.fixture
def stage(tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(job_backend, "POLL_S", 0.01)
    monkeypatch.setattr(job_backend, "ARRIVAL_S", 0.1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return Stage(tmp_path, serve)


# ---- one stage, one job ----------------------------------------------------------------------------------------------------


def test_a_stage_is_submitted_once_and_its_log_and_job_lie_beside_its_result(stage: Stage) -> None:
    fake = FakeJobs(RUNNING, RUNNING, SUCCEEDED, on_end=stage.arrive)
    cluster = stage.cluster(fake)
    assert stage.launch(cluster) == RESULT
    (job,) = fake.submitted
    assert job["submission_id"] == stage.id(cluster)
    assert job["submission_id"].startswith("headrace-stage-1-")
    assert job["entrypoint"] == f"python -P -m train.run {stage.folder / 'spec.json'}"
    assert StageSpec.model_validate_json((stage.folder / "spec.json").read_text()) == stage.spec
    assert (stage.folder / "log.txt").read_text() == "a line\n"
    assert stage.noted == {"address": cluster.address, "job": job, "status": "SUCCEEDED"}


def test_a_stage_whose_result_is_there_asks_the_cluster_nothing(stage: Stage) -> None:
    fake = FakeJobs()
    stage.arrive()
    assert stage.launch(stage.cluster(fake)) == RESULT
    assert not fake.calls


def test_a_job_that_runs_already_is_followed_and_not_doubled(stage: Stage) -> None:
    fake = FakeJobs(on_end=stage.arrive)
    cluster = stage.cluster(fake)
    fake.jobs[stage.id(cluster)] = [RUNNING, RUNNING, SUCCEEDED]
    assert stage.launch(cluster) == RESULT
    assert not fake.submitted


def test_of_two_that_submit_at_once_both_follow_the_one_job(stage: Stage) -> None:
    fake = FakeJobs(on_end=stage.arrive)
    fake.before_submission = lambda body: fake.jobs.setdefault(body["submission_id"], [RUNNING, SUCCEEDED])
    assert stage.launch(stage.cluster(fake)) == RESULT
    assert not fake.submitted


def test_another_call_follows_a_failed_job_with_another_and_the_same_call_does_not(stage: Stage) -> None:
    fake = FakeJobs(RUNNING, failed(), on_end=stage.arrive)
    cluster = stage.cluster(fake)
    with pytest.raises(StageFailed):
        stage.launch(cluster)
    assert [job["submission_id"] for job in fake.submitted] == [stage.id(cluster)]
    fake.life = [STOPPED]
    with pytest.raises(StageFailed, match="it was stopped"):
        stage.launch(cluster)
    fake.life = [SUCCEEDED]
    assert stage.launch(cluster) == RESULT
    ids = [job["submission_id"] for job in fake.submitted]
    assert ids == [stage.id(cluster), f"{stage.id(cluster)}-2", f"{stage.id(cluster)}-3"]


def test_what_a_stage_asks_for_is_no_part_of_its_jobs_id_and_what_it_is_told_is(stage: Stage) -> None:
    few, many = (ClusterConfig(address="http://head:8265", gpus_per_node=gpus) for gpus in (1, 8))
    assert stage.id(few) == stage.id(many) == stage.id(few)
    name = stage.id(few)
    assert stage.id(few.model_copy(update={"checkpoints": "s3://bucket"})) != name
    stage.spec = stage.spec.model_copy(update={"seed": 1})
    assert stage.id(few) != name


def test_with_a_url_a_store_that_lies_elsewhere_finds_the_same_job(stage: Stage, tmp_path: Path) -> None:
    cluster = ClusterConfig(address="http://head:8265", checkpoints="s3://bucket/headrace")
    spec_json, job = describe_job(stage.spec, stage.folder, cluster)
    moved = stage.spec.model_copy(update={"store": tmp_path / "other", "model_out": tmp_path / "other" / "models" / "stage-1" / "model"})
    assert describe_job(moved, moved.model_out.parent, cluster) == (spec_json, job)
    assert (
        job["entrypoint"] == "python -P -m train.backends.remote_sync s3://bucket/headrace models/stage-1 python -P -m train.run spec.json"
    )


# ---- a cluster that is not well ----------------------------------------------------------------------------------------------


def test_answers_that_say_something_broke_are_asked_for_again(stage: Stage) -> None:
    fake = FakeJobs(on_end=stage.arrive)
    fake.broken = [500, 503, 429]
    assert stage.launch(stage.cluster(fake, patience_s=20)) == RESULT
    assert len(fake.submitted) == 1


def test_a_submission_whose_answer_was_lost_is_found_again(stage: Stage) -> None:
    fake = FakeJobs(on_end=stage.arrive)

    def lost(body: dict[str, Any]) -> None:
        if body["submission_id"] not in fake.jobs:
            fake.jobs[body["submission_id"]] = [RUNNING, SUCCEEDED]
            raise RuntimeError("the connection is lost after the job was taken")

    fake.before_submission = lost
    assert stage.launch(stage.cluster(fake, patience_s=20)) == RESULT


def test_a_cluster_that_does_not_answer_is_named_before_anything_is_written(stage: Stage) -> None:
    unreachable = ClusterConfig(address="http://127.0.0.1:9", patience_s=0.2)
    before = time.monotonic()
    with pytest.raises(NoAnswer, match=r"Ray cluster http://127\.0\.0\.1:9 does not answer \(.*refused; asked for 0\.2 s\)"):
        check(unreachable)
    with pytest.raises(NoAnswer):
        stage.launch(unreachable)
    assert time.monotonic() - before < 10
    assert not list(stage.folder.iterdir())


def test_an_address_that_no_host_can_have_and_an_answer_that_is_none_are_told_apart_from_a_job(stage: Stage) -> None:
    with pytest.raises(NoAnswer, match=r"http://\.\.:8265 does not answer"):
        check(ClusterConfig(address="http://..:8265", patience_s=0))
    fake = FakeJobs()
    fake.broken = [418]
    with pytest.raises(NoAnswer, match=r"answers what no Ray cluster does \(status 418\)"):
        stage.launch(stage.cluster(fake))
    assert not fake.submitted


def test_what_was_submitted_stays_noted_where_another_call_that_asks_for_more_follows_it(stage: Stage) -> None:
    fake = FakeJobs(RUNNING)
    fake.before_submission = lambda _: fake.broken.extend([502] * 1000)
    with pytest.raises(NoAnswer):
        stage.launch(stage.cluster(fake))
    fake.broken, fake.on_end = [], stage.arrive
    (submitted,) = fake.submitted
    fake.jobs[submitted["submission_id"]] = [RUNNING, SUCCEEDED]
    assert stage.launch(stage.cluster(fake, cpus=8.0)) == RESULT
    assert stage.noted["job"] == submitted and stage.noted["status"] == "SUCCEEDED"


def test_metrics_that_cannot_be_fetched_now_do_not_end_the_waiting(stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unreachable(*_: Any) -> None:
        raise HeadraceError("s3://bucket cannot be reached")

    monkeypatch.setattr(RemoteStore, "fetch_metrics", unreachable)
    monkeypatch.setattr(RemoteStore, "send_inputs", lambda *_: None)
    fake = FakeJobs(RUNNING, SUCCEEDED, on_end=stage.arrive)
    assert stage.launch(stage.cluster(fake, checkpoints=f"file://{tmp_path}/there")) == RESULT


def test_a_cluster_that_falls_silent_is_waited_for_and_its_job_left_alone(stage: Stage) -> None:
    fake = FakeJobs(RUNNING)
    cluster = stage.cluster(fake)

    def falls_silent(_: Any) -> None:
        fake.broken = [502] * 1000

    fake.before_submission = falls_silent
    with pytest.raises(NoAnswer, match=r"status 502: OSError: the head is unwell.*goes on, and the same command finds it again"):
        stage.launch(cluster)
    assert not [path for _, path in fake.calls if path.endswith("/stop")]
    fake.broken, fake.on_end = [], stage.arrive
    fake.jobs[stage.id(cluster)] = [SUCCEEDED]
    stage.arrive()
    assert stage.launch(cluster) == RESULT
    assert len(fake.submitted) == 1


def test_a_job_that_the_cluster_forgot_is_an_error_and_then_submitted_again(stage: Stage) -> None:
    fake = FakeJobs(RUNNING, None)
    cluster = stage.cluster(fake)
    with pytest.raises(HeadraceError, match="no longer knows the job headrace-stage-1-"):
        stage.launch(cluster)
    fake.jobs.clear()
    fake.life, fake.on_end = [SUCCEEDED], stage.arrive
    assert stage.launch(cluster) == RESULT
    assert [job["submission_id"] for job in fake.submitted] == [stage.id(cluster)] * 2


@pytest.mark.parametrize("version", ["2.9.3", "3.0.0"])
def test_a_cluster_with_another_ray_is_refused(stage: Stage, version: str) -> None:
    with pytest.raises(BadInput, match=f"runs Ray {version}; jobs need at least 2.60, and less than 3"):
        check(stage.cluster(FakeJobs(version=version)))
    check(stage.cluster(FakeJobs()))


def test_the_rays_that_are_taken_are_those_of_the_extra() -> None:
    assert f'ray = ["ray[default]>={job_backend.OLDEST},<{job_backend.NEWEST}"]' in (ROOT / "pyproject.toml").read_text()


def test_what_is_no_ray_cluster_is_told_apart(stage: Stage) -> None:
    fake = FakeJobs()
    fake.broken = [404]
    with pytest.raises(NoAnswer, match="is no dashboard of a Ray cluster"):
        check(stage.cluster(fake))


def test_a_cluster_with_a_token_is_asked_with_the_one_that_rays_own_clients_would_show(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The one that `ray start` leaves in the user's folder, unless the environment names a file, unless it has the token itself."""
    fake, named, own = FakeJobs(), tmp_path / "token", tmp_path / ".ray" / "auth_token"
    monkeypatch.setenv("HOME", str(tmp_path))
    fake.broken = [401]
    with pytest.raises(NoAnswer, match="wants its token: set RAY_AUTH_TOKEN"):
        check(stage.cluster(fake))
    own.parent.mkdir()
    own.write_text("of the user\n")
    named.write_text("of the file\n")
    shown = []
    for name, value in ((None, ""), ("RAY_AUTH_TOKEN_PATH", str(named)), ("RAY_AUTH_TOKEN", "open sesame")):
        if name:
            monkeypatch.setenv(name, value)
        check(stage.cluster(fake))
        shown.append(fake.headers["Authorization"])
    assert shown == ["Bearer of the user", "Bearer of the file", "Bearer open sesame"]
    fake.broken = [403]
    with pytest.raises(NoAnswer, match="takes another token: set RAY_AUTH_TOKEN"):
        check(stage.cluster(fake))


def test_a_file_that_is_named_for_the_token_and_has_none_is_bad_input(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    (tmp_path / "empty").touch()
    for name in ("empty", "gone"):
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / name))
        with pytest.raises(BadInput, match=f"{name}, which holds no token"):
            check(stage.cluster(FakeJobs()))


def test_a_job_that_the_cluster_does_not_take_is_told_in_its_last_words(stage: Stage) -> None:
    fake = FakeJobs()
    fake.broken = [404, 400, 404]
    with pytest.raises(BadInput, match=r"does not take the job \(status 400\): OSError: the head is unwell$"):
        stage.launch(stage.cluster(fake))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (None, "names no Ray cluster"),
        ("10.0.0.1:6379", "RAY_ADDRESS is 10.0.0.1:6379, but jobs are given to the"),
        ("http://me:hunter2@head:8265", "RAY_ADDRESS has a password in it, .*: set RAY_AUTH_TOKEN to its token$"),
    ],
)
def test_a_cluster_must_be_named_by_its_dashboard(stage: Stage, monkeypatch: pytest.MonkeyPatch, address: str | None, words: str) -> None:
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(BadInput, match=words):
        check(ClusterConfig())


def test_what_the_configuration_names_wins_over_the_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = FakeJobs(), FakeJobs()
    monkeypatch.setenv("RAY_ADDRESS", str(stage.cluster(other).address))
    check(stage.cluster(named))
    assert named.calls and not other.calls
    check(ClusterConfig())
    assert other.calls


# ---- jobs that fail --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "log", "kind"),
    [
        (failed("RUNTIME_ENV_SETUP_FAILURE", None, "runtime_env setup failed: pip"), "", "start"),
        (failed(exit_code=1), "/usr/bin/python: Error while finding module: No module named 'train'", "start"),
        (failed(exit_code=127), "/bin/sh: 1: accelerate: not found", "start"),
        (failed("JOB_SUPERVISOR_ACTOR_START_TIMEOUT", None), "", "resources"),
        (failed("JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", None), "", "resources"),
        (failed(), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "memory"),
        (failed(exit_code=-9), "step 3", "killed"),
        (failed(), "Traceback : Signal 9 (SIGKILL) received by PID 71", "killed"),
        (failed(exit_code=NO_NODES), "2 nodes with {} each were not free", "resources"),
        (failed(), "ray.exceptions.ActorDiedError: The actor died because its node has died.", "lost"),
        (failed("JOB_SUPERVISOR_ACTOR_DIED", None, "Task was killed due to the node running low on memory: memory pressure"), "", "memory"),
        (failed("JOB_SUPERVISOR_ACTOR_DIED", None, "The node died"), "step 3", "lost"),
        (failed(), "RuntimeError: Version mismatch: The cluster was started with: Ray: 2.60.0", "version"),
        (failed(exit_code=2), "/store has no release release-1", "stage"),
        (STOPPED, "step 3", "stopped"),
    ],
)
def test_a_job_that_fails_says_how_in_its_error_and_beside_its_log(stage: Stage, ended: dict[str, Any], log: str, kind: str) -> None:
    cluster = stage.cluster(FakeJobs(RUNNING, ended, log=log))
    with pytest.raises(StageFailed) as failure:
        stage.launch(cluster)
    assert failure.value.kind == kind
    assert stage.noted["kind"] == kind and stage.noted["status"] == ended["status"]
    words = [ended["message"]] if ended.get("message") else []
    assert stage.noted.get("message", "") == "".join(words)
    first, *tail = str(failure.value).splitlines()
    assert first.startswith(f"stage sft1 failed as Ray job {stage.id(cluster)} on {cluster.address}: ")
    assert tail == [*log.splitlines(), *words], "what Ray says of a job that has no log is shown too"
    assert not (stage.folder / "result.json").exists()


def test_a_job_that_succeeds_where_its_result_cannot_be_seen_is_an_error(stage: Stage) -> None:
    with pytest.raises(HeadraceError, match=r"has succeeded, but its result is not under .*need `train\.cluster\.checkpoints`"):
        stage.launch(stage.cluster(FakeJobs(SUCCEEDED)))


def test_a_result_that_was_thrown_away_is_made_again(stage: Stage) -> None:
    """Given a job that has succeeded and whose result is gone, when the stage is wanted again, then another job makes it."""
    fake = FakeJobs(SUCCEEDED)
    fake.on_end = lambda: fake.submitted and stage.arrive()
    cluster = stage.cluster(fake)
    fake.jobs[stage.id(cluster)] = [SUCCEEDED]
    assert stage.launch(cluster) == RESULT
    assert [job["submission_id"] for job in fake.submitted] == [f"{stage.id(cluster)}-2"]


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_a_flow_that_is_told_to_end_stops_its_job(stage: Stage, monkeypatch: pytest.MonkeyPatch, ending: type[BaseException]) -> None:
    fake, polls = FakeJobs(RUNNING), iter(range(3))
    cluster = stage.cluster(fake)

    def wait(_: float) -> None:
        if next(polls, None) == 2:
            raise ending

    monkeypatch.setattr(job_backend.time, "sleep", wait)
    with pytest.raises(ending):
        stage.launch(cluster)
    assert fake.calls[-2:] == [("POST", f"/api/jobs/{stage.id(cluster)}/stop"), ("GET", f"/api/jobs/{stage.id(cluster)}")]
