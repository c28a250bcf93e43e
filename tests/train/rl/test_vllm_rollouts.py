"""An RL stage whose rollouts a real vLLM server plays: exact tokens, the trainer's weights at every step, and nothing left at the end."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import train.rl.rl
from storage.errors import HeadraceError
from storage.records import Task
from synth.engines.local.chat_format import ChatFormat
from synth.engines.vllm import ENVIRONMENT
from tests.conftest import MARK, processes
from tests.train.rl_stages import rl_stages
from tests.train.tiny_policies import SMALL, copy_of
from train.rl.credit import turns_of
from train.rl.policy_server import LOG, TOLERANCES, PolicyServer, logprobs_of
from train.rl.rollout_batches import Batch, play_batch
from train.run import run

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("in_process")]
ROOT = Path(__file__).resolve().parents[3]
SHAPE = SMALL.model_copy(update={"width": 64})
"""Heads of 32, the smallest that vLLM has a kernel for on a CPU."""
TEMPERATURE = 0.8


@dataclass
class Seen:
    """A stage as it went: of each step the tasks, the batch, the same batch played again, and the weights that it was played with.

    unlike: the error for weights that the server does not have. metrics: rows of the steps.
    """

    folder: Path
    mark: str
    tokenizer: Any = None
    tasks: list[list[Task]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    again: list[Batch] = field(default_factory=list)
    models: list[Any] = field(default_factory=list)
    unlike: str = ""

    @property
    def metrics(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Two steps that learn; then the trainer's weights change behind the server's back."""
    if not (ROOT / ENVIRONMENT / ".ready").exists():
        pytest.skip("vLLM is not installed: `make vllm`")
    root = tmp_path_factory.mktemp("served")
    seen, served, verify = Seen(root / "rl", uuid.uuid4().hex), list[PolicyServer](), PolicyServer._verify
    make = rl_stages(root, SHAPE)
    seen.folder.mkdir()

    def played(engine: Any, tasks: list[Task], *arguments: Any, **named: Any) -> Batch:
        model = served[-1]._model
        seen.tokenizer = engine.chat_format.tokenizer
        seen.tasks.append(tasks)
        seen.models.append(copy_of(model))
        seen.batches.append(play_batch(engine, tasks, *arguments, **named))
        seen.again.append(play_batch(engine, tasks, *arguments, **named))
        if len(seen.batches) == 2:
            seen.unlike = shifted(served[-1])
        return seen.batches[-1]

    def shifted(server: PolicyServer) -> str:
        head = server._model.get_input_embeddings().weight
        before = head.detach().clone()
        head.data.mul_(1.02)
        with pytest.raises(HeadraceError) as raised:
            verify(server)
        head.data.copy_(before)
        return str(raised.value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, seen.mark)
        patch.chdir(ROOT)
        patch.setattr(train.rl.rl, "play_batch", played)
        patch.setattr(PolicyServer, "_verify", lambda self: served.append(self) or verify(self))
        run(
            make(
                seen.folder,
                rollouts="vllm",
                max_steps=2,
                temperature=TEMPERATURE,
                reward="shuffled",
                learning_rate=5e-3,
                checkpoint_steps=0,
            )
        )
    return seen


def forward(model: Any, batch: Batch) -> list[torch.Tensor]:
    """Log-probabilities of the sampled tokens of every row, by the forward pass of Transformers."""
    found = []
    for row in batch.rows:
        ids = torch.tensor([*row.trace.prompt_ids, *row.trace.ids])
        with torch.no_grad():
            logits = model(ids[None]).logits[0, len(row.trace.prompt_ids) - 1 : -1]
        logprobs = torch.log_softmax(logits / TEMPERATURE, dim=-1).gather(1, torch.tensor(row.trace.ids)[:, None])[:, 0]
        found.append(logprobs[torch.tensor(row.trace.mask).bool()])
    return found


def sampled(batch: Batch) -> list[torch.Tensor]:
    return [torch.tensor(row.trace.logprobs)[torch.tensor(row.trace.mask).bool()] for row in batch.rows]


def test_every_turn_of_every_rollout_is_in_its_trace_as_sampled(seen: Seen) -> None:
    chat_format = ChatFormat(seen.tokenizer)
    for tasks, batch in zip(seen.tasks, seen.batches, strict=True):
        by_id = {task.id: task for task in tasks}
        assert len(batch.rows) == 12 and {row.task_id for row in batch.rows} == set(by_id)
        for row in batch.rows:
            assert row.trace.prompt_ids == chat_format.prompt_ids(by_id[row.task_id].messages)
            turns = turns_of(torch.tensor([row.trace.mask]))
            assert int(turns.max()) + 1 == len(row.erred), "no turn was left out as not exact"
    assert max(len(row.erred) for batch in seen.batches for row in batch.rows) > 1


def test_sampled_log_probabilities_are_those_of_the_weights_of_the_step_and_of_no_other(seen: Seen) -> None:
    """So the importance ratio is 1 at the first update of each step; the step before it or after it has other weights."""
    for step, batch in enumerate(seen.batches):
        served, own, other = (
            torch.cat(rows) for rows in (sampled(batch), forward(seen.models[step], batch), forward(seen.models[1 - step], batch))
        )
        assert torch.allclose(served, own, atol=1e-4)
        assert torch.allclose((own - served).exp(), torch.ones_like(own), atol=1e-4)
        assert float((served - other).abs().mean()) > 0.01
    assert all(abs(row["sampled_kl"]) < 1e-6 and row["mean_ratio"] == 1 for row in seen.metrics)
    assert [row["idle_share"] < 1 for row in seen.metrics] == [True, True], "each step had something to learn"


def test_a_seed_plays_the_same_rollouts_again(seen: Seen) -> None:
    for batch, again in zip(seen.batches, seen.again, strict=True):
        assert [replace(row, learned=None) for row in batch.rows] == [replace(row, learned=None) for row in again.rows]
        assert len({tuple(row.trace.ids) for row in batch.rows}) > len({row.task_id for row in batch.rows}), "the draws of a task differ"


def test_a_server_without_the_trainers_weights_plays_nothing(seen: Seen) -> None:
    """Given embeddings that are 2 % larger than those that the server got."""
    assert "vLLM does not play the policy in training: its log-probabilities differ by" in seen.unlike
    text = list(range(5, 60))
    first, second = (logprobs_of(model, text) for model in seen.models)
    assert float((first - second).abs().mean()) > TOLERANCES[torch.float32], "an update that is missed would be seen as well"


def test_the_server_ends_with_the_stage_and_leaves_its_log(seen: Seen) -> None:
    assert processes(seen.mark) == []
    assert "POST /inference/v1/generate" in (seen.folder / LOG).read_text()
