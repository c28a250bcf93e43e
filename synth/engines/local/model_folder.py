"""Checks that a Hugging Face model folder can be used for chats, by its files alone, before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

from storage.errors import BadInput


def check_folder(folder: Path) -> None:
    """Checks that a folder holds a model, its weights, a tokenizer and a chat template.

    Raises:
        BadInput: one of them is missing.
    """

    def has(*patterns: str) -> bool:
        return any(one.match(pattern) for one in folder.iterdir() for pattern in patterns)

    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} is no Hugging Face model folder (no config.json): give the folder that a training stage wrote")
    if not has("*.safetensors", "pytorch_model*.bin"):
        raise BadInput(f"{folder} holds no weights (no *.safetensors or pytorch_model*.bin file): copy the whole model folder")
    if not has("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"):
        raise BadInput(f"{folder} holds no tokenizer (tokenizer.json): copy the tokenizer of the model that it was trained from")
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text())
    except (OSError, ValueError):
        config = None
    if not has("chat_template.jinja", "chat_template.json") and not (isinstance(config, dict) and config.get("chat_template")):
        raise BadInput(f"{folder} has no chat template (chat_template.jinja): take a chat model, or copy the template of its training")
