"""Asynchronous RL: who plays is exactly so many batches behind who learns, so a stage is a function of its spec, whatever is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from safetensors.torch import save_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOTrainer

import train.rl.queue
from storage.errors import HeadraceError
from storage.releases.release import load_split
from storage.store import Store
from synth.engines.local.hf import HFEngine
from tests.train import warm_processes
from tests.train.rl_stages import RL, rl_stages
from train.rl.queue import METRICS, RolloutQueue
from train.rl.rollout_batches import Batch, play_batch
from train.rl.rollout_worker import Played, Player, PlayerFailed, PlayerSetup, weights_file
from train.rl.task_sampler import FreshTasks, routed_tasks
from train.run import run
from train.spec import CHECKPOINTS, StageSpec

pytestmark = pytest.mark.usefixtures("in_process")

BOUND = 2
TOLERANCE = 1e-4
"""Of a log-probability: the sampler's own forward pass against that of Transformers, in fp32."""


@pytest.fixture(scope="module")
def make_spec(tmp_path_factory) -> Callable[..., StageSpec]:
    make = rl_stages(tmp_path_factory.mktemp("stages"))
    return lambda folder, **settings: make(folder, **{"staleness": BOUND, "follow_tags": True, **settings})


@pytest.fixture(scope="module", autouse=True)
def warm_players() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.rl.rollout_worker.get_context", lambda _: warm_processes.context())
        patch.setattr("train.rl.rollout_worker.start_worker", warm_processes.start_player)
        yield


@dataclass
class Seen:
    """A stage as its trainer saw it: at each step, the batch, the weights before it was learned from, and what the loss was given."""

    spec: StageSpec
    batches: list[Batch] = field(default_factory=list)
    weights: list[dict[str, torch.Tensor]] = field(default_factory=list)
    inputs: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def policy(self, step: int) -> Any:
        """That of a step, in memory of its own: where weights lie, as in a mapped file, may change the last bit of a product."""
        found = AutoModelForCausalLM.from_pretrained(self.spec.model_in)
        model = type(found)(found.config)
        model.load_state_dict(self.weights[step])
        return model


@pytest.fixture(scope="module")
def undisturbed(make_spec, tmp_path_factory) -> Seen:
    seen = Seen(make_spec(tmp_path_factory.mktemp("whole")))
    batch, prepare = RolloutQueue.batch, GRPOTrainer._prepare_inputs

    def given(self: Any, step: int) -> Batch:
        seen.batches.append(batch(self, step))
        seen.weights.append({name: weights.clone() for name, weights in self._model.state_dict().items()})
        return seen.batches[-1]

    def prepared(self: Any, inputs: Any) -> Any:
        seen.inputs.append(prepare(self, inputs))
        return seen.inputs[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RolloutQueue, "batch", given)
        patch.setattr(GRPOTrainer, "_prepare_inputs", prepared)
        run(seen.spec)
    return seen


def left(spec: StageSpec) -> dict[str, Any]:
    """What a stage leaves, times aside."""
    folder = spec.model_out.parent
    return {"metrics": [timeless(row) for row in metrics(spec)]} | {
        name: (folder / name).read_text() for name in ("tags.jsonl", "result.json")
    }


def metrics(spec: StageSpec) -> list[dict[str, float]]:
    return [json.loads(line) for line in (spec.model_out.parent / "metrics.jsonl").read_text().splitlines()]


def timeless(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if not name.endswith("_s")}


# ---- who plays what --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_batch_was_played_by_exactly_the_version_that_the_bound_names(undisturbed):
    """Given the weights that each step began with, when its batch is played again in turn by those of `bound` steps before, tasks drawn by
    the running tags of all batches before, then it is the same to the bit; by the weights of the step before these, or after, it is not."""
    spec, settings = undisturbed.spec, undisturbed.spec.rl
    store = Store(spec.store)
    source = routed_tasks(store, load_split(store, spec.release_id, spec.split), spec, settings)
    tokenizer = AutoTokenizer.from_pretrained(spec.model_in)
    others = 0
    for step, batch in enumerate(undisturbed.batches):
        version = max(0, step - BOUND)
        tasks = source(step)

        def played(by: int, step: int = step, tasks: Any = tasks) -> Batch:
            engine = HFEngine(undisturbed.policy(by), tokenizer, batch_rows=settings.tasks_a_step * settings.draws)
            return play_batch(engine, tasks, settings, step=step, updates=by, seed=spec.seed)

        assert replace(batch, parents={}) == played(version)
        others += sum(batch.rows != played(by).rows for by in {version - 1, version + 1} & set(range(step + 1)))
        source.watch(batch)
    assert others >= 4
    tags = source.running.tags(since=0).drop("policy_id").to_dicts()
    assert tags == [json.loads(line) for line in left(undisturbed.spec)["tags.jsonl"].splitlines()]


def test_stale_trajectories_have_the_ratio_to_the_policy_that_sampled_them_and_fresh_ones_none(undisturbed):
    """Then the old log-probabilities of a stale step are those that the earlier policy gives, not those of now, token by token."""
    trainer_sees = [step.get("old_per_token_logps") for step in undisturbed.inputs]
    assert [old is not None for old in trainer_sees] == [False, True, True, True, True]
    assert [row["mean_ratio"] == 1 for row in metrics(undisturbed.spec)] == [True, False, False, False, False]
    for step, old in enumerate(trainer_sees[1:], 1):
        inputs = undisturbed.inputs[step]
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        sampled, now = (log_probabilities(undisturbed.policy(by), inputs) for by in (max(0, step - BOUND), step))
        assert torch.allclose(old[mask], sampled[mask], atol=TOLERANCE)
        assert torch.allclose((now - old).exp()[mask], (now - sampled).exp()[mask], rtol=10 * TOLERANCE)
        assert not torch.allclose(old[mask], now[mask], atol=0.01)


def log_probabilities(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Of the completions' tokens, [B, T]."""
    ids, mask = (torch.cat([inputs[f"prompt_{what}"], inputs[f"completion_{what}"]], dim=1) for what in ("ids", "mask"))
    with torch.no_grad():
        logits = model(ids, attention_mask=mask, position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0)).logits[:, :-1]
    found = torch.log_softmax(logits / RL.temperature, dim=-1).gather(2, ids[:, 1:, None])[:, :, 0]
    return found[:, -inputs["completion_ids"].shape[1] :]


def test_a_step_says_how_stale_it_was_what_was_dropped_and_who_waited(undisturbed):
    rows = metrics(undisturbed.spec)
    assert [row["staleness"] for row in rows] == [0, 1, 2, 2, 2]
    assert [row["stale_share"] for row in rows] == [0, 1, 1, 1, 1]
    assert [row["dropped"] for row in rows] == [0] * 5
    assert all(row[name] >= 0 for row in rows for name in METRICS)
    assert not any(name.endswith("_s") for name in json.loads(left(undisturbed.spec)["result.json"])["metrics"])


def test_a_bound_of_0_starts_no_process_and_learns_otherwise(undisturbed, make_spec, tmp_path, monkeypatch):
    """Then no step is stale, none has a ratio, and nothing is said of it; the first step is the same, those after it are not."""
    monkeypatch.setattr(train.rl.queue, "Player", None)
    spec = make_spec(tmp_path, staleness=0)
    run(spec)
    ours, theirs = metrics(spec), [timeless(row) for row in metrics(undisturbed.spec)]
    assert not set(METRICS) & {name for row in ours for name in row}
    assert [row["reward"] for row in ours] != [row["reward"] for row in theirs]
    assert ours[0].items() <= theirs[0].items()


# ---- whatever happens ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_staler_batch_is_dropped_and_counted_and_changes_nothing(undisturbed, make_spec, tmp_path, monkeypatch):
    """Given a queue that somebody has fed with a batch beyond the bound, and a trainer that dawdles so that every batch waits for it."""

    class Fed(Player):
        def take(self) -> Played:
            taken.append(1)
            return Played(replace(undisturbed.batches[3], updates=0), 0.0) if len(taken) == 4 else super().take()

    taken: list[int] = []
    plain = RolloutQueue._hand_over
    monkeypatch.setattr(RolloutQueue, "_hand_over", lambda self, version: time.sleep(0.3) or plain(self, version))
    monkeypatch.setattr(train.rl.queue, "Player", Fed)
    spec = make_spec(tmp_path)
    run(spec)
    found = left(spec)
    assert [row.pop("dropped") for row in found["metrics"]] == [0, 0, 0, RL.tasks_a_step * RL.draws, 0]
    expected = left(undisturbed.spec)
    assert found["metrics"] == [{name: value for name, value in row.items() if name != "dropped"} for row in expected["metrics"]]
    assert found["tags.jsonl"] == expected["tags.jsonl"]
    assert json.loads(found["result.json"])["weights_hash"] == json.loads(expected["result.json"])["weights_hash"]


@pytest.mark.slow
def test_kill_9_of_the_trainer_takes_the_player_with_it_and_loses_and_doubles_nothing(undisturbed, make_spec, tmp_path, marked):
    """Given a trainer that is killed while it learns from step 3, then no process is left, its last checkpoint has the versions that the
    player was still to play with, and the stage goes on from there to the same weights, metrics and tags."""
    environment, alive = marked
    spec = make_spec(tmp_path)
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    code = (
        "import os, signal, sys\nfrom filters.certainty.running_tags import RunningTags\nfrom train.run import main\n"
        "add = RunningTags.add\n"
        "die = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
        "RunningTags.add = lambda self, *a, step, **k: die() if step == 3 else add(self, *a, step=step, **k)\n"
        "main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "spec.json")]
    child = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert child.returncode == -9, child.stderr
    deadline = time.monotonic() + 20
    while alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive() == []
    (checkpoint,) = (tmp_path / CHECKPOINTS).glob("step-*")
    assert sorted(path.name for path in checkpoint.glob("version-*")) == [f"version-{version:09d}.safetensors" for version in (0, 1)]
    run(spec)
    assert left(spec) == left(undisturbed.spec)


@pytest.mark.slow
def test_kill_9_of_the_player_ends_the_stage_in_words_and_loses_nothing(undisturbed, make_spec, tmp_path):
    """Given a player that is killed just after it was asked for the last batch, then whoever needs that batch says so."""
    watch = FreshTasks.watch

    def watched(self: FreshTasks, batch: Batch) -> None:
        if batch.step == RL.max_steps - 1 - BOUND:
            (player,) = multiprocessing.active_children()
            os.kill(player.pid, signal.SIGKILL)
        watch(self, batch)

    spec = make_spec(tmp_path)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(PlayerFailed, match="died without a word: killed, or out of memory"):
        patch.setattr(FreshTasks, "watch", watched)
        run(spec)
    assert multiprocessing.active_children() == []
    run(spec)
    assert left(spec) == left(undisturbed.spec)


@pytest.mark.slow
def test_what_the_player_says_of_its_tasks_is_told_in_its_words_and_a_fault_of_ours_by_its_name(make_spec, tmp_path):
    """Given a player that is asked to play by a version that nobody has handed over, and then for more tasks than it may draw."""
    spec = make_spec(tmp_path)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(spec.model_in), AutoTokenizer.from_pretrained(spec.model_in)
    store = Store(spec.store)
    player = Player(PlayerSetup(spec, type(model), model.config, tokenizer, tmp_path))
    source = routed_tasks(store, load_split(store, spec.release_id, spec.split), spec, spec.rl)
    source._tries = 2
    player.begin(source)
    player.ask(0, 7)
    with pytest.raises(PlayerFailed, match="the process that plays rollouts failed: FileNotFoundError"):
        player.take()
    save_model(model, str(weights_file(tmp_path, 0)))
    player.ask(0, 0)
    with pytest.raises(HeadraceError, match=r"^split rl: 2 draws gave only [012] of 3 fresh tasks for step 0"):
        player.take()
    with pytest.raises(PlayerFailed, match="asked for no further batch"):
        player.take()
    player.close()


@pytest.mark.slow
def test_a_player_computes_as_its_trainer_does():
    """Given a GPU, not every operation of which has a deterministic form, then none is asked for, as in the process that learns."""
    code = (
        "import os, torch\nfrom train.child_process import start_worker\n"
        "for has_gpu in (True, False):\n    torch.cuda.is_available = lambda: has_gpu\n    start_worker(os.getppid())\n"
        "    print(torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout == "1 False\n1 True\n"
