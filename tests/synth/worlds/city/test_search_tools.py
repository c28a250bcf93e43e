"""What the search tools return is what a look at every place would: filters, orders, limits, both languages."""

from __future__ import annotations

import itertools
import json
from math import hypot
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.worlds.city.map.city_map import city_of
from synth.worlds.city.map.geometry import from_text, to_text
from synth.worlds.city.map.place_catalog import catalogue
from synth.worlds.city.map.place_names import gazetteer
from synth.worlds.city.map.places import DISTRICT_KEYS
from synth.worlds.city.tools.place_query import read_query
from synth.worlds.city.tools.web_corpus import document_id, pages
from synth.worlds.city.vocabulary import CATEGORIES, FEATURES, THEMES
from synth.worlds.city.world import CityWorld

SEED = 6
WORLD, CITY = CityWorld(SEED), city_of(SEED)
EVERY = [CITY.places.row(index) for index in np.flatnonzero(CITY.places.present).tolist()]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    answer = WORLD.call(tool, arguments)
    assert not answer.is_error, answer.content
    result: dict[str, Any] = json.loads(answer.content)
    return result


def metres(row: dict[str, Any], center: str) -> float:
    a, b = from_text(row["coords"]), from_text(center)
    return hypot(a[0] - b[0], a[1] - b[1])


@settings(max_examples=80, deadline=None)
@given(
    category=st.sampled_from(sorted(CATEGORIES)),
    feature=st.one_of(st.none(), st.sampled_from(sorted(FEATURES))),
    language=st.sampled_from([0, 1]),
    open_now=st.booleans(),
    radius=st.integers(500, 20000),
    min_rating=st.sampled_from([None, 3.5, 4.2, 4.5]),
    price_max=st.one_of(st.none(), st.integers(20, 500)),
    sort_by=st.sampled_from(["distance", "rating:d", "weight", "price:a", "price:d"]),
    limit=st.integers(1, 20),
)
def test_a_search_finds_exactly_what_a_look_at_every_place_finds(
    category: str,
    feature: str | None,
    language: int,
    open_now: bool,
    radius: int,
    min_rating: float | None,
    price_max: int | None,
    sort_by: str,
    limit: int,
) -> None:
    facts, center = CATEGORIES[category], to_text(7000.0, 6500.0)
    query = " ".join(
        [
            (facts.en, facts.zh)[language],
            FEATURES[feature][language] if feature else "",
            ("open now", "正在营业")[language] if open_now else "",
        ]
    )
    priced = price_max is not None or sort_by.startswith("price")
    arguments = {"query": query, "center": center, "radius": radius, "sort_by": sort_by, "limit": limit}
    arguments |= {"min_rating": min_rating} if min_rating else {}
    arguments |= {"price_category": "price"} if priced else {}
    arguments |= {"price_max": price_max} if price_max is not None else {}
    result = call("map_search_places", **arguments)
    expected = [
        row
        for row in EVERY
        if row["category"] == facts.en
        and metres(row, center) <= radius
        and (feature is None or any(name.startswith(FEATURES[feature][0]) for name in row["features"]))
        and (not open_now or row["open_now"])
        and (min_rating is None or row["rating"] >= min_rating)
        and (not priced or ("price" in row and (price_max is None or row["price"] <= price_max)))
    ]
    assert result["total"] == len(expected)
    ids = {row["place_id"] for row in expected}
    assert {row["place_id"] for row in result["places"]} <= ids
    assert len(result["places"]) == min(limit, len(expected))
    keys = {"distance": ("distance_m", 1), "rating:d": ("rating", -1), "price:a": ("price", 1), "price:d": ("price", -1)}
    if sort_by in keys and expected:
        field, sign = keys[sort_by]
        values = [row[field] * sign for row in result["places"]]
        assert values == sorted(values)
        if field != "distance_m":
            assert values[0] == min(row[field] * sign for row in expected)


def test_every_landmark_is_found_by_either_name_and_alone() -> None:
    for key, name in gazetteer().items():
        for query in (name.en, name.zh):
            found = call("map_search_places", query=query)["places"]
            assert [row["name"] for row in found] == [name.en], key


@pytest.mark.parametrize("language", [0, 1])
def test_every_theme_feature_and_category_is_understood(language: int) -> None:
    for theme in THEMES.values():
        assert read_query(theme[language]).categories == theme[2]
    for key, category in CATEGORIES.items():
        assert read_query((category.en, category.zh)[language]).categories == (key,)
    for names in FEATURES.values():
        assert read_query(f"{('coffee shop', '咖啡馆')[language]} {names[language]}").features.bit_count() == 1


def test_nothing_recognised_finds_nothing() -> None:
    assert call("map_search_places", query="qwertyuiop") == {"total": 0, "places": []}


def test_a_region_holds_only_its_own_places() -> None:
    for row in call("map_search_places", query="coffee shop", region="老城区", limit=20)["places"]:
        assert "Old Town District" in row["address"] and "老城区" in row["address_zh"]


def test_places_along_a_route_lie_within_the_buffer_nearest_first() -> None:
    origin, destination = to_text(1000.0, 1000.0), to_text(13000.0, 11000.0)
    result = call("map_search_along_route", query="bakery", origin=origin, destination=destination, buffer_radius=900, limit=20)
    off = [row["off_route_m"] for row in result["places"]]
    assert off == sorted(off) and off[-1] <= 900
    way = CITY.roads.way(from_text(origin), from_text(destination), "driving")
    corners = [from_text(origin), *((CITY.roads.x[node], CITY.roads.y[node]) for node in CITY.roads.corners(way.edges))]
    dense = np.array(
        [np.array(a) + (np.array(b) - np.array(a)) * share for a, b in itertools.pairwise(corners) for share in np.linspace(0, 1, 40)]
    )
    for row in result["places"]:
        at = np.array(from_text(row["coords"]))
        assert abs(np.hypot(*(dense - at).T).min() - row["off_route_m"]) < 12


@pytest.mark.parametrize(("sort_by", "key"), [("min_max_distance", "max_m"), ("total_distance", "total_m")])
def test_central_places_are_ordered_by_what_is_asked(sort_by: str, key: str) -> None:
    origins = [to_text(2000.0, 3000.0), to_text(9000.0, 4000.0), to_text(6000.0, 10000.0)]
    result = call("map_search_central_places", query="tea house", origins=origins, sort_by=sort_by, limit=20)
    values = [row[key] for row in result["places"]]
    assert values == sorted(values)
    for row in result["places"]:
        assert row["max_m"] == max(row["from_origins_m"])
        assert abs(row["total_m"] - sum(row["from_origins_m"])) <= 3
        assert all(far >= metres(row, origin) - 1 for far, origin in zip(row["from_origins_m"], origins, strict=True))


def test_the_top_rated_list_is_the_search_by_rating() -> None:
    leaders = call("map_search_ranking_list", query="museum", region="Lanchuan", max_items=8)["lists"][0]["items"]
    found = call("map_search_places", query="museum", sort_by="rating:d", limit=8)["places"]
    assert [item["name"] for item in leaders] == [row["name"] for row in found]


def test_every_page_is_found_by_its_title_in_both_languages() -> None:
    for number, page in enumerate(pages()):
        for title in page.title:
            assert call("web_search", query=title)["results"][0]["doc_id"] == document_id(SEED, number), title


def test_a_place_is_in_the_district_of_the_nearest_centre_and_all_districts_have_places() -> None:
    counts = np.bincount(CITY.places.district[CITY.places.present], minlength=len(DISTRICT_KEYS))
    assert (counts > 30).all()
    assert len(catalogue()) == len(CITY.places.district)
