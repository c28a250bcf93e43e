"""The fixed catalogue of places: identifier, names, category and brand of each; the same in every seed.

Landmarks come first, then the ordinary places of each category, named by a grammar (title + stem + noun) or as branches of a chain.
Which ordinary places exist in a seed, and everything else about them, is in `places.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from synth.worlds.city.map.place_names import STEMS, TITLES, landmarks
from synth.worlds.city.vocabulary import CATEGORIES

NOUNS: dict[str, tuple[str, str, int]] = {
    "hotpot": ("Hotpot", "火锅", 24), "noodles": ("Noodles", "面庄", 0), "sichuan_food": ("Sichuan Kitchen", "川味厨房", 0),
    "cantonese_food": ("Cantonese House", "粤式酒楼", 0), "vegetarian_food": ("Veggie Table", "素食坊", 0),
    "barbecue": ("Grill", "烤肉铺", 20),
    "bakery": ("Bakery", "面包房", 40), "cafe": ("Coffee", "咖啡", 60), "tea_house": ("Tea House", "茶舍", 20),
    "bar": ("Taproom", "小酒馆", 0),
    "hotel": ("Inn", "旅店", 40), "hostel": ("Hostel", "青旅", 0), "supermarket": ("Supermarket", "生活超市", 60),
    "pharmacy": ("Pharmacy", "大药房", 60),
    "bookstore": ("Books", "书屋", 20), "shopping_mall": ("Shopping Centre", "购物城", 0), "cinema": ("Cinema", "影城", 40),
    "gym": ("Gym", "健身馆", 30),
    "karaoke": ("Karaoke", "歌城", 20), "swimming_pool": ("Pool", "泳池", 0), "playground": ("Playhouse", "亲子乐园", 20),
    "massage": ("Massage", "推拿馆", 0),
    "park": ("Green", "绿地", 0), "museum": ("Memorial Hall", "纪念馆", 0), "gallery": ("Art Space", "艺术空间", 0),
    "library": ("Reading Room", "阅览室", 0),
    "temple": ("Shrine", "古庙", 0), "scenic_spot": ("Overlook", "观景台", 0), "theatre": ("Stage", "小剧场", 0),
    "zoo": ("Petting Farm", "萌宠园", 0),
    "aquarium": ("Sea World", "海洋馆", 0), "market": ("Street Market", "街市", 0), "hospital": ("Clinic", "诊所", 0),
    "bank": ("Bank", "银行支行", 50),
    "parking": ("Parking", "停车楼", 0), "gas_station": ("Petrol", "加油点", 40), "charging": ("Charging", "充电桩", 40),
    "station": ("Halt", "小站", 0),
    "stadium": ("Sports Ground", "运动场", 0), "university": ("College", "学院", 0), "square": ("Square", "小广场", 0),
}  # fmt: skip
"""Category -> English noun, Chinese noun, how many of its places are branches of chains."""

_BRANCHES = 10
"""Branches a chain has at most."""

_NUMERALS = ("零", "一", "二", "三", "四", "五", "六", "七", "八", "九", "十")


@dataclass(frozen=True, slots=True)
class Place:
    index: int
    id: str
    en: str
    zh: str
    category: str
    brand: str | None
    key: str | None
    """Of a landmark: its canonical slot value."""


@lru_cache(maxsize=1)
def catalogue() -> tuple[Place, ...]:
    places: list[Place] = []

    def add(en: str, zh: str, category: str, brand: str | None = None, key: str | None = None) -> None:
        places.append(Place(len(places), f"pl-{len(places):04d}", en, zh, category, brand, key))

    for name in landmarks():
        add(name.en, name.zh, name.category, key=name.key)
    for order, (category, facts) in enumerate(CATEGORIES.items()):
        noun_en, noun_zh, in_chains = NOUNS[category]
        for number in range(in_chains):
            stem_en, stem_zh = STEMS[(order * 11 + number // _BRANCHES * 3) % len(STEMS)]
            branch = number % _BRANCHES + 1
            add(f"{stem_en} {noun_en} No. {branch}", f"{stem_zh}{noun_zh}{_NUMERALS[branch]}号店", category, brand=f"{stem_en} {noun_en}")
        for number in range(facts.share - in_chains):
            stem_en, stem_zh = STEMS[(order * 5 + number * 7) % len(STEMS)]
            title_en, title_zh = TITLES[(order + number % len(STEMS) * 3 + number // len(STEMS)) % len(TITLES)]
            add(f"{title_en} {stem_en} {noun_en}", f"{title_zh}{stem_zh}{noun_zh}", category)
    return tuple(places)


@lru_cache(maxsize=1)
def landmark_index() -> dict[str, int]:
    """Slot value of a landmark -> its index in the catalogue."""
    return {place.key: place.index for place in catalogue() if place.key is not None}


@lru_cache(maxsize=1)
def category_codes() -> NDArray[np.int64]:
    """[places]: position of each place's category in `CATEGORIES`."""
    position = {key: index for index, key in enumerate(CATEGORIES)}
    return np.array([position[place.category] for place in catalogue()])


@lru_cache(maxsize=1)
def members() -> dict[str, NDArray[np.int64]]:
    """Category -> indices of its places, landmarks among them."""
    codes = category_codes()
    return {key: np.flatnonzero(codes == index) for index, key in enumerate(CATEGORIES)}
