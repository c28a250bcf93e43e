"""What can be said in the city: categories, features, themes, modes and the other slot kinds, each with plain names in both languages.

One idea: these plain names are what the search tool understands as a query, what an answer says, and what the wording starts from;
synonyms that people use are wording, and live in `grounding.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from storage.records import Language
from synth.text.slot_kinds import Date, OpenNames, Quantity, SlotKind, Vocabulary
from synth.worlds.city.map.place_names import DISTRICTS, gazetteer
from synth.worlds.city.map.regions import CITIES

NOW = datetime(2026, 5, 13, 10, 0)
"""The city's fixed instant, a Wednesday."""
TODAY: date = NOW.date()
HORIZON_DAYS = 15

PriceCategory = Literal["average_cost", "price"]


@dataclass(frozen=True, slots=True)
class Category:
    en: str
    zh: str
    price: PriceCategory | None
    """average_cost: yuan a person (food, drink, leisure); price: yuan for a room, a ticket or an hour; None: nothing is charged."""
    typical_yuan: int
    share: int
    """How many ordinary places of the catalogue have this category."""
    opens: tuple[int, int]
    """Usual hours, opening and closing, in whole hours; (0, 24) is round the clock."""


CATEGORIES: dict[str, Category] = {
    "hotpot": Category("hotpot restaurant", "火锅店", "average_cost", 105, 120, (10, 23)),
    "noodles": Category("noodle shop", "面馆", "average_cost", 28, 120, (7, 21)),
    "sichuan_food": Category("Sichuan restaurant", "川菜馆", "average_cost", 85, 110, (10, 22)),
    "cantonese_food": Category("Cantonese restaurant", "粤菜馆", "average_cost", 130, 110, (9, 22)),
    "vegetarian_food": Category("vegetarian restaurant", "素食餐厅", "average_cost", 75, 90, (10, 21)),
    "barbecue": Category("barbecue place", "烧烤店", "average_cost", 90, 100, (10, 24)),
    "bakery": Category("bakery", "面包店", "average_cost", 30, 110, (7, 21)),
    "cafe": Category("coffee shop", "咖啡馆", "average_cost", 36, 160, (8, 22)),
    "tea_house": Category("tea house", "茶馆", "average_cost", 60, 100, (9, 22)),
    "bar": Category("cocktail bar", "酒吧", "average_cost", 120, 100, (17, 24)),
    "hotel": Category("hotel", "酒店", "price", 420, 120, (0, 24)),
    "hostel": Category("youth hostel", "青年旅舍", "price", 110, 80, (0, 24)),
    "supermarket": Category("supermarket", "超市", None, 0, 110, (8, 22)),
    "pharmacy": Category("pharmacy", "药店", None, 0, 100, (8, 22)),
    "bookstore": Category("bookstore", "书店", "average_cost", 55, 100, (9, 22)),
    "shopping_mall": Category("shopping mall", "购物中心", "average_cost", 160, 60, (10, 22)),
    "cinema": Category("cinema", "电影院", "price", 48, 90, (9, 24)),
    "gym": Category("gym", "健身房", "price", 60, 90, (6, 23)),
    "karaoke": Category("karaoke bar", "卡拉OK", "average_cost", 95, 80, (10, 24)),
    "swimming_pool": Category("swimming pool", "游泳馆", "price", 50, 80, (6, 22)),
    "playground": Category("indoor playground", "儿童乐园", "price", 88, 80, (9, 20)),
    "massage": Category("massage parlour", "按摩店", "average_cost", 150, 80, (10, 24)),
    "park": Category("public park", "公园", None, 0, 50, (6, 22)),
    "museum": Category("museum", "博物馆", "price", 40, 50, (9, 17)),
    "gallery": Category("art gallery", "美术馆", "price", 35, 55, (9, 18)),
    "library": Category("library", "图书馆", None, 0, 45, (8, 21)),
    "temple": Category("temple", "寺庙", "price", 20, 45, (7, 17)),
    "scenic_spot": Category("scenic spot", "景点", "price", 65, 50, (8, 18)),
    "theatre": Category("theatre", "剧院", "price", 180, 50, (9, 22)),
    "zoo": Category("zoo", "动物园", "price", 80, 20, (8, 17)),
    "aquarium": Category("aquarium", "水族馆", "price", 120, 20, (9, 18)),
    "market": Category("street market", "集市", None, 0, 60, (6, 20)),
    "hospital": Category("hospital", "医院", None, 0, 40, (0, 24)),
    "bank": Category("bank branch", "银行", None, 0, 80, (9, 17)),
    "parking": Category("parking lot", "停车场", "price", 8, 90, (0, 24)),
    "gas_station": Category("gas station", "加油站", None, 0, 70, (0, 24)),
    "charging": Category("charging station", "充电站", "price", 30, 80, (0, 24)),
    "station": Category("railway station", "火车站", None, 0, 6, (5, 24)),
    "stadium": Category("stadium", "体育场", "price", 100, 20, (8, 22)),
    "university": Category("university", "大学", None, 0, 10, (6, 23)),
    "square": Category("public square", "广场", None, 0, 10, (0, 24)),
}

FEATURES: dict[str, tuple[str, str]] = {
    "wifi": ("free wifi", "无线网络"),
    "parking_spaces": ("parking spaces", "停车位"),
    "outdoor_seating": ("outdoor seating", "露天座位"),
    "private_rooms": ("private rooms", "包间"),
    "pets": ("pet friendly", "可带宠物"),
    "wheelchair": ("wheelchair access", "无障碍通道"),
    "children": ("child friendly", "儿童友好"),
    "live_music": ("live music", "现场音乐"),
    "river_view": ("river view", "江景"),
    "quiet": ("quiet corners", "安静角落"),
    "sockets": ("power sockets", "电源插座"),
    "smoke_free": ("smoke free", "全面禁烟"),
    "group_discount": ("group discount", "团体优惠"),
    "lockers": ("luggage lockers", "行李寄存"),
}

THEMES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "family": ("fun for kids", "亲子好去处", ("playground", "zoo", "aquarium", "park", "museum", "swimming_pool")),
    "romantic": ("romantic spots", "约会好去处", ("bar", "tea_house", "theatre", "scenic_spot", "cantonese_food", "gallery")),
    "rainy_day": (
        "rainy day activities",
        "雨天好去处",
        ("museum", "cinema", "gallery", "bookstore", "aquarium", "karaoke", "shopping_mall"),
    ),
    "culture": ("cultural attractions", "文化景点", ("museum", "gallery", "temple", "theatre", "library", "bookstore")),
    "nightlife": ("nightlife", "夜生活", ("bar", "karaoke", "cinema", "barbecue")),
    "nature": ("nature spots", "亲近自然的地方", ("park", "scenic_spot", "zoo")),
    "reading": ("places to read", "看书的地方", ("library", "bookstore", "cafe", "tea_house")),
    "workout": ("places to exercise", "运动的地方", ("gym", "swimming_pool", "stadium", "park")),
    "shopping": ("places to shop", "逛街的地方", ("shopping_mall", "market", "supermarket", "bookstore")),
    "eating_out": (
        "good places to eat",
        "好吃的馆子",
        ("hotpot", "noodles", "sichuan_food", "cantonese_food", "barbecue", "vegetarian_food"),
    ),
    "unwind": ("places to unwind", "放松的地方", ("massage", "tea_house", "swimming_pool", "cafe")),
}
"""Theme -> English, Chinese, categories that suit it."""

INTERESTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "beaches": ("beaches", "海滩", ("sanya", "haikou", "qingdao", "xiamen", "dalian")),
    "mountains": ("mountain hiking", "登山", ("chengdu", "guiyang", "taiyuan", "xining", "chongqing")),
    "old_towns": ("ancient towns", "古镇", ("kunming", "guilin", "nanchang", "taiyuan", "nanjing")),
    "street_food": ("street food", "街头小吃", ("chengdu", "chongqing", "changsha", "xian", "guangzhou", "wuhan")),
    "snow": ("snow scenery", "雪景", ("harbin", "changchun", "shenyang", "urumqi")),
    "deserts": ("deserts", "沙漠", ("yinchuan", "hohhot", "lanzhou", "urumqi")),
    "grassland": ("grasslands", "草原", ("hohhot", "xining", "urumqi", "yinchuan")),
    "hot_springs": ("hot springs", "温泉", ("nanning", "hefei", "chongqing", "haikou", "jinan")),
    "history": ("historical sites", "历史古迹", ("xian", "beijing", "nanjing", "zhengzhou", "taiyuan")),
    "lakes": ("lakeside scenery", "湖光山色", ("wuhan", "kunming", "nanchang", "guilin", "xining")),
    "night_views": ("night views", "夜景", ("shanghai", "chongqing", "guangzhou", "shenzhen", "tianjin")),
    "rainforest": ("tropical rainforest", "热带雨林", ("sanya", "haikou", "kunming", "nanning")),
}
"""Interest -> English, Chinese, cities among which a seed's guide picks one."""

MODES: dict[str, tuple[str, str]] = {
    "driving": ("driving", "驾车"),
    "walking": ("walking", "步行"),
    "bicycling": ("cycling", "骑行"),
    "transit": ("public transit", "公共交通"),
    "motorcycle": ("motorcycle", "摩托车"),
    "truck": ("truck", "货车"),
}
MOTOR_MODES = ("driving", "motorcycle", "truck")

PREFERENCES: dict[str, tuple[str, str]] = {
    "prefer_highways": ("preferring highways", "优先走高速"),
    "avoid_highways": ("avoiding highways", "不走高速"),
    "avoid_tolls": ("avoiding tolls", "避开收费路段"),
    "prefer_main_roads": ("preferring main roads", "优先走大路"),
    "avoid_highways+avoid_tolls": ("avoiding highways and tolls", "不走高速且避开收费"),
}

POI_SORTS: dict[str, tuple[str, str]] = {
    "distance": ("nearest", "最近"),
    "rating:d": ("best rated", "评分最高"),
    "price:a": ("cheapest", "最便宜"),
    "price:d": ("most expensive", "最贵"),
}
CENTRAL_SORTS: dict[str, tuple[str, str]] = {
    "balanced": ("balanced for everyone", "对大家都均衡"),
    "min_max_distance": ("nobody travels far", "谁都不用走太远"),
    "total_distance": ("least total distance", "总路程最短"),
}
TRAVEL_PICKS: dict[str, tuple[str, str]] = {
    "earliest": ("earliest", "最早"),
    "latest": ("latest", "最晚"),
    "cheapest": ("lowest fare", "票价最低"),
    "fastest": ("quickest", "最快"),
}
ATTRIBUTES: dict[str, tuple[str, str]] = {
    "hours": ("opening hours", "营业时间"),
    "address": ("address", "地址"),
    "phone": ("phone number", "电话号码"),
    "cost": ("price level", "消费水平"),
}
POI_CRITERIA: dict[str, tuple[str, str]] = {
    "rating": ("higher rating", "评分更高"),
    "reviews": ("more reviews", "点评更多"),
    "closing": ("open later", "关门更晚"),
}

TOPICS: dict[str, tuple[str, str]] = {
    "pets_metro": ("pets on the metro", "带宠物乘地铁"),
    "bikes_metro": ("folding bikes on the metro", "带折叠车乘地铁"),
    "luggage_train": ("luggage on trains", "火车行李"),
    "carry_on": ("cabin baggage", "随身行李"),
    "checked_bags": ("checked baggage", "托运行李"),
    "liquids": ("liquids in cabin baggage", "随身携带液体"),
    "power_banks": ("power banks on flights", "充电宝登机"),
    "train_refund": ("train ticket refunds", "火车票退票"),
    "train_change": ("train ticket changes", "火车票改签"),
    "flight_refund": ("flight ticket refunds", "机票退票"),
    "child_train": ("child train tickets", "儿童火车票"),
    "child_flight": ("child air tickets", "儿童机票"),
    "student_train": ("student train discounts", "学生火车票优惠"),
    "senior_metro": ("metro discounts for seniors", "老人乘地铁优惠"),
    "drones": ("flying drones", "无人机飞行"),
    "plate_limits": ("licence plate restrictions", "车牌限行"),
    "street_parking": ("street parking", "路边停车"),
    "e_bikes": ("electric bike rules", "电动自行车规定"),
    "night_taxi": ("night taxi surcharges", "出租车夜间附加费"),
    "visa_transit": ("visa free transit", "过境免签"),
    "lost_property": ("lost property on transit", "公交失物招领"),
    "camping": ("camping in parks", "公园露营"),
}

VENUES: dict[str, tuple[str, str]] = {key: (CATEGORIES[key].en, CATEGORIES[key].zh) for key in (
    "museum", "gallery", "library", "temple", "scenic_spot", "theatre", "zoo", "aquarium", "stadium", "university", "swimming_pool", "park",
)}  # fmt: skip

LINES: dict[str, tuple[str, str]] = {
    **{f"metro_{number}": (f"Metro Line {number}", f"地铁{number}号线") for number in range(1, 9)},
    **{f"bus_{number}": (f"Bus {number}", f"{number}路公交") for number in (11, 16, 22, 28, 35, 47, 52, 68, 73, 81, 90, 99)},
}

SETTINGS: dict[str, tuple[str, str]] = {
    "volume_up": ("turn the volume up", "调大音量"),
    "mute": ("mute the voice", "静音"),
    "night_mode": ("switch on night mode", "打开夜间模式"),
    "brightness": ("dim the screen", "调暗屏幕"),
    "voice_language": ("change the voice language", "切换播报语言"),
    "traffic_layer": ("hide the traffic layer", "关闭路况图层"),
    "three_d": ("switch to the 3D view", "切换到三维视图"),
    "zoom_in": ("zoom in on the map", "放大地图"),
    "font_size": ("enlarge the font", "调大字体"),
    "clear_history": ("clear the search history", "清空搜索记录"),
    "log_out": ("log out of the account", "退出登录"),
    "offline_map": ("download the offline map", "下载离线地图"),
}

IMPOSSIBLE_WISHES: dict[str, tuple[str, str]] = {
    "stop_rain": ("make the rain stop", "让雨停下来"),
    "clear_jam": ("make the traffic jam disappear", "让堵车消失"),
    "delay_train": ("hold the train for me", "让火车等我"),
    "change_rating": ("change its rating", "改掉它的评分"),
    "keep_open": ("keep it open all night", "让它通宵营业"),
    "shorten_way": ("make the way shorter", "把路变短"),
}
"""Wishes that no tool can grant: requests about them are not actionable."""

CLOCKS: dict[str, tuple[str, str]] = {
    f"{h:02d}:{m:02d}": (f"{h:02d}:{m:02d}", f"{h:02d}:{m:02d}") for h in range(10, 23) for m in (0, 30) if (h, m) > (10, 0)
}
FLAG: dict[str, tuple[str, str]] = {"yes": ("open now", "正在营业")}


def _vocabulary(names: Mapping[str, tuple[Any, ...]]) -> Vocabulary:
    return Vocabulary({key: {"en": name[0], "zh": name[1]} for key, name in names.items()})


KINDS: dict[str, SlotKind] = {
    "place": Vocabulary(OpenNames({key: {"en": name.en, "zh": name.zh} for key, name in gazetteer().items()})),
    "district": _vocabulary(DISTRICTS),
    "city": Vocabulary({key: {"en": region.en, "zh": region.zh} for key, region in CITIES.items()}),
    "category": Vocabulary({key: {"en": c.en, "zh": c.zh} for key, c in CATEGORIES.items() if c.share >= 40}),
    "feature": _vocabulary(FEATURES),
    "theme": _vocabulary(THEMES),
    "interest": _vocabulary(INTERESTS),
    "mode": _vocabulary(MODES),
    "along_mode": _vocabulary({key: MODES[key] for key in ("driving", "walking")}),
    "preference": _vocabulary(PREFERENCES),
    "poi_sort": _vocabulary(POI_SORTS),
    "central_sort": _vocabulary(CENTRAL_SORTS),
    "travel_pick": _vocabulary(TRAVEL_PICKS),
    "fare_pick": _vocabulary({key: TRAVEL_PICKS[key] for key in ("cheapest", "fastest")}),
    "attribute": _vocabulary(ATTRIBUTES),
    "poi_criterion": _vocabulary(POI_CRITERIA),
    "topic": _vocabulary(TOPICS),
    "venue": _vocabulary(VENUES),
    "line": Vocabulary(OpenNames(_vocabulary(LINES).names)),
    "setting": _vocabulary(SETTINGS),
    "wish": _vocabulary(IMPOSSIBLE_WISHES),
    "clock": _vocabulary(CLOCKS),
    "open_now": _vocabulary(FLAG),
    "distance_m": Quantity("m", 100, 20000, (500, 800, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 8000)),
    "rating": Quantity("stars", 3, 5, (3.8, 4.0, 4.2, 4.3, 4.5, 4.6)),
    "price": Quantity("yuan", 1, 5000, (30, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1200, 1500, 2000, 3000)),
    "minutes": Quantity("minutes", 5, 240, (10, 15, 20, 25, 30, 40, 45, 60, 75, 90, 120)),
    "days": Quantity("count", 1, 15, (2, 3, 4, 5, 7)),
    "far_days": Quantity("count", 16, 90, (20, 25, 30, 45, 60)),
    "count": Quantity("count", 1, 10, (2, 3, 4, 5)),
    "people": Quantity("count", 2, 20, (2, 3, 4, 5, 6, 8, 10)),
    "date": Date(HORIZON_DAYS, TODAY),
}


def label(kind: str, value: str, language: Language) -> str:
    """The plain name of a vocabulary value."""
    vocabulary = KINDS[kind]
    assert isinstance(vocabulary, Vocabulary)
    return vocabulary.names[value][language]
