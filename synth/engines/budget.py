"""The budget of a run in tokens or money. When it is spent, no further request is sent; answers to requests in flight still arrive.

Each answer counts once. A named run starts with what it had spent before it was killed (`begin`); without a name, cached answers count when
they are used.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.errors import BadInput, HeadraceError


class BudgetSpent(HeadraceError):
    """The budget is used up: the run stops, and its results so far are kept."""


@dataclass(slots=True)
class Budget:
    """tokens, usd: limits, None for no limit. usd_per_million: price of a million prompt tokens, and of completion tokens."""

    tokens: int | None = None
    usd: float | None = None
    usd_per_million: tuple[float, float] = (0.0, 0.0)
    spent_tokens: int = 0
    spent_usd: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Raises BadInput if dollars are limited without prices."""
        if min(self.usd_per_million) < 0 or (self.usd is not None and not any(self.usd_per_million)):
            raise BadInput("a budget in dollars needs the price of a million prompt tokens and of a million answer tokens, not below 0")

    def cost_usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Price of an answer in US dollars."""
        prompt, completion = self.usd_per_million
        return (prompt * prompt_tokens + completion * completion_tokens) / 1e6

    def begin(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Resets the counts to what was spent before."""
        with self._lock:
            self.spent_tokens, self.spent_usd = prompt_tokens + completion_tokens, self.cost_usd(prompt_tokens, completion_tokens)

    def add(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Counts an answer."""
        with self._lock:
            self.spent_tokens += prompt_tokens + completion_tokens
            self.spent_usd += self.cost_usd(prompt_tokens, completion_tokens)

    @property
    def is_spent(self) -> bool:
        return (self.tokens is not None and self.spent_tokens >= self.tokens) or (self.usd is not None and self.spent_usd >= self.usd)

    def check(self) -> None:
        """Raises BudgetSpent if the budget is used up."""
        if self.tokens is not None and self.spent_tokens >= self.tokens:
            raise BudgetSpent(f"the budget is spent: {self.spent_tokens:,} of {self.tokens:,} tokens; raise it and run the same again")
        if self.usd is not None and self.spent_usd >= self.usd:
            raise BudgetSpent(f"the budget is spent: {self.spent_usd:.2f} of {self.usd:.2f} dollars; raise it and run the same again")


class MonthlyBudget(BaseModel):
    """What an engine may cost in a calendar month (UTC), in all runs on a store together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int | None = Field(None, ge=1, description="Prompt and answer tokens of a month; null: no limit.")
    usd: float | None = Field(None, gt=0, description="US dollars of a month, by `usd_per_million`; null: no limit.")
    usd_per_million: tuple[float, float] = Field(
        (0.0, 0.0), description="Price in US dollars of a million prompt tokens, and of a million answer tokens."
    )

    @model_validator(mode="after")
    def _has_prices(self) -> Self:
        _check_prices(self.usd_per_million, self.usd, "usd")
        return self


class AskingConfig(BaseModel):
    """Limits of requests to engines, and their budget."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    in_flight: int = Field(64, ge=1, le=4096, description="Conversations at once.")
    timeout_s: float = Field(120.0, gt=0, description="Time limit of one attempt of a request, in seconds; then it is sent again.")
    max_tokens: int | None = Field(None, ge=1, description="Budget of prompt and answer tokens of servers; null: no limit.")
    max_usd: float | None = Field(None, gt=0, description="Budget in US dollars, by `usd_per_million`; null: no limit.")
    usd_per_million: tuple[float, float] = Field(
        (0.0, 0.0), description="Price in US dollars of a million prompt tokens, and of a million answer tokens."
    )

    @model_validator(mode="after")
    def _has_prices(self) -> Self:
        _check_prices(self.usd_per_million, self.max_usd, "max_usd")
        return self

    def budget(self) -> Budget:
        return Budget(tokens=self.max_tokens, usd=self.max_usd, usd_per_million=self.usd_per_million)


def _check_prices(usd_per_million: tuple[float, float], limit: float | None, key: str) -> None:
    """Raises ValueError: a price is negative, or dollars are limited without prices."""
    if min(usd_per_million) < 0:
        raise ValueError(f"usd_per_million {list(usd_per_million)}: a price cannot be negative")
    if limit is not None and not any(usd_per_million):
        raise ValueError(f"{key} has no effect without prices: give usd_per_million too")
