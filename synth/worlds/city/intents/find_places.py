"""Finding places: near a landmark, in a district, by theme, along a route, between friends."""

from __future__ import annotations

from synth.worlds.base import misfit
from synth.worlds.city.intents.base import (
    ALONG,
    CENTRAL,
    FORECAST,
    LOCATE_TWO_OR_THREE,
    ROUTES,
    SEARCH,
    CityIntent,
    SlotNames,
    Step,
    optional,
    required,
)
from synth.worlds.city.intents.plan_parts import (
    Row,
    Slots,
    both,
    compute,
    describe,
    distinct,
    filters,
    forecast,
    locate,
    mode_of,
    name_of,
    query_text,
    rows_of,
    search_near,
    tell_found,
    tell_route,
    tell_weather,
)
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.vocabulary import label

_FILTERS = {
    "min_rating": "rating",
    "price_max": "price",
    "price_min": "price",
    "feature": "feature",
    "open_now": "open_now",
    "sort": "poi_sort",
    "limit": "count",
}
_SEARCH_NEAR = (Step(SEARCH), Step(SEARCH, 0))


class PoiSearchNear(CityIntent):
    """A coffee shop within 2000 m of Willow Park, rated 4.5 or better, at most 50 yuan, with free wifi, open now, nearest first."""

    name = "poi_search_near"
    leaf = "discovery.poi_search.constrained_poi_search"
    domain = "map"
    slots = required(category="category", place="place") + optional(radius="distance_m", **_FILTERS)
    objects = frozenset({"category"})
    steps = _SEARCH_NEAR

    def report(self, script: Script, slots: Slots) -> None:
        start = locate(script, slots["place"])
        tell_found(script, slots, search_near(script, slots, start, category=slots["category"]))


class PoiSearchInDistrict(CityIntent):
    """The cheapest hotpot restaurant in Riverside District."""

    name = "poi_search_in_district"
    leaf = "discovery.poi_search.constrained_poi_search"
    domain = "map"
    slots = required(category="category", district="district") + optional(**_FILTERS)
    objects = frozenset({"category"})
    steps = (Step(SEARCH),)

    def report(self, script: Script, slots: Slots) -> None:
        if slots.get("sort") == "distance":
            raise misfit("nearest to what is not said")
        region = label("district", slots["district"], script.language)
        arguments = filters(slots, slots["category"])
        tell_found(
            script, slots, script.call(SEARCH, {"query": query_text(script, slots, slots["category"]), "region": region, **arguments})
        )


class ExploreAround(CityIntent):
    """Something fun for kids around Jade Museum."""

    name = "explore_around"
    leaf = "discovery.poi_search.open_ended_poi_exploration"
    domain = "map"
    slots = required(theme="theme", place="place") + optional(
        radius="distance_m", min_rating="rating", feature="feature", open_now="open_now", sort="poi_sort", limit="count"
    )
    objects = frozenset({"theme"})
    steps = _SEARCH_NEAR

    def report(self, script: Script, slots: Slots) -> None:
        start = locate(script, slots["place"])
        tell_found(script, slots, search_near(script, slots, start, theme=slots["theme"]))


class MeetInTheMiddle(CityIntent):
    """A tea house that suits three people who start at three places."""

    name = "meet_in_the_middle"
    leaf = "discovery.poi_search.spatial_optimized_poi_search"
    domain = "map"
    slots = required(category="category", place_a="place", place_b="place") + optional(
        place_c="place",
        radius="distance_m",
        min_rating="rating",
        price_max="price",
        feature="feature",
        open_now="open_now",
        criterion="central_sort",
        limit="count",
    )
    objects = frozenset({"category"})
    steps = (*LOCATE_TWO_OR_THREE, Step(CENTRAL, 0, 1, 2))

    def has_conflict(self, slot_names: SlotNames) -> bool:
        return "place_c" in slot_names or super().has_conflict(slot_names)

    def report(self, script: Script, slots: Slots) -> None:
        result = _central(script, slots, _homes(script, slots))
        rows = tell_found(script, slots, result, "max_m")
        script.fact("number", rows[0]["mean_m"])
        script.say(f"The mean way is {rows[0]['mean_m']} m.", f"平均路程{rows[0]['mean_m']}米。")


class MeetAndGo(CityIntent):
    """Where should we meet between A and B, how does each of us get there, and what will the weather be?"""

    name = "meet_and_go"
    leaf = "discovery.poi_search.spatial_optimized_poi_search"
    domain = "map"
    slots = required(category="category", place_a="place", place_b="place") + optional(
        place_c="place",
        radius="distance_m",
        min_rating="rating",
        price_max="price",
        feature="feature",
        criterion="central_sort",
        mode="mode",
        date="date",
    )
    objects = frozenset({"category"})
    steps = (
        *LOCATE_TWO_OR_THREE,
        Step(CENTRAL, 0, 1, 2),
        Step(ROUTES, 0, 3),
        Step(ROUTES, 1, 3),
        Step(ROUTES, 2, 3, when={"place_c"}),
        Step(FORECAST, 3, when={"date"}),
    )

    def has_conflict(self, slot_names: SlotNames) -> bool:
        return "place_c" in slot_names or super().has_conflict(slot_names)

    def report(self, script: Script, slots: Slots) -> None:
        homes = _homes(script, slots)
        met = rows_of(_central(script, slots, homes))[0]
        script.fact("name", name_of(script, met), *both(met))
        script.say(f"Meet at {met['name']} ({describe(met, None, 'en')}).", f"在{met['name_zh']}（{describe(met, None, 'zh')}）见面。")
        for home in homes:
            if home["place_id"] == met["place_id"]:
                raise misfit("they meet where one of them is")
            script.say(f"From {home['name']}:", f"从{home['name_zh']}出发：")
            tell_route(script, compute(script, [home, met], mode_of(slots))[0])
        if "date" in slots:
            tell_weather(script, forecast(script, met["coords"], slots["date"]))


class AlongRoute(CityIntent):
    """A gas station on the way from A to B."""

    name = "along_route"
    leaf = "discovery.poi_search.spatial_optimized_poi_search"
    domain = "map"
    slots = required(category="category", origin="place", destination="place") + optional(
        mode="along_mode", buffer="distance_m", feature="feature", open_now="open_now", limit="count"
    )
    objects = frozenset({"category"})
    steps = (Step(SEARCH), Step(SEARCH), Step(ALONG, 0, 1))

    def report(self, script: Script, slots: Slots) -> None:
        distinct(slots["origin"], slots["destination"])
        origin, destination = locate(script, slots["origin"]), locate(script, slots["destination"])
        result = script.call(
            ALONG,
            {
                "query": query_text(script, slots, slots["category"]),
                "origin": origin["coords"],
                "destination": destination["coords"],
                "transport_mode": slots.get("mode"),
                "buffer_radius": slots.get("buffer"),
                "limit": slots.get("limit"),
            },
        )
        tell_found(script, slots, result, "off_route_m")


def _homes(script: Script, slots: Slots) -> list[Row]:
    keys = [slots[name] for name in ("place_a", "place_b", "place_c") if name in slots]
    distinct(*keys)
    return [locate(script, key) for key in keys]


def _central(script: Script, slots: Slots, homes: list[Row]) -> Row:
    criterion = slots.get("criterion")
    arguments = filters(slots, slots["category"]) | {"sort_by": criterion}
    query, origins = query_text(script, slots, slots["category"]), [home["coords"] for home in homes]
    result = script.call(CENTRAL, {"query": query, "origins": origins, "radius": slots.get("radius"), **arguments})
    if criterion is not None:
        script.evidence("word", criterion, f"complete list of {result.get('total')}")
    return result
