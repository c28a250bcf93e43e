"""Tables of the user's own become the rows of a world: cells by their fields, sampled by seed, with references; bad tables are refused."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from storage.records import Frame
from storage.store import Store
from synth.tasks.solver import admit_any, expert_messages, world_seeds
from synth.tasks.verify import verify
from synth.worlds import WORLDS
from synth.worlds.base import World
from synth.worlds.declarative.compile import compile_file, compile_spec
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.stored_worlds import register_stored, worlds_frame

PLACES = pl.DataFrame(
    {
        "code": [f"P{n}" for n in range(120)],
        "Name": [f"Place {n}" for n in range(120)],
        "Cuisine": ["Thai" if n % 3 else "Italian" for n in range(120)],
        "price": [f"${10 + n}.00" for n in range(120)],
        "garden": ["yes" if n % 2 else "no" for n in range(120)],
        "opened": ["2026-05-01" if n % 2 else "03.05.2026" for n in range(120)],
    }
)
DISHES = pl.DataFrame({"title": [f"Dish {n}" for n in range(240)], "place": [f"P{n % 120}" for n in range(240)], "cost": list(range(240))})
SPEC = """
domain: food
about: a guide to places to eat
languages: [en]
entities:
  place:
    noun: place
    id: p###
    rows_from: {file: places.csv, key: code, columns: {name: Name, cuisine: Cuisine}}
    fields:
      name: {type: name, open: true}
      cuisine: {type: choice, values: {thai: Thai, italian: Italian}}
      price: {type: money, min: 0, max: 200}
      garden: {type: flag, want: with a garden}
      opened: {type: date, from: -60, to: 0}
      free: {type: integer, min: 0, max: 9}
  dish:
    noun: dish
    id: d###
    rows_from: {file: dishes.csv}
    fields:
      title: {type: name, open: true}
      place: {type: ref, to: place}
      cost: {type: money, min: 0, max: 500}
actions:
  reserve:
    verb: reserve
    on: place
    needs: [place.free >= 1]
    sets: {place.free: place.free - 1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    PLACES.write_csv(tmp_path / "places.csv")
    DISHES.write_csv(tmp_path / "dishes.csv")
    (tmp_path / "food.yaml").write_text(SPEC)
    return tmp_path


def changed(folder: Path, old: str, new: str) -> Path:
    assert SPEC.count(old) == 1
    (folder / "food.yaml").write_text(SPEC.replace(old, new))
    return folder / "food.yaml"


def problems(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        compile_file(path)
    return "; ".join(map(str, caught.value.problems))


def rows_of(world: type[World], seed: int, entity: str) -> Any:
    return world(seed).state()[entity]


def test_rows_of_a_world_are_rows_of_the_table_with_fields_of_its_own_drawn(folder: Path) -> None:
    world = compile_file(folder / "food.yaml")
    table = {row["Name"]: row for row in PLACES.to_dicts()}
    rows = rows_of(world, 0, "place")
    assert len(rows) == 120
    for row in rows.values():
        cells = table[row["name"]]
        assert (row["cuisine"], row["price"], row["garden"]) == (
            cells["Cuisine"].lower(),
            int(cells["price"][1:-3]),
            cells["garden"] == "yes",
        )
        assert row["opened"] in ("2026-05-01", "2026-05-03")
    assert len({row["free"] for row in rows.values()}) > 3


def test_references_are_followed(folder: Path) -> None:
    world = compile_file(folder / "food.yaml")
    for seed in (0, 1):
        places, dishes = rows_of(world, seed, "place"), rows_of(world, seed, "dish")
        of = {row["title"]: row["place"] for row in DISHES.to_dicts()}
        codes = {row["Name"]: row["code"] for row in PLACES.to_dicts()}
        assert all(codes[places[row["place"]]["name"]] == of[row["title"]] for row in dishes.values())
    assert {key: row["name"] for key, row in rows_of(world, 0, "place").items()} != {
        key: row["name"] for key, row in rows_of(world, 1, "place").items()
    }


def test_a_seed_has_a_part_of_a_large_table_that_no_other_refers_to(folder: Path) -> None:
    pl.DataFrame({"title": [f"Dish {n}" for n in range(30_000)], "cost": [n % 400 for n in range(30_000)]}).write_parquet(
        folder / "big.parquet"
    )
    path = changed(folder, "rows_from: {file: dishes.csv}", "rows_from: big.parquet")
    path.write_text(path.read_text().replace("      place: {type: ref, to: place}\n", ""))
    world = compile_file(path)
    first, second = ({row["title"] for row in rows_of(world, seed, "dish").values()} for seed in (0, 1))
    assert len(first) == len(second) == 200 and len(first & second) < 100
    assert compile_file(path).name == world.name


def test_the_world_needs_no_table_any_more(folder: Path, tmp_path: Path) -> None:
    world = compile_file(folder / "food.yaml")
    store = Store(tmp_path / "store")
    WORLDS.register(world)
    frame = worlds_frame([world.name])
    WORLDS.forget(world.name)
    (folder / "places.csv").unlink()
    store.commit([store.write("worlds", "worlds-x", frame)])
    register_stored(store)
    assert rows_of(WORLDS[world.name], 3, "dish") == rows_of(world, 3, "dish")
    WORLDS.forget(world.name)
    assert compile_spec(json.loads(frame["spec"][0])).name == world.name


def test_what_a_request_names_is_taken_from_the_table_with_all_its_cells(folder: Path) -> None:
    (folder / "food.yaml").write_text(
        SPEC.replace("id: p###\n", "id: p###\n    rows: 20\n").replace("      place: {type: ref, to: place}\n", "")
    )
    world = compile_file(folder / "food.yaml")
    WORLDS.register(world)
    frame = Frame(world=world.name, intent="ask_named_place", slots={"place_name": "Place 7", "aspect": "price"})
    for index in range(4):
        seeds = world_seeds(frame.id, index, "train", 4)
        task = admit_any(world, frame, text="what is the price of Place 7", language="en", seeds=seeds, division="seed")
        assert "17" in task.plan.answer
        assert verify(world, task, expert_messages(world, task)).success
    WORLDS.forget(world.name)


def test_rows_that_refer_to_one_another_or_to_themselves_are_kept_where_these_are(folder: Path) -> None:
    """Given dishes that go with another dish, some of which is no row, then only those are kept whose dish is, and its dish in turn."""
    partners = [f"D{(n * 7) % 100}" if n % 10 else "D999" for n in range(100)]
    pl.DataFrame({"code": [f"D{n}" for n in range(100)], "title": [f"Dish {n}" for n in range(100)], "with": partners}).write_csv(
        folder / "dishes.csv"
    )
    path = changed(folder, "rows_from: {file: dishes.csv}", "rows_from: {file: dishes.csv, key: code, columns: {partner: with}}")
    fields = "      title: {type: name, open: true}\n      place: {type: ref, to: place}\n      cost: {type: money, min: 0, max: 500}\n"
    assert fields in path.read_text()
    path.write_text(path.read_text().replace(fields, "      title: {type: name, open: true}\n      partner: {type: ref, to: dish}\n"))
    rows = rows_of(compile_file(path), 0, "dish")
    numbers = {row["title"]: int(row["title"].split()[1]) for row in rows.values()}
    assert len(rows) >= 2
    assert all(numbers[rows[row["partner"]]["title"]] == numbers[row["title"]] * 7 % 100 for row in rows.values())


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet", "sqlite", "duckdb"])
def test_a_table_may_be_of_any_kind(folder: Path, kind: str) -> None:
    expected = rows_of(compile_file(folder / "food.yaml"), 0, "place")
    path = folder / f"places.{kind}"
    if kind == "tsv":
        PLACES.write_csv(path, separator="\t")
    elif kind == "jsonl":
        PLACES.write_ndjson(path)
    elif kind == "parquet":
        PLACES.write_parquet(path)
    elif kind == "sqlite":
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE places (code, Name, Cuisine, price, garden, opened)")
            database.executemany("INSERT INTO places VALUES (?, ?, ?, ?, ?, ?)", PLACES.rows())
    else:
        with duckdb.connect(str(path)) as connection:
            connection.register("frame", PLACES.to_arrow())
            connection.execute("CREATE TABLE places AS SELECT * FROM frame")
    world = compile_file(changed(folder, "file: places.csv", f"file: places.{kind}"))
    assert {row["name"]: row["price"] for row in rows_of(world, 0, "place").values()} == {
        row["name"]: row["price"] for row in expected.values()
    }


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("file: places.csv", "file: nowhere.csv", "entities.place.rows_from: .*no such file"),
        ("file: places.csv", "file: food.yaml", "no table; give a file that ends with .csv"),
        ("name: Name,", "name: Nmae,", "no column 'Nmae'.*Name"),
        ("key: code", "key: Cuisine", "two rows have the same 'Cuisine'"),
        ("{thai: Thai, italian: Italian}", "{thai: Thai, indian: Indian}", "'Italian' in its table: no value"),
        ("price: {type: money, min: 0, max: 200}", "price: {type: money, min: 0, max: 50}", "in its table: .* is not from 0 to 50"),
        ("opened: {type: date, from: -60, to: 0}", "opened: {type: date, from: -5, to: 0}", "in its table: -1[02] is not from -5 to 0"),
        ("rows_from: {file: dishes.csv}", "rows_from: {file: dishes.csv, sheet: 1}", "write a file, or keys and values of file, table"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(folder: Path, old: str, new: str, says: str) -> None:
    assert re.search(says, problems(changed(folder, old, new)))


def test_a_table_of_300_columns_and_one_without_rows_or_text(folder: Path) -> None:
    pl.DataFrame({f"c{n}": [1, 2] for n in range(301)}).write_csv(folder / "places.csv")
    assert "has 301 columns" in problems(folder / "food.yaml")
    PLACES.head(0).write_csv(folder / "places.csv")
    assert "has no rows" in problems(folder / "food.yaml")
    PLACES.with_columns(Name=pl.lit(None, pl.String)).write_csv(folder / "places.csv")
    assert "0 of 120 rows have a value in all of" in problems(folder / "food.yaml")
