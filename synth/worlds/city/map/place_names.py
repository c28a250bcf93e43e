"""The fixed names of the city: districts, landmarks (the gazetteer) and the names of ordinary places, in English and Chinese.

One idea: *names* are the same in every seed, so that a query that names "Willow Park" can be executed in any of them; *where* a place
lies and what it is like is drawn by `places.py` from the seed. The names come from a small grammar
(stem + kind) walked in a fixed order: no random numbers are involved.
This module knows nothing of coordinates, ratings or tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

CITY_EN, CITY_ZH = "Lanchuan", "岚川"

DISTRICTS: dict[str, tuple[str, str]] = {
    "riverside": ("Riverside District", "滨江区"),
    "old_town": ("Old Town District", "老城区"),
    "northgate": ("Northgate District", "北门区"),
    "lakeside": ("Lakeside District", "湖滨区"),
    "hillview": ("Hillview District", "望山区"),
    "eastfield": ("Eastfield District", "东原区"),
    "westmoor": ("Westmoor District", "西泽区"),
    "southbank": ("Southbank District", "南岸区"),
    "innovation": ("Innovation District", "创新区"),
    "bayfront": ("Bayfront District", "港湾区"),
    "academy": ("Academy District", "学府区"),
    "greenbelt": ("Greenbelt District", "绿林区"),
}

STEMS: tuple[tuple[str, str], ...] = (
    ("Willow", "垂柳"), ("Lantern", "明灯"), ("Jade", "碧玉"), ("Crane", "白鹤"), ("Maple", "红枫"), ("Lotus", "莲花"), ("Amber", "琥珀"),
    ("Falcon", "猎鹰"), ("Phoenix", "凤凰"), ("Orchid", "兰草"), ("Bamboo", "翠竹"), ("Pine", "青松"), ("Cedar", "雪松"), ("Plum", "梅岭"),
    ("Peach", "桃源"), ("Osmanthus", "桂香"), ("Magnolia", "玉兰"), ("Camellia", "山茶"), ("Swallow", "飞燕"), ("Heron", "苍鹭"),
    ("Kingfisher", "翠鸟"), ("Dragon", "青龙"), ("Tiger", "白虎"), ("Tortoise", "玄武"), ("Unicorn", "麒麟"), ("Moonlight", "月光"),
    ("Sunrise", "朝晖"), ("Starlight", "星光"), ("Rainbow", "彩虹"), ("Otter", "水獭"), ("Violet", "紫罗兰"), ("Juniper", "杜松"),
    ("Coral", "珊瑚"), ("Pearl", "明珠"), ("Copper", "紫铜"), ("Silver", "白银"), ("Golden", "黄金"), ("Iron", "铁山"), ("Scholar", "状元"),
    ("Poet", "诗仙"), ("Silk", "丝路"), ("Mulberry", "桑林"), ("Ginkgo", "银杏"), ("Cypress", "柏坡"),
)  # fmt: skip

LANDMARK_KINDS: tuple[tuple[str, str, str], ...] = (
    ("Park", "公园", "park"), ("Museum", "博物馆", "museum"), ("Library", "图书馆", "library"), ("Temple", "寺", "temple"),
    ("Station", "车站", "station"), ("Stadium", "体育场", "stadium"), ("University", "大学", "university"),
    ("Hospital", "医院", "hospital"),
    ("Mall", "商城", "shopping_mall"), ("Plaza", "广场", "square"), ("Theatre", "剧院", "theatre"), ("Gardens", "花园", "park"),
    ("Zoo", "动物园", "zoo"), ("Aquarium", "水族馆", "aquarium"), ("Gallery", "美术馆", "gallery"), ("Bridge", "大桥", "scenic_spot"),
    ("Tower", "塔", "scenic_spot"), ("Pier", "码头", "scenic_spot"), ("Lake", "湖", "scenic_spot"), ("Bazaar", "集市", "market"),
    ("Hotel", "大酒店", "hotel"), ("Science Centre", "科技馆", "museum"),
)  # fmt: skip
"""(English kind, Chinese kind, category)."""

LANDMARKS_PER_KIND = 15

TITLES: tuple[tuple[str, str], ...] = (
    ("Happy", "开心"), ("Little", "小小"), ("Old", "老牌"), ("Blue", "蓝色"), ("Red", "红色"), ("Quiet", "清静"), ("Lucky", "幸运"),
    ("Grand", "豪华"), ("Corner", "街角"), ("First", "第一"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlaceName:
    key: str
    """Canonical value, e.g. `willow_park`."""
    en: str
    zh: str
    category: str


@lru_cache(maxsize=1)
def landmarks() -> tuple[PlaceName, ...]:
    """The gazetteer: 330 landmarks, the same in every seed; every kind takes 15 of the 44 stems."""
    out = []
    for index, (kind_en, kind_zh, category) in enumerate(LANDMARK_KINDS):
        for turn in range(LANDMARKS_PER_KIND):
            stem_en, stem_zh = STEMS[(index * 7 + turn * 5) % len(STEMS)]
            key = f"{stem_en} {kind_en}".lower().replace(" ", "_")
            out.append(PlaceName(key, f"{stem_en} {kind_en}", f"{stem_zh}{kind_zh}", category))
    return tuple(out)


@lru_cache(maxsize=1)
def gazetteer() -> dict[str, PlaceName]:
    """Landmarks by key."""
    return {name.key: name for name in landmarks()}
