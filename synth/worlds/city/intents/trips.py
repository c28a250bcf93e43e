"""Jobs of several dependent steps: find the best place and go there, half a day out, a whole day out, a stay of several days."""

from __future__ import annotations

from synth.worlds.base import misfit
from synth.worlds.city.intents.about import rank
from synth.worlds.city.intents.base import FORECAST, RANKING, ROUTES, SEARCH, TRAINS, WEB, CityIntent, SlotNames, Step, optional, required
from synth.worlds.city.intents.plan_parts import (
    Row,
    Slots,
    best_near,
    both,
    compute,
    departures,
    distinct,
    filters,
    forecast,
    locate,
    mode_of,
    moment,
    name_of,
    rows_of,
    search_near,
    tell_departure,
    tell_found,
    tell_route,
    tell_weather,
)
from synth.worlds.city.intents.web import tell_opening, tell_policy
from synth.worlds.city.map.place_names import CITY_EN, CITY_ZH
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.vocabulary import label


def _tell_way(script: Script, slots: Slots, stops: list[Row]) -> None:
    """Computes the way through the stops and states it.

    Raises:
        Unsolvable: a stop comes twice.
    """
    distinct(*(stop["place_id"] for stop in stops))
    route = compute(script, stops, mode_of(slots), departure_time=moment(slots))[0]
    tell_route(script, route, with_arrival="depart" in slots)


def _name(script: Script, *rows: Row) -> None:
    script.say(f"Go to {', then '.join(row['name'] for row in rows)}.", f"前往{'，再到'.join(row['name_zh'] for row in rows)}。")


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
    steps = (Step(SEARCH), Step(SEARCH), Step(SEARCH, 1), Step(ROUTES, 0, 2), Step(FORECAST, 2, when={"date"}))

    def report(self, script: Script, slots: Slots) -> None:
        distinct(slots["origin"], slots["place"])
        origin = locate(script, slots["origin"])
        best = best_near(script, slots, locate(script, slots["place"]), slots["category"])
        _name(script, best)
        _tell_way(script, slots, [origin, best])
        if "date" in slots:
            tell_weather(script, forecast(script, best["coords"], slots["date"]))


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
    steps = (Step(SEARCH), Step(SEARCH, 0), Step(SEARCH, 1), Step(ROUTES, 0, 1, 2), Step(FORECAST, 0, when={"date"}))

    def report(self, script: Script, slots: Slots) -> None:
        distinct(slots["category_a"], slots["category_b"])
        stops = [locate(script, slots["place"])]
        for name in ("category_a", "category_b"):
            stops.append(best_near(script, slots, stops[-1], slots[name]))
        _name(script, *stops[1:])
        _tell_way(script, slots, stops)
        if "date" in slots:
            tell_weather(script, forecast(script, stops[0]["coords"], slots["date"]))


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
    steps = (
        Step(SEARCH),
        Step(SEARCH, 0),
        Step(SEARCH, 1),
        Step(SEARCH, 2),
        Step(ROUTES, 0, 1, 2, 3),
        Step(FORECAST, 0),
        Step(WEB, when={"venue"}),
    )

    def report(self, script: Script, slots: Slots) -> None:
        distinct(slots["category_a"], slots["category_b"], slots["category_c"])
        stops = [locate(script, slots["place"])]
        for name in ("category_a", "category_b", "category_c"):
            stops.append(best_near(script, slots, stops[-1], slots[name]))
        _name(script, *stops[1:])
        _tell_way(script, slots, stops)
        tell_weather(script, forecast(script, stops[0]["coords"], slots["date"]))
        if "venue" in slots:
            tell_opening(script, slots["venue"], slots["date"])


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
    steps = (
        Step(TRAINS),
        Step(TRAINS),
        Step(FORECAST),
        Step(SEARCH),
        Step(SEARCH, 3),
        Step(SEARCH, when={"place"}),
        Step(ROUTES, 3, 4, 5),
        Step(RANKING, when={"ranking"}),
        Step(WEB, when={"topic"}),
    )

    def has_conflict(self, slot_names: SlotNames) -> bool:
        return {"hotel_price_max", "min_rating"} <= slot_names or super().has_conflict(slot_names)

    def report(self, script: Script, slots: Slots) -> None:
        if slots["return_date"] <= slots["date"] or slots["category"] == "hotel":
            raise misfit("back before it begins, or a hotel near the hotel")
        pick, home = slots.get("pick", "cheapest"), slots["city"]
        for origin, destination, day in ((home, "lanchuan", "date"), ("lanchuan", home, "return_date")):
            tell_departure(script, departures(script, TRAINS, origin, destination, slots[day]), pick)
        tell_weather(script, forecast(script, CITY_EN if script.language == "en" else CITY_ZH, slots["date"]))
        hotel = self._hotel(script, slots)
        near = {name: slots[name] for name in ("radius", "sort", "min_rating") if name in slots}
        stops = [hotel, best_near(script, near, hotel, slots["category"])]
        if "place" in slots:
            stops.append(locate(script, slots["place"]))
        _name(script, *stops[1:])
        _tell_way(script, slots, stops)
        if "ranking" in slots:
            leader = rank(script, slots["ranking"], slots["district"], None)[0]
            script.say(f"The ranking is led by {leader['name']}.", f"榜首是{leader['name_zh']}。")
        if "topic" in slots:
            tell_policy(script, slots["topic"])

    @staticmethod
    def _hotel(script: Script, slots: Slots) -> Row:
        """The best hotel of the district: by the order asked for, where it makes sense in a district, else by rating."""
        wishes = {name: slots[name] for name in ("min_rating",) if name in slots}
        wishes["sort"] = slots.get("sort", "rating:d") if slots.get("sort") != "distance" else "rating:d"
        if "hotel_price_max" in slots:
            wishes["price_max"] = slots["hotel_price_max"]
        query, region = label("category", "hotel", script.language), label("district", slots["district"], script.language)
        result = script.call(SEARCH, {"query": query, "region": region, **filters(wishes, "hotel")})
        hotel = rows_of(result)[0]
        script.fact("name", name_of(script, hotel), *both(hotel))
        script.evidence("word", wishes["sort"], f"complete list of {result['total']}")
        script.say(f"Stay at {hotel['name']}, rated {hotel['rating']}.", f"入住{hotel['name_zh']}，评分{hotel['rating']}。")
        return hotel


class RainPlan(CityIntent):
    """Is it dry at A on Friday, and if not, which cinema is near?"""

    name = "rain_plan"
    leaf = "planning_and_decision.feasibility_assessment"
    domain = "weather"
    slots = required(place="place", date="date", category="category") + optional(
        radius="distance_m", min_rating="rating", price_max="price", sort="poi_sort", feature="feature"
    )
    objects = frozenset({"category"})
    steps = (Step(SEARCH), Step(FORECAST, 0), Step(SEARCH, 0))

    def report(self, script: Script, slots: Slots) -> None:
        start = locate(script, slots["place"])
        tell_weather(script, forecast(script, start["coords"], slots["date"]))
        tell_found(script, slots, search_near(script, slots, start, category=slots["category"]))
