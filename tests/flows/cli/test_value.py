"""`headrace value`, `price` and `worlds learn`: plans, tables and refusals of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.evidence.price import _bounds
from flows.cli.main import app
from storage.errors import BadInput
from storage.store import Store
from synth.run.config import SynthesisConfig
from synth.run.synthesize import synthesize
from synth.worlds.base import World
from tests.train.warm_processes import warm_workers
from train.measure.evaluate import Estimate
from train.proxy import exchange_rate, learnable
from train.proxy.exchange_rate import RL, START, ExchangeRate, Rung
from train.proxy.learnable import IntentProgress, Learned

SPEC = Path(__file__).resolve().parents[2] / "synth" / "car_workshop.yaml"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose conversations are in a world of the user's and in one of the library."""
    root = tmp_path_factory.mktemp("value-command") / "store"
    worlds = {"worlds": [str(SPEC), "library"], "accepted": 30, "calibration": 24, "chinese_share": 0.0, "code_share": 0.0}
    synthesize(Store(root), SynthesisConfig.model_validate(worlds))
    return root


def test_a_dry_run_of_value_prints_the_sources_and_trains_nothing(store: Path) -> None:
    code, printed = run("value", "--store", str(store), "--dry-run")

    assert code == 0
    assert "library" in printed
    assert "car_workshop" in printed
    assert "proxies to train" in printed
    assert not (store.parent / "value").exists()


def test_value_prints_gains_and_says_how_far_to_trust_them(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_workers(monkeypatch)
    code, printed = run("value", "--store", str(store), "--runs", "8", "--data-tokens", "10000", "--train-tokens", "10000")

    assert code == 0, printed
    assert "Spearman" in printed
    (folder,) = (store.parent / "value").iterdir()
    assert {"value.json", "value.html", "weights.json"} <= {path.name for path in folder.iterdir()}


def test_worlds_learn_plans_for_names_files_and_ranges() -> None:
    code, printed = run("worlds", "learn", "library", str(SPEC), "gen-1..3", "--dry-run")

    assert code == 0
    assert "library, car_workshop" in printed
    assert "gen-1" in printed


def test_worlds_learn_refuses_what_is_no_world() -> None:
    code, printed = run("worlds", "learn", "librari", "--dry-run")

    assert code == 2
    assert "did you mean 'library'?" in printed


def test_a_world_that_gives_too_few_tasks_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(world: type[World], *_: object, **__: object) -> Learned:
        if world.name == "hotel":
            raise BadInput("hotel gives 2 tasks, too few to learn from")
        return Learned(
            world.name, 0.3, 0.5, Estimate(0.2, 0.1, 0.3), None, (0.3, 0.5), None, (IntentProgress("ask", 4, 0.3, 0.5, "moved"),), 0, 1.0
        )

    monkeypatch.setattr(learnable, "learn_world", learn)

    code, printed = run("worlds", "learn", "hotel", "library")

    assert code == 2
    assert "library can be learned" in printed
    assert "hotel gives 2 tasks" in printed


@pytest.mark.parametrize(("low", "high", "said"), [(10, 40, "16 to 64"), (0, 40, "16 to any number"), (10, float("inf"), "up to 64")])
def test_bounds_of_a_price_are_those_of_the_rate(low: float, high: float, said: str) -> None:
    half = Estimate(0.5, 0.4, 0.6)
    rate = ExchangeRate(20, low, high, half, (Rung("traces", 100, half, half), Rung("RL", 640, half, half)), 640, 3)

    assert _bounds(rate) == said


def test_price_plans_and_refuses_what_it_cannot_measure(tmp_path: Path) -> None:
    prices = ["--trace", "0.1", "--rollout", "0.001"]
    code, printed = run("price", "library", *prices, "--dry-run", "--kept", str(tmp_path / "price.jsonl"))
    assert code == 0, printed
    assert "21 of 21 trainings" in printed
    assert not list(tmp_path.iterdir())
    assert "did you mean 'library'" in run("price", "librari", *prices, "--dry-run")[1]
    assert "traces must rise from 0" in run("price", "library", *prices, "--traces", "5,3", "--dry-run")[1]
    assert "--trace and --rollout must be above 0" in run("price", "library", "--trace", "0", "--rollout", "1", "--dry-run")[1]


def test_price_says_what_to_buy_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given scripted points in which traces bring more than RL, then they come first unless they cost a thousand times as much."""
    success = {0: 0.2, 50: 0.6, RL: 0.3, START: 0.1}
    monkeypatch.setattr(exchange_rate, "_measured", lambda world, config, points, processes: [(at, [success[at[1]]] * 20) for at in points])
    options = ["--traces", "0,50", "--steps", "1", "--kept", str(tmp_path / "kept" / "price.jsonl")]

    code, cheap = run("price", "library", "--trace", "0.1", "--rollout", "1", *options)
    _, dear = run("price", "library", "--trace", "1000", "--rollout", "1", *options)

    assert code == 0, cheap
    assert "Next: 50 further traces for 5.00" in cheap
    assert "Next: RL (64 rollouts) for 64.00" in dear
    assert "RL is cheaper where a trace costs more than" in dear


def test_weights_of_value_are_taken_by_synthesize_and_train_or_refused(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text('{"by": "world", "weights": {"library": 2.0}}')
    for command in (["synthesize", "--world", "library", "--n", "20"], ["train", "--config", "configs/ci.yaml"]):
        code, printed = run(*command, "--weights", str(path), "--store", str(store), "--dry-run")
        assert code == 0, printed
    path.write_text('{"by": "teacher", "weights": {"scripted": 2.0}}')
    assert "steer no synthesis" in run("synthesize", "--world", "library", "--weights", str(path), "--store", str(store), "--dry-run")[1]
