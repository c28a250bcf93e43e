"""Requests to worlds without a lexicon, one of them the user's own: they become tasks; questions of other businesses do not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from filters.funnel import FunnelConfig, FunnelResult, NotCommitted, curate
from filters.grounding.ground_model import GroundConfig
from filters.steps.reading import read_requests
from filters.steps.reading.read_requests import READ
from filters.steps.selection.coverage import CoverageConfig
from storage.store import Store
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file

WORKSHOP = Path("tests/synth/car_workshop.yaml")
HOTEL = (
    "please cancel reservation b{n}",
    "could you check in reservation b{n} for me",
    "I need to extend reservation b{n} by 2 nights",
    "what is the arrival of reservation b{n}",
)
FOREIGN = (
    "why was my card payment declined at shop {n}",
    "how do I track parcel number {n}",
    "is there a pharmacy open near platform {n}",
    "my transfer of {n} dollars has not arrived yet",
    "cancel my gym membership number {n} please",
    "what does it cost to insure a boat for {n} days",
)


@pytest.fixture(scope="module")
def own_world() -> Iterator[str]:
    world = compile_file(WORKSHOP)
    WORLDS.register(world)
    yield world.name
    WORLDS.forget(world.name)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, own_world: str) -> tuple[Path, list[str]]:
    """A log, and the world of each request: `hotel`, the user's own, or nothing."""
    from synth.tasks.wording import load_templates

    rng, rows = random.Random(4), list[tuple[str, str]]()
    for _ in range(160):
        rows.append((rng.choice(HOTEL).format(n=rng.randint(10, 80)).replace(" b", " b0"), "hotel"))
        rows.append((rng.choice(FOREIGN).format(n=rng.randint(10, 80)), ""))
    world = WORLDS[own_world]
    state = world(3)
    acts = [name for name, intent in world.intents.items() if intent.refusal is None and all(slot.is_required for slot in intent.slots)]
    for name in acts[:6]:
        for template in load_templates(world).of_intent(name, "en")[:3]:
            slots = state.draw_slots(name, frozenset(slot.name for slot in world.intents[name].slots), rng)
            if all(isinstance(value, str) for value in slots.values()):
                rows.append((template.format_map(slots).replace("{*}", ""), own_world))
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in rows), encoding="utf-8")
    return path, [world for _, world in rows]


def settings(own_world: str, **ground: float) -> FunnelConfig:
    return FunnelConfig(worlds=("hotel", own_world), ungrounded=False, coverage=CoverageConfig(keep=40), ground=GroundConfig(**ground))


@pytest.fixture(scope="module")
def curated(log: tuple[Path, list[str]], own_world: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, FunnelResult]:
    store = Store(tmp_path_factory.mktemp("curated") / "store")
    return store, curate(store, [log[0]], settings(own_world))


def test_requests_become_tasks_in_their_world_and_foreign_ones_do_not(
    curated: tuple[Store, FunnelResult], log: tuple[Path, list[str]]
) -> None:
    store, result = curated
    frames = store.query("SELECT q.row, f.world, f.reason FROM frames f JOIN queries q USING (query_id, run) WHERE f.frame_id IS NOT NULL")
    assert frames.height >= 20
    assert {log[1][row] for row in frames["row"]} >= {"hotel"}
    wrong = [row for row, world in frames.select("row", "world").iter_rows() if log[1][row] != world]
    assert len(wrong) <= frames.height // 20, "more than one in twenty is misread"
    read_by = store.query("SELECT reason FROM frames WHERE status = 'admitted'")["reason"]
    assert len(read_by) >= 20 and read_by.str.contains(r"read by the reader, confidence [01]\.").all()
    assert len(result.task_ids) >= 20
    worlds = store.query("SELECT DISTINCT world FROM tasks")["world"].to_list()
    assert "hotel" in worlds and "city" not in worlds and "retail" not in worlds


def test_the_run_says_what_it_expects_and_shows_requests(curated: tuple[Store, FunnelResult]) -> None:
    (note,) = [note for note in curated[1].not_done if note.startswith("the reader gave ")]
    assert "% to be right" in note and "“" in note


def test_the_store_keeps_the_spec_of_the_users_own_world(curated: tuple[Store, FunnelResult], own_world: str) -> None:
    assert own_world in curated[0].query("SELECT world FROM worlds")["world"].to_list()


def test_leaves_of_own_worlds_are_those_that_they_declare(curated: tuple[Store, FunnelResult]) -> None:
    leaves = curated[0].query("SELECT DISTINCT leaf FROM frames WHERE world = 'hotel'")["leaf"].to_list()
    assert leaves and all(leaf.startswith("hotel.") for leaf in leaves)


def test_a_higher_precision_keeps_fewer(
    log: tuple[Path, list[str]], own_world: str, curated: tuple[Store, FunnelResult], tmp_path: Path
) -> None:
    strict = Store(tmp_path / "store")
    curate(strict, [log[0]], settings(own_world, min_precision=0.97))
    count = "SELECT count(*) FROM frames WHERE frame_id IS NOT NULL"
    assert strict.query(count).item() < curated[0].query(count).item()


def test_threads_change_nothing(log: tuple[Path, list[str]], own_world: str, curated: tuple[Store, FunnelResult], tmp_path: Path) -> None:
    again = Store(tmp_path / "store")
    with ThreadPoolExecutor(3) as threads:
        curate(again, [log[0]], settings(own_world), executor=threads)
    assert again.content_hash() == curated[0].content_hash()


def test_a_task_has_identifiers_of_its_world_and_the_store_what_was_asked(own_world: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    texts = [f"please cancel reservation #{number}" for number in range(800, 840)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    store = Store(tmp_path / "store")
    config = settings(own_world, min_precision=0.6)
    curate(store, [path], config.model_copy(update={"ground": config.ground.model_copy(update={"id_patterns": ("#[0-9]+",)})}))
    assert set(store.query("SELECT text FROM queries")["text"]) == set(texts)
    messages = store.query("SELECT spec FROM tasks")["spec"]
    assert len(messages) and not messages.str.contains("reservation #").any()


def test_a_wrong_pattern_is_refused() -> None:
    for pattern, says in (("[", "no regular expression"), (".*", "matches an empty text")):
        with pytest.raises(ValueError, match=says):
            GroundConfig(id_patterns=(pattern,))


def test_the_run_says_what_users_ask_for_that_no_tool_does(curated: tuple[Store, FunnelResult]) -> None:
    """Given six kinds of requests to other businesses, then the largest groups of what is left are these, with an example each."""
    (said,) = [note for note in curated[1].not_done if note.startswith("what your users ask for that no tool here does: ")]
    kinds = ("card payment", "parcel", "pharmacy", "transfer", "gym membership", "insure")
    assert sum(kind in said for kind in kinds) >= 4
    assert said.count("“") >= 4 and "reservation b0" not in said


def test_a_run_that_commits_nothing_is_gone_on_with(
    log: tuple[Path, list[str]], own_world: str, curated: tuple[Store, FunnelResult], tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(NotCommitted) as shown:
        curate(store, [log[0]], settings(own_world), commits=False)
    assert any(note.startswith("the reader gave ") for note in shown.value.notes)
    assert store.query("SELECT * FROM queries").is_empty() and store.query("SELECT * FROM tasks").is_empty()
    curate(store, [log[0]], settings(own_world))
    assert store.content_hash() == curated[0].content_hash()


def test_reading_ends_where_a_whole_window_gives_nothing(
    monkeypatch: pytest.MonkeyPatch, log: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """Given a log of other businesses alone, then no more than one window of it is read."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"text": text.format(n=n)}) + "\n" for n in range(10, 60) for text in FOREIGN), encoding="utf-8")
    monkeypatch.setattr(read_requests, "WINDOW", 40)
    seen = list[int]()
    curate(
        Store(tmp_path / "store"),
        [path],
        FunnelConfig(worlds=("hotel",)),
        progress=lambda step, done, _: seen.append(done) if step == READ else None,
    )
    assert seen == [1], "a chunk holds more texts than a window"
