"""Figures of rollouts that another trainer's processes play, as lines of JSON in one folder.

One idea: an engine keeps nothing of a rollout that it drops, and its own dump has texts and scores alone. So each process that plays
writes a line a rollout to a file of its own (`HOST-PID.jsonl`), also for those that are dropped, and no two processes share a file.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from storage.files import replace_atomically
from storage.records import JSON

_untold: set[Path] = set()
"""Folders whose lines could not be written, which was said once."""


def append_rollout(folder: Path, figures: Mapping[str, JSON]) -> None:
    """Appends a line to this process's file; makes the folder. A line that cannot be written is left out, so no rollout is lost for it."""
    line = json.dumps(figures, ensure_ascii=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{socket.gethostname()}-{os.getpid()}.jsonl").open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)
    except OSError as error:
        if folder not in _untold:
            _untold.add(folder)
            print(f"headrace: figures of rollouts cannot be written to {folder}, and are left out: {error}", file=sys.stderr, flush=True)


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file; a line that is not written to its end is left out. None where the file does not exist."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    for line in content.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def rollout_figures(folder: Path) -> dict[str, float]:
    """Figures of a stage's rollouts, of all lines in the folder; none without lines.

    rollouts_played: with a reward. success_share: share of these that solved their task.
    rollout_turns: their mean number of answers.
    rollouts_dropped: without a reward, because the infrastructure failed.
    """
    played, solved, turns, dropped = 0, 0, 0.0, 0
    for path in sorted(folder.glob("*.jsonl")):
        for line in json_lines(path):
            if line.get("failure") or line.get("reward") is None:
                dropped += 1
            else:
                played, solved, turns = played + 1, solved + (line.get("success") is True), turns + float(line.get("turns") or 0)
    if not played + dropped:
        return {}
    shares = {"success_share": solved / played, "rollout_turns": turns / played} if played else {}
    return {"rollouts_played": float(played), "rollouts_dropped": float(dropped), **shares}


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def forget_after(folder: Path, step: int) -> None:
    """Removes the lines of later steps (`global_steps`), which an engine plays again from its checkpoint of this step."""
    for path in folder.glob("*.jsonl"):
        lines = list(json_lines(path))
        kept = [line for line in lines if int(line.get("global_steps") or 0) <= step]
        if len(kept) < len(lines):
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
            replace_atomically(path, partial(_write, text))
