"""Weights on their way to vLLM, and which policy a server may play. The engine is scripted; `test_vllm_rollouts.py` has a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from storage.errors import BadInput, HeadraceError
from synth.engines.base import EngineFailure
from tests.train.base_folders import write_base
from tests.train.tiny_policies import copy_of, digest, expert_conversations, retail_tasks, small_policy
from train import tiny
from train.backends.local import LocalBackend
from train.models.adapters import add_adapters
from train.rl import policy_server
from train.rl.policy_server import PolicyServer, is_served, logprobs_of, serve_policy, write_served
from train.spec import LoRASettings, RLSettings, StageSpec

IDS = list(range(5, 40))


@pytest.fixture(scope="module")
def policy() -> tuple[Any, Any]:
    return small_policy(expert_conversations(retail_tasks("special_service", each=2)))


@pytest.fixture
def has_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    def pretend(value: bool) -> None:
        for module in ("train.rl.policy_server", "train.backends.local"):
            monkeypatch.setattr(f"{module}.has_gpu", lambda: value)

    return pretend


class ScriptedEngine:
    """Scores texts by the weights that it was given last, if it takes them; writes down what it was asked for."""

    max_length = 256

    def __init__(self, *, takes_weights: bool = True) -> None:
        self.log: list[str] = []
        self.fails_asleep = ""
        self._takes_weights, self._model = takes_weights, None

    def sleep(self) -> None:
        if self.fails_asleep:
            raise EngineFailure(self.fails_asleep)
        self.log.append("sleep")

    def load_weights(self, folder: Path) -> None:
        self.log.append("load")
        if self._takes_weights or self._model is None:
            self._model = AutoModelForCausalLM.from_pretrained(folder)

    def token_logprobs(self, ids: list[int]) -> list[float]:
        self.log.append("score")
        return [float(value) for value in logprobs_of(self._model, ids)]


# ---- whose turn it is ------------------------------------------------------------------------------------------------------


def test_a_batch_is_played_with_the_weights_of_now_and_the_server_sleeps_otherwise(policy: tuple[Any, Any], tmp_path: Path) -> None:
    model, engine = copy_of(policy[0]), ScriptedEngine()
    server = PolicyServer(model, policy[1], engine, tmp_path)
    for step in range(2):
        model.get_input_embeddings().weight.data.mul_(1 + step)
        with server.awake():
            engine.log.append("play")
            assert torch.allclose(torch.tensor(engine.token_logprobs(IDS)), logprobs_of(model, IDS), atol=1e-5)
    assert engine.log == ["sleep", *["load", "score", "play", "score", "sleep"] * 2]
    assert list(tmp_path.iterdir()) == [], "weights are removed once they have arrived"


def test_a_server_that_keeps_its_weights_is_an_error_and_not_a_batch(policy: tuple[Any, Any], tmp_path: Path) -> None:
    model, engine = copy_of(policy[0]), ScriptedEngine(takes_weights=False)
    server = PolicyServer(model, policy[1], engine, tmp_path)
    with server.awake():
        pass
    model.get_input_embeddings().weight.data.mul_(1.05)
    with pytest.raises(HeadraceError, match=r"^vLLM does not play the policy in training: .* differ by [\d.]+ nats"), server.awake():
        pytest.fail("it was asked to play")
    model.get_input_embeddings().weight.data.fill_(float("nan"))
    with pytest.raises(HeadraceError, match="differ by nan nats"), server.awake():
        pytest.fail("it was asked to play")


def test_a_server_that_ends_while_it_plays_takes_the_batch_with_it(policy: tuple[Any, Any], tmp_path: Path) -> None:
    """Also if some rollouts were over by then: those left would be the short ones."""
    engine = ScriptedEngine()
    server = PolicyServer(policy[0], policy[1], engine, tmp_path)
    with pytest.raises(EngineFailure, match="vLLM ended with code 1"), server.awake():
        engine.fails_asleep = "vLLM ended with code 1: out of memory"


# ---- weights ---------------------------------------------------------------------------------------------------------------


def test_weights_come_back_as_they_were_on_a_cpu_with_the_head_beside_the_embeddings(policy: tuple[Any, Any], tmp_path: Path) -> None:
    model, before = policy[0], digest(policy[0])
    write_served(model, tmp_path, torch.float32)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(again.get_input_embeddings().weight, model.get_input_embeddings().weight)
    assert torch.equal(logprobs_of(again, IDS), logprobs_of(model, IDS))
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
    assert model.config.tie_word_embeddings and digest(model) == before


def test_a_gpu_gets_half_as_many_bytes_and_shared_weights_once(
    policy: tuple[Any, Any], tmp_path: Path, has_gpu: Callable[[bool], None]
) -> None:
    has_gpu(True)
    write_served(policy[0], tmp_path, torch.bfloat16)
    weights = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16} and "lm_head.weight" not in weights
    assert policy[0].dtype == torch.float32


def test_adapters_are_merged_into_what_is_served_and_stay_apart_in_the_trainer(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(write_base(tmp_path / "base", ["some words of a text"] * 20))
    plain = logprobs_of(model, IDS)
    adapted = add_adapters(model, LoRASettings(rank=4), seed=0)
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.05)
    write_served(adapted, tmp_path / "served", torch.float32)
    expected = logprobs_of(adapted, IDS)
    served = AutoModelForCausalLM.from_pretrained(tmp_path / "served")
    assert torch.allclose(logprobs_of(served, IDS), expected, atol=1e-5)
    assert not torch.allclose(plain, expected, atol=1e-3)
    assert torch.equal(logprobs_of(adapted, IDS), expected) and any("lora_" in name for name, _ in adapted.named_parameters())


# ---- which engine plays ----------------------------------------------------------------------------------------------------


def test_auto_is_vllm_for_a_base_model_where_there_are_a_gpu_and_vllm(
    policy: tuple[Any, Any], tmp_path: Path, has_gpu: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = AutoTokenizer.from_pretrained(write_base(tmp_path / "base", ["some words of a text"] * 20))
    assert policy[1].chat_template == tiny.CHAT_TEMPLATE != base.chat_template
    monkeypatch.chdir(tmp_path)  # where no environment of vLLM's is
    has_gpu(True)
    assert not is_served("auto", base)
    with pytest.raises(BadInput, match=r"no vLLM at \.venv-vllm: `make vllm` installs it there"):
        is_served("vllm", base)
    (tmp_path / ".venv-vllm" / "bin").mkdir(parents=True)
    (tmp_path / ".venv-vllm" / "bin" / "python").touch()
    assert is_served("auto", base)
    assert not is_served("auto", policy[1])
    assert not is_served("hf", base)
    has_gpu(False)
    assert not is_served("auto", base)
    assert is_served("vllm", policy[1])


def test_stale_rollouts_by_vllm_are_refused() -> None:
    with pytest.raises(ValueError, match="set staleness to 0, or rollouts to hf"):
        RLSettings(rollouts="vllm", staleness=1)


def test_a_stage_says_before_it_starts_what_its_rollouts_need(
    tmp_path: Path, has_gpu: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where no environment of vLLM's is

    def needs(**settings: Any) -> list[Any]:
        stage: dict[str, Any] = {"name": "rl", "algorithm": "rl", "release_id": "r", "split": "rl", "rl": RLSettings(**settings)}
        return list(LocalBackend().needs(StageSpec(store=tmp_path, model_out=tmp_path / "model", **stage))[1:])

    has_gpu(False)
    assert needs() == needs(rollouts="hf") == []
    (need,) = needs(rollouts="vllm")
    with pytest.raises(BadInput, match=r"no vLLM at \.venv-vllm: `make vllm`"):
        need.check(None)
    has_gpu(True)
    assert [need.requirement for need in needs()] == [
        "an engine for rollouts (rollouts: auto): our engine, as vLLM is not installed (`make vllm`)"
    ]
    assert needs(staleness=1) == []


@pytest.mark.parametrize("settings", [RLSettings(rollouts="hf"), RLSettings(staleness=1)])
def test_without_a_server_nothing_is_started(
    settings: RLSettings, policy: tuple[Any, Any], tmp_path: Path, has_gpu: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    has_gpu(True)
    monkeypatch.setattr(policy_server, "serving", None)
    with serve_policy(settings, *policy, scratch=tmp_path, folder=tmp_path) as server:
        assert server is None
    assert list(tmp_path.iterdir()) == []
