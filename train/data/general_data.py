"""General conversations, mixed into supervised training so that a model keeps what it knew, and some kept aside to measure that.

One idea: which conversations of a file are used follows from their hashes, and those are copied to the store as trajectories of no world,
so that releases name them as they name all others. `HELD_OUT` of them, or a fifth of a small file, are never trained on: every stage
measures the loss on them before and after (`train/measure/forgetting.py`).

What it does not do: tools. These are chats of a user and an assistant; a row with a call is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
"""Most conversations of a source that are kept aside."""
LONGEST = 4096
"""Longest conversation that is used, in words and signs."""
SPLIT = "general_held_out"
"""Name of their split in a release."""
Chat = tuple[Message, ...]
_HAN = re.compile(r"[\u4e00-\u9fff]")


def read_chats(source: str) -> list[Chat]:
    """All conversations in column `messages` (role and content) of a JSONL or Parquet file, or of a dataset's training split on the hub.

    Raises:
        BadInput: there is no such file or dataset, or a row is no chat; the message names the row, from 1.
    """
    return [_chat(row, f"train.mix: {source}, row {number}") for number, row in enumerate(_read_rows(source), 1)]


def _chat(row: JSON, where: str) -> Chat:
    try:
        texts = [(one["role"], one["content"], one.get("tool_calls") or one.get("function_call")) for one in row]
        chat = tuple(Message(role=role, content=content) for role, content, _ in texts)
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{where}: `messages` is no list of role and content, both texts") from error
    roles = [one.role for one in chat if one.role != "system"]
    is_chat = roles[::2] == ["user"] * len(roles[::2]) and roles[1::2] == ["assistant"] * len(roles[1::2]) and len(roles) > 1
    if not is_chat or any(calls for *_, calls in texts) or not all(one.content for one in chat):
        raise BadInput(f"{where}: it must be a chat in which a user and the assistant take turns, with texts and without tools")
    return chat


def _read_rows(source: str) -> Sequence[JSON]:
    path = Path(source).expanduser()
    readers: dict[str, Callable[[Path], Sequence[JSON]]] = {".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix not in readers and (path.exists() or source.count("/") != 1):
        raise BadInput(f"train.mix: {source} is no *.jsonl or *.parquet file, and no id of a dataset (OWNER/NAME)")
    try:
        return readers[path.suffix](path) if path.suffix in readers else _dataset(source)
    except (KeyError, pl.exceptions.ColumnNotFoundError) as error:
        raise BadInput(f"train.mix: {source} has no column `messages`") from error
    except Exception as error:  # each reader, and the hub, has its own errors
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise BadInput(f"train.mix: {source} cannot be read ({problem[:200]})") from error


def _read_jsonl(path: Path) -> list[JSON]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["messages"] for line in lines if line.strip()]


def _read_parquet(path: Path) -> list[JSON]:
    return pl.read_parquet(path, columns=["messages"])["messages"].to_list()


def _dataset(name: str) -> Sequence[JSON]:
    from datasets import load_dataset

    rows: Sequence[JSON] = load_dataset(name, split="train")["messages"]
    return rows


@dataclass(frozen=True)
class Chats:
    """chosen: to train on. held_out: never trained on."""

    chosen: list[Chat]
    held_out: list[Chat]


def choose_chats(counts: Mapping[str, int], window: int) -> dict[str, Chats]:
    """Of each source, as many conversations as `counts` says, and those that are kept aside. No conversation is in two of these sets.

    window: of the model, in tokens; longer conversations, and those above LONGEST, are left out (`rough_tokens`).

    Raises:
        BadInput: a source has too few; or see `read_chats`.
    """
    chosen: dict[str, Chats] = {}
    taken: set[Chat] = set()
    for source, count in counts.items():
        fitting = {chat for chat in read_chats(source) if rough_tokens(chat) <= min(window, LONGEST)} - taken
        ordered = sorted(fitting, key=_hash)
        held_out = min(HELD_OUT, len(ordered) // 5)
        if len(ordered) - held_out < count:
            problem = f"{len(ordered):,} different conversations that fit into the model's window, and {count + held_out:,} are needed"
            raise BadInput(f"train.mix: {source} has {problem}: lower its share, or give more")
        chosen[source] = Chats(ordered[held_out : held_out + count], ordered[:held_out])
        taken |= fitting
    return chosen


def _hash(chat: Chat) -> str:
    return hashlib.sha256(canonical_json([one.to_openai() for one in chat]).encode()).hexdigest()


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
