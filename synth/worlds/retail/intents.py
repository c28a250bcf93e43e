"""The kinds of jobs that a shop gets, each with its slots, plan shape, expert plan and success criteria.

One idea: what is stated here is what *must* come of a job (the exact changes, the facts that had to be looked at first, the facts to be
told), worked out from the shop's data and not from running the plan; admission then really runs the plan against it.
No goal is reached by doing nothing: every job needs an act, a fact, or the right refusal.
The act that closes an order follows its status (pending: cancel, delivered: return, shipped: escalate), so a plan's shape names the
most frequent one, `cancel_order`.

What it does not do: word requests (`families.yaml`) or read them (`grounding.yaml`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from storage.records import JSON, Call, Fact, Language, Plan, RefusalReason, Success
from synth.worlds.base import Intent, Quantity, Shape, Slot, Solution, Unsolvable, Vocabulary, World

from .data import CATEGORY_KEYS, ORDERS, PROBLEMS, SERVICES, STATUSES, USERS, Order, Product
from .tools import DEFAULT_LIMIT

if TYPE_CHECKING:
    from .world import RetailWorld

Slots = Mapping[str, JSON]

ORDER = Slot("order", "order", is_entity=True)
USER = Slot("user", "user", is_entity=True)
CATEGORY, COLOUR, PICK = Slot("category", "category"), Slot("colour", "colour", is_required=False), Slot("pick", "pick")
CATEGORY_2, COLOUR_2 = Slot("category_2", "category"), Slot("colour_2", "colour", is_required=False)
IN_STOCK, MAX_PRICE = Slot("in_stock", "in_stock", is_required=False), Slot("max_price", "max_price", is_required=False)
QUANTITY, TELL_TOTAL = Slot("quantity", "quantity", is_required=False), Slot("tell_total", "tell_total", is_required=False)

_DRAW_TRIES, _DRAW_TRIES_GIVEN = 24, 6
"""Proposals before a draw gives up: fewer where given slots may be what does not fit, since another seed is then the better try."""
CLOSABLE = ("pending", "delivered", "shipped")

SYSTEM_PROMPT = (
    "You work for a shop. To close an order: cancel it if pending, return it if delivered, escalate it if shipped; look first. "
    "Shipped orders that shall be exchanged are escalated too. Returns are accepted for 30 days, shipping costs 5 dollars, "
    "support opens at 09:00. If you must refuse, say why."
)
"""What every conversation in the shop opens with; questions about the shop itself are answered from it."""


def _misfit(detail: str) -> Unsolvable:
    return Unsolvable("misfit", detail)


def _say(language: Language, english: str, chinese: str) -> str:
    return english if language == "en" else chinese


# ---- parts that several plans share --------------------------------------------------------------------------------------


def find_product(world: RetailWorld, slots: Slots, category: str, colour_slot: str = "colour", *, unlike: str = "") -> tuple[Call, Product]:
    """The search that shows the wanted product first, and that product.

    At least one match more than a search shows must exist: looking from the wrong end must not show the product as well.

    Raises:
        Unsolvable: too few products fit, or the one that is meant is out of stock, too few are left, or it is `unlike` itself.
    """
    colour, max_price, is_dearest = slots.get(colour_slot), slots.get("max_price"), slots["pick"] == "dearest"
    in_stock = "in_stock" in slots
    found = world.matches(category, colour, dearest_first=is_dearest, in_stock=in_stock, max_price=max_price)
    if len(found) <= DEFAULT_LIMIT:
        raise _misfit("too few products to choose among")
    product = found[0]
    if product.id == unlike:
        raise _misfit("the order is for this product already")
    arguments: dict[str, JSON] = {"category": category}
    if colour is not None:
        arguments["colour"] = colour
    arguments["sort"] = "price_desc" if is_dearest else "price_asc"
    if in_stock:
        arguments["in_stock"] = True
    if max_price is not None:
        arguments["max_price"] = max_price
    return Call(tool="search_products", arguments=arguments), product


def _owned(world: RetailWorld, user: str, category: str) -> Order:
    """The user's one order of the category."""
    found = [order for order in world.shop.baskets[user] if world.product_of(order.id).category == category]
    if len(found) != 1:
        raise _misfit("not exactly one order of that category")
    return found[0]


def _looked_at(world: RetailWorld, order: str) -> tuple[Fact, ...]:
    status = world.status(order)
    return Fact(kind="id", value=order), Fact(kind="word", value=status, alternatives=(STATUSES[status]["zh"],))


def _close(world: RetailWorld, order: str, language: Language) -> tuple[Call, dict[str, JSON], str]:
    """The act that closes an order, what it changes, and how to say so."""
    status = world.status(order)
    if status == "pending":
        return _status_act("cancel_order", order, "cancelled", language)
    if status == "delivered":
        return _status_act("return_order", order, "returned", language)
    if status == "shipped":
        return _escalate(order, language)
    raise _misfit("the order is closed already")


def _status_act(tool: str, order: str, becomes: str, language: Language) -> tuple[Call, dict[str, JSON], str]:
    text = _say(language, f"{order} is {becomes}.", f"{order} {STATUSES[becomes]['zh']}。")
    return Call(tool=tool, arguments={"order": order}), {f"orders/{order}/status": becomes}, text


def _escalate(order: str, language: Language, reason: str = "shipped") -> tuple[Call, dict[str, JSON], str]:
    call = Call(tool="escalate", arguments={"order": order, "reason": reason})
    return call, {f"tickets/{order}-{reason}": 1}, _say(language, f"{order} is escalated.", f"{order} 已转人工。")


def _exchange(order: str, product: Product, stock: int, language: Language) -> tuple[Call, dict[str, JSON], str]:
    if stock == 0:
        raise _misfit("out of stock")
    changes = {f"orders/{order}/status": "exchanged", f"orders/{order}/product": product.id, f"stock/{product.id}": stock - 1}
    call = Call(tool="exchange_order", arguments={"order": order, "product": product.id})
    return call, changes, _say(language, f"{order} is exchanged for {product.id}.", f"{order} 已换货为 {product.id}。")


def _buy(
    world: RetailWorld, slots: Slots, user: str, product: Product, language: Language
) -> tuple[Call, dict[str, JSON], str, tuple[Fact, ...]]:
    quantity, stock = slots.get("quantity", 1), world.stock(product.id)
    if stock < quantity:
        raise _misfit("not enough in stock")
    arguments: dict[str, JSON] = {"user": user, "product": product.id}
    if "quantity" in slots:
        arguments["quantity"] = quantity
    changes = {f"stock/{product.id}": stock - quantity, f"purchases/{user}-{product.id}": quantity}
    call = Call(tool="buy", arguments=arguments)
    if "tell_total" not in slots:
        return call, changes, _say(language, f"{product.id} is bought.", f"{product.id} 已购买。"), ()
    total = quantity * product.price
    text = _say(language, f"{product.id} is bought: {total} dollars.", f"{product.id} 已购买：{total}美元。")
    return call, changes, text, (_price(total),)


def _price(dollars: int, rivals: tuple[int, ...] = ()) -> Fact:
    return Fact(kind="price", value=str(dollars), rivals=tuple(str(rival) for rival in sorted(set(rivals) - {dollars})))


def _others(world: RetailWorld, slots: Slots, product: Product) -> list[Product]:
    """What else the shop has of that category (and colour, where one is asked for): wrong answers to a question about `product`."""
    found = world.matches(product.category, product.colour if "colour" in slots else None)
    return [other for other in found if other.id != product.id]


def _read(order_or_user: str, tool: str) -> Call:
    return Call(tool=tool, arguments={"order" if tool == "get_order" else "user": order_or_user})


def _solution(calls: list[Call], answer: str, changes: dict[str, JSON] | None = None, **criteria: Any) -> Solution:
    return Solution(Plan(calls=tuple(calls), answer=answer), Success(changes=changes or {}, **criteria))


# ---- the intents ---------------------------------------------------------------------------------------------------------


class RetailIntent(Intent):
    """What all shop intents share: constraints are the slots that name no individual, and slots are drawn until they fit the shop.

    statuses: of the order that the job is about; empty where none is.
    is_owned: the order is named by user and category.
    """

    domain: ClassVar[str] = "retail"
    statuses: ClassVar[tuple[str, ...]] = ()
    is_owned: ClassVar[bool] = False
    calls: ClassVar[tuple[tuple[str, tuple[int, ...]], ...]] = ()

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return Shape(self.calls)

    def constraints(self, slot_names: frozenset[str]) -> int:
        entities = {slot.name for slot in self.slots if slot.is_entity}
        return len(slot_names - entities - {"tell_total"})

    def has_conflict(self, slot_names: frozenset[str]) -> bool:
        return {"pick", "max_price"} <= slot_names

    def solve(self, world: World, slots: Slots, language: Language) -> Solution:
        from .world import RetailWorld

        assert isinstance(world, RetailWorld)
        return self.plan(world, slots, language)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        """`solve`, in the shop."""
        raise NotImplementedError

    def draw(self, world: RetailWorld, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON]:
        """Values for the named slots, those `given` kept: solvable in this shop if a few dozen tries find such."""
        slots: dict[str, JSON] = {}
        for _ in range(_DRAW_TRIES_GIVEN if given else _DRAW_TRIES):
            slots = self._propose(world, slot_names, given, rng)
            try:
                self.plan(world, slots, "en")
            except Unsolvable:
                continue
            break
        return slots

    def _propose(self, world: RetailWorld, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON]:
        drawn: dict[str, JSON] = dict(given)
        order = self._propose_order(world, given, rng)
        if self.is_owned:
            drawn.setdefault("category", world.product_of(order).category)
            drawn["user"] = drawn.get("user", world.shop.orders[order].user)
        for slot in self.slots:
            if slot.name not in slot_names or slot.name in drawn:
                continue
            kind = world.kinds[slot.kind]
            if slot.kind == "order":
                drawn[slot.name] = order
            elif slot.kind == "user":
                drawn[slot.name] = rng.choice(USERS)
            elif slot.kind == "colour":
                category = drawn.get("category_2" if slot.name == "colour_2" else "category") or world.product_of(drawn["order"]).category
                drawn[slot.name] = rng.choice(world.shop.shelves[category]).colour
            elif isinstance(kind, Quantity):
                drawn[slot.name] = rng.choice(kind.choices)
            else:
                drawn[slot.name] = rng.choice(tuple(kind.names) if isinstance(kind, Vocabulary) else kind.choices)  # type: ignore[union-attr]
        return {slot.name: drawn[slot.name] for slot in self.slots if slot.name in slot_names}

    def _propose_order(self, world: RetailWorld, given: Slots, rng: random.Random) -> str:
        if not self.statuses:
            return ""
        if not self.is_owned:
            order = rng.choice(ORDERS)
            while world.status(order) not in self.statuses:
                order = rng.choice(ORDERS)
            return order
        fitting = [
            order
            for order in world.shop.orders
            if world.status(order) in self.statuses
            and given.get("category") in (None, world.product_of(order).category)
            and given.get("user") in (None, world.shop.orders[order].user)
        ]
        return rng.choice(fitting or ORDERS)


class CloseOrder(RetailIntent):
    name, leaf, slots = "close_order", "retail.orders.cancel_or_return", (ORDER,)
    statuses = CLOSABLE
    calls = (("get_order", ()), ("cancel_order", (0,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        act, changes, text = _close(world, order, language)
        return _solution([_read(order, "get_order"), act], text, changes, evidence=_looked_at(world, order))


class CloseByCategory(RetailIntent):
    name, leaf, slots = "close_by_category", "retail.orders.cancel_or_return", (USER, CATEGORY)
    statuses, is_owned = CLOSABLE, True
    calls = (("list_orders", ()), ("cancel_order", (0,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = _owned(world, slots["user"], slots["category"]).id
        act, changes, text = _close(world, order, language)
        return _solution([_read(slots["user"], "list_orders"), act], text, changes, evidence=_looked_at(world, order))


def _plan_exchange(world: RetailWorld, slots: Slots, look: Call, order: str, language: Language) -> Solution:
    """Looks at the order; a delivered one is exchanged for what the search finds, a shipped one escalated."""
    status, held = world.status(order), world.product_of(order)
    evidence = _looked_at(world, order)
    if status == "shipped":
        act, changes, text = _escalate(order, language)
        return _solution([look, act], text, changes, evidence=evidence)
    if status != "delivered":
        raise _misfit("the order is not delivered")
    search, product = find_product(world, slots, held.category, unlike=held.id)
    act, changes, text = _exchange(order, product, world.stock(product.id), language)
    return _solution([look, search, act], text, changes, evidence=evidence)


class ExchangeItem(RetailIntent):
    name, leaf, slots = "exchange_item", "retail.orders.exchange", (ORDER, COLOUR, PICK, MAX_PRICE, IN_STOCK)
    statuses = ("delivered", "delivered", "shipped")
    calls = (("get_order", ()), ("search_products", (0,)), ("exchange_order", (0, 1)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        return _plan_exchange(world, slots, _read(slots["order"], "get_order"), slots["order"], language)


class ExchangeByCategory(RetailIntent):
    name, leaf, slots = "exchange_by_category", "retail.orders.exchange", (USER, CATEGORY, COLOUR, PICK, MAX_PRICE, IN_STOCK)
    statuses, is_owned = ("delivered", "shipped"), True
    calls = (("list_orders", ()), ("search_products", ()), ("exchange_order", (0, 1)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = _owned(world, slots["user"], slots["category"]).id
        return _plan_exchange(world, slots, _read(slots["user"], "list_orders"), order, language)


class BuyProduct(RetailIntent):
    name, leaf = "buy_product", "retail.shopping.purchase"
    slots = (USER, Slot("product", "product", is_entity=True), QUANTITY, TELL_TOTAL)
    calls = (("buy", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        act, changes, text, facts = _buy(world, slots, slots["user"], world.shop.products[slots["product"]], language)
        return _solution([act], text, changes, facts=facts)


class BuyPick(RetailIntent):
    name, leaf = "buy_pick", "retail.shopping.purchase"
    slots = (USER, CATEGORY, COLOUR, PICK, MAX_PRICE, IN_STOCK, QUANTITY, TELL_TOTAL)
    calls = (("search_products", ()), ("buy", (0,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        search, product = find_product(world, slots, slots["category"])
        act, changes, text, facts = _buy(world, slots, slots["user"], product, language)
        return _solution([search, act], text, changes, facts=facts)


class BuyTwo(RetailIntent):
    name, leaf = "buy_two", "retail.shopping.purchase"
    slots = (USER, CATEGORY, COLOUR, CATEGORY_2, COLOUR_2, PICK, IN_STOCK)
    calls = (("search_products", ()), ("search_products", ()), ("buy", (0,)), ("buy", (1,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        if slots["category"] == slots["category_2"]:
            raise _misfit("the two products are of one category")
        search, product = find_product(world, slots, slots["category"])
        search_2, product_2 = find_product(world, slots, slots["category_2"], "colour_2")
        act, changes, _, _ = _buy(world, slots, slots["user"], product, language)
        act_2, changes_2, _, _ = _buy(world, slots, slots["user"], product_2, language)
        text = _say(language, f"{product.id} and {product_2.id} are bought.", f"{product.id} 和 {product_2.id} 已购买。")
        return _solution([search, search_2, act, act_2], text, changes | changes_2)


class CloseAndBuy(RetailIntent):
    name, leaf = "close_and_buy", "retail.orders.replace"
    slots = (ORDER, CATEGORY, COLOUR, PICK, MAX_PRICE, IN_STOCK, QUANTITY)
    statuses = CLOSABLE
    calls = (("get_order", ()), ("search_products", ()), ("cancel_order", (0,)), ("buy", (0, 1)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        close, changes, text = _close(world, order, language)
        search, product = find_product(world, slots, slots["category"])
        act, changes_2, text_2, _ = _buy(world, slots, world.shop.orders[order].user, product, language)
        calls = [_read(order, "get_order"), search, close, act]
        return _solution(calls, f"{text} {text_2}", changes | changes_2, evidence=_looked_at(world, order))


class ExchangeAndBuy(RetailIntent):
    name, leaf = "exchange_and_buy", "retail.orders.replace"
    slots = (USER, CATEGORY, COLOUR, CATEGORY_2, COLOUR_2, PICK, QUANTITY, TELL_TOTAL)
    statuses, is_owned = ("delivered",), True
    calls = (("list_orders", ()), ("search_products", ()), ("exchange_order", (0, 1)), ("search_products", ()), ("buy", (3,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        user, order = slots["user"], _owned(world, slots["user"], slots["category"]).id
        if world.status(order) != "delivered" or slots["category"] == slots["category_2"]:
            raise _misfit("not delivered, or the two products are of one category")
        search, product = find_product(world, slots, slots["category"], unlike=world.product_of(order).id)
        search_2, product_2 = find_product(world, slots, slots["category_2"], "colour_2")
        exchange, changes, text = _exchange(order, product, world.stock(product.id), language)
        act, changes_2, text_2, facts = _buy(world, slots, user, product_2, language)
        calls = [_read(user, "list_orders"), search, exchange, search_2, act]
        return _solution(calls, f"{text} {text_2}", changes | changes_2, evidence=_looked_at(world, order), facts=facts)


class OrderStatus(RetailIntent):
    name, leaf, slots = "order_status", "retail.questions.order", (ORDER,)
    statuses = CLOSABLE
    calls = (("get_order", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        return _tell_status(world, slots["order"], _read(slots["order"], "get_order"), language)


class StatusByCategory(RetailIntent):
    name, leaf, slots = "status_by_category", "retail.questions.order", (USER, CATEGORY)
    statuses, is_owned = CLOSABLE, True
    calls = (("list_orders", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = _owned(world, slots["user"], slots["category"]).id
        return _tell_status(world, order, _read(slots["user"], "list_orders"), language)


def _tell_status(world: RetailWorld, order: str, look: Call, language: Language) -> Solution:
    status = world.status(order)
    rivals = tuple(name for other, names in STATUSES.items() if other != status for name in names.values())
    fact = Fact(kind="word", value=status, alternatives=(STATUSES[status]["zh"],), rivals=rivals)
    text = _say(language, f"{order} is {status}.", f"{order} {STATUSES[status]['zh']}。")
    return _solution([look], text, evidence=(Fact(kind="id", value=order),), facts=(fact,))


class OrderPrice(RetailIntent):
    name, leaf, slots = "order_price", "retail.questions.order", (ORDER,)
    statuses = CLOSABLE
    calls = (("get_order", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        price = world.product_of(order).price
        text = _say(language, f"{price} dollars.", f"{price}美元。")
        return _solution([_read(order, "get_order")], text, evidence=(Fact(kind="id", value=order),), facts=(_price(price),))


class PriceQuestion(RetailIntent):
    name, leaf = "price_question", "retail.questions.product"
    slots = (CATEGORY, COLOUR, PICK, MAX_PRICE, IN_STOCK)
    calls = (("search_products", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        search, product = find_product(world, slots, slots["category"])
        text = _say(language, f"{product.price} dollars.", f"{product.price}美元。")
        fact = _price(product.price, tuple(other.price for other in _others(world, slots, product)))
        return _solution([search], text, evidence=(Fact(kind="id", value=product.id),), facts=(fact,))


class StockQuestion(RetailIntent):
    name, leaf = "stock_question", "retail.questions.product"
    slots = (CATEGORY, COLOUR, PICK, MAX_PRICE)
    calls = (("search_products", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        search, product = find_product(world, slots, slots["category"])
        stock = world.stock(product.id)
        text = _say(language, f"{stock} in stock.", f"库存 {stock} 件。")
        rivals = {world.stock(other.id) for other in _others(world, slots, product)} - {stock}
        fact = Fact(kind="number", value=str(stock), rivals=tuple(map(str, sorted(rivals))))
        return _solution([search], text, evidence=(Fact(kind="id", value=product.id),), facts=(fact,))


class PriceOfTwo(RetailIntent):
    name, leaf = "price_of_two", "retail.questions.product"
    slots = (CATEGORY, COLOUR, CATEGORY_2, COLOUR_2, PICK, IN_STOCK)
    calls = (("search_products", ()), ("search_products", ()))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        search, product = find_product(world, slots, slots["category"])
        search_2, product_2 = find_product(world, slots, slots["category_2"], "colour_2")
        if slots["category"] == slots["category_2"] or abs(product.price - product_2.price) < 1:
            raise _misfit("the two questions have one answer")
        text = _say(language, f"{product.price} and {product_2.price} dollars.", f"{product.price}和{product_2.price}美元。")
        evidence = (Fact(kind="id", value=product.id), Fact(kind="id", value=product_2.id))
        first = world.matches(product.category, slots.get("colour"))
        second = world.matches(product_2.category, slots.get("colour_2"))
        rivals = tuple(other.price for other in (*first, *second) if other.id not in (product.id, product_2.id))
        facts = (_price(product.price, rivals), _price(product_2.price, rivals))
        return _solution([search, search_2], text, evidence=evidence, facts=facts)


class ReportProblem(RetailIntent):
    name, leaf, slots = "report_problem", "retail.service.complaint", (ORDER, Slot("problem", "problem"))
    statuses = CLOSABLE
    calls = (("escalate", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        assert slots["problem"] in PROBLEMS
        act, changes, text = _escalate(slots["order"], language, slots["problem"])
        return _solution([act], text, changes)


class CallBack(RetailIntent):
    name, leaf, slots = "call_back", "retail.service.complaint", (USER,)
    calls = (("escalate", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        user = slots["user"]
        act = Call(tool="escalate", arguments={"user": user, "reason": "callback"})
        text = _say(language, f"{user} will be called.", f"会给 {user} 回电。")
        return _solution([act], text, {f"tickets/{user}-callback": 1})


# ---- refusals and talk ------------------------------------------------------------------------------------------------------


class CancelDelivered(RetailIntent):
    """ "It has arrived; cancel it, I will not send it back." The order must be seen to be delivered before that is refused."""

    name, leaf, slots = "cancel_delivered", "retail.service.against_rules", (ORDER,)
    refusal = RefusalReason.RULE
    statuses = ("delivered",)
    calls = (("get_order", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        if world.status(order) != "delivered":
            raise _misfit("the order is not delivered")
        text = _say(language, "Cancelling a delivered order is against the rules.", "按规定，已送达的订单不能取消。")
        return _solution([_read(order, "get_order")], text, evidence=_looked_at(world, order), refusal=RefusalReason.RULE)


class ExchangeOtherCategory(RetailIntent):
    """ "Exchange o17 for a lamp", where o17 is a mug: the order's category must be seen first."""

    name, leaf, slots = "exchange_other_category", "retail.service.against_rules", (ORDER, CATEGORY)
    refusal = RefusalReason.RULE
    statuses = ("delivered",)
    calls = (("get_order", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        held = world.product_of(order).category
        if world.status(order) != "delivered" or held == slots["category"]:
            raise _misfit("not delivered, or of that category")
        text = _say(language, "Another category is against the rules.", "按规定，不能换成其他类别。")
        evidence = (Fact(kind="id", value=order), Fact(kind="word", value=held))
        return _solution([_read(order, "get_order")], text, evidence=evidence, refusal=RefusalReason.RULE)


class _PlainRefusal(RetailIntent):
    """Refused from the request alone: the plan is the answer."""

    answers: ClassVar[tuple[str, str]]

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        return _solution([], _say(language, *self.answers), refusal=self.refusal)


class CloseUnnamed(_PlainRefusal):
    name, leaf = "close_unnamed", "retail.service.incomplete"
    slots = (Slot("category", "category", is_required=False), COLOUR)
    refusal = RefusalReason.MISSING_INFORMATION
    answers = ("Please tell me which order.", "请告诉我是哪个订单。")

    def _propose(self, world: RetailWorld, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON]:
        return super()._propose(world, slot_names, {"category": rng.choice(CATEGORY_KEYS), **given}, rng)


class BuyUnnamed(_PlainRefusal):
    name, leaf = "buy_unnamed", "retail.service.incomplete"
    slots = (USER, QUANTITY)
    refusal = RefusalReason.MISSING_INFORMATION
    answers = ("Please tell me which product.", "请告诉我是哪个商品。")


class SpecialService(_PlainRefusal):
    name, leaf, slots = "special_service", "retail.service.unsupported", (ORDER, Slot("service", "service"))
    refusal = RefusalReason.MISSING_TOOL
    statuses = CLOSABLE
    answers = ("I have no tool for that.", "我没有这样的工具。")

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        assert slots["service"] in SERVICES
        return super().plan(world, slots, language)


class ImpossibleWish(_PlainRefusal):
    name, leaf, slots = "impossible_wish", "retail.service.unsupported", (ORDER, Slot("wish", "wish"))
    refusal = RefusalReason.NOT_ACTIONABLE
    statuses = CLOSABLE
    answers = ("That is impossible for anyone.", "这谁也办不到。")


_SHOP_FACTS: Mapping[str, tuple[Fact, str, str]] = MappingProxyType(
    {
        "return_window": (Fact(kind="number", value="30"), "30 days.", "30天。"),
        "shipping_fee": (Fact(kind="price", value="5"), "5 dollars.", "5美元。"),
        "opening_time": (Fact(kind="time", value="09:00"), "At 09:00.", "09:00。"),
    }
)


class ShopInformation(RetailIntent):
    name, leaf, slots = "shop_information", "retail.questions.shop", (Slot("topic", "topic"),)
    needs_no_tool = True

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        fact, english, chinese = _SHOP_FACTS[slots["topic"]]
        fact = fact.model_copy(update={"rivals": tuple(other.value for other, _, _ in _SHOP_FACTS.values() if other.value != fact.value)})
        return _solution([], _say(language, english, chinese), facts=(fact,))


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
