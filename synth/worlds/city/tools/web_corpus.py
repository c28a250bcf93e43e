"""What the web says: a small corpus of pages whose numbers and names a seed draws, and the search over it.

Pages: one a policy, venue (opening rules, entry requirements), transit line, district, interest (where to go), and a few more that are
only there to be found by mistake. Titles and search words are the same in every seed; the text is filled in when a page is shown, in the
language of the query. Scores are sums of inverse document frequencies over the query's words (pairs of characters in Chinese), with the
title's words counted again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth.worlds.city.map.hash_rng import bits, integer, pick
from synth.worlds.city.map.place_names import CITY_EN, CITY_ZH, DISTRICTS, landmarks
from synth.worlds.city.map.regions import CITIES
from synth.worlds.city.map.transit import STATUSES, Transit, network
from synth.worlds.city.tools.travel_policies import POLICIES
from synth.worlds.city.vocabulary import INTERESTS, LINES, THEMES, TOPICS, VENUES

Texts = tuple[str, str]
"""English, Chinese."""

WEEKDAYS: tuple[Texts, ...] = (
    ("Monday", "周一"), ("Tuesday", "周二"), ("Wednesday", "周三"), ("Thursday", "周四"), ("Friday", "周五"),
)  # fmt: skip
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Page:
    """`fill` gives the facts that the text states, by name; `text` has a field for each."""

    kind: str
    key: str
    title: Texts
    text: Texts
    fill: Callable[[int, int, Transit], dict[str, Any]]
    """(seed, the page's own number, transit) -> fields; a field that differs by language is a pair."""


def _policy(topic: str) -> Page:
    en, zh, first, second = POLICIES[topic]

    def fill(seed: int, page: int, transit: Transit) -> dict[str, Any]:
        return {
            "a": integer(0, (first[1] - first[0]) // first[2], seed, 41, page) * first[2] + first[0],
            "b": integer(0, (second[1] - second[0]) // second[2], seed, 42, page) * second[2] + second[0],
        }

    name = TOPICS[topic]
    return Page("policy", topic, (f"Travel policy: {name[0]}", f"出行政策：{name[1]}"), (en, zh), fill)


def _opening(venue: str) -> Page:
    def fill(seed: int, page: int, transit: Transit) -> dict[str, Any]:
        last = 15 * 60 + integer(0, 16, seed, 43, page) * 15
        return {"day": pick(WEEKDAYS, seed, 44, page), "last": f"{last // 60:02d}:{last % 60:02d}"}

    en, zh = VENUES[venue]
    text = (
        f"Every {en} in the city is closed on {{day}}; on other days last admission is at {{last}}.",
        f"全市{zh}每{{day}}闭馆；其余日子最晚{{last}}入场。",
    )
    return Page("opening", venue, (f"Opening rules: {en}", f"开放规定：{zh}"), text, fill)


def _entry(venue: str) -> Page:
    def fill(seed: int, page: int, transit: Transit) -> dict[str, Any]:
        return {"ahead": integer(2, 9, seed, 45, page), "group": integer(4, 12, seed, 46, page) * 5}

    en, zh = VENUES[venue]
    text = (
        f"To enter a {en}, reserve {{ahead}} days ahead with an identity document; a group may have {{group}} people.",
        f"进入{zh}须凭身份证件提前{{ahead}}天预约；团队不得超过{{group}}人。",
    )
    return Page("entry", venue, (f"Entry requirements: {en}", f"入场要求：{zh}"), text, fill)


def _line(line: str) -> Page:
    def fill(seed: int, page: int, transit: Transit) -> dict[str, Any]:
        index = network().keys.index(line)
        return {
            "status": STATUSES[int(transit.status[index])],
            "headway": int(transit.headway_min[index]),
            "delay": int(transit.delay_min[index]),
        }

    en, zh = LINES[line]
    text = (
        f"{en}: {{status}}. Delay: {{delay}} minutes. Headway: {{headway}} minutes.",
        f"{zh}：{{status}}。延误：{{delay}}分钟。发车间隔：{{headway}}分钟。",
    )
    return Page("line", line, (f"Service status: {en}", f"运行状态：{zh}"), text, fill)


def _district(key: str) -> Page:
    def fill(seed: int, page: int, transit: Transit) -> dict[str, Any]:
        sight = pick(landmarks(), seed, 47, page)
        theme = pick(tuple(THEMES.values()), seed, 48, page)
        return {"people": integer(90, 980, seed, 49, page) * 1000, "sight": (sight.en, sight.zh), "theme": theme[:2]}

    en, zh = DISTRICTS[key]
    text = (
        f"About {{people}} people live in {en}. It is known for {{theme}}, and visitors speak well of {{sight}}.",
        f"{zh}约有{{people}}人居住，以{{theme}}闻名，游客对{{sight}}评价很好。",
    )
    return Page("district", key, (f"Area guide: {en}", f"区域介绍：{zh}"), text, fill)


def _interest(key: str) -> Page:
    cities = INTERESTS[key][2]

    def fill(seed: int, page: int, transit: Transit) -> dict[str, Any]:
        city = CITIES[pick(cities, seed, 50, page)]
        return {"city": (city.en, city.zh), "share": integer(81, 98, seed, 51, page)}

    en, zh, _ = INTERESTS[key]
    text = (
        f"For {en} this season, travellers recommend {{city}}: {{share}} percent would go again.",
        f"这个季节看{zh}，旅行者推荐{{city}}：{{share}}%的人愿意再去。",
    )
    return Page("interest", key, (f"Where to go: {en}", f"去哪里：{zh}"), text, fill)


def _other(key: str, title: Texts, text: Texts, low: int, high: int) -> Page:
    def fill(seed: int, page: int, transit: Transit) -> dict[str, Any]:
        return {"n": integer(low, high, seed, 52, page)}

    return Page("other", key, title, text, fill)


_OTHERS = (
    _other("metro_fares", ("Metro fares", "地铁票价"),
    ("The metro costs 2 yuan up to 4 km and 1 yuan for every 4 km begun beyond; a day pass is {n} yuan.",
    "地铁4公里内2元，之后每4公里加1元；一日票{n}元。"), 18, 30),
    _other("bus_fares", ("Bus fares", "公交票价"),
    ("Every bus boarding costs 2 yuan; a monthly card is {n} yuan.", "公交每次上车2元；月卡{n}元。"), 60, 120),
    _other("taxi_fares", ("Taxi fares", "出租车票价"),
    ("A kilometre by taxi costs {n} jiao beyond the base distance.", "出租车超出起步里程后每公里{n}角。"), 20, 34),
    _other("airport", ("Getting to the airport", "前往机场"),
    ("The airport coach takes {n} minutes from the centre.", "机场大巴从市中心出发需{n}分钟。"), 35, 80),
    _other("tourist_card", ("City tourist card", "城市旅游卡"),
    (f"The {CITY_EN} card costs {{n}} yuan.", f"{CITY_ZH}旅游卡售价{{n}}元。"), 80, 260),
    _other("emergency", ("Emergency numbers", "紧急电话"),
    ("Ambulances arrive within {n} minutes on average.", "救护车平均{n}分钟到达。"), 7, 14),
)  # fmt: skip


@lru_cache(maxsize=1)
def pages() -> tuple[Page, ...]:
    return (
        *map(_policy, TOPICS), *map(_opening, VENUES), *map(_entry, VENUES), *map(_line, LINES), *map(_district, DISTRICTS),
        *map(_interest, INTERESTS), *_OTHERS,
    )  # fmt: skip


_WORD = re.compile(r"[a-z0-9']+")
_UNSPACED = re.compile(r"[\u3400-\u9fff]+")
_STOP = frozenset(
    [
        "a",
        "an",
        "the",
        "in",
        "on",
        "at",
        "of",
        "to",
        "for",
        "and",
        "is",
        "are",
        "what",
        "how",
        "can",
        "i",
        "may",
        "do",
        "does",
        "my",
        "with",
        "from",
        "it",
        "be",
    ]
)


def _terms(text: str) -> list[str]:
    """English words without a final s, and pairs of Chinese characters."""
    plain = text.casefold()
    words = [word.removesuffix("s") for word in _WORD.findall(plain) if word not in _STOP]
    return words + [run[at : at + 2] for run in _UNSPACED.findall(plain) for at in range(max(1, len(run) - 1))]


@dataclass(frozen=True, slots=True)
class _Index:
    columns: dict[str, NDArray[np.float64]]
    """Term -> score it adds to every page."""


@lru_cache(maxsize=1)
def _index() -> _Index:
    table: dict[str, NDArray[np.float64]] = {}
    every = pages()
    for number, page in enumerate(every):
        for text, weight in ((page.title[0], 2.0), (page.title[1], 2.0), (page.text[0], 0.5), (page.text[1], 0.5)):
            for term in set(_terms(text)):
                table.setdefault(term, np.zeros(len(every)))[number] += weight
    return _Index({term: column * log(1 + len(every) / np.count_nonzero(column)) for term, column in table.items()})


@lru_cache(maxsize=8192)
def _rank_pages(query: str) -> tuple[int, ...]:
    """Numbers of the best pages, best first; the same in every seed."""
    columns = [column for term in dict.fromkeys(_terms(query)) if (column := _index().columns.get(term)) is not None]
    if not columns:
        return ()
    scores = np.sum(columns, axis=0)
    order = np.lexsort((np.arange(len(scores)), -scores))[:_SHOWN]
    return tuple(int(number) for number in order if scores[number] > 0)


def page_number(kind: str, key: str) -> int | None:
    return next((number for number, page in enumerate(pages()) if (page.kind, page.key) == (kind, key)), None)


def document_id(seed: int, number: int) -> str:
    return f"doc-{bits(seed, 40, number) % 1_000_000:06d}"


def search(seed: int, transit: Transit, query: str) -> list[dict[str, str]]:
    """The best three pages, in Chinese where the query has Chinese characters."""
    language = 1 if _UNSPACED.search(query) else 0
    hits = []
    for number in _rank_pages(query):
        page = pages()[number]
        fields = page.fill(seed, number, transit)
        shown = {name: value[language] if isinstance(value, tuple) else value for name, value in fields.items()}
        hits.append({"doc_id": document_id(seed, number), "title": page.title[language], "text": page.text[language].format(**shown)})
    return hits
