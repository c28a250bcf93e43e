"""The weights of a model folder, by the headers of its safetensors files: which tensors there are, and whether a file is whole.

One idea: a header names each tensor with its shape and place, so a file that was cut off is found without reading its weights.

What it does not do: hash the weights (`storage/health/weights.py`), or load them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from storage.errors import BadInput


def parameters_of(folder: Path) -> int:
    """Number of weights in the safetensors files."""
    return sum(math.prod(shape) for shape in shapes_of(folder).values())


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each tensor in the safetensors files."""
    return {name: tuple(tensor["shape"]) for path in folder.glob("*.safetensors") for name, tensor in _header(path)[0].items()}


def check_weights(folder: Path) -> None:
    """By names of files and by headers; that they have all weights of the model is seen when a stage loads it, before it trains.

    Raises:
        BadInput: there are no safetensors files, a file that the index names is missing, or one is cut off.
    """
    if not any(folder.glob("*.safetensors")):
        raise BadInput(f"{folder} has its weights as pickles, which can run any program: save them as *.safetensors")
    for index in folder.glob("*.safetensors.index.json"):
        lost = sorted({file for file in json.loads(index.read_text())["weight_map"].values() if not (folder / file).is_file()})
        if lost:
            raise BadInput(f"{folder} lacks {len(lost)} of its weight files, {lost[0]} among them: copy the whole model folder again")
    for path in folder.glob("*.safetensors"):
        try:
            tensors, size = _header(path)
            is_whole = bool(tensors) and size >= max(tensor["data_offsets"][1] for tensor in tensors.values())
        except (ValueError, KeyError, TypeError, OverflowError):
            is_whole = False
        if not is_whole:
            raise BadInput(f"{path} is cut off, or holds no weights: copy the whole model folder again")


def _header(path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Name -> shape and place of each tensor in a safetensors file; and the bytes that come after the header."""
    with path.open("rb") as file:
        header: dict[str, dict[str, Any]] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        rest = path.stat().st_size - file.tell()
    return {name: tensor for name, tensor in header.items() if name != "__metadata__"}, rest
