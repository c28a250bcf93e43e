"""The four tools that find places: by query, along a route, between several people, and as ranking lists.

All filter columns first and render only the rows that are shown. Orders are total (ties go to more reviews, then to the lower number),
so that "the best rated" is one place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth.worlds.arguments import BadArgument
from synth.worlds.city.map.city_map import City, district_of, point
from synth.worlds.city.map.geometry import Floats
from synth.worlds.city.map.hash_rng import bits
from synth.worlds.city.map.place_catalog import catalogue, category_codes
from synth.worlds.city.map.place_names import CITY_EN, CITY_ZH, DISTRICTS
from synth.worlds.city.map.places import DISTRICT_KEYS, Places
from synth.worlds.city.tools.place_query import Query, read_query
from synth.worlds.city.vocabulary import CATEGORIES

Indices = NDArray[np.int64]
Column = NDArray[Any]
Arguments = dict[str, Any]

_POSITIONS = {key: position for position, key in enumerate(CATEGORIES)}
_NOTHING: dict[str, Any] = {"total": 0, "places": []}
_PRICED = {
    kind: np.array([category.price == kind for category in CATEGORIES.values()]) for kind in ("average_cost", "price")
}  # by position of the category


def _matches(city: City, query: Query) -> Indices:
    """Existing places that a query means, in the catalogue's order."""
    places = city.places
    if query.is_empty and not query.open_now:
        return np.empty(0, np.int64)
    if query.places:
        indices = np.array(query.places)
        matching: Indices = indices[places.present[indices]]
    elif len(query.categories) == 1:
        matching = places.of_category(query.categories[0])
    elif query.categories:
        matching = np.sort(np.concatenate([places.of_category(category) for category in query.categories]))
    else:
        matching = np.flatnonzero(places.present)
    if query.features:
        matching = matching[places.features[matching] & query.features == query.features]
    if query.open_now:
        matching = matching[places.is_open[matching]]
    return matching


def _check_prices(given: Arguments, *, sorts_by_price: bool = False) -> None:
    if given["price_category"] is None and (given["price_min"] is not None or given["price_max"] is not None or sorts_by_price):
        raise BadArgument("price_category is required with price_min, price_max and price orders: average_cost or price")
    if given["price_min"] is not None and given["price_max"] is not None and given["price_min"] > given["price_max"]:
        raise BadArgument("price_min must not be above price_max")


def _filter(places: Places, indices: Indices, given: Arguments) -> Indices:
    if given["min_rating"] is not None:
        indices = indices[places.rating[indices] >= given["min_rating"] - 1e-9]
    if given["price_category"] is not None:
        indices = indices[_PRICED[given["price_category"]][category_codes()[indices]]]
        if given["price_max"] is not None:
            indices = indices[places.yuan[indices] <= given["price_max"]]
        if given["price_min"] is not None:
            indices = indices[places.yuan[indices] >= given["price_min"]]
    return indices


def _order(places: Places, indices: Indices, key: Column) -> Indices:
    """Positions in `indices` by ascending key, ties to more reviews, then the lower index."""
    order: Indices = np.lexsort((indices, -places.reviews[indices], key))
    return order


def _answer(total: int, order: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return _NOTHING
    return {"total": total, "sort_by": order, "listing": f"complete list of {total}" if len(rows) == total else "partial", "places": rows}


def search_places(city: City, given: Arguments) -> dict[str, Any]:
    """map_search_places."""
    order, places = given["sort_by"], city.places
    _check_prices(given, sorts_by_price=order.startswith("price"))
    center = None if given["center"] is None else point("center", given["center"])
    if order == "distance" and center is None:
        raise BadArgument("center is required with sort_by distance")
    district = None if given["region"] is None else district_of("region", given["region"])
    indices = _filter(places, _matches(city, read_query(given["query"])), given)
    if district is not None:
        indices = indices[places.district[indices] == district]
    metres = None
    if center is not None:
        metres = np.hypot(places.x[indices] - center[0], places.y[indices] - center[1])
        near = metres <= given["radius"]
        indices, metres = indices[near], metres[near]
    key: Column
    if order == "distance":
        assert metres is not None
        key = metres
    elif order == "rating:d":
        key = -places.rating[indices]
    elif order == "weight":
        key = -places.weight[indices] if metres is None else metres / 3000.0 - places.weight[indices]
    else:
        key = places.yuan[indices] * (1.0 if order == "price:a" else -1.0)
    shown = _order(places, indices, key)[: int(given["limit"])]
    rows = [places.row(index) for index in indices[shown].tolist()]
    if metres is not None:
        rows = [{**row, "distance_m": round(far)} for row, far in zip(rows, metres[shown].tolist(), strict=True)]
    return _answer(len(indices), order, rows)


def search_along_route(city: City, given: Arguments) -> dict[str, Any]:
    """map_search_along_route."""
    origin, destination = point("origin", given["origin"]), point("destination", given["destination"])
    mode, places = given["transport_mode"], city.places
    buffer = given["buffer_radius"] or (2000 if mode == "driving" else 500)
    way = city.roads.way(origin, destination, mode)
    corners = city.roads.corners(way.edges)
    xs = np.array([origin[0], *city.roads.x[corners], destination[0]])
    ys = np.array([origin[1], *city.roads.y[corners], destination[1]])
    indices = _matches(city, read_query(given["query"]))
    off = _metres_off(places.x[indices], places.y[indices], xs, ys)
    near = off <= buffer
    indices, off = indices[near], off[near]
    shown = _order(places, indices, off)[: int(given["limit"])]
    rows = [
        {**places.row(index), "off_route_m": round(far)} for index, far in zip(indices[shown].tolist(), off[shown].tolist(), strict=True)
    ]
    answer = _answer(len(indices), "off_route_m", rows)
    return {**answer, "route": {"mode": mode, "distance_m": round(way.distance_m)}} if rows else answer


def _metres_off(x: Floats, y: Floats, xs: Floats, ys: Floats) -> Floats:
    """[points]: the distance of each point from the line through the corners."""
    ax, ay = xs[:-1], ys[:-1]
    dx, dy = xs[1:] - ax, ys[1:] - ay
    px, py = x[:, None] - ax, y[:, None] - ay
    share = np.clip((px * dx + py * dy) / np.maximum(dx * dx + dy * dy, 1e-9), 0.0, 1.0)
    metres: Floats = np.sqrt(((px - share * dx) ** 2 + (py - share * dy) ** 2).min(axis=1))
    return metres


def search_central_places(city: City, given: Arguments) -> dict[str, Any]:
    """map_search_central_places."""
    _check_prices(given)
    places, order = city.places, given["sort_by"]
    origins = [point("origins", text) for text in given["origins"]]
    indices = _filter(places, _matches(city, read_query(given["query"])), given)
    x, y = sum(at[0] for at in origins) / len(origins), sum(at[1] for at in origins) / len(origins)
    indices = indices[np.hypot(places.x[indices] - x, places.y[indices] - y) <= given["radius"]]
    if not indices.size:
        return _NOTHING
    crossings, access = places.crossings
    ways = np.array([city.roads.metres_from(at, crossings[indices]) for at in origins]) + access[indices]
    mean, most = ways.mean(axis=0), ways.max(axis=0)
    key = {"balanced": mean + most, "min_max_distance": most, "total_distance": mean}[order]
    shown = _order(places, indices, np.round(key, 3))[: int(given["limit"])]
    rows = [
        {
            **places.row(int(indices[at])),
            "mean_m": round(float(mean[at])),
            "max_m": round(float(most[at])),
            "total_m": round(float(mean[at]) * len(origins)),
            "from_origins_m": [round(metres) for metres in ways[:, at].tolist()],
        }
        for at in shown.tolist()
    ]
    return _answer(len(indices), order, rows)


_LISTS: tuple[tuple[str, str, Callable[[Places, Indices], Column]], ...] = (
    ("Top rated", "好评榜", lambda p, i: -p.rating[i]),
    ("Most reviewed", "人气榜", lambda p, i: -p.reviews[i].astype(np.float64)),
    ("Best value", "性价比榜", lambda p, i: p.yuan[i] / np.maximum(p.rating[i] - 2.5, 0.1)),
    ("Hidden gems", "宝藏榜", lambda p, i: p.reviews[i] / 200 - p.rating[i]),
    ("Open late", "深夜榜", lambda p, i: -p.closes[i]),
    ("Early birds", "早起榜", lambda p, i: p.opens[i]),
    ("Most features", "设施榜", lambda p, i: -np.array([int(features).bit_count() for features in p.features[i].tolist()], np.float64)),
    ("Premium", "高端榜", lambda p, i: -p.yuan[i].astype(np.float64)),
    ("Local favourites", "口碑榜", lambda p, i: -p.weight[i]),
    ("Budget", "平价榜", lambda p, i: p.yuan[i].astype(np.float64)),
)
"""English title, Chinese title, key (ascending)."""


def search_ranking_list(city: City, given: Arguments) -> dict[str, Any]:
    """map_search_ranking_list."""
    district = district_of("region", given["region"])
    query, places = read_query(given["query"]), city.places
    indices = _matches(city, query)
    if district is not None:
        indices = indices[places.district[indices] == district]
    if not indices.size:
        return {"lists": []}
    region = (CITY_EN, CITY_ZH) if district is None else DISTRICTS[DISTRICT_KEYS[district]]
    category_names = CATEGORIES[query.categories[0]] if len(query.categories) == 1 else None
    en, zh = (category_names.en, category_names.zh) if category_names is not None else ("places", "地点")
    about = bits(city.seed, -1 if district is None else district, *sorted(_POSITIONS[category] for category in query.categories))
    lists = []
    for number, (title, title_zh, key) in enumerate(_LISTS[: int(given["max_lists"])]):
        best = indices[_order(places, indices, key(places, indices))[: int(given["max_items"])]]
        lists.append(
            {
                "list_id": f"rl-{bits(about, number) % 1_000_000:06d}",
                "title": f"{title}: {en}, {region[0]}",
                "title_zh": f"{region[1]}{zh}{title_zh}",
                "items": [_item(places, rank, index) for rank, index in enumerate(best.tolist(), 1)],
            }
        )
    return {"lists": lists}


def _item(places: Places, rank: int, index: int) -> dict[str, Any]:
    place = catalogue()[index]
    row: dict[str, Any] = {"rank": rank, "place_id": place.id, "name": place.en, "name_zh": place.zh}
    return row | {"rating": float(places.rating[index]), "reviews": int(places.reviews[index])}
