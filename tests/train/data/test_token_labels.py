"""Which of an assistant's turns are learned: all, or those that did not err; the conversation stays whole either way."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import trl
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from storage.errors import BadInput
from storage.records import FunctionCall, Message, ToolCall
from synth.worlds import WORLDS
from tests.train.tiny_policies import digest, expert_conversations, retail_tasks, small_policy
from train.data.token_labels import IGNORED, LEFT_OUT, _plain, every_turn, learned_tokens, marking_template, turns_without_errors
from train.device import device_arguments, linear_schedule
from train.sft.sft import train_sft
from train.spec import SFTSettings
from train.tiny import END, render

RetailWorld = WORLDS["retail"]

CONVERSATIONS = expert_conversations(retail_tasks("close_order", "buy_pick", "close_and_buy", "price_of_two", "special_service"))
SETTINGS = SFTSettings(max_steps=4, batch_size=2, learning_rate=1e-2, warmup_steps=0)
LONGEST = 4_000


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
    whole, less = (learned_tokens(tokenizer, ERRED, LEFT_OUT[name], LONGEST) for name in ("nothing", "erred"))
    assert whole["input_ids"] == less["input_ids"] == tokenizer(render(ERRED), add_special_tokens=False)["input_ids"]
    texts = [tokenizer.decode([label for label in row["labels"] if label != IGNORED]) for row in (whole, less)]
    assert "o99" in texts[0] and "o99" not in texts[1]
    assert [text.count(END) for text in texts] == [3, 2]
    learned = [(token, label) for token, label in zip(less["input_ids"], less["labels"], strict=True) if label != IGNORED]
    assert all(token == label for token, label in learned)


@pytest.mark.slow
def test_what_is_learned_by_default_is_what_trl_takes_from_the_template(tmp_path: Path) -> None:
    """Given plain messages and TRL's own assistant mask, then the weights after training are ours to the bit."""
    model, tokenizer = small_policy(CONVERSATIONS)
    rows = [{"messages": [_plain(message) for message in messages]} for messages in CONVERSATIONS]
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
        ({}, [ERRED, [USER, *ERRED[1:] * 40]], r"conversation 2 of the split's 2: it has \d+ tokens, the policy's window 256"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_before_the_first_step(changes, conversations, why, tmp_path: Path) -> None:
    model, tokenizer = small_policy([*CONVERSATIONS, ERRED])
    before = digest(model)
    with pytest.raises(BadInput, match=why):
        train_sft(model, tokenizer, conversations, SETTINGS.model_copy(update=changes), seed=0, scratch=tmp_path)
    assert digest(model) == before


def test_a_chat_model_learns_by_trl_s_version_of_its_template_and_reads_its_tools() -> None:
    """Given Qwen3's own template, which marks nothing, then what follows on the prompt that it is asked with is what it learns."""
    tokenizer = chat_tokenizer("qwen3")
    template, tools = marking_template(tokenizer), [tool.to_openai() for tool in RetailWorld.tools]
    for rule, learned in (("nothing", 3), ("erred", 2)):
        row = learned_tokens(tokenizer, ERRED, LEFT_OUT[rule], LONGEST, tools=tools, template=template)
        runs = [list(run) for own, run in groupby(row["labels"], key=lambda label: label != IGNORED) if own]
        assert len(runs) == learned
        assert tokenizer.decode(runs[-1]).strip().endswith(END)
    asked = tokenizer.apply_chat_template([_plain(USER)], tools=tools, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert row["input_ids"][: len(asked)] == asked
    assert len(learned_tokens(tokenizer, ERRED, every_turn, LONGEST, template=template)["input_ids"]) < len(row["input_ids"])


def test_a_template_that_nobody_knows_to_mark_is_named() -> None:
    tokenizer = chat_tokenizer("qwen3")
    tokenizer.chat_template += " "
    with pytest.raises(BadInput, match="does not mark what the assistant writes"):
        marking_template(tokenizer)


def chat_tokenizer(name: str) -> Any:
    """One that knows the words of these tests, with the template of a chat model."""
    _, tokenizer = small_policy([*CONVERSATIONS, ERRED])
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()
    return tokenizer


def test_a_template_that_marks_no_turns_is_named() -> None:
    _, tokenizer = small_policy(CONVERSATIONS)
    tokenizer.chat_template = tokenizer.chat_template.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    with pytest.raises(BadInput, match=r"marks 0 turns of an assistant that has \d"):
        learned_tokens(tokenizer, CONVERSATIONS[0], every_turn, LONGEST)
