"""`headrace value`: the sources of a store, the proxies, and a killed call that continues."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from storage.errors import BadInput
from storage.store import Store
from synth.run.config import SynthesisConfig
from synth.run.synthesize import synthesize
from tests.train.warm_processes import warm_workers
from train.proxy import source_value as value_module
from train.proxy import sources
from train.proxy.mixtures import FREE_RUNS
from train.proxy.source_value import ValueConfig, plan_value, run_key, value_sources
from train.proxy.sources import OTHER, read_held_out, read_sources

CONFIG = ValueConfig(runs=8, checks=4, data_tokens=10_000, train_tokens=10_000, held_out=20)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("value") / "store"
    config = SynthesisConfig(worlds=("retail", "library"), accepted=60, calibration=30, chinese_share=0.0, code_share=0.0, veiled_share=0.0)
    synthesize(Store(root), config)
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Store:
    shutil.copytree(made, tmp_path / "store")
    return Store(tmp_path / "store")


def test_every_accepted_conversation_has_one_source(store: Store) -> None:
    for kind, column in (("world", "world"), ("cluster", "cluster_id")):
        conversations = read_sources(store, kind, "en")
        expected = store.query(f"SELECT DISTINCT {column} FROM trajectories WHERE accepted")[column].to_list()
        assert len(conversations) == store.query("SELECT count(*) AS n FROM trajectories WHERE accepted")["n"][0]
        assert {one.source for one in conversations} <= {*expected, OTHER}


def test_held_out_conversations_are_experts_of_held_out_tasks(store: Store) -> None:
    held_out = read_held_out(store, "en", 1_000)

    ids = store.query("SELECT DISTINCT task_id FROM tasks WHERE division = 'held_out' AND language = 'en'")
    assert 0 < len(held_out) <= ids.height
    assert {one.stratum for one in held_out} <= {"act", "look-up", "refusal", "conversation"}
    assert all(any(message.role == "assistant" for message in one.messages) for one in held_out)


def test_stores_that_cannot_be_compared_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"all conversations .* are of one origin"):
        read_sources(store, "origin", "en")
    with pytest.raises(BadInput, match="no accepted conversation in zh"):
        read_sources(store, "world", "zh")
    with pytest.raises(BadInput, match=f"2 sources need at least {2 + FREE_RUNS} --runs"):
        plan_value(store, CONFIG.model_copy(update={"runs": 3}))


def test_a_store_of_small_sources_alone_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_LEAST_SHARE", 0.9)
    with pytest.raises(BadInput, match=r"each of the 2 sources .* by world has less than 90% of it"):
        read_sources(store, "world", "en")


def test_a_plan_counts_the_proxies_and_trains_none(store: Store) -> None:
    plan = plan_value(store, CONFIG)

    assert len(plan.sources) == 2
    assert plan.left == plan.runs == CONFIG.runs + CONFIG.checks + 1 + len(plan.sources)
    assert not list(store.root.parent.glob("value/*/runs.jsonl"))


def test_a_killed_call_continues_and_ends_with_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_workers(monkeypatch)
    trained: list[str] = []
    whole = value_module._results

    def interrupted(study, runs):
        for count, (run, result) in enumerate(whole(study, runs)):
            if count == 5:
                raise KeyboardInterrupt
            trained.append(run.name)
            yield run, result

    monkeypatch.setattr(value_module, "_results", interrupted)
    with pytest.raises(KeyboardInterrupt):
        value_sources(store, CONFIG)
    monkeypatch.setattr(value_module, "_results", whole)

    assert plan_value(store, CONFIG).left == plan_value(store, CONFIG).runs - 5
    found, folder = value_sources(store, CONFIG)
    again, _ = value_sources(store, CONFIG)

    assert found.gains == again.gains
    assert found.realised == again.realised
    assert found.minutes == again.minutes > 0
    assert {one.source for one in found.gains} == {"retail", "library"} == set(found.weights)
    assert all(one.low <= one.gain <= one.high for one in found.gains)
    assert len(found.predicted) == len(found.realised) == CONFIG.checks
    written = json.loads((folder / "weights.json").read_text())
    assert written == {"by": "world", "weights": found.weights}
    assert json.loads((folder / "value.json").read_text())["rank"] == found.rank

    monkeypatch.setattr(value_module, "TRUSTED_RANK", found.rank + 0.01)
    assert set(value_sources(store, CONFIG)[0].weights.values()) == {1.0}
    monkeypatch.setattr(value_module, "TRUSTED_RANK", found.rank)
    monkeypatch.setattr(value_module, "weights", lambda gains: {"retail": 1.5, "library": 0.5})
    assert value_sources(store, CONFIG)[0].weights == {"retail": 1.5, "library": 0.5}


def test_every_held_out_conversation_counts_the_same(store: Store) -> None:
    study = value_module._Study.read(store, CONFIG)
    counts = Counter(one.stratum for one in study.held_out)
    assert len(counts) > 1
    rare = min(counts, key=lambda stratum: counts[stratum])
    losses = [10.0 if stratum == rare else 1.0 for stratum in study.strata]

    found = study.summarise({run_key(run): {"losses": losses, "seconds": 1.0} for run in study.runs})

    assert found.realised == pytest.approx([1.0 + 9.0 * counts[rare] / len(study.held_out)] * CONFIG.checks)
