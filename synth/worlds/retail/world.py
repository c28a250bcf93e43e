"""The shop as a world: tools over a cached immutable shop and a small overlay of what acts have changed.

Business rules: only a pending order can be cancelled, only a delivered one returned or exchanged, an exchange stays within its category,
only what is in stock can be bought or exchanged for. Purchases and tickets are counted per (user, product) and (subject, reason), so
that a repeated act shows in the state, and the order of independent acts does not.
Observations are short on purpose: a tiny policy reads every token of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from storage.records import JSON, Tool
from synth.text.slot_kinds import Identifier, Quantity, SlotKind, Vocabulary
from synth.worlds.base import Intent, Observation, World
from synth.worlds.retail import data
from synth.worlds.retail.intents import INTENTS, SYSTEM_PROMPT
from synth.worlds.retail.intents.base import RetailIntent
from synth.worlds.retail.tools import DEFAULT_LIMIT, TOOLS, argument_error

_REVERSED = "price_desc"


@dataclass(frozen=True, slots=True)
class _Snapshot:
    seed: int
    status: dict[str, str]
    product: dict[str, str]
    stock: dict[str, int]
    purchases: dict[tuple[str, str], int]
    tickets: dict[tuple[str, str], int]


class RetailWorld(World):
    name: ClassVar[str] = "retail"
    version: ClassVar[int] = 2
    tools: ClassVar[tuple[Tool, ...]] = TOOLS
    units: ClassVar[Mapping[str, str]] = {"price": "dollars", "total": "dollars", "stock": "count", "bought": "count"}
    intents: ClassVar[Mapping[str, Intent]] = INTENTS
    system_prompt: ClassVar[str] = SYSTEM_PROMPT
    tool_words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "search_products": ("search", "find", "cheapest", "price", "搜", "找", "最便宜", "价格", "多少钱"),
        "get_order": ("status", "look up", "check order", "查", "状态"),
        "list_orders": ("list", "orders of", "订单列表", "所有订单"),
        "cancel_order": ("cancel", "取消"),
        "return_order": ("return", "send back", "退货", "退掉"),
        "exchange_order": ("exchange", "swap", "换"),
        "buy": ("buy", "purchase", "order me", "买", "下单"),
        "escalate": ("escalate", "call", "report", "complain", "转人工", "回电", "投诉"),
    }
    kinds: ClassVar[Mapping[str, SlotKind]] = {
        "order": Identifier(r"o\d\d", data.ORDERS),
        "user": Identifier(r"u\d\d", data.USERS),
        "product": Identifier(r"p\d\d", data.PRODUCTS),
        "category": Vocabulary(data.CATEGORIES),
        "colour": Vocabulary(data.COLOURS),
        "status": Vocabulary(data.STATUSES),
        "pick": Vocabulary(data.PICKS),
        "problem": Vocabulary(data.PROBLEMS),
        "service": Vocabulary(data.SERVICES),
        "wish": Vocabulary(data.WISHES),
        "topic": Vocabulary(data.TOPICS),
        "in_stock": Vocabulary({"in_stock": {"en": "in stock", "zh": "有货"}}),
        "tell_total": Vocabulary({"tell_total": {"en": "tell me the total", "zh": "告诉我总价"}}),
        "max_price": Quantity("dollars", 5, 100, (20, 25, 30, 35, 40, 45, 50, 60)),
        "quantity": Quantity("count", 2, 3, (2, 3)),
    }

    def reset(self, seed: int) -> None:
        self.seed = seed
        self.shop = data.open_shop(seed)
        self._status: dict[str, str] = {}
        self._product: dict[str, str] = {}
        self._stock: dict[str, int] = {}
        self._purchases: dict[tuple[str, str], int] = {}
        self._tickets: dict[tuple[str, str], int] = {}

    # ---- reading -------------------------------------------------------------------------------------------------------

    def status(self, order: str) -> str:
        return self._status.get(order) or self.shop.orders[order].status

    def product_of(self, order: str) -> data.Product:
        return self.shop.products[self._product.get(order) or self.shop.orders[order].product]

    def stock(self, product: str) -> int:
        stock = self._stock.get(product)
        return self.shop.products[product].stock if stock is None else stock

    def matches(
        self,
        category: str,
        colour: str | None = None,
        *,
        dearest_first: bool = False,
        in_stock: bool = False,
        max_price: float | None = None,
    ) -> list[data.Product]:
        """All products that fit, sorted by price."""
        found = [
            product
            for product in self.shop.shelves[category]
            if (colour is None or product.colour == colour)
            and (max_price is None or product.price <= max_price)
            and (not in_stock or self.stock(product.id) > 0)
        ]
        if dearest_first:
            found.reverse()
        return found

    # ---- calls ---------------------------------------------------------------------------------------------------------

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        act = _ACTS.get(tool)
        if act is None:
            return _error("no such tool")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                return _error("arguments are not JSON")
        if not isinstance(arguments, Mapping):
            return _error("arguments are not an object")
        problem = argument_error(tool, arguments)
        return _error(problem) if problem is not None else act(self, arguments)

    def _search_products(self, given: Mapping[str, JSON]) -> Observation:
        found = self.matches(
            given["category"],
            given.get("colour"),
            dearest_first=given.get("sort") == _REVERSED,
            in_stock=given.get("in_stock", False),
            max_price=given.get("max_price"),
        )
        rows = [
            f'{{"product":"{product.id}","price":{product.price},"stock":{self.stock(product.id)}}}'
            for product in found[: given.get("limit", DEFAULT_LIMIT)]
        ]
        return Observation(f"[{','.join(rows)}]")

    def _get_order(self, given: Mapping[str, JSON]) -> Observation:
        order = given["order"]
        product = self.product_of(order)
        return Observation(
            f'{{"order":"{order}","status":"{self.status(order)}","user":"{self.shop.orders[order].user}",'
            f'"product":"{product.id}","category":"{product.category}","price":{product.price}}}'
        )

    def _list_orders(self, given: Mapping[str, JSON]) -> Observation:
        rows = []
        for order in self.shop.baskets[given["user"]]:
            product = self.product_of(order.id)
            rows.append(
                f'{{"order":"{order.id}","status":"{self.status(order.id)}","product":"{product.id}","category":"{product.category}"}}'
            )
        return Observation(f"[{','.join(rows)}]")

    def _cancel_order(self, given: Mapping[str, JSON]) -> Observation:
        return self._close(given["order"], "pending", "cancelled")

    def _return_order(self, given: Mapping[str, JSON]) -> Observation:
        return self._close(given["order"], "delivered", "returned")

    def _close(self, order: str, needed: str, becomes: str) -> Observation:
        status = self.status(order)
        if status != needed:
            return _error(f"order is {status}")
        self._status[order] = becomes
        return Observation(f'{{"order":"{order}","status":"{becomes}"}}')

    def _exchange_order(self, given: Mapping[str, JSON]) -> Observation:
        order, wanted = given["order"], self.shop.products[given["product"]]
        status, held = self.status(order), self.product_of(order)
        if status != "delivered":
            return _error(f"order is {status}")
        if wanted.category != held.category:
            return _error(f"category is not {held.category}")
        if wanted.id == held.id:
            return _error("same product")
        stock = self.stock(wanted.id)
        if stock == 0:
            return _error("out of stock")
        self._status[order], self._product[order], self._stock[wanted.id] = "exchanged", wanted.id, stock - 1
        return Observation(f'{{"order":"{order}","status":"exchanged","product":"{wanted.id}"}}')

    def _buy(self, given: Mapping[str, JSON]) -> Observation:
        user, product, quantity = given["user"], given["product"], given.get("quantity", 1)
        stock = self.stock(product)
        if stock < quantity:
            return _error("out of stock" if stock == 0 else f"only {stock} in stock")
        self._stock[product] = stock - quantity
        self._purchases[user, product] = self._purchases.get((user, product), 0) + quantity
        total = quantity * self.shop.products[product].price
        return Observation(f'{{"user":"{user}","product":"{product}","bought":{quantity},"total":{total}}}')

    def _escalate(self, given: Mapping[str, JSON]) -> Observation:
        subject = given.get("order") or given["user"]
        key = (subject, given["reason"])
        self._tickets[key] = self._tickets.get(key, 0) + 1
        return Observation(f'{{"escalated":"{subject}","reason":"{given["reason"]}"}}')

    # ---- state ---------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, JSON]:
        return {
            "orders": {order: {"status": self.status(order), "product": self.product_of(order).id} for order in self.shop.orders},
            "stock": {product: self.stock(product) for product in self.shop.products},
            "purchases": {f"{user}-{product}": count for (user, product), count in self._purchases.items()},
            "tickets": {f"{subject}-{reason}": count for (subject, reason), count in self._tickets.items()},
        }

    def snapshot(self) -> object:
        return _Snapshot(
            self.seed, self._status.copy(), self._product.copy(), self._stock.copy(), self._purchases.copy(), self._tickets.copy()
        )

    def restore(self, snapshot: object) -> None:
        if not isinstance(snapshot, _Snapshot):
            raise TypeError("not a snapshot of a shop")
        if snapshot.seed != self.seed:
            self.reset(snapshot.seed)
        self._status, self._product, self._stock = snapshot.status.copy(), snapshot.product.copy(), snapshot.stock.copy()
        self._purchases, self._tickets = snapshot.purchases.copy(), snapshot.tickets.copy()

    def changes(self) -> dict[str, JSON]:
        changed: dict[str, JSON] = {f"orders/{order}/status": status for order, status in self._status.items()}
        changed.update({f"orders/{order}/product": product for order, product in self._product.items()})
        changed.update({f"stock/{product}": stock for product, stock in self._stock.items()})
        changed.update({f"purchases/{user}-{product}": count for (user, product), count in self._purchases.items()})
        changed.update({f"tickets/{subject}-{reason}": count for (subject, reason), count in self._tickets.items()})
        return changed

    def known_names(self) -> dict[str, tuple[str, ...]]:
        """Categories and colours; statuses are ordinary words of an answer, and facts guard them."""
        names: dict[str, tuple[str, ...]] = {}
        for kind in (data.CATEGORIES, data.COLOURS):
            for spellings in kind.values():
                names.update(dict.fromkeys(spellings.values(), tuple(spellings.values())))
        return names

    def draw_slots(self, intent: str, slot_names: frozenset[str], rng: random.Random) -> dict[str, JSON]:
        return self._draw(intent, slot_names, {}, rng)

    def draw_entities(self, intent: str, slots: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        found = self.intents[intent]
        kept = {name: value for name, value in slots.items() if not any(slot.name == name and slot.is_entity for slot in found.slots)}
        return self._draw(intent, frozenset(slots), kept, rng)

    def _draw(self, intent: str, slot_names: frozenset[str], given: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        found = self.intents[intent]
        assert isinstance(found, RetailIntent)
        return found.draw(self, slot_names, given, rng)


def _error(text: str) -> Observation:
    return Observation(f'{{"error":{json.dumps(text)}}}', is_error=True)


_ACTS: dict[str, Callable[[RetailWorld, Mapping[str, JSON]], Observation]] = {
    "search_products": RetailWorld._search_products,
    "get_order": RetailWorld._get_order,
    "list_orders": RetailWorld._list_orders,
    "cancel_order": RetailWorld._cancel_order,
    "return_order": RetailWorld._return_order,
    "exchange_order": RetailWorld._exchange_order,
    "buy": RetailWorld._buy,
    "escalate": RetailWorld._escalate,
}
