"""Trains and flights between the served cities: a timetable a pair, and what each day makes of it (price, seats).

Numbers, departure and duration of a pair hold for every day of a seed; prices move and seats sell out by day. A pair has trains where
rail is not absurdly long, flights where the distance is worth one. All is drawn by `hash_rng`, so a day without a query costs nothing.
Times are local (one zone); a train that arrives the next day says so in `arrival_date`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, Literal

from synth.worlds.city.map.hash_rng import bits, integer, mix, unit
from synth.worlds.city.map.regions import Region
from synth.worlds.city.vocabulary import TODAY

Kind = Literal["train", "flight"]

_TRAIN_CLASSES = (("G", 235.0, 0.46), ("D", 165.0, 0.31), ("K", 85.0, 0.15))
"""Letter, average km/h, yuan a km."""
_MAX_RAIL_KM, _MIN_AIR_KM = 2600.0, 330.0
CARRIERS = (("LC", "Lanchuan Air"), ("QY", "Qingyun Airlines"), ("HT", "Haitian Air"), ("BY", "Baiyun Wings"))


@dataclass(frozen=True, slots=True)
class Service:
    number: str
    carrier: str
    departure: str
    arrival: str
    """HH:MM."""
    days_later: int
    """Days from departure to arrival."""
    minutes: int
    yuan: int
    code: int


@lru_cache(maxsize=4096)
def services(seed: int, kind: Kind, origin: Region, destination: Region) -> tuple[Service, ...]:
    """The pair's timetable, by departure; empty where there is none."""
    km = origin.km_to(destination)
    if not (origin.is_served and destination.is_served) or (km > _MAX_RAIL_KM if kind == "train" else km < _MIN_AIR_KM):
        return ()
    pair = bits(seed, 11 if kind == "train" else 12, int(origin.adcode), int(destination.adcode))
    make = _train if kind == "train" else _flight
    generated = [make(km, bits(order, start=pair)) for order in range(integer(3, 7, start=pair))]
    unique = {service.number: service for service in generated}
    return tuple(sorted(unique.values(), key=lambda service: (service.departure, service.number)))


def _service(number: str, carrier: str, departs: int, minutes: int, yuan: int, code: int) -> Service:
    arrives = departs + minutes
    return Service(number, carrier, _clock(departs), _clock(arrives % 1440), arrives // 1440, minutes, yuan, code)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _train(km: float, code: int) -> Service:
    draws = bits(code)
    letter, speed, rate = _TRAIN_CLASSES[2 if code % 10 >= 8 else 1 if code % 10 >= 5 else 0]
    rail_km = km * 1.22
    minutes = int(rail_km / speed * 60 * (0.95 + unit(1, start=draws) * 0.25)) + 12
    yuan = max(12, round(rail_km * rate * (0.9 + unit(2, start=draws) * 0.2)))
    return _service(f"{letter}{1000 + code % 8999}", "China Railway", 360 + integer(0, 170, 3, start=draws) * 5, minutes, yuan, code)


def _flight(km: float, code: int) -> Service:
    draws = bits(code)
    carrier, name = CARRIERS[code % 4]
    minutes = int(km / 780 * 60 * (0.97 + unit(1, start=draws) * 0.1)) + 45
    yuan = round(260 + km * (0.38 + unit(2, start=draws) * 0.32))
    return _service(f"{carrier}{1000 + code % 8999}", name, 380 + integer(0, 186, 3, start=draws) * 5, minutes, yuan, code)


def departures(listed: tuple[Service, ...], kind: Kind, first: date, days: int) -> list[dict[str, Any]]:
    """All departures from `first` to `days` days later, as the tools show them. `seats` 0 means sold out."""
    low, span = (0.7, 0.9) if kind == "flight" else (0.95, 0.15)
    ahead = (first - TODAY).days
    dates = [(first + timedelta(days=day)).isoformat() for day in range(days + 3)]
    rows = []
    for day in range(days + 1):
        for service in listed:
            chance = mix(service.code + ahead + day)
            price = round(service.yuan * (low + (chance & 1023) / 1024 * span))
            seats = (chance >> 10) % 93 - 12
            row: dict[str, Any] = {
                "number": service.number,
                "carrier": service.carrier,
                "date": dates[day],
                "departure": service.departure,
                "arrival": service.arrival,
                "duration_min": service.minutes,
                "price": price if price > 10 else 10,
                "seats": seats if seats > 0 else 0,
            }
            if service.days_later:
                row["arrival_date"] = dates[min(day + service.days_later, len(dates) - 1)]
            rows.append(row)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of the departures with seats: the earliest, latest, cheapest and fastest, ties going to the earlier one."""
    free = [row for row in rows if row["seats"]]
    if not free:
        return {}
    fields = {
        "earliest": free[0],
        "latest": max(free, key=lambda row: (row["date"], row["departure"])),
        "cheapest": min(free, key=lambda row: row["price"]),
        "fastest": min(free, key=lambda row: row["duration_min"]),
    }
    return {name: {field: row[field] for field in ("number", "date", "departure", "price", "duration_min")} for name, row in fields.items()}
