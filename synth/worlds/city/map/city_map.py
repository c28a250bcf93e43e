"""One seed's city: roads, places and transit together, and what names of regions and locations mean in it. Immutable."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache

from synth.worlds.arguments import BadArgument
from synth.worlds.base import World
from synth.worlds.city.map.geometry import LAT_0, from_text
from synth.worlds.city.map.place_names import CITY_EN, CITY_ZH, DISTRICTS
from synth.worlds.city.map.places import DISTRICT_KEYS, Places
from synth.worlds.city.map.regions import Region, resolve
from synth.worlds.city.map.roads import Roads
from synth.worlds.city.map.transit import Transit
from synth.worlds.city.map.weather import Spot
from synth.worlds.city.vocabulary import HORIZON_DAYS, NOW, TODAY

_DISTRICT_NAMES: dict[str, int] = {
    spelling: index
    for index, key in enumerate(DISTRICT_KEYS)
    for spelling in (DISTRICTS[key][0].lower(), DISTRICTS[key][0].lower().removesuffix(" district"), DISTRICTS[key][1])
}
_OWN_NAMES = frozenset({CITY_EN.lower(), CITY_ZH, f"{CITY_ZH}市"})
_LAST_DAY = TODAY + timedelta(days=HORIZON_DAYS)


class City:
    """What a seed makes of the city. Roads and places are drawn at once, transit when it is first asked for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.roads = Roads(seed)
        self.places = Places(seed, self.roads)

    @cached_property
    def transit(self) -> Transit:
        return Transit(self.seed, self.roads)


class CityBased(World):
    """A world with a city. Intents and draws of slots need no more of their world than this class offers."""

    city: City

    def own_key(self, kind: str, value: str) -> str:
        """The city's own value that a slot value stands for."""
        return value


@lru_cache(maxsize=8)
def city_of(seed: int) -> City:
    """The city of a seed; the last few are kept, since tasks and their checks come back to one."""
    return City(seed)


def point(name: str, text: str) -> tuple[float, float]:
    """(x, y) of an argument.

    Raises:
        BadArgument: not a coordinate of the city.
    """
    try:
        return from_text(text)
    except ValueError as error:
        raise BadArgument(f"{name} {error}") from None


def district_of(name: str, text: str) -> int | None:
    """The district that `text` names; None for the whole city.

    Raises:
        BadArgument: neither.
    """
    plain = " ".join(text.lower().split())
    if plain in _OWN_NAMES:
        return None
    district = _DISTRICT_NAMES.get(plain)
    if district is None:
        districts = ", ".join(en for en, _ in DISTRICTS.values())
        raise BadArgument(f"{name} must be {CITY_EN} or one of its districts: {districts}")
    return district


def region_of(name: str, text: str) -> Region:
    """The administrative region that `text` names.

    Raises:
        BadArgument: unknown, or ambiguous; then the message lists the candidates.
    """
    resolved = resolve(text)
    if not resolved:
        raise BadArgument(f"{name} must be the name of a Chinese city, e.g. Kunming; '{text}' is unknown")
    if len(resolved) > 1:
        candidates = "; ".join(
            f"{region.en}, {region.province_en} ({region.province_zh}{region.zh}, {region.adcode})" for region in resolved
        )
        raise BadArgument(f"{name} '{text}' is ambiguous; candidates: {candidates}")
    return resolved[0]


def day_of(name: str, text: str) -> date:
    """A day from today to 15 days on.

    Raises:
        BadArgument: not a date, or outside.
    """
    try:
        day = date.fromisoformat(text) if len(text) == 10 else None
    except ValueError:
        day = None
    if day is None:
        raise BadArgument(f"{name} must be a date YYYY-MM-DD")
    if not TODAY <= day <= _LAST_DAY:
        raise BadArgument(f"{name} must lie from {TODAY} to {_LAST_DAY}")
    return day


def parse_time(name: str, text: str) -> datetime:
    """A local time from today's midnight to 15 days on.

    Raises:
        BadArgument: not a time without offset, or outside.
    """
    try:
        moment = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        raise BadArgument(f"{name} must be a local time YYYY-MM-DDTHH:MM")
    if not TODAY <= moment.date() <= _LAST_DAY:
        raise BadArgument(f"{name} must lie from {TODAY} to {_LAST_DAY}")
    return moment.replace(second=0, microsecond=0)


def spot_of(city: City, text: str) -> Spot:
    """What has the weather that is asked for: the district of a coordinate or name, or a region.

    Raises:
        BadArgument: none of these.
    """
    plain = " ".join(text.lower().split())
    index = _DISTRICT_NAMES.get(plain)
    if index is None and "," in text and text.replace(",", "").replace(".", "").replace("-", "").replace(" ", "").isdigit():
        index = city.places.district_at(point("location", text))
    if index is not None:
        en, zh = DISTRICTS[DISTRICT_KEYS[index]]
        return Spot(index, en, zh, LAT_0)
    region = region_of("location", text)
    return Spot(int(region.adcode), region.en, region.zh, region.lat)


__all__ = ["NOW", "City", "city_of", "day_of", "district_of", "parse_time", "point", "region_of", "spot_of"]
