"""What is known beside a request fills slots that are called like its column, where the request itself says nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from filters.funnel import FunnelConfig, curate
from filters.grounding.ground_model import GroundConfig
from filters.ingest import IngestConfig
from filters.reading.log.log_reader import read_chunk
from filters.steps.selection.coverage import CoverageConfig
from storage.records import Task
from storage.store import Store
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file
from synth.writing.draft_spec import draft_spec

TOWNS = [
    f"{first} {second}"
    for first in ("Maple", "Cedar", "Oak", "Elm", "Pine")
    for second in ("Falls", "Hill", "Bay", "Creek", "Grove", "Park")
]
CUISINES = ("thai", "indian")


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("guide")
    rows = "".join(f"Place {n},{TOWNS[n % 30]},{CUISINES[n % 2]},{n + 5}\n" for n in range(90))
    (folder / "restaurant.csv").write_text(f"name,town,cuisine,price\n{rows}")
    spec = folder / "eating_guide.yaml"
    spec.write_text(draft_spec([folder / "restaurant.csv"], spec))
    world = compile_file(spec)
    WORLDS.register(world)
    yield world.name
    WORLDS.forget(world.name)


def slots(text: str, world: str, *labels: str) -> dict[str, object]:
    [reading] = read_chunk([text], (world,), labels=labels)
    return dict(reading.frame.slots) if reading.frame is not None else {}


def test_a_column_fills_the_slot_that_is_called_like_it(guide: str) -> None:
    assert slots("find me a thai restaurant (town: Oak Bay)", guide, "town") == {"cuisine": "thai", "town": "Oak Bay"}
    assert slots("find me a thai restaurant", guide, "town") == {"cuisine": "thai"}


def test_the_request_counts_first(guide: str) -> None:
    assert slots("find me a thai restaurant in Cedar Hill (town: Oak Bay)", guide, "town") == {
        "cuisine": "thai",
        "town": "Cedar Hill",
    }


@pytest.mark.parametrize("context", ["weather: rain", "cuisine: nonsense", "colour: thai"])
def test_what_no_slot_takes_is_only_told(guide: str, context: str) -> None:
    [reading] = read_chunk([f"find me a restaurant in Oak Bay ({context})"], (guide,), labels=("weather", "cuisine", "colour"))
    assert reading.frame is not None and reading.frame.slots == {"town": "Oak Bay"} and f"({context})" in reading.text


def test_values_of_each_kind_are_read_in_a_cell() -> None:
    labels = ("reservation", "new arrival")
    assert slots("Change the arrival (reservation: B017; new arrival: May 20)", "hotel", *labels) == {
        "reservation": "b017",
        "new_arrival": 7,
    }
    assert slots("Change the arrival (reservation: the big one; new arrival: soon)", "hotel", *labels) == {}


def test_a_run_tells_the_policy_where_the_user_is(guide: str, tmp_path: Path) -> None:
    """Given equal requests from several towns, then they are several tasks, whose requests say the town, and whose rows have it."""
    parking = ("how do I renew my parking permit", "my parking permit is lost", "where is my parking permit", "is a parking permit dear")
    others = [{"text": f"{text} {number}", "where": {"town": "Oakland"}} for text in parking for number in range(6)]
    rows = [
        {"text": f"find me a {cuisine} restaurant", "where": {"town": town}}
        for town in ("Maple Falls", "Cedar Hill", "Oak Bay", "San Jose", "Springfield")
        for cuisine in CUISINES
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows * 2, *others)), encoding="utf-8")
    store = Store(tmp_path / "store")
    ground = GroundConfig(min_precision=0.3)
    ingest = IngestConfig(context=("where.town",))
    curate(store, [path], FunnelConfig(worlds=(guide,), ground=ground, ingest=ingest, ungrounded=False, coverage=CoverageConfig(keep=10)))
    tasks = [Task.model_validate_json(spec) for spec in store.query("SELECT spec FROM tasks")["spec"]]
    assert len(tasks) >= 8 and {task.slots["town"] for task in tasks} >= {"San Jose", "Springfield"}
    for task in tasks:
        town = str(task.slots["town"])
        assert f"(town: {town})" in str(task.messages[-1].content)
        assert town in TOWNS or any(description["town"] == town for rows in task.given.values() for description in rows)
    topics = store.query("SELECT topic FROM unserved")["topic"].to_list()
    assert any("parking" in topic for topic in topics) and not any("oakland" in topic for topic in topics)
