"""Randomly initialised model folders with a real chat template, in place of base models whose weights cannot be had here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.synth.engines.local.chat_tokenizers import chat_tokenizer


def write_base(folder: Path, texts: Sequence[str], *, chat_template: str = "qwen2_5", positions: int = 4096) -> Path:
    """A Qwen3-shaped folder of some 100,000 random parameters; its byte-level BPE tokenizer is trained on the texts."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = chat_tokenizer(chat_template, texts)
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
