"""The order of SFT's rows is TRL's, whatever the number of processes, and a stage that was killed goes on in the middle of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.trainer_pt_utils import LengthGroupedSampler

from storage.releases.release import ReleaseItem, make_release
from tests.train import warm_processes
from tests.train.tiny_policies import SMALL, expert_store, retail_tasks
from train.metrics_log import LiveMetrics
from train.run import run
from train.sft.length_batching import Order
from train.spec import CHECKPOINTS, SFTSettings, StageSpec

pytestmark = pytest.mark.usefixtures("in_process")

LENGTHS = [5, 9, 3, 7, 8, 2, 6, 4, 1]
TASKS = retail_tasks("special_service", "order_status", "close_order", "buy_unnamed", "buy_pick")
SFT = SFTSettings(max_steps=11, batch_size=2, learning_rate=1e-2, warmup_steps=0, checkpoint_steps=2)
"""Five conversations: three steps an epoch, and checkpoints in the midst of epochs and between them."""
LEFT = ("metrics.jsonl", "result.json")


class Killed(BaseException):
    """Stands in for SIGKILL where the process must go on: nothing of the project catches it."""


def epochs(order: Order, count: int) -> list[list[int]]:
    return [list(order) for _ in range(count)]


# ---- the order -----------------------------------------------------------------------------------------------------------


def test_one_process_takes_the_rows_as_trl_does():
    torch.manual_seed(3)
    theirs = [list(LengthGroupedSampler(2, lengths=LENGTHS)) for _ in range(1)]
    torch.manual_seed(3)
    assert epochs(Order(LENGTHS, 2), 1) == theirs


def test_the_last_batch_of_several_processes_is_filled_up():
    torch.manual_seed(3)
    alone = epochs(Order(LENGTHS, 4), 2)
    torch.manual_seed(3)
    order = Order(LENGTHS, 4, filler=99)
    assert epochs(order, 2) == [[*epoch, 99, 99, 99] for epoch in alone]
    assert len(order) == 12


@pytest.mark.parametrize("taken", [1, 8])
def test_an_epoch_that_was_begun_begins_again_as_it_did(taken):
    """Given the state of an order in the midst of its second epoch, when it is restored, then that epoch and what follows are the same."""
    torch.manual_seed(3)
    order = Order(LENGTHS, 2)
    list(order)
    running = iter(order)
    begun = [next(running) for _ in range(taken)]
    state = json.loads(json.dumps(order.state()))
    begun += running
    third = list(order)

    torch.manual_seed(77)
    again = Order(LENGTHS, 2)
    again.restore(state)
    assert epochs(again, 2) == [begun, third]


def test_between_two_epochs_the_generator_says_it_all():
    order = Order(LENGTHS, 2)
    list(order)
    assert order.state() is None
    order.restore(None)
    torch.manual_seed(5)
    after = list(order)
    torch.manual_seed(5)
    assert list(Order(LENGTHS, 2)) == after


# ---- going on ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def make_spec(tmp_path_factory) -> Callable[..., StageSpec]:
    """A store with five experts' conversations: folder -> the spec of the SFT stage there."""
    store, experts = expert_store(tmp_path_factory.mktemp("stages") / "store", TASKS)
    release = make_release(store, "seed", {"seed": [ReleaseItem("trajectory", one.id, one.task_id) for one in experts]}, {})

    def make(folder: Path, **settings: Any) -> StageSpec:
        folder.mkdir(exist_ok=True)
        return StageSpec(
            name="sft1",
            algorithm="sft",
            store=store.root,
            release_id=release,
            split="seed",
            model_out=folder / "model",
            tiny=SMALL,
            seed=3,
            sft=SFT.model_copy(update=settings),
        )

    return make


@pytest.fixture(scope="module")
def undisturbed(make_spec, tmp_path_factory) -> dict[str, str]:
    """What a stage leaves that nobody killed, and that makes no checkpoints."""
    return left(make_spec(tmp_path_factory.mktemp("whole"), checkpoint_steps=0))


def left(spec: StageSpec) -> dict[str, str]:
    """Runs a stage to its end; what it leaves."""
    run(spec)
    folder = spec.model_out.parent
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".py") == ["metrics.jsonl", "model", "result.json"]
    return {name: (folder / name).read_text() for name in LEFT}


def killed_after(spec: StageSpec, step: int) -> list[str]:
    """Runs a stage until the figures of a step are written; the checkpoints that are there then."""
    plain = LiveMetrics.on_log

    def on_log(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        plain(self, args, state, control, **more)
        if state.global_step == step:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(LiveMetrics, "on_log", on_log)
        run(spec)
    return sorted(path.name for path in (spec.model_out.parent / CHECKPOINTS).glob("step-*"))


@pytest.mark.slow
@pytest.mark.parametrize(("step", "whole"), [(2, []), (5, ["step-000000004"]), (7, ["step-000000006"]), (11, ["step-000000010"])])
def test_a_stage_killed_at_any_step_ends_as_if_it_had_not_been(undisturbed, make_spec, tmp_path, step, whole):
    """Step 4 is in the midst of an epoch, after 6 one has ended; the last step leaves no checkpoint, only the model."""
    spec = make_spec(tmp_path)
    assert killed_after(spec, step) == whole
    assert left(spec) == undisturbed


@pytest.mark.slow
def test_kill_9_at_random_steps_loses_and_doubles_nothing(undisturbed, make_spec, tmp_path):
    spec, rng = make_spec(tmp_path), random.Random(20)
    (tmp_path.parent / "spec.json").write_text(spec.model_dump_json())
    code = (
        "import os, signal, sys\nfrom train.metrics_log import LiveMetrics\nfrom train.run import main\nplain = LiveMetrics.on_log\n"
        "def on_log(self, args, state, control, **more):\n    plain(self, args, state, control, **more)\n"
        "    if state.global_step == int(sys.argv[2]):\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "LiveMetrics.on_log = on_log\nmain(sys.argv[1:2])"
    )
    for step in sorted(rng.sample(range(1, SFT.max_steps + 1), 3)):
        log = tmp_path.parent / "log.txt"
        assert warm_processes.run_code(code, str(tmp_path.parent / "spec.json"), str(step), log=log) == -9, log.read_text()
    assert left(spec) == undisturbed


@pytest.mark.slow
def test_an_order_that_is_not_restored_would_show(undisturbed, make_spec, tmp_path, monkeypatch):
    """The negative control of the tests above."""
    spec = make_spec(tmp_path)
    killed_after(spec, 5)
    monkeypatch.setattr(Order, "restore", lambda *_: None)
    assert left(spec) != undisturbed


@pytest.mark.slow
def test_a_plateau_is_where_it_would_have_been(make_spec, tmp_path):
    """Given a stage that ends at a plateau, killed within the windows that tell so, then it ends there all the same."""
    idle = {"learning_rate": 1e-9, "plateau_window": 3, "plateau_gain": 10.0}
    whole = left(make_spec(tmp_path / "whole", **idle))
    assert whole["metrics.jsonl"].count("\n") == 6
    for step in (5, 6):
        spec = make_spec(tmp_path / f"killed-{step}", **idle)
        assert killed_after(spec, step) == ["step-000000004"]
        assert left(spec) == whole
