"""The cache of answers: each request is paid once, also across kills.

A key is the hash of the engine's name and the body of the request (prompt, seed, limits), without the server's address. An answer is
written to the store's journal before the caller gets it; `commit` moves the journal into a part of the table `answers`.

In memory while open: the answers, 0.5 to 1 KB each, without their prompts.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
import polars as pl

from storage.errors import HeadraceError
from storage.records import JSON
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from synth.engines.spending.ledger import Ledger

VERSION = 1
Answered = tuple[str, bytes, Mapping[str, JSON]]
"""Key, request body, and answer."""
_JOURNAL = "answers"


class Answers:
    """The answers of a store, committed or in the journal; thread-safe. Machines that share the store exchange what they have spent when it
    is opened and closed.

    run: name of the run that is noted with every new answer; empty for none.
    ledger: of the same store; what is asked is counted there. None: a new one.

    Raises:
        HeadraceError: the store is shared, and its object store is out of reach.
    """

    run = ""

    def __init__(self, store: Store, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger(store.root)
        self.ledger.exchange()
        self._store, self._journal = store, store.journal(_JOURNAL)
        self._lock = threading.Lock()
        stored = store.query("SELECT answer_id, answer FROM answers")
        self._known: dict[str, bytes] = {key: answer.encode() for key, answer in stored.iter_rows()}
        self._fresh: dict[str, Any] = dict(self._journal.entries())
        self._known |= {key: orjson.dumps(entry["answer"]) for key, entry in self._fresh.items()}
        self.hits = 0

    @staticmethod
    def key(engine: str, body: bytes) -> str:
        return hashlib.sha256(engine.encode() + b"\0" + body).hexdigest()[:32]

    def find(self, key: str) -> Mapping[str, Any] | None:
        data = self._known.get(key)
        if data is None:
            return None
        self.hits += 1
        answer: Mapping[str, Any] = orjson.loads(data)
        return answer

    def keep(self, engine: str, answered: Sequence[Answered]) -> None:
        """Writes answers to the disk.

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

    def spent_tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens of all answers that this run was the first to request, also before a kill; 0 without a run name."""
        if not self.run:
            return 0, 0
        with self._lock:
            fresh = dict(self._fresh)
        from_journal = [entry["answer"] for entry in fresh.values() if entry["answer"].get("run") == self.run]
        totals = self._store.query(
            """SELECT coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0) FROM answers
               WHERE answer ->> '$.run' = ? AND answer_id NOT IN (SELECT unnest(?::VARCHAR[]))""",
            [self.run, list(fresh)],  # a kill between the two steps of `commit` leaves an answer in both places
        ).row(0)
        return (
            int(totals[0]) + sum(answer.get("prompt_tokens", 0) for answer in from_journal),
            int(totals[1]) + sum(answer.get("completion_tokens", 0) for answer in from_journal),
        )

    def commit(self) -> Part | None:
        """Commits the journal as a part, and clears it; None if it is empty."""
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
        with suppress(HeadraceError):
            self.ledger.exchange()
        self.ledger.close()
