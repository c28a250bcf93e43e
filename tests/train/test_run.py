"""A stage, through the entry that every backend calls: what it leaves behind, what it refuses, and that nothing outlives its parent."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from storage.errors import BadInput
from storage.health.weights import weights_hash
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store
from synth.engines.local.hf import HFEngine
from synth.rollouts.draws import rollout
from tests.train import warm_processes
from tests.train.tiny_policies import SMALL, expert_store, retail_tasks
from train.backends import local
from train.backends.base import StageFailed, run_stage
from train.backends.local import LocalBackend
from train.rl.rl import FIGURES
from train.run import main, run
from train.spec import LoRASettings, RLSettings, SFTSettings, StageSpec

TASKS = retail_tasks("order_status", "special_service", each=2)
SFT = SFTSettings(max_steps=6, batch_size=4, learning_rate=1e-2, warmup_steps=0)
RL = RLSettings(max_steps=2, tasks_a_step=2, draws=2, warmup_steps=0, max_tokens=8)


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> tuple[Store, str]:
    """A store with a release: experts' conversations to learn from (`seed`), and tasks without any (`rl`)."""
    store, experts = expert_store(tmp_path_factory.mktemp("stage") / "store", TASKS)
    splits = {
        "seed": [ReleaseItem("trajectory", expert.id, expert.task_id) for expert in experts],
        "odd": [ReleaseItem("trajectory", expert.id, expert.task_id) for expert in experts[:3]],
        "rl": [ReleaseItem("task", task.id, task.id, weight=1.0 + place) for place, task in enumerate(TASKS)],
    }
    return store, make_release(store, "seed", splits, {})


@pytest.fixture(scope="module")
def make_spec(released) -> Callable[..., StageSpec]:
    store, release = released

    def make(folder: Path, **changes: Any) -> StageSpec:
        fields: dict[str, Any] = {"name": "sft1", "algorithm": "sft", "store": store.root, "release_id": release, "split": "seed"}
        return StageSpec(**(fields | {"model_out": folder / "model", "tiny": SMALL, "seed": 3, "sft": SFT} | changes))

    return make


@pytest.fixture(scope="module")
def stage(make_spec, tmp_path_factory) -> tuple[Path, StageSpec, dict[str, Any]]:
    """A finished stage that failed before: its folder, its spec, and its result."""
    folder = tmp_path_factory.mktemp("stages") / "stage-1"
    folder.mkdir()
    (folder / "failure.json").write_text("{}")
    spec = make_spec(folder)
    return folder, spec, run_stage(LocalBackend(), spec, folder)


# ---- what a stage leaves -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stage_leaves_its_spec_a_row_a_step_a_model_and_a_result(stage):
    folder, spec, result = stage
    assert sorted(path.name for path in folder.iterdir()) == ["log.txt", "metrics.jsonl", "model", "result.json", "spec.json"]
    assert StageSpec.model_validate_json((folder / "spec.json").read_text()) == spec
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, SFT.max_steps + 1))
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert json.loads((folder / "result.json").read_text()) == result
    assert result["metrics"] == {"steps": SFT.max_steps, "loss": rows[-1]["loss"], "learning_rate": rows[-1]["learning_rate"]}
    assert result["weights_hash"] == weights_hash(folder / "model")


def test_the_model_folder_is_a_policy_that_an_engine_takes(stage):
    folder, _, _ = stage
    engine = HFEngine(folder / "model")
    assert engine.model.config.hidden_size == SMALL.width
    assert len(rollout(engine, TASKS, 1, temperature=0.0)) == len(TASKS)


def test_a_finished_stage_is_not_run_again(stage):
    folder, spec, result = stage
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert run_stage(LocalBackend(), spec, folder) == result
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_an_equal_spec_gives_equal_weights_in_another_process_and_another_seed_others(stage, make_spec, tmp_path):
    _, _, result = stage
    assert run(make_spec(tmp_path / "again"))["weights_hash"] == result["weights_hash"]
    assert run(make_spec(tmp_path / "other", seed=4))["weights_hash"] != result["weights_hash"]


@pytest.mark.usefixtures("in_process")
def test_a_stage_that_was_killed_half_way_starts_over(stage, make_spec, tmp_path):
    """Given the leavings of a killed stage, when it is run again, then they are gone and the result is as if it had never been killed."""
    _, _, result = stage
    folder = tmp_path / "killed"
    for leavings in ("model", ".model.new"):
        (folder / leavings).mkdir(parents=True)
        (folder / leavings / "stray.safetensors").write_bytes(b"half a file")
    assert run(make_spec(folder))["weights_hash"] == result["weights_hash"]
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.jsonl", "model", "result.json"]


@pytest.mark.usefixtures("in_process")
def test_rl_goes_on_from_the_policy_of_the_stage_before(stage, make_spec, tmp_path):
    folder, _, before = stage
    result = run(make_spec(tmp_path, name="rl", algorithm="rl", split="rl", model_in=folder / "model", sft=None, rl=RL))
    assert result["metrics"]["steps"] == RL.max_steps
    assert set(result["metrics"]) == {"steps", *FIGURES} - {"step"}
    assert weights_hash(folder / "model") == before["weights_hash"], "the input policy is as it was"
    assert result["weights_hash"] == weights_hash(tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "model", "result.json", "tags.jsonl"]
    tokens = (path / "model" / "tokenizer.json" for path in (folder, tmp_path))
    assert next(tokens).read_text() == next(tokens).read_text()


# ---- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"release_id": "release-x"}, "has no release release-x; the latest are release-"),
        ({"split": "sed"}, "has no split 'sed'; it has odd, rl, seed"),
        ({"model_in": Path("/none/such")}, "/none/such is no Hugging Face model folder"),
        ({"worlds": ("retail", "nowhere")}, "stage sft1 names worlds that neither Headrace nor the store has: nowhere"),
    ],
)
def test_what_is_not_there_is_bad_input_told_in_one_line(make_spec, tmp_path, capsys, changes, words):
    path = tmp_path / "spec.json"
    path.write_text(make_spec(tmp_path, **changes).model_dump_json())
    assert main([str(path)]) == 2
    line = capsys.readouterr().err
    assert words in line
    assert line.count("\n") == 1
    assert [found.name for found in tmp_path.iterdir()] == ["spec.json"]


@pytest.mark.usefixtures("in_process")
def test_an_input_policy_without_its_tokenizer_is_bad_input(stage, make_spec, tmp_path, capsys):
    policy = shutil.copytree(stage[0] / "model", tmp_path / "policy")
    for file in policy.glob("tokenizer*"):
        file.unlink()
    (tmp_path / "spec.json").write_text(make_spec(tmp_path, model_in=policy).model_dump_json())
    assert main([str(tmp_path / "spec.json")]) == 2
    assert f"{policy} holds no tokenizer" in capsys.readouterr().err


def cut(policy: Path) -> None:
    weights = policy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def scribbled(policy: Path) -> None:
    (policy / "config.json").write_text("{nonsense")


def grown(policy: Path) -> None:
    config = json.loads((policy / "config.json").read_text())
    (policy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("damage", "words"), [(cut, "cannot be loaded"), (scribbled, "cannot be loaded"), (grown, "of its model's weights")]
)
def test_an_input_policy_that_is_damaged_is_bad_input(stage, make_spec, tmp_path, capfd, damage, words):
    """Given weights that were cut off, a configuration that is none, or one of more layers than there are weights of, then it is named."""
    policy = shutil.copytree(stage[0] / "model", tmp_path / "policy")
    damage(policy)
    (tmp_path / "spec.json").write_text(make_spec(tmp_path, model_in=policy).model_dump_json())
    assert main([str(tmp_path / "spec.json")]) == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.startswith(f"{policy} ") and words in line and line.endswith("copy the whole model folder again")


@pytest.mark.usefixtures("in_process")
def test_a_full_disk_is_told_in_one_line_and_leaves_no_result(make_spec, tmp_path, monkeypatch, capsys):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("train.tiny.save_policy", full)
    (tmp_path / "spec.json").write_text(make_spec(tmp_path).model_dump_json())
    assert main([str(tmp_path / "spec.json")]) == 1
    assert f"no space left on the disk of {tmp_path} while training" in capsys.readouterr().err
    assert not (tmp_path / "result.json").exists()


def test_memory_that_runs_out_without_a_word_is_told_all_the_same(make_spec, tmp_path, monkeypatch, capsys):
    def exhausted(_: StageSpec) -> None:
        raise MemoryError

    monkeypatch.setattr("train.run.run", exhausted)
    (tmp_path / "spec.json").write_text(make_spec(tmp_path).model_dump_json())
    assert main([str(tmp_path / "spec.json")]) == 1
    assert capsys.readouterr().err == "out of memory: smaller batches hold less (micro_batch_size, batch_size); MemoryError\n"


@pytest.mark.usefixtures("in_process")
def test_a_split_without_conversations_cannot_be_learned_from(make_spec, tmp_path, capsys):
    path = tmp_path / "spec.json"
    path.write_text(make_spec(tmp_path, split="rl").model_dump_json())
    assert main([str(path)]) == 1
    assert "split rl of release" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["one.json", "two.json"]])
def test_the_entry_takes_one_spec(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_a_stage_without_its_hyper_parameters_is_refused(make_spec, tmp_path):
    with pytest.raises(ValueError, match="algorithm rl needs the section `rl`"):
        make_spec(tmp_path, algorithm="rl")


def test_a_folder_without_weights_has_no_hash(tmp_path):
    with pytest.raises(BadInput, match="holds no"):
        weights_hash(tmp_path)


# ---- the child -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def warm(monkeypatch) -> None:
    """The child has the trainer imported already."""
    monkeypatch.setattr(local, "start", warm_processes.start)


@pytest.mark.usefixtures("warm")
def test_a_stage_that_fails_is_an_error_with_the_end_of_its_log(make_spec, tmp_path):
    spec = make_spec(tmp_path, split="sed")
    with pytest.raises(StageFailed, match=r"(?s)stage sft1 ended with code 2; the end of .*log\.txt:.*has no split 'sed'") as failure:
        run_stage(LocalBackend(), spec, tmp_path)
    assert failure.value.kind == "stage"
    assert json.loads((tmp_path / "failure.json").read_text()) == {"kind": "stage", "message": "stage sft1 ended with code 2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["failure.json", "log.txt", "spec.json"]


def test_a_stage_dies_with_its_parent(make_spec, tmp_path, marked):
    environment, alive = marked
    (tmp_path / "given.json").write_text(make_spec(tmp_path, sft=SFT.model_copy(update={"max_steps": 100_000})).model_dump_json())
    code = (
        "import sys; from pathlib import Path; from train.backends.base import run_stage; from train.spec import StageSpec\n"
        "from train.backends.local import LocalBackend\n"
        "run_stage(LocalBackend(), StageSpec.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "given.json"), str(tmp_path)], env=environment)
    try:
        assert within(60, lambda: any("-m train.run" in line for line in alive()))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    died = within(10, lambda: not alive())
    for survivor in alive():
        os.kill(int(survivor.split()[0]), signal.SIGKILL)
    assert died


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_whoever_waits_for_a_stage_is_told_its_steps(make_spec, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_REPORT_EVERY_S", 0.05)
    reports: list[tuple[int, int, str]] = []
    long = SFT.model_copy(update={"max_steps": 200})
    run_stage(LocalBackend(), make_spec(tmp_path / "stage", sft=long), tmp_path / "stage", lambda *steps: reports.append(steps))
    assert {most for _, most, _ in reports} == {200}
    assert [done for done, *_ in reports] == sorted(done for done, *_ in reports)
    assert len({done for done, *_ in reports}) > 5, "they come while it trains, not at its end"
    rows = [json.loads(line) for line in (tmp_path / "stage" / "metrics.jsonl").read_text().splitlines()]
    assert all(figure == (f"loss {rows[done - 1]['loss']:.3g}" if done else "") for done, _, figure in reports)
    assert re.search(r"step 200 of 200: loss \S+, \S+ s, \S+ s a step, \S+ tokens a second", (tmp_path / "stage" / "log.txt").read_text())


def test_the_child_computes_with_one_thread_and_asks_no_hub(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    code = "import torch; from huggingface_hub import constants; print(torch.get_num_threads(), constants.HF_HUB_OFFLINE)"
    assert local.start([sys.executable, "-c", code], tmp_path / "log.txt").wait(60) == 0
    assert (tmp_path / "log.txt").read_text() == "1 True\n"


@pytest.mark.usefixtures("warm")
def test_a_stage_without_memory_says_what_to_do(make_spec, tmp_path):
    """Given a fresh policy that no machine can hold, then the child says so in one line, and its launcher passes it on."""
    with pytest.raises(
        StageFailed, match=r"(?s)stage sft1 ended with code 1; .*out of memory: smaller batches .*micro_batch_size"
    ) as failure:
        run_stage(LocalBackend(), make_spec(tmp_path, tiny=SMALL.model_copy(update={"feed_forward": 10**12})), tmp_path)
    assert "Traceback" not in str(failure.value) and failure.value.kind == "memory"


@pytest.mark.parametrize(
    ("sent", "counts", "told", "kind"),
    [
        (
            "SIGKILL",
            (3, 4),
            r"was killed by signal 9 \(SIGKILL\); .* so probably this process \(smaller batches .*micro_b",
            "memory",
        ),
        ("SIGKILL", (3, 3), r"was killed by signal 9 \(SIGKILL\), not by the kernel .* \(if it was for memory: smaller batches", "killed"),
        ("SIGTERM", (3, 4), r"was ended by signal 15 \(SIGTERM\)", "stopped"),
    ],
)
def test_a_stage_that_a_signal_ended_says_what_is_known(make_spec, tmp_path, monkeypatch, sent, counts, told, kind):
    """Given a child that a signal ended, and the kernel's count of kills for memory before and after, then the guess is told as a guess."""
    started, kernel = local.start, iter(counts)

    def killed(command: list[str], log: Path) -> subprocess.Popen[bytes]:
        return started([sys.executable, "-c", f"import os, signal; os.kill(os.getpid(), signal.{sent})"], log)

    monkeypatch.setattr(local, "start", killed)
    monkeypatch.setattr(local, "_oom_kills", lambda: next(kernel))
    with pytest.raises(StageFailed, match=f"stage sft1 {told}") as failure:
        run_stage(LocalBackend(), make_spec(tmp_path), tmp_path)
    assert failure.value.kind == kind


def test_the_kernels_count_of_kills_for_memory_is_read():
    assert local._oom_kills() >= 0


def test_a_result_that_was_cut_off_is_made_again(make_spec, tmp_path, monkeypatch):
    """Given a result.json that no JSON parser reads, then the stage is launched again."""
    (tmp_path / "result.json").write_text('{"weights')
    launched = []

    class Once(LocalBackend):
        def launch(self, spec, folder):
            launched.append(folder)
            (folder / "result.json").write_text('{"weights_hash": "ab"}')

    assert run_stage(Once(), make_spec(tmp_path), tmp_path) == {"weights_hash": "ab"}
    assert launched == [tmp_path]


# ---- several processes ---------------------------------------------------------------------------------------------------


ENTRY = """
import os, sys, train.device, train.run
from train.metrics_log import LiveMetrics
os.write(1, f'of {train.device.processes()}\\n'.encode())  # one write: lines of two processes never mix
told, dies_at = LiveMetrics.on_log, int(os.environ.get('DIES_AT', 0))
def on_log(self, args, state, control, **more):
    told(self, args, state, control, **more)
    if state.global_step == dies_at:
        os._exit(9)
LiveMetrics.on_log = on_log
plain = train.run.whole_weights
def whole_weights(model):
    if all(hasattr(weight, 'placements') for weight in model.parameters()):
        os.write(1, b'holds a part of the weights\\n')
    return plain(model)
train.run.whole_weights = whole_weights
sys.exit(train.run.main(sys.argv[1:]))
"""


def by_torchrun(folder: Path, spec: StageSpec) -> tuple[int, str]:
    """The exit code and output of a stage in two processes, as `torchrun` runs it, on this machine's CPU.

    `accelerate launch --cpu --num_processes 2` would start one process.
    """
    entry = folder.with_suffix(".py")
    entry.write_text(ENTRY)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", str(entry)]
    done = subprocess.run([*command, given(folder, spec)], capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def together(folder: Path, spec: StageSpec, **environment: str) -> tuple[int, str]:
    """As `by_torchrun`, without its start, in processes that are warm."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    ranks = []
    for rank in ("0", "1"):
        code = f"import os\nos.environ.update({environment | {'RANK': rank, 'LOCAL_RANK': rank}})\n{ENTRY}"
        ranks.append(warm_processes.WarmProcess(["-c", code, given(folder, spec)], folder.with_suffix(f".{rank}.log")))
    codes = [rank.wait(300) for rank in ranks]
    return max(map(abs, codes)), "".join(folder.with_suffix(f".{rank}.log").read_text() for rank in (0, 1))


def given(folder: Path, spec: StageSpec) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "given.json").write_text(spec.model_dump_json())
    return str(folder / "given.json")


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_two_processes_share_a_batch_and_leave_what_one_would_have_left(make_spec, tmp_path):
    """Given `torchrun` with two, three conversations and batches of two, so that the second batch of every epoch has one row for
    two processes, then the losses are those of one process up to rounding, and one of the two writes; with checkpoints, which are one's."""
    settings = SFT.model_copy(update={"batch_size": 2, "max_steps": 8})
    alone, both = tmp_path / "alone", tmp_path / "both"
    run(make_spec(alone, split="odd", sft=settings))
    code, output = by_torchrun(both, make_spec(both, split="odd", sft=settings.model_copy(update={"checkpoint_steps": 3})))
    assert code == 0, output[-2000:]
    assert output.count("of 2\n") == 2
    losses = [[json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in (alone, both)]
    assert len(losses[0]) == settings.max_steps
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert sorted(path.name for path in both.iterdir()) == ["given.json", "metrics.jsonl", "model", "result.json"]


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_two_processes_with_a_part_of_the_weights_each_train_as_one_does(make_spec, stage, tmp_path):
    """Given FSDP2 over two, as `accelerate launch --use_fsdp` sets it, then the losses are those of one process up to rounding, no process
    held all weights, and the policy is whole."""
    settings = SFT.model_copy(update={"batch_size": 2, "max_steps": 5})
    alone, both = tmp_path / "alone", tmp_path / "both"
    policy = stage[0] / "model"
    run(make_spec(alone, sft=settings, model_in=policy))
    spec = make_spec(both, sft=settings.model_copy(update={"checkpoint_steps": 2}), model_in=policy)
    code, output = together(both, spec, ACCELERATE_USE_FSDP="true")
    assert code == 0, output[-2000:]
    losses = [[json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in (alone, both)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    weights = [load_file(folder / "model" / "model.safetensors") for folder in (alone, both)]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-4, rtol=1e-3)
    assert output.count("holds a part of the weights\n") == 2


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_shards_of_adapters_go_on_from_their_checkpoint(make_spec, stage, tmp_path):
    """Given FSDP2 and LoRA, and processes that die after a checkpoint, then the next start ends with the weights of one whole process."""
    settings = SFT.model_copy(update={"batch_size": 2, "max_steps": 5, "lora": LoRASettings(rank=4, alpha=8)})
    alone, both = tmp_path / "alone", tmp_path / "both"
    policy = stage[0] / "model"
    run(make_spec(alone, sft=settings, model_in=policy))
    spec = make_spec(both, sft=settings.model_copy(update={"checkpoint_steps": 2}), model_in=policy)
    assert together(both, spec, ACCELERATE_USE_FSDP="true", DIES_AT="3")[0] != 0
    assert [path.name for path in (both / "checkpoints").glob("step-*")] == ["step-000000002"]
    code, output = together(both, spec, ACCELERATE_USE_FSDP="true")
    assert code == 0, output[-2000:]
    assert len((both / "metrics.jsonl").read_text().splitlines()) == 5
    weights = [load_file(folder / "model" / "model.safetensors") for folder in (alone, both)]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_one_of_several_dies_with_its_launcher(tmp_path, marked):
    """`torchrun` gives each a session of its own, which no signal to its own group reaches. Given one that waits for its spec."""
    environment, alive = marked
    spec = tmp_path / "spec.json"
    os.mkfifo(spec)
    code = "import subprocess, sys; subprocess.run([sys.executable, '-P', '-m', 'train.run', sys.argv[1]], start_new_session=True)"
    launcher = subprocess.Popen([sys.executable, "-c", code, str(spec)], env=environment | {"LOCAL_RANK": "0"})
    ends = []
    try:
        assert within(60, lambda: ends or _opened(spec, ends))
    finally:
        launcher.kill()
        launcher.wait()
    died = within(10, lambda: not alive())
    os.close(ends[0])
    assert died


def _opened(pipe: Path, ends: list[int]) -> bool:
    """Whether somebody reads from a pipe; its other end is held open from then on."""
    with suppress(OSError):
        ends.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    return bool(ends)


def test_a_batch_that_does_not_divide_among_the_processes_is_refused(make_spec, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "3")
    given = tmp_path / "spec.json"
    given.write_text(make_spec(tmp_path).model_dump_json())
    assert main([str(given)]) == 2
    assert "a batch of 4 rows does not divide among 3 processes" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
