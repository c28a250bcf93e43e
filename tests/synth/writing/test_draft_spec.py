"""A spec drafted from tables compiles, has the kinds that the cells have, marks its guesses, and its requests become tasks."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.errors import BadInput
from storage.records import Frame
from synth.tasks.assessment import assess
from synth.tasks.solver import admit_any, expert_messages, world_seeds
from synth.tasks.verify import verify
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.writing.draft_spec import draft_spec

REAL = Path(os.environ.get("HEADRACE_TEST_DATA", "")) / "real_queries"


def tables(folder: Path) -> list[Path]:
    """A table of rooms and one of bookings, which refer to them."""
    rooms = {
        "room_id": [f"R{n}" for n in range(80)],
        "title": [f"Room {n}" for n in range(80)],
        "kind": [("single", "double", "suite")[n % 3] for n in range(80)],
        "price_per_night": [50.0 + n for n in range(80)],
        "size": [f"{20 + n % 9}.5 sqm" for n in range(80)],
        "breakfast": [n % 2 == 0 for n in range(80)],
        "facilities": [("wifi;parking", "wifi;pool", "pool;parking;wifi")[n % 3] for n in range(80)],
        "photo": [f"https://example.com/{n}.jpg" for n in range(80)],
    }
    bookings = {
        "guest": [f"Guest {n}" for n in range(120)],
        "room": [f"R{n % 80}" for n in range(120)],
        "arrival": [f"2026-03-{1 + n % 28:02d}" for n in range(120)],
        "time": [f"{8 + n % 10}:15" for n in range(120)],
    }
    for name, columns in (("room", rooms), ("booking", bookings)):
        pl.DataFrame(columns).write_csv(folder / f"{name}.csv")
    return [folder / "room.csv", folder / "booking.csv"]


def drafted(files: list[Path], out: Path) -> type[SpecWorld]:
    out.write_text(draft_spec(files, out))
    return compile_file(out)


def test_fields_have_the_kinds_of_their_cells(tmp_path: Path) -> None:
    world = drafted(tables(tmp_path), tmp_path / "inn.yaml")
    rooms, bookings = (world.domain.entities[name] for name in ("room", "booking"))
    kinds = {name: each.spec.type for name, each in rooms.fields.items()}
    assert kinds == {
        **{"title": "name", "kind": "choice", "price_per_night": "money", "size": "number", "breakfast": "flag"},
        **{"wifi": "flag", "parking": "flag", "pool": "flag"},
    }
    assert {name: each.spec.type for name, each in bookings.fields.items()} == {
        **{"guest": "name", "room": "ref", "arrival": "date", "time": "time"},
    }
    assert len(rooms.table) == 80 and len(bookings.table) == 120


def test_words_that_the_language_does_not_allow_do_not_keep_a_draft_from_compiling(tmp_path: Path) -> None:
    """Given Chinese cells below English headings, English values, brackets and slashes, then the draft compiles."""
    rows = {
        "name": [f"小馆{n}" for n in range(60)],
        "price": [30 + n for n in range(60)],
        "spice_level": [("very hot", "mild")[n % 2] for n in range(60)],
        "设施": [("wifi;停车场[地下]", "停车场[地下];包间 / 雅座")[n % 2] for n in range(60)],
        "口味": [("甜 / 咸", "辣")[n % 2] for n in range(60)],
        "founded": [f"18{10 + n}-05-01" for n in range(60)],
    }
    pl.DataFrame(rows).write_csv(tmp_path / "eatery.csv")
    world = drafted([tmp_path / "eatery.csv"], tmp_path / "x.yaml")
    (entity,) = world.domain.entities.values()
    assert world.languages == ("zh",) and entity.fields["price"].label.zh == "价格"
    assert entity.fields["spice_level"].spec.type == "name"


def test_long_names_and_columns_that_are_mostly_empty_do_not_keep_a_draft_from_compiling(tmp_path: Path) -> None:
    columns = {
        "name": [f"Permit {n}" for n in range(40)],
        "price_for_residents_of_the_inner_district": [20 + n for n in range(40)],
        "fax": [f"0{n}-{n}{n}" if n < 5 else None for n in range(40)],
        "zone": [("north", "south", None, "east")[n % 4] for n in range(40)],
    }
    file = tmp_path / "parking_permits_of_the_municipality.csv"
    pl.DataFrame(columns).write_csv(file)
    world = drafted([file], tmp_path / "permits.yaml")
    [entity] = world.domain.entities.values()
    assert "fax" not in entity.fields and len(entity.ids) == 30
    assert len(world.jobs()) >= 1


def test_columns_that_are_empty_in_different_rows_do_not_leave_a_world_without_rows(tmp_path: Path) -> None:
    columns = {
        "name": [f"Permit {n}" for n in range(40)],
        "zone": [("north", "south")[n // 2 % 2] if n % 2 else None for n in range(40)],
        "price": [20 + n if n % 2 == 0 else None for n in range(40)],
    }
    pl.DataFrame(columns).write_csv(tmp_path / "permit.csv")
    [entity] = drafted([tmp_path / "permit.csv"], tmp_path / "permits.yaml").domain.entities.values()
    assert len(entity.ids) >= 20 and len(entity.fields) == 2


def test_guesses_are_marked_and_requests_are_solvable(tmp_path: Path) -> None:
    text = draft_spec(tables(tmp_path), tmp_path / "inn.yaml")
    assert text.count("# ?") >= 6 and "noun: room  # ?" in text
    world = drafted(tables(tmp_path), tmp_path / "inn.yaml")
    assert {"suggest_room", "suggest_booking", "ask_named_room"} <= set(world.intents)
    WORLDS.register(world)
    made = assess(world, 60, seed=0)
    assert made.solvable >= 0.9 * made.tried
    WORLDS.forget(world.name)


def test_tables_of_which_nothing_can_be_made_are_refused(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}).write_csv(tmp_path / "numbers.csv")
    with pytest.raises(BadInput, match="no column has names"):
        draft_spec([tmp_path / "numbers.csv"], tmp_path / "x.yaml")
    with pytest.raises(BadInput, match="no such file"):
        draft_spec([tmp_path / "none.csv"], tmp_path / "x.yaml")


@pytest.mark.skipif(not REAL.is_dir(), reason="HEADRACE_TEST_DATA does not name a folder with real_queries")
def test_tables_that_nobody_here_made_become_a_world_of_real_requests(tmp_path: Path) -> None:
    """CrossWOZ: restaurants, hotels and sights of Beijing, and what people asked for."""
    for name in ("restaurant", "hotel", "attraction"):
        with gzip.open(REAL / f"crosswoz_db_{name}.json.gz", "rt", encoding="utf-8") as file:
            rows: Any = json.load(file)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for _, row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    world = drafted([tmp_path / f"{name}.jsonl" for name in ("restaurant", "hotel", "attraction")], tmp_path / "beijing.yaml")
    assert world.languages == ("zh",)
    WORLDS.register(world)
    asked = [
        ("suggest_hotel", {"kind": "value_2", "min_rating": 4.5, "ask_address": "yes"}, "推荐一个评分4.5分以上的舒适型酒店，地址是什么"),
        ("suggest_restaurant", {"dish": "驴杂汤", "max_price_per_person": 150}, "人均消费150元以内，能吃到驴杂汤的餐馆"),
        ("suggest_attraction", {"name": "故宫", "ask_ticket": "yes"}, "故宫的门票多少钱"),
        ("suggest_restaurant", {"dish": "月亮上的蛋糕", "min_rating": 4.0}, "评分4分以上，有月亮上的蛋糕的餐馆"),
    ]
    for intent, slots, text in asked:
        frame = Frame(world=world.name, intent=intent, slots=slots)
        task = admit_any(world, frame, text=text, language="zh", seeds=world_seeds(frame.id, 0, "train", 8), division="seed")
        assert verify(world, task, expert_messages(world, task)).success
        if "ask_ticket" in slots:
            assert "60元" in task.plan.answer
    WORLDS.forget(world.name)
