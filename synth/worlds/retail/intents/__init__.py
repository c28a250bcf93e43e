"""The kinds of jobs that a shop gets, each with its slots, plan shape, expert plan and success criteria.

One idea: what is stated here is what *must* come of a job (the exact changes, the facts that had to be looked at first, the facts to be
told), worked out from the shop's data and not from running the plan; admission then really runs the plan against it.
No goal is reached by doing nothing: every job needs an act, a fact, or the right refusal.
The act that closes an order follows its status (pending: cancel, delivered: return, shipped: escalate), so a plan's shape names the
most frequent one, `cancel_order`.

What it does not do: word requests (`families.yaml`) or read them (`grounding.yaml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from synth.worlds.base import Intent
from synth.worlds.retail.intents.orders import (
    CloseAndBuy,
    CloseByCategory,
    CloseOrder,
    ExchangeAndBuy,
    ExchangeByCategory,
    ExchangeItem,
    OrderPrice,
    OrderStatus,
    StatusByCategory,
)
from synth.worlds.retail.intents.service import (
    BuyUnnamed,
    CallBack,
    CancelDelivered,
    CloseUnnamed,
    ExchangeOtherCategory,
    ImpossibleWish,
    ReportProblem,
    ShopInformation,
    SpecialService,
)
from synth.worlds.retail.intents.shopping import BuyPick, BuyProduct, BuyTwo, PriceOfTwo, PriceQuestion, StockQuestion

SYSTEM_PROMPT = (
    "You work for a shop. To close an order: cancel it if pending, return it if delivered, escalate it if shipped; look first. "
    "Shipped orders that shall be exchanged are escalated too. Returns are accepted for 30 days, shipping costs 5 dollars, "
    "support opens at 09:00. If you must refuse, say why."
)
"""What every conversation in the shop opens with; questions about the shop itself are answered from it."""


INTENTS: Mapping[str, Intent] = MappingProxyType(
    {
        intent.name: intent
        for intent in (
            CloseOrder(),
            CloseByCategory(),
            ExchangeItem(),
            ExchangeByCategory(),
            BuyProduct(),
            BuyPick(),
            BuyTwo(),
            CloseAndBuy(),
            ExchangeAndBuy(),
            OrderStatus(),
            StatusByCategory(),
            OrderPrice(),
            PriceQuestion(),
            StockQuestion(),
            PriceOfTwo(),
            ReportProblem(),
            CallBack(),
            CancelDelivered(),
            ExchangeOtherCategory(),
            CloseUnnamed(),
            BuyUnnamed(),
            SpecialService(),
            ImpossibleWish(),
            ShopInformation(),
        )
    }
)
