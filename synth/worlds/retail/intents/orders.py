"""Jobs about orders: close, exchange, replace one, and questions about one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.records import Call, Fact, Language
from synth.worlds.base import Solution
from synth.worlds.retail.data import STATUSES
from synth.worlds.retail.intents.base import (
    CATEGORY,
    CATEGORY_2,
    CLOSABLE,
    COLOUR,
    COLOUR_2,
    IN_STOCK,
    MAX_PRICE,
    ORDER,
    PICK,
    QUANTITY,
    TELL_TOTAL,
    USER,
    RetailIntent,
    Slots,
    buying,
    closing,
    escalating,
    exchanging,
    find_product,
    looked_at,
    misfit,
    owned,
    price_fact,
    read,
    say,
    solution,
)

if TYPE_CHECKING:
    from synth.worlds.retail.world import RetailWorld


class CloseOrder(RetailIntent):
    name, leaf, slots = "close_order", "retail.orders.cancel_or_return", (ORDER,)
    statuses = CLOSABLE
    calls = (("get_order", ()), ("cancel_order", (0,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        act, changes, text = closing(world, order, language)
        return solution([read(order, "get_order"), act], text, changes, evidence=looked_at(world, order))


class CloseByCategory(RetailIntent):
    name, leaf, slots = "close_by_category", "retail.orders.cancel_or_return", (USER, CATEGORY)
    statuses, is_owned = CLOSABLE, True
    calls = (("list_orders", ()), ("cancel_order", (0,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = owned(world, slots["user"], slots["category"]).id
        act, changes, text = closing(world, order, language)
        return solution([read(slots["user"], "list_orders"), act], text, changes, evidence=looked_at(world, order))


def _plan_exchange(world: RetailWorld, slots: Slots, look: Call, order: str, language: Language) -> Solution:
    """Looks at the order; a delivered one is exchanged for what the search finds, a shipped one escalated."""
    status, held = world.status(order), world.product_of(order)
    evidence = looked_at(world, order)
    if status == "shipped":
        act, changes, text = escalating(order, language)
        return solution([look, act], text, changes, evidence=evidence)
    if status != "delivered":
        raise misfit("the order is not delivered")
    search, product = find_product(world, slots, held.category, unlike=held.id)
    act, changes, text = exchanging(order, product, world.stock(product.id), language)
    return solution([look, search, act], text, changes, evidence=evidence)


class ExchangeItem(RetailIntent):
    name, leaf, slots = "exchange_item", "retail.orders.exchange", (ORDER, COLOUR, PICK, MAX_PRICE, IN_STOCK)
    statuses = ("delivered", "delivered", "shipped")
    calls = (("get_order", ()), ("search_products", (0,)), ("exchange_order", (0, 1)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        return _plan_exchange(world, slots, read(slots["order"], "get_order"), slots["order"], language)


class ExchangeByCategory(RetailIntent):
    name, leaf, slots = "exchange_by_category", "retail.orders.exchange", (USER, CATEGORY, COLOUR, PICK, MAX_PRICE, IN_STOCK)
    statuses, is_owned = ("delivered", "shipped"), True
    calls = (("list_orders", ()), ("search_products", ()), ("exchange_order", (0, 1)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = owned(world, slots["user"], slots["category"]).id
        return _plan_exchange(world, slots, read(slots["user"], "list_orders"), order, language)


class CloseAndBuy(RetailIntent):
    name, leaf = "close_and_buy", "retail.orders.replace"
    slots = (ORDER, CATEGORY, COLOUR, PICK, MAX_PRICE, IN_STOCK, QUANTITY)
    statuses = CLOSABLE
    calls = (("get_order", ()), ("search_products", ()), ("cancel_order", (0,)), ("buy", (0, 1)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        close, changes, text = closing(world, order, language)
        search, product = find_product(world, slots, slots["category"])
        act, changes_2, text_2, _ = buying(world, slots, world.shop.orders[order].user, product, language)
        calls = [read(order, "get_order"), search, close, act]
        return solution(calls, f"{text} {text_2}", changes | changes_2, evidence=looked_at(world, order))


class ExchangeAndBuy(RetailIntent):
    name, leaf = "exchange_and_buy", "retail.orders.replace"
    slots = (USER, CATEGORY, COLOUR, CATEGORY_2, COLOUR_2, PICK, QUANTITY, TELL_TOTAL)
    statuses, is_owned = ("delivered",), True
    calls = (("list_orders", ()), ("search_products", ()), ("exchange_order", (0, 1)), ("search_products", ()), ("buy", (3,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        user, order = slots["user"], owned(world, slots["user"], slots["category"]).id
        if world.status(order) != "delivered" or slots["category"] == slots["category_2"]:
            raise misfit("not delivered, or the two products are of one category")
        search, product = find_product(world, slots, slots["category"], unlike=world.product_of(order).id)
        search_2, product_2 = find_product(world, slots, slots["category_2"], "colour_2")
        exchange, changes, text = exchanging(order, product, world.stock(product.id), language)
        act, changes_2, text_2, facts = buying(world, slots, user, product_2, language)
        calls = [read(user, "list_orders"), search, exchange, search_2, act]
        return solution(calls, f"{text} {text_2}", changes | changes_2, evidence=looked_at(world, order), facts=facts)


class OrderStatus(RetailIntent):
    name, leaf, slots = "order_status", "retail.questions.order", (ORDER,)
    statuses = CLOSABLE
    calls = (("get_order", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        return _tell_status(world, slots["order"], read(slots["order"], "get_order"), language)


class StatusByCategory(RetailIntent):
    name, leaf, slots = "status_by_category", "retail.questions.order", (USER, CATEGORY)
    statuses, is_owned = CLOSABLE, True
    calls = (("list_orders", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = owned(world, slots["user"], slots["category"]).id
        others = tuple(sorted(other for other, each in world.shop.orders.items() if each.user == slots["user"] and other != order))
        return _tell_status(world, order, read(slots["user"], "list_orders"), language, others)


def _tell_status(world: RetailWorld, order: str, look: Call, language: Language, others: tuple[str, ...] = ()) -> Solution:
    """others: orders that are shown beside it, and not to be named."""
    status = world.status(order)
    statuses = tuple(name for other, names in STATUSES.items() if other != status for name in names.values())
    fact = Fact(kind="word", value=status, alternatives=(STATUSES[status]["zh"],), rivals=(*statuses, *others))
    text = say(language, f"{order} is {status}.", f"{order} {STATUSES[status]['zh']}。")
    return solution([look], text, evidence=(Fact(kind="id", value=order),), facts=(fact,))


class OrderPrice(RetailIntent):
    name, leaf, slots = "order_price", "retail.questions.order", (ORDER,)
    statuses = CLOSABLE
    calls = (("get_order", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        price = world.product_of(order).price
        text = say(language, f"{price} dollars.", f"{price}美元。")
        return solution([read(order, "get_order")], text, evidence=(Fact(kind="id", value=order),), facts=(price_fact(price),))
