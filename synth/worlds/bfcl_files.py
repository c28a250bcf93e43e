"""The files of the Berkeley function-calling leaderboard, as the package bfcl-eval brings them (`pip install --no-deps bfcl-eval`)."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from storage.errors import BadInput

QUESTIONS = "BFCL_v*.json"
ANSWERS = "possible_answer/*.json"
MULTI_TURN_TOOLS = "multi_turn_func_doc/*.json"


def files(pattern: str) -> list[Path]:
    """The files of its data folder that a pattern stands for, sorted.

    Raises:
        BadInput: the package bfcl-eval is not installed.
    """
    package = importlib.util.find_spec("bfcl_eval")
    if package is None or package.origin is None:
        raise BadInput("BFCL is not here: it comes with the package bfcl-eval: pip install --no-deps bfcl-eval")
    return sorted((Path(package.origin).parent / "data").glob(pattern))


def cases(path: Path) -> Iterator[dict[str, Any]]:
    """The cases of a file of questions or answers, in order."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith('{"id"'):
            yield json.loads(line)


def user_turns(case: dict[str, Any]) -> list[list[str]]:
    """What the user says in each turn of a case."""
    return [
        [message["content"] for message in turn if isinstance(message, dict) and message["role"] == "user"]
        for turn in case.get("question", [])
    ]
