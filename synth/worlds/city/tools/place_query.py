"""What a free-text search query means: places by name, categories, features, "open now".

One idea: all phrases that the search understands (names, categories, themes, features, in both languages, and a few everyday words for
them) lie in one table; a query is scanned once from the left, the longest phrase at each position wins, and what is left over is matched
against names word by word. The phrases do not depend on the seed, so the reading of a query is kept for the life of the process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from synth.worlds.city.map.place_catalog import catalogue
from synth.worlds.city.map.places import FEATURE_BITS
from synth.worlds.city.vocabulary import CATEGORIES, FEATURES, THEMES

_RUN = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]+")
_NOISE = frozenset(
    {"a", "an", "the", "in", "near", "with", "and", "at", "of", "to", "for", "best", "good", "nearby", "some", "any", "place", "places"}
)

_EVERYDAY: dict[str, tuple[str, ...]] = {
    "hotpot": ("hotpot", "hot pot", "火锅"), "noodles": ("noodles", "noodle", "面条", "拉面", "ramen"),
    "sichuan_food": ("sichuan food", "川菜"),
    "cantonese_food": ("cantonese food", "dim sum", "粤菜", "早茶"),
    "vegetarian_food": ("vegetarian", "vegetarian food", "vegan", "素食", "素菜"),
    "barbecue": ("barbecue", "bbq", "烧烤"), "bakery": ("bread", "面包", "蛋糕店"),
    "cafe": ("coffee", "cafe", "café", "coffee house", "咖啡", "咖啡厅", "咖啡店"),
    "tea_house": ("tea", "teahouse", "茶楼", "喝茶"), "bar": ("bar", "pub", "cocktails", "酒馆"),
    "hotel": ("hotels", "accommodation", "宾馆", "旅馆"),
    "hostel": ("hostel", "青旅", "青年旅社"), "supermarket": ("grocery store", "groceries", "便利店"),
    "pharmacy": ("drugstore", "chemist", "药房"),
    "bookstore": ("bookshop", "books", "书屋"), "shopping_mall": ("mall", "shopping centre", "shopping center", "商场"),
    "cinema": ("movie theater", "movies", "影院"), "gym": ("fitness", "fitness centre", "健身"), "karaoke": ("karaoke", "ktv", "k歌"),
    "swimming_pool": ("pool", "swimming", "游泳池", "游泳"), "playground": ("playground", "游乐场"),
    "massage": ("massage", "spa", "按摩", "推拿"),
    "park": ("park", "parks", "绿地"), "museum": ("museums",), "gallery": ("gallery", "galleries", "画廊"), "library": ("libraries",),
    "temple": ("temples", "shrine", "庙"), "scenic_spot": ("sights", "attraction", "attractions", "sightseeing", "景区", "名胜"),
    "theatre": ("theater", "play", "戏院"), "zoo": ("zoos",), "aquarium": ("aquariums", "海洋馆"),
    "market": ("market", "bazaar", "市场", "菜市场"),
    "hospital": ("clinic", "诊所"), "bank": ("bank", "atm", "取款机"), "parking": ("parking", "car park", "停车"),
    "gas_station": ("petrol station", "gas", "加油"),
    "charging": ("ev charger", "charger", "充电桩", "充电"), "station": ("train station", "车站"), "stadium": ("arena", "体育馆"),
    "university": ("college", "高校"), "square": ("plaza",),
}  # fmt: skip

_OPEN_NOW = ("open now", "currently open", "正在营业", "营业中", "现在营业")


@dataclass(frozen=True, slots=True)
class Query:
    """The reading of a query. Where `places` is not empty, it names them; else `categories` and `features` (bits) must be met."""

    places: tuple[int, ...]
    categories: tuple[str, ...]
    features: int
    open_now: bool

    @property
    def is_empty(self) -> bool:
        return not self.places and not self.categories and not self.features


@dataclass(slots=True)
class _Phrases:
    table: dict[str, tuple[str, object]]
    longest_words: int
    longest_characters: int


def _plain(text: str) -> str:
    return " ".join(_RUN.findall(text.casefold().replace("é", "e")))


@lru_cache(maxsize=1)
def _phrases() -> _Phrases:
    table: dict[str, tuple[str, object]] = {}
    for key, category in CATEGORIES.items():
        for phrase in (category.en, category.zh, f"{category.en}s", *_EVERYDAY[key]):
            table.setdefault(_plain(phrase), ("category", (key,)))
    for en, zh, categories in THEMES.values():
        table |= {_plain(phrase): ("category", categories) for phrase in (en, zh)}
    for key, names in FEATURES.items():
        table |= {_plain(phrase): ("feature", FEATURE_BITS[key]) for phrase in names}
    table |= {"wifi": ("feature", FEATURE_BITS["wifi"])}
    table |= {_plain(phrase): ("open_now", None) for phrase in _OPEN_NOW}
    for place in catalogue():
        for name in (place.en, place.zh, place.id):
            table[_plain(name)] = ("place", place.index)
    words = max(phrase.count(" ") + 1 for phrase in table)
    return _Phrases(table, words, max(len(phrase) for phrase in table if not phrase.isascii()))


def _scan(runs: list[str]) -> tuple[list[tuple[str, object]], list[str]]:
    """Phrases found from left to right, longest first, and the words that are in none."""
    phrases = _phrases()
    matches: list[tuple[str, object]] = []
    rest: list[str] = []
    position = 0
    while position < len(runs):
        for length in range(min(phrases.longest_words, len(runs) - position), 0, -1):
            hit = phrases.table.get(" ".join(runs[position : position + length]))
            if hit is not None:
                matches.append(hit)
                position += length
                break
        else:
            if runs[position].isascii():
                rest.append(runs[position])
            else:
                _scan_unspaced(runs[position], phrases, matches)
            position += 1
    return matches, rest


def _scan_unspaced(run: str, phrases: _Phrases, matches: list[tuple[str, object]]) -> None:
    position = 0
    while position < len(run):
        for length in range(min(phrases.longest_characters, len(run) - position), 0, -1):
            hit = phrases.table.get(run[position : position + length])
            if hit is not None:
                matches.append(hit)
                position += length
                break
        else:
            position += 1


@lru_cache(maxsize=1)
def _words() -> dict[str, frozenset[int]]:
    words: dict[str, set[int]] = {}
    for place in catalogue():
        for word in _plain(place.en).split():
            words.setdefault(word, set()).add(place.index)
    return {word: frozenset(indices) for word, indices in words.items()}


@lru_cache(maxsize=8192)
def read_query(text: str) -> Query:
    """What `text` asks for. Nothing recognised gives an empty query, which matches no place."""
    matches, rest = _scan(_plain(text).split())
    places: list[Any] = [value for kind, value in matches if kind == "place"]
    categories = [category for kind, value in matches if kind == "category" for category in value]  # type: ignore[attr-defined]
    features = 0
    for kind, value in matches:
        if kind == "feature":
            assert isinstance(value, int)
            features |= value
    open_now = any(kind == "open_now" for kind, _ in matches)
    if not places and not categories:
        similar = [_words()[word] for word in rest if word not in _NOISE and word in _words()]
        places = sorted(frozenset.intersection(*similar)) if similar else []
    if categories:
        places = []
    return Query(tuple(places), tuple(dict.fromkeys(categories)), features, open_now)
