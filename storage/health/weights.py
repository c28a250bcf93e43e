"""The hash of a model folder's weights, by which a damaged or exchanged model is found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from storage.errors import BadInput

PRUNED = "pruned.json"
"""File of a stage's folder whose model `headrace store prune` removed."""


def refuse_pruned(folder: Path) -> None:
    """Raises BadInput if `headrace store prune` removed this model folder."""
    note = folder.parent / PRUNED
    if note.exists() and not folder.is_dir():
        raise BadInput(
            f"{folder} was removed by `headrace store prune`. To have it again, delete {note} and call `headrace store repair`: with "
            "--backup it is taken from there, else the next training makes it again"
        )


def weights_hash(folder: Path) -> str:
    """SHA-256 over the safetensors files of a model folder, in order of their names: 64 hex digits.

    Raises:
        BadInput: the folder has none.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadInput(f"{folder} holds no *.safetensors file: give the model folder that a training stage wrote")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as weights:
            while block := weights.read(1 << 24):
                digest.update(block)
    return digest.hexdigest()


def check_stage_weights(folder: Path) -> None:
    """Compares the weights of a model folder that a stage wrote with the hash in its `result.json`; other folders pass.

    Raises:
        BadInput: the weights are missing, cut or altered.
    """
    try:
        expected = json.loads((folder.parent / "result.json").read_bytes())["weights_hash"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if weights_hash(folder) != expected:
        store = folder.absolute().parents[2]
        raise BadInput(
            f"{folder} has other weights than its stage wrote: `headrace store repair --store {store}` sets them aside, "
            "and the next training makes them again"
        )
