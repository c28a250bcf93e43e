"""The cascade's tasks come from queries and blueprints, three to two, many of each, and no use sees another's."""

import itertools
import json
import random

import pytest

import train.data.task_pool
from storage.errors import HeadraceError
from storage.record_rows import tasks_frame
from storage.records import Frame, Task, canonical_json
from storage.store import Store, part_id
from synth.tasks.needs import need
from synth.tasks.solver import NotAdmitted, sibling
from synth.tasks.split import DivisionConfig, division
from synth.worlds import WORLDS
from train.data.task_pool import draw, shown_hash, sources

RetailWorld = WORLDS["retail"]


def origin(number: int, rng: random.Random) -> Task | None:
    """A task as the funnel (even numbers) or synthesis (odd ones) leaves it: its slots are its frame's."""
    intent = sorted(RetailWorld.intents)[number % len(RetailWorld.intents)]
    shop = RetailWorld(4 * rng.randrange(1000))
    names = frozenset(slot.name for slot in shop.intents[intent].slots if slot.is_required or rng.random() < 0.3)
    frame = Frame(world="retail", intent=intent, slots=shop.draw_slots(intent, names, rng))
    try:
        task = sibling(WORLDS[frame.world], frame, index=0, language="en", division=division(frame.id, DivisionConfig()), use="train")
    except NotAdmitted:
        return None
    origins = {"query_id": f"q{number}"} if number % 2 == 0 else {"blueprint_id": f"b{number}"}
    return task.model_copy(update={"slots": frame.slots, "frame_id": frame.id} | origins)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    rng = random.Random(0)
    tasks = {task.id: task for number in range(160) if (task := origin(number, rng))}
    store = Store(tmp_path_factory.mktemp("supply") / "store")
    store.commit([store.write("tasks", part_id("tasks", ["origins"], {}, 1), tasks_frame(list(tasks.values())))])
    return store


def found(store: Store, *divisions: str):
    return [source for source in sources(store, worlds=["retail"], max_difficulty=3) if source.division in divisions]


def content(task: Task) -> str:
    return canonical_json([task.world, task.world_seed, task.intent, task.slots])


def test_half_of_the_tasks_come_from_queries_and_none_gives_too_many(store):
    tasks = draw(found(store, "seed"), 200, use="train", language="en")
    by_query = [task.query_id for task in tasks if task.query_id]
    assert len(by_query) == 100
    assert all((task.query_id is None) != (task.blueprint_id is None) for task in tasks)
    assert max(by_query.count(query) for query in set(by_query)) <= 0.05 * len(tasks)


def test_no_use_and_no_division_sees_another_s_tasks(store):
    sets = {
        "seed": draw(found(store, "seed"), 150, use="train", language="en"),
        "probe": draw(found(store, "probe"), 150, use="train", language="en"),
        "eval_in": draw(found(store, "seed", "probe"), 150, use="eval_in", language="en"),
        "eval_out": draw(found(store, "held_out"), 80, use="eval_out", language="en"),
    }
    hashes = {name: {content(task) for task in tasks} for name, tasks in sets.items()}
    for first, second in itertools.combinations(hashes, 2):
        assert hashes[first].isdisjoint(hashes[second]), (first, second)
    shown = {name: {shown_hash(task) for task in tasks} for name, tasks in sets.items()}
    assert (shown["seed"] | shown["probe"]).isdisjoint(shown["eval_in"] | shown["eval_out"])
    frames = {name: {task.frame_id for task in tasks} for name, tasks in sets.items()}
    assert frames["seed"].isdisjoint(frames["probe"])
    assert frames["eval_out"].isdisjoint(frames["seed"] | frames["probe"])
    assert frames["eval_in"] <= frames["seed"] | frames["probe"] | {source.frame.id for source in found(store, "seed", "probe")}


def test_what_is_drawn_does_not_depend_on_siblings_that_were_stored_since(store, tmp_path):
    before = sources(store, worlds=["retail"], max_difficulty=3)
    siblings = draw(found(store, "seed"), 60, use="train", language="en")
    store.commit([store.write("tasks", part_id("tasks", ["siblings"], {}, 1), tasks_frame(siblings))])
    assert sources(store, worlds=["retail"], max_difficulty=3) == before


def test_a_held_out_frame_asks_for_something_new_individuals_aside(store):
    """Given stored frames of which some differ in an individual alone, then such a one is no held-out source if another is trained on."""
    stored = [
        (division, Frame(world="retail", intent=intent, slots=json.loads(slots)))
        for division, intent, slots in store.query("SELECT division, intent, json_extract(spec, '$.slots')::VARCHAR FROM tasks").iter_rows()
    ]
    trained = {need(frame) for division, frame in stored if division != "held_out"}
    held_out = {frame.id for division, frame in stored if division == "held_out" and need(frame) not in trained}
    assert 0 < len(held_out) < len({frame.id for division, frame in stored if division == "held_out"})
    assert {source.frame.id for source in sources(store, worlds=["retail"], max_difficulty=5) if source.division == "held_out"} == held_out
    easy = sources(store, worlds=["retail"], max_difficulty=1)
    assert {need(source.frame) for source in easy if source.division == "held_out"}.isdisjoint(trained), "by whatever is stored"


def test_a_need_is_what_siblings_share(store):
    for source in found(store, "seed")[:20]:
        tasks = draw([source], 2, use="train", language="en")
        assert {need(Frame(world=task.world, intent=task.intent, slots=task.slots)) for task in tasks} == {need(source.frame)}


def test_asking_for_more_than_there_is_says_so(store):
    with pytest.raises(HeadraceError, match="no frame to draw train tasks from"):
        draw([], 10, use="train", language="en")
    assert draw([], 10, use="eval_out", language="en", fewest=0) == []


def test_as_many_as_there_are_will_do_where_that_is_said(store, monkeypatch):
    few = found(store, "held_out")[:1]
    monkeypatch.setattr(train.data.task_pool, "_MISSES", 0)
    with pytest.raises(HeadraceError, match="only 0 of 9"):
        draw(few, 9, use="eval_out", language="en", fewest=1)
    assert draw(few, 9, use="eval_out", language="en", fewest=0) == []


def test_difficulty_and_world_bound_the_sources(store):
    assert sources(store, worlds=["city"], max_difficulty=5) == []
    assert {source.difficulty for source in sources(store, worlds=["retail"], max_difficulty=1)} <= {-1, 0, 1}
