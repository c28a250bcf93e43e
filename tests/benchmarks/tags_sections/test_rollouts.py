"""What is counted of traces, and what TRL's environment makes of our shop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.tags_sections.rollouts import Watched, WatchedConversing, logprob_error
from benchmarks.tags_sections.trl_shop import TRLRollouts, messages, row, shop_of
from storage.records import Message, Rollout
from synth.engines.base import ChatAnswer, ChatRequest
from synth.engines.local.hf import HFEngine
from synth.rollouts.draws import rollout
from synth.tasks.solver import expert_messages
from synth.worlds import WORLDS
from tests.synth.retail_tasks import task_of
from tests.train.tiny_policies import expert_conversations, retail_tasks, small_policy


class Rendering:
    """A server that renders what was said before as it likes: one token a message, and one other from `drifts_at` messages on."""

    name = "rendering"

    def __init__(self, drifts_at: int) -> None:
        self._drifts_at = drifts_at

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [self._answer(len(request.messages)) for request in requests]

    def _answer(self, said: int) -> ChatAnswer:
        first = 8 if said >= self._drifts_at else 7
        return ChatAnswer(Message(role="assistant", content="Hm."), "stop", token_ids=(1,), prompt_ids=(first, *[1] * (said - 1)))


@pytest.mark.parametrize(("drifts_at", "mismatches"), [(99, 0), (5, 1), (3, 1), (1, 0)])
def test_a_prompt_that_is_rendered_otherwise_is_counted_once(drifts_at: int, mismatches: int) -> None:
    """Given a conversation of three answers among others: first turns have nothing to begin with."""
    watched = Watched(Rendering(drifts_at))
    said = Message(role="user", content="Well?")
    for length in (1, 3, 5):
        watched.chat([ChatRequest((said,) * length, seed=1)])
    watched.chat([ChatRequest((said,), seed=2)])
    assert (watched.turns, watched.mismatches) == (2, mismatches)


@pytest.fixture(scope="module")
def rolled_out() -> tuple[HFEngine, list[Rollout]]:
    """A policy that was taught nothing: its text is noise, its tokens and log-probabilities are as real as any."""
    tasks = retail_tasks("order_status", "special_service")
    engine = HFEngine(*small_policy(expert_conversations(tasks)), policy_version="raw")
    watched = WatchedConversing(engine)
    return engine, rollout(watched, tasks, 2, max_tokens=12)


def test_traces_have_the_log_probabilities_of_a_forward_pass(rolled_out: tuple[HFEngine, list[Rollout]]) -> None:
    engine, rollouts = rolled_out
    assert 0 < logprob_error(engine, rollouts) < 1e-4


def test_a_log_probability_of_another_policy_is_found(rolled_out: tuple[HFEngine, list[Rollout]]) -> None:
    engine, (first, *_) = rolled_out
    turn = first.turns[0]
    off = turn.model_copy(update={"logprobs": (turn.logprobs[0] - 0.5, *turn.logprobs[1:])})
    assert logprob_error(engine, [first.model_copy(update={"turns": (off, *first.turns[1:])})]) == pytest.approx(0.5, abs=1e-3)


def completion_of(said: Sequence[Message]) -> list[dict[str, object]]:
    """Our messages as TRL's."""
    found: list[dict[str, object]] = []
    for message in said:
        calls = [
            {"type": "function", "function": {"name": call.function.name, "arguments": json.loads(call.function.arguments)}}
            for call in message.tool_calls
        ]
        told: dict[str, object] = {"role": message.role, "content": message.content or ""}
        found.append(told | ({"tool_calls": calls} if calls else {}))
    return found


def test_the_shop_of_trl_answers_and_rewards_as_ours() -> None:
    task = task_of("close_order", 1)
    said = expert_messages(WORLDS[task.world], task)[len(task.messages) :]
    shop = shop_of([task])()
    shop.reset(task=task.id, prompt=[])
    answers = [getattr(shop, call.tool)(**call.arguments) for call in task.plan.calls]
    assert answers == [message.content for message in said if message.role == "tool"]
    completion = completion_of(said)
    assert [(message.role, message.content, message.tool_call_id) for message in messages(completion)] == [
        (message.role, message.content, message.tool_call_id) for message in said
    ]
    assert shop._reward(completion, has_ended=True) == 1.0
    assert shop._reward(completion, has_ended=False) == 0.0
    assert shop._reward(completion[:-1], has_ended=True) == 0.0
    shop.reset(task=task.id, prompt=[])
    assert shop._reward(completion[-1:], has_ended=True) == 0.0


def test_trl_rolls_out_every_draw_within_the_limits_of_a_turn(tmp_path: Path) -> None:
    """Given a policy that was taught nothing, then each draw of each task has a verdict, its prompt is ours, no turn outgrows its tokens,
    and no log-probability was computed beside."""
    tasks = retail_tasks("order_status", "special_service")
    for part in small_policy(expert_conversations(tasks)):
        part.save_pretrained(tmp_path / "model")
    trl = TRLRollouts(tmp_path / "model", tasks, draws=2, max_turns=1, max_tokens=7, seed=0, scratch=tmp_path / "scratch")
    assert trl(tasks) == [0.0] * 4
    made = trl._trainer._generate_and_score_completions([row(task) for task in tasks for _ in range(2)])
    assert made["completion_mask"].sum(dim=1).max() == 7
    prompts = [ids[mask.bool()].tolist() for ids, mask in zip(made["prompt_ids"], made["prompt_mask"], strict=True)]
    engine = HFEngine(tmp_path / "model")
    assert prompts == [list(engine.prompt_ids(task.messages, ())) for task in tasks for _ in range(2)]
    assert not [name for name in made if "logps" in name]


def test_the_tools_of_trls_shop_are_declared_as_ours() -> None:
    from transformers.utils import get_json_schema

    task = task_of("close_order", 1)
    shop = shop_of([task])
    assert {name for name in vars(shop) if not name.startswith("_")} == {*task.tools, "tasks"}
    declared = get_json_schema(shop().search_products)["function"]["parameters"]
    assert declared["required"] == ["category"]
    assert declared["properties"]["limit"]["type"] == "integer"
