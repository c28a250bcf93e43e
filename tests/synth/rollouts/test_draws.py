"""Rollouts: whose fault it was decides the outcome, a draw is the same draw whatever stands beside it, and no part is made twice."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from filters.certainty.certainty import DrawsConfig, RegionConfig
from storage.records import FunctionCall, Message, Outcome, Task, ToolCall
from storage.store import Store
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure
from synth.engines.budget import BudgetSpent
from synth.rollouts import episode
from synth.rollouts.draws import RETRIES, Draws, rollout, rollout_parts, rollout_until, rollouts_frame
from synth.rollouts.episode import Conversing, Trace, trace
from synth.tasks.verify import Verdict
from synth.worlds import WORLDS
from tests.synth.retail_tasks import task_of

RetailWorld = WORLDS["retail"]

ORDER, REFUSAL, CLOSE = task_of("order_status", 1), task_of("special_service", 1), task_of("close_order", 1)
TASKS = (ORDER, REFUSAL, CLOSE)


@dataclass
class Scripted:
    """Asks `speak` for every answer: (request, answers that the conversation has already) -> text, or the calls to make."""

    speak: Callable[[ChatRequest, int], str | Sequence[tuple[str, str]]]
    name: str = "scripted"
    finish: str = ""
    asked: list[ChatRequest] = field(default_factory=list)

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += requests
        return [self._answer(request) for request in requests]

    def _answer(self, request: ChatRequest) -> ChatAnswer:
        made = sum(message.role == "assistant" for message in request.messages)
        said = self.speak(request, made)
        if isinstance(said, str):
            return ChatAnswer(Message(role="assistant", content=said), self.finish or "stop", (made, 7), (-0.5, -0.25), 10, 2, "v1")
        calls = tuple(
            ToolCall(id=f"call_{made}_{place}", function=FunctionCall(name=name, arguments=arguments))
            for place, (name, arguments) in enumerate(said)
        )
        return ChatAnswer(Message(role="assistant", tool_calls=calls), self.finish or "tool_calls", (made,), (-1.0,), 10, 1, "v1")


def task_asked(request: ChatRequest) -> Task:
    return next(task for task in TASKS if task.messages == request.messages[: len(task.messages)])


def expert(request: ChatRequest, made: int) -> str | list[tuple[str, str]]:
    plan = task_asked(request).plan
    if made >= len(plan.calls):
        return plan.answer
    return [(plan.calls[made].tool, json.dumps(plan.calls[made].arguments))]


def endless(request: ChatRequest, made: int) -> list[tuple[str, str]]:
    return [("list_orders", '{"user": "u01"}')]


def broken(*_: object) -> None:
    raise RuntimeError("the shop burned down")


def only(speak: Callable, task: Task = ORDER, **options: object):
    (record,) = rollout(Scripted(speak), [task], 1, **options)
    return record


# ---- outcomes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.intent)
def test_an_expert_succeeds_with_a_world_of_its_own_each_time(task):
    found = rollout(Scripted(expert), [task], 3)
    assert [(record.outcome, record.reward) for record in found] == [(Outcome.SUCCESS, 1.0)] * 3
    assert found[0].messages[: len(task.messages)] == task.messages
    assert found[0].messages[-1].content == task.plan.answer


@pytest.mark.parametrize(
    "speak",
    [
        lambda *_: "",
        lambda *_: "It is on its way.",
        lambda request, made: [("no_such_tool", "{}")] if made == 0 else "Done.",
        lambda request, made: [("get_order", "not json")] if made == 0 else "Done.",
    ],
    ids=["silence", "guess", "unknown tool", "malformed arguments"],
)
def test_what_a_policy_does_wrong_is_its_failure(speak):
    record = only(speak)
    assert (record.outcome, record.reward) == (Outcome.POLICY_FAILURE, 0.0)
    assert not all(record.checks.values())


def test_a_call_that_cannot_be_read_is_no_answer():
    record = only(lambda *_: "<tool_call>\n{oops\n</tool_call>", REFUSAL)
    assert (record.outcome, record.reward, record.checks) == (Outcome.POLICY_FAILURE, 0.0, {"well_formed": False})


def test_endless_calls_end_in_time():
    record = only(endless, max_turns=4)
    assert (record.outcome, record.reward, record.checks) == (Outcome.POLICY_FAILURE, 0.0, {"ended_in_time": False})
    assert len(record.turns) == 4


def test_the_last_turn_may_still_answer():
    turns = len(CLOSE.plan.calls) + 1
    assert only(expert, CLOSE, max_turns=turns).outcome is Outcome.SUCCESS
    assert only(expert, CLOSE, max_turns=turns - 1).checks == {"ended_in_time": False}


def test_an_answer_that_was_cut_off_is_a_failure_even_if_it_is_right():
    (record,) = rollout(Scripted(expert, finish="length"), [REFUSAL], 1)
    assert (record.outcome, record.checks) == (Outcome.POLICY_FAILURE, {"ended_in_time": False})


@pytest.mark.parametrize("method", ["call", "changes"])
def test_a_world_that_breaks_is_our_fault_and_has_no_reward(monkeypatch, method):
    monkeypatch.setattr(RetailWorld, method, broken)
    spoilt, untouched = rollout(Scripted(expert), [CLOSE, REFUSAL], 1)
    assert (spoilt.outcome, spoilt.reward) == (Outcome.INFRA_FAILURE, None)
    assert untouched.outcome is Outcome.SUCCESS, "a conversation that made no call never met the world"


def stumbling_world(monkeypatch, times: int) -> None:
    """The shop breaks so many times when it is called."""
    call, left = RetailWorld.call, [times]

    def calling(self: RetailWorld, *arguments: object):
        if left[0] > 0:
            left[0] -= 1
            broken()
        return call(self, *arguments)

    monkeypatch.setattr(RetailWorld, "call", calling)


def test_what_a_world_spoilt_is_begun_again(monkeypatch):
    stumbling_world(monkeypatch, RETRIES)
    record = only(expert, CLOSE)
    assert (record.outcome, record.attempts, record.failure) == (Outcome.SUCCESS, 1 + RETRIES, "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"world": "bakery@1a2b3c4d"}, "world bakery@1a2b3c4d: LookupError: it is gone"),
        ({"tools": ("no_such_tool", *CLOSE.tools)}, "world retail: LookupError: it has no tool no_such_tool any more"),
    ],
    ids=["world", "tool"],
)
def test_a_task_whose_world_is_gone_is_nobody_s_failure_and_not_begun_again(tmp_path, change, why):
    """Given such a task among others, then its rollouts say so, no engine is asked for them, and the others are held as ever."""
    store, engine, gone = Store(tmp_path / "store"), Scripted(expert), CLOSE.model_copy(update=change | {"id": "task-gone"})
    store.commit(rollout_parts(store, engine, [gone, ORDER], 2, purpose="probe", policy_id="p"))
    found = store.query("SELECT task_id, outcome, reward, attempts, failure FROM rollouts ORDER BY task_id = 'task-gone', draw").rows()
    assert found == [(ORDER.id, "success", 1.0, 1, None)] * 2 + [("task-gone", "infra_failure", None, 1, why)] * 2
    assert {task_asked(request).id for request in engine.asked} == {ORDER.id}


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        (broken, "RuntimeError: the shop burned down"),
        (lambda *_: None, "the verifier said None"),
        (lambda *_: Verdict("yes", 1.0, {}), "success='yes'"),
        (lambda *_: Verdict(True, math.nan, {}), "reward=nan"),
        (lambda *_: Verdict(True, 3.0, {}), "reward=3.0"),
    ],
    ids=["raises", "nothing", "no yes or no", "no number", "beyond 1"],
)
def test_a_verifier_that_breaks_or_talks_nonsense_is_not_held_against_the_policy(monkeypatch, judge, why):
    monkeypatch.setattr(episode, "judge", judge)
    record = only(expert)
    assert (record.outcome, record.reward, record.checks) == (Outcome.JUDGE_FAILURE, None, {})
    assert why in record.failure


def stumbling(*times: int) -> Callable[[ChatRequest, int], str | list[tuple[str, str]]]:
    """An expert that fails so many times before it goes on after a task's first call, by the order of TASKS."""
    left = {task.id: count for task, count in zip(TASKS, times, strict=True)}

    def speak(request: ChatRequest, made: int) -> str | list[tuple[str, str]]:
        task = task_asked(request)
        if made == min(1, len(task.plan.calls)) and left[task.id] > 0:
            left[task.id] -= 1
            raise EngineFailure("server gone")
        return expert(request, made)

    return speak


def test_what_an_engine_spoilt_is_begun_again_and_no_other():
    """Given retries for one failure but not for two, then the first succeeds in the end, and the second has no reward."""
    engine = Scripted(stumbling(1, 0, 2))
    found = rollout(engine, TASKS, 1, retries=1)
    assert [(one.outcome, one.reward, one.attempts) for one in found] == [
        (Outcome.SUCCESS, 1.0, 2),
        (Outcome.SUCCESS, 1.0, 1),
        (Outcome.INFRA_FAILURE, None, 2),
    ]
    assert found[2].failure == "EngineFailure: server gone" and found[0].failure == ""
    assert len({(request.seed, request.messages[:1]) for request in engine.asked}) == 3, "a rollout begun again is the same draw"


def test_an_engine_that_is_gone_leaves_nothing(tmp_path):
    """Given an engine that leaves half of the rollouts unanswered, then nothing is kept, and they are made when it is back."""
    store, tasks = Store(tmp_path / "store"), [REFUSAL, ORDER]
    with pytest.raises(EngineFailure, match="left 1 of 2 rollouts without an answer: EngineFailure: server gone"):
        rollout_parts(store, Scripted(stumbling(9, 0, 0)), tasks, 1, purpose="probe", policy_id="p")
    (part,) = rollout_parts(store, Scripted(expert), tasks, 1, purpose="probe", policy_id="p")
    store.commit([part])
    assert store.query("SELECT outcome, attempts FROM rollouts").rows() == [("success", 1)] * 2


def test_tasks_whose_worlds_are_gone_do_not_hide_an_engine_that_is_gone():
    """Given two tasks that no engine is asked for, and one that the engine leaves unanswered, then all that it was asked went wrong."""
    gone = [task.model_copy(update={"world": "bakery@1a2b3c4d", "id": f"task-gone-{task.intent}"}) for task in (REFUSAL, CLOSE)]
    with pytest.raises(EngineFailure, match="left 1 of 1 rollouts without an answer"):
        rollout(Scripted(stumbling(9, 0, 0)), [ORDER, *gone], 1)


def test_a_spent_budget_ends_it():
    def spent(*_: object) -> str:
        raise BudgetSpent("all tokens are spent")

    with pytest.raises(BudgetSpent):
        rollout(Scripted(spent), TASKS, 1)


def test_any_other_error_of_an_engine_is_a_bug_and_is_raised():
    with pytest.raises(RuntimeError, match="burned down"):
        only(broken)


def test_an_engine_that_holds_whole_conversations_is_given_them():
    """Given such an engine, when a conversation outgrows its window, then it ended not in time; when it fails, it is spoilt."""

    @dataclass
    class Holding(Scripted):
        window: int = 99
        fails: bool = False

        def converse(self, requests, reply):
            for index, request in enumerate(requests):
                messages, more = list(request.messages), ()
                while more is not None and len(messages) < self.window:
                    if self.fails:
                        raise EngineFailure("out of memory")
                    answer = self._answer(ChatRequest((*messages, *more)))
                    messages += [*more, answer.message]
                    more = reply(index, answer)

    assert isinstance(Holding(expert), Conversing)
    assert not isinstance(Scripted(expert), Conversing)
    assert isinstance(Scripted(expert), Engine)
    outcomes = {
        name: [record.outcome for record in rollout(engine, [REFUSAL, CLOSE], 1)]
        for name, engine in {"wide": Holding(expert), "narrow": Holding(expert, window=4)}.items()
    }
    assert outcomes == {"wide": [Outcome.SUCCESS, Outcome.SUCCESS], "narrow": [Outcome.SUCCESS, Outcome.POLICY_FAILURE]}
    with pytest.raises(EngineFailure, match="2 of 2 rollouts"):
        rollout(Holding(expert, fails=True), [REFUSAL, CLOSE], 1)


# ---- draws ---------------------------------------------------------------------------------------------------------------


def test_draws_come_in_the_order_of_tasks_and_then_of_draws_with_ids_of_their_own():
    found = rollout(Scripted(expert), TASKS, 3, policy_id="p", batch_tasks=2)
    assert [(record.task_id, record.draw) for record in found] == [(task.id, draw) for task in TASKS for draw in range(3)]
    assert len({record.id for record in found}) == 9
    assert {(record.policy_id, record.teacher) for record in found} == {("p", "scripted")}


def test_conversations_are_held_side_by_side():
    """Given an engine that answers nobody before all have asked, then all are answered."""
    together = threading.Barrier(2 * len(TASKS))

    def waiting(request: ChatRequest, made: int) -> str | list[tuple[str, str]]:
        if made == 0:
            together.wait(timeout=30)
        return expert(request, made)

    found = rollout(Scripted(waiting), TASKS, 2)
    assert {one.outcome for one in found} == {Outcome.SUCCESS}


def test_a_draw_has_the_same_seed_whatever_is_drawn_beside_it():
    def seeds(tasks: Sequence[Task], k: int, **options: int) -> dict[str, set[int]]:
        engine = Scripted(lambda *_: "")
        rollout(engine, tasks, k, **options)
        return {task.id: {request.seed for request in engine.asked if task_asked(request) == task} for task in tasks}

    many = seeds(TASKS, 4)
    assert len(set().union(*many.values())) == 12
    assert seeds([ORDER], 4)[ORDER.id] == many[ORDER.id] == seeds([ORDER], 2)[ORDER.id] | seeds([ORDER], 2, first_draw=2)[ORDER.id]
    assert seeds([ORDER], 4, seed=1)[ORDER.id].isdisjoint(many[ORDER.id])


def test_a_record_keeps_what_was_sampled_and_what_it_cost():
    record = only(expert, CLOSE)
    calls = len(CLOSE.plan.calls)
    assert [turn.token_ids for turn in record.turns] == [*((made,) for made in range(calls)), (calls, 7)]
    assert [turn.logprobs for turn in record.turns] == [(-1.0,)] * calls + [(-0.5, -0.25)]
    assert (record.cost.prompt_tokens, record.cost.completion_tokens) == (10 * (calls + 1), calls + 2)


@dataclass
class Rendering(Scripted):
    """Tells tokens as a server does that renders the whole conversation anew every time: a letter a token. It drifts where what it has
    written is rendered otherwise than it was sampled."""

    drifts_at: int = 99

    def _answer(self, request: ChatRequest) -> ChatAnswer:
        answer = super()._answer(request)
        prompt, made = "", 0
        for message in request.messages:
            own = message.role == "assistant"
            written = self._written(message)
            prompt += written.replace("e", "E") if own and made == self.drifts_at else written
            made += own
        sampled = tuple(map(ord, self._written(answer.message)))
        return replace(answer, token_ids=sampled, logprobs=(-0.5,) * len(sampled), prompt_ids=tuple(map(ord, prompt)))

    def _written(self, message: Message) -> str:
        calls = "".join(f"<{call.function.name} {call.function.arguments}>" for call in message.tool_calls)
        return f"{message.content or ''}{calls};"


def test_a_trace_is_what_was_sampled_with_what_stood_between():
    record = next(iter(rollout(Rendering(expert), [CLOSE], 1)))
    found = trace(record.turns)
    assert all(turn.is_exact for turn in record.turns)
    assert "".join(map(chr, found.prompt_ids)) == "".join(f"{message.content};" for message in CLOSE.messages)
    own = "".join(chr(token) for token, is_own in zip(found.ids, found.mask, strict=True) if is_own)
    assert own == "".join(Rendering(expert)._written(message) for message in record.messages if message.role == "assistant")
    assert [value for value, is_own in zip(found.logprobs, found.mask, strict=True) if is_own] == [-0.5] * len(own)


@pytest.mark.parametrize("drifts_at", [0, 1])
def test_a_turn_that_later_prompts_render_otherwise_is_not_trained_on(drifts_at):
    """The trace is then as the later prompts have it, and all turns but that one are in the mask."""
    (record,) = rollout(Rendering(expert, drifts_at=drifts_at), [CLOSE], 1)
    assert record.outcome is Outcome.SUCCESS and len(record.turns) > 2
    assert [turn.is_exact for turn in record.turns] == [index != drifts_at for index in range(len(record.turns))]
    found = trace(record.turns)
    own = "".join(chr(token) for token, is_own in zip(found.ids, found.mask, strict=True) if is_own)
    written = [Rendering(expert)._written(message) for message in record.messages if message.role == "assistant"]
    assert own == "".join(text for index, text in enumerate(written) if index != drifts_at)
    assert written[drifts_at].replace("e", "E") in "".join(map(chr, (*found.prompt_ids, *found.ids)))


def test_an_engine_that_tells_no_tokens_has_no_trace():
    assert trace(only(expert, CLOSE).turns) == Trace()


def test_every_call_of_a_message_is_made_and_answered_in_order():
    both = [("get_order", json.dumps({"order": order})) for order in ("o01", "o02")]
    record = only(lambda request, made: both if made == 0 else "")
    results = [message for message in record.messages if message.role == "tool"]
    assert [message.tool_call_id for message in results] == ["call_0_0", "call_0_1"]
    assert [json.loads(message.content)["order"] for message in results] == ["o01", "o02"]


# ---- as many draws as it takes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unanswered", "is_gone"), [({3}, False), ({2, 3}, True)])
def test_one_draw_that_is_never_answered_is_not_the_engine_s_end(unanswered: set[int], is_gone: bool):
    """Given a look at two draws, of which the engine leaves one unanswered however often it is asked, then the others are kept."""
    spoilt = {episode.request_seed(0, ORDER.id, draw) for draw in unanswered}

    def speak(request: ChatRequest, made: int) -> str | list[tuple[str, str]]:
        if request.seed in spoilt:
            raise EngineFailure("timed out")
        return expert(request, made)

    draws = Draws((2, 4), lambda successes, rated, left: False, {})
    if is_gone:
        with pytest.raises(EngineFailure, match="left 2 of 2 rollouts without an answer"):
            rollout_until(Scripted(speak), [ORDER], draws)
    else:
        found = rollout_until(Scripted(speak), [ORDER], draws)
        assert [one.outcome for one in found] == [Outcome.SUCCESS] * 3 + [Outcome.INFRA_FAILURE]


def test_a_task_is_drawn_until_its_draws_settle_it():
    """Given draws that are settled by one success, or after so many as there may be, then no more are made."""
    lucky = {ORDER.id: {0}, REFUSAL.id: set(), CLOSE.id: {3}}
    seeds: dict[str, list[int]] = {task.id: [] for task in TASKS}

    def speak(request: ChatRequest, made: int) -> str | list[tuple[str, str]]:
        task = task_asked(request)
        if request.seed not in seeds[task.id]:
            seeds[task.id].append(request.seed)
        return expert(request, made) if seeds[task.id].index(request.seed) in lucky[task.id] else ""

    draws = Draws((2, 4, 6), lambda successes, rated, left: successes > 0, {})
    found = rollout_until(Scripted(speak), TASKS, draws, in_flight=1)
    made = [(task.id, draw) for task, count in zip(TASKS, (2, 6, 4), strict=True) for draw in range(count)]
    assert [(one.task_id, one.draw) for one in found] == made


def test_a_task_that_an_engine_never_answers_does_not_end_the_draws_of_the_others():
    """Given a provider's filter that refuses one task's words, then that task is given up, and not drawn alone until all seems refused."""

    def speak(request: ChatRequest, made: int) -> str | list[tuple[str, str]]:
        if task_asked(request) == ORDER:
            raise EngineFailure("refused by a filter")
        return expert(request, made)

    rule = DrawsConfig(k=2, most=4)
    draws = Draws(rule.looks, lambda *counts: rule.is_settled(*counts, RegionConfig()), {})
    found = rollout_until(Scripted(speak), TASKS, draws)
    assert [one.outcome for one in found] == [Outcome.INFRA_FAILURE] * 2 + [Outcome.SUCCESS] * 4


# ---- parts ---------------------------------------------------------------------------------------------------------------


def test_finished_parts_are_found_again_and_none_is_made_twice(tmp_path):
    """Given a store with two of three parts on disk, one of them committed, when all are asked for, then only the third is made."""
    store, engine = Store(tmp_path / "store"), Scripted(expert)
    options = {"purpose": "probe", "policy_id": "p", "part_tasks": 1}
    first, second = rollout_parts(store, engine, TASKS[:2], 2, **options)
    store.commit([first])
    engine.asked.clear()

    parts = rollout_parts(store, engine, TASKS, 2, **options)
    assert parts[:2] == [first, second]
    assert {task_asked(request).id for request in engine.asked} == {CLOSE.id}

    engine.asked.clear()
    assert rollout_parts(store, engine, TASKS, 2, **options) == parts
    assert engine.asked == []
    store.commit(parts)
    rows = store.query("SELECT task_id, draw, outcome FROM rollouts ORDER BY ALL")
    assert rows.rows() == sorted((task.id, draw, "success") for task in TASKS for draw in range(2))


@pytest.mark.parametrize(
    "change",
    [{"draws": 3}, {"purpose": "eval_in"}, {"policy_id": "q"}, {"temperature": 0.5}, {"seed": 1}, {"max_tokens": 9}],
)
def test_whatever_changes_the_rollouts_makes_other_parts(tmp_path, change):
    store, engine = Store(tmp_path / "store"), Scripted(expert)
    options = {"draws": 1, "purpose": "probe", "policy_id": "p"}
    (first,) = rollout_parts(store, engine, [REFUSAL], **options)
    (other,) = rollout_parts(store, engine, [REFUSAL], **(options | change))
    assert first.part_id != other.part_id


def test_a_draw_that_comes_out_otherwise_is_another_rollout(tmp_path, monkeypatch):
    """Given a draw that the verifier spoilt, when it is made again for more draws, then the store tells both, and equal ones once."""
    store, options = Store(tmp_path / "store"), {"purpose": "probe", "policy_id": "p"}
    with monkeypatch.context() as patched:
        patched.setattr(episode, "judge", broken)
        store.commit(rollout_parts(store, Scripted(expert), [ORDER], 1, **options))
    for count in (2, 3):
        store.commit(rollout_parts(store, Scripted(expert), [ORDER], count, **options))
    found = store.query("SELECT draw, outcome FROM rollouts ORDER BY ALL").rows()
    assert found == [(0, "judge_failure"), (0, "success"), (1, "success"), (2, "success")]


def test_progress_counts_rollouts_to_the_end(tmp_path):
    seen: list[tuple[str, int, int]] = []
    rollout_parts(
        Store(tmp_path / "store"),
        Scripted(expert),
        TASKS,
        2,
        purpose="probe",
        policy_id="p",
        part_tasks=2,
        progress=lambda *step: seen.append(step),
    )
    assert seen == [("probe", 4, 6), ("probe", 6, 6)]


def test_a_spoilt_rollout_is_stored_without_a_reward(monkeypatch):
    monkeypatch.setattr(RetailWorld, "call", broken)
    frame = rollouts_frame(rollout(Scripted(expert), [CLOSE, REFUSAL], 1), "probe")
    assert frame["reward"].to_list() == [None, 1.0]
    assert frame["outcome"].to_list() == ["infra_failure", "success"]
    assert frame["failure"].to_list() == ["world retail: RuntimeError: the shop burned down", None]
    assert frame["attempts"].to_list() == [1 + RETRIES, 1]
