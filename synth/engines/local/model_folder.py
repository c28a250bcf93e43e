"""What a Hugging Face model folder must hold to answer a chat, told from its files alone: before anything is loaded or spent."""

from __future__ import annotations

import json
from pathlib import Path

from storage.errors import BadInput

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


def check_folder(folder: Path) -> None:
    """Looks whether a folder holds a model, its weights, a tokenizer and a chat template.

    Raises:
        BadInput: which of them is missing.
    """
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} is no Hugging Face model folder (no config.json): give the folder that a training stage wrote")
    if not any(one.match("*.safetensors") or one.match("pytorch_model*.bin") for one in folder.iterdir()):
        raise BadInput(f"{folder} holds no weights (no *.safetensors or pytorch_model*.bin file): copy the whole model folder")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise BadInput(f"{folder} holds no tokenizer ({_TOKENIZERS[0]}): copy that of the model that it was trained from")
    if not _has_template(folder):
        raise BadInput(
            f"{folder} has no chat template ({_TEMPLATES[0]}), so nobody knows how a conversation is put to it: take a chat model, or copy "
            "the template that it was trained with"
        )


def _has_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in _TEMPLATES):
        return True
    try:
        told = json.loads((folder / "tokenizer_config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(told, dict) and bool(told.get("chat_template"))
