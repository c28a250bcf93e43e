"""Requests that want no call: answered from the conversation alone (difficulty 0), or to be refused (difficulty -1).

The refusal's answer names its reason in plain words; the reasons are those of `RefusalReason`.
"""

from __future__ import annotations

from storage.records import RefusalReason
from synth.worlds.base import Shape
from synth.worlds.city.intents.base import CityIntent, Given, RefusalIntent, optional, required
from synth.worlds.city.intents.plan_parts import Slots, distinct
from synth.worlds.city.intents.routes import tell_whether
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.vocabulary import label

_BOOKING = "application_interaction.booking_and_payment"
_SCHEDULES = "dynamic_information.realtime_traffic_and_transit.public_transit_schedules_and_routes"


class SystemControl(RefusalIntent):
    """Turn the volume up."""

    name = "system_control"
    leaf = "application_interaction.system_control"
    slots = required(setting="setting")
    refusal = RefusalReason.MISSING_TOOL
    detail_en = "I cannot do that: none of my tools controls the app or the device."
    detail_zh = "我无法完成：没有相应的工具来控制应用或设备。"


class RemindMe(RefusalIntent):
    """Remind me at 18:00 to leave for Willow Park."""

    name = "remind_me"
    leaf = "application_interaction.notification_trigger"
    slots = required(place="place", clock="clock") + optional(date="date")
    refusal = RefusalReason.MISSING_TOOL
    detail_en = "I cannot do that: none of my tools can set a reminder."
    detail_zh = "我无法完成：没有相应的工具来设置提醒。"


class TrafficAlert(RefusalIntent):
    """Tell me when the traffic between A and B clears."""

    name = "traffic_alert"
    leaf = "application_interaction.notification_trigger"
    slots = required(origin="place", destination="place")
    refusal = RefusalReason.MISSING_TOOL
    detail_en = "I cannot do that: none of my tools can send a notification later."
    detail_zh = "我无法完成：没有相应的工具在稍后发送通知。"


class BookTickets(RefusalIntent):
    """Book two train tickets from A to B for Friday."""

    name = "book_tickets"
    leaf = _BOOKING
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date") + optional(people="people")
    refusal = RefusalReason.MISSING_TOOL
    detail_en = "I can look up trains and flights, but none of my tools books or pays."
    detail_zh = "我可以查询车次和航班，但没有相应的工具来预订或付款。"


class BookRoom(RefusalIntent):
    """Reserve a room at Lotus Hotel for two nights."""

    name = "book_room"
    leaf = _BOOKING
    slots = required(place="place", date="date") + optional(days="days", people="people")
    refusal = RefusalReason.MISSING_TOOL
    detail_en = "I cannot do that: none of my tools can make a reservation."
    detail_zh = "我无法完成：没有相应的工具来预订。"


class RouteWithoutOrigin(RefusalIntent):
    """How long does it take to get to Willow Park?"""

    name = "route_without_origin"
    leaf = "planning_and_decision.route_planning"
    slots = required(destination="place") + optional(mode="mode", depart="clock")
    refusal = RefusalReason.MISSING_INFORMATION
    detail_en = "I cannot answer yet: please tell me where you start from."
    detail_zh = "我还无法回答：请告诉我您从哪里出发。"


class TicketsWithoutOrigin(RefusalIntent):
    """Trains to Kunming on Friday, please."""

    name = "tickets_without_origin"
    leaf = _SCHEDULES
    domain = "travel"
    slots = required(city_to="city", date="date")
    refusal = RefusalReason.MISSING_INFORMATION
    detail_en = "I cannot answer yet: please tell me which city you leave from."
    detail_zh = "我还无法回答：请告诉我您从哪个城市出发。"


class ForecastWithoutPlace(RefusalIntent):
    """What will the weather be there on Friday?"""

    name = "forecast_without_place"
    leaf = "dynamic_information.realtime_weather"
    domain = "weather"
    slots = required(date="date") + optional(days="days")
    refusal = RefusalReason.MISSING_INFORMATION
    detail_en = "I cannot answer yet: please tell me which place you mean."
    detail_zh = "我还无法回答：请告诉我您指的是哪个地方。"


class TicketsBeyondHorizon(RefusalIntent):
    """Trains from A to B in 30 days."""

    name = "tickets_beyond_horizon"
    leaf = _SCHEDULES
    domain = "travel"
    slots = required(city_from="city", city_to="city", far_days="far_days")
    refusal = RefusalReason.RULE
    detail_en = "That is against the rules: timetables cover a limited period only, and that day lies beyond it."
    detail_zh = "规定不允许：只能查询有限期限内的班次，而那一天超出了期限。"


class ForecastBeyondHorizon(RefusalIntent):
    """The weather in Kunming in 30 days."""

    name = "forecast_beyond_horizon"
    leaf = "dynamic_information.realtime_weather"
    domain = "weather"
    slots = required(city="city", far_days="far_days")
    refusal = RefusalReason.RULE
    detail_en = "That is against the rules: forecasts cover a limited period only, and that day lies beyond it."
    detail_zh = "规定不允许：只发布有限期限内的天气预报，而那一天超出了期限。"


class ImpossibleWish(RefusalIntent):
    """Make the rain stop at Willow Park."""

    name = "impossible_wish"
    leaf = "planning_and_decision.feasibility_assessment"
    slots = required(wish="wish", place="place")
    refusal = RefusalReason.NOT_ACTIONABLE
    detail_en = "That is impossible: nothing that anyone could call would bring it about."
    detail_zh = "这是不可能的：没有任何操作可以做到。"


class ImpossibleWishInDistrict(RefusalIntent):
    """Make the traffic jam in Riverside District disappear."""

    name = "impossible_wish_in_district"
    leaf = "dynamic_information.realtime_traffic_and_transit.road_traffic_status"
    slots = required(wish="wish", district="district")
    refusal = RefusalReason.NOT_ACTIONABLE
    detail_en = "That is impossible: nothing that anyone could call would bring it about."
    detail_zh = "这是不可能的：没有任何操作可以做到。"


class _FromConversation(CityIntent):
    needs_no_tool = True
    domain = "map"

    def shape(self, slot_names: Given) -> Shape:
        return Shape(())

    def constraints(self, slot_names: Given) -> int:
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
