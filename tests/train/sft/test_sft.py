"""Supervised fine-tuning learns what the assistant wrote, token for token, and stops where it is told to."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest
import torch

import train.sft.sft
from storage.errors import BadInput, HeadraceError
from storage.records import FunctionCall, Message, Outcome, ToolCall
from synth.engines.local.hf import HFEngine
from synth.rollouts.draws import rollout
from synth.rollouts.episode import Episode, play, trace
from tests.train.tiny_policies import digest, expert_conversations, retail_tasks, small_policy
from train.sft.sft import train_sft
from train.spec import SFTSettings
from train.tiny import END, render

TASKS = retail_tasks("order_status", "close_order", "special_service", "buy_unnamed")
CONVERSATIONS = expert_conversations(TASKS)
IGNORED = -100
LONG = SFTSettings(max_steps=90, batch_size=4, learning_rate=2e-2, warmup_steps=5, weight_decay=0.0)
SHORT = SFTSettings(max_steps=3, batch_size=2, learning_rate=1e-2, warmup_steps=0)


@pytest.fixture(scope="module")
def memorised(tmp_path_factory):
    """A policy that has seen four conversations ninety times, and its metrics."""
    model, tokenizer = small_policy(CONVERSATIONS)
    metrics = train_sft(model, tokenizer, CONVERSATIONS, LONG, seed=0, scratch=tmp_path_factory.mktemp("sft"))
    return model.eval(), tokenizer, metrics


def trained(tmp_path: Path, settings: SFTSettings, *, seed: int = 0) -> tuple[str, list[dict[str, float]]]:
    """Weights and metrics of a short training of the same fresh policy."""
    model, tokenizer = small_policy(CONVERSATIONS)
    metrics = train_sft(model, tokenizer, CONVERSATIONS, settings, seed=seed, scratch=tmp_path)
    return digest(model), metrics


def test_the_loss_falls_step_by_step_to_nearly_nothing(memorised):
    *_, metrics = memorised
    assert [row["step"] for row in metrics] == list(range(1, LONG.max_steps + 1))
    assert metrics[-1]["loss"] < 0.02 * metrics[0]["loss"]
    rates = [row["learning_rate"] for row in metrics]
    assert max(rates) == pytest.approx(LONG.learning_rate)
    assert rates[-1] < 0.1 * LONG.learning_rate


def test_what_was_memorised_is_generated_greedily_and_succeeds(memorised):
    model, tokenizer, _ = memorised
    found = rollout(HFEngine(model, tokenizer), TASKS, 1, temperature=0.0)
    assert [record.outcome for record in found] == [Outcome.SUCCESS] * len(TASKS)
    assert [render(record.messages) for record in found] == [render(messages) for messages in CONVERSATIONS]


def test_a_policy_is_shown_the_tokens_that_it_was_trained_on(memorised):
    """Given a memorised conversation, when it is held over the engine's cache, then its tokens are those of the rendered text."""
    model, tokenizer, _ = memorised
    episodes = [Episode(task, 0, 8) for task in TASKS]
    play(HFEngine(model, tokenizer), episodes, temperature=0.0, seed=0)
    for episode, messages in zip(episodes, CONVERSATIONS, strict=True):
        found = trace(episode.turns)
        assert found.prompt_ids + found.ids == tokenizer(render(messages), add_special_tokens=False)["input_ids"]
        own = [token for token, is_own in zip(found.ids, found.mask, strict=True) if is_own]
        assert own.count(tokenizer.eos_token_id) == sum(message.role == "assistant" for message in messages)


def test_an_untrained_policy_generates_none_of_it():
    found = rollout(HFEngine(*small_policy(CONVERSATIONS)), TASKS, 1, temperature=0.0)
    assert {record.outcome for record in found} == {Outcome.POLICY_FAILURE}


def test_the_tokens_trained_on_are_the_conversation_and_no_other_tool_s_keys(tmp_path, monkeypatch):
    """Given calls with different arguments, when TRL has made tokens of them, then none has got another's keys as null."""

    class Watched(train.sft.sft.OrderedTrainer):
        def train(self, **options):
            seen.extend(self.train_dataset.to_list())
            return super().train(**options)

    seen: list[dict] = []
    monkeypatch.setattr(train.sft.sft, "OrderedTrainer", Watched)
    nested = json.dumps({"order": "o17", "wish": {"colour": "red", "sizes": [1, 2]}, "note": None})
    call = ToolCall(id="call_0", function=FunctionCall(name="escalate", arguments=nested))
    odd = [Message(role="user", content="please o17"), Message(role="assistant", tool_calls=(call,))]
    given = [*expert_conversations(retail_tasks("close_order", "buy_pick", "close_and_buy", "exchange_item")), odd]
    model, tokenizer = small_policy(given)
    train_sft(model, tokenizer, given, SHORT, seed=0, scratch=tmp_path)

    texts = [tokenizer.decode(row["input_ids"]) for row in seen]
    assert texts == [render(messages) for messages in given]
    assert sum(text.count("null") for text in texts) == 1, "the one that was there"
    for row, messages in zip(seen, given, strict=True):
        learned = [label for label in row["labels"] if label != IGNORED]
        assert tokenizer.decode(learned).count(END) == sum(message.role == "assistant" for message in messages)
        assert "<tool_response>" not in tokenizer.decode(learned)


@pytest.mark.slow
def test_the_seed_decides_the_weights(tmp_path):
    first, again, other = (trained(tmp_path, SHORT, seed=seed)[0] for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert first != digest(small_policy(CONVERSATIONS)[0])


def test_a_plateau_ends_the_training_after_its_second_window(tmp_path):
    idle = SHORT.model_copy(update={"max_steps": 20, "learning_rate": 1e-9, "batch_size": 4, "plateau_window": 3})
    assert len(trained(tmp_path, idle)[1]) == 6


@pytest.mark.slow
def test_without_a_plateau_or_without_the_rule_every_step_is_made(tmp_path):
    learning = SHORT.model_copy(update={"max_steps": 9, "batch_size": 4, "plateau_window": 3})
    idle = learning.model_copy(update={"learning_rate": 1e-9, "plateau_window": 0})
    assert len(trained(tmp_path, learning)[1]) == 9
    assert len(trained(tmp_path, idle)[1]) == 9


def test_a_training_that_diverges_says_so_instead_of_leaving_a_policy_of_no_numbers(tmp_path):
    with pytest.raises(HeadraceError, match=r"diverged.* after step [12]; lower `learning_rate` \(now 1e\+30\)"):
        trained(tmp_path, SHORT.model_copy(update={"learning_rate": 1e30}))


def test_a_policy_of_no_numbers_is_not_trained_on(tmp_path):
    model, tokenizer = small_policy(CONVERSATIONS)
    with torch.no_grad():
        next(model.parameters())[0, 0] = torch.nan
    with pytest.raises(HeadraceError, match="input policy"):
        train_sft(model, tokenizer, CONVERSATIONS, SHORT, seed=0, scratch=tmp_path)


# ---- settings of larger models -------------------------------------------------------------------------------------------


def test_packed_conversations_are_learned_as_separate_ones_are(tmp_path):
    """Given all conversations in one pack, then a step has the loss of a batch of them; given a pack without the lengths, it has not."""
    whole = SHORT.model_copy(update={"batch_size": len(CONVERSATIONS)})
    _, separate = trained(tmp_path / "separate", whole)
    _, packed = trained(tmp_path / "packed", whole.model_copy(update={"pack_tokens": 1024, "batch_size": 1}))
    assert [row["loss"] for row in packed] == pytest.approx([row["loss"] for row in separate], rel=1e-4)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.sft.sft, "pack", lambda rows, most: [{name: [*chain(*(row[name] for row in rows))] for name in rows[0]}])
        _, joined = trained(tmp_path / "joined", whole.model_copy(update={"pack_tokens": 1024, "batch_size": 1}))
    assert abs(joined[0]["loss"] - separate[0]["loss"]) > 1e-3 * separate[0]["loss"], "the control: attention across conversations shows"


def test_conversations_longer_than_a_pack_are_left_out_and_counted(tmp_path):
    model, tokenizer = small_policy(CONVERSATIONS)
    notes: list[str] = []
    train_sft(model, tokenizer, CONVERSATIONS, SHORT.model_copy(update={"pack_tokens": 40}), seed=0, scratch=tmp_path, note=notes.append)
    assert "longer than 40 tokens" in notes[0]
    with pytest.raises(BadInput, match="longer than 4 tokens"):
        trained(tmp_path / "none", SHORT.model_copy(update={"pack_tokens": 4}))


def test_recomputed_activations_give_the_same_weights(tmp_path):
    assert trained(tmp_path / "again", SHORT.model_copy(update={"gradient_checkpointing": True})) == trained(tmp_path / "kept", SHORT)


def test_bf16_gives_nearly_the_loss_of_fp32(tmp_path):
    (exact, full), (rounded, half) = (trained(tmp_path / name, SHORT.model_copy(update={"precision": name})) for name in ("fp32", "bf16"))
    assert exact != rounded
    assert [row["loss"] for row in half] == pytest.approx([row["loss"] for row in full], rel=2e-2)
