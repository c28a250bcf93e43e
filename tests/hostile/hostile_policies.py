"""Model folders that a stranger gave: name -> a function that spoils a copy of a good one."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Spoil = Callable[[Path], None]
MARK = "HEADRACE_WAS_RUN"
"""File beside the model folder that code of the folder would write if it ran."""


class _Runs:
    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._target,)


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Runs(folder.parent / MARK)))


def _settings(**changes: Any) -> Spoil:
    def write(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return write


def _remote_code(folder: Path) -> None:
    _settings(auto_map={"AutoConfig": "odd.Odd", "AutoModelForCausalLM": "odd.Odd"}, model_type="odd")(folder)
    (folder / "odd.py").write_text(f"from pathlib import Path\nPath({str(folder.parent / MARK)!r}).touch()\nclass Odd: ...\n")


def _tokenizer_code(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"auto_map": {"AutoTokenizer": ["odd.Odd", None]}, "tokenizer_class": "Odd"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "odd.py").write_text(f"from pathlib import Path\nPath({str(folder.parent / MARK)!r}).touch()\nclass Odd: ...\n")


def _template(text: str) -> Spoil:
    return lambda folder: (folder / "chat_template.jinja").write_text(text) and None


def _weights(content: Callable[[bytes], bytes]) -> Spoil:
    def write(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(content(path.read_bytes()))

    return write


def _text(name: str, text: str) -> Spoil:
    return lambda folder: (folder / name).write_text(text) and None


SPOILS: dict[str, Spoil] = {
    "weights as a pickle that runs": _pickled,
    "a model with its own code": _remote_code,
    "a tokenizer with its own code": _tokenizer_code,
    "a template that climbs to Python": _template("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    "a template that imports": _template("{% import 'os' as os %}{{ os.system('true') }}"),
    "a template without an end": _template("{% for a in range(10**12) %}x{% endfor %}"),
    "a template of a gigabyte": _template("{{ 'x' * 10**10 }}"),
    "a template that is broken": _template("{% for"),
    "an empty template": _template(""),
    "a header longer than the file": _weights(lambda content: struct.pack("<Q", 2**40) + content[8:]),
    "a header that is no JSON": _weights(lambda content: content[:8] + b"{" * (len(content) - 8)),
    "weights cut in half": _weights(lambda content: content[: len(content) // 2]),
    "no weights at all": _weights(lambda _: b""),
    "a vocabulary of a billion": _settings(vocab_size=10**9),
    "a width of a billion": _settings(hidden_size=10**9),
    "a million layers": _settings(num_hidden_layers=10**6),
    "a negative width": _settings(hidden_size=-4),
    "a width that is a text": _settings(hidden_size="wide"),
    "an unknown kind of model": _settings(model_type="nonesuch"),
    "settings that are a list": _text("config.json", "[]"),
    "settings that are cut": _text("config.json", '{"model_type": "qwen'),
    "a tokenizer that is cut": _text("tokenizer.json", '{"version": "1.0", "mod'),
    "a tokenizer that is a list": _text("tokenizer.json", "[]"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
}
