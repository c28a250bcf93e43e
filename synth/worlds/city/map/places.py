"""One seed's places: which of the catalogue exist, where they lie, and what they are like. Columns, drawn in one go; rows on demand.

A place is drawn around one of 30 hubs or anywhere; its rating, price, reviews, hours, features, phone and address are drawn
independently. Landmarks always exist. A row is rendered once a seed, when it is first shown.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth.worlds.city.map.geometry import COLUMNS, HEIGHT_M, WIDTH_M, Floats, to_grid, to_text
from synth.worlds.city.map.place_catalog import catalogue, category_codes, members
from synth.worlds.city.map.place_names import DISTRICTS
from synth.worlds.city.map.roads import Roads, road_names
from synth.worlds.city.vocabulary import CATEGORIES, FEATURES, NOW

DISTRICT_KEYS = tuple(DISTRICTS)
FEATURE_BITS = {key: 1 << bit for bit, key in enumerate(FEATURES)}
_FEATURE_NAMES = tuple(f"{en} ({zh})" for en, zh in FEATURES.values())
_NOW_H = NOW.hour + NOW.minute / 60
_HUBS = 30
_PRESENT_SHARE = 0.88
_FEATURE_SHARE = 0.42

_TYPICAL = np.array([category.typical_yuan for category in CATEGORIES.values()], np.float64)
_OPENS = np.array([category.opens[0] for category in CATEGORIES.values()], np.float64)
_CLOSES = np.array([category.opens[1] for category in CATEGORIES.values()], np.float64)


class Places:
    """Columns over the whole catalogue; `present` says which rows exist in this seed.

    x, y: metres. rating: 2.8 .. 5.0 in tenths. reviews: count. yuan: whole yuan, 0 where nothing is charged.
    opens, closes: hours in steps of a half; 0 and 24 for round the clock. features: bits of `FEATURE_BITS`. district: 0 .. 11.
    weight: the default relevance, higher is better.
    """

    def __init__(self, seed: int, roads: Roads) -> None:
        rng = np.random.default_rng([seed, 2])
        codes = category_codes()
        count = len(codes)
        self._roads = roads
        self._seed = seed
        landmarks = np.array([place.key is not None for place in catalogue()])
        self.present: NDArray[np.bool_] = landmarks | (rng.random(count) < _PRESENT_SHARE)
        hubs = rng.uniform((800.0, 800.0), (WIDTH_M - 800.0, HEIGHT_M - 800.0), (_HUBS, 2))
        near_hub = rng.random(count) < 0.7
        around = hubs[rng.integers(0, _HUBS, count)] + rng.normal(0.0, 900.0, (count, 2))
        spots = np.where((near_hub & ~landmarks)[:, None], around, rng.uniform((0.0, 0.0), (WIDTH_M, HEIGHT_M), (count, 2)))
        self.x, self.y = to_grid(np.clip(spots[:, 0], 0, WIDTH_M), np.clip(spots[:, 1], 0, HEIGHT_M))
        self.rating = np.round(np.clip(rng.normal(4.3, 0.35, count), 2.8, 5.0), 1)
        self.reviews = np.maximum(rng.lognormal(5.0, 1.1, count), 1.0).astype(np.int64)
        self.yuan = np.where(_TYPICAL[codes] > 0, np.maximum(np.round(_TYPICAL[codes] * rng.lognormal(0.0, 0.35, count)), 1), 0).astype(
            np.int64
        )
        shift = rng.integers(-2, 3, (count, 2)) / 2
        always = (_CLOSES - _OPENS == 24)[codes]
        self.opens = np.where(always, 0.0, np.clip(_OPENS[codes] + shift[:, 0], 0, 20))
        self.closes = np.where(always, 24.0, np.clip(_CLOSES[codes] + shift[:, 1], 12, 24))
        self.features = (rng.random((count, len(FEATURES))) < _FEATURE_SHARE) @ np.array(list(FEATURE_BITS.values()))
        self._numbers = rng.integers(1, 400, count)
        self._phones = rng.integers(8_000_0000, 8_999_9999, count)
        self.district_x, self.district_y = self._district_centres(rng)
        self.weight = self.rating + np.log1p(self.reviews) * 0.25
        self._rows: dict[int, dict[str, Any]] = {}

    @staticmethod
    def _district_centres(rng: np.random.Generator) -> tuple[Floats, Floats]:
        columns, rows = np.meshgrid(np.arange(4), np.arange(3))
        x = (columns.ravel() + 0.5) * WIDTH_M / 4 + rng.uniform(-700, 700, 12)
        y = (rows.ravel() + 0.5) * HEIGHT_M / 3 + rng.uniform(-700, 700, 12)
        order = rng.permutation(12)
        return x[order], y[order]

    @cached_property
    def district(self) -> NDArray[np.int64]:
        """[places]: the district whose centre is nearest."""
        nearest: NDArray[np.int64] = np.argmin((self.x[:, None] - self.district_x) ** 2 + (self.y[:, None] - self.district_y) ** 2, axis=1)
        return nearest

    def district_at(self, at: tuple[float, float]) -> int:
        return int(np.argmin((at[0] - self.district_x) ** 2 + (at[1] - self.district_y) ** 2))

    @cached_property
    def is_open(self) -> NDArray[np.bool_]:
        """[places]: open at the city's fixed now."""
        return (self.opens <= _NOW_H) & (self.closes > _NOW_H)

    @cached_property
    def _by_category(self) -> dict[str, NDArray[np.int64]]:
        return {}

    def of_category(self, category: str) -> NDArray[np.int64]:
        """Indices of the places of a category that exist here."""
        indices = self._by_category.get(category)
        if indices is None:
            every = members()[category]
            indices = self._by_category[category] = every[self.present[every]]
        return indices

    @cached_property
    def crossings(self) -> tuple[NDArray[np.int64], Floats]:
        """[places]: the nearest crossing, and the metres to it."""
        return self._roads.nearest_all(self.x, self.y)

    def at(self, index: int) -> tuple[float, float]:
        return float(self.x[index]), float(self.y[index])

    @cached_property
    def _ranks(self) -> dict[str, dict[int, int]]:
        return {}

    def rank(self, index: int) -> tuple[int, int]:
        """(rank by rating in its category, ties by reviews; how many the category has)."""
        category = catalogue()[index].category
        ranks = self._ranks.get(category)
        if ranks is None:
            of_kind = self.of_category(category)
            order = of_kind[np.lexsort((of_kind, -self.reviews[of_kind], -self.rating[of_kind]))]
            ranks = self._ranks[category] = {int(place): rank for rank, place in enumerate(order, 1)}
        return ranks[index], len(ranks)

    def row(self, index: int) -> dict[str, Any]:
        """A place as the search tools show it. The caller must not change it."""
        row = self._rows.get(index)
        if row is None:
            row = self._rows[index] = self._render(index)
        return row

    def _render(self, index: int) -> dict[str, Any]:
        place = catalogue()[index]
        category = CATEGORIES[place.category]
        district = DISTRICTS[DISTRICT_KEYS[int(self.district[index])]]
        road_en, road_zh = road_names(int(self.crossings[0][index]) // COLUMNS)
        number, features = int(self._numbers[index]), int(self.features[index])
        rank, among = self.rank(index)
        row: dict[str, Any] = {
            "place_id": place.id,
            "name": place.en,
            "name_zh": place.zh,
            "category": category.en,
            "coords": to_text(float(self.x[index]), float(self.y[index])),
            "address": f"{number} {road_en}, {district[0]}",
            "address_zh": f"{district[1]}{road_zh}{number}号",
            "rating": float(self.rating[index]),
            "reviews": int(self.reviews[index]),
        }
        if category.price is not None:
            row[category.price] = int(self.yuan[index])
        row["hours"] = hours_text(float(self.opens[index]), float(self.closes[index]))
        row["open_now"] = bool(self.is_open[index])
        row["features"] = [name for bit, name in enumerate(_FEATURE_NAMES) if features >> bit & 1]
        row["ranking"] = f"{rank} of {among}"
        row["phone"] = f"0599-{int(self._phones[index])}"
        if place.brand is not None:
            row["brand"] = place.brand
        return row


def hours_text(opens: float, closes: float) -> str:
    return f"{clock_text(opens)}-{clock_text(closes)}"


def clock_text(hours: float) -> str:
    return f"{int(hours):02d}:{round(hours % 1 * 60):02d}"
