"""Finding places: near a landmark, in a district, by theme, along a route, between friends; ranking lists; what is known of a place."""

from __future__ import annotations

from synth.worlds.base import Shape
from synth.worlds.city.intents.base import (
    ALONG,
    CENTRAL,
    FORECAST,
    RANKING,
    ROUTES,
    SEARCH,
    WEB,
    CityIntent,
    Given,
    Steps,
    optional,
    required,
)

_FILTERS = {
    "min_rating": "rating",
    "price_max": "price",
    "price_min": "price",
    "feature": "feature",
    "open_now": "open_now",
    "sort": "poi_sort",
    "limit": "count",
}


class PoiSearchNear(CityIntent):
    """A coffee shop within 2000 m of Willow Park, rated 4.5 or better, at most 50 yuan, with free wifi, open now, nearest first."""

    name = "poi_search_near"
    leaf = "discovery.poi_search.constrained_poi_search"
    domain = "map"
    slots = required(category="category", place="place") + optional(radius="distance_m", **_FILTERS)
    objects = frozenset({"category"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(SEARCH, steps.add(SEARCH))
        return steps.shape


class PoiSearchInDistrict(CityIntent):
    """The cheapest hotpot restaurant in Riverside District."""

    name = "poi_search_in_district"
    leaf = "discovery.poi_search.constrained_poi_search"
    domain = "map"
    slots = required(category="category", district="district") + optional(**_FILTERS)
    objects = frozenset({"category"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(SEARCH)
        return steps.shape


class ExploreAround(CityIntent):
    """Something fun for kids around Jade Museum."""

    name = "explore_around"
    leaf = "discovery.poi_search.open_ended_poi_exploration"
    domain = "map"
    slots = required(theme="theme", place="place") + optional(
        radius="distance_m", min_rating="rating", feature="feature", open_now="open_now", sort="poi_sort", limit="count"
    )
    objects = frozenset({"theme"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(SEARCH, steps.add(SEARCH))
        return steps.shape


class TopList(CityIntent):
    """What leads the coffee shop ranking in Old Town District?"""

    name = "top_list"
    leaf = "discovery.poi_search.open_ended_poi_exploration"
    domain = "information"
    slots = required(category="category", district="district") + optional(limit="count")
    objects = frozenset({"category"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(RANKING)
        return steps.shape


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

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(CENTRAL, *steps.locate(3 if "place_c" in slot_names else 2))
        return steps.shape

    def has_conflict(self, slot_names: Given) -> bool:
        return "place_c" in slot_names or super().has_conflict(slot_names)


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

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        homes = steps.locate(3 if "place_c" in slot_names else 2)
        central = steps.add(CENTRAL, *homes)
        for home in homes:
            steps.add(ROUTES, home, central)
        if "date" in slot_names:
            steps.add(FORECAST, central)
        return steps.shape

    def has_conflict(self, slot_names: Given) -> bool:
        return "place_c" in slot_names or super().has_conflict(slot_names)


class AlongRoute(CityIntent):
    """A gas station on the way from A to B."""

    name = "along_route"
    leaf = "discovery.poi_search.spatial_optimized_poi_search"
    domain = "map"
    slots = required(category="category", origin="place", destination="place") + optional(
        mode="along_mode", buffer="distance_m", feature="feature", open_now="open_now", limit="count"
    )
    objects = frozenset({"category"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(ALONG, *steps.locate(2))
        return steps.shape


class PlaceDetails(CityIntent):
    """When is Jade Museum open?"""

    name = "place_details"
    leaf = "discovery.information_query.basic_attributes"
    domain = "map"
    slots = required(place="place", attribute="attribute")
    objects = frozenset({"place", "attribute"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(SEARCH)
        return steps.shape


class PlaceReputation(CityIntent):
    """What do people think of Jade Museum?"""

    name = "place_reputation"
    leaf = "discovery.information_query.reputation_and_reviews"
    domain = "map"
    slots = required(place="place")
    objects = frozenset({"place"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(SEARCH)
        return steps.shape


class ComparePlaces(CityIntent):
    """Which of these two or three has the higher rating?"""

    name = "compare_places"
    leaf = "planning_and_decision.solution_comparison.poi"
    domain = "map"
    slots = required(place_a="place", place_b="place", criterion="poi_criterion") + optional(place_c="place")
    objects = frozenset({"place_a"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.locate(3 if "place_c" in slot_names else 2)
        return steps.shape


class AreaSummary(CityIntent):
    """What is Riverside District like, which hotpot restaurants lead there, and where is something fun for kids?"""

    name = "area_summary"
    leaf = "discovery.area_summaries"
    domain = "information"
    slots = required(district="district") + optional(category="category", theme="theme", date="date")
    objects = frozenset({"district"})

    def shape(self, slot_names: Given) -> Shape:
        steps = Steps()
        steps.add(WEB)
        if "category" in slot_names:
            steps.add(RANKING)
        if "theme" in slot_names:
            steps.add(SEARCH)
        if "date" in slot_names:
            steps.add(FORECAST)
        return steps.shape
