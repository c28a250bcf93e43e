"""Tools in the style that a spec asks for: other names outside, the same world inside."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from storage.records import Frame
from synth.tasks.solver import admit, training_seed
from synth.tasks.wording import render
from synth.worlds import WORLDS
from synth.worlds.base import Unsolvable
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.writing.shapes import shape_of

STARTER = Path(__file__).parents[4] / "synth" / "worlds" / "declarative" / "starter.yaml"
CAMEL = {"case": "camel", "order": "noun_first", "get": "fetch", "search": "find", "ids": "id"}
PREFIXED = {"prefix": "acme", "list": "all", "ids": "entity_id"}


def starter(naming: dict[str, str]) -> type[SpecWorld]:
    spec: dict[str, Any] = yaml.load(STARTER.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    return compile_spec(spec | {"naming": naming})


def parameters(world: type[SpecWorld], name: str) -> list[str]:
    return list(next(tool for tool in world.tools if tool.name == name).parameters["properties"])


def test_a_style_says_how_tools_and_parameters_are_called() -> None:
    camel, prefixed = starter(CAMEL), starter(PREFIXED)
    assert {"loanFetch", "loansFind", "loansListOfMember", "renewLoan"} <= {tool.name for tool in camel.tools}
    assert parameters(camel, "loanFetch") == ["id"]
    assert parameters(camel, "renewLoan") == ["id", "days"]
    assert parameters(camel, "loansListOfMember") == ["id"]
    assert {"acme_get_loan", "acme_search_loans", "acme_all_loans_of_member", "acme_renew_loan"} <= {tool.name for tool in prefixed.tools}
    assert parameters(prefixed, "acme_renew_loan") == ["loan_id", "days"]


def test_inner_names_are_unknown_outside_and_the_state_is_the_same() -> None:
    plain, camel = starter({})(3), starter(CAMEL)(3)
    assert camel.call("get_loan", {"loan": "l001"}).is_error
    assert camel.call("loanFetch", {"loan": "l001"}).content == '{"error":"id is required"}'
    assert not camel.call("loanFetch", {"id": "l001"}).is_error
    assert list(plain.state()) == list(camel.state())


def test_a_style_is_no_part_of_a_shape() -> None:
    assert shape_of(starter(CAMEL)) == shape_of(starter({})) == shape_of(starter(PREFIXED))


@pytest.mark.parametrize("naming", [CAMEL, PREFIXED])
def test_tasks_are_solved_with_the_names_outside(naming: dict[str, str]) -> None:
    world = starter(naming)
    WORLDS.register(world)
    rng, called = random.Random(7), {tool.name for tool in world.tools}
    for intent in world.jobs():
        names = frozenset(slot.name for slot in intent.slots if slot.is_required)
        for seed in map(training_seed, range(20)):
            frame = Frame(world=world.name, intent=intent.name, slots=world(seed).draw_slots(intent.name, names, rng))
            with suppress(Unsolvable):
                intent.solve(world(seed), frame.slots, "en")
                break
        task = admit(
            WORLDS[frame.world], frame, text=render(WORLDS[frame.world], frame, "en", rng), language="en", seed=seed, division="seed"
        )
        assert {call.tool for call in task.plan.calls} <= called
        assert set(intent.shape(names).tools) <= called
