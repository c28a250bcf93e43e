"""What can be called in a compiled world: reading, acting, refusing; and what a call leaves behind."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from synth.worlds.declarative.compile import compile_file, compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.language.yaml_text import parse_file

STARTER = Path(str(files("synth.worlds.declarative"))) / "starter.yaml"
World = compile_file(STARTER)


def read(world: SpecWorld, called: str, **arguments: Any) -> Any:
    observation = world.call(called, arguments)
    assert not observation.is_error, observation.content
    return json.loads(observation.content)


def first(world: SpecWorld, entity: str, **values: Any) -> str:
    return next(key for key, row in world.state()[entity].items() if all(row[name] == value for name, value in values.items()))


def test_the_same_spec_is_the_same_class_and_its_name_tells_its_content() -> None:
    assert compile_file(STARTER) is compile_file(STARTER)
    assert World.name == f"tool_library@{World.domain.digest[:8]}"
    assert all(tool.world == World.name for tool in World.tools)


def test_a_search_filters_sorts_counts_and_is_short() -> None:
    world = World(3)
    rows = {key: row for key, row in world.state()["tool"].items() if row["kind"] == "saw" and row["fee"] <= 30}
    found = read(world, "search_tools", kind="saw", max_fee=30, sort="fee_desc")
    assert found["tools_found"] == len(rows)
    assert [row["fee"] for row in found["rows"]] == sorted((row["fee"] for row in rows.values()), reverse=True)[:3]


def test_a_field_derived_from_a_count_that_is_not_shown_itself_shows_every_change() -> None:
    """Given a search that shows whether a member has tools out but not how many, when all are returned, then it shows that none is out."""
    raw = parse_file(STARTER)
    raw["entities"]["member"]["fields"]["has_tools"] = {"type": "flag", "derived": "borrowed > 0", "label": "tools out / 有借出"}
    world = compile_spec(raw)(3)
    member = next(row["id"] for row in read(world, "search_members")["rows"] if row["has_tools"])

    for loan, row in world.state()["loan"].items():
        if row["member"] == member and row["status"] == "out":
            read(world, "return_tool", loan=loan)

    assert [row["has_tools"] for row in read(world, "search_members")["rows"] if row["id"] == member] == [False]


def test_an_act_changes_what_it_says_and_a_repeated_one_is_refused_or_shows() -> None:
    world = World(3)
    loan = first(world, "loan", status="out")
    tool = world.state()["loan"][loan]["tool"]
    read(world, "return_tool", loan=loan)
    expected = {f"loan/{loan}/status": "returned", f"acts/return_tool/{loan}": 1}
    assert {key: value for key, value in world.changes().items() if not key.startswith("tool/")} == expected
    assert world.state()["tool"][tool]["status"] == "free"
    assert world.call("return_tool", {"loan": loan}).content == '{"error":"the loan is not out"}'


def test_a_created_row_gets_an_id_by_its_content_and_the_same_again_gets_another() -> None:
    world, other = World(3), World(3)
    tools = [key for key, row in world.state()["tool"].items() if row["status"] == "free"][:2]
    member = first(world, "member", deposit=80)
    for key in tools:
        read(world, "lend_tool", member=member, tool=key, days=3)
    for key in reversed(tools):
        read(other, "lend_tool", member=member, tool=key, days=3)
    assert world.changes() == other.changes()
    made = sorted({path.split("/")[1] for path in world.changes() if path.startswith("loan/")})
    assert len(made) == 2
    assert read(world, "get_loan", loan=made[0])["due"] == "2026-05-16"
    assert (
        read(world, "list_loans_of_member", member=member)["loans_listed"]
        == read(World(3), "list_loans_of_member", member=member)["loans_listed"] + 2
    )
