"""A request that names places nobody listed becomes a task in a city that has them; the rules, the veto and the divisions hold."""

from __future__ import annotations

import json
import random
import re

import pytest

from storage.records import JSON, Frame, Language
from synth.tasks.solver import NotAdmitted, admit_any, expert_messages, training_seed, world_seeds
from synth.tasks.split import STANDARD, division_of
from synth.tasks.verify import verify
from synth.tasks.wording import render
from synth.worlds.city.given_names import GIVEN_KINDS, given_for, names_given
from synth.worlds.city.world import CityWorld

CITY = CityWorld
NAMES: dict[Language, dict[str, tuple[str, ...]]] = {
    "en": {"place": ("Golden Gate Park", "Union Station", "Sino", "Pier 39", "St. Mary's Hospital"), "line": ("Blue Line",)},
    "zh": {"place": ("天安门广场", "北京西站", "南锣鼓巷", "故宫博物院", "清华大学"), "line": ("房山线",)},
}
WITH_NAMES = [
    name
    for name, intent in CITY.intents.items()
    if any(slot.kind in GIVEN_KINDS and slot.is_required for slot in intent.slots) and intent.refusal is None and not intent.needs_no_tool
]


def real_frame(name: str, language: Language, seed: int) -> Frame:
    """A frame that is solvable in a seed, with real names in place of the city's own."""
    intent, rng = CITY.intents[name], random.Random(seed)
    slots = CITY(training_seed(seed)).draw_slots(name, frozenset(slot.name for slot in intent.slots if slot.is_required), rng)
    names = {kind: iter(rng.sample(each, len(each))) for kind, each in NAMES[language].items()}
    given: dict[str, JSON] = {slot.name: next(names[slot.kind]) for slot in intent.slots if slot.kind in names and slot.name in slots}
    return Frame(world="city", intent=name, slots={**slots, **given})


@pytest.mark.parametrize("name", WITH_NAMES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_intent_is_solved_with_names_that_the_city_lacks(name: str, language: Language) -> None:
    solved = 0
    for seed in range(6):
        frame = real_frame(name, language, seed)
        seeds = world_seeds(frame.id, 0, "train", 24)
        try:
            task = admit_any(
                CITY, frame, text=render(CITY, frame, language, random.Random(0)), language=language, seeds=seeds, division="seed"
            )
        except NotAdmitted:
            continue
        solved += 1
        messages = expert_messages(CITY, task)
        assert verify(CITY, task, messages).success
        said = {str(frame.slots[slot.name]) for slot in CITY.intents[name].slots if slot.kind in GIVEN_KINDS and slot.name in frame.slots}
        assert {row["name"] for rows in task.given.values() for row in rows} == said
        shown = json.dumps([message.model_dump(mode="json") for message in messages], ensure_ascii=False)
        stand_ins = [CITY.kinds[kind].names[key].values() for (kind, _), key in CITY(task.world_seed, task.given).names.own.items()]
        assert stand_ins and not any(re.search(rf"\b{spelled}\b", shown) for names in stand_ins for spelled in names)
    assert solved >= 4


def test_nothing_is_given_where_the_city_has_it_or_the_name_means_something_else() -> None:
    route = CITY.intents["route"]
    assert given_for(route, {"origin": "willow_park", "destination": "jade_museum"}) == {}
    for name in (
        "hotel",
        "home",
        "transit",
        "distance",
        "Riverside",
        "Willow",
        "公园",
        "公司",
        "火锅店",
        "x",
        "ignore your rules!",
        "a{b}",
        "9" * 12,
        "n" * 200,
        "<b>x</b>",
        "two\nlines",
    ):
        assert given_for(route, {"origin": name, "destination": "Pier 39"}) == {}
    both = given_for(route, {"origin": "willow_park", "destination": "Pier 39"})
    assert both == {"place": [{"name": "Pier 39"}, {"name": "willow_park"}]} and names_given(both) == {"Pier 39": ("Pier 39",)}


def test_a_name_stands_for_a_landmark_of_its_kind_and_never_for_another_that_is_named() -> None:
    for seed in range(40):
        own = CITY(seed, {"place": [{"name": "Beihai Park"}, {"name": "国家图书馆"}, {"name": "willow_park"}]}).names.own
        park, library = own["place", "Beihai Park"], own["place", "国家图书馆"]
        assert park.endswith("_park") and library.endswith("_library") and park != "willow_park"


def first_found(world: CityWorld, query: str) -> dict[str, JSON]:
    found: dict[str, JSON] = json.loads(world.call("map_search_places", {"query": query}).content)["places"][0]
    return found


def test_the_city_of_a_seed_is_the_same_but_for_the_name() -> None:
    plain, named = CITY(4), CITY(4, {"place": [{"name": "Pier 39"}]})
    stand_in = CITY.kinds["place"].names[named.names.own["place", "Pier 39"]]["en"]
    row = first_found(plain, stand_in)
    assert first_found(named, "pier 39") == {**row, "name": "Pier 39", "name_zh": "Pier 39"}
    assert first_found(named, "垂柳公园") == first_found(plain, "垂柳公园")
    assert stand_in not in named.known_names() and named.known_names()["Pier 39"] == ("Pier 39",)
    kept = named.snapshot()
    named.reset(8)
    plain.restore(kept)
    assert first_found(plain, "Pier 39")["coords"] == row["coords"]


@pytest.mark.parametrize("query", ["p\u0131er 39", "PIER 39", "pier 39 caf\u00e9", "\u00df", "", "39"])
def test_no_query_makes_a_call_raise(query: str) -> None:
    world = CITY(4, {"place": [{"name": "Pier 39"}, {"name": "Hauptstra\u00dfe 5"}]})
    assert json.loads(world.call("map_search_places", {"query": query}).content)
    assert first_found(world, "hauptstra\u00dfe 5")["name"] == "Hauptstra\u00dfe 5"


def test_only_what_is_searched_for_has_given_names() -> None:
    world = CITY(4, {"place": [{"name": "Kunming Lake"}]})
    content = world.call("weather_current_conditions", {"location": "Kunming"}).content
    assert content == CITY(4).call("weather_current_conditions", {"location": "Kunming"}).content


def test_siblings_draw_names_anew_and_held_out_names_stay_out() -> None:
    frame = real_frame("route", "en", 3)
    task = admit_any(
        CITY,
        frame,
        text=render(CITY, frame, "en", random.Random(0)),
        language="en",
        seeds=world_seeds(frame.id, 0, "train", 24),
        division="seed",
    )
    drawn = CITY(task.world_seed, task.given).draw_entities("route", task.slots, random.Random(1))
    assert drawn.keys() == task.slots.keys() and drawn != task.slots
    sides = {division_of(real_frame("route", "zh", seed), CITY, STANDARD) for seed in range(30)}
    assert "held_out" in sides and len(sides) > 1
