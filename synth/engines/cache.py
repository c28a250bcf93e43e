"""The answers that were paid for: each whole request is answered once, and never lost.

A key is the hash of the engine's name and the whole body of the request, so a changed prompt, seed or limit is another request, and the
server's address is none of it. An answer goes into the store's journal before anyone uses it, and with `commit` into a part of the table
`answers`. Who asks again, in this run or after a kill, gets what was answered the first time.

In memory, as long as it is open: the answers, some 0.5 to 1 KB each (their prompts stay on the disk).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import polars as pl

from storage.records import JSON
from storage.store import Part, Store, part_id
from storage.tables import TABLES

VERSION = 1
Answered = tuple[str, bytes, Mapping[str, JSON]]
"""Key, whole request, and what is kept of the answer."""
_JOURNAL = "answers"


class Answers:
    """What a store holds of answers, committed or in the journal; safe to use from several threads.

    run: who asks from now on, noted with every answer; empty where nobody needs to know."""

    run = ""

    def __init__(self, store: Store) -> None:
        self._store, self._journal = store, store.journal(_JOURNAL)
        self._lock = threading.Lock()
        kept = store.query("SELECT answer_id, answer FROM answers")
        self._known: dict[str, bytes] = {key: answer.encode() for key, answer in kept.iter_rows()}
        self._fresh: dict[str, Any] = dict(self._journal.entries())
        self._known |= {key: orjson.dumps(entry["answer"]) for key, entry in self._fresh.items()}
        self.hits = 0

    @staticmethod
    def key(engine: str, body: bytes) -> str:
        return hashlib.sha256(engine.encode() + b"\0" + body).hexdigest()[:32]

    def find(self, key: str) -> Mapping[str, Any] | None:
        found = self._known.get(key)
        if found is None:
            return None
        self.hits += 1
        answer: Mapping[str, Any] = orjson.loads(found)
        return answer

    def keep(self, engine: str, answered: Sequence[Answered]) -> None:
        """Keeps answers, on the disk before this returns.

        Raises:
            HeadraceError: the disk is full.
        """
        entries = [
            (key, {"engine": engine, "request": body.decode(), "answer": dict(answer) | ({"run": self.run} if self.run else {})})
            for key, body, answer in answered
        ]
        self._journal.append_all(entries)
        with self._lock:
            for (key, entry), (_, _, answer) in zip(entries, answered, strict=True):
                self._known.setdefault(key, orjson.dumps(answer))
                self._fresh.setdefault(key, entry)

    def spent(self) -> tuple[int, int]:
        """Prompt and completion tokens of all answers that this run asked for first, also before a kill; 0 without its name."""
        if not self.run:
            return 0, 0
        with self._lock:
            fresh = dict(self._fresh)
        own = [entry["answer"] for entry in fresh.values() if entry["answer"].get("run") == self.run]
        kept = self._store.query(
            """SELECT coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0) FROM answers
               WHERE answer ->> '$.run' = ? AND answer_id NOT IN (SELECT unnest(?::VARCHAR[]))""",
            [self.run, list(fresh)],  # a kill between the two steps of `commit` leaves an answer in both places
        ).row(0)
        return (
            int(kept[0]) + sum(answer.get("prompt_tokens", 0) for answer in own),
            int(kept[1]) + sum(answer.get("completion_tokens", 0) for answer in own),
        )

    def commit(self) -> Part | None:
        """Commits what the journal holds as a part, and clears it; None where it holds nothing."""
        with self._lock:
            fresh, self._fresh = self._fresh, {}
        if not fresh:
            return None
        rows = [
            {
                "answer_id": key,
                "engine": entry["engine"],
                "request": entry["request"],
                "answer": orjson.dumps(entry["answer"]).decode(),
                "prompt_tokens": entry["answer"].get("prompt_tokens", 0),
                "completion_tokens": entry["answer"].get("completion_tokens", 0),
                "latency_s": entry["answer"].get("latency_s"),
            }
            for key, entry in sorted(fresh.items())
        ]
        identity = part_id("answers", sorted(fresh), {}, VERSION)
        part = self._store.find(identity) or self._store.write("answers", identity, pl.DataFrame(rows, schema=TABLES["answers"].columns))
        self._store.commit([part])
        self._journal.discard(fresh.keys())
        return part

    def close(self) -> None:
        self._journal.close()
