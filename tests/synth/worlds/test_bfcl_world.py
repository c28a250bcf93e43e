"""BFCL's multi-turn cases: their tools are executed as they are, and a conversation is worth what its outcome is, turn by turn."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from benchmarks.tags_sections.bfcl import KEYS, MUTATORS
from storage.records import Call
from synth.worlds.bfcl_world import CATEGORIES, MORE_TOOLS, BFCLWorld, Case, cases, judge_conversation


@pytest.fixture(scope="module")
def every() -> list[Case]:
    return cases()


@pytest.fixture(scope="module")
def moving(every: list[Case]) -> Case:
    """Makes a folder and moves a file into it; then searches it, sorts it, and compares it."""
    return next(case for case in every if case.id == "multi_turn_base_0")


def reference(case: Case) -> list[list[Call]]:
    return [list(turn.calls) for turn in case.turns]


def failed(case: Case, made: Sequence[Sequence[Call]]) -> set[str]:
    return {name for name, holds in judge_conversation(case, made).items() if not holds}


def test_every_case_is_read_with_its_tools_and_references(every: list[Case]) -> None:
    assert [sum(case.category == category for case in every) for category in CATEGORIES] == [200] * 4
    assert sum(len(turn.calls) for case in every for turn in case.turns) == 4_625
    assert all(tool.parameters["type"] == "object" for case in every for tool in case.tools)
    withheld = next(case for case in every if case.category == "miss_func")
    (place,) = [at for at, turn in enumerate(withheld.turns) if turn.said == MORE_TOOLS]
    assert withheld.turns[place].tools - withheld.turns[place - 1].tools == {"sort"}


def test_nearly_every_reference_is_accepted(every: list[Case]) -> None:
    """All but one, which calls a tool that it says is withheld."""
    refused = {case.id: failed(case, reference(case)) for case in every if failed(case, reference(case))}
    assert refused == {"multi_turn_miss_func_49": {"known_tools", "observations"}}


def test_what_a_conversation_does_otherwise_is_seen(moving: Case) -> None:
    made = reference(moving)
    first, *others = made
    assert failed(moving, [first[:-1], *others]) == {"observations", "end_state"}
    assert failed(moving, [[*first, Call(tool="rm", arguments={"file_name": "temp"})], *others]) == {"observations", "end_state"}
    assert failed(moving, [[*first, Call(tool="cp", arguments={"source": "a", "destination": "b"})], *others]) == {"known_tools"}
    assert failed(moving, [[*first, Call(tool="ls", arguments={"folder": "."})], *others]) == {"well_formed"}
    assert failed(moving, [[*first, Call(tool="ls", arguments={})], *others]) == set(), "looking does no harm"
    assert failed(moving, [[], [*first, *others[0]], *others[1:]]) == {"observations", "end_state"}, "a turn later is too late"
    _, second, (call,), last = made
    assert failed(moving, [first, [*second, call], [], last]) == {"observations"}, "nor does what was seen a turn too early stand for it"
    with pytest.raises(ValueError, match="has 4 turns; here are 3"):
        judge_conversation(moving, made[:-1])


def test_a_call_changes_nothing_but_the_world(every: list[Case]) -> None:
    """Some tools keep the lists that they are given and add to them later."""
    before = [reference(case) for case in every]
    for case in every:
        world = BFCLWorld(case)
        for turn in case.turns:
            for call in turn.calls:
                world.call(call.tool, call.arguments)
    assert [reference(case) for case in every] == before


def test_a_world_goes_back_to_any_of_its_states(moving: Case) -> None:
    world = BFCLWorld(moving)
    start = world.state()
    assert world.changes() == {}
    world.call("cd", '{"folder": "document"}')
    world.call("mkdir", {"dir_name": "temp"})
    kept, made = world.snapshot(), world.state()
    made_folder = "GorillaFileSystem/root/contents/document/contents/temp"
    assert world.changes() == {f"{made_folder}/name": "temp", f"{made_folder}/contents": {}}
    world.call("mv", {"source": "final_report.pdf", "destination": "temp"})
    assert world.state() != made
    for _ in range(2):
        world.restore(kept)
        assert world.state() == made
        assert not world.call("mv", {"source": "final_report.pdf", "destination": "temp"}).is_error
    world.reset(7)
    assert world.state() == start and world.changes() == {}


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("fly", "{}", "there is no tool fly"),
        ("cd", "[]", "the arguments are no JSON object"),
        ("cd", "{}", "folder is required"),
        ("cd", '{"folder": "a", "fast": true}', "there is no such parameter; parameters are folder"),
        ("cd", '{"folder": "nowhere"}', "No such file"),
        ("cat", '{"file_name": 7}', ""),
    ],
)
def test_a_bad_call_is_an_error_observation(moving: Case, tool: str, arguments: str, told: str) -> None:
    found = BFCLWorld(moving).call(tool, arguments)
    assert found.is_error and told in json.loads(found.content)["error"]


def test_every_kind_of_mutation_has_its_figure() -> None:
    assert set(MUTATORS) == set(KEYS)
