"""What holds of every compiled world, whatever is called: calls never raise, forks are independent, a log replays to the same state."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.records import JSON, Tool, canonical_json
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file, compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_file

ROOT = Path(__file__).parents[5]
STARTER = Path(str(files("synth.worlds.declarative"))) / "starter.yaml"
SURROGATE = "\ud800"


def world_named(name: str) -> type[SpecWorld]:
    found = compile_file(STARTER) if name == "starter" else WORLDS[name]
    assert issubclass(found, SpecWorld)
    return found


def any_value(world: type[SpecWorld], schema: dict[str, Any], rng: random.Random) -> JSON:
    """A value that a schema takes, most often."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "boolean":
        return rng.random() < 0.5
    if schema["type"] in ("integer", "number"):
        return rng.randint(int(schema["minimum"]), int(min(schema["maximum"], 5000)))
    if schema.get("format") == "date":
        return world.domain.iso(rng.randrange(30))
    if schema.get("pattern", "").startswith(r"^\d"):
        return f"{rng.randrange(24):02d}:{rng.choice(('00', '30'))}"
    entity = next((each for each in world.domain.by_number if f"^{each.pattern}$" == schema.get("pattern")), None)
    return rng.choice(entity.ids) if entity is not None else rng.choice([*world.person_names, "nobody"])


def any_calls(world: type[SpecWorld], count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)

    def arguments(tool: Tool) -> dict[str, JSON]:
        needed = tool.parameters["required"]
        return {
            name: any_value(world, schema, rng)
            for name, schema in tool.parameters["properties"].items()
            if name in needed or rng.random() < 0.4
        }

    return [(tool.name, json.dumps(arguments(tool))) for tool in rng.choices([each.tool for each in world.callees.values()], k=count)]


def difference(before: JSON, after: JSON) -> dict[str, JSON]:
    """`{entity/id/field: new value}`, worked out from two whole states."""
    return {
        "/".join(filter(None, (entity, key, name))): value
        for entity, rows in after.items()
        for key, row in rows.items()
        for name, value in (row.items() if isinstance(row, dict) else [("", row)])
        if not isinstance(row, dict) or before[entity].get(key, {}).get(name, SURROGATE) != value
    }


def flat(changes: dict[str, JSON]) -> dict[str, JSON]:
    return {path: value for path, value in changes.items() if not path.startswith("acts/")}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), calls_seed=st.integers(0, 10**9), cut=st.integers(0, 40))
def test_changes_are_the_difference_of_states_and_a_fork_does_not_touch_the_trunk(seed: int, calls_seed: int, cut: int) -> None:
    kind = world_named("starter")
    trunk = kind(seed)
    start, calls = trunk.state(), any_calls(kind, 80, calls_seed)
    for call in calls[:cut]:
        trunk.call(*call)
    middle, snapshot = trunk.state(), trunk.snapshot()
    fork = kind(seed + 1)
    fork.restore(snapshot)
    first = [fork.call(*call) for call in calls[cut:]]
    assert trunk.state() == middle
    assert flat(fork.changes()) == flat(difference(start, fork.state()))
    assert [trunk.call(*call) for call in calls[cut:]] == first
    assert trunk.state() == fork.state()
    trunk.restore(snapshot)
    assert trunk.state() == middle
    trunk.reset(seed)
    assert trunk.state() == start
    assert trunk.changes() == {}


_anything = (
    st.text(max_size=8) | st.none() | st.booleans() | st.integers() | st.floats() | st.just(SURROGATE) | st.lists(st.integers(), max_size=2)
)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whatever_is_called_the_answer_is_json_and_an_error_changes_nothing_and_repeats_nothing(data: st.DataObject) -> None:
    kind = world_named(data.draw(st.sampled_from(["starter", "banking"])))
    world = kind(3)
    tool = data.draw(st.sampled_from([each.tool for each in kind.callees.values()]))
    properties = tool.parameters["properties"]
    wrong = data.draw(st.dictionaries(st.sampled_from([*properties, "madeup"]), _anything | st.just("zq7 pending")))
    right = {name: any_value(kind, schema, random.Random(1)) for name, schema in properties.items()}
    given_arguments = data.draw(st.sampled_from([wrong, {**right, **wrong}, [wrong], "x", "[" * 100_000]))
    observation = world.call(tool.name, given_arguments if data.draw(st.booleans()) else json.dumps(given_arguments))
    value = json.loads(observation.content.encode())
    assert observation.is_error == ("error" in value)
    assert "zq7" not in observation.content and "madeup" not in observation.content
    if observation.is_error or not tool.changes_state:
        assert world.changes() == {}


def digest(name: str, sequences: int) -> str:
    """A hash over the end states of some random call sequences, and all that was answered."""
    kind, found = world_named(name), hashlib.sha256()
    for seed in range(sequences):
        world = kind(seed)
        for call in any_calls(kind, 30, seed):
            found.update(world.call(*call).content.encode())
        found.update(canonical_json(world.state()).encode())
    return found.hexdigest()


@pytest.mark.parametrize("name", ["starter", "hotel", "gen-3"])
def test_a_log_replays_to_the_same_state_in_another_process(name: str) -> None:
    command = f"from tests.synth.worlds.declarative.rows.test_state import digest; print(digest({name!r}, 20))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    assert done.stdout.strip() == digest(name, 20)


def test_money_that_moves_is_neither_made_nor_lost() -> None:
    kind = world_named("banking")
    act = kind.domain.acts["transfer_money"]
    moved = act.transfers[0].source[3]
    for seed in range(8):
        world = kind(seed)
        total = sum(row[moved] for row in world.state()["account"].values())
        calls = [call for call in any_calls(kind, 600, seed) if call[0] == "transfer_money"]
        done = [world.call(*call) for call in calls]
        assert sum(row[moved] for row in world.state()["account"].values()) == total
        assert any(not each.is_error for each in done) or not calls


def test_two_moves_from_one_purse_need_enough_for_both() -> None:
    raw = parse_file(STARTER)
    move = {"amount": "25", "from": "member.deposit", "to": "tool.fee"}
    raw["entities"]["tool"]["fields"]["purse"] = {"type": "money", "min": "0", "max": "5", "label": "purse / 钱袋"}
    moves = [move | {"to": "tool.purse"}, move | {"to": "tool.purse"}]
    raw["actions"]["lend_tool"]["moves"] = moves
    world = compile_spec(raw)(1)
    tools = [key for key, row in world.state()["tool"].items() if row["status"] == "free"]
    members = {key: row["deposit"] for key, row in world.state()["member"].items()}
    tried = [(key, world.call("lend_tool", {"member": key, "tool": tools.pop(), "days": 3})) for key in list(members)[: len(tools)]]
    assert any(members[key] < 50 and "not enough deposit" in done.content for key, done in tried)
    assert all(row["deposit"] >= 0 for row in world.state()["member"].values())
    assert any(not done.is_error for _, done in tried)


def test_a_branch_costs_what_it_changed() -> None:
    """A snapshot holds the rows that were changed and nothing of the rest."""
    world = world_named("starter")(1)
    loans = [key for key, row in world.state()["loan"].items() if row["status"] == "out"]
    world.call("return_tool", {"loan": loans[0]})
    _, changed, acts, _ = world.snapshot()
    assert sum(len(rows) for _, rows in changed) <= 2
    assert acts == {("return_tool", loans[0]): 1}


def test_numbers_and_days_stay_within_bounds_whatever_a_stranger_writes() -> None:
    huge = f"({' * '.join(['1e9'] * 9)})"
    raw = parse_file(STARTER)
    raw["actions"]["renew_loan"]["sets"] = {"loan.due": "loan.due + 90000", "loan.renewals": "(loan.renewals + 1) * (loan.renewals + 9)"}
    raw["actions"]["renew_loan"]["rules"]["renewal_limit"]["if"] = "loan.renewals != 1"
    raw["actions"]["return_tool"]["needs"].append({"if": f"round({huge} * {huge} * {huge} * {huge} * loan.renewals) >= 0"})
    with pytest.raises(SpecError, match="numbers grow out of all bounds"):
        compile_spec(raw)
    raw["actions"]["return_tool"]["needs"].pop()
    world, loan = next(
        (world, key)
        for world in map(compile_spec(raw), range(9))
        for key, row in world.state()["loan"].items()
        if row["status"] == "out" and row["renewals"] == 0 and row["due"] > "2026-06"
    )
    told = [world.call("renew_loan", {"loan": loan, "days": 7}).content for _ in range(8)]
    assert told[0].startswith('{"done"')
    assert told[-1] == '{"error":"due would be out of all bounds"}'
    assert world.state()["loan"][loan]["due"] < "2600"


def test_where_no_id_is_left_a_new_row_is_refused_and_nothing_is_written() -> None:
    raw = parse_file(STARTER)
    raw["entities"]["loan"]["id"] = "l##"
    raw["actions"]["lend_tool"]["needs"] = []
    world, asked = compile_spec(raw)(1), {"days": 3}
    member = max(world.state()["member"], key=lambda key: world.state()["member"][key]["deposit"])
    for turn in range(1000):
        assert not world.call("lend_tool", {"member": member, "tool": f"t{turn % 100:03d}", **asked}).is_error
    held = len(world.state()["loan"])
    before = world.state()
    refused = world.call("lend_tool", {"member": member, "tool": "t001", **asked})
    assert (held, refused.content) == (1090, '{"error":"no room for another loan"}')
    assert world.state() == before
