"""Beyond the city, and the weather: trains, flights, which of two, where to go, what it costs, and what the sky will do."""

from __future__ import annotations

from typing import ClassVar

from synth.worlds.base import misfit
from synth.worlds.city.intents.base import CURRENT_WEATHER, FLIGHTS, FORECAST, SEARCH, TRAINS, WEB, CityIntent, Step, optional, required
from synth.worlds.city.intents.plan_parts import (
    Row,
    Slots,
    departures,
    distinct,
    forecast,
    locate,
    tell_departure,
    tell_one_of,
    tell_weather,
)
from synth.worlds.city.intents.web import look_up, tell_policy
from synth.worlds.city.map import weather
from synth.worlds.city.map.regions import resolve
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.vocabulary import label

_PAIR = frozenset({"city_from", "city_to"})
_SCHEDULES = "dynamic_information.realtime_traffic_and_transit.public_transit_schedules_and_routes"
_PRICES = "dynamic_information.dynamic_pricing_and_availability"


class _BestDeparture(CityIntent):
    """The best departure of one kind between two cities."""

    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date") + optional(days="days", pick="travel_pick")
    objects = _PAIR
    usual_pick: ClassVar[str]
    """What best means where the request does not say."""

    def report(self, script: Script, slots: Slots) -> None:
        best = departures(script, self.steps[0].tool, slots["city_from"], slots["city_to"], slots["date"], slots.get("days"))
        tell_departure(script, best, slots.get("pick", self.usual_pick), with_date="days" in slots)


class TrainSchedule(_BestDeparture):
    """The earliest train from A to B on Friday."""

    name = "train_schedule"
    leaf = _SCHEDULES
    steps = (Step(TRAINS),)
    usual_pick = "earliest"


class FlightPrice(_BestDeparture):
    """The lowest air fare from A to B within three days of Friday."""

    name = "flight_price"
    leaf = _PRICES
    steps = (Step(FLIGHTS),)
    usual_pick = "cheapest"


class RoundTripCost(CityIntent):
    """Cheapest train there on one day and back on another."""

    name = "round_trip_cost"
    leaf = _PRICES
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date", return_date="date") + optional(pick="travel_pick")
    objects = _PAIR
    steps = (Step(TRAINS), Step(TRAINS))

    def report(self, script: Script, slots: Slots) -> None:
        if slots["return_date"] <= slots["date"]:
            raise misfit("back before it begins")
        pick = slots.get("pick", "cheapest")
        tell_departure(script, departures(script, TRAINS, slots["city_from"], slots["city_to"], slots["date"]), pick)
        tell_departure(script, departures(script, TRAINS, slots["city_to"], slots["city_from"], slots["return_date"]), pick)


class TrainOrFlight(CityIntent):
    """Which is cheaper (or quicker) from A to B on Friday: train or flight?"""

    name = "train_or_flight"
    leaf = "planning_and_decision.solution_comparison.transportation_mode"
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date", pick="fare_pick")
    objects = _PAIR
    steps = (Step(TRAINS), Step(FLIGHTS))

    def report(self, script: Script, slots: Slots) -> None:
        pick = slots["pick"]
        options = [departures(script, tool, slots["city_from"], slots["city_to"], slots["date"]) for tool in (TRAINS, FLIGHTS)]
        field = "price" if pick == "cheapest" else "duration_min"
        options.sort(key=lambda best: int(best[pick][field]))
        if options[0][pick][field] == options[1][pick][field]:
            raise misfit("they are equal")
        for best in options:
            script.evidence("id", best[pick]["number"])
        tell_departure(script, options[0], pick, rivals=[options[1][pick]["number"]])


class BudgetTravel(CityIntent):
    """Is 500 yuan enough for the train from A to B on Friday or the days after it?"""

    name = "budget_travel"
    leaf = "planning_and_decision.feasibility_assessment"
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date", price="price") + optional(days="days")
    objects = _PAIR
    steps = (Step(TRAINS),)

    def report(self, script: Script, slots: Slots) -> None:
        best = departures(script, TRAINS, slots["city_from"], slots["city_to"], slots["date"], slots.get("days"))
        is_enough = best["cheapest"]["price"] <= slots["price"]
        yes, no = [("yes", "足够")], [("no", "不够"), ("not enough", "不足够")]
        (value, *_), others = (yes, no) if is_enough else (no, yes)
        tell_one_of(script, value, others)
        script.say(f"{value[0].capitalize()}.", f"{value[1]}。")
        tell_departure(script, best, "cheapest", with_date="days" in slots)


class CompareDestinations(CityIntent):
    """Which of two or three cities is warmer on Friday, and what does the train there cost?"""

    name = "compare_destinations"
    leaf = "planning_and_decision.solution_comparison.destination"
    domain = "weather"
    slots = required(city_a="city", city_b="city", date="date") + optional(city_c="city", city_from="city")
    objects = frozenset({"city_a"})
    steps = (
        Step(FORECAST),
        Step(FORECAST),
        Step(FORECAST, when={"city_c"}),
        Step(TRAINS, when={"city_from"}),
        Step(TRAINS, when={"city_from"}),
        Step(TRAINS, when={"city_from", "city_c"}),
    )

    def report(self, script: Script, slots: Slots) -> None:
        cities = [slots[name] for name in ("city_a", "city_b", "city_c") if name in slots]
        distinct(*cities, slots.get("city_from"))
        days = [forecast(script, label("city", city, script.language), slots["date"])[0] for city in cities]
        highs = [int(day["high_c"]) for day in days]
        if highs.count(max(highs)) > 1:
            raise misfit("they are equally warm")
        best = highs.index(max(highs))
        names = [(label("city", city, "en"), label("city", city, "zh")) for city in cities]
        rivals = [name for index, pair in enumerate(names) if index != best for name in pair]
        script.fact("name", names[best][0 if script.language == "en" else 1], *names[best], rivals=rivals)
        script.say(f"{names[best][0]} is the warmest.", f"{names[best][1]}最暖和。")
        tell_weather(script, [days[best]])
        if "city_from" in slots:
            trains = [departures(script, TRAINS, slots["city_from"], city, slots["date"]) for city in cities]
            for train in trains:
                script.evidence("id", train["cheapest"]["number"])
            tell_departure(script, trains[best], "cheapest")


class DestinationIdeas(CityIntent):
    """Where should I go for beaches, and what is the weather there on Friday?"""

    name = "destination_ideas"
    leaf = "discovery.destination_discovery.open_ended"
    domain = "information"
    slots = required(interest="interest") + optional(date="date")
    objects = frozenset({"interest"})
    steps = (Step(WEB), Step(FORECAST, 0, when={"date"}))

    def report(self, script: Script, slots: Slots) -> None:
        city = _recommended_city(script, slots["interest"])
        if "date" in slots:
            tell_weather(script, forecast(script, label("city", city, script.language), slots["date"]))


class DestinationFor(CityIntent):
    """From A, on Friday, for beaches: where to, which flight, what weather?"""

    name = "destination_for"
    leaf = "discovery.destination_discovery.constrained"
    domain = "information"
    slots = required(interest="interest", city_from="city", date="date") + optional(
        pick="travel_pick", price_max="price", forecast_days="days", return_date="date", topic="topic"
    )
    objects = frozenset({"interest"})
    steps = (
        Step(WEB),
        Step(FLIGHTS, 0),
        Step(FLIGHTS, 0, when={"return_date"}),
        Step(FORECAST, 0, when={"forecast_days"}),
        Step(WEB, when={"topic"}),
    )

    def report(self, script: Script, slots: Slots) -> None:
        city, home = _recommended_city(script, slots["interest"]), slots["city_from"]
        pick = slots.get("pick", "cheapest")
        there = departures(script, FLIGHTS, home, city, slots["date"])
        if "price_max" in slots and there[pick]["price"] > slots["price_max"]:
            raise misfit("too dear")
        tell_departure(script, there, pick)
        if "return_date" in slots:
            if slots["return_date"] <= slots["date"]:
                raise misfit("back before it begins")
            tell_departure(script, departures(script, FLIGHTS, city, home, slots["return_date"]), pick)
        if "forecast_days" in slots:
            tell_weather(script, forecast(script, label("city", city, script.language), slots["date"], slots["forecast_days"]))
        if "topic" in slots:
            tell_policy(script, slots["topic"])


class WeatherNow(CityIntent):
    """What is the weather at Willow Park right now?"""

    name = "weather_now"
    leaf = "dynamic_information.realtime_weather"
    domain = "weather"
    slots = required(place="place")
    objects = frozenset({"place"})
    steps = (Step(SEARCH), Step(CURRENT_WEATHER, 0))

    def report(self, script: Script, slots: Slots) -> None:
        start = locate(script, slots["place"])
        now: Row = script.call(CURRENT_WEATHER, {"location": start["coords"]})
        script.evidence("id", now["station"])
        names = (now["condition"], now["condition_zh"])
        tell_one_of(script, names, [other[:2] for other in weather.CONDITIONS if other[:2] != names])
        script.fact("number", now["temperature_c"])
        script.say(f"It is {now['condition']}, {now['temperature_c']} degrees.", f"现在{now['condition_zh']}，{now['temperature_c']}度。")


class _RegionWeather(CityIntent):
    """The forecast for a region, which is the first slot."""

    leaf = "dynamic_information.realtime_weather"
    domain = "weather"
    steps = (Step(FORECAST),)

    def report(self, script: Script, slots: Slots) -> None:
        region = self.slots[0]
        name = label(region.kind, slots[region.name], script.language)
        tell_weather(script, forecast(script, name, slots["date"], slots.get("days")))


class WeatherInDistrict(_RegionWeather):
    """Tomorrow's weather in Riverside District."""

    name = "weather_in_district"
    slots = required(district="district", date="date") + optional(days="days")
    objects = frozenset({"district"})


class WeatherInCity(_RegionWeather):
    """The weather in Kunming from Friday on, for three days."""

    name = "weather_in_city"
    slots = required(city="city", date="date") + optional(days="days")
    objects = frozenset({"city"})


def _recommended_city(script: Script, interest: str) -> str:
    """The city that the guide recommends; its name is a fact."""
    words = label("interest", interest, script.language)
    fields = look_up(script, "interest", interest, f"where to go {words}" if script.language == "en" else f"去哪里 {words}")
    en, zh = fields["city"]
    script.fact("name", en if script.language == "en" else zh, en, zh)
    script.say(f"Go to {en}: {fields['share']} percent would go again.", f"推荐{zh}：{fields['share']}%的人愿意再去。")
    return resolve(en)[0].key
