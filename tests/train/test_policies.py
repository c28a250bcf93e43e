"""Engines of the policies that a cascade trained: one server at a time, none while a stage trains. The server is scripted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage.errors import BadInput
from storage.health.weights import PRUNED
from storage.store import Store
from synth.engines.local.hf import HFEngine
from tests.train.tiny_policies import small_policy
from train.cascade import Cascade
from train.config import CascadeConfig
from train.policies import OwnEngines, Policy
from train.tiny import save_policy


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[Policy]:
    root, policy = tmp_path_factory.mktemp("policies"), small_policy([])
    for name in ("sft1", "rl"):
        save_policy(*policy, root / name / "model")
    return [Policy(f"policy-{name}", name, root / name / "model") for name in ("sft1", "rl")]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What servers did, in order. vLLM is there."""
    log: list[str] = []

    @contextmanager
    def serve(folder: Path, *, log: Path, policy_version: str) -> Iterator[str]:
        assert log == folder.with_name("vllm.log")
        done(f"start {policy_version}")
        yield f"engine of {policy_version}"
        done(f"end {policy_version}")

    done = log.append
    monkeypatch.setattr("train.rl.policy_server.serve_folder", serve)
    monkeypatch.setattr("train.rl.policy_server.check_installed", lambda _: None)
    return log


def test_a_server_serves_a_policy_until_another_is_measured_or_a_stage_trains(policies: list[Policy], log: list[str]) -> None:
    one, other = policies
    with OwnEngines("vllm") as engines:
        assert [engines(one), engines(one), engines(other)] == ["engine of policy-sft1"] * 2 + ["engine of policy-rl"]
        assert log == ["start policy-sft1", "end policy-sft1", "start policy-rl"]
        engines.close()
        assert log[-1] == "end policy-rl"
        engines(other)
    assert log[-2:] == ["start policy-rl", "end policy-rl"]


@pytest.mark.parametrize("wanted", ["auto", "hf"])
def test_the_tiny_policy_is_played_in_this_process(wanted: Any, policies: list[Policy], log: list[str]) -> None:
    with OwnEngines(wanted) as engines:
        assert isinstance(engines(policies[0]), HFEngine)
    assert log == []


def test_a_policy_whose_folder_is_incomplete_starts_nothing(tmp_path: Path, log: list[str]) -> None:
    with OwnEngines("vllm") as engines, pytest.raises(BadInput, match=r"no config\.json"):
        engines(Policy("policy-x", "x", tmp_path))
    assert log == []


def test_a_pruned_policy_is_told_wherever_its_model_is_needed(tmp_path: Path, log: list[str]) -> None:
    """Given a model that was pruned, then a use of it and a stage that would go on from it say so, and what to do."""
    stage = tmp_path / "store/models/stage-1"
    stage.mkdir(parents=True)
    (stage / PRUNED).write_text("{}")
    policy, config = Policy("policy-x", "sft1", stage / "model"), CascadeConfig()
    cascade = Cascade(Store(tmp_path / "store"), config, run=lambda *_: {})
    for use in (
        policy.check,
        lambda: OwnEngines("vllm")(policy),
        lambda: cascade.stage("rl", policy, "release-1", "rl", config.cascade[-1].settings),
    ):
        with pytest.raises(BadInput, match=r"removed by `headrace store prune`.*delete .*pruned\.json and call `headrace store repair`"):
            use()
    assert log == []
