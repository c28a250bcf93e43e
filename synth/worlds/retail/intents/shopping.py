"""Buying, and questions about products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.records import Fact, Language
from synth.worlds.base import Slot, Solution
from synth.worlds.retail.intents.base import (
    CATEGORY,
    CATEGORY_2,
    COLOUR,
    COLOUR_2,
    IN_STOCK,
    MAX_PRICE,
    PICK,
    QUANTITY,
    TELL_TOTAL,
    USER,
    RetailIntent,
    Slots,
    buying,
    find_product,
    misfit,
    others,
    price_fact,
    say,
    solution,
)

if TYPE_CHECKING:
    from synth.worlds.retail.world import RetailWorld


class BuyProduct(RetailIntent):
    name, leaf = "buy_product", "retail.shopping.purchase"
    slots = (USER, Slot("product", "product", is_entity=True), QUANTITY, TELL_TOTAL)
    calls = (("buy", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        act, changes, text, facts = buying(world, slots, slots["user"], world.shop.products[slots["product"]], language)
        return solution([act], text, changes, facts=facts)


class BuyPick(RetailIntent):
    name, leaf = "buy_pick", "retail.shopping.purchase"
    slots = (USER, CATEGORY, COLOUR, PICK, MAX_PRICE, IN_STOCK, QUANTITY, TELL_TOTAL)
    calls = (("search_products", ()), ("buy", (0,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        search, product = find_product(world, slots, slots["category"])
        act, changes, text, facts = buying(world, slots, slots["user"], product, language)
        return solution([search, act], text, changes, facts=facts)


class BuyTwo(RetailIntent):
    name, leaf = "buy_two", "retail.shopping.purchase"
    slots = (USER, CATEGORY, COLOUR, CATEGORY_2, COLOUR_2, PICK, IN_STOCK)
    calls = (("search_products", ()), ("search_products", ()), ("buy", (0,)), ("buy", (1,)))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        if slots["category"] == slots["category_2"]:
            raise misfit("the two products are of one category")
        search, product = find_product(world, slots, slots["category"])
        search_2, product_2 = find_product(world, slots, slots["category_2"], "colour_2")
        act, changes, _, _ = buying(world, slots, slots["user"], product, language)
        act_2, changes_2, _, _ = buying(world, slots, slots["user"], product_2, language)
        text = say(language, f"{product.id} and {product_2.id} are bought.", f"{product.id} 和 {product_2.id} 已购买。")
        return solution([search, search_2, act, act_2], text, changes | changes_2)


class PriceQuestion(RetailIntent):
    name, leaf = "price_question", "retail.questions.product"
    slots = (CATEGORY, COLOUR, PICK, MAX_PRICE, IN_STOCK)
    calls = (("search_products", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        search, product = find_product(world, slots, slots["category"])
        text = say(language, f"{product.price} dollars.", f"{product.price}美元。")
        fact = price_fact(product.price, tuple(other.price for other in others(world, slots, product)))
        return solution([search], text, evidence=(Fact(kind="id", value=product.id),), facts=(fact,))


class StockQuestion(RetailIntent):
    name, leaf = "stock_question", "retail.questions.product"
    slots = (CATEGORY, COLOUR, PICK, MAX_PRICE)
    calls = (("search_products", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        search, product = find_product(world, slots, slots["category"])
        stock = world.stock(product.id)
        text = say(language, f"{stock} in stock.", f"库存 {stock} 件。")
        rivals = {world.stock(other.id) for other in others(world, slots, product)} - {stock}
        fact = Fact(kind="number", value=str(stock), rivals=tuple(map(str, sorted(rivals))))
        return solution([search], text, evidence=(Fact(kind="id", value=product.id),), facts=(fact,))


class PriceOfTwo(RetailIntent):
    name, leaf = "price_of_two", "retail.questions.product"
    slots = (CATEGORY, COLOUR, CATEGORY_2, COLOUR_2, PICK, IN_STOCK)
    calls = (("search_products", ()), ("search_products", ()))

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        search, product = find_product(world, slots, slots["category"])
        search_2, product_2 = find_product(world, slots, slots["category_2"], "colour_2")
        if slots["category"] == slots["category_2"] or abs(product.price - product_2.price) < 1:
            raise misfit("the two questions have one answer")
        text = say(language, f"{product.price} and {product_2.price} dollars.", f"{product.price}和{product_2.price}美元。")
        evidence = (Fact(kind="id", value=product.id), Fact(kind="id", value=product_2.id))
        first = world.matches(product.category, slots.get("colour"))
        second = world.matches(product_2.category, slots.get("colour_2"))
        rivals = tuple(other.price for other in (*first, *second) if other.id not in (product.id, product_2.id))
        facts = (price_fact(product.price, rivals), price_fact(product_2.price, rivals))
        return solution([search, search_2], text, evidence=evidence, facts=facts)
