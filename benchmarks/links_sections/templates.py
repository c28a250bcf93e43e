"""Does training learn what an engine has in its context, whatever the template? Five templates, conversations of several worlds.

Each conversation has several user turns and tools. Three accounts of its tokens, and of which the policy wrote, must be equal: the training
row; the context of the engine, made to "sample" the turns (`Script`); and a reference that is independent of our code, one rendering of the
whole conversation by the model's own Jinja, cut by a regular expression. Every turn must also read back as the calls and the text that it
was. The reference differs from the model's rendering in what a policy's context has otherwise: thoughts and ends of answers stay, tools
stay where the first prompt has them, and the date is fixed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import GenerationConfig, Qwen3Config
from trl.chat_template_utils import get_training_chat_template

from benchmarks.harness import Deadline, Figures
from benchmarks.links_sections.cues import draw
from storage.records import Message, Tool
from synth.engines.base import ChatAnswer, ChatRequest
from synth.engines.local.hf import HFEngine
from synth.worlds import WORLDS
from tests.synth.engines.local.chat_tokenizers import chat_tokenizer
from train.data.token_labels import IGNORED, Unlearnable, every_turn, learned_tokens

CONVERSATIONS = 200
_DRAWN = 520
_WINDOW = 1 << 15
_SIZE = 4_000
"""Tokens of a vocabulary."""
Dialogue = tuple[Sequence[Message], tuple[Tool, ...]]
Marked = tuple[list[int], list[bool]]
"""Tokens of a conversation up to its last answer, and whether the policy wrote each."""


@dataclass(frozen=True)
class Reference:
    """turns: expression of what the policy writes. adjust: changes the model's rendering as the module's docstring says."""

    turns: str
    adjust: Callable[[str], str] = str


def _keep_tools_first(text: str) -> str:
    """Moves the tools from the last user message to the first."""
    listed = re.search(r"\[AVAILABLE_TOOLS\].*?\[/AVAILABLE_TOOLS\]", text, re.DOTALL)
    assert listed is not None
    return text.replace(listed[0], "").replace("[INST]", f"{listed[0]}[INST]", 1)


def _keep_returns(text: str) -> str:
    text = re.sub(r"Current date: [\d-]+", "Current date: 2024-07-26", text)
    return re.sub(r"(<\|channel\|>final<\|message\|>(?:(?!<\|end\|>).)*)<\|end\|>", r"\1<|return|>", text, flags=re.DOTALL)


_CHATML = Reference(r"(?<=<\|im_start\|>assistant\n).*?<\|im_end\|>")
REFERENCES: Mapping[str, Reference] = {
    "qwen2_5": _CHATML,
    "qwen3": _CHATML,
    "llama3_1": Reference(r"(?<=<\|start_header_id\|>assistant<\|end_header_id\|>\n\n).*?<\|eot_id\|>"),
    "mistral_v3": Reference(r"(?:(?<=\[/INST\])|(?<=\[/TOOL_RESULTS\])(?!\[TOOL_RESULTS\])).*?</s>", _keep_tools_first),
    "gptoss": Reference(r"(?<=<\|start\|>assistant).*?(?:<\|call\|>|<\|return\|>)", _keep_returns),
}


def measure(_: Deadline) -> Figures:
    dialogues = several_turns(_DRAWN)
    errors = 0
    for name in REFERENCES:
        found, left_out = errors_of(name, dialogues, CONVERSATIONS)
        print(f"    {name}: {found} of {CONVERSATIONS}; left out before that: {dict(left_out)}", flush=True)
        errors += found
    return {"template_mask_errors": float(errors)}


def several_turns(count: int) -> list[Dialogue]:
    """Accepted conversations with two or more user turns, of `count` drawn ones, and the tools on offer."""
    found = []
    for blueprint, messages in draw(count):
        tools = {tool.name: tool for tool in WORLDS[blueprint.world].tools}
        if sum(message.role == "user" for message in messages) > 1:
            found.append((messages, tuple(tools[name] for name in blueprint.tools)))
    return found


def errors_of(name: str, dialogues: Sequence[Dialogue], count: int) -> tuple[int, Counter[str]]:
    """Of the first `count` conversations that can be trained on with a template: those whose accounts differ. And why others cannot.

    Raises:
        ValueError: there are fewer than `count`.
    """
    texts = [message.content or "" for messages, _ in dialogues for message in messages]
    tokenizer = chat_tokenizer(name, [*texts, *(json.dumps(tool.to_openai()) for _, tools in dialogues for tool in tools)], size=_SIZE)
    engine = HFEngine(_NoModel(), tokenizer, policy_version=name, is_fused=False)
    rows: list[tuple[Dialogue, Marked]] = []
    left_out = Counter[str]()
    for messages, tools in dialogues:
        if len(rows) == count:
            break
        try:
            row = learned_tokens(engine.chat_format, messages, every_turn, _WINDOW, tools=tools)
        except Unlearnable as refused:
            left_out[str(refused)] += 1
            continue
        rows.append(((messages, tools), (row["input_ids"], [label != IGNORED for label in row["labels"]])))
    if len(rows) < count:
        raise ValueError(f"{name}: {len(rows)} conversations can be trained on: draw more")
    references = [reference(name, tokenizer, dialogue) for dialogue, _ in rows]
    contexts = engine_contexts(engine, [dialogue for dialogue, _ in rows], references)
    return sum(not row == known == context for (_, row), known, context in zip(rows, references, contexts, strict=True)), left_out


def reference(name: str, tokenizer: Any, dialogue: Dialogue) -> Marked:
    """By one rendering of the whole conversation with the model's template, or what TRL trains with in its place."""
    messages, tools = dialogue
    text = REFERENCES[name].adjust(
        tokenizer.apply_chat_template(
            [_plain(message) for message in messages],
            tools=[tool.to_openai() for tool in tools],
            chat_template=get_training_chat_template(tokenizer) if name == "qwen3" else None,
            tokenize=False,
        )
    )
    spans = [match.span() for match in re.finditer(REFERENCES[name].turns, text, re.DOTALL)]
    encoded = tokenizer(text[: spans[-1][1]], add_special_tokens=False, return_offsets_mapping=True)
    is_written = [any(start <= first < end for start, end in spans) for first, _ in encoded["offset_mapping"]]
    return encoded["input_ids"], is_written


def _plain(message: Message) -> dict[str, Any]:
    calls = [
        {
            "id": call.id.removeprefix("call_").zfill(9),
            "type": "function",
            "function": {"name": call.function.name, "arguments": json.loads(call.function.arguments)},
        }
        for call in message.tool_calls
    ]
    answers = {"tool_call_id": message.tool_call_id.removeprefix("call_").zfill(9)} if message.tool_call_id else {}
    return {"role": message.role, "content": message.content or "", **({"tool_calls": calls} if calls else {}), **answers}


# ---- an engine whose model says what it is told to -----------------------------------------------------------------------------------


class _NoModel(torch.nn.Module):
    """What an engine asks of a model before it samples."""

    config = Qwen3Config(hidden_size=16, num_hidden_layers=1, num_attention_heads=1, head_dim=16, max_position_embeddings=_WINDOW)
    generation_config = GenerationConfig()

    def get_decoder(self) -> None: ...

    def get_output_embeddings(self) -> None: ...


class Script:
    """A decoder of an engine: each conversation "samples" its given tokens, one after the other."""

    def __init__(self, tokens: Sequence[Sequence[int]]) -> None:
        self._tokens = [iter(one) for one in tokens]

    def start(self, prompts: Sequence[Sequence[int]], length: int) -> torch.Tensor:
        return self.feed(range(len(prompts)), prompts)

    def feed(self, slots: Sequence[int], chunks: Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.tensor([next(self._tokens[slot]) for slot in slots])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return 1e4 * torch.nn.functional.one_hot(hidden, _SIZE + 100).float()


@dataclass
class _Follower:
    """What an engine shows of one conversation. is_faithful: whether each answer was read as the message that it is."""

    messages: Sequence[Message]
    ids: list[int] = field(default_factory=list)
    is_written: list[bool] = field(default_factory=list)
    is_faithful: bool = True
    place: int = 0

    def reply(self, answer: ChatAnswer) -> list[Message] | None:
        """Checks an answer, and gives the messages that follow on it; None at the end."""
        known = len(self.ids)
        self.is_faithful &= list(answer.prompt_ids[:known]) == self.ids
        self.ids = [*answer.prompt_ids, *answer.token_ids]
        self.is_written += [False] * (len(answer.prompt_ids) - known) + [True] * len(answer.token_ids)
        self.place = next(at for at in range(self.place, len(self.messages)) if self.messages[at].role == "assistant")
        self.is_faithful &= answer.finish_reason != "length" and _meaning(answer.message) == _meaning(self.messages[self.place])
        after = self.messages[self.place + 1 :]
        self.place += 1
        if not self.is_faithful or not any(message.role == "assistant" for message in after):
            return None
        between = list(after[: next(at for at, message in enumerate(after) if message.role == "assistant")])
        ids = [call.id for call in answer.message.tool_calls]
        results = [message for message in between if message.role == "tool"]
        others = [message for message in between if message.role != "tool"]
        return [one.model_copy(update={"tool_call_id": call}) for one, call in zip(results, ids, strict=True)] + others


def engine_contexts(engine: HFEngine, dialogues: Sequence[Dialogue], references: Sequence[Marked]) -> list[Marked | None]:
    """What the engine has in its context where it samples the turns of the references; None where it reads another message."""
    engine.decoder = Script([[token for token, own in zip(*one, strict=True) if own] for one in references])
    followers = [_Follower(messages) for messages, _ in dialogues]
    requests = [
        ChatRequest(tuple(messages[: next(at for at, one in enumerate(messages) if one.role == "assistant")]), tools, max_tokens=_WINDOW)
        for messages, tools in dialogues
    ]
    engine.converse(requests, lambda index, answer: followers[index].reply(answer))
    return [(one.ids, one.is_written) if one.is_faithful else None for one in followers]


def _meaning(message: Message) -> tuple[str, list[tuple[str, Any]]]:
    return (message.content or "").strip(), [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
