"""What all jobs in a shop share: slots, the parts of plans, and how slots are drawn that fit a shop.

Each part of a plan gives the call, what it must change, and the words that tell of it; they are worked out from the shop's data, and
not from running the call.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from storage.records import JSON, Call, Fact, Language, Plan, Success
from synth.text.slot_kinds import Quantity, Vocabulary
from synth.worlds.base import Intent, Shape, Slot, Solution, Unsolvable, World
from synth.worlds.retail.data import ORDERS, STATUSES, USERS, Order, Product
from synth.worlds.retail.tools import DEFAULT_LIMIT

if TYPE_CHECKING:
    from synth.worlds.retail.world import RetailWorld

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


def misfit(detail: str) -> Unsolvable:
    return Unsolvable("misfit", detail)


def say(language: Language, english: str, chinese: str) -> str:
    return english if language == "en" else chinese


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
        raise misfit("too few products to choose among")
    product = found[0]
    if product.id == unlike:
        raise misfit("the order is for this product already")
    arguments: dict[str, JSON] = {"category": category}
    if colour is not None:
        arguments["colour"] = colour
    arguments["sort"] = "price_desc" if is_dearest else "price_asc"
    if in_stock:
        arguments["in_stock"] = True
    if max_price is not None:
        arguments["max_price"] = max_price
    return Call(tool="search_products", arguments=arguments), product


def owned(world: RetailWorld, user: str, category: str) -> Order:
    """The user's one order of the category."""
    found = [order for order in world.shop.baskets[user] if world.product_of(order.id).category == category]
    if len(found) != 1:
        raise misfit("not exactly one order of that category")
    return found[0]


def looked_at(world: RetailWorld, order: str) -> tuple[Fact, ...]:
    status = world.status(order)
    return Fact(kind="id", value=order), Fact(kind="word", value=status, alternatives=(STATUSES[status]["zh"],))


def closing(world: RetailWorld, order: str, language: Language) -> tuple[Call, dict[str, JSON], str]:
    """The act that closes an order, what it changes, and how to say so."""
    status = world.status(order)
    if status == "pending":
        return status_act("cancel_order", order, "cancelled", language)
    if status == "delivered":
        return status_act("return_order", order, "returned", language)
    if status == "shipped":
        return escalating(order, language)
    raise misfit("the order is closed already")


def status_act(tool: str, order: str, becomes: str, language: Language) -> tuple[Call, dict[str, JSON], str]:
    text = say(language, f"{order} is {becomes}.", f"{order} {STATUSES[becomes]['zh']}。")
    return Call(tool=tool, arguments={"order": order}), {f"orders/{order}/status": becomes}, text


def escalating(order: str, language: Language, reason: str = "shipped") -> tuple[Call, dict[str, JSON], str]:
    call = Call(tool="escalate", arguments={"order": order, "reason": reason})
    return call, {f"tickets/{order}-{reason}": 1}, say(language, f"{order} is escalated.", f"{order} 已转人工。")


def exchanging(order: str, product: Product, stock: int, language: Language) -> tuple[Call, dict[str, JSON], str]:
    if stock == 0:
        raise misfit("out of stock")
    changes = {f"orders/{order}/status": "exchanged", f"orders/{order}/product": product.id, f"stock/{product.id}": stock - 1}
    call = Call(tool="exchange_order", arguments={"order": order, "product": product.id})
    return call, changes, say(language, f"{order} is exchanged for {product.id}.", f"{order} 已换货为 {product.id}。")


def buying(
    world: RetailWorld, slots: Slots, user: str, product: Product, language: Language
) -> tuple[Call, dict[str, JSON], str, tuple[Fact, ...]]:
    quantity, stock = slots.get("quantity", 1), world.stock(product.id)
    if stock < quantity:
        raise misfit("not enough in stock")
    arguments: dict[str, JSON] = {"user": user, "product": product.id}
    if "quantity" in slots:
        arguments["quantity"] = quantity
    changes = {f"stock/{product.id}": stock - quantity, f"purchases/{user}-{product.id}": quantity}
    call = Call(tool="buy", arguments=arguments)
    if "tell_total" not in slots:
        return call, changes, say(language, f"{product.id} is bought.", f"{product.id} 已购买。"), ()
    total = quantity * product.price
    text = say(language, f"{product.id} is bought: {total} dollars.", f"{product.id} 已购买：{total}美元。")
    return call, changes, text, (price_fact(total),)


def price_fact(dollars: int, rivals: tuple[int, ...] = ()) -> Fact:
    return Fact(kind="price", value=str(dollars), rivals=tuple(str(rival) for rival in sorted(set(rivals) - {dollars})))


def others(world: RetailWorld, slots: Slots, product: Product) -> list[Product]:
    """What else the shop has of that category (and colour, where one is asked for): wrong answers to a question about `product`."""
    found = world.matches(product.category, product.colour if "colour" in slots else None)
    return [other for other in found if other.id != product.id]


def read(order_or_user: str, tool: str) -> Call:
    return Call(tool=tool, arguments={"order" if tool == "get_order" else "user": order_or_user})


def solution(calls: list[Call], answer: str, changes: dict[str, JSON] | None = None, **criteria: Any) -> Solution:
    return Solution(Plan(calls=tuple(calls), answer=answer), Success(changes=changes or {}, **criteria))


class RetailIntent(Intent):
    """What all shop intents share: constraints are the slots that name no individual, and slots are drawn until they fit the shop.

    statuses: of the order that the job is about; empty where none is.
    is_owned: the order is named by user and category.
    """

    domain: str = "retail"
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
        from synth.worlds.retail.world import RetailWorld

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
