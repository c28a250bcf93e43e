"""The section of a cluster, and the Ray Job that is made from it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from storage.errors import BadInput
from train.backends.cluster import ClusterConfig, job, resources_of
from train.backends.ray import RayBackend, describe_job
from train.config import CascadeConfig
from train.spec import RLSettings, SFTSettings, StageSpec

SPEC = "/store/models/stage-1/spec.json"


def made(**section: Any) -> dict[str, Any]:
    return job(ClusterConfig(**section), "headrace-stage-1", "sft1", SPEC, folder="models/stage-1")


# ---- secrets ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "OPENAI_APIKEY", "hf_token", "KEYS", "DB_PASS", "MY_PWD"]
)
def test_no_name_that_looks_like_a_secret_is_let_into_a_job(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} looks like a secret.*give it to the nodes themselves"):
        ClusterConfig(env={name: "hunter2"})


def test_no_url_with_a_password_is_let_into_a_job() -> None:
    with pytest.raises(ValidationError, match="PROXY looks like a secret"):
        ClusterConfig(env={"PROXY": "http://me:hunter2@proxy"})
    for section in (
        {"checkpoints": "s3://me:hunter2@bucket"},
        {"address": "http://me:hunter2@head:8265"},
        {"pip": ["https://me:x@index/a.whl"]},
        {"pip": ["headrace @ git+https://ghp_hunter2@github.com/team/headrace"]},
        {"working_dir": "https://bucket.s3.amazonaws.com/code.zip?X-Amz-Expires=900&X-Amz-Signature=hunter2"},
    ):
        with pytest.raises(ValidationError, match="the URL has a password or a token in it"):
            ClusterConfig.model_validate(section)


def test_a_name_in_a_url_that_is_no_secret_is_let_in() -> None:
    ClusterConfig(checkpoints="abfs://container@account.dfs.core.windows.net/headrace", pip=("git+ssh://git@github.com/team/headrace",))


def test_other_variables_go_along_and_may_replace_ours() -> None:
    env = {"NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": "true", "KEYBOARD": "de"}
    assert made(env=env)["runtime_env"]["env_vars"].items() >= env.items()


# ---- what is refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"gpu": 8}, "Extra inputs"),
        ({"address": "head:6379"}, "say http://HEAD:8265"),
        ({"nodes": 2}, "several nodes need gpus_per_node"),
        ({"image": "me/train:1", "pip": ["headrace"]}, "Ray takes `image` with neither"),
        ({"checkpoints": "/shared"}, "a folder of one machine"),
    ],
)
def test_what_cannot_be_is_refused_in_words(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ClusterConfig.model_validate(section)


# ---- jobs --------------------------------------------------------------------------------------------------------------------


def test_a_job_asks_for_what_the_configuration_says_and_no_more() -> None:
    assert made() == {
        "submission_id": "headrace-stage-1",
        "metadata": {"headrace_stage": "sft1"},
        "runtime_env": {"env_vars": made()["runtime_env"]["env_vars"]},
        "entrypoint": f"python -P -m train.run {SPEC}",
        "entrypoint_num_cpus": 1.0,
        "entrypoint_num_gpus": 0.0,
    }
    asked = made(cpus=12, gpus_per_node=1, resources={"fast_disk": 1}, labels={"ray.io/accelerator-type": "H100"}, image="me/train:1")
    assert asked["entrypoint"] == f"python -P -m train.run {SPEC}"
    assert (asked["entrypoint_num_cpus"], asked["entrypoint_num_gpus"], asked["entrypoint_resources"]) == (12.0, 1.0, {"fast_disk": 1.0})
    assert asked["entrypoint_label_selector"] == {"ray.io/accelerator-type": "H100"}
    assert asked["runtime_env"]["image_uri"] == "me/train:1"


def test_rays_own_models_take_the_job() -> None:
    """Given Ray's own request and runtime environment, then ours fit into them to the last key."""
    from ray.dashboard.modules.job.common import JobSubmitRequest
    from ray.runtime_env import RuntimeEnv

    for section in (
        {"pip": ("trl",), "working_dir": "s3://bucket/code.zip"},
        {"image": "me/train:1", "resources": {"disk": 1}, "labels": {"a": "b"}},
    ):
        body = made(**section)
        JobSubmitRequest(**body)
        RuntimeEnv(**body["runtime_env"])


def test_several_gpus_of_a_node_get_a_process_each() -> None:
    asked = made(gpus_per_node=8)
    arguments = _accelerate(shlex.split(asked["entrypoint"]))
    assert (arguments.num_processes, arguments.num_machines, arguments.multi_gpu, arguments.module) == (8, 1, True, True)
    assert (arguments.training_script, arguments.training_script_args) == ("train.run", [SPEC])
    assert asked["entrypoint_num_gpus"] == 8.0


def test_sharded_stages_are_started_with_fsdp2() -> None:
    arguments = _accelerate(shlex.split(made(gpus_per_node=8, sharding="fsdp")["entrypoint"]))
    assert (arguments.use_fsdp, str(arguments.fsdp_version), arguments.num_processes) == (True, "2", 8)
    with pytest.raises(ValidationError, match="several GPUs"):
        ClusterConfig(gpus_per_node=1, sharding="fsdp")
    with pytest.raises(ValidationError, match="share the store's folder"):
        ClusterConfig(nodes=2, gpus_per_node=8, sharding="fsdp", checkpoints="s3://bucket/store")


def test_rl_takes_one_gpu_of_one_node_whatever_sft_takes() -> None:
    """Its one process plays and learns; started by `accelerate launch` it would refuse."""
    fields: dict[str, Any] = {"name": "s", "store": "/store", "release_id": "r", "split": "s", "model_out": "/store/models/s/model"}
    cluster = ClusterConfig(nodes=2, gpus_per_node=8, cpus=24)
    sft, rl = (StageSpec(algorithm=name, **{name: settings}, **fields) for name, settings in (("sft", SFTSettings()), ("rl", RLSettings())))
    assert resources_of(cluster, sft) == cluster
    assert resources_of(ClusterConfig(), rl) == ClusterConfig(), "where there is no GPU, none"
    _, asked = describe_job(rl, Path("/store/models/s"), cluster)
    assert asked["entrypoint"] == "python -P -m train.run /store/models/s/spec.json"
    assert (asked["entrypoint_num_gpus"], asked["entrypoint_num_cpus"]) == (1.0, 24.0)


def test_a_journal_that_would_not_be_sent_is_refused() -> None:
    fields: dict[str, Any] = {"name": "s", "store": "/store", "release_id": "r", "split": "s", "model_out": "/store/models/s/model"}
    spec = StageSpec(algorithm="rl", rl=RLSettings(staleness=1, rollout_workers=2), **fields)
    sent, shared = ClusterConfig(checkpoints="s3://bucket/store"), ClusterConfig()
    words = r"stage s: rollout_workers keep a journal.*share the store's folder.*set rollout_workers to null"
    with pytest.raises(BadInput, match=words):
        describe_job(spec, Path("/store/models/s"), sent)
    check = {need.name: need.check for need in RayBackend(sent).needs(spec)}["journal"]
    assert check is not None
    with pytest.raises(BadInput, match=words):
        check(None)
    describe_job(spec, Path("/store/models/s"), shared)
    describe_job(spec.model_copy(update={"rl": RLSettings(staleness=1)}), Path("/store/models/s"), sent)
    assert "journal" not in [need.name for need in RayBackend(shared).needs(spec)]


def test_a_stage_needs_the_gpus_that_it_takes_and_shares_its_batch_among_them() -> None:
    fields: dict[str, Any] = {"name": "s", "store": "/store", "release_id": "r", "split": "s", "model_out": "/store/models/s/model"}
    sft, rl = (StageSpec(algorithm=name, **{name: settings}, **fields) for name, settings in (("sft", SFTSettings()), ("rl", RLSettings())))
    backend = RayBackend(ClusterConfig(nodes=2, gpus_per_node=8))
    assert [need.requirement for need in backend.needs(sft)][1:] == ["2 x 8 GPUs, free when a stage of sft starts"]
    assert [need.requirement for need in backend.needs(rl)][1:] == ["1 x 1 GPUs, free when a stage of rl starts"]
    assert [need.name for need in RayBackend().needs(sft)] == ["cluster"]
    assert [backend.processes(sft), backend.processes(rl), RayBackend().processes(sft)] == [16, 1, 1]


@pytest.mark.parametrize(
    ("batch", "at_once", "words"),
    [
        (24, None, "24 does not divide among the 16 GPUs of `cluster` in sft1"),
        (96, 4, "4 does not divide the 6 rows of a GPU's share in sft1"),
        (32, 16, None),
    ],
)
def test_a_batch_that_the_gpus_cannot_share_is_refused_with_the_configuration(batch: int, at_once: int | None, words: str | None) -> None:
    stages = [{"name": "sft1", "batch_size": batch, "micro_batch_size": at_once}, {"name": "sft2", "batch_size": 16}]
    section = {"backend": "ray", "cluster": {"nodes": 2, "gpus_per_node": 8}, "stages": stages}
    if words is None:
        CascadeConfig.model_validate(section)
    else:
        with pytest.raises(ValidationError, match=words):
            CascadeConfig.model_validate(section)


def test_several_nodes_get_a_launcher_each_that_knows_its_number_and_where_to_meet() -> None:
    asked = made(nodes=2, gpus_per_node=8, cpus=24, labels={"zone": "a"})
    python, p, m, module, spread, *command = shlex.split(asked["entrypoint"])
    assert (python, p, m, module) == ("python", "-P", "-m", "train.backends.on_nodes")
    assert json.loads(spread) == {"nodes": 2, "take": {"CPU": 24.0, "GPU": 8.0}, "labels": {"zone": "a"}}
    assert "entrypoint_num_gpus" not in asked, "the job itself only waits"
    arguments = _accelerate([word.format(rank=1, ip="10.0.0.1", port=29500) for word in command])
    assert (arguments.num_processes, arguments.num_machines, arguments.machine_rank) == (16, 2, 1)
    assert (arguments.main_process_ip, arguments.main_process_port) == ("10.0.0.1", 29500)


def test_with_a_url_each_node_works_in_a_copy_of_what_lies_there() -> None:
    asked = made(nodes=2, gpus_per_node=8, checkpoints="s3://bucket/headrace")
    command = shlex.split(asked["entrypoint"])[5:]
    assert command[:8] == [
        "python",
        "-P",
        "-m",
        "train.backends.remote_sync",
        "s3://bucket/headrace",
        "models/stage-1",
        "accelerate",
        "launch",
    ]


def _accelerate(command: list[str]) -> Any:
    """The command as accelerate itself reads it."""
    from accelerate.commands.launch import launch_command_parser

    assert command[:2] == ["accelerate", "launch"]
    return launch_command_parser().parse_args(command[2:])
