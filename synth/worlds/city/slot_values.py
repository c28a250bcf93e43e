"""Slot values that usually have an answer in a seed.

One idea: for a search, first draw the place that is to be found, then take rating, price, feature and radius from it and the landmark from
its surroundings: what is asked for then exists. Everything else is drawn freely, so that slots which must differ do, days fit the horizon,
cities have connections, and modes fit preferences. Values that are given are kept; what is drawn suits them as far as it can.
Nothing is solved here, except in `draw_entities`, which may look a few times for individuals that suit the slots that stay.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.records import JSON
from synth.text.slot_kinds import Date, Quantity, Vocabulary
from synth.worlds.base import Intent, Slot, Unsolvable
from synth.worlds.city.map.city_map import CityBased
from synth.worlds.city.map.place_catalog import landmark_index
from synth.worlds.city.map.place_names import gazetteer
from synth.worlds.city.map.places import DISTRICT_KEYS, FEATURE_BITS, Places
from synth.worlds.city.map.regions import CITIES, resolve
from synth.worlds.city.map.timetable import Kind, departures, services, summary
from synth.worlds.city.tools.web_corpus import page_number, pages
from synth.worlds.city.vocabulary import CATEGORIES, HORIZON_DAYS, KINDS, MOTOR_MODES, THEMES, TODAY

_ENTITY_TRIES, _PAIR_TRIES, _TARGET_TRIES, _WAY_TRIES = 12, 30, 8, 8
_STOPS = ("waypoint", "stop_a", "stop_b")
_DEFAULT_RADIUS_M = 5000


@lru_cache(maxsize=128)
def _choices_of(name: str) -> tuple[Any, ...]:
    """What a slot kind is drawn from: all values of a vocabulary, the usual numbers of a quantity, all days but today."""
    kind = KINDS[name]
    if isinstance(kind, Vocabulary):
        return tuple(kind.names)
    if isinstance(kind, Quantity):
        return tuple(int(choice) if choice == int(choice) and kind.unit != "stars" else choice for choice in kind.choices)
    assert isinstance(kind, Date)
    return tuple(range(1, kind.horizon_days + 1))


def draw_slots(world: CityBased, intent: Intent, names: frozenset[str], rng: random.Random) -> dict[str, JSON]:
    """Values for the named slots, in the order in which the intent declares them."""
    return _Draw(world, intent, names, {}, rng).values()


def draw_entities(world: CityBased, intent: Intent, slots: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
    """`slots` with the entities drawn anew: the first of a dozen draws that has an answer, else the last."""
    entities = {slot.name for slot in intent.slots if slot.is_entity}
    fixed = {name: value for name, value in slots.items() if name not in entities}
    values: dict[str, JSON] = dict(slots)
    for _ in range(_ENTITY_TRIES if entities & slots.keys() else 0):
        values = _Draw(world, intent, frozenset(slots), fixed, rng).values()
        try:
            intent.solve(world, values, "en")
        except Unsolvable:
            continue
        break
    return values


class _Draw:
    """One draw: `given` values stay, `out` fills up."""

    def __init__(self, world: CityBased, intent: Intent, names: frozenset[str], given: Mapping[str, JSON], rng: random.Random) -> None:
        self.world, self.intent, self.names, self.rng = world, intent, names, rng
        self.slots = {slot.name: slot for slot in intent.slots}
        self.out: dict[str, Any] = dict(given)

    def values(self) -> dict[str, JSON]:
        if self._lacks("date") or self._lacks("return_date") or self._lacks("days"):
            self._draw_days()
        if {"city_from", "city_to", "city", "city_a"} & self.names:
            self._draw_cities()
        if self.names & {"category", "category_a", "theme", "ranking"}:
            self._draw_target()
        self._draw_modes()
        if self.intent.name == "compare_routes":
            self._draw_ways()
        if self._lacks("attribute") or (self._lacks("place") and self.out.get("attribute") == "cost"):
            self._draw_detail()
        for name in self.slots:
            if self._lacks(name):
                self.out[name] = self._free(self.slots[name])
        return {name: self.out[name] for name in self.slots if name in self.names}

    def _lacks(self, name: str) -> bool:
        return name in self.names and name not in self.out

    def _choices(self, slot: Slot) -> tuple[Any, ...]:
        return _choices_of(slot.kind)

    def _free(self, slot: Slot) -> JSON:
        """Any value that no other slot of the same kind has."""
        used = {self.out.get(other.name) for other in self.slots.values() if other.kind == slot.kind and other.name in self.names}
        choices = self._choices(slot)
        if len(choices) <= 2 * len(used):
            return self.rng.choice([choice for choice in choices if choice not in used])
        while (value := self.rng.choice(choices)) in used:
            pass
        return value

    # ---- days and cities -----------------------------------------------------------------------------------------------------

    def _draw_days(self) -> None:
        after = max((self.out.get(name, 0) for name in ("days", "forecast_days")), default=0)
        for name in ("days", "forecast_days"):
            if self._lacks(name):
                latest = HORIZON_DAYS - self.out.get("date", 0)
                self.out[name] = self.rng.choice([choice for choice in self._choices(self.slots[name]) if choice < latest] or [2])
                after = max(after, self.out[name])
        if self._lacks("date"):
            last = (
                self.out["return_date"] - 1 if "return_date" in self.out else HORIZON_DAYS - max(after, 1) - ("return_date" in self.names)
            )
            self.out["date"] = self.rng.randint(min(1, last), max(last, 0))
        if self._lacks("return_date"):
            self.out["return_date"] = self.rng.randint(min(self.out.get("date", 0) + 1, HORIZON_DAYS), HORIZON_DAYS)

    def _draw_cities(self) -> None:
        tool = "flight" if self.intent.name in ("flight_price", "destination_for") else "train"
        keys = [key for key in CITIES if key != "lanchuan" or "city_from" in self.names]
        for _ in range(_PAIR_TRIES):
            names = [name for name in self.slots if self.slots[name].kind == "city" and name in self.names]
            cities = {name: self.out.get(name) or self.rng.choice(keys) for name in names}
            if len(set(cities.values())) == len(cities) and self._are_connected(cities, tool):
                break
        self.out |= cities
        if self._lacks("price") and "city_to" in cities:
            self.out["price"] = self._fare_around(cities["city_from"], cities["city_to"], "train", "price", (0.6, 1.8))
        if self._lacks("price_max") and self.intent.name == "destination_for":
            if self._lacks("pick"):
                self.out["pick"] = self._free(self.slots["pick"])
            self.out["price_max"] = self._fare_around(cities["city_from"], self._recommended_city(), "flight", "price_max", (1.5, 2.2))

    def _recommended_city(self) -> str:
        """The city that this seed's guide names for the interest."""
        if self._lacks("interest"):
            self.out["interest"] = self._free(self.slots["interest"])
        number = page_number("interest", self.out["interest"])
        assert number is not None
        fields = pages()[number].fill(self.world.city.seed, number, self.world.city.transit)
        return resolve(fields["city"][0])[0].key

    def _are_connected(self, cities: Mapping[str, str], tool: str) -> bool:
        seed = self.world.city.seed
        if self.intent.name == "destination_for":
            cities = {**cities, "city_to": self._recommended_city()}
            if cities["city_to"] == cities["city_from"]:
                return False
        start = cities.get("city_from", "lanchuan" if self.intent.name == "long_trip" else None)
        if start is None:
            return True
        kinds = ("train", "flight") if self.intent.name == "train_or_flight" else (tool,)
        ends = [city for name, city in cities.items() if name != "city_from"]
        return all(services(seed, kind, CITIES[start], CITIES[end]) for kind in kinds for end in ends)

    def _fare_around(self, origin: str, destination: str, kind: Kind, name: str, span: tuple[float, float]) -> JSON:
        """A round sum that is the wanted fare times a factor of this span, about."""
        offered = services(self.world.city.seed, kind, CITIES[origin], CITIES[destination])
        day = TODAY.fromordinal(TODAY.toordinal() + self.out.get("date", 1))
        best = summary(departures(offered, kind, day, 0))
        fare = best[self.out.get("pick", "cheapest")]["price"] if best else 300
        wish = fare * self.rng.uniform(*span)
        return min(self._choices(self.slots[name]), key=lambda choice: abs(choice - wish))

    # ---- places --------------------------------------------------------------------------------------------------------------

    def _draw_target(self) -> None:
        """Draws the place to be found. Category, filters, district and landmark, where not given, are taken from it."""
        main = "category" if "category" in self.names else "category_a" if "category_a" in self.names else "theme"
        if main not in self.names:
            return
        given = dict(self.out)
        for _ in range(_TARGET_TRIES):
            self.out = dict(given)
            self._draw_kinds(main)
            places = self.world.city.places
            candidates = self._fitting(places, main)
            if not candidates.size:
                continue
            self._aim(places, candidates, main)
            if self._count(places, main) >= self.out.get("limit", 1):
                break

    def _count(self, places: Places, main: str) -> int:
        """How many places meet all that is asked for now, near the anchor where there is one."""
        indices = self._fitting(places, main)
        if "place" in self.out:
            at = landmark_index()[self.out["place"]]
            metres = np.hypot(places.x[indices] - places.x[at], places.y[indices] - places.y[at])
            indices = indices[(metres <= self.out.get("radius", _DEFAULT_RADIUS_M)) & (metres > 1.0)]
        return int(indices.size)

    def _aim(self, places: Places, candidates: NDArray[np.int64], main: str) -> None:
        """Draws one of the candidates, and from it the filters, district and anchors."""
        target = int(candidates[self.rng.randrange(candidates.size)])
        self._take_filters(places, target, main)
        if self._lacks("district"):
            self.out["district"] = DISTRICT_KEYS[int(places.district[target])]
        anchor = "place" if "place" in self.names else None
        if anchor is not None and anchor not in self.out:
            self.out[anchor] = self._landmark_near(places, target)
        if "place_a" in self.names:
            self._draw_around(places, target)
        elif "origin" in self.names and self.intent.name == "along_route":
            self._draw_through(places, target)

    def _draw_kinds(self, main: str) -> None:
        needs_price = self.names & {"price_max", "price_min"} or str(self.out.get("sort", "")).startswith("price")
        if self._lacks("sort"):
            orders = list(self._choices(self.slots["sort"]))
            if main == "theme" or self.intent.name in ("half_day_trip", "day_trip", "long_trip"):
                orders = [order for order in orders if not str(order).startswith("price")]
            if "district" in self.names and self.intent.name != "long_trip":
                orders = [order for order in orders if order != "distance"]
            self.out["sort"] = self.rng.choice(orders)
            needs_price = needs_price or str(self.out["sort"]).startswith("price")
        for name in ("category", "category_a", "category_b", "category_c", "ranking", "theme"):
            if self._lacks(name):
                used = {self.out.get(other) for other in ("category", "category_a", "category_b", "category_c")}
                choices = [choice for choice in self._choices(self.slots[name]) if choice not in used]
                if name != "theme" and needs_price:
                    choices = [choice for choice in choices if CATEGORIES[choice].price is not None]
                if self.intent.name == "long_trip":
                    choices = [choice for choice in choices if choice != "hotel"]
                if "open_now" in self.names and name != "theme":
                    choices = [choice for choice in choices if CATEGORIES[choice].opens[0] <= 9]
                self.out[name] = self.rng.choice(choices)

    def _fitting(self, places: Places, main: str) -> NDArray[np.int64]:
        """Places of the kind that is wanted, and that meet the filters that are given."""
        kinds = THEMES[self.out["theme"]][2] if main == "theme" else (self.out[main],)
        indices = np.concatenate([places.of_category(kind) for kind in kinds])
        keep = np.ones(indices.size, np.bool_)
        if "open_now" in self.names:
            keep &= places.is_open[indices]
        if "feature" in self.names:
            bit = FEATURE_BITS.get(self.out.get("feature", ""), 0)
            keep &= (places.features[indices] & bit) == bit if bit else places.features[indices] > 0
        keep &= places.rating[indices] >= self.out.get("min_rating", 3.8 if "min_rating" in self.names else 0.0)
        keep &= places.yuan[indices] >= self.out.get("price_min", 30 if "price_min" in self.names else 0)
        keep &= places.yuan[indices] <= self.out.get("price_max", 1200)
        if self.out.get("district") in DISTRICT_KEYS:
            keep &= places.district[indices] == DISTRICT_KEYS.index(self.out["district"])
        return indices[keep]

    def _take_filters(self, places: Places, target: int, main: str) -> None:
        rating, yuan, features = float(places.rating[target]), int(places.yuan[target]), int(places.features[target])
        several = main != "category" and "category_b" in self.names
        if self._lacks("min_rating"):
            least = min(rating, 4.3) if several or self.intent.name == "long_trip" else rating
            self.out["min_rating"] = self._choose("min_rating", lambda choice: choice <= least, minimum=True)
        if self._lacks("price_max"):
            floor = max([yuan, *(CATEGORIES[self.out[f"category_{c}"]].typical_yuan for c in "bc" if f"category_{c}" in self.out)])
            self.out["price_max"] = self._choose("price_max", lambda choice: floor <= choice <= floor * 4)
        if self._lacks("price_min"):
            self.out["price_min"] = self._choose("price_min", lambda choice: choice <= yuan, minimum=True)
        if self._lacks("feature"):
            keys = [key for key, bit in FEATURE_BITS.items() if features & bit]
            self.out["feature"] = self.rng.choice(keys or list(FEATURE_BITS))
        if self._lacks("limit"):
            self.out["limit"] = self.rng.choice([2, 2, 3, 3, 4, 5])
        if self._lacks("radius"):
            least_m = 2500 if several else 1000
            self.out["radius"] = self._choose("radius", lambda choice: choice >= least_m)
        if self._lacks("buffer"):
            self.out["buffer"] = self._choose("buffer", lambda choice: 800 <= choice <= 5000)
        if self._lacks("hotel_price_max"):
            self.out["hotel_price_max"] = self._choose("hotel_price_max", lambda choice: choice >= 400)

    def _choose(self, name: str, fits: Any, *, minimum: bool = False) -> JSON:
        choices = [choice for choice in self._choices(self.slots[name]) if fits(choice)]
        every = self._choices(self.slots[name])
        return self.rng.choice(choices or [every[0] if minimum else every[-1]])

    def _distances(self, places: Places, target: int) -> tuple[list[str], NDArray[np.float64]]:
        keys = list(landmark_index())
        at = np.array(list(landmark_index().values()))
        return keys, np.hypot(places.x[at] - places.x[target], places.y[at] - places.y[target])

    def _landmark_near(self, places: Places, target: int) -> str:
        """A landmark within the radius of the target (and not itself), else the nearest one."""
        keys, metres = self._distances(places, target)
        metres = np.where(metres < 1.0, np.inf, metres)
        near = np.flatnonzero(metres <= float(self.out.get("radius", _DEFAULT_RADIUS_M)) * 0.95)
        return keys[int(near[self.rng.randrange(near.size)]) if near.size else int(metres.argmin())]

    def _draw_around(self, places: Places, target: int) -> None:
        """Landmarks whose middle is within the radius of the target."""
        names = [name for name in ("place_a", "place_b", "place_c") if self._lacks(name)]
        keys = list(landmark_index())
        at = np.array(list(landmark_index().values()))
        best, best_m = [0, 1, 2][: len(names)], float("inf")
        for _ in range(8):
            numbers = self.rng.sample(range(len(keys)), len(names)) if names else []
            if not numbers:
                return
            x, y = places.x[at[numbers]].mean(), places.y[at[numbers]].mean()
            metres = float(np.hypot(x - places.x[target], y - places.y[target]))
            if metres < best_m:
                best, best_m = numbers, metres
            if best_m <= self.out.get("radius", 10000) * 0.95:
                break
        self.out |= {name: keys[place] for name, place in zip(names, best, strict=True)}

    def _draw_through(self, places: Places, target: int) -> None:
        """Two landmarks of which one is near the target."""
        self.out.setdefault("origin", self._landmark_near(places, target))
        if self._lacks("destination"):
            self.out["destination"] = self._free(self.slots["destination"])

    def _draw_detail(self) -> None:
        """A landmark where the attribute that is asked for exists."""
        if self._lacks("attribute"):
            self.out["attribute"] = self.rng.choice(self._choices(self.slots["attribute"]))
        charged = [key for key, name in gazetteer().items() if CATEGORIES[name.category].price is not None]
        if self._lacks("place"):
            self.out["place"] = self.rng.choice(charged if self.out["attribute"] == "cost" else list(gazetteer()))

    def _draw_ways(self) -> None:
        """Ends, and a preference, with which the preferred way is another than the usual one."""
        city = self.world.city
        names = [name for name in ("origin", "destination", "waypoint", "preference") if self._lacks(name)]
        for _ in range(_WAY_TRIES if names else 0):
            for name in names:
                self.out.pop(name, None)
            for name in names:
                self.out[name] = self._free(self.slots[name])
            stops = [city.places.at(landmark_index()[self.out[name]]) for name in ("origin", "waypoint", "destination") if name in self.out]
            legs = list(pairwise(stops))
            if any(
                city.roads.way(a, b, "driving").edges.tolist() != city.roads.way(a, b, "driving", self.out["preference"]).edges.tolist()
                for a, b in legs
            ):
                break

    # ---- modes ---------------------------------------------------------------------------------------------------------------

    def _draw_modes(self) -> None:
        for name in ("mode", "mode_a", "mode_b", "mode_c"):
            if not self._lacks(name):
                continue
            choices = list(self._choices(self.slots[name]))
            if "preference" in self.names:
                choices = [choice for choice in choices if choice in MOTOR_MODES] or choices
            elif self.names & set(_STOPS) or self.intent.name in ("half_day_trip", "day_trip", "long_trip"):
                choices = [choice for choice in choices if choice != "transit"]
            elif "depart" in self.names or "arrive" in self.names:
                choices = [choice for choice in choices if choice != "transit"] if self.rng.random() < 0.5 else choices
            used = {self.out.get(other) for other in ("mode_a", "mode_b", "mode_c")}
            self.out[name] = self.rng.choice([choice for choice in choices if choice not in used])
