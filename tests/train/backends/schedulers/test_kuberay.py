"""What the backend kuberay does with whatever Kubernetes may answer, by a scripted kubectl (`scripted_kubectl.py`)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput, HeadraceError, OutOfReach
from tests.train.backends.schedulers.rayjob_schema import errors
from tests.train.backends.schedulers.scripted_kubectl import ScriptedKubectl, look
from train.backends import job_backend
from train.backends.base import StageFailed, run_stage
from train.backends.cluster import ClusterConfig
from train.backends.ray import describe_job
from train.backends.remote_sync import RemoteStore
from train.backends.schedulers import kubectl, kuberay, scheduler_commands
from train.backends.schedulers.kuberay import KubeRayBackend
from train.backends.schedulers.rayjob_manifest import manifest
from train.spec import SFTSettings, StageSpec

RESULT = {"weights_hash": "00", "metrics": {"loss": 1.0}}
SECTION: dict[str, Any] = {"image": "me/train:1", "kubernetes": {"claim": "store"}, "patience_s": 0.3}
RUNNING, SUCCEEDED = look("Running", "RUNNING"), look("Complete", "SUCCEEDED")
DELETED = look("Running", "RUNNING", deletionTimestamp="2026-01-01T00:00:00Z")


class Stage:
    """A stage to launch, and the scripted cluster that would run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "models" / "stage-0123456789abcdef"
        self.kubectl = ScriptedKubectl(folder / "kubectl", self.folder / "result.json")
        self.kubectl.write("result", json.dumps(RESULT))
        settings: dict[str, Any] = {"name": "sft1", "algorithm": "sft", "release_id": "release-1", "split": "seed", "sft": SFTSettings()}
        self.spec = StageSpec(store=folder, model_out=self.folder / "model", **settings)
        self.progress: list[str] = []

    def launch(self, **section: Any) -> dict[str, Any]:
        return run_stage(self.backend(**section), self.spec, self.folder, lambda *steps: self.progress.append(steps[2]))

    def backend(self, **section: Any) -> KubeRayBackend:
        return KubeRayBackend(ClusterConfig.model_validate(SECTION | section))

    def manifest(self, attempt: int = 1, **section: Any) -> dict[str, Any]:
        return manifest(self.spec, self.folder, ClusterConfig.model_validate(SECTION | section), attempt=attempt)[1]

    @property
    def name(self) -> str:
        return str(self.manifest()["metadata"]["name"])

    @property
    def noted(self) -> dict[str, Any]:
        noted: dict[str, Any] = json.loads((self.folder / "job.json").read_text())
        return noted


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for module in (kuberay, scheduler_commands):
        monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(job_backend, "ARRIVAL_S", 0.1)
    made = Stage(tmp_path)
    monkeypatch.setenv("PATH", f"{made.kubectl.tools}:{os.environ['PATH']}")
    return made


# ---- manifests -------------------------------------------------------------------------------------------------------------

FULL: dict[str, Any] = {
    "nodes": 2,
    "gpus_per_node": 8,
    "cpus": 24,
    "sharding": "fsdp",
    "env": {"NCCL_DEBUG": "INFO"},
    "kubernetes": {
        "claim": "store",
        "namespace": "ml",
        "memory": "900Gi",
        "node_selector": {"gpu": "h100"},
        "secrets": ["hub"],
        "service_account": "trainer",
        "time_limit_s": 86400,
    },
}


@pytest.mark.parametrize("section", [{}, FULL, {"kubernetes": {}, "checkpoints": "s3://bucket/headrace"}])
def test_the_schema_of_kuberays_own_crd_takes_every_manifest(stage: Stage, section: dict[str, Any]) -> None:
    assert errors(stage.manifest(**section)) == []


def test_the_schema_refuses_what_the_crd_does_not_have(stage: Stage) -> None:
    made = stage.manifest()
    made["spec"]["backOffLimit"] = 1
    made["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = "two"
    made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["gpus"] = 1
    assert sorted(error.partition(":")[0] for error in errors(made)) == [
        "spec",
        "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0",
        "spec.rayClusterSpec.workerGroupSpecs.0.replicas",
    ]


def test_a_manifest_is_the_job_of_the_backend_ray_on_a_cluster_of_its_own(stage: Stage) -> None:
    cluster = ClusterConfig.model_validate(SECTION | FULL)
    _, job = describe_job(stage.spec, stage.folder, cluster.model_copy(update={"image": None}))
    made = stage.manifest(**FULL)
    spec, (workers,) = made["spec"], made["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (made["metadata"]["name"], spec["jobId"], spec["entrypoint"]) == (job["submission_id"], job["submission_id"], job["entrypoint"])
    assert json.loads(spec["runtimeEnvYAML"]) == job["runtime_env"] and job["runtime_env"]["env_vars"]["NCCL_DEBUG"] == "INFO"
    assert len(made["metadata"]["name"]) <= 47 and made["metadata"]["labels"]["headrace/stage"] == stage.folder.name
    assert (workers["replicas"], spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (2, 0, 86400)
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "24", "memory": "900Gi", "nvidia.com/gpu": "8"}
    assert container["volumeMounts"] == [{"name": "store", "mountPath": str(stage.spec.store)}]
    assert container["envFrom"] == [{"secretRef": {"name": "hub"}}]
    assert workers["template"]["spec"]["nodeSelector"] == {"gpu": "h100"}
    (head,) = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert (
        "nvidia.com/gpu" not in head["resources"]["limits"] and spec["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    )


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"image": None}, "train.cluster.image is not set: the backend kuberay needs an image"),
        ({"kubernetes": {}}, "the pods need the stage's files one way"),
        ({"checkpoints": "s3://bucket"}, "the pods need the stage's files one way"),
        ({"labels": {"a": "b"}}, "train.cluster.labels is for a Ray cluster that stands"),
    ],
)
def test_a_section_that_cannot_be_a_manifest_is_refused(stage: Stage, section: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        stage.launch(**section)
    assert not stage.kubectl.lines("calls")


# ---- one stage, one job ----------------------------------------------------------------------------------------------------


def test_a_stage_is_created_once_followed_and_noted(stage: Stage) -> None:
    stage.kubectl.write("log", "step 1\n")
    stage.kubectl.pods({"conditions": [{"reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]})
    stage.kubectl.live(look("Initializing"), RUNNING, SUCCEEDED)
    assert stage.launch(kubernetes={"claim": "store", "namespace": "ml", "context": "lab"}) == RESULT
    assert stage.kubectl.lines("created") == [stage.name] and errors(stage.kubectl.manifest) == []
    assert (stage.folder / "log.txt").read_text() == "step 1\n"
    assert stage.noted == {"rayjob": stage.name, "status": "SUCCEEDED"}
    assert stage.progress == ["waiting for pods (0/3 nodes are available: 3 Insufficient nvidia.com/gpu.)", "", ""]
    assert all(call.startswith("--context=lab --namespace=ml ") for call in stage.kubectl.lines("calls"))


def test_a_launcher_finds_the_job_of_one_that_was_killed(stage: Stage) -> None:
    stage.kubectl.start(stage.name, RUNNING, RUNNING, SUCCEEDED)
    assert stage.launch() == RESULT
    assert not stage.kubectl.lines("created")


def test_of_two_that_create_at_once_both_follow_the_one_job(stage: Stage) -> None:
    stage.kubectl.write("before", f"{RUNNING}\n{SUCCEEDED}\n")
    assert stage.launch() == RESULT
    assert not stage.kubectl.lines("created")


def test_a_failed_job_is_followed_by_another_name_only_in_another_call(stage: Stage) -> None:
    stage.kubectl.live(RUNNING, look("Failed", "FAILED", "AppFailed", "Job entrypoint command failed with exit code 1"))
    with pytest.raises(StageFailed):
        stage.launch()
    (stage.folder / "metrics.jsonl").write_text('{"step": 1, "loss": 9}\n')
    stage.kubectl.live(SUCCEEDED)
    assert stage.launch() == RESULT
    assert stage.kubectl.lines("created") == [stage.name, f"{stage.name}-2"]
    assert not (stage.folder / "metrics.jsonl").exists(), "steps of the job before are no progress of this one"
    assert len(f"{stage.name}-2") <= 47


def test_a_request_to_end_deletes_the_job(stage: Stage) -> None:
    stage.kubectl.live(RUNNING)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(stage.backend(), stage.spec, stage.folder, interrupt)
    assert stage.kubectl.lines("deleted") == [stage.name]


def test_with_a_url_the_result_is_fetched_from_there(stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sent: list[str] = []
    there = tmp_path / "there" / "models" / stage.folder.name

    def send_and_train(_self: RemoteStore, _spec: StageSpec, place: str, _file: Path) -> None:
        sent.append(place)
        (there / "model").mkdir(parents=True)
        (there / "model" / "config.json").write_text("{}")
        (there / "result.json").write_text(json.dumps(RESULT))

    monkeypatch.setattr(RemoteStore, "send_inputs", send_and_train)
    stage.kubectl.forget("result")
    section: dict[str, Any] = {"kubernetes": {}, "checkpoints": f"file://{tmp_path}/there"}
    assert stage.launch(**section) == RESULT
    assert sent == [f"models/{stage.folder.name}"] and (stage.folder / "model" / "config.json").exists()
    (stage.folder / "result.json").unlink()
    stage.kubectl.forget(f"life-{stage.kubectl.lines('created')[0]}")
    assert stage.launch(**section) == RESULT
    assert len(sent) == len(stage.kubectl.lines("created")) == 1, "a result under the URL is fetched, also when its job is gone"


def test_a_job_that_is_being_deleted_is_waited_for_and_created_again_by_its_name(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl, "POLL_S", 0.01)
    stage.kubectl.start(stage.name, DELETED, DELETED, "gone")
    assert stage.launch() == RESULT
    assert stage.kubectl.lines("created") == [stage.name]


def test_a_deletion_that_does_not_end_is_told_and_nothing_is_created(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl, "_DELETE_S", 0)
    stage.kubectl.start(stage.name, DELETED)
    with pytest.raises(HeadraceError, match=rf"{stage.name} is still being deleted; call the same command again"):
        stage.launch()
    assert not stage.kubectl.lines("created")


# ---- jobs that fail --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "log", "kind"),
    [
        (look("Failed", "FAILED", "AppFailed", "failed with exit code 1"), "ValueError: no", "stage"),
        (look("Failed", "FAILED", "AppFailed"), "torch.OutOfMemoryError: CUDA out of memory", "memory"),
        (look("Failed", "FAILED", "AppFailed"), "Traceback : Signal 9 (SIGKILL) received by PID 71", "killed"),
        (look("Failed", "FAILED", "AppFailed"), "ModuleNotFoundError: No module named 'train'", "start"),
        (look("Failed", "FAILED", "AppFailed", "command failed with exit code 75"), "2 nodes were not free", "resources"),
        (look("Failed", "FAILED", "AppFailed"), "ray.exceptions.ActorDiedError: its node has died", "lost"),
        (look("Failed", "", "SubmissionFailed"), "", "start"),
        (look("Failed", "", "ValidationFailed"), "", "start"),
        (look("Failed", "RUNNING", "DeadlineExceeded"), "step 3", "stopped"),
        (look("Failed", "", "PreRunningDeadlineExceeded"), "", "resources"),
        (look("Failed", "RUNNING", "JobStatusCheckTimeoutExceeded"), "step 3", "lost"),
        (look("Complete", "STOPPED"), "step 3", "stopped"),
        (DELETED, "step 3", "stopped"),
    ],
)
def test_every_end_of_a_job_has_its_kind(stage: Stage, ended: str, log: str, kind: str) -> None:
    stage.kubectl.live(RUNNING, ended)
    stage.kubectl.write("log", log)
    with pytest.raises(StageFailed, match=rf"stage sft1 failed as RayJob {stage.name} \(") as failed:
        stage.launch()
    assert failed.value.kind == kind == stage.noted["kind"]


def test_a_container_that_the_kernel_killed_for_memory_says_so(stage: Stage) -> None:
    stage.kubectl.live(RUNNING, look("Failed", "FAILED", "AppFailed", "the driver was killed"))
    stage.kubectl.pods({"containerStatuses": [{"state": {}, "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]})
    with pytest.raises(StageFailed, match=r"more of train\.cluster\.kubernetes\.memory") as failed:
        stage.launch()
    assert failed.value.kind == "memory"


def test_a_job_that_was_deleted_and_one_without_a_result_are_errors_of_their_own(stage: Stage) -> None:
    stage.kubectl.live(RUNNING)

    def delete(*_: Any) -> None:
        stage.kubectl.forget(f"life-{stage.name}")

    with pytest.raises(HeadraceError, match=r"was deleted; the same command creates it again"):
        run_stage(stage.backend(), stage.spec, stage.folder, delete)
    stage.kubectl.forget("result")
    stage.kubectl.live(SUCCEEDED)
    with pytest.raises(HeadraceError, match=r"has succeeded, but its result is not in .*: the claim must hold the store"):
        stage.launch()


# ---- a cluster that is not well, or does not take the stage ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            'error: resource mapping not found for name: "x" from "STDIN": no matches for kind "RayJob" in version "ray.io/v1"',
            "install the Kube",
        ),
        (
            'Error from server (Forbidden): rayjobs.ray.io is forbidden: User "me" cannot create resource "rayjobs"',
            "a role must allow to create",
        ),
        ("error: You must be logged in to the server (Unauthorized)", "log in again"),
        ('Error from server (NotFound): error when creating "STDIN": namespaces "ml" not found', "see train.cluster.kubernetes$"),
    ],
)
def test_what_kubernetes_refuses_is_told_in_one_line_before_and_at_the_creation(stage: Stage, error: str, words: str) -> None:
    stage.kubectl.write("refusal", f"{error}\n")
    (need,) = stage.backend(gpus_per_node=8).needs(stage.spec)
    assert need.requirement == "Kubernetes with KubeRay, which takes a RayJob of 1 pods with 8 GPUs each" and need.check is not None
    for refused in (lambda: need.check(0.1), stage.launch):
        with pytest.raises(BadInput, match=words) as told:
            refused()
        assert "\n" not in str(told.value)
    stage.kubectl.forget("refusal")
    need.check(0.1)
    assert not stage.kubectl.lines("created")


def test_a_cluster_that_falls_silent_is_waited_for_and_its_job_left_alone(stage: Stage) -> None:
    refused = "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n"
    stage.kubectl.live(RUNNING)

    def fall_silent(*_: Any) -> None:
        stage.kubectl.write("broken", refused * 99)

    with pytest.raises(OutOfReach, match=r"Kubernetes does not answer kubectl \(The connection to the server"):
        run_stage(stage.backend(patience_s=0.1), stage.spec, stage.folder, fall_silent)
    assert not stage.kubectl.lines("deleted")
    stage.kubectl.write("broken", refused * 2)
    stage.kubectl.start(stage.name, SUCCEEDED)
    assert stage.launch(patience_s=20) == RESULT
    assert stage.kubectl.lines("created") == [stage.name]


@pytest.mark.parametrize(
    "error",
    [
        "Unable to reach the server: read tcp 10.0.0.1:5: read: connection reset by peer",
        "error: unexpected EOF",
        "Error from server (InternalError): an error on the server has prevented the request from succeeding",
        "error: http2: client connection lost",
        "error: remote: TLS handshake failed",
    ],
)
def test_a_connection_that_breaks_is_no_refusal(stage: Stage, error: str) -> None:
    stage.kubectl.write("broken", f"{error}\n")
    stage.kubectl.start(stage.name, SUCCEEDED)
    assert stage.launch(patience_s=20) == RESULT


def test_a_machine_without_kubectl_is_told_apart_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BadInput, match="kubectl is not installed on this machine: call headrace where kubectl is"):
        stage.launch(patience_s=60)
