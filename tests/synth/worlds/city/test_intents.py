"""What can be asked of the city: declarations, and expert plans that really solve what is drawn."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations

import pytest

from storage.records import JSON, Call, Frame, Language, RefusalReason, Task, leaves
from synth.tasks.difficulty import difficulty
from synth.tasks.solver import NotAdmitted, admit, execute
from synth.tasks.verify import judge
from synth.tasks.wording import render
from synth.text.refusals import refusal_reasons
from synth.worlds import WORLDS
from synth.worlds.base import Intent, Solution, Unsolvable
from synth.worlds.city.intents import INTENTS
from synth.worlds.city.map.transit import STATUSES
from synth.worlds.city.map.weather import CONDITIONS
from synth.worlds.city.query_taxonomy import CLASSES, GROUPS, LEAVES
from synth.worlds.city.tools.routing import TRAFFIC
from synth.worlds.city.tools.tool_signatures import TOOLS
from synth.worlds.city.tools.web_corpus import WEEKDAYS
from synth.worlds.city.vocabulary import KINDS
from synth.worlds.city.world import CityWorld

SEEDS, DRAWS = (21, 22, 23), 8
_SOLVABLE_SHARE = 0.8


def slot_sets(intent: Intent, rng: random.Random, count: int) -> list[frozenset[str]]:
    """The required slots, with none, some and all of the optional ones."""
    must = [slot.name for slot in intent.slots if slot.is_required]
    may = [slot.name for slot in intent.slots if not slot.is_required]
    shares = [0.0, 1.0, *(rng.choice((0.2, 0.5)) for _ in range(count - 2))]
    return [frozenset([*must, *(name for name in may if rng.random() < share)]) for share in shares]


@cache
def solved(name: str) -> list[tuple[CityWorld, dict[str, object], Solution | None, str]]:
    out: list[tuple[CityWorld, dict[str, object], Solution | None, str]] = []
    for seed in SEEDS:
        world, rng = CityWorld(seed), random.Random(f"{seed} {name}")
        for names in slot_sets(INTENTS[name], rng, DRAWS):
            slots = world.draw_slots(name, names, rng)
            assert set(slots) == names
            language = rng.choice(("en", "zh"))
            try:
                out.append((world, slots, INTENTS[name].solve(world, slots, language), language))
            except Unsolvable:
                out.append((world, slots, None, language))
    return out


def test_the_taxonomy_has_the_papers_counts_and_every_leaf_an_intent() -> None:
    assert (len(CLASSES), len(GROUPS), len(LEAVES)) == (5, 16, 30)
    assert {intent.leaf for intent in INTENTS.values()} == set(LEAVES)


def test_declarations_are_sound() -> None:
    tools = {tool.name for tool in TOOLS}
    for name, intent in INTENTS.items():
        assert intent.name == name
        assert all(slot.kind in KINDS for slot in intent.slots)
        assert len({slot.name for slot in intent.slots}) == len(intent.slots)
        shape = intent.shape(frozenset(slot.name for slot in intent.slots))
        assert set(shape.tools) <= tools
        assert all(parent < index for index, (_, parents) in enumerate(shape.calls) for parent in parents)
        assert (not shape.calls) == (intent.refusal is not None or intent.needs_no_tool)


def test_there_are_hundreds_of_common_combinations_and_thousands_in_all() -> None:
    sizes = [2 ** sum(not slot.is_required for slot in intent.slots) for intent in INTENTS.values()]
    assert sum(sizes) >= 2000
    common = sum(
        1
        for intent in INTENTS.values()
        for count in (0, 1, 2)
        for _ in combinations([slot for slot in intent.slots if not slot.is_required], count)
    )
    assert common >= 300


def test_all_difficulties_occur() -> None:
    rng = random.Random(1)
    found: Counter[int] = Counter()
    for name, intent in INTENTS.items():
        for names in slot_sets(intent, rng, 12):
            found[difficulty(WORLDS["city"], Frame(world="city", intent=name, slots=CityWorld(1).draw_slots(name, names, rng)), "x").r] += 1
    assert set(found) == {-1, 0, 1, 2, 3, 4, 5}
    assert min(found[rating] for rating in (1, 2, 3, 4, 5)) >= 10


def test_no_reason_holds_more_than_half_of_the_refusals() -> None:
    reasons = Counter(intent.refusal for intent in INTENTS.values() if intent.refusal is not None)
    assert set(reasons) == set(RefusalReason)
    assert max(reasons.values()) * 2 <= reasons.total()


@pytest.mark.parametrize("name", list(INTENTS))
def test_most_of_what_is_drawn_is_solved_by_a_plan_of_the_declared_shape(name: str) -> None:
    intent, runs = INTENTS[name], solved(name)
    solutions = [(world, slots, solution) for world, slots, solution, _ in runs if solution is not None]
    assert len(solutions) >= _SOLVABLE_SHARE * len(runs)
    for world, slots, solution in solutions:
        shape = intent.shape(frozenset(slots))
        assert tuple(call.tool for call in solution.plan.calls) == shape.tools
        results = [world.call(call.tool, call.arguments).content for call in solution.plan.calls]
        for call, (_, parents) in zip(solution.plan.calls, shape.calls, strict=True):
            for _, value in leaves(call.arguments):
                if isinstance(value, str) and value.count(",") == 1 and value.replace(",", "").replace(".", "").isdigit():
                    assert any(value in results[parent] for parent in parents), "a coordinate comes from a call that the shape names"


@pytest.mark.parametrize("name", [name for name, intent in INTENTS.items() if intent.shape(frozenset(s.name for s in intent.slots)).calls])
def test_facts_of_the_answer_are_in_the_observations(name: str) -> None:
    for world, _, solution, _ in solved(name):
        if solution is None:
            continue
        results = [world.call(call.tool, call.arguments).content for call in solution.plan.calls]
        assert not any(json.loads(result).get("error") for result in results)
        text = " ".join(results)
        for fact in (*solution.success.facts, *solution.success.evidence):
            if fact.value in ("yes", "no", "来得及", "来不及", "足够", "不够"):
                continue
            spellings = (fact.value, *fact.alternatives)
            in_modes = fact.kind == "word" and any(
                spelling in ("driving", "walking", "cycling", "public transit", "motorcycle", "truck") for spelling in spellings
            )
            assert in_modes or any(spelling in text for spelling in spellings), fact


@pytest.mark.parametrize("name", list(INTENTS))
def test_solved_draws_are_admitted(name: str) -> None:
    """Given solvable slots, when admitted, then the expert passes, doing nothing fails and no call can be dropped (nearly always)."""
    refused: Counter[str] = Counter()
    runs = [(world, slots, language) for world, slots, solution, language in solved(name) if solution is not None]
    for world, slots, language in runs:
        try:
            admit(
                WORLDS["city"],
                Frame(world="city", intent=name, slots=slots),
                text=render(WORLDS["city"], Frame(world="city", intent=name, slots=slots), language, random.Random(0)),
                language=language,
                seed=world.city.seed,
                division="seed",
            )
        except NotAdmitted as problem:
            refused[problem.reason] += 1
    if INTENTS[name].needs_no_tool:  # what the request itself says can be passed by repeating it
        del refused["reward_hack"]
    assert not set(refused) - {"not_minimal"}
    assert refused.total() <= 0.1 * len(runs)


def test_refusals_name_their_reason_and_no_other_in_both_languages() -> None:
    for name, intent in INTENTS.items():
        if intent.refusal is None:
            continue
        world = CityWorld(1)
        slots = world.draw_slots(name, frozenset(slot.name for slot in intent.slots), random.Random(2))
        for language in ("en", "zh"):
            assert refusal_reasons(intent.solve(world, slots, language).plan.answer) == {intent.refusal}


def test_entities_are_drawn_anew_and_the_rest_is_kept() -> None:
    first, second = CityWorld(31), CityWorld(32)
    good = 0
    for name in ("poi_search_near", "half_day_trip", "meet_in_the_middle", "train_or_flight", "long_trip", "along_route"):
        rng = random.Random(name)
        intent = INTENTS[name]
        entities = {slot.name for slot in intent.slots if slot.is_entity}
        for names in slot_sets(intent, rng, 6):
            slots = first.draw_slots(name, names, rng)
            drawn = second.draw_entities(name, slots, rng)
            assert {key: value for key, value in drawn.items() if key not in entities} == {
                k: v for k, v in slots.items() if k not in entities
            }
            try:
                intent.solve(second, drawn, "en")
                good += 1
            except Unsolvable:
                pass
    assert good >= 30


def test_traffic_is_not_told_by_who_did_not_look_at_it() -> None:
    for seed in range(30):
        world = CityWorld(seed)
        slots = world.draw_slots("traffic_status", frozenset({"origin", "destination"}), random.Random(seed))
        said = " ".join(map(str, slots.values()))
        task = admit(
            WORLDS["city"], Frame(world="city", intent="traffic_status", slots=slots), text=said, language="en", seed=seed, division="seed"
        )
        blind = [
            call.model_copy(update={"arguments": {name: value for name, value in call.arguments.items() if name != "traffic_aware"}})
            for call in task.plan.calls
        ]
        done = execute(world, task.messages, blind, task.plan.answer)
        assert not judge(WORLDS[task.world], task, done.messages, done.changes).success


# ---- answers that say too much, and other ways to say it right ----------------------------------------------------------------


def drawn_task(name: str, language: Language, *optional: str, fits: Callable[[Task], bool] = lambda _: True, **slots: JSON) -> Task:
    """The first admitted task of an intent with these optional slots that fits."""
    names = frozenset(slot.name for slot in INTENTS[name].slots if slot.is_required or slot.name in optional)
    rng = random.Random(name)
    for seed in range(200):
        frame = Frame(world="city", intent=name, slots={**CityWorld(seed).draw_slots(name, names, rng), **slots})
        try:
            task = admit(
                WORLDS[frame.world],
                frame,
                text=render(WORLDS[frame.world], frame, language, rng),
                language=language,
                seed=seed,
                division="seed",
            )
        except NotAdmitted:
            continue
        if fits(task):
            return task
    raise AssertionError(f"no task of {name}")


def passes(task: Task, answer: str, calls: Sequence[Call] | None = None) -> bool:
    done = execute(CityWorld(task.world_seed), task.messages, task.plan.calls if calls is None else calls, answer)
    return judge(WORLDS[task.world], task, done.messages, done.changes).success


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("weather_in_city", [name[:2] for name in CONDITIONS]),
        ("weather_now", [name[:2] for name in CONDITIONS]),
        ("traffic_status", [name[1:] for name in TRAFFIC]),
        ("line_status", STATUSES),
        ("opening_rule", WEEKDAYS),
    ],
)
def test_naming_all_words_is_no_answer(name: str, words: Sequence[Sequence[str]], language: Language) -> None:
    task = drawn_task(name, language)
    said = [word[0 if language == "en" else 1] for word in words]
    assert passes(task, task.plan.answer)
    assert not passes(task, f"{task.plan.answer} {', '.join(said)}.")


def test_a_milder_word_is_not_taken_for_the_stronger_one_that_holds_it() -> None:
    congested = drawn_task("traffic_status", "zh", fits=lambda task: "路况拥堵" in task.plan.answer)
    assert not passes(congested, congested.plan.answer.replace("拥堵", "严重拥堵"))
    enough = drawn_task("budget_travel", "zh", fits=lambda task: "足够" in task.plan.answer)
    assert passes(enough, enough.plan.answer)
    assert not passes(enough, enough.plan.answer.replace("足够", "不足够"))


@pytest.mark.parametrize("name", ["flight_price", "train_schedule", "round_trip_cost", "train_or_flight", "budget_travel"])
def test_listing_every_pick_is_no_answer(name: str) -> None:
    """Given results that call departures the earliest, latest, cheapest and fastest, when the answer lists them all, then it chose none."""

    def others(task: Task) -> list[str]:
        told = execute(CityWorld(task.world_seed), task.messages, task.plan.calls, task.plan.answer).messages
        bests = [json.loads(message.content or "")["best_with_seats"] for message in told if message.role == "tool"]
        numbers = {row["number"] for best in bests for row in best.values()}
        return sorted(numbers - {fact.value for fact in task.success.facts})

    task = drawn_task(name, "en", fits=lambda task: bool(others(task)))
    assert passes(task, task.plan.answer)
    assert not passes(task, f"{task.plan.answer} Or take {', '.join(others(task))}.")


def test_the_days_of_a_day_out_may_be_named_beside_the_closing_day() -> None:
    task = drawn_task("day_trip", "en", "venue", date=2, fits=lambda task: "Closed on Monday" in task.plan.answer)
    assert passes(task, f"Friday it is, today being Wednesday. {task.plan.answer}")
    assert not passes(task, f"{task.plan.answer} Or on Tuesday.")


@pytest.mark.parametrize(("language", "written"), [("en", "Mondays"), ("zh", "星期一")])
def test_a_closing_day_may_be_written_otherwise(language: Language, written: str) -> None:
    task = drawn_task("opening_rule", language, fits=lambda task: "Monday" in task.plan.answer or "周一" in task.plan.answer)
    plain = "Monday" if language == "en" else "周一"
    assert passes(task, task.plan.answer.replace(plain, written))
    assert not passes(task, f"{task.plan.answer} {'Tuesdays' if language == 'en' else '星期二'}")


@pytest.mark.parametrize(("language", "month"), [("en", "May {}"), ("en", "{} May"), ("zh", "5月{}日"), ("zh", "5月{}号")])
def test_a_departure_date_may_be_told_without_its_year(language: Language, month: str) -> None:
    task = drawn_task("train_schedule", language, "days")
    (day,) = {fact.value for fact in task.success.facts if fact.kind == "date"}
    written = month.format(int(day[-2:]))
    assert passes(task, task.plan.answer.replace(day, written))
    assert not passes(task, task.plan.answer.replace(day, month.format(int(day[-2:]) + 1)))


@pytest.mark.parametrize("name", ["poi_search_near", "explore_around", "long_trip"])
def test_an_order_that_was_asked_for_must_be_asked_of_the_search(name: str) -> None:
    """Given a search whose list is cut short, when it is made in another order, then looking the place up is no evidence of the order."""

    def otherwise(task: Task) -> list[Call]:
        return [
            call.model_copy(update={"arguments": {**call.arguments, "sort_by": "rating:d" if asked != "rating:d" else "weight"}})
            if (asked := call.arguments.get("sort_by"))
            else call
            for call in task.plan.calls
        ]

    def is_cut_short(task: Task) -> bool:
        results = execute(CityWorld(task.world_seed), task.messages, otherwise(task), task.plan.answer).messages
        found = [json.loads(message.content or "") for message in results if message.role == "tool"]
        return bool(lists := [result for result in found if "listing" in result]) and lists[-1]["listing"] == "partial"

    task = drawn_task(name, "en", "sort", fits=is_cut_short)
    assert passes(task, task.plan.answer)
    done = execute(CityWorld(task.world_seed), task.messages, otherwise(task), task.plan.answer)
    assert not judge(WORLDS[task.world], task, done.messages, done.changes).checks["evidence"]
