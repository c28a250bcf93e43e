"""Figures of rollouts that another trainer's processes play, as lines of JSON in one folder.

One idea: an engine keeps nothing of a rollout that it drops, and its own dump has texts and scores alone. So each process that plays
writes a line a rollout to a file of its own (`HOST-PID.jsonl`), also for those that are dropped, and no two processes share a file.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from storage.records import JSON


def append_rollout(folder: Path, figures: Mapping[str, JSON]) -> None:
    """Appends a line to this process's file; makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps(figures, ensure_ascii=False) + "\n"
    with (folder / f"{socket.gethostname()}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(line)


def read_rollouts(folder: Path) -> list[dict[str, JSON]]:
    """The rollouts of all processes, by file and in the order played; a last line that a killed process left unfinished is left out."""
    found: list[dict[str, JSON]] = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        found += [json.loads(line) for line in lines]
    return found
