"""What experts' answers look like, for telling them in other words: whole sentences by name, and single values by kind.

A sentence that no pattern fits is kept, with its values told in other ways. A group is called by the kind of its value (a second one of the
kind with a 2), or holds a text: name, word, id, label, and the rest of a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.tags_sections.veto_worlds import UNITS
from storage.records import Language

_ID = r"(?P<id>[A-Za-z]+-?\d+)"
SENTENCES: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "way_arriving": r"The way is (?P<distance>\d+) m and takes (?P<duration>\d+) minutes, arriving at (?P<clock>[\d:]+)\.",
        "way": r"The way is (?P<distance>\d+) m and takes (?P<duration>\d+) minutes\.",
        "weather": r"(?P<date>\d{4}-\d\d-\d\d): (?P<word>[^,.]+), (?P<temperature>\d+) to (?P<temperature2>\d+) degrees\.",
        "trip": r"(?P<name>[A-Z]+\d+) leaves on (?P<date>[\d-]+) at (?P<clock>[\d:]+), takes (?P<duration>\d+) minutes"
        r" and costs (?P<price>\d+) yuan\.",
        "rated_price": r" \(rated (?P<rating>[\d.]+), (?P<price>\d+) yuan\)",
        "rated_distance": r" \(rated (?P<rating>[\d.]+), (?P<distance>\d+) m\)",
        "rated": r" \(rated (?P<rating>[\d.]+)\)",
        "leave": r"Leave at (?P<clock>[\d:]+): it takes (?P<duration>\d+) minutes\.",
        "hours": r"Opening hours: (?P<clock>[\d:]+) to (?P<clock2>[\d:]+)\.",
        "reviews": r"It is rated (?P<rating>[\d.]+) from (?P<number>\d+) reviews\.",
        "ride": r"The ride costs (?P<price>\d+) yuan\.",
        "now": r"It is (?P<word>[a-z ]+), (?P<temperature>\d+) degrees\.",
        "again": r"Go to (?P<name>[A-Z][\w' ]+): (?P<percent>\d+) percent would go again\.",
        "closed": r"Closed on (?P<word>\w+), last admission at (?P<clock>[\d:]+)\.",
        "fact": rf"^The (?P<label>[a-z -]+) of {_ID} is (?P<rest>.+)\.$",
        "found": rf"^It is (?P<word>[a-z ]+) {_ID}: (?P<label>[a-z -]+?) (?P<rest>\S+(?: [a-z]+)?)\.$",
        "such": r"^There are (?P<number>\d+) such (?P<word>[a-z ]+)\.$",
        "new": rf"^The new (?P<word>[a-z ]+) is {_ID}\.$",
        "only_price": r"^(?P<price>\d+) dollars\.$",
        "stock": r"^(?P<number>\d+) in stock\.$",
        "done": rf"^{_ID} is (?P<word>[a-z]+)\.$",
    },
    "zh": {
        "way_arriving": r"路程(?P<distance>\d+)米，需要(?P<duration>\d+)分钟，(?P<clock>[\d:]+)到达。",
        "way": r"路程(?P<distance>\d+)米，需要(?P<duration>\d+)分钟。",
        "weather": r"(?P<date>\d{4}-\d\d-\d\d)：(?P<word>[^，]+)，(?P<temperature>\d+)到(?P<temperature2>\d+)度。",
        "trip": r"(?P<name>[A-Z]+\d+)次(?P<date>[\d-]+) (?P<clock>[\d:]+)出发，用时(?P<duration>\d+)分钟，票价(?P<price>\d+)元。",
        "rated_price": r"（评分(?P<rating>[\d.]+)，(?P<price>\d+)元）",
        "rated_distance": r"（评分(?P<rating>[\d.]+)，(?P<distance>\d+)米）",
        "rated": r"（评分(?P<rating>[\d.]+)）",
        "leave": r"(?P<clock>[\d:]+)出发：需要(?P<duration>\d+)分钟。",
        "hours": r"营业时间(?:为|：)?(?P<clock>[\d:]+)(?:到|至)(?P<clock2>[\d:]+)。",
        "reviews": r"评分(?P<rating>[\d.]+)，共(?P<number>\d+)条点评。",
        "ride": r"^票价(?P<price>\d+)元。",
        "now": r"现在(?P<word>[^，\d]+)，(?P<temperature>\d+)度。",
        "again": r"推荐(?P<name>[^：]+)：(?P<percent>\d+)%的人愿意再去。",
        "closed": r"(?P<word>周.)闭馆，最晚(?P<clock>[\d:]+)入场。",
        "fact": rf"^{_ID}的(?P<label>[^是]+)是(?P<rest>.+)。$",
        "found": rf"^是(?P<word>[^，A-Za-z\d]+){_ID}，(?P<label>[^\d，]+)(?P<rest>\d\S*)。$",
        "such": r"^一共有(?P<number>\d+)(?P<word>\D)。$",
        "new": rf"^新的(?P<word>[^A-Za-z\d]+)是{_ID}。$",
        "only_price": r"^(?P<price>\d+)美元。$",
        "stock": r"^库存 (?P<number>\d+) 件。$",
        "done": rf"^{_ID} (?P<word>已[^，。\d为]+)。$",
    },
}
UNIT_OF_ZH = {zh: en for en, zh in UNITS.items()}
_UNIT = "|".join(UNITS)
VALUES: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "duration": r"(?<![\d.])(\d+) minutes",
        "distance": r"(?<![\d.])(\d+) m\b",
        "price": r"(?<![\d.])(\d+(?:\.\d+)?) (?:yuan|dollars|pounds|euros)",
        "percent": r"(?<![\d.])(\d+(?:\.\d+)?) percent",
        "count": rf"(?<![\d.])(\d+) ({_UNIT})\b",
        "date": r"\b(\d{4}-\d\d-\d\d)\b",
        "clock": r"\b(\d\d:\d\d)\b",
    },
    "zh": {
        "duration": r"(?<![\d.])(\d+)分钟",
        "distance": r"(?<![\d.])(\d+)米",
        "price": r"(?<![\d.])(\d+(?:\.\d+)?)(?:元|美元|英镑|欧元)",
        "percent": r"(?<![\d.])(\d+(?:\.\d+)?)%",
        "count": rf"(?<![\d.])(\d+)({'|'.join(UNIT_OF_ZH)})",
        "date": r"(?<!\d)(\d{4}-\d\d-\d\d)(?!\d)",
        "clock": r"(?<!\d)(\d\d:\d\d)(?!\d)",
    },
}
