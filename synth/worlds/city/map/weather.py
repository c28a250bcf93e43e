"""Weather: what it is now, and a forecast for today and 15 days on, for every district of the city and every administrative region.

Temperatures follow the latitude in May, a slow wave over the days and chance; conditions follow chance alone. Every station and every
day's bulletin has an identifier. The forecast is always right.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from math import sin
from typing import Any

from synth.worlds.city.map.hash_rng import bits, integer, unit
from synth.worlds.city.vocabulary import NOW, TODAY

CONDITIONS: tuple[tuple[str, str, int], ...] = (
    ("sunny", "晴", 0), ("partly cloudy", "多云", 0), ("overcast", "阴天", 0), ("foggy", "有雾", 0), ("light rain", "小雨", 55),
    ("steady rain", "中雨", 75),
    ("thunderstorms", "雷阵雨", 85), ("downpour", "暴雨", 95),
)  # fmt: skip
"""English, Chinese, least chance of rain in percent (0: dry)."""
_SHARES = (26, 46, 60, 64, 80, 88, 95, 100)
_WINDS = ("north", "northeast", "east", "southeast", "south", "southwest", "west", "northwest")


@dataclass(frozen=True, slots=True)
class Spot:
    """Something that has weather. code: a number of its own. lat: latitude, which sets the climate."""

    code: int
    en: str
    zh: str
    lat: float


_BY_ROLL = tuple(next(index for index, share in enumerate(_SHARES) if roll < share) for roll in range(100))


def day_of(seed: int, spot: Spot, day: date) -> dict[str, Any]:
    """One forecast day. Temperatures in degrees Celsius, wind in km/h."""
    ahead = (day - TODAY).days
    chance = bits(seed, 21, spot.code, ahead)
    condition = _BY_ROLL[chance % 100]
    en, zh, least = CONDITIONS[condition]
    climate = 36.5 - abs(spot.lat - 18.0) * 0.72
    wave = 2.5 * sin(ahead * 0.7 + spot.code % 63 / 10)
    high = round(climate + wave - (4 if least else 0) + (chance >> 8) % 401 / 100 - 2)
    return {
        "date": day.isoformat(),
        "bulletin": f"wb-{(chance >> 40) % 1_000_000:06d}",
        "condition": en,
        "condition_zh": zh,
        "high_c": high,
        "low_c": high - 5 - (chance >> 18) % 7,
        "rain_percent": least + (chance >> 22) % ((100 - least) // 2 + 1) if least else (chance >> 22) % 26,
        "wind": f"{_WINDS[(chance >> 30) % 8]} {3 + (chance >> 33) % 36} km/h",
    }


def now_at(seed: int, spot: Spot) -> dict[str, Any]:
    """Present conditions: today's, at this hour's temperature."""
    today = day_of(seed, spot, TODAY)
    share = 0.35 + unit(seed, 29, spot.code) * 0.4
    return {
        "observed": NOW.isoformat(timespec="minutes"),
        "station": f"ws-{bits(seed, 30, spot.code) % 100_000:05d}",
        "condition": today["condition"],
        "condition_zh": today["condition_zh"],
        "temperature_c": round(today["low_c"] + (today["high_c"] - today["low_c"]) * share),
        "humidity_percent": integer(35, 95, seed, 31, spot.code),
        "wind": today["wind"],
    }
