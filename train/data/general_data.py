"""General conversations, mixed into supervised training so that a model keeps what it knew, and some kept aside to measure that.

One idea: which conversations of a file are used follows from their hashes, and those are copied to the store as trajectories of no world,
so that releases name them as they name all others. `HELD_OUT` of them, or a fifth of a small file, are never trained on: every stage
measures the loss on them before and after (`train/measure/forgetting.py`).

What it does not do: tools. These are chats of users and assistants; a row in which a tool is called is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from storage.errors import BadInput
from storage.records import JSON, Message, Outcome, canonical_json, content_id
from storage.releases.release import GENERAL, ReleaseItem
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from train.data.seed_split import rough_tokens

VERSION = 1
HELD_OUT = 100
"""Most conversations of a file that are kept aside."""
SPLIT = "general_held_out"
"""Name of their split in a release."""
Chat = tuple[Message, ...]
_HAN = re.compile(r"[\u4e00-\u9fff]")


def read_chats(source: str) -> list[Chat]:
    """All conversations in column `messages` (role and content) of a JSONL or Parquet file, or of a dataset's training split on the hub.

    Raises:
        BadInput: there is no such file or dataset, or a row is no conversation; the message names the row, from 1.
    """
    chats = []
    for number, row in enumerate(_read_rows(source), 1):
        try:
            chat = tuple(Message(role=one["role"], content=one["content"]) for one in row)
        except (ValidationError, KeyError, TypeError) as error:
            raise BadInput(f"train.mix: {source}, row {number}: `messages` is no list of role and content") from error
        if any(one.role == "tool" or one.content is None for one in chat) or not any(one.role == "assistant" for one in chat):
            raise BadInput(f"train.mix: {source}, row {number}: it must be a chat of texts with an answer of the assistant, without tools")
        chats.append(chat)
    return chats


def _read_rows(source: str) -> Sequence[Sequence[Mapping[str, JSON]]]:
    path = Path(source).expanduser()
    readers: dict[str, Callable[[Path], pl.DataFrame]] = {".jsonl": pl.read_ndjson, ".parquet": pl.read_parquet}
    if path.suffix not in readers and (path.exists() or source.count("/") != 1):
        raise BadInput(f"train.mix: {source} is no *.jsonl or *.parquet file, and no id of a dataset (OWNER/NAME)")
    try:
        table: Any = readers[path.suffix](path) if path.suffix in readers else _dataset(source)
        rows: Sequence[Sequence[Mapping[str, JSON]]] = table["messages"]
    except (KeyError, pl.exceptions.ColumnNotFoundError) as error:
        raise BadInput(f"train.mix: {source} has no column `messages`") from error
    except Exception as error:  # each reader, and the hub, has its own errors
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise BadInput(f"train.mix: {source} cannot be read ({problem[:200]})") from error
    return rows


def _dataset(name: str) -> Any:
    from datasets import load_dataset

    return load_dataset(name, split="train")


@dataclass(frozen=True)
class Chats:
    """chosen: to train on. held_out: never trained on."""

    chosen: list[Chat]
    held_out: list[Chat]


def choose_chats(source: str, count: int, max_tokens: int) -> Chats:
    """`count` conversations of a source to train on, and those that are kept aside; equal ones once.

    max_tokens: longest conversation, in words and signs (`rough_tokens`).

    Raises:
        BadInput: there are fewer than `count`.
    """
    fitting = {canonical_json([one.to_openai() for one in chat]): chat for chat in read_chats(source) if rough_tokens(chat) <= max_tokens}
    ordered = [fitting[text] for text in sorted(fitting, key=lambda text: hashlib.sha256(text.encode()).hexdigest())]
    held_out = min(HELD_OUT, len(ordered) // 5)
    if len(ordered) - held_out < count:
        problem = f"{len(ordered)} conversations that fit into the model's window, and {count + held_out} are needed"
        raise BadInput(f"train.mix: {source} has {problem}: lower its share, or give more")
    return Chats(ordered[held_out : held_out + count], ordered[:held_out])


def store_chats(store: Store, source: str, chats: Sequence[Chat]) -> list[ReleaseItem]:
    """Writes conversations to the store; returns them as items of a release."""
    ids = [content_id("trajectory", GENERAL, [one.to_openai() for one in chat]) for chat in chats]
    fresh = set(ids) - set(
        store.query("SELECT trajectory_id FROM trajectories WHERE trajectory_id IN (SELECT unnest(?))", [ids])["trajectory_id"]
    )
    rows = [
        {
            "trajectory_id": name,
            "world": GENERAL,
            "language": "zh" if _HAN.search("".join(one.content or "" for one in chat)) else "en",
            "teacher": f"{GENERAL}:{Path(source).name}",
            "outcome": Outcome.NOT_EXECUTED,
            "accepted": False,
            "reason": GENERAL,
            "messages": canonical_json([one.to_openai() for one in chat]),
        }
        for name, chat in zip(ids, chats, strict=True)
        if name in fresh
    ]
    if rows:
        part: Part = store.write(
            "trajectories",
            part_id("trajectories", [str(row["trajectory_id"]) for row in rows], {"teacher": GENERAL}, VERSION),
            pl.DataFrame(rows, schema=TABLES["trajectories"].columns),
        )
        store.commit([part])
    return [ReleaseItem("trajectory", name, None) for name in ids]
