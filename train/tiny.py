"""The tiny policy: a stock `Qwen3ForCausalLM` of some 0.4 million parameters that learns tool use from scratch on one CPU core.

One idea: spend capacity on the job, not on spelling. Words, identifiers, whole numbers and the fixed glue of Hermes calls and JSON
observations are single tokens; the prompt does not list the tools; and the weights start copy-biased ("mimetic": unit-scale embeddings,
orthogonal values, output = value transposed), without which such a model sits on the copy plateau for minutes.
The text is ordinary Hermes chat text; only the tokenizer has large pieces. Unknown words fall back to characters of the vocabulary, and a
word with an unknown character reads as `<unk>`: the tokenizer decodes what it can encode, and is no general tokenizer.
Model, tokenizer and template round-trip through a Hugging Face folder, so every other engine and trainer takes them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from storage.records import Language, Message
from synth.text.slot_kinds import Identifier, Vocabulary
from synth.worlds.base import World
from train.spec import TinyConfig

PAD, UNKNOWN, END = "<|endoftext|>", "<unk>", "<|im_end|>"
_MARK = "▁"
_CALL_CLOSERS = ('"}}\n</tool_call>', "}}\n</tool_call>", "}\n</tool_call>")
_GLUE = (
    "<|im_start|>user\n",
    f"{END}\n<|im_start|>assistant\n",
    "\n<|im_start|>assistant\n",
    "\n<|im_start|>user\n",
    "\n<|im_start|>user\n<tool_response>\n",
    f"\n</tool_response>{END}\n<|im_start|>assistant\n",
    '<tool_call>\n{"name": "',
    *_CALL_CLOSERS,
)
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message.role == 'user' %}"
    "{{- '\\n' if not loop.first }}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>' }}"
    "{%- elif message.role == 'tool' %}"
    "{%- if messages[loop.index0 - 1].role != 'tool' %}{{- '\\n<|im_start|>user' }}{%- endif %}"
    "{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>' }}{%- endif %}"
    "{%- elif message.role == 'assistant' %}"
    "{{- '\\n<|im_start|>assistant\\n' }}{% generation %}"
    "{%- if message.content %}{{- message.content }}{%- endif %}"
    "{%- for call in message.tool_calls or [] %}"
    '{{- \'<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}"
    "{{- '}\\n</tool_call>' }}"
    "{%- endfor %}{{- '<|im_end|>' }}{% endgeneration %}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '\\n<|im_start|>assistant\\n' }}{%- endif %}"
)
"""Hermes chat as Qwen3 writes it, less the system message and the list of tools; what the policy learns to write is marked."""

_JSON_GLUE = rf'["\]}},{{\[ ]*"{_MARK}\w+": ?(?:[{{\[]+"{_MARK}\w+": ?)*"?'
_CODE = rf'(?:(?!{_MARK}\d)[^"\d]|{_MARK}\d+(?=\)| \*)){{0,150}}'
_CODE_GLUE = rf'["\]}},{{\[ ]*"{_MARK}\w+": ?\{{"{_MARK}code": "{_CODE}|\]\\{_MARK}n{_CODE}'
"""What a program says before the first value of a list, and after its last: up to the next number or string, save for what it rounds to or
multiplies by."""
_PIECE = Regex(rf"{_CODE_GLUE}|{_JSON_GLUE}|{_MARK}\w+|[^\w{_MARK}]+")


_LETTER = r"[^\W_]"
_SPLIT_PIECE = Regex(rf"{_MARK}\d{{4}}-\d\d-\d\d|{_MARK}[^\W_\d]+|{_MARK}\d+|\d+|[^\W_\d]+|[^\w{_MARK}]+|_")
_SPLIT_GLUE = (*_GLUE, '", "arguments": {"')


def _splitting_backend() -> Tokenizer:
    """As `_backend`, but the parts of a snake_case name are the words that they are in a sentence (`cancel_lesson`, `cancel lesson`), and
    so are the letter and the digits of an identifier: a policy can then write a name that it has never seen, from parts that it knows.

    The underscores of names of tools and of keys are not written as tokens; that they stand before `", "arguments"` or `":` brings them
    back. Others are a token each.
    """
    tokenizer = Tokenizer(
        models.WordPiece(vocab={UNKNOWN: 0}, unk_token=UNKNOWN, continuing_subword_prefix="", max_input_chars_per_word=200)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(rf'(?<={_LETTER})_(?=\w+(?:":|", "arguments"))'), " "),
            normalizers.Replace(Regex(rf"(?<={_LETTER}) (?={_LETTER})"), _MARK),
            normalizers.Replace(Regex(rf"(?<!{_LETTER}|{_MARK})(?={_LETTER})"), _MARK),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(_SPLIT_PIECE, behavior="isolated"), pre_tokenizers.Split(Regex(r"\p{Han}"), behavior="isolated")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Fuse(),
            decoders.Replace(Regex(rf'(?<={_LETTER}){_MARK}(?=[\w{_MARK}]+(?:":|", "arguments"))'), "_"),
            decoders.Replace(Regex(rf"(?<={_LETTER}){_MARK}"), " "),
            decoders.Replace(Regex(_MARK), ""),
        ]
    )
    return tokenizer


def _backend() -> Tokenizer:
    """The tokenizer's fixed parts: how text is cut into pieces, and put together again.

    Every word is marked with a leading `▁` and loses the single space before it if another word precedes; so a word is one and the same
    token in a sentence and inside JSON, and can be copied from the one to the other.
    """
    tokenizer = Tokenizer(
        models.WordPiece(vocab={UNKNOWN: 0}, unk_token=UNKNOWN, continuing_subword_prefix="", max_input_chars_per_word=200)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace(Regex(r"(?<=\w) (?=\w)"), _MARK), normalizers.Replace(Regex(rf"(?<![\w{_MARK}])(?=\w)"), _MARK)]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(_PIECE, behavior="isolated"), pre_tokenizers.Split(Regex(r"\p{Han}"), behavior="isolated")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Fuse(), decoders.Replace(Regex(rf"(?<=\w){_MARK}"), " "), decoders.Replace(Regex(_MARK), "")]
    )
    return tokenizer


def build_tokenizer(texts: Iterable[str], *, splits_names: bool = False) -> PreTrainedTokenizerFast:
    """A tokenizer whose vocabulary is every piece of `texts`, the glue of the chat template, and single characters to fall back on.

    Chat markup inside a text is cut out as glue first. Equal texts, in any order, give an equal tokenizer.
    splits_names: names and identifiers are cut into their parts (`_splitting_backend`), for tools that training never showed.
    """
    backend, glues = (_splitting_backend(), _SPLIT_GLUE) if splits_names else (_backend(), _GLUE)
    pieces: set[str] = set()
    for text in texts:
        cut = text
        for glue in sorted(glues, key=len, reverse=True):
            cut = cut.replace(glue, "\0")
        for part in cut.replace(END, "\0").split("\0"):
            pieces.update(piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(part)))
    characters = set("abcdefghijklmnopqrstuvwxyz0123456789_" + _MARK) | {character for piece in pieces for character in piece}
    special = [PAD, UNKNOWN, END]
    vocabulary = {token: index for index, token in enumerate([*special, *glues, *sorted(pieces | characters)])}
    backend.model = models.WordPiece(vocab=vocabulary, unk_token=UNKNOWN, continuing_subword_prefix="", max_input_chars_per_word=200)
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    backend.add_tokens([AddedToken(token, normalized=False) for token in glues])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=PAD, unk_token=UNKNOWN, eos_token=END, clean_up_tokenization_spaces=False, padding_side="right"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def unread_words(tokenizer: Any, text: str) -> list[str]:
    """The words of a text that such a tokenizer has no token for, so that its policy never learned them; none of any other tokenizer."""
    if tokenizer.chat_template != CHAT_TEMPLATE:
        return []
    backend, vocabulary = tokenizer.backend_tokenizer, tokenizer.get_vocab()
    pieces = (piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text)))
    return [piece.removeprefix(_MARK) for piece in pieces if piece not in vocabulary and any(letter.isalnum() for letter in piece)]


def render(messages: Sequence[Message]) -> str:
    """A conversation as the chat template writes it (the tests hold the two together)."""
    out: list[str] = []
    for index, message in enumerate(messages):
        start = "\n" if index else ""
        if message.role == "user":
            out.append(f"{start}<|im_start|>user\n{message.content}{END}")
        elif message.role == "tool":
            opens = "\n<|im_start|>user" if messages[index - 1].role != "tool" else ""
            closes = END if index + 1 == len(messages) or messages[index + 1].role != "tool" else ""
            out.append(f"{opens}\n<tool_response>\n{message.content}\n</tool_response>{closes}")
        elif message.role == "assistant":
            calls = (
                f'<tool_call>\n{{"name": "{call.function.name}", "arguments": {call.function.arguments}}}\n</tool_call>'
                for call in message.tool_calls
            )
            out.append(f"\n<|im_start|>assistant\n{message.content or ''}{''.join(calls)}{END}")
    return "".join(out)


def vocabulary_texts(worlds: Sequence[type[World]], languages: Sequence[Language]) -> list[str]:
    """What `worlds` may say whatever the task: names and identifiers of their slot kinds, tool and argument names, enumerated values,
    refusals of an empty call, and whole numbers up to 120; names in these languages alone."""
    texts = [str(number) for number in range(121)]
    for world in worlds:
        for kind in world.kinds.values():
            if isinstance(kind, Identifier):
                texts += kind.choices
            elif isinstance(kind, Vocabulary):
                texts += [
                    text
                    for key, names in kind.names.items()
                    for text in (key, *(names[world.language_near(language)] for language in languages))
                ]
        instance = world(0)
        for tool in world.tools:
            properties: dict[str, Any] = tool.parameters.get("properties", {})
            texts += [tool.name, *properties, *(str(value) for schema in properties.values() for value in schema.get("enum", ()))]
            texts.append(instance.call(tool.name, {}).content)
            texts += [f'"arguments": {json.dumps({name: "x"})}' for name in properties]
    return texts


def build_model(config: TinyConfig, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A fresh policy with copy-biased weights: embeddings N(0, 1/sqrt(width)), values orthogonal, outputs their transpose."""
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=config.width,
            intermediate_size=config.feed_forward,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            head_dim=config.width // config.heads,
            max_position_embeddings=config.positions,
            tie_word_embeddings=True,
            rope_theta=1e4,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(0.0, config.width**-0.5)
        for layer in model.model.layers:
            attention = layer.self_attn
            torch.nn.init.orthogonal_(attention.v_proj.weight)
            attention.o_proj.weight.copy_(attention.v_proj.weight.T)
    return model


def save_policy(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes a Hugging Face model folder: weights, configuration, tokenizer, chat template."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
