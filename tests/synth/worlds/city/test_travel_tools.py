"""Timetables, weather and pages: consistent with themselves and with each other."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import pytest

from synth.worlds.city.map.city_map import city_of
from synth.worlds.city.map.regions import CITIES
from synth.worlds.city.map.timetable import services
from synth.worlds.city.map.transit import STATUSES, network
from synth.worlds.city.map.weather import CONDITIONS
from synth.worlds.city.tools.travel_policies import POLICIES
from synth.worlds.city.vocabulary import HORIZON_DAYS, LINES, TODAY, TOPICS
from synth.worlds.city.world import CityWorld

WORLD = CityWorld(9)
_DAY = TODAY.isoformat()


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(WORLD.call(tool, arguments).content)
    assert "error" not in result, result
    return result


@pytest.mark.parametrize(("tool", "listed"), [("travel_search_trains", "trains"), ("travel_search_flights", "flights")])
def test_the_best_departures_are_the_best_of_those_with_seats(tool: str, listed: str) -> None:
    result = call(tool, origin="Wuhan", destination="Guangzhou", date=_DAY, days=4)
    free = [row for row in result[listed] if row["seats"]]
    best = result["best_with_seats"]
    assert best["cheapest"]["price"] == min(row["price"] for row in free)
    assert best["fastest"]["duration_min"] == min(row["duration_min"] for row in free)
    times = sorted((row["date"], row["departure"]) for row in free)
    assert (best["earliest"]["date"], best["earliest"]["departure"]) == times[0]
    assert (best["latest"]["date"], best["latest"]["departure"]) == times[-1]
    assert result["total"] == len(result[listed])


def test_a_day_is_the_same_however_it_is_asked_for() -> None:
    week = call("travel_search_trains", origin="Wuhan", destination="Changsha", date=_DAY, days=7)["trains"]
    third = (TODAY + timedelta(days=3)).isoformat()
    assert call("travel_search_trains", origin="武汉", destination="长沙", date=third)["trains"] == [
        row for row in week if row["date"] == third
    ]
    days = call("weather_forecast_days", location="武汉", date=_DAY, days=15)["days"]
    assert call("weather_forecast_days", location="Wuhan", date=third)["days"] == [days[3]]


def test_arrivals_follow_from_departures_and_durations() -> None:
    for row in call("travel_search_trains", origin="Beijing", destination="Kunming", date=_DAY)["trains"]:
        minutes = int(row["departure"][:2]) * 60 + int(row["departure"][3:]) + row["duration_min"]
        assert row["arrival"] == f"{minutes % 1440 // 60:02d}:{minutes % 60:02d}"
        assert date.fromisoformat(row.get("arrival_date", _DAY)) == TODAY + timedelta(days=minutes // 1440)


def test_nobody_flies_a_short_hop_or_rides_across_the_continent() -> None:
    assert services(9, "flight", CITIES["guangzhou"], CITIES["shenzhen"]) == ()
    assert services(9, "train", CITIES["urumqi"], CITIES["sanya"]) == ()
    assert call("travel_search_flights", origin="Guangzhou", destination="Shenzhen", date=_DAY) == {"total": 0, "flights": []}


def test_every_city_has_connections_in_every_seed() -> None:
    for seed in range(3):
        for city in CITIES.values():
            assert any(services(seed, kind, city, other) for other in CITIES.values() for kind in ("train", "flight") if other != city)


def test_weather_is_one_of_the_conditions_and_rain_agrees_with_it() -> None:
    rain = {en: least for en, _, least in CONDITIONS}
    days = [day for city in CITIES.values() for day in call("weather_forecast_days", location=city.en, date=_DAY, days=15)["days"]]
    assert {day["condition"] for day in days} == set(rain)
    for day in days:
        assert day["low_c"] < day["high_c"]
        least = rain[day["condition"]]
        assert least <= day["rain_percent"] <= 100 if least else day["rain_percent"] <= 25
    assert len({day["bulletin"] for day in days}) > 0.99 * len(days)


def test_the_weather_now_is_todays() -> None:
    now, today = (
        call("weather_current_conditions", location="老城区"),
        call("weather_forecast_days", location="Old Town District", date=_DAY)["days"][0],
    )
    assert now["condition"] == today["condition"] and today["low_c"] <= now["temperature_c"] <= today["high_c"]


def test_the_south_is_warmer_than_the_north_on_average() -> None:
    def mean(city: str) -> float:
        days = call("weather_forecast_days", location=city, date=_DAY, days=15)["days"]
        return sum(float(day["high_c"]) for day in days) / len(days)

    assert mean("Sanya") > mean("Harbin") + 8


def test_policies_state_numbers_of_their_span_and_differ_between_seeds() -> None:
    texts = set()
    for topic, (en, _, first, second) in POLICIES.items():
        text = call("web_search", query=f"travel policy {TOPICS[topic][0]}")["results"][0]["text"]
        fits = {en.format(a=a, b=b) for a in range(first[0], first[1] + 1, first[2]) for b in range(second[0], second[1] + 1, second[2])}
        assert text in fits, text
        texts.add(text)
    other = CityWorld(10)
    again = {
        json.loads(other.call("web_search", {"query": f"travel policy {TOPICS[topic][0]}"}).content)["results"][0]["text"]
        for topic in POLICIES
    }
    assert len(texts & again) < len(texts) / 3


def test_the_status_page_of_a_line_agrees_with_the_line() -> None:
    transit = city_of(9).transit
    for index, key in enumerate(network().keys):
        text = call("web_search", query=f"service status {LINES[key][0]}")["results"][0]["text"]
        assert text.startswith(f"{LINES[key][0]}: {STATUSES[int(transit.status[index])][0]}.")
        assert f"Headway: {int(transit.headway_min[index])} minutes" in text


def test_the_horizon_is_fifteen_days() -> None:
    assert HORIZON_DAYS == 15
