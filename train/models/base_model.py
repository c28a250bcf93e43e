"""The base model of a cascade: a Hugging Face folder, or an id of the hub, that stages without a parent start from.

It is checked by its files and one rendering of its chat template before anything is trained. Its id, a hash of weights, tokenizer and
template, is part of the ids of all stages that come of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from storage.errors import BadInput
from storage.records import FunctionCall, Message, Tool, ToolCall, content_id
from synth.engines.engine_names import weights_of
from synth.engines.local.chat_format import ChatFormat
from synth.engines.local.model_folder import check_folder
from train.models.weight_files import check_weights

_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.txt", "*.model")
"""What is fetched from the hub; weights as safetensors alone."""
_PROBE = Tool(
    name="probe_the_template", description="A tool.", parameters={"type": "object", "properties": {}}, server="probe", domain="probe"
)
_RESULT = "probe_result"
_CALL_AND_RESULT = (
    Message(role="assistant", tool_calls=(ToolCall(id="call_0", function=FunctionCall(name=_PROBE.name, arguments="{}")),)),
    [Message(role="tool", tool_call_id="call_0", content=_RESULT)],
)


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


def check_base_model(folder: Path) -> None:
    """Checks that a folder can be trained for tool use.

    Raises:
        BadInput: a file is missing or cut off, the weights are not safetensors, the tokenizer is of another model, or the chat template
            does not list tools, drops calls or their results, or writes calls in a form that our engine does not read.
    """
    check_folder(folder)
    check_weights(folder)
    if window_of(folder) < 1:
        raise BadInput(f"{folder}/config.json has no max_position_embeddings: the longest conversation is unknown")
    tokenizer = _tokenizer(folder)
    _check_tokenizer(folder, tokenizer)
    _check_template(folder, tokenizer)


def _check_tokenizer(folder: Path, tokenizer: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    size, end = config.get("vocab_size"), config.get("eos_token_id")
    if isinstance(size, int) and len(tokenizer) > size:
        raise BadInput(f"{folder}: the tokenizer has {len(tokenizer):,} tokens, the model {size:,}: it is the tokenizer of another model")
    if isinstance(end, int) and end not in tokenizer.added_tokens_decoder:
        token = tokenizer.convert_ids_to_tokens(end) if end < len(tokenizer) else None
        problem = f"the model ends texts with token {end:,}, which is {f'the word {token!r}' if token else 'no token'} of the tokenizer"
        raise BadInput(f"{folder}: {problem}: it is the tokenizer of another model")


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # the library's own errors
        raise BadInput(f"{folder}: its tokenizer cannot be loaded ({type(error).__name__}): copy the whole model folder again") from error


def _check_template(folder: Path, tokenizer: Any) -> None:
    """One call of a probe tool is written by the template and read back (`ChatFormat.family`)."""
    try:
        chat_format = ChatFormat(tokenizer)
        asked = tokenizer.decode(chat_format.prompt_ids([Message(role="user", content="hello")], [_PROBE]))
        shown = tokenizer.decode(chat_format.suffix_ids(*_CALL_AND_RESULT))
    except BadInput as error:
        raise BadInput(f"{folder}: {error}: take a model that calls tools") from error
    if _PROBE.name not in asked:
        raise BadInput(f"{folder}: its chat template does not list the tools on offer: take a model that calls tools")
    if _RESULT not in shown:
        raise BadInput(f"{folder}: its chat template drops what tools answer: take a model that calls tools")
    if chat_format.family is None:
        problem = "its chat template drops calls, or writes them in a form that the engine of rollouts does not read"
        raise BadInput(f"{folder}: {problem}: take a model of the family Qwen2.5, Qwen3, Hermes, Llama 3, Mistral or gpt-oss")
