"""Jobs of several dependent steps: find the best place and go there, half a day out, a whole day out, a stay of several days."""

from __future__ import annotations

from synth.worlds.base import Shape
from synth.worlds.city.intents.base import FORECAST, RANKING, ROUTES, SEARCH, TRAINS, WEB, CityIntent, Given, Steps, optional, required


class RouteToBestNearby(CityIntent):
    """The best-rated hotpot restaurant near B, and how to get there from A."""

    name = "route_to_best_nearby"
    leaf = "planning_and_decision.route_planning"
    domain = "map"
    slots = required(origin="place", place="place", category="category") + optional(
        radius="distance_m",
        min_rating="rating",
        price_max="price",
        feature="feature",
        open_now="open_now",
        sort="poi_sort",
        mode="mode",
        depart="clock",
        date="date",
    )
    objects = frozenset({"origin", "category"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        origin = steps.add(SEARCH)
        found = steps.add(SEARCH, steps.add(SEARCH))
        steps.add(ROUTES, origin, found)
        if "date" in slot_names:
            steps.add(FORECAST, found)
        return steps.shape


class HalfDayTrip(CityIntent):
    """From A to the best museum nearby, then to the best tea house near that."""

    name = "half_day_trip"
    leaf = "planning_and_decision.itinerary_planning.short_trip"
    domain = "map"
    slots = required(place="place", category_a="category", category_b="category") + optional(
        radius="distance_m",
        min_rating="rating",
        price_max="price",
        feature="feature",
        open_now="open_now",
        sort="poi_sort",
        mode="mode",
        depart="clock",
        date="date",
    )
    objects = frozenset({"category_a", "category_b"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        start = steps.add(SEARCH)
        first = steps.add(SEARCH, start)
        second = steps.add(SEARCH, first)
        steps.add(ROUTES, start, first, second)
        if "date" in slot_names:
            steps.add(FORECAST, start)
        return steps.shape


class DayTrip(CityIntent):
    """A day out: three stops, each found near the one before, the way between them, and the weather."""

    name = "day_trip"
    leaf = "planning_and_decision.itinerary_planning.medium_trip"
    domain = "map"
    slots = required(place="place", category_a="category", category_b="category", category_c="category", date="date") + optional(
        radius="distance_m",
        min_rating="rating",
        price_max="price",
        feature="feature",
        sort="poi_sort",
        mode="mode",
        depart="clock",
        venue="venue",
    )
    objects = frozenset({"category_a", "category_b", "category_c"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        start = steps.add(SEARCH)
        first = steps.add(SEARCH, start)
        second = steps.add(SEARCH, first)
        third = steps.add(SEARCH, second)
        steps.add(ROUTES, start, first, second, third)
        steps.add(FORECAST, start)
        if "venue" in slot_names:
            steps.add(WEB)
        return steps.shape


class LongTrip(CityIntent):
    """Coming to the city by train for some days: trains there and back, the weather, a hotel, where to eat, the way, and more."""

    name = "long_trip"
    leaf = "planning_and_decision.itinerary_planning.long_trip"
    domain = "travel"
    slots = required(city="city", date="date", return_date="date", district="district", category="category") + optional(
        radius="distance_m",
        hotel_price_max="price",
        min_rating="rating",
        sort="poi_sort",
        mode="mode",
        pick="travel_pick",
        place="place",
        topic="topic",
        ranking="category",
    )
    objects = frozenset({"category"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(TRAINS)
        steps.add(TRAINS)
        steps.add(FORECAST)
        hotel = steps.add(SEARCH)
        found = steps.add(SEARCH, hotel)
        stops = [hotel, found]
        if "place" in slot_names:
            stops.append(steps.add(SEARCH))
        steps.add(ROUTES, *stops)
        if "ranking" in slot_names:
            steps.add(RANKING)
        if "topic" in slot_names:
            steps.add(WEB)
        return steps.shape

    def has_conflict(self, slot_names: Given) -> bool:
        return {"hotel_price_max", "min_rating"} <= slot_names or super().has_conflict(slot_names)


class RainPlan(CityIntent):
    """Is it dry at A on Friday, and if not, which cinema is near?"""

    name = "rain_plan"
    leaf = "planning_and_decision.feasibility_assessment"
    domain = "weather"
    slots = required(place="place", date="date", category="category") + optional(
        radius="distance_m", min_rating="rating", price_max="price", sort="poi_sort", feature="feature"
    )
    objects = frozenset({"category"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        start = steps.add(SEARCH)
        steps.add(FORECAST, start)
        steps.add(SEARCH, start)
        return steps.shape
