"""The base model of a cascade: a Hugging Face folder, or an id of the hub, that stages without a parent start from.

It is checked by its files and one rendering of its chat template before anything is trained. Its id, a hash of weights, tokenizer and
template, is part of the ids of all stages that come of it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from storage.records import content_id
from synth.engines.engine_names import weights_of
from synth.engines.local.model_folder import check_folder

_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.txt", "*.model")
"""What is fetched from the hub; weights as safetensors alone."""
_PROBE = {
    "type": "function",
    "function": {"name": "probe_the_template", "description": "A tool.", "parameters": {"type": "object", "properties": {}}},
}
_CALL = {"type": "function", "function": {"name": "probe_the_template", "arguments": {}}}


def resolve_model(name: str) -> Path:
    """The folder of a base model; fetches it from the hub if it is no folder here.

    Raises:
        BadInput: there is no such folder, and the hub does not give it.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.absolute()
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise BadInput(f"train.model: there is no folder {name}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except Exception as error:  # the hub's and the network's own errors
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise BadInput(f"train.model: {name} is no folder here, and the hub does not give it ({problem[:200]})") from error


def model_id(folder: Path) -> str:
    """Changes with weights, tokenizer, template and configuration."""
    return content_id("model", weights_of(f"hf:{folder}"))


def window_of(folder: Path) -> int:
    """Longest conversation in tokens."""
    config = json.loads((folder / "config.json").read_text())
    window: int = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings") or 0
    return window


def parameters_of(folder: Path) -> int:
    """Number of weights in the safetensors files, by their headers alone."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        total += sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    return total


def check_base_model(folder: Path) -> None:
    """Checks that a folder can be trained for tool use.

    Raises:
        BadInput: a file is missing, the weights are not safetensors, the tokenizer is of another model, or the chat template does not list
            tools or writes calls in a form that our engine does not read.
    """
    check_folder(folder)
    if not any(folder.glob("*.safetensors")):
        raise BadInput(f"{folder} has its weights as pickles, which can run any program: save them as *.safetensors")
    for index in folder.glob("*.safetensors.index.json"):
        lost = sorted({file for file in json.loads(index.read_text())["weight_map"].values() if not (folder / file).is_file()})
        if lost:
            raise BadInput(f"{folder} lacks {len(lost)} of its weight files, {lost[0]} among them: copy the whole model folder again")
    if window_of(folder) < 1:
        raise BadInput(f"{folder}/config.json has no max_position_embeddings: the longest conversation is unknown")
    tokenizer = _tokenizer(folder)
    size = json.loads((folder / "config.json").read_text()).get("vocab_size")
    if isinstance(size, int) and len(tokenizer) > size:
        raise BadInput(f"{folder}: the tokenizer has {len(tokenizer):,} tokens, the model {size:,}: it is the tokenizer of another model")
    _check_template(folder, tokenizer)


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the library's own errors
        raise BadInput(f"{folder}: its tokenizer cannot be loaded ({type(error).__name__}): copy the whole model folder again") from error


def _check_template(folder: Path, tokenizer: Any) -> None:
    user: dict[str, Any] = {"role": "user", "content": "hello"}
    try:
        listed = tokenizer.apply_chat_template([user], tools=[_PROBE], tokenize=False)
        called = tokenizer.apply_chat_template([user, {"role": "assistant", "content": "", "tool_calls": [_CALL]}], tokenize=False)
    except Exception as error:  # whatever a template raises
        raise BadInput(f"{folder}: its chat template fails on a tool call ({str(error)[:200]}): take a model that calls tools") from error
    if "probe_the_template" not in listed:
        raise BadInput(f"{folder}: its chat template does not list the tools on offer: take a model that calls tools")
    if "<tool_call>" not in called:
        problem = "its chat template does not write calls as <tool_call>, the form that the engine of rollouts reads"
        raise BadInput(f"{folder}: {problem}: take a model of the family Qwen2.5, Qwen3 or Hermes")
