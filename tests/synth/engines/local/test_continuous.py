"""Conversations that join and leave at any time: each has the tokens that it would have alone, whatever is beside it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from synth.engines.base import ChatAnswer, ChatRequest
from synth.engines.local.continuous import Answered, ContinuousBatch
from synth.engines.local.hf import HFEngine
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

TOLERANCE = 2e-5
"""Of a log-probability: two fp32 forward passes that add in another order."""
TURNS = (3, 1, 4, 2)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer) -> Qwen3ForCausalLM:
    return untrained_model(tokenizer)


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "transformers"])
def engine(request, model, tokenizer) -> HFEngine:
    return HFEngine(model, tokenizer, is_fused=request.param)


def alone(engine: HFEngine, requests: Sequence[ChatRequest]) -> Mapping[int, list[ChatAnswer]]:
    """The answers of each conversation, by the deterministic form."""
    replies = ToolReplies(*TURNS)
    engine.converse(requests, replies)
    return replies.answers


def play(batch: ContinuousBatch, requests: Sequence[ChatRequest], rng: random.Random) -> dict[int, list[Answered]]:
    """Plays all conversations; joins, replies and the leaving of others come at random."""
    replies, done = ToolReplies(*TURNS), dict[int, list[Answered]]()
    to_join, to_reply = list(enumerate(requests)), list[Answered]()
    has_other = False
    others = [ChatRequest(one.messages, temperature=1.0, max_tokens=9, seed=7000 + place) for place, one in enumerate(requests)]
    while to_join or to_reply or has_other or not batch.is_idle:
        while to_join and batch.free and rng.random() < 0.7:
            place, request = to_join.pop(rng.randrange(len(to_join)))
            assert batch.join(str(place), request)
        if batch.free and others and not has_other and rng.random() < 0.5:
            has_other = batch.join("other", others.pop())
        for answered in batch.step():
            if answered.key != "other":
                done.setdefault(int(answered.key), []).append(answered)
                to_reply.append(answered)
        if has_other and (rng.random() < 0.4 or batch.is_idle):
            batch.leave("other")
            has_other = False
        for answered in [one for one in to_reply if rng.random() < 0.4]:
            to_reply.remove(answered)
            more = replies(int(answered.key), answered.answer)
            if more is None:
                batch.leave(answered.key)
            else:
                batch.reply(answered.key, answered.answer, more)
    return done


def assert_same(found: Sequence[ChatAnswer], expected: Sequence[ChatAnswer]) -> None:
    assert [(one.prompt_ids, one.token_ids, one.finish_reason, one.message) for one in found] == [
        (one.prompt_ids, one.token_ids, one.finish_reason, one.message) for one in expected
    ]
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)


@pytest.mark.parametrize("slots", [3, 8])
def test_a_conversation_has_the_tokens_that_it_would_have_alone(engine, slots):
    """Given conversations that join and are replied to in random order, beside others that leave in the middle of an answer."""
    requests = requests_of(temperature=1.0, copies=2)
    expected = alone(engine, requests)
    assert len({len(answers) for answers in expected.values()}) > 2
    batch = ContinuousBatch(engine, slots)
    found = play(batch, requests, random.Random(slots))
    assert batch.free == batch.slots == slots
    assert sorted(found) == sorted(expected)
    for place, answers in expected.items():
        assert_same([one.answer for one in found[place]], answers)
        assert all(one.versions == (0,) * len(one.answer.token_ids) for one in found[place])


def test_a_conversation_handed_over_goes_on_as_it_would_have_at_its_first_worker(engine):
    """Given each of its answers as the last one of the first worker, then the other one gives the very next tokens, call ids included."""
    request = requests_of(temperature=1.0)[2]
    answers = (alone(engine, [request, request, request]))[2]
    assert len(answers) == 4
    for played in (1, 2, 3):
        replies = ToolReplies(4)
        after = [(answer, replies(2, answer) or ()) for answer in answers[:played]]
        batch = ContinuousBatch(engine, 2)
        assert batch.join("noise", requests_of(temperature=1.0)[1])
        batch.step()
        assert batch.join("moved", request, after)
        found: list[ChatAnswer] = []
        while len(found) < len(answers) - played:
            for one in batch.step():
                if one.key == "moved":
                    found.append(one.answer)
                    more = replies(2, one.answer)
                    assert more is None or batch.reply("moved", one.answer, more)
        assert_same(found, answers[played:])


def changed(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    other = Qwen3ForCausalLM(model.config).eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other.model.layers[0].mlp.up_proj.weight.mul_(0.5)
        other.model.norm.weight.mul_(0.8)
    return other


@pytest.mark.parametrize("is_fused", [True, False])
def test_new_weights_sample_the_next_token_and_earlier_ones_keep_theirs(model, tokenizer, is_fused):
    """Given weights that change in the middle of some answers, between answers of others and before the rest, then the log-probability of
    every token is that of the weights which its version names, in one forward pass over the whole conversation."""
    old, new = model, changed(model)
    trained = Qwen3ForCausalLM(model.config).eval()
    trained.load_state_dict(old.state_dict())
    engine, replies = HFEngine(trained, tokenizer, is_fused=is_fused), ToolReplies(3, 2)
    batch, requests = ContinuousBatch(engine, 5), requests_of(temperature=1.0)
    done: dict[str, list[Answered]] = {str(place): [] for place in range(4)}
    for place in range(3):
        batch.join(str(place), requests[place + 1])
    waiting: list[Answered] = []
    for step in range(60):
        if step == 10:
            assert waiting, "one waits for its tools"
            trained.load_state_dict(new.state_dict())
            batch.use_weights(3)
            batch.join("3", requests[4])
        for answered in batch.step():
            done[answered.key].append(answered)
            waiting.append(answered)
        for answered in list(waiting) if step == 0 or step > 11 else []:
            waiting.remove(answered)
            more = replies(int(answered.key), answered.answer)
            if more is None or not batch.reply(answered.key, answered.answer, more):
                batch.leave(answered.key)
    assert not waiting
    assert batch.free == batch.slots
    seen: set[tuple[int, ...]] = set()
    for key, answered in done.items():
        versions = [version for one in answered for version in one.versions]
        trace = trace_of([one.answer for one in answered])
        by = {0: forward_logprobs(old, trace, 1.0), 3: forward_logprobs(new, trace, 1.0)}
        places = [place for place, is_own in enumerate(trace.mask) if is_own]
        assert len(versions) == len(places)
        assert versions == sorted(versions), key
        expected = [by[version][place] for version, place in zip(versions, places, strict=True)]
        assert [trace.logprobs[place] for place in places] == pytest.approx(expected, abs=TOLERANCE)
        others = [by[3 - version][place] for version, place in zip(versions, places, strict=True)]
        assert others != pytest.approx(expected, abs=0.01)
        seen |= {tuple(sorted(set(one.versions))) for one in answered}
    assert seen >= {(0,), (0, 3), (3,)}


# ---- the window ------------------------------------------------------------------------------------------------------------------


def test_a_prompt_that_fills_the_window_takes_no_slot(engine):
    batch = ContinuousBatch(engine, 1)
    for over in (0, 9):
        assert not batch.join("long", ChatRequest(words(engine, WINDOW + over)))
    assert batch.free == 1
    assert batch.is_idle
    assert batch.join("short", requests_of(temperature=1.0)[0])


def test_a_conversation_that_outgrows_the_window_leaves_its_slot_to_another(engine):
    """Given an answer that the window cuts, and one whose reply fills it: also where another worker had begun it."""
    batch = ContinuousBatch(engine, 2)
    request, reply = ChatRequest(words(engine, WINDOW - 20), max_tokens=8, temperature=1.0), ToolReplies(9)
    batch.join("cut", ChatRequest(words(engine, WINDOW - 3), max_tokens=8))
    batch.join("filled", request)
    answers: dict[str, ChatAnswer] = {}
    while len(answers) < 2:
        answers |= {one.key: one.answer for one in batch.step()}
    assert (answers["cut"].finish_reason, answers["cut"].completion_tokens) == ("length", 3)
    more = reply(0, answers["filled"]) or []
    assert not batch.reply("filled", answers["filled"], more)
    assert batch.free == 1
    assert not batch.join("moved", request, [(answers["filled"], more)])
    batch.leave("cut")
    assert batch.free == 2


def test_the_memory_of_the_caches_bounds_the_slots(model, tokenizer):
    assert ContinuousBatch(HFEngine(model, tokenizer, batch_rows=2), 6).slots == 2


def test_slots_that_are_free_or_wait_are_not_read_with_the_others(model, tokenizer, monkeypatch) -> None:
    engine = HFEngine(model, tokenizer, is_fused=False)
    batch, fed, feed = ContinuousBatch(engine, 4), list[list[int]](), engine.decoder.feed
    monkeypatch.setattr(engine.decoder, "feed", lambda slots, chunks: (fed.append(list(slots)), feed(slots, chunks))[1])
    short, *rest = requests_of(temperature=1.0)[:4]
    batch.join("short", replace(short, max_tokens=1))
    for key, request in zip("abc", rest, strict=True):
        batch.join(key, replace(request, max_tokens=9))
    batch.step()
    batch.leave("b")
    batch.leave("c")
    batch.join("d", rest[1])
    batch.use_weights(1)
    batch.step()
    assert fed == [[0, 1, 2, 3], [1, 2]]
