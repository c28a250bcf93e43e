"""The ledger of a store: what each engine was asked and paid for in each calendar month (UTC), and the budgets of these months.

One idea: the most that a call can cost is reserved before it is sent, and replaced by what it did cost when it is answered. A call that
is refused frees its reservation. A call without an answer (time-out, cut short, a killed process) may have been billed, so its
reservation stays: what is counted is never below the bill, and no budget is overrun, by no number of processes and kills.
Of a store that machines share, each has its own ledger, and `exchange` counts in it what the others have spent.

The rows lie in SQLite, beside the store's parts: they change with every call, several processes write them, and no content hash may
depend on them. Money is in whole nanodollars, so sums are exact. Each transaction is on the disk at its end, also after a power cut.
"""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from storage.errors import HeadraceError
from storage.files import file_lock
from storage.object_store.shared_log import SharedLog
from synth.engines.budget import MonthlyBudget
from synth.engines.spending.ledger_file import NANO, nano_usd, open_ledger, to_budget
from synth.engines.spending.other_machines import MonthSum, exchange_sums

_ADD = """
INSERT INTO months VALUES (:month, :engine, :calls, :prompt_tokens, :completion_tokens, :nano_usd,
  :open_calls, :open_tokens, :open_nano_usd)
ON CONFLICT (month, engine) DO UPDATE SET
  calls = calls + :calls, prompt_tokens = prompt_tokens + :prompt_tokens, completion_tokens = completion_tokens + :completion_tokens,
  nano_usd = nano_usd + :nano_usd, open_calls = open_calls + :open_calls, open_tokens = open_tokens + :open_tokens,
  open_nano_usd = open_nano_usd + :open_nano_usd
"""
_PRICE = """
UPDATE months SET nano_usd = CAST(round((? * prompt_tokens + ? * completion_tokens) * 1000) AS INTEGER)
WHERE month = ? AND engine = ? AND nano_usd = 0
"""
NEAR_END = 0.2
"""Share of a month's limit that is left when it is near its end."""
_COUNTED = """
SELECT coalesce(sum(tokens), 0), coalesce(sum(nano_usd), 0) FROM (
  SELECT month, engine, prompt_tokens + completion_tokens + open_tokens AS tokens, nano_usd + open_nano_usd AS nano_usd FROM months
  UNION ALL SELECT * FROM other_machines)
WHERE month = ? AND engine = ?
"""
_OWN = "SELECT month, engine, prompt_tokens + completion_tokens + open_tokens, nano_usd + open_nano_usd FROM months"
_EXCHANGE_WAIT_S = 60.0
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
    other_tokens, other_usd: of other machines that share the store, both kinds of calls, when last exchanged.
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
    other_tokens: int
    other_usd: float
    budget: MonthlyBudget | None

    @property
    def counted_tokens(self) -> int:
        """Tokens that count against the budget."""
        return self.prompt_tokens + self.completion_tokens + self.open_tokens + self.other_tokens

    @property
    def counted_usd(self) -> float:
        """US dollars that count against the budget."""
        return self.usd + self.open_usd + self.other_usd

    @property
    def tokens_left(self) -> int | None:
        """Tokens that may still be spent; None: no limit."""
        if self.budget is None or self.budget.tokens is None:
            return None
        return max(0, self.budget.tokens - self.counted_tokens)

    @property
    def usd_left(self) -> float | None:
        """US dollars that may still be spent; None: no limit."""
        if self.budget is None or self.budget.usd is None:
            return None
        return max(0.0, round(self.budget.usd - self.counted_usd, 9))


class Limit(NamedTuple):
    """A limit of an engine's month. unit: tokens or usd. limit: of the month, in this unit."""

    month: str
    engine: str
    unit: str
    limit: float


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Ledger:
    """The ledger of the store in folder `root`; nothing is on disk until the first call. Safe to use from threads and processes.

    now: the time, with its zone.

    Every method raises HeadraceError if the file cannot be read or written.
    """

    def __init__(self, root: Path, now: Callable[[], datetime.datetime] = _now) -> None:
        self.path, self._root, self._now = root / "lake" / "_ledger" / "ledger.sqlite", root, now
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def set_budgets(self, budgets: Mapping[str, MonthlyBudget]) -> None:
        """Replaces all budgets. budgets: by engine. Calls of this month that had no price get that of their engine's budget."""
        rows = [
            (engine, one.tokens, None if one.usd is None else round(one.usd * NANO), *one.usd_per_million)
            for engine, one in budgets.items()
        ]
        with self._transaction() as connection:
            connection.execute("DELETE FROM budgets")
            connection.executemany("INSERT INTO budgets VALUES (?, ?, ?, ?, ?)", rows)
            for engine, one in budgets.items():
                connection.execute(_PRICE, (*one.usd_per_million, self._month(), engine))

    def reserve(self, engine: str, prompt_tokens: int, completion_tokens: int, price: tuple[float, float]) -> Reservation | None:
        """Reserves the most that a call may cost in the current month; None if it does not fit into the engine's budget.

        price: as `Reservation`; that of the engine's budget comes first, if it has one.
        """
        month = self._month()
        with self._transaction() as connection:
            budget = connection.execute("SELECT tokens, nano_usd, usd_in, usd_out FROM budgets WHERE engine = ?", (engine,)).fetchone()
            if budget is not None and any(budget[2:]):
                price = budget[2:]
            asked = Reservation(month, engine, prompt_tokens + completion_tokens, nano_usd(price, prompt_tokens, completion_tokens), price)
            if budget is not None and not _fits(connection, asked, budget[0], budget[1]):
                return None
            _add(connection, asked, open_calls=1)
        return asked

    def settle(self, reserved: Reservation, prompt_tokens: int, completion_tokens: int) -> None:
        """Replaces a reservation by what the call did cost."""
        nano = nano_usd(reserved.price, prompt_tokens, completion_tokens)
        cost = {"calls": 1, "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "nano_usd": nano}
        with self._transaction() as connection:
            _add(connection, reserved, open_calls=-1, **cost)

    def release(self, reserved: Reservation) -> None:
        """Removes the reservation of a call that cost nothing."""
        with self._transaction() as connection:
            _add(connection, reserved, open_calls=-1)

    def exchange(self) -> None:
        """Tells the machines that share the store what this one has spent, and counts what they have; does nothing in any other store.

        Raises:
            HeadraceError: the object store is out of reach.
        """
        shared = SharedLog.of(self._root)
        if shared is not None:
            with file_lock(self.path.with_name("exchange.lock"), wait_s=_EXCHANGE_WAIT_S):  # no process writes older sums over newer ones
                with self._transaction() as connection:
                    own = [MonthSum(*row) for row in connection.execute(_OWN)]
                others = exchange_sums(shared, own)
                with self._transaction() as connection:
                    connection.execute("DELETE FROM other_machines")
                    connection.executemany("INSERT INTO other_machines VALUES (?, ?, ?, ?)", others)

    def months(self) -> list[MonthSpent]:
        """All months of all engines, the latest first; of an engine with a budget also the current one, where it was not asked yet."""
        if not self.path.exists():
            return []
        with self._transaction() as connection:
            rows = connection.execute("SELECT * FROM months").fetchall()
            budgets = {engine: to_budget(*limits) for engine, *limits in connection.execute("SELECT * FROM budgets")}
            others = {(month, engine): spent for month, engine, *spent in connection.execute("SELECT * FROM other_machines")}
        current = self._month()
        unasked = {*((current, engine) for engine in budgets), *others} - {(month, engine) for month, engine, *_ in rows}
        rows += [(*key, *(0,) * 7) for key in unasked]
        spent = [
            MonthSpent(
                *(month, engine, calls, prompt, completion, nano / NANO, open_calls, open_tokens, open_nano / NANO),
                other_tokens=others.get((month, engine), (0, 0))[0],
                other_usd=others.get((month, engine), (0, 0))[1] / NANO,
                budget=budgets.get(engine),
            )
            for month, engine, calls, prompt, completion, nano, open_calls, open_tokens, open_nano in rows
        ]
        return sorted(sorted(spent, key=lambda one: one.engine), key=lambda one: one.month, reverse=True)

    def spent(self, engine: str) -> MonthSpent | None:
        """The current month of an engine; None if it was not asked in it and has no budget."""
        current = self._month()
        return next((one for one in self.months() if (one.month, one.engine) == (current, engine)), None)

    def limits_near_end(self) -> list[Limit]:
        """Limits of the current month of which `NEAR_END` or less is left, and that `note_told` has not noted."""
        near = [
            Limit(one.month, one.engine, unit, limit)
            for one in self.months()
            if one.budget is not None and one.month == self._month()
            for unit, limit, left in (("tokens", one.budget.tokens, one.tokens_left), ("usd", one.budget.usd, one.usd_left))
            if limit is not None and left is not None and left <= NEAR_END * limit
        ]
        if not near:
            return []
        with self._transaction() as connection:
            told = {Limit(*row) for row in connection.execute("SELECT * FROM told")}
        return [limit for limit in near if limit not in told]

    def note_told(self, limit: Limit) -> None:
        """Note that the user was told of a limit near its end."""
        with self._transaction() as connection:
            connection.execute("INSERT INTO told VALUES (?, ?, ?, ?)", limit)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _month(self) -> str:
        return self._now().astimezone(datetime.UTC).strftime("%Y-%m")

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that is at the path now: another process may have begun a damaged one anew."""
        if self._connection is not None and self._file != _file_at(self.path):
            self._close()
        if self._connection is None:
            self._connection = open_ledger(self.path, self._now())
            self._file = _file_at(self.path)
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes all other writers; it is on the disk at its end, or nothing of it is."""
        with self._lock:
            try:
                connection = self._open()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except (sqlite3.Error, OSError) as error:
                raise HeadraceError(f"the ledger {self.path} cannot be used: {error}") from error


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _add(connection: sqlite3.Connection, reserved: Reservation, *, open_calls: int, **cost: int) -> None:
    """Adds a reservation to its month (open_calls 1), or takes it out (-1) and adds what the call cost."""
    opened = {"open_calls": open_calls, "open_tokens": open_calls * reserved.tokens, "open_nano_usd": open_calls * reserved.nano_usd}
    connection.execute(_ADD, {"month": reserved.month, "engine": reserved.engine, **_NOTHING, **cost, **opened})


def _fits(connection: sqlite3.Connection, asked: Reservation, tokens: int | None, nano: int | None) -> bool:
    counted_tokens, counted_nano_usd = connection.execute(_COUNTED, (asked.month, asked.engine)).fetchone()
    return (tokens is None or counted_tokens + asked.tokens <= tokens) and (nano is None or counted_nano_usd + asked.nano_usd <= nano)
