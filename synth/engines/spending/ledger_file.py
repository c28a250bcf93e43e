"""The file of a ledger: opened, checked, and begun anew where it is damaged.

One idea: a damaged file (bytes flipped, zeroed, cut) blocks no run. It is set aside, and the new ledger's current month begins with what
the store's answers have cost: a lower bound, as calls without an answer are in no table. It does not find a number that was altered in
place: SQLite keeps no checksums.
"""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from storage.files import file_lock
from storage.parts import read_part
from storage.store import Store
from synth.engines.budget import MonthlyBudget

NANO = 1_000_000_000
_WAIT_S = 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS budgets (engine TEXT PRIMARY KEY, tokens INTEGER, nano_usd INTEGER, usd_in REAL NOT NULL, usd_out REAL NOT NULL);
CREATE TABLE IF NOT EXISTS months (
  month TEXT, engine TEXT, calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
  nano_usd INTEGER NOT NULL, open_calls INTEGER NOT NULL, open_tokens INTEGER NOT NULL, open_nano_usd INTEGER NOT NULL,
  PRIMARY KEY (month, engine));
CREATE TABLE IF NOT EXISTS told (month TEXT, engine TEXT, unit TEXT, amount REAL NOT NULL);
CREATE TABLE IF NOT EXISTS other_machines (
  month TEXT, engine TEXT, tokens INTEGER NOT NULL, nano_usd INTEGER NOT NULL, PRIMARY KEY (month, engine))
"""
_NO_DAMAGE = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
    | {sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_INTERRUPT}
)
_log = logging.getLogger(__name__)


def open_ledger(path: Path, now: datetime.datetime) -> sqlite3.Connection:
    """A connection to the ledger at `path`, which is made if it is not there, and made anew if it is damaged (one warning).

    Raises:
        sqlite3.Error, OSError: the file is not damaged, but cannot be used.
        HeadraceError: another process has been opening it for a minute; the store's answers cannot be read.
    """
    with file_lock(path.with_name("opening.lock"), wait_s=_WAIT_S):
        if path.exists() and (damage := _damage(path)):
            _begin_anew(path, damage, now.astimezone(datetime.UTC))
        return _connect(path)


def nano_usd(price: tuple[float, float], prompt_tokens: int, completion_tokens: int) -> int:
    """What tokens cost in nanodollars. price: US dollars of a million prompt tokens, and of a million answer tokens."""
    return round((price[0] * prompt_tokens + price[1] * completion_tokens) * (NANO / 1e6))


def to_budget(tokens: int | None, nano: int | None, usd_in: float, usd_out: float) -> MonthlyBudget:
    """The budget of a row of table `budgets`. Raises ValueError: it is none."""
    return MonthlyBudget(tokens=tokens, usd=None if nano is None else nano / NANO, usd_per_million=(usd_in, usd_out))


def ledger_name(engine: str) -> str:
    """An engine's name in the ledger: without the hash of local weights."""
    return engine.partition("@")[0] if engine.startswith("vllm:") else engine


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_TABLES)
    except BaseException:
        connection.close()
        raise
    return connection


def _damage(path: Path) -> str:
    """What is wrong with the file; empty if nothing is."""
    if not path.stat().st_size:
        return "it is empty"
    try:
        with closing(_connect(path)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            connection.execute("SELECT sum(prompt_tokens + open_tokens) FROM months").fetchone()
        return "" if found == "ok" else str(found)
    except sqlite3.DatabaseError as error:
        code = error.sqlite_errorcode & 0xFF
        is_read_only = code == sqlite3.SQLITE_READONLY and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
        if code in _NO_DAMAGE or is_read_only:
            raise
        return str(error)


def _begin_anew(path: Path, damage: str, now: datetime.datetime) -> None:
    """Replaces a damaged ledger; a kill at any time leaves either it or the new one."""
    budgets, spent = _read_budgets(path), _sum_of_answers(path.parents[2], now)
    fresh = path.with_name(".tmp-ledger.sqlite")
    fresh.unlink(missing_ok=True)
    with closing(_connect(fresh)) as connection:
        connection.executemany("INSERT INTO budgets VALUES (?, ?, ?, ?, ?)", budgets)
        for engine, (calls, prompt, completion) in spent.items():
            price = next((row[3:] for row in budgets if row[0] == engine), (0.0, 0.0))
            row = (f"{now:%Y-%m}", engine, calls, prompt, completion, nano_usd(price, prompt, completion), 0, 0, 0)
            connection.execute("INSERT INTO months VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    aside = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%S.%f}")
    shutil.copyfile(path, aside)
    for suffix in ("-wal", "-shm"):
        if (beside := path.with_name(f"{path.name}{suffix}")).exists():
            beside.replace(aside.with_name(f"{aside.name}{suffix}"))
    fresh.replace(path)
    _log.warning(
        "the ledger %s was damaged (%s) and lies at %s now; the new one counts this month what the store's answers have cost, which may be "
        "less than the bill, and has %s",
        path,
        damage,
        aside.name,
        "the same budgets" if budgets else "no budget until a command with a configuration gives it one",
    )


def _read_budgets(path: Path) -> list[Any]:
    """The budgets of a damaged ledger, as far as they can be read."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT engine, tokens, nano_usd, usd_in, usd_out FROM budgets").fetchall()
        return [row for row in rows if to_budget(*row[1:])]
    except (sqlite3.Error, ValueError, TypeError):
        return []


def _sum_of_answers(root: Path, now: datetime.datetime) -> dict[str, tuple[int, int, int]]:
    """Calls, prompt and answer tokens by engine, of the answers that were committed in this month or are still in the journal."""
    store = Store(root)
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    parts = store.query(
        "SELECT path FROM parts WHERE table_name = 'answers' AND epoch_us(committed_at) >= ?", [int(begin.timestamp() * 1_000_000)]
    )
    found: dict[str, tuple[str, int, int]] = {}
    columns = ["answer_id", "engine", "prompt_tokens", "completion_tokens"]
    for path in parts["path"]:
        found |= {key: (engine, prompt, completion) for key, engine, prompt, completion in read_part(root, path, columns).iter_rows()}
    entries: dict[str, Any] = dict(store.journal("answers").entries())
    for key, entry in entries.items():
        answer = entry["answer"]
        found.setdefault(key, (entry["engine"], answer.get("prompt_tokens", 0), answer.get("completion_tokens", 0)))
    sums: dict[str, tuple[int, int, int]] = {}
    for engine, prompt, completion in found.values():
        name = ledger_name(engine)
        calls, prompts, completions = sums.get(name, (0, 0, 0))
        sums[name] = calls + 1, prompts + prompt, completions + completion
    return sums
