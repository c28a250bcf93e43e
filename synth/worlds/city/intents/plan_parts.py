"""Parts that several plans share: looking a place up, searching with filters, routes, forecasts, departures; and how to tell of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from storage.records import JSON
from synth.text.value_spellings import value_spellings
from synth.worlds.base import misfit
from synth.worlds.city.intents.base import FORECAST, ROUTES, SEARCH
from synth.worlds.city.map.weather import CONDITIONS
from synth.worlds.city.plan_recorder import Script
from synth.worlds.city.vocabulary import CATEGORIES, HORIZON_DAYS, KINDS, MOTOR_MODES, TODAY, label

Slots = Mapping[str, JSON]
Row = dict[str, Any]


def distinct(*values: JSON) -> None:
    """Raises `Unsolvable` where two of the values are equal (None is no value)."""
    given = [value for value in values if value is not None]
    if len(set(given)) < len(given):
        raise misfit("two slots that must differ are equal")


def iso(days: int) -> str:
    return (TODAY + timedelta(days=days)).isoformat()


def moment(slots: Slots, clock: str = "depart") -> str | None:
    """The local time of a clock slot, on the day of the slot `date` (today without one)."""
    return f"{iso(slots.get('date', 0))}T{slots[clock]}" if clock in slots else None


def name_of(script: Script, row: Row) -> str:
    """A row's name in the answer's language."""
    return str(row["name"] if script.language == "en" else row["name_zh"])


def tell_one_of(script: Script, names: Sequence[str], others: Iterable[Sequence[str]]) -> None:
    """The answer must state a word, and none of the other words that it might have been; those that the word itself holds (拥堵 in
    严重拥堵) cannot be told from it. Each word: English, Chinese, further spellings."""
    rivals = [other for word in others for other in word if not any(other in name for name in names)]
    script.fact("word", names[0 if script.language == "en" else 1], *names, rivals=rivals)


def both(row: Row) -> tuple[str, str]:
    return row["name"], row["name_zh"]


# ---- places ------------------------------------------------------------------------------------------------------------------


def locate(script: Script, place: str) -> Row:
    """Looks a landmark up by name.

    Raises:
        Unsolvable: the city has none of this name.
    """
    name = label("place", place, script.language)
    row: Row = rows_of(script.call(SEARCH, {"query": name}))[0]
    if name not in both(row):
        raise misfit("no place has this name")
    if script.has_shown(row["place_id"]):
        raise misfit("looking it up is not needed")
    return row


def query_text(script: Script, slots: Slots, category: str | None = None, theme: str | None = None) -> str:
    """The query text for a category or theme, with the feature and openness that are asked for."""
    parts = [label("category", category, script.language) if category else label("theme", str(theme), script.language)]
    if "feature" in slots:
        parts.append(label("feature", slots["feature"], script.language))
    if "open_now" in slots:
        parts.append(label("open_now", slots["open_now"], script.language))
    return " ".join(parts)


def filters(slots: Slots, category: str | None, *, sort: str | None = None) -> dict[str, JSON]:
    """The arguments for rating, price and order; the price category follows from the category of place."""
    order = slots.get("sort", sort)
    needs_price = "price_max" in slots or "price_min" in slots or (order or "").startswith("price")
    if needs_price and (category is None or CATEGORIES[category].price is None):
        raise misfit("nothing is charged there")
    return {
        "sort_by": order,
        "min_rating": slots.get("min_rating"),
        "price_min": slots.get("price_min"),
        "price_max": slots.get("price_max"),
        "price_category": CATEGORIES[category].price if needs_price and category else None,
        "limit": slots.get("limit"),
    }


def rows_of(result: Row, least: int = 1) -> list[Row]:
    """The places of a result.

    Raises:
        Unsolvable: fewer than `least`.
    """
    rows: list[Row] = result["places"]
    if len(rows) < least:
        raise misfit("too few places fit")
    return rows


def search_near(
    script: Script, slots: Slots, center: Row, *, category: str | None = None, theme: str | None = None, sort: str | None = None
) -> Row:
    """Searches around a place that was found before; returns the whole result."""
    arguments = filters(slots, category, sort=sort)
    return script.call(
        SEARCH,
        {"query": query_text(script, slots, category, theme), "center": center["coords"], "radius": slots.get("radius"), **arguments},
    )


def best_near(script: Script, slots: Slots, center: Row, category: str) -> Row:
    """The first place of a search around another, in the order of the slot `sort` (best rated without one); its name is a fact."""
    order = slots.get("sort", "rating:d")
    result = search_near(script, slots, center, category=category, sort="rating:d")
    row = rows_of(result)[0]
    if row["place_id"] == center["place_id"]:
        raise misfit("the place found is the place itself")
    script.fact("name", name_of(script, row), *both(row))
    script.evidence("word", order, f"complete list of {result['total']}")
    return row


def tell_found(script: Script, slots: Slots, result: Row, key: str | None = None) -> list[Row]:
    """States the first places of a result: one, or as many as the slot `limit` says. Without an order, any place shown is a right answer.

    key: the row's field that the order is about; by default that of the slot `sort`.
    """
    count = slots.get("limit", 1)
    rows = rows_of(result, count)
    order = slots.get("sort")
    key = key or {"distance": "distance_m", "rating:d": "rating", "price:a": "price", "price:d": "price"}.get(order or "")
    reported = rows[:count]
    if {name for row in reported for name in both(row)} & {name for value in slots.values() for name in _place_names(value)}:
        raise misfit("the place found is one that was named")
    for row in reported:
        ties = [other for other in rows if key is None or _value(other, key) == _value(row, key)]
        script.fact("name", name_of(script, row), *(name for other in [row, *ties] for name in both(other)))
    if order is not None:
        script.evidence("word", order, f"complete list of {result['total']}")
    first = reported[0]
    if key is not None:
        script.fact("number", _value(first, key))
    others_en, others_zh = (
        "".join(f", then {row['name']}" for row in reported[1:]),
        "".join(f"，其次{row['name_zh']}" for row in reported[1:]),
    )
    script.say(
        f"{first['name']} ({describe(first, key, 'en')}){others_en}.", f"{first['name_zh']}（{describe(first, key, 'zh')}）{others_zh}。"
    )
    return reported


def _place_names(value: JSON) -> tuple[str, ...]:
    """The names of a slot value that may name a place."""
    return (label("place", value, "en"), label("place", value, "zh")) if isinstance(value, str) else ()


def _value(row: Row, key: str) -> JSON:
    return row.get("average_cost", row.get("price")) if key == "price" else row[key]


def describe(row: Row, key: str | None, language: str) -> str:
    """A few words on a place: what the order is about, and its rating."""
    parts = [f"rated {row['rating']}" if language == "en" else f"评分{row['rating']}"]
    if key == "price":
        parts.append(f"{_value(row, key)} yuan" if language == "en" else f"{_value(row, key)}元")
    elif key is not None and key != "rating":
        parts.append(f"{row[key]} m" if language == "en" else f"{row[key]}米")
    return ", ".join(parts) if language == "en" else "，".join(parts)


# ---- routes ------------------------------------------------------------------------------------------------------------------


def mode_of(slots: Slots) -> str:
    return str(slots.get("mode", "driving"))


def compute(script: Script, stops: Sequence[Row], mode: str | Sequence[str] = "driving", **more: JSON) -> list[Row]:
    """One call for the way through `stops`; returns its routes, one a mode."""
    modes = [mode] if isinstance(mode, str) else list(mode)
    if "transit" in modes and len(stops) > 2:
        raise misfit("transit takes no stops on the way")
    if more.get("preference") is not None and not set(modes) <= set(MOTOR_MODES):
        raise misfit("only motor vehicles have such preferences")
    coords = [stop["coords"] for stop in stops]
    result = script.call(
        ROUTES,
        {
            "origin": coords[0],
            "destination": coords[-1],
            "intermediates": coords[1:-1] or None,
            "modes": None if modes == ["driving"] else modes,
            **more,
        },
    )
    routes: list[Row] = result["routes"]
    for route in routes:
        if "unavailable" in route:
            raise misfit(route["unavailable"])
        script.evidence("id", route["route_id"])
    return routes


def tell_route(script: Script, route: Row, *, with_arrival: bool = False) -> None:
    """Tells distance and duration, and the arrival where a departure was asked for."""
    script.fact("number", route["distance_m"])
    script.fact("number", route["duration_min"])
    en, zh = (
        f"The way is {route['distance_m']} m and takes {route['duration_min']} minutes",
        f"路程{route['distance_m']}米，需要{route['duration_min']}分钟",
    )
    if with_arrival:
        arrival = route["arrival"][-5:]
        script.fact("time", arrival)
        en, zh = f"{en}, arriving at {arrival}", f"{zh}，{arrival}到达"
    script.say(f"{en}.", f"{zh}。")


# ---- weather -----------------------------------------------------------------------------------------------------------------


def forecast(script: Script, location: str, day: int, days: int | None = None) -> list[Row]:
    """Forecast days, whose bulletins must have been seen.

    Raises:
        Unsolvable: fewer days are forecast than asked for.
    """
    result = script.call(FORECAST, {"location": location, "date": iso(day), "days": days})
    rows: list[Row] = result["days"]
    if len(rows) < (days or 1):
        raise misfit("the forecast ends before")
    for row in rows:
        script.evidence("id", row["bulletin"])
    return rows


def tell_weather(script: Script, days: Sequence[Row]) -> None:
    """Tells condition and temperatures of each day."""
    conditions = {(day["condition"], day["condition_zh"]) for day in days}
    for day in days:
        tell_one_of(script, (day["condition"], day["condition_zh"]), [names[:2] for names in CONDITIONS if names[:2] not in conditions])
        script.fact("number", day["high_c"])
        script.say(
            f"{day['date']}: {day['condition']}, {day['low_c']} to {day['high_c']} degrees.",
            f"{day['date']}：{day['condition_zh']}，{day['low_c']}到{day['high_c']}度。",
        )


# ---- departures --------------------------------------------------------------------------------------------------------------


def departures(script: Script, tool: str, origin: str, destination: str, day: int, days: int | None = None) -> Row:
    """What the timetable calls its best departures (earliest, latest, cheapest, fastest).

    Raises:
        Unsolvable: none, or all sold out.
    """
    distinct(origin, destination)
    if day + (days or 0) > HORIZON_DAYS:
        raise misfit("the timetable ends before")
    names = [label("city", city, script.language) for city in (origin, destination)]
    result = script.call(tool, {"origin": names[0], "destination": names[1], "date": iso(day), "days": days})
    best: Row = result.get("best_with_seats", {})
    if not best:
        raise misfit("no seats")
    return best


def tell_departure(script: Script, best: Row, pick: str, *, rivals: Sequence[str] = (), with_date: bool = False) -> None:
    """States number, departure and price of the departure that `pick` names; the answer must not name the other bests or `rivals`."""
    departure = best[pick]
    others = dict.fromkeys(number for number in (*(row["number"] for row in best.values()), *rivals) if number != departure["number"])
    script.fact("id", departure["number"], rivals=tuple(others))
    script.fact("price", departure["price"])
    script.fact("time", departure["departure"])
    if with_date:
        script.fact("date", departure["date"], *_spoken_dates(departure["date"]))
    script.say(
        f"{departure['number']} leaves on {departure['date']} at {departure['departure']}, takes {departure['duration_min']} minutes "
        f"and costs {departure['price']} yuan.",
        f"{departure['number']}次{departure['date']} {departure['departure']}出发，用时{departure['duration_min']}分钟，"
        f"票价{departure['price']}元。",
    )


def _spoken_dates(day: str) -> list[str]:
    """An ISO date as people write it: May 17, 5月17日, tomorrow."""
    days = (date.fromisoformat(day) - TODAY).days
    return [text.removeprefix("on ") for text in (*value_spellings(KINDS["date"], days, "en"), *value_spellings(KINDS["date"], days, "zh"))]
