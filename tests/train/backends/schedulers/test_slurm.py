"""What the backend slurm does with whatever Slurm may answer, by scripted tools (`scripted_slurm.py`) with lines of Slurm 22.05.8."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput, HeadraceError, OutOfReach
from tests.train.backends.schedulers.scripted_slurm import ScriptedSlurm
from train.backends import job_backend
from train.backends.base import StageFailed, run_stage
from train.backends.cluster import ClusterConfig
from train.backends.schedulers import scheduler_commands, slurm
from train.backends.schedulers.slurm import SlurmBackend
from train.spec import SFTSettings, StageSpec

RESULT = {"weights_hash": "00", "metrics": {"loss": 1.0}}
RUNNING, COMPLETED = "ID_1|RUNNING|0|main|None|", "ID_1|COMPLETED|0|main|None|"


class Stage:
    """A stage to launch, and the scripted cluster that would run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "models" / "stage-1"
        self.slurm = ScriptedSlurm(folder / "slurm", self.folder / "result.json")
        self.slurm.write("result", json.dumps(RESULT))
        settings: dict[str, Any] = {"name": "sft1", "algorithm": "sft", "release_id": "release-1", "split": "seed", "sft": SFTSettings()}
        self.spec = StageSpec(store=folder, model_out=self.folder / "model", **settings)
        self.progress: list[tuple[int, int, str]] = []

    def launch(self, **section: Any) -> dict[str, Any]:
        backend = SlurmBackend(ClusterConfig.model_validate({"patience_s": 0.3} | section))
        return run_stage(backend, self.spec, self.folder, lambda *steps: self.progress.append(steps))

    @property
    def noted(self) -> dict[str, Any]:
        noted: dict[str, Any] = json.loads((self.folder / "job.json").read_text())
        return noted


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for module in (slurm, scheduler_commands):
        monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(job_backend, "ARRIVAL_S", 0.1)
    made = Stage(tmp_path)
    monkeypatch.setenv("PATH", f"{made.slurm.tools}:{os.environ['PATH']}")
    return made


# ---- one stage, one job ----------------------------------------------------------------------------------------------------


def test_a_stage_is_submitted_once_followed_through_its_queue_and_noted(stage: Stage) -> None:
    assert stage.launch() == RESULT
    assert stage.slurm.submissions == 1
    assert StageSpec.model_validate_json((stage.folder / "spec.json").read_text()) == stage.spec
    assert (stage.folder / "job.sh").read_text() == stage.slurm.submitted
    assert stage.noted["job"] == 41 and stage.noted["state"] == "COMPLETED"
    assert f"#SBATCH --job-name={stage.noted['name']}" in stage.slurm.submitted
    assert [text for *_, text in stage.progress] == ["waiting in the queue of partition main (Priority)", "", ""]


def test_a_stage_whose_result_is_there_asks_slurm_nothing(stage: Stage) -> None:
    stage.folder.mkdir(parents=True)
    (stage.folder / "result.json").write_text(json.dumps(RESULT))
    assert stage.launch() == RESULT
    assert not stage.slurm.calls("squeue")


def test_a_launcher_finds_the_job_of_one_that_was_killed(stage: Stage) -> None:
    stage.slurm.start(RUNNING, RUNNING, COMPLETED)
    assert stage.launch() == RESULT
    assert not stage.slurm.calls("sbatch") and stage.noted["job"] == 41


def test_a_job_that_ended_while_no_launcher_lived_gives_its_result_and_is_not_run_again(stage: Stage) -> None:
    stage.slurm.write("accounts", "41_1|COMPLETED|0:0|main|None\n")
    stage.slurm.start(COMPLETED)
    assert stage.launch() == RESULT
    assert not stage.slurm.calls("sbatch")


def test_a_submission_whose_answer_was_lost_is_found_again(stage: Stage) -> None:
    stage.slurm.write("lost", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n")
    assert stage.launch() == RESULT
    assert (stage.slurm.submissions, len(stage.slurm.calls("sbatch"))) == (1, 1)


def test_a_failed_job_is_followed_by_another_only_in_another_call(stage: Stage) -> None:
    stage.slurm.live(RUNNING, "ID_1|FAILED|256|main|NonZeroExitCode|")
    with pytest.raises(StageFailed):
        stage.launch()
    assert stage.slurm.submissions == 1
    stage.slurm.live(RUNNING, COMPLETED)
    assert stage.launch() == RESULT
    assert (stage.slurm.submissions, stage.noted["job"]) == (2, 42)


def test_a_request_to_end_cancels_the_job(stage: Stage) -> None:
    stage.slurm.live(RUNNING)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(SlurmBackend(), stage.spec, stage.folder, interrupt)
    assert stage.slurm.calls("scancel") == ["--quiet 41"]


def test_the_tasks_of_an_array_continue_each_other(stage: Stage) -> None:
    stage.slurm.live(
        "ID_1|RUNNING|0|main|None|;ID_2|PENDING|0|main|JobArrayTaskLimit|",
        "ID_1|TIMEOUT|0|main|TimeLimit|;ID_2|PENDING|0|main|Priority|",
        "ID_1|TIMEOUT|0|main|TimeLimit|;ID_2|RUNNING|0|main|None|",
        "ID_1|TIMEOUT|0|main|TimeLimit|;ID_2|COMPLETED|0|main|None|",
    )
    assert stage.launch(slurm={"attempts": 2}) == RESULT
    assert "#SBATCH --array=1-2%1" in stage.slurm.submitted
    assert [text for *_, text in stage.progress] == ["", "waiting in the queue of partition main (Priority)", "", ""]


# ---- jobs that fail --------------------------------------------------------------------------------------------------------

OOM_LOG = "slurmstepd-n2: error: StepId=24.batch exceeded memory limit (960720896 > 209715200), being killed"


@pytest.mark.parametrize(
    ("look", "accounts", "log", "kind", "words"),
    [
        ("ID_1|FAILED|768|main|NonZeroExitCode|", "41_1|FAILED|3:0|main|None", "ValueError: no", "stage", "the end of its log says why"),
        ("ID_1|FAILED|9|main|JobLaunchFailure|", "41_1|FAILED|0:9|main|None", "step 3", "killed", "signal 9"),
        ("ID_1|FAILED|35072|main|NonZeroExitCode|", "41_1|FAILED|9:0|main|None", "step 3", "killed", "signal 9"),
        ("ID_1|FAILED|9|main|None|", "41_1|FAILED|0:9|main|None", OOM_LOG, "memory", "--mem=64G"),
        ("ID_1|FAILED|256|main|NonZeroExitCode|", "41_1|FAILED|1:0|main|None", "torch.OutOfMemoryError: out of memory", "memory", "--mem"),
        ("ID_1|OUT_OF_MEMORY|0|main|OutOfMemory|", "41_1|OUT_OF_MEMORY|0:125|main|None", "", "memory", "--mem=64G"),
        ("ID_1|FAILED|32512|main|NonZeroExitCode|", "41_1|FAILED|127:0|main|None", "No such file", "start", "see this Python"),
        (
            "ID_1|TIMEOUT|0|main|TimeLimit|",
            "41_1|TIMEOUT|0:0|main|None",
            "DUE TO TIME LIMIT",
            "stopped",
            "raise train.cluster.slurm.time_l",
        ),
        ("ID_1|PREEMPTED|15|main|None|", "41_1|PREEMPTED|0:0|main|None", "DUE TO PREEMPTION", "stopped", "a job of higher priority"),
        ("ID_1|CANCELLED|0|main|None|", "41_1|CANCELLED by 0|0:0|main|None", "", "stopped", "it was cancelled"),
        ("ID_1|NODE_FAIL|0|main|NodeDown|", "41_1|NODE_FAIL|0:0|main|None", "", "lost", "its node failed"),
        ("ID_1|BOOT_FAIL|0|main|None|", "41_1|BOOT_FAIL|0:0|main|None", "", "lost", "its node did not start"),
        ("ID_1|DEADLINE|0|main|None|", "41_1|DEADLINE|0:0|main|None", "", "stopped", "its deadline"),
    ],
)
def test_every_state_of_a_job_has_its_kind_and_its_advice(stage: Stage, look: str, accounts: str, log: str, kind: str, words: str) -> None:
    for has_accounts in (True, False):
        stage.slurm.live(RUNNING, look)
        if has_accounts:
            stage.slurm.write("accounts", f"{accounts}\n")

        def write_log(*_: Any) -> None:
            (stage.folder / "log.txt").write_text(log)

        with pytest.raises(StageFailed, match=words) as failed:
            run_stage(SlurmBackend(), stage.spec, stage.folder, write_log)
        assert failed.value.kind == kind == stage.noted["kind"]
        stage.slurm.forget("accounts")


def test_the_task_that_failed_tells_how_a_job_ended_and_not_those_that_it_cancelled(stage: Stage) -> None:
    stage.slurm.live("ID_1|FAILED|256|main|NonZeroExitCode|;ID_2|CANCELLED|0|main|None|;ID_3|CANCELLED|0|main|None|")
    with pytest.raises(StageFailed, match="FAILED") as failed:
        stage.launch()
    assert failed.value.kind == "stage"


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "PartitionNodeLimit", "BadConstraints"])
def test_a_job_that_can_never_start_is_cancelled_and_says_why(stage: Stage, reason: str) -> None:
    stage.slurm.live(f"ID_1|PENDING|0|main|{reason}|")
    with pytest.raises(StageFailed, match=rf"can never start on partition main of Slurm \({reason}\)") as failed:
        stage.launch()
    assert failed.value.kind == "resources" and stage.slurm.calls("scancel") == ["--quiet 41"]


def test_a_job_that_slurm_forgot_is_an_error_and_then_submitted_again(stage: Stage) -> None:
    stage.slurm.live(RUNNING, "forgotten")
    with pytest.raises(HeadraceError, match="Slurm no longer knows the job headrace-stage-1-"):
        stage.launch()
    stage.slurm.live(COMPLETED)
    assert stage.launch() == RESULT
    assert stage.slurm.submissions == 2


def test_a_job_that_has_left_its_result_elsewhere_is_told_from_a_failure(stage: Stage) -> None:
    stage.slurm.forget("result")
    with pytest.raises(HeadraceError, match=r"has completed, but its result is not in .*: the nodes and this machine must see"):
        stage.launch()


# ---- a cluster that is not well, or does not take the stage ------------------------------------------------------------------


def test_a_cluster_that_falls_silent_is_waited_for_and_its_job_left_alone(stage: Stage) -> None:
    unreachable = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    stage.slurm.live(RUNNING)

    def fall_silent(*_: Any) -> None:
        stage.slurm.write("broken", unreachable * 99)

    with pytest.raises(OutOfReach, match=r"Slurm does not answer squeue \(Unable to contact.*the same command finds it again"):
        run_stage(SlurmBackend(ClusterConfig(patience_s=0.1)), stage.spec, stage.folder, fall_silent)
    assert not stage.slurm.calls("scancel")
    stage.slurm.write("broken", unreachable * 2)
    stage.slurm.write("life", f"{RUNNING}\n{COMPLETED}\n")
    assert stage.launch(patience_s=20) == RESULT
    assert stage.slurm.submissions == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            "Batch job submission failed: Invalid partition name specified",
            "`sinfo` lists the partitions: set train.cluster.slurm.partition",
        ),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "set train.cluster.slurm.account"),
        ("Batch job submission failed: Requested node configuration is not available", "no node has so many GPUs, CPU cores"),
        ("Batch job submission failed: Invalid generic resource (gres) specification", "no node has such GPUs"),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "slurm.time_limit"),
        ("Batch job submission failed: Invalid feature specification", "see train.cluster.slurm$"),
    ],
)
def test_what_slurm_refuses_is_told_in_one_line_before_and_at_the_submission(stage: Stage, error: str, words: str) -> None:
    stage.slurm.write("refusal", f"sbatch: error: {error}\n")
    (need,) = SlurmBackend(ClusterConfig(gpus_per_node=8)).needs(stage.spec)
    assert need.requirement == "a Slurm cluster that takes a stage of sft with 1 x 8 GPUs" and need.check is not None
    for refused in (lambda: need.check(0.1), stage.launch):
        with pytest.raises(BadInput, match=words) as told:
            refused()
        assert str(told.value).startswith(f"Slurm does not take the stage ({error})") and "\n" not in str(told.value)
    assert stage.slurm.submissions == 0
    stage.slurm.forget("refusal")
    need.check(0.1)


def test_a_machine_without_slurm_is_told_apart_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    began = time.monotonic()
    with pytest.raises(BadInput, match="squeue is not installed on this machine: call headrace on a login node of the Slurm cluster"):
        stage.launch(patience_s=60)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("section", [{"labels": {"a": "b"}}, {"image": "me/train:1"}, {"checkpoints": "s3://bucket"}, {"pip": ["trl"]}])
def test_keys_that_only_ray_has_are_refused_by_name(stage: Stage, section: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=rf"train\.cluster\.{next(iter(section))} is for Ray, and the backend slurm does not use it"):
        stage.launch(**section)
    assert not stage.slurm.calls("sbatch")
