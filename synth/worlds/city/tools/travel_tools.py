"""The tools that look beyond the map: flights, trains, weather, the web."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from synth.worlds.arguments import BadArgument
from synth.worlds.city.map import timetable, weather
from synth.worlds.city.map.city_map import City, day_of, region_of, spot_of
from synth.worlds.city.tools import web_corpus
from synth.worlds.city.vocabulary import HORIZON_DAYS, TODAY


def _departures(city: City, given: dict[str, Any], kind: timetable.Kind) -> dict[str, Any]:
    origin, destination = region_of("origin", given["origin"]), region_of("destination", given["destination"])
    if origin.adcode == destination.adcode:
        raise BadArgument("destination must differ from origin")
    first = day_of("date", given["date"])
    days = min(int(given["days"]), HORIZON_DAYS - (first - TODAY).days)
    services = timetable.services(city.seed, kind, origin, destination)
    rows = timetable.departures(services, kind, first, days)
    listed = f"{kind}s"
    if not rows:
        return {"total": 0, listed: []}
    return {
        "from": origin.en, "from_zh": origin.zh, "to": destination.en, "to_zh": destination.zh,
        "total": len(rows), "best_with_seats": timetable.summary(rows), listed: rows,
    }  # fmt: skip


def search_flights(city: City, given: dict[str, Any]) -> dict[str, Any]:
    """travel_search_flights. Days beyond the 15 that timetables cover are left out."""
    return _departures(city, given, "flight")


def search_trains(city: City, given: dict[str, Any]) -> dict[str, Any]:
    """travel_search_trains, as `search_flights`."""
    return _departures(city, given, "train")


def current_conditions(city: City, given: dict[str, Any]) -> dict[str, Any]:
    """weather_current_conditions."""
    spot = spot_of(city, given["location"])
    return {"location": spot.en, "location_zh": spot.zh, **weather.now_at(city.seed, spot)}


def forecast_days(city: City, given: dict[str, Any]) -> dict[str, Any]:
    """weather_forecast_days. Days beyond the 15 that forecasts cover are left out."""
    spot = spot_of(city, given["location"])
    first = day_of("date", given["date"])
    days = min(int(given["days"]), HORIZON_DAYS - (first - TODAY).days + 1)
    forecast = [weather.day_of(city.seed, spot, first + timedelta(days=ahead)) for ahead in range(days)]
    return {"location": spot.en, "location_zh": spot.zh, "days": forecast}


def web_search(city: City, given: dict[str, Any]) -> dict[str, Any]:
    """web_search."""
    return {"results": web_corpus.search(city.seed, city.transit, given["query"])}
