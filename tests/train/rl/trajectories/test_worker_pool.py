"""Rollout workers that die, retire and come: what they play goes on elsewhere from its last answer, and ends once."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from storage.records import Message, Outcome
from synth.engines.local.hf import HFEngine
from synth.rollouts.episode import Episode, Trace, request_of, request_seed, trace, with_tools
from tests.train import warm_processes
from tests.train.rl.trajectories import planted_workers as planted
from tests.train.rl_stages import TASKS, rl_stages
from tests.waiting import eventually
from train.rl.rollout_worker import PlayerFailed, PlayerSetup, weights_file
from train.rl.trajectories.conversation_worker import Finished, Play
from train.rl.trajectories.queue_ledger import Ticket
from train.rl.trajectories.worker_pool import MOST_MOVES, Ended, WorkerPool
from train.spec import StageSpec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

TOLERANCE = 1e-4
"""Of a log-probability, between two processes and two orders of the same products."""


@pytest.fixture(scope="module")
def setup(tmp_path_factory) -> PlayerSetup:
    """A policy, and its weights as version 0."""
    root = tmp_path_factory.mktemp("pool")
    (root / "weights").mkdir()
    (root / "rl").mkdir()
    spec = rl_stages(root)(root / "rl", staleness=1, rollout_workers=2)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(spec.model_in), AutoTokenizer.from_pretrained(spec.model_in)
    save_model(model, str(weights_file(root / "weights", 0)))
    return PlayerSetup(spec, type(model), model.config, tokenizer, root / "weights")


Pools = Callable[..., WorkerPool]


@pytest.fixture
def pools(setup, monkeypatch) -> Iterator[Pools]:
    """Makes pools of workers that start with a given function."""
    made: list[WorkerPool] = []

    def make(count: int = 2, conversations: int = 12, start: Callable[[int], None] = warm_processes.start_player) -> WorkerPool:
        monkeypatch.setattr("train.rl.trajectories.worker_pool.get_context", lambda _: warm_processes.context())
        monkeypatch.setattr("train.rl.trajectories.worker_pool.start_worker", start)
        made.append(WorkerPool(setup, count, conversations))
        made[-1].use_weights(0)
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def plays(draws: int = 8) -> list[Play]:
    """So many that some go on after a call."""
    return [Play(Ticket(group, draw), task, request_seed(7, group)) for group, task in enumerate(TASKS) for draw in range(draws)]


@pytest.fixture(scope="module")
def alone(setup) -> dict[Ticket, tuple[Trace, tuple[Message, ...], Outcome | None]]:
    """Each conversation as this process plays it, all in one batch."""
    spec: StageSpec = setup.spec
    settings = spec.rl
    assert settings is not None
    engine = HFEngine(AutoModelForCausalLM.from_pretrained(spec.model_in), setup.tokenizer, batch_rows=64)
    episodes = [Episode(one.task, one.ticket.draw, settings.max_turns, is_judged_elsewhere=True) for one in plays()]
    requests = [
        request_of(episode, tools, temperature=settings.temperature, seed=play.seed, max_tokens=settings.max_tokens)
        for play, (episode, tools) in zip(plays(), with_tools(episodes), strict=True)
    ]
    engine.converse(requests, lambda index, answer: episodes[index].step(answer))
    for episode in episodes:
        if episode.changes is None:
            episode.close()
    found = [(trace(episode.turns), tuple(episode.messages), episode.outcome) for episode in episodes]
    return {play.ticket: one for play, one in zip(plays(), found, strict=True)}


def submit(pool: WorkerPool, given: Sequence[Play]) -> None:
    for group in {play.ticket.group for play in given}:
        pool.submit([play for play in given if play.ticket.group == group])


def turn(pool: WorkerPool, ended: list[Ended]) -> None:
    """As the queue's thread does."""
    pool.dispatch()
    ended += pool.receive(pool.wait(0.05))


def until(holds: Callable[[], object], pool: WorkerPool, ended: list[Ended]) -> None:
    assert eventually(lambda: turn(pool, ended) or holds(), 60, 0)


def assert_as_alone(ended: Sequence[Ended], alone: Any) -> None:
    """Every conversation has ended once, with the tokens that it has without any disturbance."""
    assert sorted(one.ticket for one in ended) == sorted(alone)
    for one in ended:
        expected, messages, outcome = alone[one.ticket]
        assert one.finished is not None
        found = one.finished.trace
        assert (found.prompt_ids, found.ids, found.mask) == (expected.prompt_ids, expected.ids, expected.mask)
        assert found.logprobs == pytest.approx(expected.logprobs, abs=TOLERANCE)
        assert one.finished.messages == messages
        assert one.finished.outcome == outcome
        assert (one.finished.changes is None) == (outcome is not None)
        assert one.finished.versions == ((0, sum(expected.mask)),)


def all_ready(pool: WorkerPool, ended: list[Ended]) -> None:
    """Waits for all workers, so that each gets its share."""
    until(lambda: all(handle.slots for handle in pool._workers.values()), pool, ended)


def in_the_middle(pool: WorkerPool, ended: Sequence[Ended]) -> bool:
    """Whether each conversation has ended, or has an answer and is held at the next."""
    return not pool._waiting and all(one.parts for one in pool._open.values()) and len(pool._open) + len(ended) == len(plays())


def test_a_killed_worker_s_conversations_go_on_at_another_from_their_last_answer(pools, alone, tmp_path):
    """Given conversations that are held after their first call, when one worker is killed, and a third retires, and the rest goes on, then
    each ends once, as if nothing had been; those that were moved name both workers."""
    release, ended = tmp_path / "release", list[Ended]()
    pool = pools(3, len(plays()), partial(planted.start_held, release))
    all_ready(pool, ended)
    submit(pool, plays())
    until(lambda: in_the_middle(pool, ended), pool, ended)
    held = {number: set(handle.tickets) for number, handle in pool._workers.items()}
    assert sum(bool(tickets) for tickets in held.values()) > 1, "several workers play"
    killed = max(list(held)[:2], key=lambda number: len(held[number]))
    os.kill(pool._workers[killed].process.pid, signal.SIGKILL)
    until(lambda: killed not in pool._workers, pool, ended)
    assert pool.size == 3, "it is replaced"
    pool.resize(1)
    assert pool.size == 1
    (last,) = pool._workers
    until(lambda: not pool._waiting, pool, ended)
    release.touch()
    until(lambda: not pool._open, pool, ended)
    assert_as_alone(ended, alone)
    workers = {one.ticket: one.workers for one in ended}
    assert all(workers[ticket][0] == number for number, tickets in held.items() for ticket in tickets)
    moved = list(held[killed])
    assert moved
    assert all(len(workers[ticket]) > 1 and workers[ticket][-1] == last for ticket in moved)
    assert pool.receive(pool.wait(0.1)) == [], "nothing is said twice"


def test_workers_that_come_later_play_too_and_a_few_slots_suffice(pools, alone, tmp_path):
    """Given fewer slots than a group has conversations, and a second worker that comes in the middle, then all end once."""
    release, ended = tmp_path / "release", list[Ended]()
    pool = pools(1, 4, partial(planted.start_closed, release))
    submit(pool, plays())
    until(lambda: len(pool._workers[0].tickets) == 6, pool, ended)
    pool.resize(2)
    all_ready(pool, ended)
    release.touch()
    until(lambda: not pool._open, pool, ended)
    assert_as_alone(ended, alone)
    assert {one.workers for one in ended} >= {(0,), (1,)}


def test_a_world_that_answers_otherwise_after_a_move_is_played_from_the_beginning(pools, tmp_path):
    """Given tools that never answer alike in two processes, then a moved conversation begins again and holds the new one's answers only."""
    release, ended = tmp_path / "release", list[Ended]()
    pool = pools(2, len(plays()), partial(planted.start_forgetful, release))
    all_ready(pool, ended)
    submit(pool, plays())
    until(lambda: in_the_middle(pool, ended), pool, ended)
    pids = dict(zip(pool._workers, pool.pids(), strict=True))
    killed = max(pool._workers, key=lambda number: len(pool._workers[number].tickets))
    moved = set(pool._workers[killed].tickets)
    assert moved
    release.touch()
    os.kill(pids[killed], signal.SIGKILL)
    until(lambda: not pool._open, pool, ended)
    assert sorted(one.ticket for one in ended) == [play.ticket for play in plays()]
    for one in ended:
        assert one.finished is not None
        tools = [message.content or "" for message in one.finished.messages if message.role == "tool"]
        assert len({content.rpartition(" ")[2] for content in tools}) <= 1
        assert sum(one.finished.trace.mask) == sum(count for _, count in one.finished.versions)
        if one.ticket in moved and len(one.workers) > 1:
            assert not any(content.endswith(f" {pids[killed]}") for content in tools)


def test_a_conversation_that_kills_its_workers_is_given_up_alone(pools, alone):
    """Given one task whose conversations kill whoever plays them, then they count as failures of the infrastructure, and all others end as
    ever, although they died with it."""
    ended, poison = list[Ended](), TASKS[2]
    pool = pools(1, 16, partial(planted.start_poisoned, poison.id))
    given = [play for play in plays(2) if play.task.id != poison.id or play.ticket.draw == 0]
    submit(pool, given)
    until(lambda: not pool._open, pool, ended)
    failed = [one for one in ended if one.finished is None]
    assert [one.ticket for one in failed] == [Ticket(2, 0)]
    assert failed[0].failure == f"{MOST_MOVES + 1} workers died with it"
    assert_as_alone([one for one in ended if one.finished], {one.ticket: alone[one.ticket] for one in given if one.ticket.group != 2})


def test_a_fault_of_ours_is_no_failure_of_the_policy(pools):
    ended: list[Ended] = []
    pool = pools(1, 4, planted.start_failing)
    submit(pool, plays()[:4])
    until(lambda: not pool._open, pool, ended)
    for one in ended:
        assert one.finished is not None
        assert (one.finished.outcome, one.finished.reward, one.finished.changes) == (Outcome.INFRA_FAILURE, None, None)
        assert one.finished.failure == "ZeroDivisionError: planted"


def test_workers_that_all_die_end_the_stage_in_words(pools):
    pool = pools(1, 4, planted.start_dead)
    submit(pool, plays()[:2])
    with pytest.raises(PlayerFailed, match=r"7 rollout workers died one after the other: killed, or out of memory;\nfewer workers"):
        for _ in range(200):
            turn(pool, [])


def test_what_workers_fail_of_is_told_by_its_name(pools, setup, monkeypatch):
    """Given damaged weights."""
    monkeypatch.setattr("train.rl.trajectories.worker_pool.MOST_DEATHS", 1)
    weights_file(setup.weights, 1).write_bytes(b"damaged")
    pool, ended = pools(1, 4), list[Ended]()
    until(lambda: pool.has_ready, pool, ended)
    pool.use_weights(1)
    with pytest.raises(PlayerFailed, match="2 rollout workers died one after the other: SafetensorError"):
        until(lambda: False, pool, ended)


def test_messages_larger_than_the_pipe_do_not_stop_both_sides(pools):
    """Given more bytes than a pipe holds, in both directions, and a pool that sends all of them before it reads the first."""
    pool, ended = pools(1, 300), list[Ended]()
    until(lambda: pool.has_ready, pool, ended)
    long = (Message(role="user", content="lamp " * 8000),)
    lost = TASKS[0].model_copy(update={"world": "gone", "messages": long})
    submit(pool, [Play(Ticket(group, 0), lost, 0) for group in range(100)])
    sending = threading.Thread(target=pool.dispatch, daemon=True)
    sending.start()
    sending.join(60)
    assert not sending.is_alive(), "the pool waits for a worker that waits for the pool"
    until(lambda: not pool._open, pool, ended)
    assert Counter(one.finished.outcome for one in ended if one.finished) == {Outcome.INFRA_FAILURE: 100}
    assert isinstance(ended[0].finished, Finished)
    assert "it is gone" in ended[0].finished.failure


def test_a_cancelled_conversation_says_nothing_more(pools, tmp_path):
    """Given conversations that are cancelled while their tools work, then their slots are free for others, and nothing is heard of them."""
    release, ended = tmp_path / "release", list[Ended]()
    pool = pools(1, 8, partial(planted.start_closed, release))
    submit(pool, plays())
    until(lambda: len(pool._workers[0].tickets) >= 8, pool, ended)
    cancelled = sorted(pool._workers[0].tickets)
    for ticket in cancelled:
        pool.cancel(ticket)
    release.touch()
    until(lambda: not pool._open, pool, ended)
    assert {one.ticket for one in ended} == {play.ticket for play in plays()} - set(cancelled)
    assert Path(f"/proc/{pool.pids()[0]}").exists()


def test_calls_that_never_return_hold_up_no_other_conversation(pools, tmp_path):
    """Given as many hanging calls as the worker has slots, which are cancelled, then others are played while they hang."""
    hanging = TASKS[0].intent
    pool, ended = pools(1, 2, partial(planted.start_held_worlds, tmp_path / "never", (hanging,), ())), list[Ended]()
    held = [play for play in plays() if play.task.intent == hanging]
    others = [play for play in plays() if play.task.intent != hanging]
    submit(pool, held)
    until(lambda: len(pool._workers[0].tickets) == 3, pool, ended)
    for play in held:
        pool.cancel(play.ticket)
    submit(pool, others)
    until(lambda: not pool._open, pool, ended)
    assert sorted(one.ticket for one in ended) == [play.ticket for play in others]
