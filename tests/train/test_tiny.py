"""The tiny policy: large tokens that lose nothing, a template that marks what is learned, weights that its seed decides."""

from __future__ import annotations

import copy
import json
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from storage.records import Message
from synth.text.slot_kinds import Identifier
from synth.worlds import WORLDS
from tests.train.tiny_policies import SMALL, digest, expert_conversations, retail_tasks, small_policy
from train.tiny import END, UNKNOWN, build_model, build_tokenizer, render, save_policy, unread_words, vocabulary_texts

RetailWorld = WORLDS["retail"]

CONVERSATIONS = expert_conversations(retail_tasks(each=2))
IDENTIFIERS = [name for kind in RetailWorld.kinds.values() if isinstance(kind, Identifier) for name in kind.choices]
WORDS = ["cheapest", "lamp", "order", "cancelled", "pending", "u07", "o17", "p95", "60"]


@pytest.fixture(scope="module")
def policy():
    return small_policy(CONVERSATIONS)


@pytest.fixture(scope="module")
def tokenizer(policy):
    return policy[1]


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def decode(tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False)


def openai(messages: list[Message]) -> list[dict]:
    return [message.to_openai() for message in messages]


def template(tokenizer, messages: list[Message], *, speak: bool = False) -> str:
    return tokenizer.apply_chat_template(openai(messages), tokenize=False, add_generation_prompt=speak)


def two_calls_at_once() -> list[Message]:
    """A conversation in which an assistant message has two calls, and so two results follow it."""
    first, second = [expert for expert in CONVERSATIONS if sum(bool(message.tool_calls) for message in expert) == 1][:2]
    both = Message(role="assistant", tool_calls=first[-3].tool_calls + second[-3].tool_calls)
    return [*first[:-3], both, first[-2], second[-2], first[-1]]


# ---- tokens --------------------------------------------------------------------------------------------------------------


def test_every_expert_conversation_comes_back_from_its_tokens(tokenizer):
    for messages in CONVERSATIONS:
        text = render(messages)
        ids = encode(tokenizer, text)
        assert decode(tokenizer, ids) == text
        assert tokenizer.convert_tokens_to_ids(UNKNOWN) not in ids


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), ends=st.sampled_from(["", "."]))
def test_known_words_are_a_token_each_in_any_order(tokenizer, words, ends):
    text = " ".join(words)
    assert len(encode(tokenizer, text)) == len(words)
    assert decode(tokenizer, encode(tokenizer, text + ends)) == text + ends


@settings(max_examples=60, deadline=None)
@given(word=st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789_", min_size=1, max_size=12))
def test_unknown_words_fall_back_to_pieces_that_decode(tokenizer, word):
    assert decode(tokenizer, encode(tokenizer, f"buy {word} now")) == f"buy {word} now"


def test_words_without_a_token_are_named_and_of_another_tokenizer_none(tokenizer):
    known = "close o17, buy the cheapest lamp for u07: 60?"
    assert unread_words(tokenizer, known) == []
    assert unread_words(tokenizer, f"{known} Bananas, o99999 or zebras!") == ["Bananas", "o99999", "or", "zebras"]
    other = copy.deepcopy(tokenizer)
    other.chat_template = "{{ messages }}"
    assert unread_words(other, "zebras") == []


def test_a_character_that_no_text_had_reads_as_unknown(tokenizer):
    assert decode(tokenizer, encode(tokenizer, "buy ¶ now")) == f"buy{UNKNOWN}now"


def test_an_identifier_is_one_token_and_the_same_in_a_sentence_and_in_json(tokenizer):
    assert len(IDENTIFIERS) > 100
    for name in IDENTIFIERS:
        (token,) = encode(tokenizer, name)
        assert token in encode(tokenizer, f"please cancel {name} now")
        assert token in encode(tokenizer, f'<tool_call>\n{{"name": "get_order", "arguments": {{"order": "{name}"}}}}\n</tool_call>')
        assert token in encode(tokenizer, f'{{"order":"{name}","status":"pending"}}')


@pytest.mark.parametrize(
    "glue",
    [
        END,
        f"{END}\n<|im_start|>assistant\n",
        "\n<|im_start|>user\n<tool_response>\n",
        f"\n</tool_response>{END}\n<|im_start|>assistant\n",
        '<tool_call>\n{"name": "',
        '"}}\n</tool_call>',
    ],
)
def test_the_glue_of_hermes_is_single_tokens(tokenizer, glue):
    assert len(encode(tokenizer, glue)) == 1


def program(code: str) -> str:
    return f'<tool_call>\n{{"name": "run_python", "arguments": {json.dumps({"code": code})}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("values = [", "]\nprint(sum(values))"),
        ("import statistics\nvalues = [", "]\nprint(round(statistics.mean(values), 2))"),
        ("from datetime import date\ndays = [", "]\nprint((max(days) - min(days)).days)"),
    ],
)
def test_of_a_program_each_value_is_a_token_and_what_stands_before_and_after_them_another(head: str, tail: str):
    taught, other = program(f"{head}12, 30, 45{tail}"), program(f"{head}30, 12{tail}")
    tokenizer = build_tokenizer([taught])

    opened, name, before, *values, after, closed = tokenizer.convert_ids_to_tokens(encode(tokenizer, taught))

    assert values == ["▁12", ", ", "▁30", ", ", "▁45"]
    assert encode(tokenizer, other) == tokenizer.convert_tokens_to_ids([opened, name, before, "▁30", ", ", "▁12", after, closed])
    assert decode(tokenizer, encode(tokenizer, other)) == other


def test_a_program_unlike_any_that_was_taught_comes_back_from_its_tokens():
    taught = [program("values = [1]\nprint(sum(values))"), "abcdefghijklmnopqrstuvwxyz0123456789"]
    strange = program("sum = [3, 1]\n" + "print(values, sum)\n" * 30 + "values = 1")
    tokenizer = build_tokenizer(taught)

    assert decode(tokenizer, encode(tokenizer, strange)) == strange


def test_equal_texts_in_any_order_give_an_equal_tokenizer(tokenizer):
    texts = [*map(render, CONVERSATIONS), *vocabulary_texts([RetailWorld], ["en"])]
    random.Random(1).shuffle(texts)
    assert build_tokenizer(texts).get_vocab() == tokenizer.get_vocab()
    assert build_tokenizer([*texts, "a zebra"]).get_vocab() != tokenizer.get_vocab()


# ---- template --------------------------------------------------------------------------------------------------------------


def test_the_template_writes_what_render_writes(tokenizer):
    for messages in [*CONVERSATIONS, two_calls_at_once()]:
        assert template(tokenizer, messages) == render(messages)


def test_every_beginning_of_a_conversation_is_a_beginning_of_its_text(tokenizer):
    for messages in [*CONVERSATIONS, two_calls_at_once()]:
        whole, ids = template(tokenizer, messages), encode(tokenizer, template(tokenizer, messages))
        spoken = [index for index, message in enumerate(messages) if message.role == "assistant"]
        for index in spoken:
            assert whole.startswith(template(tokenizer, messages[:index], speak=True))
            assert whole.startswith(template(tokenizer, messages[: index + 1]))
            before = encode(tokenizer, template(tokenizer, messages[:index], speak=True))
            assert ids[: len(before)] == before


def test_what_is_learned_is_calls_answers_and_the_end_of_turn_and_nothing_else(tokenizer):
    for messages in [*CONVERSATIONS, two_calls_at_once()]:
        out = tokenizer.apply_chat_template(openai(messages), return_dict=True, return_assistant_tokens_mask=True)
        spans: list[list[int]] = []
        for token, before, is_learned in zip(out["input_ids"], [0, *out["assistant_masks"]], out["assistant_masks"], strict=False):
            if is_learned and not before:
                spans.append([])
            if is_learned:
                spans[-1].append(token)
        written = [
            "".join(
                f'<tool_call>\n{{"name": "{call.function.name}", "arguments": {call.function.arguments}}}\n</tool_call>'
                for call in message.tool_calls
            )
            + (message.content or "")
            + END
            for message in messages
            if message.role == "assistant"
        ]
        assert [decode(tokenizer, span) for span in spans] == written


# ---- weights ---------------------------------------------------------------------------------------------------------------


def test_a_policy_comes_back_from_its_folder(policy, tokenizer, tmp_path):
    model, _ = policy
    save_policy(model, tokenizer, tmp_path)
    again, read = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert digest(again) == digest(model)
    for messages in CONVERSATIONS:
        text = template(read, messages)
        assert text == template(tokenizer, messages)
        assert encode(read, text) == encode(tokenizer, text)
        assert decode(read, encode(read, text)) == text
    assert read.eos_token == END
    assert again.config.eos_token_id == tokenizer.eos_token_id


def test_the_seed_decides_the_weights(policy, tokenizer):
    model, _ = policy
    torch.manual_seed(99)
    assert digest(build_model(SMALL, tokenizer, 0)) == digest(model)
    assert digest(build_model(SMALL, tokenizer, 1)) != digest(model)


def test_fresh_weights_copy_what_they_attend_to(policy):
    model, _ = policy
    for layer in model.model.layers:
        values, out = layer.self_attn.v_proj.weight, layer.self_attn.o_proj.weight
        torch.testing.assert_close(out @ values, torch.eye(SMALL.width), atol=1e-5, rtol=0)
