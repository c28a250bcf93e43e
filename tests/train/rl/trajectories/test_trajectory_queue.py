"""Asynchronous RL by trajectories as whole stages: what is learned from, by which weights it was sampled, and what survives which kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from storage.errors import HeadraceError
from storage.records import Outcome
from tests.train import warm_processes
from tests.train.rl.trajectories import planted_workers as planted
from tests.train.rl_stages import RL, rl_stages
from tests.waiting import eventually
from train.rl.rollout_batches import Batch
from train.rl.trajectories.queue_journal import (
    JOURNAL,
    DroppedRecord,
    OpenedRecord,
    QueueJournal,
    Record,
    StepRecord,
    read_journal,
)
from train.rl.trajectories.queue_ledger import Ticket, Trajectory
from train.rl.trajectories.reward_client import RewardClient
from train.rl.trajectories.trajectory_queue import METRICS, WORKERS_FILE, TrajectoryQueue
from train.rl.trajectories.worker_pool import WorkerPool
from train.run import _settings_hash, run
from train.spec import CHECKPOINTS, StageSpec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

BOUND = 1
TOLERANCE = 1e-4
"""Of a log-probability: the sampler's own forward pass against that of Transformers, in fp32."""


@pytest.fixture(scope="module")
def make_spec(tmp_path_factory) -> Callable[..., StageSpec]:
    make = rl_stages(tmp_path_factory.mktemp("stages"))
    usual = {"staleness": BOUND, "rollout_workers": 2, "resample_rounds": 0}
    return lambda folder, **settings: make(folder, **{**usual, **settings})


def fork_warm(patch: pytest.MonkeyPatch, start: Callable[[int], None] = warm_processes.start_player) -> None:
    patch.setattr("train.rl.trajectories.worker_pool.get_context", lambda _: warm_processes.context())
    patch.setattr("train.rl.trajectories.worker_pool.start_worker", start)


@pytest.fixture(scope="module", autouse=True)
def warm_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        fork_warm(patch)
        yield


@dataclass
class Seen:
    """A stage as its trainer saw it: batches, and the weights before each."""

    spec: StageSpec
    result: dict[str, Any] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    weights: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def run(self) -> Seen:
        batch = TrajectoryQueue.batch

        def given(queue: TrajectoryQueue, step: int) -> Batch:
            self.weights.append({name: weights.clone() for name, weights in queue._model.state_dict().items()})
            self.batches.append(batch(queue, step))
            return self.batches[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TrajectoryQueue, "batch", given)
            self.result = run(self.spec)
        return self

    @property
    def records(self) -> list[Record]:
        return read_journal(self.spec.model_out.parent / JOURNAL)


@pytest.fixture(scope="module")
def undisturbed(make_spec, tmp_path_factory) -> Seen:
    return Seen(make_spec(tmp_path_factory.mktemp("whole"))).run()


def metrics(spec: StageSpec) -> list[dict[str, float]]:
    return [json.loads(line) for line in (spec.model_out.parent / "metrics.jsonl").read_text().splitlines()]


def audit(records: Sequence[Record], steps: int = RL.max_steps, *, bound: int = BOUND) -> dict[Ticket, Trajectory]:
    """Every ticket arrived once, every group was learned from once, whole, and nothing was staler than the bound. Gives what was learned
    from."""
    arrived = Counter(one.ticket for one in records if isinstance(one, Trajectory))
    assert set(arrived.values()) <= {1}
    opened = [one.number for one in records if isinstance(one, OpenedRecord)]
    assert opened == list(range(len(opened)))
    taken = [one for one in records if isinstance(one, StepRecord)]
    assert [one.step for one in taken] == list(range(steps))
    numbers = Counter(number for one in taken for number in (*one.groups, *one.left_out))
    assert set(numbers.values()) <= {1}
    dropped, waiting, learned = set[Ticket](), dict[Ticket, Trajectory](), dict[Ticket, Trajectory]()
    for record in records:
        match record:
            case Trajectory():
                assert record.ticket.group in opened
                waiting[record.ticket] = record
            case DroppedRecord():
                dropped.add(record.ticket)
                waiting.pop(record.ticket, None)
            case StepRecord():
                assert len(record.groups) == RL.tasks_a_step
                for group in record.groups:
                    members = [ticket for ticket in waiting if ticket.group == group]
                    assert sorted(ticket.draw for ticket in members) == list(range(RL.draws))
                    for ticket in members:
                        learned[ticket] = waiting.pop(ticket)
                        assert 0 <= record.step - learned[ticket].oldest <= bound
            case _:
                pass
    assert not dropped & set(learned)
    return learned


def left(spec: StageSpec) -> dict[str, Any]:
    """What a stage leaves, times of learning aside."""
    folder = spec.model_out.parent
    result = json.loads((folder / "result.json").read_text())
    return {"weights": result["weights_hash"], "tags": (folder / "tags.jsonl").read_text(), "metrics": metrics(spec)}


# ---- an undisturbed stage --------------------------------------------------------------------------------------------------------


def test_a_stage_learns_once_from_each_group_within_the_bound(undisturbed):
    learned = audit(undisturbed.records)
    rows = metrics(undisturbed.spec)
    assert all(set(METRICS) <= set(row) for row in rows)
    by_step = [[one for one in learned.values() if one.row in batch.rows] for batch in undisturbed.batches]
    for step, (row, batch) in enumerate(zip(rows, undisturbed.batches, strict=True)):
        assert len(batch.rows) == RL.tasks_a_step * RL.draws
        lags = [step - one.oldest for one in by_step[step]]
        assert row["staleness"] == pytest.approx(sum(lags) / len(lags))
        assert row["stale_share"] == pytest.approx(sum(lag > 0 for lag in lags) / len(lags))
        assert batch.updates == min(one.oldest for one in by_step[step])
        assert (row["workers"], row["reward_retries"]) == (2, 0)
    assert rows[0]["staleness"] == 0
    assert sum(row["reward_billed_s"] for row in rows) > 0
    assert not any(name.endswith("_s") for name in undisturbed.result["metrics"])
    assert {one.row.outcome for one in learned.values()} == {Outcome.SUCCESS, Outcome.POLICY_FAILURE}


def test_every_token_has_the_log_probability_of_the_version_that_is_named_for_it(undisturbed):
    """Then also in trajectories that new weights went on with: first the tokens of the old version, then those of the new one."""
    seen = set()
    policies = {version: policy(undisturbed.spec, weights) for version, weights in enumerate(undisturbed.weights)}
    for one in audit(undisturbed.records).values():
        versions = [version for version, count in one.versions for _ in range(count)]
        trace = one.row.trace
        assert len(versions) == sum(trace.mask)
        assert versions == sorted(versions)
        seen.add(tuple(sorted(set(versions))))
        by = {version: forward_logprobs(policies[version], trace) for version in set(versions)}
        places = [place for place, is_own in enumerate(trace.mask) if is_own]
        expected = [by[version][place] for version, place in zip(versions, places, strict=True)]
        assert [trace.logprobs[place] for place in places] == pytest.approx(expected, abs=TOLERANCE)
    assert len({version for versions in seen for version in versions}) >= 3


def policy(spec: StageSpec, weights: dict[str, torch.Tensor]) -> Any:
    model = AutoModelForCausalLM.from_pretrained(spec.model_in)
    model.load_state_dict(weights)
    return model


def forward_logprobs(model: Any, trace: Any) -> list[float]:
    """Of every token after the prompt."""
    ids = torch.tensor([trace.prompt_ids + trace.ids])
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(ids).logits[0].float() / RL.temperature, dim=-1)
    start = len(trace.prompt_ids)
    return [logprobs[start + place - 1, token].item() for place, token in enumerate(trace.ids)]


def test_a_finished_journal_repeats_its_stage_to_the_same_weights_and_plays_nothing(undisturbed, make_spec, tmp_path, monkeypatch):
    monkeypatch.setattr(WorkerPool, "_start", None)
    monkeypatch.setattr("train.rl.trajectories.reward_client.subprocess", None)
    spec = copied(undisturbed.spec, make_spec(tmp_path))
    again = Seen(spec).run()
    assert left(spec) == left(undisturbed.spec)
    assert again.batches == undisturbed.batches
    assert again.records == undisturbed.records


def copied(source: StageSpec, spec: StageSpec, records: int | None = None) -> StageSpec:
    """The spec, with the journal of another beside its model folder: all of it, or so many records."""
    lines = (source.model_out.parent / JOURNAL).read_bytes().splitlines(keepends=True)
    lines[0] = json.dumps({"journal": _settings_hash(spec)}).encode() + b"\n"
    (spec.model_out.parent / JOURNAL).write_bytes(b"".join(lines if records is None else lines[: records + 1]))
    return spec


def test_the_number_of_workers_and_the_service_do_not_part_a_stage_from_its_journal(make_spec, tmp_path):
    spec = make_spec(tmp_path)
    hashes = {
        _settings_hash(make_spec(tmp_path, **settings))
        for settings in ({"rollout_workers": 1}, {"rollout_workers": 9}, {"reward_url": "http://127.0.0.1:1"}, {"checkpoint_steps": 0})
    }
    assert hashes == {_settings_hash(spec)}
    assert _settings_hash(make_spec(tmp_path, rollout_workers=None)) != _settings_hash(spec)
    assert _settings_hash(make_spec(tmp_path, staleness=2)) != _settings_hash(spec)


def test_the_negative_control_shuffles_what_is_learned_and_nothing_else(undisturbed, make_spec, tmp_path):
    """Given the same trajectories, then each batch has the same rewards in another order."""
    shuffled = Seen(copied(undisturbed.spec, make_spec(tmp_path, reward="shuffled"))).run()
    moved = 0
    for ours, theirs in zip(shuffled.batches, undisturbed.batches, strict=True):
        assert [replace(row, learned=None) for row in ours.rows] == [replace(row, learned=None) for row in theirs.rows]
        learned = [[row.learned for row in batch.rows] for batch in (ours, theirs)]
        assert Counter(learned[0]) == Counter(learned[1])
        moved += learned[0] != learned[1]
    assert moved
    assert shuffled.result["weights_hash"] != undisturbed.result["weights_hash"]


# ---- kills -----------------------------------------------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from multiprocessing import get_context
from pathlib import Path
import train.rl.trajectories.worker_pool as worker_pool
from train.rl.trajectories.queue_journal import QueueJournal, StepRecord
from train.run import main

worker_pool.get_context = lambda _: get_context("fork")
spec, step, arrivals = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
add, seen, pools = QueueJournal.add, [], []
begun = worker_pool.WorkerPool.__init__
worker_pool.WorkerPool.__init__ = lambda self, *given: pools.append(self) or begun(self, *given)

def add_and_die(self, record):
    add(self, record)
    if isinstance(record, StepRecord):
        seen[:] = [record.step]
    elif seen:
        seen.append(record)
    if seen and seen[0] >= step and len(seen) > arrivals:
        Path(spec).with_name("pids").write_text(" ".join(map(str, pools[0].pids())))
        os.kill(os.getpid(), signal.SIGKILL)

QueueJournal.add = add_and_die
main([spec])
"""
"""Runs a stage that is killed after so many records since a step was journaled."""


def kill_at(spec: StageSpec, step: int, records: int) -> list[Record]:
    """The journal that a stage leaves which is killed there; none of its workers is left."""
    folder = spec.model_out.parent
    (folder / "spec.json").write_text(spec.model_dump_json())
    log = folder / "log.txt"
    assert warm_processes.run_code(_KILLED, str(folder / "spec.json"), str(step), str(records), log=log) == -9, log.read_text()
    pids = (folder / "pids").read_text().split()
    assert pids
    assert eventually(lambda: not any(map(is_alive, pids)), 20), "its workers end with it"
    return read_journal(folder / JOURNAL)


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_kill_9_of_the_trainer_loses_and_doubles_nothing(make_spec, tmp_path):
    """Given a trainer that is killed just after a step is journaled, before any checkpoint, and again among later arrivals, then what had
    arrived stays, the stage goes on to its end, and its journal repeats it to the same weights, metrics and tags."""
    (tmp_path / "killed").mkdir()
    spec = make_spec(tmp_path / "killed")
    first = kill_at(spec, 1, 0)
    assert isinstance(first[-1], StepRecord)
    second = kill_at(spec, 3, 4)
    assert second[: len(first)] == first
    assert [path.name for path in (tmp_path / "killed" / CHECKPOINTS).glob("step-*")]

    shutil.copytree(tmp_path / "killed" / CHECKPOINTS, tmp_path / "cut" / CHECKPOINTS)
    cut = make_spec(tmp_path / "cut")
    early = next(place for place, one in enumerate(second) if isinstance(one, StepRecord)) + 1
    with pytest.raises(
        HeadraceError, match=rf"{JOURNAL} ends before step 1, the last checkpoint at step \d.*Remove the folder checkpoints"
    ):
        run(copied(spec, cut, early))

    run(spec)
    records = read_journal(spec.model_out.parent / JOURNAL)
    assert records[: len(second)] == second
    audit(records)
    (tmp_path / "again").mkdir()
    again = copied(spec, make_spec(tmp_path / "again"))
    run(again)
    assert left(again) == left(spec)


def test_a_stage_goes_on_whatever_dies_and_whoever_comes(make_spec, tmp_path, monkeypatch):
    """Given a stage whose reward service is killed, whose workers are killed, and whose number of workers grows and shrinks meanwhile."""
    hand_over = TrajectoryQueue._hand_over

    def disturb(queue: TrajectoryQueue, version: int) -> None:
        hand_over(queue, version)
        if version == 1:
            (tmp_path / WORKERS_FILE).write_text("3\n")
        if version == 2:
            services.append(queue.rewards.child_pid or 0)
            os.kill(services[0], signal.SIGKILL)
            with queue._changed:
                killed.append(queue.pool.pids()[0])
                os.kill(killed[0], signal.SIGKILL)
        if version == 3:
            (tmp_path / WORKERS_FILE).write_text("many")
        if version == 4:
            (tmp_path / WORKERS_FILE).write_text("1")
            services.append(queue.rewards.child_pid or 0)
            killed.extend(queue.pool.pids())

    services, killed = list[int](), list[int]()
    monkeypatch.setattr(TrajectoryQueue, "_hand_over", disturb)
    seen = Seen(make_spec(tmp_path)).run()
    learned = audit(seen.records)
    rows = metrics(seen.spec)
    assert [row["workers"] for row in rows] == [2, 3, 3, 3, 1]
    assert services[0] != services[1], "another service judges"
    assert killed[0] not in killed[1:], "another worker plays"
    assert Outcome.INFRA_FAILURE not in {one.row.outcome for one in learned.values()}
    assert json.loads((tmp_path / "result.json").read_text())["weights_hash"] == seen.result["weights_hash"]


# ---- worlds ----------------------------------------------------------------------------------------------------------------------


def test_a_slow_world_holds_up_its_own_groups_alone_and_a_broken_one_costs_no_reward(make_spec, tmp_path, monkeypatch):
    """Given one intent whose results come in the fourth step, and another whose world raises, then steps are learned from other groups
    meanwhile; what has waited too long is dropped and played again; what has failed has no reward."""
    release, held, broken = tmp_path / "release", "buy_unnamed", "special_service"
    start = partial(planted.start_held_worlds, release, (held,), (broken,))
    hand_over = TrajectoryQueue._hand_over

    def released(queue: TrajectoryQueue, version: int) -> None:
        if version == 3:
            release.touch()
        hand_over(queue, version)

    monkeypatch.setattr(TrajectoryQueue, "_hand_over", released)
    with monkeypatch.context() as patch:
        fork_warm(patch, start)
        seen = Seen(make_spec(tmp_path, staleness=2)).run()
    records = seen.records
    learned = audit(records, bound=2)
    intents = {one.number: one.task.intent for one in records if isinstance(one, OpenedRecord)}
    steps = {number: one.step for one in records if isinstance(one, StepRecord) for number in one.groups}
    waited = [number for number, intent in intents.items() if intent == held]
    assert waited
    assert all(steps.get(number, 3) >= 3 for number in waited)
    assert min(waited) < min(number for number, step in steps.items() if step == 2), "groups behind it were learned from before"
    assert held in {intents[one.ticket.group] for one in records if isinstance(one, DroppedRecord)}
    failed = [one for one in learned.values() if one.row.outcome is Outcome.INFRA_FAILURE]
    assert failed
    assert {intents[one.ticket.group] for one in failed} == {broken}
    assert all(one.row.reward is None and one.row.learned is None for one in failed)


def test_tasks_do_not_run_out_and_a_step_that_nobody_can_rate_ends_the_stage_in_words(make_spec, tmp_path, monkeypatch):
    """Given a policy whose groups are all uniform, because our own code fails, and a loss that replaces such groups twice a step, then the
    last step does not wait for tasks that nobody draws; and the same command succeeds once the fault is gone."""
    spec = make_spec(tmp_path, loss="dapo", resample_rounds=2, max_steps=1, rollout_workers=1)
    with monkeypatch.context() as patch, pytest.raises(HeadraceError, match=r"no rollout of step 0 could be rated.*planted"):
        fork_warm(patch, planted.start_failing)
        run(spec)
    failed = read_journal(tmp_path / JOURNAL)
    assert not any(isinstance(one, StepRecord) for one in failed)
    assert sum(isinstance(one, OpenedRecord) for one in failed) >= RL.tasks_a_step * (1 + 2)
    run(spec)
    (step,) = [one for one in read_journal(tmp_path / JOURNAL) if isinstance(one, StepRecord)]
    assert len(step.groups) == RL.tasks_a_step


def test_a_journal_is_closed_and_processes_are_ended_if_the_stage_fails(make_spec, tmp_path, monkeypatch):
    """Given a reward service that is gone."""
    monkeypatch.setitem(RewardClient.__init__.__kwdefaults__, "patience_s", 0.1)
    monkeypatch.setattr(QueueJournal, "close", lambda self, close=QueueJournal.close: closed.append(1) or close(self))
    closed: list[int] = []
    with pytest.raises(HeadraceError, match=r"the reward service http://127.0.0.1:9 has given no verdict .* goes on from the journal"):
        run(make_spec(tmp_path, reward_url="http://127.0.0.1:9"))
    assert closed
    assert not any(isinstance(one, StepRecord) for one in read_journal(tmp_path / JOURNAL))
