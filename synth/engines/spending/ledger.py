"""The ledger of a store: what each engine was asked and paid for in each calendar month (UTC), and the budgets of these months.

One idea: the most that a call can cost is reserved before it is sent, and replaced by what it did cost when it is answered. A call that
is refused frees its reservation. A call without an answer (time-out, cut short, a killed process) may have been billed, so its
reservation stays: what is counted is never below the bill, and no budget is overrun, by no number of processes and kills.

The rows lie in SQLite, beside the store's parts: they change with every call, several processes write them, and no content hash may
depend on them. Money is in whole nanodollars, so sums are exact.
"""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage.errors import HeadraceError
from synth.engines.budget import MonthlyBudget

_NANO = 1_000_000_000
_WAIT_S = 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS budgets (engine TEXT PRIMARY KEY, tokens INTEGER, nano_usd INTEGER, usd_in REAL NOT NULL, usd_out REAL NOT NULL);
CREATE TABLE IF NOT EXISTS months (
  month TEXT, engine TEXT, calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
  nano_usd INTEGER NOT NULL, open_calls INTEGER NOT NULL, open_tokens INTEGER NOT NULL, open_nano_usd INTEGER NOT NULL,
  PRIMARY KEY (month, engine))
"""
_ADD = """
INSERT INTO months VALUES (:month, :engine, :calls, :prompt_tokens, :completion_tokens, :nano_usd,
  :open_calls, :open_tokens, :open_nano_usd)
ON CONFLICT (month, engine) DO UPDATE SET
  calls = calls + :calls, prompt_tokens = prompt_tokens + :prompt_tokens, completion_tokens = completion_tokens + :completion_tokens,
  nano_usd = nano_usd + :nano_usd, open_calls = open_calls + :open_calls, open_tokens = open_tokens + :open_tokens,
  open_nano_usd = open_nano_usd + :open_nano_usd
"""
_NOTHING = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "nano_usd": 0}


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a call may cost at most. price: US dollars of a million prompt tokens, and of a million answer tokens."""

    month: str
    engine: str
    tokens: int
    nano_usd: int
    price: tuple[float, float]


@dataclass(frozen=True, slots=True)
class MonthSpent:
    """An engine's month.

    month: as 2026-11. calls: that were answered, with their tokens and dollars.
    open_calls: without an answer so far, which may have been billed, with the most that they can have cost.
    budget: None: no limit.
    """

    month: str
    engine: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    open_calls: int
    open_tokens: int
    open_usd: float
    budget: MonthlyBudget | None

    @property
    def tokens_left(self) -> int | None:
        """Tokens that may still be spent; None: no limit."""
        if self.budget is None or self.budget.tokens is None:
            return None
        return max(0, self.budget.tokens - self.prompt_tokens - self.completion_tokens - self.open_tokens)

    @property
    def usd_left(self) -> float | None:
        """US dollars that may still be spent; None: no limit."""
        if self.budget is None or self.budget.usd is None:
            return None
        return max(0.0, round(self.budget.usd - self.usd - self.open_usd, 9))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Ledger:
    """The ledger of the store in folder `root`; nothing is on disk until the first call. Safe to use from threads and processes.

    now: the time, with its zone.

    Every method raises HeadraceError if the file cannot be read or written.
    """

    def __init__(self, root: Path, now: Callable[[], datetime.datetime] = _now) -> None:
        self.path, self._now = root / "lake" / "_ledger" / "ledger.sqlite", now
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def set_budgets(self, budgets: Mapping[str, MonthlyBudget]) -> None:
        """Replaces all budgets. budgets: by engine."""
        rows = [
            (engine, one.tokens, None if one.usd is None else round(one.usd * _NANO), *one.usd_per_million)
            for engine, one in budgets.items()
        ]
        with self._transaction() as connection:
            connection.execute("DELETE FROM budgets")
            connection.executemany("INSERT INTO budgets VALUES (?, ?, ?, ?, ?)", rows)

    def reserve(self, engine: str, prompt_tokens: int, completion_tokens: int, price: tuple[float, float]) -> Reservation | None:
        """Reserves the most that a call may cost in the current month; None if it does not fit into the engine's budget.

        price: as `Reservation`; that of the engine's budget comes first, if it has one.
        """
        month = self._now().astimezone(datetime.UTC).strftime("%Y-%m")
        with self._transaction() as connection:
            budget = connection.execute("SELECT tokens, nano_usd, usd_in, usd_out FROM budgets WHERE engine = ?", (engine,)).fetchone()
            if budget is not None and any(budget[2:]):
                price = budget[2:]
            asked = Reservation(month, engine, prompt_tokens + completion_tokens, _nano_usd(price, prompt_tokens, completion_tokens), price)
            if budget is not None and not _fits(connection, asked, budget[0], budget[1]):
                return None
            _add(connection, asked, open_calls=1)
        return asked

    def settle(self, reserved: Reservation, prompt_tokens: int, completion_tokens: int) -> None:
        """Replaces a reservation by what the call did cost."""
        nano_usd = _nano_usd(reserved.price, prompt_tokens, completion_tokens)
        cost = {"calls": 1, "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "nano_usd": nano_usd}
        with self._transaction() as connection:
            _add(connection, reserved, open_calls=-1, **cost)

    def release(self, reserved: Reservation) -> None:
        """Removes the reservation of a call that cost nothing."""
        with self._transaction() as connection:
            _add(connection, reserved, open_calls=-1)

    def months(self) -> list[MonthSpent]:
        """All months of all engines, the latest first; of an engine with a budget also the current one, where it was not asked yet."""
        if not self.path.exists():
            return []
        with self._transaction() as connection:
            rows = connection.execute("SELECT * FROM months").fetchall()
            budgets = {engine: _budget(*limits) for engine, *limits in connection.execute("SELECT * FROM budgets")}
        current = self._now().astimezone(datetime.UTC).strftime("%Y-%m")
        known = {(month, engine) for month, engine, *_ in rows}
        rows += [(current, engine, *(0,) * 7) for engine in budgets if (current, engine) not in known]
        spent = [
            MonthSpent(
                month, engine, calls, prompt, completion, nano / _NANO, open_calls, open_tokens, open_nano / _NANO, budgets.get(engine)
            )
            for month, engine, calls, prompt, completion, nano, open_calls, open_tokens, open_nano in rows
        ]
        return sorted(sorted(spent, key=lambda one: one.engine), key=lambda one: one.month, reverse=True)

    def spent(self, engine: str) -> MonthSpent | None:
        """The current month of an engine; None if it was not asked in it and has no budget."""
        current = self._now().astimezone(datetime.UTC).strftime("%Y-%m")
        return next((one for one in self.months() if (one.month, one.engine) == (current, engine)), None)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes all other writers; it is on the disk at its end, or nothing of it is."""
        with self._lock:
            try:
                connection = self._connection = self._connection or _connect(self.path)
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except (sqlite3.Error, OSError) as error:
                raise HeadraceError(f"the ledger {self.path} cannot be used: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(_TABLES)
    return connection


def _add(connection: sqlite3.Connection, reserved: Reservation, *, open_calls: int, **cost: int) -> None:
    """Adds a reservation to its month (open_calls 1), or takes it out (-1) and adds what the call cost."""
    opened = {"open_calls": open_calls, "open_tokens": open_calls * reserved.tokens, "open_nano_usd": open_calls * reserved.nano_usd}
    connection.execute(_ADD, {"month": reserved.month, "engine": reserved.engine, **_NOTHING, **cost, **opened})


def _fits(connection: sqlite3.Connection, asked: Reservation, tokens: int | None, nano_usd: int | None) -> bool:
    row = connection.execute(
        "SELECT prompt_tokens + completion_tokens + open_tokens, nano_usd + open_nano_usd FROM months WHERE month = ? AND engine = ?",
        (asked.month, asked.engine),
    ).fetchone()
    counted_tokens, counted_nano_usd = row or (0, 0)
    return (tokens is None or counted_tokens + asked.tokens <= tokens) and (
        nano_usd is None or counted_nano_usd + asked.nano_usd <= nano_usd
    )


def _nano_usd(price: tuple[float, float], prompt_tokens: int, completion_tokens: int) -> int:
    return round((price[0] * prompt_tokens + price[1] * completion_tokens) * (_NANO / 1e6))


def _budget(tokens: int | None, nano_usd: int | None, usd_in: float, usd_out: float) -> MonthlyBudget:
    return MonthlyBudget(tokens=tokens, usd=None if nano_usd is None else nano_usd / _NANO, usd_per_million=(usd_in, usd_out))
