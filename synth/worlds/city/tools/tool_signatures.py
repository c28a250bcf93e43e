"""The ten tools of the city, with the names, parameters, defaults, bounds and enums of STAgent's environment (TravelBench's code).

A parameter marked `x-grounded` must take its value from the conversation: places, coordinates, quantities, dates. Free search text,
enums and flags need not. Distances are metres, money is yuan, ratings go to 5 (the bound of `min_rating` is the original's 10).
"""

from __future__ import annotations

from storage.records import JSON, Tool
from synth.worlds.city.vocabulary import CENTRAL_SORTS, MODES, POI_SORTS, PREFERENCES

PRICE_CATEGORIES = ("average_cost", "price")

_COORDS = 'Coordinate "lat,lon".'


def _text(description: str, **more: JSON) -> dict[str, JSON]:
    return {"type": "string", "description": description, **more}


def _grounded(description: str, **more: JSON) -> dict[str, JSON]:
    return {"type": "string", "description": description, "x-grounded": True, **more}


def _whole(description: str, low: int, high: int, **more: JSON) -> dict[str, JSON]:
    return {"type": "integer", "description": description, "minimum": low, "maximum": high, "x-grounded": True, **more}


def _number(description: str, low: float, high: float | None = None) -> dict[str, JSON]:
    return {"type": "number", "description": description, "minimum": low, **({} if high is None else {"maximum": high}), "x-grounded": True}


def _coordinates(description: str, least: int, most: int) -> dict[str, JSON]:
    return {
        "type": "array",
        "items": {"type": "string"},
        "minItems": least,
        "maxItems": most,
        "description": description,
        "x-grounded": True,
    }


_LIMIT = _whole("How many to return.", 1, 20, default=10)
_PRICES: dict[str, JSON] = {
    "min_rating": _number("Least rating; ratings go to 5.", 0, 10),
    "price_min": _number("Least price in yuan; needs price_category.", 0),
    "price_max": _number("Highest price in yuan; needs price_category.", 0),
    "price_category": _text(
        "Which price is meant: average_cost (a person's share: food, drink, shopping, leisure) or price (rooms, tickets, entry).",
        enum=list(PRICE_CATEGORIES),
    ),
}


def _tool(name: str, description: str, server: str, required: tuple[str, ...], properties: dict[str, JSON]) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return Tool(name=name, description=description, parameters=parameters, server=server, domain=server, world="city")


TOOLS: tuple[Tool, ...] = (
    _tool(
        "map_search_places",
        "Finds places by name, category, theme or feature (e.g. 'coffee shop free wifi open now'). With sort_by, the best one comes first; "
        "ratings that are equal are ordered by reviews.",
        "map",
        ("query",),
        {
            "query": _text("What to look for: a place's name, or a category with wanted features and 'open now'."),
            "center": _grounded(f"Search around here. {_COORDS}"),
            "radius": _whole("Metres around center.", 100, 20000, default=5000),
            "region": _grounded("District or city to search in."),
            "sort_by": _text(
                "Order; distance needs center, price orders need price_category.", enum=["weight", *POI_SORTS], default="weight"
            ),
            **_PRICES,
            "limit": _LIMIT,
        },
    ),
    _tool(
        "map_compute_routes",
        "Routes between coordinates for one or several modes: distance, duration, arrival, tolls or fare, roads or lines.",
        "map",
        ("origin", "destination"),
        {
            "origin": _grounded(_COORDS),
            "destination": _grounded(_COORDS),
            "intermediates": _coordinates("Coordinates to pass, in order; not for transit.", 0, 8),
            "modes": {
                "type": "array", "items": {"type": "string", "enum": list(MODES)}, "minItems": 1, "maxItems": 6, "default": ["driving"],
                "description": "Modes of transport.",
            },
            "departure_time": _grounded("Local time YYYY-MM-DDTHH:MM, from today on; not together with arrival_time. Now by default."),
            "arrival_time": _grounded("Local time YYYY-MM-DDTHH:MM by which to arrive; not together with departure_time."),
            "traffic_aware": {"type": "boolean", "default": False, "description": "Take the hour's traffic into account (motor vehicles)."},
            "preference": _text("For driving, motorcycle and truck.", enum=list(PREFERENCES)),
        },
    ),
    _tool(
        "map_search_along_route",
        "Finds places along the way between two coordinates, the one nearest to the way first.",
        "map",
        ("query", "origin", "destination"),
        {
            "query": _text("What to look for."),
            "origin": _grounded(_COORDS),
            "destination": _grounded(_COORDS),
            "transport_mode": _text("Mode of transport.", enum=["driving", "walking"], default="driving"),
            "buffer_radius": _whole("Metres off the way; by default 2000 when driving, 500 when walking.", 100, 10000),
            "limit": _LIMIT,
        },
    ),
    _tool(
        "map_search_central_places",
        "Finds places that suit several people who start at different coordinates; distances are by road.",
        "map",
        ("query", "origins"),
        {
            "query": _text("What to look for."),
            "origins": _coordinates("Where each person starts.", 2, 10),
            "radius": _whole("Metres around the middle of the origins.", 100, 20000, default=10000),
            "sort_by": _text(
                "balanced (mean and longest way alike), min_max_distance (shortest longest way) or total_distance (shortest sum).",
                enum=list(CENTRAL_SORTS), default="balanced",
            ),
            **_PRICES,
            "limit": _LIMIT,
        },
    ),
    _tool(
        "map_search_ranking_list",
        "Ranking lists of a kind of place in a district or city: top rated, most reviewed and others.",
        "map",
        ("query", "region"),
        {
            "query": _text("Kind of place."),
            "region": _grounded("District or city."),
            "max_lists": _whole("How many lists.", 1, 10, default=5),
            "max_items": _whole("How many places a list.", 1, 20, default=3),
        },
    ),
    _tool(
        "travel_search_flights",
        "Flights between two cities on a day, or from that day to `days` days later, with prices and seats.",
        "travel",
        ("origin", "destination", "date"),
        {
            "origin": _grounded("City, e.g. Kunming."),
            "destination": _grounded("City."),
            "date": _grounded("YYYY-MM-DD, within 15 days."),
            "days": _whole("Days after date to include.", 0, 15, default=0),
        },
    ),
    _tool(
        "travel_search_trains",
        "Trains between two cities on a day, or from that day to `days` days later, with prices and seats.",
        "travel",
        ("origin", "destination", "date"),
        {
            "origin": _grounded("City, e.g. Kunming."),
            "destination": _grounded("City."),
            "date": _grounded("YYYY-MM-DD, within 15 days."),
            "days": _whole("Days after date to include.", 0, 15, default=0),
        },
    ),
    _tool(
        "weather_current_conditions",
        "The weather now at a coordinate, in a district or in a city.",
        "weather",
        ("location",),
        {"location": _grounded('Coordinate "lat,lon", district or city.')},
    ),
    _tool(
        "weather_forecast_days",
        "The weather forecast for one or several days at a coordinate, in a district or in a city.",
        "weather",
        ("location", "date"),
        {
            "location": _grounded('Coordinate "lat,lon", district or city.'),
            "date": _grounded("First day, YYYY-MM-DD, within 15 days."),
            "days": _whole("How many days.", 1, 15, default=1),
        },
    ),
    _tool(
        "web_search",
        "Searches the web: travel policies, opening and entry rules, fares, status of transit lines, guides to areas and destinations.",
        "web",
        ("query",),
        {"query": _text("Search words.")},
    ),
)  # fmt: skip

TOOL_WORDS: dict[str, tuple[str, ...]] = {
    "map_search_places": ("find", "search", "look for", "where is", "查找", "搜索", "找", "哪里有"),
    "map_compute_routes": ("route", "get from", "get to", "navigate", "directions", "路线", "怎么走", "怎么去", "导航"),
    "map_search_along_route": ("along the way", "on the way", "along the route", "沿途", "顺路", "路上"),
    "map_search_central_places": ("meet", "halfway", "middle", "碰头", "见面", "中间"),
    "map_search_ranking_list": ("ranking", "top list", "leaderboard", "榜单", "排行", "排名"),
    "travel_search_flights": ("flight", "fly", "plane", "航班", "飞机", "机票"),
    "travel_search_trains": ("train", "railway", "火车", "高铁", "车次", "动车"),
    "weather_current_conditions": ("weather now", "right now", "weather", "现在天气", "天气"),
    "weather_forecast_days": ("forecast", "weather", "预报", "天气"),
    "web_search": ("search the web", "look up", "rules", "policy", "status", "guide", "网上查", "查一下", "规定", "政策", "状态", "介绍"),
}
