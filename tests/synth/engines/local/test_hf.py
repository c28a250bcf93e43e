"""The engine `hf:`: one cache per conversation, with the tokens and log-probabilities of the plain model."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from transformers import Qwen3ForCausalLM

from storage.errors import BadInput
from storage.records import Message, Outcome
from synth.engines.base import ChatAnswer, ChatRequest, Engine
from synth.engines.local.hf import HFEngine
from synth.rollouts.draws import rollout
from synth.rollouts.episode import Conversing, Trace
from tests.synth.engines.local.untrained_talks import (
    WINDOW,
    ToolReplies,
    build_tokenizer,
    forward_logprobs,
    requests_of,
    trace_of,
    untrained_model,
    words,
)
from tests.train.tiny_policies import retail_tasks
from train import tiny

TOLERANCE = 2e-5
"""Of a log-probability: two fp32 forward passes that add in another order."""


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer) -> Qwen3ForCausalLM:
    return untrained_model(tokenizer)


@pytest.fixture(scope="module")
def engine(model, tokenizer) -> HFEngine:
    return HFEngine(model, tokenizer, policy_version="p1")


@pytest.fixture(scope="module")
def plain(model, tokenizer) -> HFEngine:
    return HFEngine(model, tokenizer, policy_version="p1", is_fused=False)


def converse(engine: HFEngine, requests: Sequence[ChatRequest], *turns: int) -> tuple[list[Trace], ToolReplies]:
    talk = ToolReplies(*turns)
    engine.converse(requests, talk)
    return [trace_of(talk.answers.get(index, ())) for index in range(len(requests))], talk


def sampled(trace: Trace, values: Sequence[float]) -> list[float]:
    return [value for value, is_own in zip(values, trace.mask, strict=True) if is_own]


# ---- tokens and log-probabilities ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_fused_path_is_taken_where_it_fits_and_agrees_with_the_plain_one(engine, plain):
    assert type(engine.decoder) is not type(plain.decoder)
    requests = requests_of(temperature=0.0, copies=2)
    fused, _ = converse(engine, requests, 3, 1, 4)
    slow, _ = converse(plain, requests, 3, 1, 4)
    assert len({len(trace.prompt_ids) for trace in fused}) > 2
    assert len({len(trace.ids) for trace in fused}) > 3
    for one, other in zip(fused, slow, strict=True):
        assert (one.prompt_ids, one.ids, one.mask) == (other.prompt_ids, other.ids, other.mask)
        assert one.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)


@pytest.mark.parametrize("path", ["engine", "plain"])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_logprobs_are_those_of_one_forward_pass_over_the_whole_trace(request, model, path, temperature):
    traces, _ = converse(request.getfixturevalue(path), requests_of(temperature=temperature, copies=2), 3, 2, 4)
    for one in traces:
        assert sampled(one, one.logprobs) == pytest.approx(sampled(one, forward_logprobs(model, one, temperature)), abs=TOLERANCE)
        assert {value for value, is_own in zip(one.logprobs, one.mask, strict=True) if not is_own} <= {0.0}


def test_greedy_logprobs_are_at_temperature_one(engine, model):
    (trace,), _ = converse(engine, requests_of(temperature=0.0)[:1], 1)
    assert trace.logprobs == pytest.approx(forward_logprobs(model, trace, 1.0), abs=TOLERANCE)


def test_changed_weights_are_seen_by_the_next_conversation(model, tokenizer):
    """Given an engine over a model in training, when the weights change, then so do the log-probabilities."""
    changing = Qwen3ForCausalLM(model.config).eval()
    changing.load_state_dict(model.state_dict())
    engine, requests = HFEngine(changing, tokenizer), requests_of(temperature=1.0)
    before, _ = converse(engine, requests, 1)
    with torch.no_grad():
        changing.model.layers[0].mlp.up_proj.weight.mul_(0.5)
        changing.model.norm.weight.mul_(1.5)
    after, _ = converse(engine, requests, 1)
    assert before != after
    assert after[0].logprobs == pytest.approx(forward_logprobs(changing, after[0], 1.0), abs=TOLERANCE)


# ---- conversations -------------------------------------------------------------------------------------------------------


def test_a_trace_keeps_what_was_sampled_and_puts_the_observations_between(engine, tokenizer):
    requests = requests_of(temperature=1.0)
    traces, talk = converse(engine, requests, 3, 2, 4)
    for index, (request, found) in enumerate(zip(requests, traces, strict=True)):
        answers = talk.answers[index]
        assert len(answers) == (3, 2, 4)[index % 3]
        assert sampled(found, found.ids) == [token for answer in answers for token in answer.token_ids]
        assert sampled(found, found.logprobs) == [value for answer in answers for value in answer.logprobs]
        assert sum(found.mask) == sum(answer.completion_tokens for answer in answers)
        place = len(found.prompt_ids)
        assert found.prompt_ids == engine.prompt_ids(request.messages)
        for answer in answers:
            assert answer.prompt_tokens >= place
            between = (found.prompt_ids + found.ids)[place : answer.prompt_tokens]
            assert not between or "<tool_response>" in tokenizer.decode(between)
            place = answer.prompt_tokens + answer.completion_tokens
        assert place == len(found.prompt_ids) + len(found.ids)
        assert {answer.policy_version for answer in answers} == {"p1"}


def test_the_same_batch_gives_the_same_tokens_and_another_seed_gives_others(engine):
    requests = requests_of(temperature=1.0, copies=3)
    first, _ = converse(engine, requests, 2, 3)
    again, _ = converse(engine, requests, 2, 3)
    assert first == again
    others, _ = converse(engine, [replace(request, seed=request.seed + 1) for request in requests], 2, 3)
    assert all(one.ids != other.ids for one, other in zip(first, others, strict=True))


def test_batches_side_by_side_answer_in_the_order_of_the_requests(engine, model, tokenizer):
    requests = requests_of(temperature=1.0, copies=2)
    wide, _ = converse(engine, requests, 2)
    narrow, talk = converse(HFEngine(model, tokenizer, batch_rows=3), requests, 2)
    assert sorted(talk.answers) == list(range(len(requests)))
    assert [trace.ids for trace in narrow] == [trace.ids for trace in wide]


def test_a_conversation_continued_later_goes_on_as_it_would_have_at_once(engine):
    """Given greedy answers that were cut off, when they are asked for again with more tokens, then they begin the same."""
    short = engine.chat([replace(request, max_tokens=4) for request in requests_of(temperature=1.0)])
    long = engine.chat([replace(request, max_tokens=9) for request in requests_of(temperature=1.0)])
    assert [answer.token_ids for answer in short] == [answer.token_ids[:4] for answer in long]
    assert {answer.finish_reason for answer in short} == {"length"}


def test_draws_follow_the_model_s_distribution(engine, model):
    """Given one prompt and many seeds, then the likeliest first token comes about as often as the model says."""
    (opening, *_), draws = requests_of(temperature=1.0), 400
    answers = engine.chat([replace(opening, seed=seed, max_tokens=1) for seed in range(draws)])
    with torch.inference_mode():
        chances = torch.softmax(model(torch.tensor([engine.prompt_ids(opening.messages)])).logits[0, -1], dim=-1)
    token = int(chances.argmax())
    chance, seen = chances[token].item(), sum(answer.token_ids == (token,) for answer in answers) / draws
    assert 0.02 < chance < 0.98
    assert abs(seen - chance) < 4 * (chance * (1 - chance) / draws) ** 0.5


def test_slow_tools_of_a_batch_run_side_by_side_and_change_no_token(engine):
    """Given two conversations that answer at the same time, and tools that were slow once, then both wait for the other's tools to begin,
    which they could not in turn."""
    request = requests_of(temperature=1.0)[0]
    both, plain, slow = threading.Barrier(2), ToolReplies(3), ToolReplies(3)
    engine.converse([request, request], plain)

    def reply(index: int, answer: ChatAnswer) -> Sequence[Message] | None:
        if slow.answers.get(index):
            both.wait(60)
        time.sleep(0.02)
        return slow(index, answer)

    engine.converse([request, request], reply)
    assert [[one.token_ids for one in slow.answers[index]] for index in (0, 1)] == [
        [one.token_ids for one in plain.answers[index]] for index in (0, 1)
    ]
    assert len(slow.answers[0]) == 3


def test_it_chats_and_holds_conversations(engine):
    assert isinstance(engine, Engine)
    assert isinstance(engine, Conversing)
    assert engine.name == "hf:p1"


# ---- limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [0, 1, 50])
def test_a_prompt_that_leaves_no_room_is_answered_with_nothing(engine, over):
    full, short = engine.chat([ChatRequest(words(engine, WINDOW + over)), ChatRequest(words(engine, WINDOW // 2), max_tokens=3)])
    assert (full.message.content, full.message.tool_calls, full.finish_reason) == ("", (), "length")
    assert short.completion_tokens > 0


def test_a_conversation_that_outgrows_the_window_ends(engine):
    traces, talk = converse(engine, [ChatRequest(words(engine, WINDOW - 20), max_tokens=8)], 9)
    assert len(talk.answers[0]) == 1
    (filling,) = engine.chat([ChatRequest(words(engine, WINDOW - 3), max_tokens=8)])
    assert (filling.finish_reason, filling.completion_tokens) == ("length", 3)
    assert len(traces[0].ids) == sum(traces[0].mask) == 8


@pytest.mark.parametrize("path", ["engine", "plain"])
def test_a_prompt_that_leaves_no_room_costs_no_other_conversation(request, path):
    """Given a batch with prompts that outgrow the window, then they get no answer, and the others those that they get by themselves."""
    engine, fine = request.getfixturevalue(path), requests_of(temperature=1.0)
    alone, _ = converse(engine, fine, 2)
    long = ChatRequest(words(engine, WINDOW + 5))
    traces, talk = converse(engine, [long, long, *fine, long], 2)
    assert [trace.ids for trace in traces] == [[], [], *(trace.ids for trace in alone), []]
    assert sorted(talk.answers) == list(range(2, len(fine) + 2))
    assert converse(engine, [long], 2)[0][0].ids == []


def test_an_overlong_task_is_the_policy_s_failure_and_its_batch_is_judged(engine):
    task = retail_tasks("order_status")[0]
    overlong = task.model_copy(update={"id": "overlong", "messages": words(engine, WINDOW)})
    long, short = rollout(engine, [overlong, task], 1, max_tokens=4)
    assert (long.outcome, long.reward, long.checks, long.turns) == (Outcome.POLICY_FAILURE, 0.0, {"ended_in_time": False}, ())
    assert short.turns


def test_a_folder_without_a_model_is_bad_input(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(BadInput, match=r"no Hugging Face model folder .*config\.json"):
            HFEngine(path)


def test_a_model_folder_answers_as_the_model_in_memory(model, tokenizer, engine, tmp_path):
    tiny.save_policy(model, tokenizer, tmp_path / "policy-7")
    stored = HFEngine(tmp_path / "policy-7")
    requests = requests_of(temperature=1.0)
    assert stored.name == f"hf:{tmp_path / 'policy-7'}"
    assert [answer.token_ids for answer in stored.chat(requests)] == [answer.token_ids for answer in engine.chat(requests)]
    assert {answer.policy_version for answer in stored.chat(requests[:2])} == {"policy-7"}


def test_a_model_that_a_trainer_changes_meanwhile_is_sampled_as_it_is_then(model, tokenizer):
    """Given an engine of a model in training, when the model gets adapters and gradient checkpointing, then traces are those of a forward
    pass over the whole conversation; without caches they could not be."""
    import copy

    from train.models.adapters import add_adapters
    from train.spec import LoRASettings

    trained = copy.deepcopy(model)
    engine = HFEngine(trained, tokenizer)
    converse(engine, requests_of(temperature=1.0), 1)
    adapted = add_adapters(trained, LoRASettings(rank=4, alpha=64), seed=0)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.5)
    adapted.gradient_checkpointing_enable()
    adapted.train()
    traces, _ = converse(engine, requests_of(temperature=1.0), 2)
    assert adapted.training, "as the trainer left it"
    for one in traces:
        assert sampled(one, forward_logprobs(adapted.eval(), one, 1.0)) == pytest.approx(sampled(one, one.logprobs), abs=1e-3)
