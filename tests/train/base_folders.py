"""Randomly initialised model folders with a real chat template, in place of base models whose weights cannot be had here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def template(name: str) -> str:
    """A chat template as TRL ships it: that of the model family, unchanged."""
    return (files("trl") / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def write_base(folder: Path, texts: Sequence[str], *, chat_template: str = "qwen2_5", positions: int = 4096) -> Path:
    """A Qwen3-shaped folder of some 100,000 random parameters; its byte-level BPE tokenizer is trained on the texts."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=SPECIAL[0], eos_token="<|im_end|>")
    tokenizer.chat_template = template(chat_template)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer) + 20,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=positions,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
