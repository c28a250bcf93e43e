"""Rollback: starts in the middle of a task are the real thing, and anchors move as the policy masters what follows them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from storage.context.settings import PolicyContext
from storage.records import Message, Outcome, Task
from synth.blueprints.single_goal import draw_drills
from synth.engines.base import ChatAnswer, ChatRequest
from synth.engines.local.chat_format import ChatFormat
from synth.engines.local.hf import HFEngine
from synth.rollouts.episode import Episode, Trace, play
from synth.rollouts.expert_prefix import expert_conversation, has_prefixes
from synth.tasks.solver import expert_messages
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS
from tests.train.scripted_steps import assert_close, rows_of, take_step
from tests.train.tiny_policies import copy_of, expert_conversations, retail_tasks, small_policy
from train.data.token_labels import IGNORED, every_turn, learned_tokens
from train.rl.lessons import Lessons
from train.rl.rollback import WINDOW, Anchors, Rollback, course_of
from train.rl.rollout_batches import Batch, Row, play_batch
from train.spec import RLSettings

LONG = retail_tasks("exchange_and_buy", "close_and_buy", each=2)
"""Plans of five and of four calls."""
OTHERS = [drill.task for drill in draw_drills(WORLDS["banking"], 40, [], DivisionConfig(), seed=0) if len(drill.task.plan.calls) > 2]
SETTINGS = RLSettings(draws=4, tasks_a_step=1, warmup_steps=0, max_tokens=24, max_turns=6)


class Expert:
    """Says what the expert would say next, in the first `good` draws of each task; in the others it says nothing of use."""

    name = "expert"

    def __init__(self, tasks: Sequence[Task], good: int = 100) -> None:
        self._experts = {task.messages: expert_messages(WORLDS[task.world], task) for task in tasks}
        self._good, self._seeds = good, dict[tuple[Message, ...], list[int]]()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: ChatRequest) -> ChatAnswer:
        opening = next(messages for messages in self._experts if request.messages[: len(messages)] == messages)
        seeds = self._seeds.setdefault(opening, [])
        if request.seed not in seeds:
            seeds.append(request.seed)
        is_good = seeds.index(request.seed) < self._good
        message = self._experts[opening][len(request.messages)] if is_good else Message(role="assistant", content="Hm.")
        return ChatAnswer(message, "stop", (1,), (-0.5,), 1, 1, "expert", prompt_ids=tuple([1] * len(request.messages)))


# ---- starts ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [*LONG, *OTHERS], ids=lambda task: f"{task.intent}-{task.world_seed}")
def test_a_restored_world_is_the_one_that_was_played(task: Task) -> None:
    """Given a world whose calls were made and one restored from a prefix, then state, changes and what each later call brings are equal; a
    prefix may be restored again after that."""
    kind = WORLDS[task.world]
    messages, prefixes = expert_conversation(kind, task)
    assert list(messages) == expert_messages(kind, task)
    assert [prefix.turns for prefix in prefixes] == list(range(1, len(task.plan.calls) + 1))
    for prefix in [*prefixes, *prefixes]:
        played, restored = kind(task.world_seed, task.given), prefix.restored(kind, task)
        for call in task.plan.calls[: prefix.turns]:
            played.call(call.tool, call.arguments)
        for call in task.plan.calls[prefix.turns :]:
            assert (restored.state(), restored.changes()) == (played.state(), played.changes())
            assert restored.call(call.tool, call.arguments) == played.call(call.tool, call.arguments)
        assert (restored.state(), restored.changes()) == (played.state(), played.changes())


@pytest.mark.parametrize("task", [LONG[0], LONG[2], OTHERS[0]], ids=lambda task: task.intent)
def test_the_whole_conversation_is_judged_from_wherever_it_starts(task: Task) -> None:
    """Given every prefix, when the policy goes on as the expert, then it succeeds with the expert's messages. When it makes no further
    call, it fails, unless all that was to be done was done before."""
    messages, prefixes = expert_conversation(WORLDS[task.world], task)
    for engine, outcome in ((Expert([task]), Outcome.SUCCESS), (Expert([task], good=0), Outcome.POLICY_FAILURE)):
        episodes = [Episode(task, number, 8, prefix=prefix) for number, prefix in enumerate([None, *prefixes])]
        play(engine, episodes, temperature=1.0, seed=0)
        assert {episode.outcome for episode in episodes[:-1]} == {outcome}
        if outcome is Outcome.SUCCESS:
            assert episodes[-1].outcome is Outcome.SUCCESS
            assert all(tuple(episode.messages) == messages for episode in episodes)
            assert [len(episode.turns) for episode in episodes] == list(range(len(prefixes) + 1, 0, -1))


def test_turns_that_are_given_count_to_the_most_turns() -> None:
    task = LONG[0]
    prefix = expert_conversation(WORLDS[task.world], task)[1][3]
    short, long = (Episode(task, 0, most, prefix=prefix) for most in (5, 6))
    play(Expert([task]), [short, long], temperature=1.0, seed=0)
    assert (short.outcome, long.outcome) == (Outcome.POLICY_FAILURE, Outcome.SUCCESS)
    assert short.checks == {"ended_in_time": False}


def test_what_is_given_is_context_and_its_tokens_are_those_of_training() -> None:
    """Given a model that goes on from a prefix, then its row's prompt has the tokens that training gives these messages, and the tokens
    that count are its own."""
    task = LONG[0]
    model, tokenizer = small_policy(expert_conversations(LONG))
    engine, chat_format = HFEngine(model, tokenizer), ChatFormat(tokenizer)
    _, prefixes = expert_conversation(WORLDS[task.world], task)
    batch = play_batch(engine, [task], SETTINGS, step=0, updates=0, seed=0, starts=lambda _: prefixes[2])
    prompt = [token for piece in chat_format.pieces(prefixes[2].messages) for token in piece.ids]
    for row in batch.rows:
        assert row.given_turns == 3
        assert row.trace.prompt_ids == prompt
        assert row.trace.mask[0] == 1
        assert len(row.erred) == 1 + sum(now > before for before, now in itertools.pairwise(row.trace.mask))


def test_conversations_of_several_user_turns_and_tasks_in_a_context_start_at_the_request() -> None:
    assert has_prefixes(LONG[0])
    rollback = Rollback(0.75)
    for changed in ({"conversation": {}}, {"context": PolicyContext()}):
        task = LONG[0].model_copy(update=changed)
        assert not has_prefixes(task)
        assert rollback.start(task) is None
    idle = retail_tasks("impossible_wish")[0]
    assert rollback.start(idle) is None, "its expert makes no call"
    assert rollback.start(LONG[0].model_copy(update={"world": "gone"})) is None, "its rollouts fail, and say how"


# ---- anchors ---------------------------------------------------------------------------------------------------------------------

Groups = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=40)


@given(groups=Groups, turns=st.integers(2, 6), cut=st.integers(0, 40))
def test_an_anchor_moves_a_turn_back_when_what_follows_is_mastered_and_goes_on_from_a_checkpoint(
    groups: list[list[bool]], turns: int, cut: int
) -> None:
    """Given groups of rollouts, then the number of given turns falls by one, only after a window of rollouts of which three quarters
    succeed, and anchors restored in the middle end as those that were not."""
    anchors, other = Anchors(0.75), Anchors(0.75)
    window: list[bool] = []
    assert anchors.given("a", turns) == turns - 1
    for number, group in enumerate(groups):
        if number == cut:
            anchors.restore(json.loads(json.dumps(anchors.state())))
        before = anchors.given("a", turns)
        window = [*window, *group][-WINDOW:]
        is_mastered = before > 0 and len(window) == WINDOW and sum(window) >= 12
        for one in (anchors, other):
            one.add("a", before, group)
            one.move("a")
        assert anchors.given("a", turns) == before - is_mastered
        window = [] if is_mastered else window
    assert anchors.state() == other.state()
    assert anchors.given("b", turns) == turns - 1, "another course has an anchor of its own"


def test_a_turn_is_crucial_if_success_from_before_it_is_significantly_lower_than_from_after_it() -> None:
    """Given a window from before the last turn, then 8 of 16 are significantly fewer than all, and 14 are not; 4 of 16 are significantly
    fewer than 14 of 16, and 9 are not."""

    def is_crucial(*successes: int) -> bool:
        anchors = Anchors(0.75)
        for number in successes:
            anchors.move("a") if anchors.state() else None
            anchors.add("a", anchors.given("a", 3), [True] * number + [False] * (WINDOW - number))
        return anchors.is_crucial("a")

    assert [is_crucial(8), is_crucial(14), is_crucial(14, 4), is_crucial(14, 9)] == [True, False, True, False]
    unsure = Anchors(0.75)
    unsure.add("a", 2, [False] * (WINDOW - 1))
    assert not unsure.is_crucial("a"), "not before a window is full"


def test_rollouts_that_were_not_rated_move_no_anchor_and_those_of_an_earlier_start_neither() -> None:
    anchors = Anchors(0.75)
    anchors.add("a", 2, [True] * WINDOW)
    anchors.move("a")
    anchors.add("a", 2, [False] * WINDOW)
    assert anchors.state() == {"a": [1, [], [True] * WINDOW]}
    task, rollback = LONG[0], Rollback(0.75)
    rollback.start(task)
    spoilt = Row(task.id, Outcome.INFRA_FAILURE, None, None, Trace(), given_turns=5)
    rollback.watch(Batch(0, 0, (spoilt,) * WINDOW))
    assert rollback.anchors.state() == {}


def test_a_course_is_rolled_back_by_what_its_rollouts_say() -> None:
    """Given a player that always goes on as the expert, then each window of rollouts starts a turn earlier; siblings go on where their
    course is."""
    tasks, rollback, given = [LONG[0], LONG[1]], Rollback(0.75), list[int]()
    assert course_of(tasks[0]) == course_of(tasks[1]) != course_of(LONG[2])
    for step in range(14):
        batch = play_batch(Expert(tasks), [tasks[step % 2]], SETTINGS, step=step, updates=step, seed=0, starts=rollback.start)
        rollback.watch(batch)
        given.append(batch.rows[0].given_turns)
        assert rollback.metrics == {"given_turns": given[-1], "lessons": 0.0}
    assert given == [5, 5, 5, 5, 4, 4, 4, 4, 3, 3, 3, 3, 2, 2]


# ---- lessons ---------------------------------------------------------------------------------------------------------------------


def test_the_expert_is_imitated_up_to_the_turn_where_the_policy_fails() -> None:
    """Given a player that never tells what was asked, then after a window the lesson of each task ends with the expert's answer; where it
    fails at an earlier turn, with that."""
    task, rollback = retail_tasks("price_of_two")[0], Rollback(0.75)
    messages, _ = expert_conversation(WORLDS[task.world], task)
    for step in range(5):
        batch = play_batch(Expert([task], good=0), [task], SETTINGS, step=step, updates=step, seed=0, starts=rollback.start)
        rollback.watch(batch)
        wanted = {task.id: messages} if step >= 3 else {}
        assert {of: lesson for of, (lesson, _) in rollback.lessons.items()} == wanted
    rollback.anchors.restore({course_of(task): [1, [False] * WINDOW, [True] * WINDOW]})
    rollback.watch(play_batch(Expert([task], good=0), [task], SETTINGS, step=9, updates=9, seed=0, starts=rollback.start))
    assert rollback.lessons[task.id][0] == messages[: len(task.messages) + 4], "the given turn and the next, with their results"


class Scripted(Rollback):
    """Lessons of the test's choice, by the number of the row's task."""

    def __init__(self, lessons: Sequence[Sequence[Message]]) -> None:
        super().__init__(0.75)
        self.lessons = {f"task-{number}": (tuple(lesson), ()) for number, lesson in enumerate(lessons)}
        self.metrics = {"given_turns": 0.0, "lessons": float(len(lessons))}

    def watch(self, batch: Batch) -> None:
        """Lessons stay."""


def test_a_step_has_the_gradient_of_rl_and_of_the_experts_likelihood_in_one_part_or_many(tmp_path) -> None:
    """Given lessons beside a step's rollouts, then its gradient is that of RL alone + weight x that of their mean negative log-likelihood,
    written out; the parts of a step add up to the same."""
    conversations = expert_conversations(LONG[:2])
    policy = small_policy(conversations)
    rows = rows_of([[1, 0, 1, 0], [0, 0, 0, 1]], len(policy[1]))
    settings = SETTINGS.model_copy(update={"loss": "ipa", "credit": "chunk_return", "rollback_imitation": 0.3})

    def gradient(lessons: Sequence[Sequence[Message]], **changed: object) -> list[torch.Tensor]:
        rollback, chosen = Scripted(lessons), settings.model_copy(update=changed)
        return take_step(policy, rows, chosen, tmp_path, rollback=rollback).accumulated

    alone, both, parts = gradient([]), gradient(conversations), gradient(conversations, micro_batch_size=2)
    assert_close(parts, both)
    model = copy_of(policy[0]).eval()
    logps: list[torch.Tensor] = []
    for messages in conversations:
        row = learned_tokens(ChatFormat(policy[1]), messages, every_turn, 256)
        scores = torch.log_softmax(model(torch.tensor([row["input_ids"]])).logits[0, :-1], dim=-1)
        logps += [scores[place, label] for place, label in enumerate(row["labels"][1:]) if label != IGNORED]
    likelihood = torch.autograd.grad(-torch.stack(logps).mean(), list(model.parameters()))
    assert_close([one - other for one, other in zip(both, alone, strict=True)], [0.3 * part for part in likelihood], 1e-4)
    assert_close(gradient(conversations, rollback_imitation=0.0), alone)


def test_a_lesson_longer_than_the_policys_window_is_left_out() -> None:
    tokenizer = small_policy(expert_conversations(LONG[:2]))[1]
    lessons = Lessons(Scripted(expert_conversations(LONG[:2])), tokenizer, 1.0, 20)
    assert lessons.begin(["task-0", "task-0", "task-1"]).tolist() == [-1, -1, -1]
    whole = Lessons(Scripted(expert_conversations(LONG[:2])), tokenizer, 1.0, 1000)
    assert whole.begin(["task-0", "task-0", "task-1"]).tolist() == [0, -1, 1], "one row of each task has its lesson"
