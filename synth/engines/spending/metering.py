"""The calls of an engine in the ledger of its store: reserved before each attempt, settled when answered.

One idea: where a reservation does not fit while others of this engine are open, it waits for them, because most calls cost less than the
most they can. If none is open, the month's budget is spent.

A prompt has at most as many tokens as its request has bytes, as every token of a tokenizer over bytes stands for one or more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from synth.engines.budget import BudgetSpent
from synth.engines.server_errors import Problem
from synth.engines.spending.ledger import Ledger, Reservation

_LIMITS = ("max_tokens", "max_completion_tokens")


class EngineMeter:
    """The open calls of an engine, within one event loop. engine: its name. price: see `Reservation`."""

    def __init__(self, ledger: Ledger, engine: str, price: tuple[float, float]) -> None:
        self.ledger, self.engine, self.price = ledger, ledger_name(engine), price
        self.open_calls = 0
        self._ended = asyncio.Event()

    def call(self, body: Mapping[str, Any], size_bytes: int) -> CallMeter:
        """The meter of a request with this body."""
        longest = max((int(body[key]) for key in _LIMITS if key in body), default=0)
        return CallMeter(self, size_bytes, longest * int(body.get("n") or 1))

    async def wait(self) -> None:
        """Waits until an open call ends."""
        await self._ended.wait()

    def end(self) -> None:
        """Called when an open call ends."""
        self.open_calls -= 1
        self._ended.set()
        self._ended = asyncio.Event()

    def describe(self, needed: int) -> str:
        """Why a call that may take `needed` tokens is not sent."""
        spent = self.ledger.spent(self.engine)
        assert spent is not None and spent.budget is not None
        counted = spent.prompt_tokens + spent.completion_tokens + spent.open_tokens
        of_tokens = f"{counted:,} of {spent.budget.tokens:,} tokens" if spent.budget.tokens is not None else ""
        of_usd = f"{spent.usd + spent.open_usd:.2f} of {spent.budget.usd:.2f} dollars" if spent.budget.usd is not None else ""
        return (
            f"the budget of {self.engine} for {spent.month} is spent: {' and '.join(filter(None, (of_tokens, of_usd)))}, and the next call "
            f"may take {needed:,} tokens; raise `budgets` in the configuration, or go on next month (`headrace ledger` shows all)"
        )


class CallMeter:
    """The attempts of one request (`Meter` of `http.py`)."""

    def __init__(self, meter: EngineMeter, prompt_tokens: int, completion_tokens: int) -> None:
        self._meter, self._most = meter, (prompt_tokens, completion_tokens)
        self._reserved: Reservation | None = None

    async def reserve(self) -> None:
        """Raises BudgetSpent: the month's budget has no room for the call."""
        meter = self._meter
        while (reserved := meter.ledger.reserve(meter.engine, *self._most, meter.price)) is None:
            if not meter.open_calls:
                raise BudgetSpent(meter.describe(sum(self._most)))
            await meter.wait()
        self._reserved = reserved
        meter.open_calls += 1

    def release(self, problem: Problem) -> None:
        """Frees the reservation, unless the attempt may have been billed."""
        if self._reserved is not None and problem.is_free:
            self._meter.ledger.release(self._reserved)
        self.close()

    def settle(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Books the answer; of a server that does not count tokens, the most that it can have cost."""
        if self._reserved is not None:
            counts = (prompt_tokens, completion_tokens) if prompt_tokens or completion_tokens else self._most
            self._meter.ledger.settle(self._reserved, *counts)
        self.close()

    def close(self) -> None:
        """Ends the call; a reservation that was neither settled nor freed stays in the ledger."""
        if self._reserved is not None:
            self._reserved = None
            self._meter.end()


def ledger_name(engine: str) -> str:
    """An engine's name in the ledger: without the hash of local weights."""
    return engine.partition("@")[0] if engine.startswith("vllm:") else engine
