"""Tokenizers of five model families in small: their chat templates and special tokens, and a byte-level BPE trained on given texts.

The templates are those that TRL ships, unchanged; only that of Mistral is our own, in the form of its tokenizer V3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Marks:
    """special: special tokens of a family. plain: added tokens that are not special."""

    end: str
    pad: str
    special: tuple[str, ...]
    plain: tuple[str, ...] = ()
    begin: str | None = None


_QWEN = Marks(
    "<|im_end|>",
    "<|endoftext|>",
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
)
_LLAMA = Marks(
    "<|eot_id|>",
    "<|end_of_text|>",
    ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    begin="<|begin_of_text|>",
)
_MISTRAL_TURNS = ("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")
_MISTRAL = Marks("</s>", "<unk>", ("<unk>", "<s>", "</s>", *_MISTRAL_TURNS), begin="<s>")
_HARMONY_TURNS = ("<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>")
_GPT_OSS = Marks("<|return|>", "<|endoftext|>", ("<|startoftext|>", "<|endoftext|>", *_HARMONY_TURNS), begin="<|startoftext|>")
MARKS = {"qwen2_5": _QWEN, "qwen3": _QWEN, "llama3_1": _LLAMA, "llama3_2": _LLAMA, "mistral_v3": _MISTRAL, "gptoss": _GPT_OSS}
"""A template's name -> the tokens of its family."""


def chat_template(name: str) -> str:
    """A chat template by its name, also those of TRL that `MARKS` does not list."""
    ours = Path(__file__).with_name(f"{name}.jinja")
    return ours.read_text() if ours.is_file() else (files("trl") / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def chat_tokenizer(name: str, texts: Sequence[str], *, size: int = 1_500) -> PreTrainedTokenizerFast:
    """The tokenizer of a family, with the template of this name. size: of its vocabulary, without added tokens that are not special."""
    marks = MARKS[name]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, special_tokens=list(marks.special), initial_alphabet=alphabet, show_progress=False)
    )
    backend.add_tokens([AddedToken(mark, normalized=False) for mark in marks.plain])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=marks.pad, eos_token=marks.end, bos_token=marks.begin, clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = chat_template(name)
    return tokenizer
