"""Batches: whole trajectories, what is learned from each, and tasks that hardly differ in their rollouts replaced by others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage.errors import HeadraceError
from storage.records import FunctionCall, Message, Outcome, Task, ToolCall
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.tasks.solver import expert_messages
from synth.worlds import WORLDS
from tests.train.tiny_policies import retail_tasks
from train.rl.rollout_batches import Batch, play_batch
from train.spec import RLSettings

STATUS = list({task.messages: task for task in retail_tasks("order_status", each=12)}.values())[:6]
"""Each with a request of its own, by which the player below knows it."""
DRAWS = 4


class Player:
    """Plays a task as its expert in so many of its draws, and says nothing in the others; of some tasks there is no answer.

    clumsy: its first call in every conversation is one that fails.
    """

    name = "player"

    def __init__(self, successes: dict[str, int], *, silent: Sequence[Task] = (), clumsy: bool = False) -> None:
        self._successes, self._silent, self._clumsy = successes, {task.messages for task in silent}, clumsy
        self._experts = {task.messages: expert_messages(WORLDS[task.world], task)[len(task.messages) :] for task in STATUS}
        self._ids = {task.messages: task.id for task in STATUS}
        self._seeds: dict[str, list[int]] = {}
        self.asked: list[str] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: ChatRequest) -> ChatAnswer:
        opening = next(messages for messages in self._ids if request.messages[: len(messages)] == messages)
        if opening in self._silent:
            raise EngineFailure("nobody answers")
        seeds = self._seeds.setdefault(self._ids[opening], [])
        if request.seed not in seeds:
            seeds.append(request.seed)
            self.asked.append(self._ids[opening])
        said = [message for message in request.messages[len(opening) :] if message.role == "assistant"]
        if self._clumsy and not said:
            wrong = ToolCall(id="call_clumsy", function=FunctionCall(name="get_order", arguments="{}"))
            return _traced(Message(role="assistant", content="", tool_calls=(wrong,)), request)
        if seeds.index(request.seed) >= self._successes.get(self._ids[opening], 0):
            return _traced(Message(role="assistant", content="Hm."), request)
        turns = [message for message in self._experts[opening] if message.role == "assistant"]
        return _traced(turns[len(said) - self._clumsy], request)


def _traced(message: Message, request: ChatRequest) -> ChatAnswer:
    """Each message of a conversation is one token."""
    return ChatAnswer(message, "stop", (1,), (-0.5,), 1, 1, "player", prompt_ids=tuple([1] * len(request.messages)))


def played(player: Player, tasks: Sequence[Task], *others: Sequence[Task], **settings: object) -> tuple[Batch, list[int]]:
    """A batch, and how often further tasks were asked for."""
    asked: list[int] = []

    def more(again: int) -> Sequence[Task]:
        asked.append(again)
        return others[again - 1]

    chosen = RLSettings(draws=DRAWS, tasks_a_step=len(tasks), **settings)
    return play_batch(player, tasks, chosen, step=5, updates=5, seed=1, others=more), asked


def ids(batch: Batch) -> list[str]:
    """Of the tasks that are learned from, in order."""
    assert all(len({row.task_id for row in batch.rows[start : start + DRAWS]}) == 1 for start in range(0, len(batch.rows), DRAWS))
    return [row.task_id for row in batch.rows[::DRAWS]]


def test_nothing_is_played_again_where_neither_loss_nor_settings_say_so() -> None:
    batch, asked = played(Player({}), STATUS[:2])
    assert (ids(batch), batch.left_out, asked) == ([task.id for task in STATUS[:2]], (), [])


def test_tasks_whose_rollouts_hardly_differ_give_way_to_others_whose_do() -> None:
    """Given a task that always succeeds, one at times, and one never, when of two others only the second differs, then that one stands in
    for the first, and all rollouts that are not learned from are told."""
    always, at_times, never, alike, different, spare = STATUS
    player = Player({always.id: 4, at_times.id: 2, alike.id: 0, different.id: 1})
    batch, asked = played(player, [always, at_times, never], [alike, different, spare], loss="dapo", resample_rounds=1)
    assert asked == [1]
    assert ids(batch) == [different.id, at_times.id, never.id]
    assert {row.task_id for row in batch.left_out} == {alike.id, always.id}
    assert len(batch.left_out) == 2 * DRAWS
    assert spare.id not in player.asked, "only as many are played as give way"


def test_a_round_follows_another_while_tasks_hardly_differ_and_rounds_are_left() -> None:
    player = Player({STATUS[2].id: 1, STATUS[3].id: 3})
    rounds = [[STATUS[1], STATUS[2]], [STATUS[3]], [STATUS[4]]]
    batch, asked = played(player, [STATUS[0], STATUS[5]], *rounds, loss="dapo", resample_rounds=3)
    assert asked == [1, 2], "then all differ"
    assert set(ids(batch)) == {STATUS[2].id, STATUS[3].id}
    batch, asked = played(Player({}), [STATUS[0]], *([task] for task in STATUS[1:]), loss="gspo")
    assert asked == [1, 2], "as many as the loss has"
    assert ids(batch) == [STATUS[0].id]


def test_others_that_are_spoilt_stand_in_for_none() -> None:
    batch, _ = played(Player({}, silent=STATUS[1:2]), STATUS[:1], STATUS[1:2], resample_rounds=1)
    assert ids(batch) == [STATUS[0].id]
    assert {row.outcome for row in batch.left_out} == {Outcome.INFRA_FAILURE}
    with pytest.raises(HeadraceError, match="no rollout of step 5 could be rated"):
        played(Player({}, silent=STATUS[:1]), STATUS[:1], STATUS[1:2], resample_rounds=1)


def test_turns_whose_calls_failed_are_told_from_those_that_went_well() -> None:
    """Given a conversation that begins with a call that fails and then goes as the expert's, then its first turn erred and no other."""
    batch, _ = played(Player({STATUS[0].id: 4}, clumsy=True), STATUS[:1])
    (well, *_) = batch.rows
    assert well.outcome is Outcome.SUCCESS
    assert well.erred[0] is True
    assert len(well.erred) == 1 + sum(message.role == "assistant" for message in expert_messages(WORLDS[STATUS[0].world], STATUS[0]))
    assert not any(well.erred[1:])
    assert sum(well.trace.mask) == len(well.erred), "a flag a turn"


def test_shuffled_rewards_leave_outcomes_as_they_were() -> None:
    player = Player({task.id: 4 for task in STATUS[:3]})
    batch, _ = played(player, STATUS, reward="shuffled")
    assert [row.reward == 1.0 for row in batch.rows] == [row.outcome is Outcome.SUCCESS for row in batch.rows]
    assert [row.learned for row in batch.rows] != [float(row.outcome is Outcome.SUCCESS) for row in batch.rows]
    assert sum(row.learned for row in batch.rows) == 3 * DRAWS


def test_a_group_whose_first_rollouts_are_alike_ends_there() -> None:
    """Given a task whose first two rollouts differ and two whose first two are alike, then the first alone is drawn out, the groups of the
    others are filled by rows that teach nothing, and the rollouts made are counted."""
    differs, succeeds, fails = STATUS[:3]
    player = Player({differs.id: 1, succeeds.id: 4})
    batch, _ = played(player, STATUS[:3], first_draws=2)
    assert ids(batch) == [differs.id, succeeds.id, fails.id]
    assert [row.is_made for row in batch.rows] == [True] * 4 + ([True] * 2 + [False] * 2) * 2
    assert batch.rollouts == 8 == len(player.asked)
    assert all(row.learned is None and not row.trace.ids for row in batch.rows if not row.is_made)
    whole, _ = played(Player({differs.id: 1}), STATUS[:1])
    assert [row.learned for row in whole.rows] == [row.learned for row in batch.rows[:4]], "the same rollouts as drawn at once"


def test_a_task_that_is_alike_gives_way_after_its_first_rollouts() -> None:
    player = Player({STATUS[1].id: 1})
    batch, _ = played(player, STATUS[:1], STATUS[1:2], first_draws=2, resample_rounds=1)
    assert ids(batch) == [STATUS[1].id]
    assert batch.rollouts == 6
