"""Which of an assistant's turns are learned: all, or those that did not err; the conversation stays whole either way."""

from __future__ import annotations

import contextlib
import json
from itertools import groupby
from pathlib import Path

import pytest
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from storage.errors import BadInput
from storage.records import FunctionCall, Message, ToolCall
from synth.engines.local.chat_format import ChatFormat
from synth.worlds import WORLDS
from tests.synth.engines.local.chat_tokenizers import MARKS, chat_tokenizer
from tests.train.tiny_policies import digest, expert_conversations, retail_tasks, small_policy
from train.data.token_labels import IGNORED, LEFT_OUT, Unlearnable, every_turn, learned_tokens, turns_without_errors
from train.device import device_arguments, linear_schedule
from train.models.label_head import project_labels_alone
from train.sft.sft import train_sft
from train.spec import SFTSettings
from train.tiny import END, render

RetailWorld = WORLDS["retail"]

CONVERSATIONS = expert_conversations(retail_tasks("close_order", "buy_pick", "close_and_buy", "price_of_two", "special_service"))
SETTINGS = SFTSettings(max_steps=4, batch_size=2, learning_rate=1e-2, warmup_steps=0)
LONGEST = 12_000
LONGER = (
    r"of \d+ conversations these cannot be trained on: 1 longer than 256 tokens \(the policy's window, or pack_tokens\); they are left out"
)
RETAIL_TEXT = json.dumps([tool.to_openai() for tool in RetailWorld.tools])


def call(number: int, name: str = "get_order", arguments: str = '{"order": "o17"}') -> ToolCall:
    return ToolCall(id=f"call_{number}", function=FunctionCall(name=name, arguments=arguments))


def tool_result(number: int, content: str) -> Message:
    return Message(role="tool", tool_call_id=f"call_{number}", content=content)


USER = Message(role="user", content="close o17")
WRONG = Message(role="assistant", tool_calls=(call(1, arguments='{"order": "o99"}'),))
RIGHT = Message(role="assistant", tool_calls=(call(2), call(3, "cancel_order")))
ANSWER = Message(role="assistant", content="o17 is cancelled.")
ERRED = [
    USER,
    WRONG,
    tool_result(1, '{"error": "no order o99"}'),
    RIGHT,
    tool_result(2, '{"order":"o17"}'),
    tool_result(3, '{"done":"o17"}'),
    ANSWER,
]

ONE_CALL = [*ERRED[:3], Message(role="assistant", tool_calls=(call(2),)), ERRED[4], ANSWER]


@pytest.mark.parametrize(
    ("messages", "learned"),
    [
        (ERRED, [False, True, True]),
        ([USER, RIGHT, tool_result(2, '{"order":"o17"}'), tool_result(3, '{"error": "not now"}'), ANSWER], [False, True]),
        ([USER, RIGHT, tool_result(2, '{"error": "not now"}'), tool_result(3, '{"done":"o17"}'), ANSWER], [False, True]),
        ([USER, ANSWER], [True]),
        ([USER, Message(role="assistant", content="<tool_call>\n{broken")], [False]),
        ([USER, WRONG], [True]),
    ],
)
def test_a_turn_erred_if_one_of_its_calls_did_or_if_it_is_no_call(messages: list[Message], learned: list[bool]) -> None:
    assert turns_without_errors(messages) == learned
    assert every_turn(messages) == [True] * len(learned)


def test_a_turn_that_erred_is_read_and_not_learned() -> None:
    _, tokenizer = small_policy([ERRED])
    whole, less = (learned_tokens(ChatFormat(tokenizer), ERRED, LEFT_OUT[name], LONGEST) for name in ("nothing", "erred"))
    assert whole["input_ids"] == less["input_ids"] == tokenizer(render(ERRED), add_special_tokens=False)["input_ids"]
    texts = [tokenizer.decode([label for label in row["labels"] if label != IGNORED]) for row in (whole, less)]
    assert "o99" in texts[0] and "o99" not in texts[1]
    assert [text.count(END) for text in texts] == [3, 2]
    learned = [(token, label) for token, label in zip(less["input_ids"], less["labels"], strict=True) if label != IGNORED]
    assert all(token == label for token, label in learned)


@pytest.mark.slow
def test_what_is_learned_by_default_is_what_trl_takes_from_the_template(tmp_path: Path) -> None:
    """Given plain messages and TRL's own assistant mask, then the weights after training are ours to the bit."""
    project_labels_alone()
    model, tokenizer = small_policy(CONVERSATIONS)
    rows = [{"messages": [message.to_openai() for message in messages]} for messages in CONVERSATIONS]
    arguments = SFTConfig(
        output_dir=str(tmp_path),
        max_steps=SETTINGS.max_steps,
        per_device_train_batch_size=SETTINGS.batch_size,
        weight_decay=SETTINGS.weight_decay,
        adam_beta2=SETTINGS.adam_beta2,
        max_grad_norm=SETTINGS.max_grad_norm,
        assistant_only_loss=True,
        max_length=None,
        train_sampling_strategy="group_by_length",
        seed=0,
        data_seed=0,
        **linear_schedule(SETTINGS.learning_rate, 0, SETTINGS.final_rate_share, SETTINGS.max_steps),
        **device_arguments(),
    )
    SFTTrainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer).train()

    ours, _ = small_policy(CONVERSATIONS)
    train_sft(ours, tokenizer, CONVERSATIONS, SETTINGS, seed=0, scratch=tmp_path)
    assert digest(ours) == digest(model)


@pytest.mark.slow
def test_leaving_turns_out_changes_what_is_learned(tmp_path: Path) -> None:
    weights = set()
    for leave_out in ("nothing", "erred"):
        model, tokenizer = small_policy([ERRED])
        settings = SETTINGS.model_copy(update={"leave_out": leave_out, "batch_size": 1})
        train_sft(model, tokenizer, [ERRED], settings, seed=0, scratch=tmp_path)
        weights.add(digest(model))
    assert len(weights) == 2


@pytest.mark.slow
def test_micro_batches_give_the_losses_of_the_whole_batch(tmp_path: Path) -> None:
    losses = []
    for changes in ({}, {"micro_batch_size": 1}, {"micro_batch_size": 2, "gradient_checkpointing": True}):
        model, tokenizer = small_policy(CONVERSATIONS)
        settings = SETTINGS.model_copy(update={"batch_size": 4} | changes)
        losses.append([row["loss"] for row in train_sft(model, tokenizer, CONVERSATIONS, settings, seed=0, scratch=tmp_path)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert losses[2] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "conversations", "why"),
    [
        ({"leave_out": "erred"}, [ERRED[:3]], "not one turn of 1 conversations is learned"),
        ({"batch_size": 4, "micro_batch_size": 3}, CONVERSATIONS, "micro_batch_size 3 does not divide the 4 rows"),
        (
            {},
            [[USER, *([*ERRED[1:], USER] * 40)[:-1]]],
            r"cannot be trained on: 1 longer than 256 tokens \(the policy's window, or pack_tokens\); take",
        ),
    ],
)
def test_what_cannot_be_trained_on_is_refused_before_the_first_step(changes, conversations, why, tmp_path: Path) -> None:
    model, tokenizer = small_policy([*CONVERSATIONS, ERRED])
    before = digest(model)
    with pytest.raises(BadInput, match=why):
        train_sft(model, tokenizer, conversations, SETTINGS.model_copy(update=changes), seed=0, scratch=tmp_path)
    assert digest(model) == before


@pytest.mark.parametrize("name", MARKS)
def test_a_chat_model_learns_its_turns_on_the_prompt_that_it_is_asked_with(name: str) -> None:
    """Given a model's own template, then what follows on the prompt of an engine is what it learns, and the tools are in the prompt."""
    chat_format = ChatFormat(chat_tokenizer(name, [RETAIL_TEXT]))
    for rule, learned in (("nothing", 3), ("erred", 2)):
        row = learned_tokens(chat_format, ONE_CALL, LEFT_OUT[rule], LONGEST, tools=RetailWorld.tools)
        runs = [list(run) for own, run in groupby(row["labels"], key=lambda label: label != IGNORED) if own]
        assert len(runs) == learned
        assert {run[-1] in chat_format.ends for run in runs} == {True}
        assert all(token == label for token, label in zip(row["input_ids"], row["labels"], strict=True) if label != IGNORED)
    asked = chat_format.prompt_ids([USER], RetailWorld.tools)
    assert row["input_ids"][: len(asked)] == asked
    assert len(learned_tokens(chat_format, ONE_CALL, every_turn, LONGEST)["input_ids"]) < len(row["input_ids"]), "tools are long"


def test_the_tiny_policy_learns_its_conversation_as_its_template_marks_it() -> None:
    """Given the template's own marks ({% generation %}) in one rendering of the whole, then ids and labels are these."""
    _, tokenizer = small_policy([*CONVERSATIONS, ERRED])
    chat_format = ChatFormat(tokenizer)
    for messages in [*CONVERSATIONS, ERRED]:
        whole = tokenizer.apply_chat_template(
            [message.to_openai() for message in messages], return_dict=True, return_assistant_tokens_mask=True
        )
        row = learned_tokens(chat_format, messages, every_turn, LONGEST)
        assert row["input_ids"] == whole["input_ids"]
        assert [label != IGNORED for label in row["labels"]] == [bool(mark) for mark in whole["assistant_masks"]]


def test_tokens_after_the_last_answer_are_left_out() -> None:
    _, tokenizer = small_policy([ERRED])
    row = learned_tokens(ChatFormat(tokenizer), ERRED[:-1], every_turn, LONGEST)
    assert tokenizer.decode(row["input_ids"]) == render(ERRED[:4])


@pytest.mark.parametrize("name", ["llama3_1", "gptoss"])
def test_several_calls_in_one_message_are_refused_where_a_template_has_one(name: str) -> None:
    with pytest.raises(Unlearnable, match=r"^with several calls in one message, which the model's chat template cannot write$"):
        learned_tokens(ChatFormat(chat_tokenizer(name, [RETAIL_TEXT])), ERRED, every_turn, LONGEST)


def test_conversations_that_cannot_be_trained_on_are_counted_and_left_out(tmp_path: Path) -> None:
    """Given one conversation that is longer than the window, then a warning counts it, and the others train as they do without it."""
    long = [USER, *([*ERRED[1:], USER] * 40)[:-1]]
    weights = []
    for given in ([ERRED, *CONVERSATIONS], [ERRED, long, *CONVERSATIONS]):
        model, tokenizer = small_policy([*CONVERSATIONS, ERRED])
        expected = contextlib.nullcontext() if long not in given else pytest.warns(UserWarning, match=LONGER)
        with expected:
            train_sft(model, tokenizer, given, SETTINGS, seed=0, scratch=tmp_path)
        weights.append(digest(model))
    assert weights[0] == weights[1]
