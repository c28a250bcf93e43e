"""Complaints, questions about the shop itself, and what has to be refused (each reason in at least one intent)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from storage.records import JSON, Call, Fact, Language, RefusalReason
from synth.worlds.base import Slot, Solution
from synth.worlds.retail.data import CATEGORY_KEYS, PROBLEMS, SERVICES
from synth.worlds.retail.intents.base import (
    CATEGORY,
    CLOSABLE,
    COLOUR,
    ORDER,
    QUANTITY,
    USER,
    RetailIntent,
    Slots,
    escalating,
    looked_at,
    misfit,
    read,
    say,
    solution,
)

if TYPE_CHECKING:
    from synth.worlds.retail.world import RetailWorld


class ReportProblem(RetailIntent):
    name, leaf, slots = "report_problem", "retail.service.complaint", (ORDER, Slot("problem", "problem"))
    statuses = CLOSABLE
    calls = (("escalate", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        assert slots["problem"] in PROBLEMS
        act, changes, text = escalating(slots["order"], language, slots["problem"])
        return solution([act], text, changes)


class CallBack(RetailIntent):
    name, leaf, slots = "call_back", "retail.service.complaint", (USER,)
    calls = (("escalate", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        user = slots["user"]
        act = Call(tool="escalate", arguments={"user": user, "reason": "callback"})
        text = say(language, f"{user} will be called.", f"会给 {user} 回电。")
        return solution([act], text, {f"tickets/{user}-callback": 1})


class CancelDelivered(RetailIntent):
    """ "It has arrived; cancel it, I will not send it back." The order must be seen to be delivered before that is refused."""

    name, leaf, slots = "cancel_delivered", "retail.service.against_rules", (ORDER,)
    refusal = RefusalReason.RULE
    statuses = ("delivered",)
    calls = (("get_order", ()),)

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        order = slots["order"]
        if world.status(order) != "delivered":
            raise misfit("the order is not delivered")
        text = say(language, "Cancelling a delivered order is against the rules.", "按规定，已送达的订单不能取消。")
        return solution([read(order, "get_order")], text, evidence=looked_at(world, order), refusal=RefusalReason.RULE)


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
            raise misfit("not delivered, or of that category")
        text = say(language, "Another category is against the rules.", "按规定，不能换成其他类别。")
        evidence = (Fact(kind="id", value=order), Fact(kind="word", value=held))
        return solution([read(order, "get_order")], text, evidence=evidence, refusal=RefusalReason.RULE)


class _PlainRefusal(RetailIntent):
    """Refused from the request alone: the plan is the answer."""

    answers: ClassVar[tuple[str, str]]

    def plan(self, world: RetailWorld, slots: Slots, language: Language) -> Solution:
        return solution([], say(language, *self.answers), refusal=self.refusal)


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
        return solution([], say(language, english, chinese), facts=(fact,))
