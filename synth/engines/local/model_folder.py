"""Checks that a Hugging Face model folder can be used for chats, by its files alone, before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
from jinja2 import nodes

from storage.errors import BadInput

_MOST_REPEATS = 1_000


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
    _check_template(folder, config)


def _check_template(folder: Path, config: object) -> None:
    """Refuses an empty chat template, and one that makes a long text of a short one by multiplication; what else is wrong shows when it is
    used, in the sandbox of its library."""
    path = folder / "chat_template.jinja"
    text = path.read_text(errors="replace") if path.is_file() else config.get("chat_template") if isinstance(config, dict) else None
    if not isinstance(text, str):
        return
    if not text.strip():
        raise BadInput(f"{folder} has an empty chat template (chat_template.jinja): copy the template of its training")
    try:
        parsed = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    except jinja2.TemplateSyntaxError:  # it may have tags of the library's own
        return
    for product in parsed.find_all((nodes.Mul, nodes.Pow)):
        factors = [one.value for one in (product.left, product.right) if isinstance(one, nodes.Const)]
        if isinstance(product, nodes.Pow) or any(isinstance(value, int) and value > _MOST_REPEATS for value in factors):
            raise BadInput(f"{folder} has a chat template that repeats a text more than {_MOST_REPEATS:,} times; take that of its training")
