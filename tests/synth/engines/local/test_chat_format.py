"""Five families of templates: a conversation is built as a policy meets it, and every answer reads back as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trl.chat_template_utils import get_training_chat_template

from storage.errors import BadInput
from storage.records import FunctionCall, Message, Tool, ToolCall
from synth.engines.local.chat_format import ChatFormat
from tests.synth.engines.local.chat_tokenizers import MARKS, chat_template, chat_tokenizer
from tests.synth.tiny_caller import tokenizer as caller_tokenizer

FAMILIES = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "llama3_1": "llama",
    "llama3_2": "llama",
    "mistral_v3": "mistral",
    "gptoss": "harmony",
}
ENDS = {
    "qwen2_5": {"<|im_end|>"},
    "qwen3": {"<|im_end|>"},
    "llama3_1": {"<|eot_id|>", "<|eom_id|>"},
    "llama3_2": {"<|eot_id|>", "<|eom_id|>"},
    "mistral_v3": {"</s>"},
    "gptoss": {"<|return|>", "<|call|>"},
}
TOOL = Tool(
    name="get_order",
    description="Shows an order.",
    parameters={"type": "object", "properties": {"order": {"type": "string"}, "full": {"type": "boolean"}}},
    server="shop",
    domain="shop",
)
ARGUMENTS = '{"order": "o17", "full": true, "note": "日本 \\"é\\""}'


def call(number: int, arguments: str = ARGUMENTS) -> Message:
    function = FunctionCall(name="get_order", arguments=arguments)
    return Message(role="assistant", tool_calls=(ToolCall(id=f"call_{number}", function=function),))


def result(number: int) -> Message:
    return Message(role="tool", tool_call_id=f"call_{number}", content='{"order": "o17", "state": "sent"}')


USER = Message(role="user", content="Where is o17?")
TALK = [
    USER,
    call(0),
    result(0),
    Message(role="assistant", content="On its way."),
    Message(role="user", content="And o18?"),
    call(1),
    result(1),
]
TEXTS = [*(message.content or ARGUMENTS for message in TALK), json.dumps(TOOL.to_openai())] * 4


@pytest.fixture(scope="module")
def formats() -> dict[str, ChatFormat]:
    return {name: ChatFormat(chat_tokenizer(name, TEXTS)) for name in MARKS}


@pytest.mark.parametrize("name", MARKS)
def test_a_probe_call_shows_the_family_and_what_ends_an_answer(formats: dict[str, ChatFormat], name: str) -> None:
    tokenizer = formats[name].tokenizer
    assert formats[name].family == FAMILIES[name]
    assert {tokenizer.decode([end]) for end in formats[name].ends} == ENDS[name]


@pytest.mark.parametrize("name", MARKS)
def test_an_answer_reads_back_with_the_number_of_its_call(formats: dict[str, ChatFormat], name: str) -> None:
    for answer in (call(3), Message(role="assistant", content="On its way.")):
        ids = formats[name].turn_ids(answer)
        assert formats[name].read(ids, 3) == answer
        assert ids[-1] in formats[name].ends
        assert not set(ids[:-1]) & formats[name].ends, "an engine would have stopped there"


@pytest.mark.parametrize("name", MARKS)
def test_no_piece_changes_what_stands_before_it(formats: dict[str, ChatFormat], name: str) -> None:
    """Given a conversation that goes on, then each prompt begins with the prompt and the answer before, tools included."""
    known: list[int] = []
    for length in (1, 3, 5, 7):
        prompt = formats[name].prompt_ids(TALK[:length], [TOOL])
        assert prompt[: len(known)] == known and len(prompt) > len(known)
        known = prompt + (formats[name].turn_ids(TALK[length]) if length < 7 else [])
    assert "get_order" in formats[name].tokenizer.decode(formats[name].prompt_ids([USER], [TOOL]))


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "llama3_1"])
def test_the_pieces_are_one_rendering_of_the_whole(formats: dict[str, ChatFormat], name: str) -> None:
    """Given a template that keeps history (Qwen3: TRL's version of it, for training), then its rendering of the whole is the prompt."""
    tokenizer = formats[name].tokenizer
    whole = tokenizer.apply_chat_template(
        [plain(message) for message in TALK],
        tools=[TOOL.to_openai()],
        chat_template=get_training_chat_template(tokenizer) if name == "qwen3" else None,
        add_generation_prompt=True,
        return_dict=False,
    )
    assert formats[name].prompt_ids(TALK, [TOOL]) == whole


@pytest.mark.parametrize(("name", "around"), [("qwen2_5", "\n"), ("qwen3", "\n"), ("gptoss", "<|start|>assistant")])
def test_answers_are_what_trl_marks_as_the_assistants(formats: dict[str, ChatFormat], name: str, around: str) -> None:
    """TRL's templates for training mark some text of the template too, `around` the answers."""
    tokenizer = formats[name].tokenizer
    messages = [*TALK[:3], TALK[3]]
    marked = tokenizer.apply_chat_template(
        [plain(message) for message in messages],
        chat_template=get_training_chat_template(tokenizer),
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    theirs = [token for token, mark in zip(marked["input_ids"], marked["assistant_masks"], strict=True) if mark]
    ours = [token for piece in formats[name].pieces(messages) if piece.is_turn for token in piece.ids]
    assert tokenizer.decode(theirs).replace(around, "") == tokenizer.decode(ours).replace(around, "")


def plain(message: Message) -> dict[str, Any]:
    calls = [{"function": {"name": call.function.name, "arguments": json.loads(call.function.arguments)}} for call in message.tool_calls]
    return {"role": message.role, "content": message.content or ""} | ({"tool_calls": calls} if calls else {})


@pytest.mark.parametrize("name", MARKS)
def test_arguments_are_written_in_the_template_s_spacing_and_in_their_order(formats: dict[str, ChatFormat], name: str) -> None:
    compact = call(0, json.dumps(json.loads(ARGUMENTS), separators=(",", ":")))
    assert formats[name].turn_ids(compact) == formats[name].turn_ids(call(0))
    assert ARGUMENTS in formats[name].tokenizer.decode(formats[name].turn_ids(compact))


def test_a_thought_is_no_part_of_the_message_and_stays_in_the_context(formats: dict[str, ChatFormat]) -> None:
    thinking = formats["qwen3"].tokenizer("<think>\nHm.\n</think>\n\nOn its way.<|im_end|>", add_special_tokens=False)["input_ids"]
    assert formats["qwen3"].read(thinking).content == "On its way."
    assert "<think>\n\n</think>" in formats["qwen3"].tokenizer.decode(formats["qwen3"].prompt_ids(TALK))


def test_results_are_marked_with_the_call_that_they_answer(formats: dict[str, ChatFormat]) -> None:
    """Given Mistral's ids of nine characters, then ids of any form are numbered in their order, in calls and results alike."""
    named = [
        message.model_copy(
            update={
                "tool_calls": tuple(call.model_copy(update={"id": f"any-{call.id}"}) for call in message.tool_calls),
                "tool_call_id": message.tool_call_id and f"any-{message.tool_call_id}",
            }
        )
        for message in TALK
    ]
    mistral = formats["mistral_v3"]
    assert mistral.prompt_ids(named) == mistral.prompt_ids(TALK)
    assert mistral.tokenizer.decode(mistral.suffix_ids(call(12), [result(12)])).count('"call_id": "000000012"') == 1


@pytest.mark.parametrize("name", ["llama3_2", "gptoss"])
def test_a_prompt_has_the_same_date_on_all_days(formats: dict[str, ChatFormat], name: str) -> None:
    assert "strftime_now" in chat_template(name)
    prompt = formats[name].tokenizer.decode(formats[name].prompt_ids([USER]))
    assert "26 Jul 2024" in prompt or "2024-07-26" in prompt


TWO = Message(role="assistant", tool_calls=(*call(0).tool_calls, *call(1).tool_calls))


@pytest.mark.parametrize("name", MARKS)
def test_what_a_template_cannot_write_is_named(formats: dict[str, ChatFormat], name: str) -> None:
    writes_several = FAMILIES[name] in ("hermes", "mistral")
    assert formats[name].unwritable(TALK) is None
    assert formats[name].unwritable([USER, TWO]) == (None if writes_several else "several calls in one message")
    beside = call(0).model_copy(update={"content": "One moment."})
    assert formats[name].unwritable([USER, beside]) == (None if FAMILIES[name] == "hermes" else "words beside a call")


def test_a_template_that_takes_strings_gets_strings() -> None:
    """Given a template that double-encodes objects' strings or one that needs them, then the probe call decides."""
    tokenizer = caller_tokenizer()
    assert ChatFormat(tokenizer).family == "hermes"
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "call.function.arguments if call.function.arguments is string else", ""
    ).replace("call.function.arguments | tojson", "call.function.arguments + ''")
    strings = ChatFormat(tokenizer)
    assert strings.family == "hermes"
    assert ARGUMENTS in tokenizer.decode(strings.turn_ids(call(0)))


def test_a_tokenizer_without_a_template_is_refused_in_one_line() -> None:
    tokenizer = chat_tokenizer("qwen3", TEXTS)
    tokenizer.chat_template = None
    with pytest.raises(BadInput, match=r"^the tokenizer has no chat template"):
        ChatFormat(tokenizer)


def test_a_template_that_opens_thoughts_answers_and_cannot_be_trained() -> None:
    """Given DeepSeek-R1's template, whose prompt opens a thought that history lacks, then prompts are written, and answers refused."""
    tokenizer = chat_tokenizer("qwen3", TEXTS)
    tokenizer.chat_template = chat_template("deepseek_r1_distill")
    chat_format = ChatFormat(tokenizer)
    assert chat_format.family is None and tokenizer.decode(chat_format.prompt_ids([USER])).endswith("<think>\n")
    assert chat_format.unwritable(TALK) == "a message that it refuses: the chat template does not begin an answer as it asks for one"


@pytest.mark.parametrize("name", MARKS)
def test_what_no_policy_could_have_sampled_cannot_be_learned(formats: dict[str, ChatFormat], name: str) -> None:
    """Given an answer with its own end in its words, or two answers in a row, then both are unwritable."""
    answer = Message(role="assistant", content="On its way.")
    assert formats[name].unwritable([USER, answer]) is None
    for end in ENDS[name]:
        spoilt = Message(role="assistant", content=f"On {end} its way.")
        assert formats[name].unwritable([USER, spoilt]) == "the end of an answer in its words"
    assert formats[name].unwritable([USER, answer, answer]) == "two answers in a row"


@pytest.mark.parametrize("name", MARKS)
def test_calls_are_numbered_whatever_their_ids(formats: dict[str, ChatFormat], name: str) -> None:
    """Given a server that names each message's call the same, then the tokens are those of numbered calls."""
    named = [
        message.model_copy(
            update={"tool_calls": tuple(one.model_copy(update={"id": "c"}) for one in message.tool_calls)}
            if message.tool_calls
            else {"tool_call_id": "c" if message.tool_call_id else None}
        )
        for message in TALK
    ]
    assert formats[name].prompt_ids(named, [TOOL]) == formats[name].prompt_ids(TALK, [TOOL])
