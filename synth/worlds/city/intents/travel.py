"""Beyond the city, and the weather: trains, flights, which of two, where to go, what it costs, and what the sky will do."""

from __future__ import annotations

from synth.worlds.base import Shape
from synth.worlds.city.intents.base import CONDITIONS, FLIGHTS, FORECAST, SEARCH, TRAINS, WEB, CityIntent, Given, Steps, optional, required

_PAIR = frozenset({"city_from", "city_to"})
_SCHEDULES = "dynamic_information.realtime_traffic_and_transit.public_transit_schedules_and_routes"
_PRICES = "dynamic_information.dynamic_pricing_and_availability"


def _calls(*tools: str) -> Shape:
    steps = Steps()
    for tool in tools:
        steps.add(tool)
    return steps.shape


class TrainSchedule(CityIntent):
    """The earliest train from A to B on Friday."""

    name = "train_schedule"
    leaf = _SCHEDULES
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date") + optional(days="days", pick="travel_pick")
    objects = _PAIR

    def shape(self, slot_names: Given) -> Shape:
        return _calls(TRAINS)


class FlightPrice(CityIntent):
    """The lowest air fare from A to B within three days of Friday."""

    name = "flight_price"
    leaf = _PRICES
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date") + optional(days="days", pick="travel_pick")
    objects = _PAIR

    def shape(self, slot_names: Given) -> Shape:
        return _calls(FLIGHTS)


class RoundTripCost(CityIntent):
    """Cheapest train there on one day and back on another."""

    name = "round_trip_cost"
    leaf = _PRICES
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date", return_date="date") + optional(pick="travel_pick")
    objects = _PAIR

    def shape(self, slot_names: Given) -> Shape:
        return _calls(TRAINS, TRAINS)


class TrainOrFlight(CityIntent):
    """Which is cheaper (or quicker) from A to B on Friday: train or flight?"""

    name = "train_or_flight"
    leaf = "planning_and_decision.solution_comparison.transportation_mode"
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date", pick="fare_pick")
    objects = _PAIR

    def shape(self, slot_names: Given) -> Shape:
        return _calls(TRAINS, FLIGHTS)


class BudgetTravel(CityIntent):
    """Is 500 yuan enough for the train from A to B on Friday or the days after it?"""

    name = "budget_travel"
    leaf = "planning_and_decision.feasibility_assessment"
    domain = "travel"
    slots = required(city_from="city", city_to="city", date="date", price="price") + optional(days="days")
    objects = _PAIR

    def shape(self, slot_names: Given) -> Shape:
        return _calls(TRAINS)


class CompareDestinations(CityIntent):
    """Which of two or three cities is warmer on Friday, and what does the train there cost?"""

    name = "compare_destinations"
    leaf = "planning_and_decision.solution_comparison.destination"
    domain = "weather"
    slots = required(city_a="city", city_b="city", date="date") + optional(city_c="city", city_from="city", pick="travel_pick")
    objects = frozenset({"city_a"})

    def shape(self, slot_names: Given) -> Shape:
        count = 3 if "city_c" in slot_names else 2
        with_trains = "city_from" in slot_names
        return _calls(*[FORECAST] * count, *[TRAINS] * (count if with_trains else 0))


class DestinationIdeas(CityIntent):
    """Where should I go for beaches, and what is the weather there on Friday?"""

    name = "destination_ideas"
    leaf = "discovery.destination_discovery.open_ended"
    domain = "information"
    slots = required(interest="interest") + optional(date="date")
    objects = frozenset({"interest"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        guide = steps.add(WEB)
        if "date" in slot_names:
            steps.add(FORECAST, guide)
        return steps.shape


class DestinationFor(CityIntent):
    """From A, on Friday, for beaches: where to, which flight, what weather?"""

    name = "destination_for"
    leaf = "discovery.destination_discovery.constrained"
    domain = "information"
    slots = required(interest="interest", city_from="city", date="date") + optional(
        pick="travel_pick", price_max="price", forecast_days="days", return_date="date", topic="topic"
    )
    objects = frozenset({"interest"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        guide = steps.add(WEB)
        steps.add(FLIGHTS, guide)
        if "return_date" in slot_names:
            steps.add(FLIGHTS, guide)
        if "forecast_days" in slot_names:
            steps.add(FORECAST, guide)
        if "topic" in slot_names:
            steps.add(WEB)
        return steps.shape


class WeatherNow(CityIntent):
    """What is the weather at Willow Park right now?"""

    name = "weather_now"
    leaf = "dynamic_information.realtime_weather"
    domain = "weather"
    slots = required(place="place")
    objects = frozenset({"place"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(CONDITIONS, steps.add(SEARCH))
        return steps.shape


class WeatherInDistrict(CityIntent):
    """Tomorrow's weather in Riverside District."""

    name = "weather_in_district"
    leaf = "dynamic_information.realtime_weather"
    domain = "weather"
    slots = required(district="district", date="date") + optional(days="days")
    objects = frozenset({"district"})

    def shape(self, slot_names: Given) -> Shape:
        return _calls(FORECAST)


class WeatherInCity(CityIntent):
    """The weather in Kunming from Friday on, for three days."""

    name = "weather_in_city"
    leaf = "dynamic_information.realtime_weather"
    domain = "weather"
    slots = required(city="city", date="date") + optional(days="days")
    objects = frozenset({"city"})

    def shape(self, slot_names: Given) -> Shape:
        return _calls(FORECAST)
