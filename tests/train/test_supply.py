"""The cascade's tasks come from queries and blueprints, three to two, many of each, and no use sees another's."""

import itertools
import random

import pytest

from storage.errors import HeadraceError
from storage.records import Frame, Task, canonical_json
from storage.rows import tasks_frame
from storage.store import Store, part_id
from synth.division import DivisionConfig, division
from synth.solver import NotAdmitted, sibling
from synth.worlds.retail.world import RetailWorld
from train.supply import draw, sources, what_it_shows


def origin(number: int, rng: random.Random) -> Task | None:
    """A task as the funnel (even numbers) or synthesis (odd ones) leaves it: its slots are its frame's."""
    intent = sorted(RetailWorld.intents)[number % len(RetailWorld.intents)]
    shop = RetailWorld(4 * rng.randrange(1000))
    names = frozenset(slot.name for slot in shop.intents[intent].slots if slot.is_required or rng.random() < 0.3)
    frame = Frame(world="retail", intent=intent, slots=shop.draw_slots(intent, names, rng))
    try:
        task = sibling(frame, index=0, language="en", division=division(frame.id, DivisionConfig()), use="train")
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


def test_most_tasks_come_from_queries_and_none_gives_too_many(store):
    tasks = draw(found(store, "seed"), 200, use="train", language="en")
    by_query = [task.query_id for task in tasks if task.query_id]
    assert len(by_query) == 120
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
    shown = {name: {what_it_shows(task) for task in tasks} for name, tasks in sets.items()}
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


def test_asking_for_more_than_there_is_says_so(store):
    with pytest.raises(HeadraceError, match="no frame to draw train tasks from"):
        draw([], 10, use="train", language="en")


def test_difficulty_and_world_bound_the_sources(store):
    assert sources(store, worlds=["city"], max_difficulty=5) == []
    assert {source.difficulty for source in sources(store, worlds=["retail"], max_difficulty=1)} <= {-1, 0, 1}
