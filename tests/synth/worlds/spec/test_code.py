"""Worlds with the code tool: the same world, one tool more, and questions that nobody can answer without computing."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from storage.records import Frame, Language
from synth.sandbox import pick
from synth.solver import NotAdmitted, admit, draw_seed, expert_messages
from synth.verify import verify_teacher
from synth.wording import load_families, render
from synth.worlds import WORLDS, make_world
from synth.worlds.spec.code import computing_intents

pytestmark = pytest.mark.skipif(pick() is None, reason="no sandbox on this machine; `headrace doctor` says what is missing")
LANGUAGES: tuple[Language, Language] = ("en", "zh")


def frames(world: str, count: int) -> Iterator[tuple[Frame, int]]:
    rng = random.Random(world)
    names = [name for name in WORLDS[world].intents if name.startswith("compute_")]
    for turn in range(count):
        intent = WORLDS[world].intents[names[turn % len(names)]]
        seed = draw_seed(rng, "train")
        slots = make_world(world, seed).draw_slots(intent.name, frozenset(slot.name for slot in intent.slots), rng)
        yield Frame(world=world, intent=intent.name, slots=slots), seed


def test_it_is_the_world_with_one_tool_and_some_jobs_more() -> None:
    plain, coding = WORLDS["banking"], WORLDS["banking+code"]
    assert WORLDS["banking+code"] is coding
    assert [tool.name for tool in coding.tools] == [*(tool.name for tool in plain.tools), "run_python"]
    assert {tool.world for tool in coding.tools} == {"banking+code"}
    assert make_world("banking+code", 3).state() == make_world("banking", 3).state()
    assert set(plain.intents) < set(coding.intents)
    assert not any("run_python" in intent.shape(frozenset()).tools for intent in plain.intents.values())
    with pytest.raises(KeyError):
        WORLDS["retail+code"]


@pytest.mark.parametrize("world", ["banking+code", "gen-3+code"])
def test_what_is_asked_takes_the_tool_and_is_admitted(world: str) -> None:
    load_families(world)
    admitted = 0
    for turn, (frame, seed) in enumerate(frames(world, 16)):
        language = LANGUAGES[turn % 2]
        try:
            task = admit(frame, text=render(frame, language, random.Random(turn)), language=language, seed=seed, division="seed")
        except NotAdmitted as refused:
            assert refused.reason == "misfit"
            continue
        admitted += 1
        assert [call.tool for call in task.plan.calls][-1] == "run_python"
        assert verify_teacher(task, expert_messages(task)).success
    assert admitted >= 14


def test_snippets_that_fail_are_observations_and_change_nothing() -> None:
    world = make_world("banking+code", 1)
    assert '"result_repr":"3"' in world.call("run_python", {"code": "1 + 2"}).content
    assert "ZeroDivisionError" in world.call("run_python", {"code": "1 / 0"}).content
    assert world.call("run_python", {}).is_error
    assert world.changes() == {}


def test_every_shipped_business_with_owned_amounts_has_something_to_compute() -> None:
    with_amounts = [name for name in WORLDS.names()[2:] if computing_intents(WORLDS[name].domain)]  # type: ignore[attr-defined]
    assert len(with_amounts) >= 4
