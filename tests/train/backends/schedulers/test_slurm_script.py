"""The script of a stage's job: what it asks Slurm for, and what it does where its stage ends in one way or another."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from train.backends.cluster import ClusterConfig
from train.backends.named import BACKENDS
from train.backends.schedulers.slurm_script import job_name, script
from train.config import CascadeConfig
from train.spec import RLSettings, SFTSettings, StageSpec

FOLDER = Path("/store/models/stage-1")


def spec(algorithm: str = "sft", store: Path = Path("/store"), **changes: Any) -> StageSpec:
    settings: dict[str, Any] = {"sft": SFTSettings()} if algorithm == "sft" else {"rl": RLSettings()}
    fields: dict[str, Any] = {"name": "s", "store": store, "release_id": "r", "split": "s", "model_out": store / "models/stage-1/model"}
    return StageSpec(**(fields | {"algorithm": algorithm} | settings | changes))


def rendered(algorithm: str = "sft", **section: Any) -> str:
    return script(spec(algorithm), FOLDER, ClusterConfig.model_validate(section))


def options(text: str) -> set[str]:
    return set(re.findall(r"^#SBATCH (.+)$", text, re.MULTILINE))


def test_a_script_asks_for_what_the_configuration_says() -> None:
    slurm = {
        "partition": "gpu",
        "account": "research",
        "time_limit": "1-12",
        "attempts": 3,
        "options": ["--mem=64G"],
        "setup": ["module load x"],
    }
    text = rendered(cpus=7.5, gpus_per_node=1, env={"NCCL_DEBUG": "INFO"}, slurm=slurm)
    asked = {"--partition=gpu", "--account=research", "--time=1-12", "--array=1-3%1", "--mem=64G", "--nodes=1", "--gpus-per-node=1"}
    asked |= {"--cpus-per-task=8", "--dependency=singleton", "--output=/store/models/stage-1/log.txt", "--requeue"}
    assert asked <= options(text)
    assert "export NCCL_DEBUG=INFO\n" in text and "module load x\n" in text
    assert f"\n{sys.executable} -P -m train.run /store/models/stage-1/spec.json\n" in text
    assert not {name for option in options(rendered()) for name in ("gpus", "partition", "account", "time=") if name in option}


def test_rl_takes_one_gpu_of_one_node_whatever_sft_takes() -> None:
    assert {"--nodes=1", "--gpus-per-node=1"} <= options(rendered("rl", nodes=2, gpus_per_node=8))


def test_several_nodes_get_a_launcher_each_by_srun_that_knows_its_number_and_where_to_meet() -> None:
    text = rendered(nodes=2, gpus_per_node=8, sharding="fsdp")
    (line,) = [line for line in text.splitlines() if line.startswith("srun ")]
    shell = subprocess.run(["bash", "-c", f'set -- {line}; echo "${{@: -1}}"'], capture_output=True, text=True, check=True).stdout
    given = os.environ | {"SLURM_NODEID": "1", "first": "n1", "port": "20041"}
    words = subprocess.run(["bash", "-c", shell.replace("exec ", "echo ", 1)], env=given, capture_output=True, text=True, check=True)
    assert "--machine_rank 1 --main_process_ip n1 --main_process_port 20041" in words.stdout
    assert "--use_fsdp --fsdp_version 2 --num_processes 16 --num_machines 2" in words.stdout
    assert words.stdout.startswith(f"{sys.executable} -P -m accelerate.commands.launch ")


def test_the_environment_that_goes_along_is_named_and_holds_no_secret() -> None:
    assert "--export=HOME,USER,LANG,PATH,LD_LIBRARY_PATH,PYTHONPATH" in options(rendered())


def test_a_jobs_name_follows_from_its_stage_and_spec_and_not_from_what_it_asks_for() -> None:
    assert job_name(spec(), FOLDER) == job_name(spec(), FOLDER) != job_name(spec(seed=1), FOLDER)
    assert job_name(spec(), FOLDER).startswith("headrace-stage-1-")
    name = f"--job-name={job_name(spec(), FOLDER)}"
    assert name in options(rendered(cpus=2)) & options(rendered(cpus=4, slurm={"partition": "gpu"}))


# ---- the script at work, with a scripted Python and scancel ---------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the script of a stage whose command is the given shell; returns the exit code and whether the other tasks were cancelled."""

    def run(command: str) -> tuple[int, bool]:
        for name, text in (("python", command), ("scancel", f'echo "$@" >> {tmp_path}/cancelled')):
            (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        text = script(spec(store=tmp_path), tmp_path / "models/stage-1", ClusterConfig.model_validate({"slurm": {"attempts": 3}}))
        (tmp_path / "models/stage-1").mkdir(parents=True, exist_ok=True)
        given = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_JOB_ID": "41"}
        done = subprocess.run(["bash"], input=text, text=True, env=given, check=False)
        cancelled = tmp_path / "cancelled"
        if cancelled.exists():
            assert cancelled.read_text() == "--state=PENDING 41\n"
        return done.returncode, cancelled.exists()

    return run


@pytest.mark.parametrize(
    ("command", "code", "cancels"),
    [
        ("exit 0", 0, True),
        ("exit 2", 2, True),
        ("kill -9 $$", 137, True),
        ("kill -TERM $PPID; exit 1", 1, False),
        ("kill -TERM $$", 143, False),
    ],
)
def test_a_stage_that_ends_by_itself_cancels_the_other_tasks_and_one_that_slurm_ends_does_not(
    run: Any, command: str, code: int, cancels: bool
) -> None:
    assert run(command) == (code, cancels)


def test_a_task_whose_stage_is_done_ends_at_once(run: Any, tmp_path: Path) -> None:
    (tmp_path / "models/stage-1").mkdir(parents=True)
    (tmp_path / "models/stage-1/result.json").write_text("{}")
    assert run("exit 7") == (0, False)


# ---- the section -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"time_limit": "two hours"}, "pattern"),
        ({"options": ["-p gpu"]}, "no long option of sbatch: write --NAME=VALUE"),
        ({"options": ["--array=1-9"]}, "--array is set from the other keys of train.cluster"),
        ({"options": ["--comment=x\n--uid=0"]}, "an item is one line"),
        ({"setup": ["export PROXY=http://me:hunter2@proxy"]}, "a line holds a secret"),
        ({"queue": "gpu"}, "Extra inputs"),
    ],
)
def test_what_cannot_be_is_refused_in_words(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ClusterConfig.model_validate({"slurm": section})


def test_both_backends_are_named_in_a_configuration() -> None:
    section = {"backend": "slurm", "stages": [{"name": "sft1"}, {"name": "rl", "backend": "kuberay"}]}
    config = CascadeConfig.model_validate(section)
    assert {name: type(config.backend_of(config.stage(name))) for name in ("sft1", "rl")} == {
        "sft1": BACKENDS["slurm"],
        "rl": BACKENDS["kuberay"],
    }
