"""What becomes of a stage that verl or ROLL trains, by a scripted cluster (`scripted_engines.py`): a policy that is whole, or one line why
there is none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from storage.errors import BadInput
from storage.health.weights import weights_hash
from storage.store import Store
from tests.conftest import Serve
from tests.train.backends.fake_jobs import RUNNING, STOPPED, SUCCEEDED
from tests.train.backends.scripted_engines import PLAYED, ScriptedEngine, save_verl
from tests.train.backends.stages import stage as rendered_stage
from train.backends import job_backend
from train.backends.base import FailureKind, StageFailed, run_stage
from train.backends.cluster import ClusterConfig, EngineShape
from train.backends.engines import engine_stage
from train.backends.engines.engine_results import Engine
from train.backends.engines.engine_stage import OTHER_VERSION, EngineBackend, RollBackend, VerlBackend
from train.backends.roll.roll_results import ROLL
from train.backends.verl import verl_overrides
from train.backends.verl.verl_results import VERL
from train.spec import LoRASettings, RLSettings, SFTSettings, StageSpec

STEPS = 3
RL = RLSettings(max_steps=STEPS, tasks_a_step=4, draws=2, max_tokens=16)
SFT = SFTSettings(max_steps=STEPS, batch_size=4)
BACKENDS: dict[str, type[EngineBackend]] = {"verl": VerlBackend, "roll": RollBackend}


class Stage:
    """A stage over the tests' release and a policy of a few weights, and the cluster that would run it."""

    def __init__(self, released: tuple[Store, str], folder: Path, serve: Serve) -> None:
        self._released, self._serve, self.policy, self.folder = released, serve, folder / "policy", folder / "models" / "stage-1"
        self.policy.mkdir()
        config = {"model_type": "qwen3", "hidden_size": 8, "num_attention_heads": 2, "max_position_embeddings": 512}
        (self.policy / "config.json").write_text(json.dumps(config))
        (self.policy / "tokenizer.json").write_text("{}")
        (self.policy / "chat_template.jinja").write_text("<tool_call>")
        weights = {f"model.layers.{layer}.weight": np.full((8, 8), layer, np.float32) for layer in range(2)}
        save_file(weights, self.policy / "model.safetensors")

    def spec(self, **changes: Any) -> StageSpec:
        fields = {"model_out": self.folder / "model"} | ({} if "sft" in changes else {"rl": RL}) | changes
        return rendered_stage(self._released, self.policy, **fields)

    def cluster(self, fake: ScriptedEngine, **changes: Any) -> ClusterConfig:
        shape = EngineShape(prompt_tokens=256, response_tokens=256)
        fields = {"address": self._serve(fake).removesuffix("/v1"), "gpus_per_node": 2, "engine": shape, "patience_s": 0.3}
        return ClusterConfig(**(fields | changes))

    def run(self, cluster: ClusterConfig, engine: str = "verl", **changes: Any) -> dict[str, Any]:
        self.reports: list[tuple[int, int, str]] = []
        report = lambda *told: self.reports.append(told)  # noqa: E731
        return run_stage(BACKENDS[engine](cluster), self.spec(**changes), self.folder, report)

    def rows(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    @property
    def noted(self) -> dict[str, Any]:
        noted: dict[str, Any] = json.loads((self.folder / "job.json").read_text())
        return noted


@pytest.fixture
def stage(released: tuple[Store, str], tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(job_backend, "POLL_S", 0.01)
    monkeypatch.setattr(job_backend, "ARRIVAL_S", 0.05)
    monkeypatch.setattr(engine_stage, "LOG_EVERY_S", 0.0)
    monkeypatch.setattr(verl_overrides, "SCHEMA", tmp_path / "none")  # composing with verl's schema is tested where it is rendered
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return Stage(released, tmp_path, serve)


# ---- a policy comes back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "changes"), [("verl", {}), ("verl", {"sft": SFT}), ("roll", {})])
def test_a_stage_ends_with_the_saved_policy_its_metrics_and_the_figures_of_its_rollouts(
    stage: Stage, engine: str, changes: dict[str, Any]
) -> None:
    fake = ScriptedEngine()
    result = stage.run(stage.cluster(fake), engine, **changes)
    model = stage.folder / "model"
    assert result["weights_hash"] == weights_hash(model) != weights_hash(stage.policy)
    assert {"config.json", "tokenizer.json", "chat_template.jinja"} <= {path.name for path in model.iterdir()}
    assert [row["step"] for row in stage.rows()] == [1.0, 2.0, 3.0]
    figures = {"steps": 3.0, "learning_rate": 1e-5, "loss": 2 / 3}
    if not changes:
        figures = {"steps": 3.0, "reward": 0.3, "loss": 0.1, "entropy": 0.5, "learning_rate": 1e-6, "turns": 3.0}
        figures |= {"rollouts_played": PLAYED, "rollouts_dropped": 1.0, "success_share": 1 / PLAYED, "rollout_turns": 2.0}
    assert result["metrics"] == pytest.approx(figures)
    assert stage.reports[0] == (3, 3, "loss 0.667" if changes else "reward 0.3")
    assert result["engine"] in ("verl 0.9.1", "ROLL 8eb27cc") and len(result["code_hash"]) == 16
    (job,) = fake.submitted
    assert stage.noted["status"] == "SUCCEEDED" and stage.noted["job"] == job
    left = {path.name for path in (stage.folder / engine).iterdir()}
    assert {"start.sh", "entrypoint.sh", "data", "notes.txt"} <= left and not left & {"checkpoints", "output", "submit.sh"}
    assert stage.run(stage.cluster(fake), engine, **changes) == result and len(fake.submitted) == 1


def test_a_job_asks_for_no_gpu_of_its_own_and_goes_where_the_section_says(stage: Stage) -> None:
    fake = ScriptedEngine()
    stage.run(stage.cluster(fake, labels={"pool": "h200"}, resources={"engine": 0.01}, env={"NCCL_DEBUG": "WARN"}, image="team/verl:1"))
    (job,) = fake.submitted
    assert job["entrypoint"] == f"bash {stage.folder / 'verl' / 'start.sh'}"
    assert (job["entrypoint_label_selector"], job["entrypoint_resources"]) == ({"pool": "h200"}, {"engine": 0.01})
    assert not {"entrypoint_num_gpus", "entrypoint_num_cpus"} & set(job)
    assert job["runtime_env"]["image_uri"] == "team/verl:1"
    assert job["runtime_env"]["env_vars"]["NCCL_DEBUG"] == "WARN"


def test_the_rows_and_the_configuration_lie_where_the_engine_reads_them(stage: Stage) -> None:
    stage.run(stage.cluster(ScriptedEngine()))
    script = (stage.folder / "verl" / "entrypoint.sh").read_text()
    for key, name in (("data.train_files", "data/rl.prompts.parquet"), ("agent_loop_config_path", "agent_loop.yaml")):
        assert f"{key}=" in script and str(stage.folder / "verl" / name) in script
        assert (stage.folder / "verl" / name).is_file()
    assert "trainer.n_gpus_per_node=2" in script and "data.max_prompt_length=256" in script


# ---- one stage, one job ---------------------------------------------------------------------------------------------------------


def test_a_launcher_that_was_killed_is_followed_by_one_that_finds_the_job_whatever_the_section_now_asks_for(stage: Stage) -> None:
    """Given a job whose launcher is gone, when another one launches the stage with more GPUs, then it follows that job."""
    fake = ScriptedEngine(RUNNING)
    cluster = stage.cluster(fake)
    stage.folder.mkdir(parents=True)
    assert VerlBackend(cluster).launch(stage.spec(), stage.folder) is not None
    fake.jobs = {name: [RUNNING, SUCCEEDED] for name in fake.jobs}
    result = stage.run(cluster.model_copy(update={"gpus_per_node": 4}))
    assert len(fake.submitted) == 1 and result["metrics"]["steps"] == 3.0


@pytest.mark.parametrize("engine", ["verl", "roll"])
def test_a_job_that_ended_while_no_launcher_ran_has_the_figures_of_all_its_steps(stage: Stage, engine: str) -> None:
    fake = ScriptedEngine(RUNNING)
    cluster = stage.cluster(fake)
    stage.folder.mkdir(parents=True)
    assert BACKENDS[engine](cluster).launch(stage.spec(), stage.folder) is not None
    fake.jobs = {name: [SUCCEEDED] for name in fake.jobs}
    result = stage.run(cluster, engine)
    assert (result["metrics"]["steps"], len(stage.rows())) == (3.0, 3) and result["metrics"]["reward"] == pytest.approx(0.3)
    assert stage.noted["status"] == "SUCCEEDED" and (stage.folder / "log.txt").exists() and len(fake.submitted) == 1


@pytest.mark.parametrize("engine", ["verl", "roll"])
def test_a_launcher_that_was_killed_while_it_moved_the_policy_is_followed_by_one_that_ends_it(
    stage: Stage, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException): ...

    def kill(*_: Any) -> bool:
        raise Killed

    fake = ScriptedEngine()
    with monkeypatch.context() as patch:
        patch.setattr(engine_stage._EngineFiles, "_publish", kill)
        with pytest.raises(Killed):
            stage.run(stage.cluster(fake), engine)
    assert (stage.folder / "model").is_dir() and not (stage.folder / "result.json").exists()
    fake.jobs = {name: [SUCCEEDED] for name in fake.jobs}
    fake.on_end = bool
    result = stage.run(stage.cluster(fake), engine)
    assert result["weights_hash"] == weights_hash(stage.folder / "model") and len(fake.submitted) == 1


def failed(exit_code: int = 1) -> dict[str, Any]:
    return {"status": "FAILED", "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": exit_code, "message": ""}


@pytest.mark.parametrize("engine", ["verl", "roll"])
def test_a_further_attempt_of_verl_goes_on_in_the_same_folder_and_one_of_roll_begins_in_a_new_one(stage: Stage, engine: str) -> None:
    fake = ScriptedEngine(failed())
    with pytest.raises(StageFailed):
        stage.run(stage.cluster(fake), engine)
    kept = stage.folder / engine / "checkpoints" / "mine"
    kept.mkdir(parents=True)
    fake.life = [SUCCEEDED]
    assert stage.run(stage.cluster(fake), engine)["metrics"]["steps"] == 3.0
    first, second = (job["entrypoint"].rpartition("/")[0] for job in fake.submitted)
    assert (first == second) is (engine == "verl")
    assert {path.name for path in stage.folder.glob(f"{engine}*")} == {Path(second).name}
    attempts = sorted(path.name for path in (stage.folder / engine).glob("verl-metrics-*"))
    assert attempts == ["verl-metrics-1.jsonl", "verl-metrics-2.jsonl"] or engine == "roll"


@pytest.mark.parametrize("engine", ["verl", "roll"])
def test_a_job_that_the_cluster_forgot_is_run_again_where_only_verl_goes_on(stage: Stage, engine: str) -> None:
    """Given a head that was restarted after a checkpoint of step 2, and a file beside whose name begins as the engine's folder does."""
    fake = ScriptedEngine(RUNNING)
    cluster = stage.cluster(fake)
    stage.folder.mkdir(parents=True)
    assert BACKENDS[engine](cluster).launch(stage.spec(), stage.folder) is not None
    (stage.folder / f"{engine}out_workers").write_text("4")
    place = stage.folder / engine
    (place / "rollouts" / "host-1.jsonl").write_text(
        "".join(json.dumps({"global_steps": step, "reward": 1.0, "turns": 2, "success": True}) + "\n" for step in (1, 2, 3))
    )
    if engine == "verl":
        save_verl(place, stage.policy, stage.spec(), 2)
    found: list[list[int]] = []

    def begin(body: dict[str, Any]) -> None:
        path = place / "rollouts" / "host-1.jsonl"
        found.append([json.loads(line)["global_steps"] for line in path.read_text().splitlines()] if path.exists() else [])
        fake._begin(body)

    fake.jobs, fake.life, fake.before_submission = {}, [SUCCEEDED], begin
    assert stage.run(cluster, engine)["metrics"]["steps"] == 3.0
    assert found == ([[1, 2]] if engine == "verl" else [[]])
    metrics = sorted(path.name for path in place.glob("verl-metrics-*"))
    assert metrics == (["verl-metrics-1.jsonl", "verl-metrics-2.jsonl"] if engine == "verl" else [])


@pytest.mark.parametrize("engine", [VERL, ROLL])
def test_a_line_of_metrics_without_its_parts_is_skipped(engine: Engine, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"step": 1}, {"data": {}, "metrics": {}}, {"step": 1, "data": 3, "metrics": 3}]
    lines.append({"step": 1, "data": {"critic/score/mean": 0.5}, "metrics": {"critic/score/mean": 0.5}})
    (tmp_path / "verl-metrics-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = "".join(f"metrics_tag: {json.dumps(line)}\n" for line in lines)
    assert [row["reward"] for row in engine.metrics(tmp_path, log)] == [0.5]


def test_a_further_attempt_on_another_cluster_does_not_go_on_from_checkpoints_of_the_first(stage: Stage) -> None:
    fake = ScriptedEngine(failed())
    with pytest.raises(StageFailed):
        stage.run(stage.cluster(fake))
    save_verl(stage.folder / "verl", stage.policy, stage.spec(), 2)
    begun: list[bool] = []
    begin = fake.before_submission
    fake.before_submission = lambda body: (begun.append((stage.folder / "verl" / "checkpoints").exists()), begin(body))
    with pytest.raises(StageFailed):
        stage.run(stage.cluster(fake))
    save_verl(stage.folder / "verl", stage.policy, stage.spec(), 2)
    with pytest.raises(StageFailed):
        stage.run(stage.cluster(fake, gpus_per_node=4))
    assert begun == [True, False]


# ---- policies that are not whole ------------------------------------------------------------------------------------------------


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-32])


def lose_a_shard(folder: Path) -> None:
    shards = {"model.layers.0.weight": "model-00001-of-00002.safetensors", "model.layers.1.weight": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))


def lose_a_tensor(folder: Path) -> None:
    save_file({"model.layers.0.weight": np.zeros((8, 8), np.float32)}, folder / "model.safetensors")


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (cut, r"model\.safetensors is cut off"),
    (lose_a_shard, r"lacks 1 of its weight files, model-00002-of-00002\.safetensors among them"),
    (lambda folder: (folder / "tokenizer.json").unlink(), r"holds no tokenizer \(tokenizer\.json\)"),
    (lose_a_tensor, r"has no tensor as model\.layers\.1\.weight"),
]


@pytest.mark.parametrize(("engine", "damage", "words"), [*(("verl", *case) for case in DAMAGES), ("roll", *DAMAGES[0])])
def test_a_policy_that_is_not_whole_is_refused_by_its_file_and_made_again(
    stage: Stage, engine: str, damage: Callable[[Path], object], words: str
) -> None:
    fake = ScriptedEngine(damage=damage)
    with pytest.raises(StageFailed, match=rf"saved no whole policy at step 3: .*{words}") as refused:
        stage.run(stage.cluster(fake), engine)
    assert "\n" not in str(refused.value)
    assert not (stage.folder / "result.json").exists() and not (stage.folder / "model").exists()
    fake._damage = bool
    assert stage.run(stage.cluster(fake), engine)["metrics"]["steps"] == 3.0
    assert len(fake.submitted) == 2


def test_verl_goes_on_from_the_last_whole_checkpoint_where_a_later_one_is_damaged(stage: Stage) -> None:
    fake = ScriptedEngine(failed())
    with pytest.raises(StageFailed):
        stage.run(stage.cluster(fake))
    place = stage.folder / "verl"
    for step in (1, 2):
        folder = save_verl(place, stage.policy, stage.spec(), step)
    cut(folder)
    with pytest.raises(StageFailed):
        stage.run(stage.cluster(fake))
    assert (place / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "1"
    assert sorted(path.name for path in (place / "checkpoints").glob("global_step_*")) == ["global_step_1"]


def test_a_job_that_saved_nothing_is_an_error_of_one_line(stage: Stage) -> None:
    fake = ScriptedEngine(SUCCEEDED, damage=lambda folder: shutil.rmtree(folder.parents[2]))
    with pytest.raises(
        Exception, match=r"has succeeded, but verl has left no policy under .*verl: all nodes must see the store"
    ) as failure:
        stage.run(stage.cluster(fake))
    assert "\n" not in str(failure.value)


def test_a_training_that_ended_early_says_so(stage: Stage) -> None:
    fake = ScriptedEngine()
    fake.steps = 2
    fake.on_end = lambda: save_verl(stage.folder / "verl", stage.policy, stage.spec(), 2)
    assert "verl ended after step 2 of 3" in stage.run(stage.cluster(fake))["notes"]


def test_a_policy_older_than_the_last_step_is_not_taken_and_nothing_is_removed(stage: Stage) -> None:
    """Given a file system that does not show the last checkpoint yet."""
    fake = ScriptedEngine()
    place = stage.folder / "verl"
    fake.on_end = lambda: save_verl(place, stage.policy, stage.spec(), 2)
    with pytest.raises(StageFailed, match=r"the newest policy under .*verl is of step 2, and verl finished step 3"):
        stage.run(stage.cluster(fake))
    assert (place / "checkpoints" / "global_step_2").is_dir() and not (stage.folder / "result.json").exists()
    save_verl(place, stage.policy, stage.spec(), 3)
    fake.on_end, fake.jobs = bool, {name: [SUCCEEDED] for name in fake.jobs}
    assert stage.run(stage.cluster(fake))["metrics"]["steps"] == 3.0 and len(fake.submitted) == 1


# ---- jobs that fail -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "ended", "log", "kind", "words"),
    [
        ("verl", failed(OTHER_VERSION), "headrace: ... verl 0.9.1, and this node has 0.8.0", "version", "another verl than 0.9.1"),
        ("roll", failed(OTHER_VERSION), "headrace: ... ROLL 8eb27cc, and this node has none", "version", "another ROLL than 8eb27cc"),
        ("verl", failed(), "ray.exceptions.ActorDiedError: The actor died because its node has died.", "lost", "from its last checkpoint"),
        ("roll", failed(), "ray.exceptions.NodeDiedError: Task failed due to node dying.", "lost", "goes on from its input policy"),
        ("verl", failed(), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "memory", "tensor_parallel"),
        ("verl", failed(), "ValueError: Total available GPUs 2 is less than total desired GPUs 4", "resources", "was free in time"),
        ("roll", failed(2), "ROLL plans with the GPUs that its driver sees: start it on a node with 8", "resources", "was free in time"),
        ("verl", failed(), "ModuleNotFoundError: No module named 'train'", "start", "verl and Headrace in the image"),
        ("verl", failed(), "No module named 'flash_attn', so sdpa\nAssertionError: batch", "stage", "the end of its log says why"),
        ("verl", failed(-9), "step 2", "killed", "signal 9"),
        ("verl", STOPPED, "step 2", "stopped", "from its last checkpoint"),
        ("verl", failed(), "AssertionError: batch", "stage", "the end of its log says why"),
    ],
)
def test_a_job_that_fails_says_how_in_one_line_before_the_end_of_its_log(
    stage: Stage, engine: str, ended: dict[str, Any], log: str, kind: FailureKind, words: str
) -> None:
    fake = ScriptedEngine(RUNNING, ended)
    begin = fake.before_submission
    fake.before_submission = lambda body: (begin(body), setattr(fake, "log", log))
    with pytest.raises(StageFailed) as failure:
        stage.run(stage.cluster(fake), engine)
    first, *tail = str(failure.value).splitlines()
    assert failure.value.kind == stage.noted["kind"] == kind
    assert words in first and tail == log.splitlines()
    assert not (stage.folder / "model").exists()


def test_the_start_script_ends_where_another_version_is_installed_and_else_starts_the_engine(stage: Stage, tmp_path: Path) -> None:
    """Given an image whose Python says which verl it has, and a checkout of ROLL at a commit."""
    stage.run(stage.cluster(ScriptedEngine()))
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    place = stage.folder / "verl"
    (place / "entrypoint.sh").write_text("echo trained\n")
    (bin_folder / "python3").write_text('#!/bin/sh\n[ -n "$VERL" ] && echo $VERL\n')
    (bin_folder / "python3").chmod(0o755)

    def start(folder: Path, **variables: str) -> tuple[int, str]:
        environment = {"PATH": f"{bin_folder}:{os.environ['PATH']}", **variables}
        ended = subprocess.run(["bash", str(folder / "start.sh")], env=environment, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    assert start(place, VERL="0.9.1") == (0, "trained\n")
    told = "headrace: the stage was rendered for verl 0.9.1, and this node has"
    assert start(place, VERL="0.9.10") == (OTHER_VERSION, f"{told} 0.9.10\n")
    assert start(place) == (OTHER_VERSION, f"{told} none\n")
    shutil.rmtree(stage.folder)
    stage.run(stage.cluster(ScriptedEngine()), "roll")
    (stage.folder / "roll" / "entrypoint.sh").write_text("echo trained\n")
    assert start(stage.folder / "roll", ROLL_COMMIT="8eb27cc2aaaa") == (0, "trained\n")
    assert start(stage.folder / "roll", ROLL_COMMIT="370cb24c")[0] == OTHER_VERSION
    assert start(stage.folder / "roll", ROLL_HOME=str(tmp_path))[1].endswith("this node has none\n")


# ---- what is refused -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "cluster", "changes", "words"),
    [
        ("verl", {"gpus_per_node": 0}, {}, "trains on GPUs: set train.cluster.gpus_per_node"),
        ("verl", {"checkpoints": "s3://bucket/there"}, {}, "leave `checkpoints` out"),
        ("verl", {}, {"model_in": None}, "starts from a fresh tiny policy"),
        ("verl", {}, {"sft": SFT.model_copy(update={"lora": LoRASettings()})}, "sft.lora: verl saves adapters beside the weights"),
        ("roll", {}, {"sft": SFT}, "ROLL's SFT takes single-turn rows without tools"),
        ("roll", {}, {"rl": RL.model_copy(update={"max_steps": 1})}, "ROLL saves no policy before its second step"),
        ("verl", {}, {"rl": RL.model_copy(update={"loss": "rft"})}, "rl.loss is rft, which only our own trainer has"),
        ("verl", {"gpus_per_node": 3}, {}, "which the number of GPUs 3 does not divide"),
    ],
)
def test_a_stage_that_an_engine_cannot_train_is_refused_in_one_line_and_not_submitted(
    stage: Stage, engine: str, cluster: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    fake = ScriptedEngine()
    section = stage.cluster(fake, **cluster)
    for refuse in (
        lambda: BACKENDS[engine](section).render(stage.spec(**changes), stage.folder),
        lambda: stage.run(section, engine, **changes),
    ):
        with pytest.raises(BadInput) as refused:
            refuse()
        assert words in str(refused.value) and "\n" not in str(refused.value)
    assert not fake.submitted and not (stage.folder / engine).exists()


def test_a_cluster_whose_nodes_have_no_gpu_is_refused_by_name(stage: Stage) -> None:
    fake = ScriptedEngine()
    fake.gpus = 0
    cluster = stage.cluster(fake)
    answers, gpus, installed = VerlBackend(cluster).needs(stage.spec())
    assert answers.check is not None and (gpus.check, installed.check) == (None, None)
    assert gpus.requirement.startswith("2 GPUs for verl") and "verl 0.9.1 and Headrace" in installed.requirement
    words = r"^no node of the Ray cluster http://\S+ has a GPU, and verl trains on GPUs: add such nodes to it$"
    with pytest.raises(BadInput, match=words):
        answers.check(0.0)
    with pytest.raises(BadInput, match=words):
        stage.run(cluster)
    assert not fake.submitted
    fake.gpus = None
    answers.check(0.0)
    assert stage.run(cluster)["metrics"]["steps"] == 3.0, "a cluster that does not tell has the job wait for GPUs"


def test_a_dry_run_shows_the_files_and_the_job_of_a_stage_whose_release_and_policy_are_not_made_yet(stage: Stage) -> None:
    spec = stage.spec(release_id="RELEASE-FOR-rl", model_in=stage.folder.with_name("STAGE-sft2") / "model")
    for engine, own in (("verl", "agent_loop.yaml"), ("roll", "pipeline.yaml")):
        backend = BACKENDS[engine](stage.cluster(ScriptedEngine()))
        files = backend.render(spec, stage.folder)
        assert {"spec.json", "job.json", "start.sh", "entrypoint.sh", "notes.txt", own} <= set(files)
        assert json.loads(files["job.json"]) == backend.describe(spec, stage.folder)
        assert (backend.gpus(spec), backend.processes(spec), backend.is_sharded(spec)) == (2, 2, True)
    assert not stage.folder.exists()
