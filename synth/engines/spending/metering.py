"""The calls of an engine in the ledger of its store: reserved before each attempt, settled when answered.

One idea: where a reservation does not fit while others of this engine are open, in this process or another, it waits for them, because most
calls cost less than the most they can. If none is open, the month's budget is spent.

A prompt has at most as many tokens as its request has bytes, as every token of a tokenizer over bytes stands for one or more, and the JSON
around short texts is longer than what a chat template adds to them. A server that counts more is not believed (`believed`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from storage.errors import BadInput, HeadraceError
from synth.engines.budget import BudgetSpent
from synth.engines.server_errors import Problem
from synth.engines.spending.ledger import Ledger, Reservation
from synth.engines.spending.ledger_file import ledger_name
from synth.engines.spending.open_calls import OpenCalls

WAIT_S = 600.0
"""How long a call waits for the open calls of other processes."""
EXCHANGE_S = 15.0
"""How often machines that share a store tell each other what they have spent, while they ask."""
_POLL_S = 0.2
_LIMITS = ("max_tokens", "max_completion_tokens")
_UNLIMITED_TOKENS = 1 << 20
"""Of an answer whose request has no limit: more are not believed."""
_log = logging.getLogger(__name__)


class MostTokens(NamedTuple):
    """The most tokens that a request can take: of its prompt, and of all its answers; None: the request has no limit."""

    prompt: int
    completion: int | None

    def believed(self, prompt_tokens: int, completion_tokens: int) -> tuple[int, int]:
        """What a server has counted, at most the most that is possible."""
        most = _UNLIMITED_TOKENS if self.completion is None else self.completion
        return min(prompt_tokens, self.prompt), min(completion_tokens, most)


def most_tokens(body: Mapping[str, Any], size_bytes: int) -> MostTokens:
    """The most tokens of a request with this body, which has `size_bytes` as JSON."""
    limits = [int(body[key]) for key in _LIMITS if body.get(key) is not None]
    return MostTokens(size_bytes, max(limits) * int(body.get("n") or 1) if limits else None)


class EngineMeter:
    """The open calls of an engine, within one event loop. engine: its name. price: see `Reservation`."""

    def __init__(self, ledger: Ledger, engine: str, price: tuple[float, float]) -> None:
        self.ledger, self.engine, self.price = ledger, ledger_name(engine), price
        self._open = OpenCalls(ledger.path.with_name(f"{hashlib.sha256(self.engine.encode()).hexdigest()[:16]}.calls"))
        self._ended = asyncio.Event()
        self._has_told = self._has_warned = False
        self._exchange_at = time.monotonic() + EXCHANGE_S

    @property
    def open_calls(self) -> int:
        return self._open.count

    def call(self, most: MostTokens) -> CallMeter:
        """The meter of a request.

        Raises:
            BadInput: the request has no limit, so the most it can cost is not known, and the engine has a monthly budget.
        """
        if most.completion is None and (spent := self.ledger.spent(self.engine)) is not None and spent.budget is not None:
            raise BadInput(
                f"{self.engine} has a monthly budget, but a request without a limit of answer tokens may cost more; give max_tokens or "
                f"max_completion_tokens a number in `extra`, or remove {self.engine} from `budgets`"
            )
        return CallMeter(self, (most.prompt, most.completion or 0))

    def try_to_reserve(self, prompt_tokens: int, completion_tokens: int) -> Reservation | None:
        """Opens a call with its reservation; None if it does not fit into the month's budget now."""
        self._open.begin()
        reserved = None
        try:
            reserved = self.ledger.reserve(self.engine, prompt_tokens, completion_tokens, self.price)
        finally:
            if reserved is None:
                self._open.end()
        return reserved

    async def exchange_if_due(self) -> None:
        """Exchanges with other machines what was spent (`Ledger.exchange`). One that fails is tried again when the next is due, and the
        first is warned of."""
        if time.monotonic() >= self._exchange_at:
            self._exchange_at = time.monotonic() + EXCHANGE_S
            try:
                await asyncio.to_thread(self.ledger.exchange)
            except HeadraceError as error:
                if not self._has_warned:
                    _log.warning("%s: what other machines spend of its budget is not known now: %s", self.engine, error)
                self._has_warned = True

    async def wait_for_room(self, prompt_tokens: int, completion_tokens: int, since_s: float) -> None:
        """Waits until an open call may have ended. since_s: when calls of other processes alone were first waited for, monotonic.

        Raises:
            BudgetSpent: there is no room, and no call is open, or those of other processes did not end within `WAIT_S`.
        """
        if not self._open.count:
            needed = prompt_tokens + completion_tokens
            if self._is_spent(prompt_tokens, completion_tokens):
                raise BudgetSpent(self.describe(needed))
            if time.monotonic() > since_s + WAIT_S:
                raise BudgetSpent(f"others' calls have been open for {WAIT_S:g} s, and with what they hold {self.describe(needed)}")
            if not self._has_told:
                self._has_told = True
                _log.warning(
                    "the budget of %s has no room for a call while those of others are open; waits for them, at most %g s",
                    self.engine,
                    WAIT_S,
                )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), _POLL_S)

    def _is_spent(self, prompt_tokens: int, completion_tokens: int) -> bool:
        """Whether no call is open in any process, and a call still does not fit."""
        with self._open.none_is_open() as none_is_open:
            if not none_is_open:
                return False
            reserved = self.ledger.reserve(self.engine, prompt_tokens, completion_tokens, self.price)
            if reserved is not None:
                self.ledger.release(reserved)
            return reserved is None

    def end(self) -> None:
        """Called when an open call ends."""
        self._open.end()
        self._ended.set()
        self._ended = asyncio.Event()

    def describe(self, needed: int) -> str:
        """Why a call that may take `needed` tokens is not sent."""
        spent = self.ledger.spent(self.engine)
        assert spent is not None and spent.budget is not None
        of_tokens = f"{spent.counted_tokens:,} of {spent.budget.tokens:,} tokens" if spent.budget.tokens is not None else ""
        of_usd = f"{spent.counted_usd:.2f} of {spent.budget.usd:.2f} dollars" if spent.budget.usd is not None else ""
        return (
            f"the budget of {self.engine} for {spent.month} is spent: {' and '.join(filter(None, (of_tokens, of_usd)))}, and the next call "
            f"may take {needed:,} tokens; raise `budgets` in the configuration, or go on next month (`headrace ledger` shows all)"
        )


class CallMeter:
    """The attempts of one request (`Meter` of `http.py`). most: prompt and answer tokens."""

    def __init__(self, meter: EngineMeter, most: tuple[int, int]) -> None:
        self._meter, self._most = meter, most
        self._reserved: Reservation | None = None

    async def reserve(self) -> None:
        """Raises BudgetSpent: the month's budget has no room for the call."""
        meter, since_s = self._meter, time.monotonic()
        await meter.exchange_if_due()
        while (reserved := meter.try_to_reserve(*self._most)) is None:
            since_s = time.monotonic() if meter.open_calls else since_s
            await meter.wait_for_room(*self._most, since_s)
        self._reserved = reserved

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
