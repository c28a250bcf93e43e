"""Requests that want no call: answered from the conversation alone (difficulty 0), or to be refused (difficulty -1).

The refusal's answer names its reason in plain words; the reasons are those of `RefusalReason`.
"""

from __future__ import annotations

from storage.records import RefusalReason
from synth.worlds.city.intents.base import CityIntent, RefusalIntent, SlotNames, optional, required
from synth.worlds.city.intents.plan_parts import Slots, distinct
from synth.worlds.city.intents.routes import tell_whether
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.vocabulary import label

_BOOKING = "application_interaction.booking_and_payment"
_SCHEDULES = "dynamic_information.realtime_traffic_and_transit.public_transit_schedules_and_routes"

REFUSALS = (
    # Turn the volume up.
    RefusalIntent(
        "system_control", "application_interaction.system_control", required(setting="setting"), RefusalReason.MISSING_TOOL,
        ("I cannot do that: none of my tools controls the app or the device.", "我无法完成：没有相应的工具来控制应用或设备。"),
    ),
    # Remind me at 18:00 to leave for Willow Park.
    RefusalIntent(
        "remind_me", "application_interaction.notification_trigger",
        required(place="place", clock="clock") + optional(date="date"), RefusalReason.MISSING_TOOL,
        ("I cannot do that: none of my tools can set a reminder.", "我无法完成：没有相应的工具来设置提醒。"),
    ),
    # Tell me when the traffic between A and B clears.
    RefusalIntent(
        "traffic_alert", "application_interaction.notification_trigger",
        required(origin="place", destination="place"), RefusalReason.MISSING_TOOL,
        ("I cannot do that: none of my tools can send a notification later.", "我无法完成：没有相应的工具在稍后发送通知。"),
    ),
    # Book two train tickets from A to B for Friday.
    RefusalIntent(
        "book_tickets", _BOOKING,
        required(city_from="city", city_to="city", date="date") + optional(people="people"), RefusalReason.MISSING_TOOL,
        ("I can look up trains and flights, but none of my tools books or pays.",
         "我可以查询车次和航班，但没有相应的工具来预订或付款。"), domain="travel",
    ),
    # Reserve a room at Lotus Hotel for two nights.
    RefusalIntent(
        "book_room", _BOOKING, required(place="place", date="date") + optional(days="days", people="people"), RefusalReason.MISSING_TOOL,
        ("I cannot do that: none of my tools can make a reservation.", "我无法完成：没有相应的工具来预订。"),
    ),
    # How long does it take to get to Willow Park?
    RefusalIntent(
        "route_without_origin", "planning_and_decision.route_planning",
        required(destination="place") + optional(mode="mode", depart="clock"), RefusalReason.MISSING_INFORMATION,
        ("I cannot answer yet: please tell me where you start from.", "我还无法回答：请告诉我您从哪里出发。"),
    ),
    # Trains to Kunming on Friday, please.
    RefusalIntent(
        "tickets_without_origin", _SCHEDULES, required(city_to="city", date="date"), RefusalReason.MISSING_INFORMATION,
        ("I cannot answer yet: please tell me which city you leave from.", "我还无法回答：请告诉我您从哪个城市出发。"), domain="travel",
    ),
    # What will the weather be there on Friday?
    RefusalIntent(
        "forecast_without_place", "dynamic_information.realtime_weather",
        required(date="date") + optional(days="days"), RefusalReason.MISSING_INFORMATION,
        ("I cannot answer yet: please tell me which place you mean.", "我还无法回答：请告诉我您指的是哪个地方。"), domain="weather",
    ),
    # Trains from A to B in 30 days.
    RefusalIntent(
        "tickets_beyond_horizon", _SCHEDULES, required(city_from="city", city_to="city", far_days="far_days"), RefusalReason.RULE,
        ("That is against the rules: timetables cover a limited period only, and that day lies beyond it.",
         "规定不允许：只能查询有限期限内的班次，而那一天超出了期限。"), domain="travel",
    ),
    # The weather in Kunming in 30 days.
    RefusalIntent(
        "forecast_beyond_horizon", "dynamic_information.realtime_weather", required(city="city", far_days="far_days"), RefusalReason.RULE,
        ("That is against the rules: forecasts cover a limited period only, and that day lies beyond it.",
         "规定不允许：只发布有限期限内的天气预报，而那一天超出了期限。"), domain="weather",
    ),
    # Make the rain stop at Willow Park.
    RefusalIntent(
        "impossible_wish", "planning_and_decision.feasibility_assessment",
        required(wish="wish", place="place"), RefusalReason.NOT_ACTIONABLE,
        ("That is impossible: nothing that anyone could call would bring it about.", "这是不可能的：没有任何操作可以做到。"),
    ),
    # Make the traffic jam in Riverside District disappear.
    RefusalIntent(
        "impossible_wish_in_district", "dynamic_information.realtime_traffic_and_transit.road_traffic_status",
        required(wish="wish", district="district"), RefusalReason.NOT_ACTIONABLE,
        ("That is impossible: nothing that anyone could call would bring it about.", "这是不可能的：没有任何操作可以做到。"),
    ),
)  # fmt: skip


class _FromConversation(CityIntent):
    needs_no_tool = True
    domain = "map"

    def constraints(self, slot_names: SlotNames) -> int:
        return 0


class CompareGivenPrices(_FromConversation):
    """Driving costs me 45 yuan, public transit 12: which is cheaper?"""

    name = "compare_given_prices"
    leaf = "planning_and_decision.solution_comparison.transportation_mode"
    slots = required(mode_a="mode", price_a="price", mode_b="mode", price_b="price")

    def report(self, script: Script, slots: Slots) -> None:
        distinct(slots["mode_a"], slots["mode_b"])
        _tell_less(script, slots, "mode", ("mode_a", "mode_b"), ("price_a", "price_b"), ("yuan", "元"))


class CompareGivenTimes(_FromConversation):
    """By way of A it takes 30 minutes, by way of B 25: which is quicker?"""

    name = "compare_given_times"
    leaf = "planning_and_decision.solution_comparison.route"
    slots = required(place_a="place", minutes_a="minutes", place_b="place", minutes_b="minutes")

    def report(self, script: Script, slots: Slots) -> None:
        distinct(slots["place_a"], slots["place_b"])
        _tell_less(script, slots, "place", ("place_a", "place_b"), ("minutes_a", "minutes_b"), ("minutes", "分钟"))


class FitsGivenTime(_FromConversation):
    """The way to A takes 40 minutes and I have 60: is that enough?"""

    name = "fits_given_time"
    leaf = "planning_and_decision.feasibility_assessment"
    slots = required(place="place", minutes_needed="minutes", minutes_available="minutes")

    def report(self, script: Script, slots: Slots) -> None:
        needed, available = slots["minutes_needed"], slots["minutes_available"]
        distinct(needed, available)
        tell_whether(script, needed <= available)
        script.say(f"It takes {needed} minutes, and you have {available}.", f"路上要{needed}分钟，您有{available}分钟。")


class NearestOfGiven(_FromConversation):
    """A is 800 m from here, B 1500 m: which is nearer?"""

    name = "nearest_of_given"
    leaf = "planning_and_decision.solution_comparison.poi"
    slots = required(place_a="place", distance_a="distance_m", place_b="place", distance_b="distance_m")

    def report(self, script: Script, slots: Slots) -> None:
        distinct(slots["place_a"], slots["place_b"])
        _tell_less(script, slots, "place", ("place_a", "place_b"), ("distance_a", "distance_b"), ("m", "米"))


def _tell_less(script: Script, slots: Slots, kind: str, names: tuple[str, str], values: tuple[str, str], unit: tuple[str, str]) -> None:
    """Tells which of two things has the smaller value, and that value.

    Raises:
        Unsolvable: the values are equal.
    """
    distinct(slots[values[0]], slots[values[1]])
    less = 0 if slots[values[0]] < slots[values[1]] else 1
    en, zh = label(kind, slots[names[less]], "en"), label(kind, slots[names[less]], "zh")
    other = slots[names[1 - less]]
    rivals = [label(kind, other, "en"), label(kind, other, "zh")]
    script.fact("name" if kind == "place" else "word", en if script.language == "en" else zh, en, zh, rivals=rivals)
    script.fact("number", slots[values[less]])
    script.say(f"{en}: {slots[values[less]]} {unit[0]}.", f"{zh}：{slots[values[less]]}{unit[1]}。")
