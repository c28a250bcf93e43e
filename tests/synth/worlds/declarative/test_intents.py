"""The jobs of a compiled domain: each can be drawn, solved and admitted, in both languages; rules trap; refusals have all reasons."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest

from benchmarks.audits import mutations
from storage.records import JSON, Frame, Language, RefusalReason, Task
from synth.blueprints.sketch import skeleton
from synth.tasks.solver import admit, draw_seed, expert_messages, solve
from synth.tasks.verify import verify_teacher
from synth.tasks.wording import load_templates, render
from synth.worlds import WORLDS, make_world
from synth.worlds.declarative.compile import compile_file

World = compile_file(Path(str(files("synth.worlds.declarative"))) / "starter.yaml")
WORLDS.register(World)
LANGUAGES: tuple[Language, Language] = ("en", "zh")


def draw_task(name: str, language: Language, rng: random.Random) -> Task:
    seed = draw_seed(rng, "train")
    names = frozenset(slot.name for slot in World.intents[name].slots if slot.is_required or rng.random() < 0.35)
    slots = make_world(World.name, seed).draw_slots(name, names, rng)
    frame = Frame(world=World.name, intent=name, slots=slots)
    return admit(
        WORLDS[frame.world], frame, text=render(WORLDS[frame.world], frame, language, rng), language=language, seed=seed, division="seed"
    )


@pytest.mark.parametrize("name", [intent.name for intent in World.jobs()])
def test_what_is_drawn_is_admitted_and_the_expert_covers_its_plan(name: str) -> None:
    rng = random.Random(name)
    for turn in range(6):
        task = draw_task(name, LANGUAGES[turn % 2], rng)
        verdict = verify_teacher(WORLDS[task.world], task, expert_messages(WORLDS[task.world], task))
        assert verdict.success, verdict.checks


@pytest.mark.parametrize("name", [intent.name for intent in World.jobs()])
def test_what_is_drawn_such_is_wanted_and_can_be_solved_and_where_nothing_is_wanted_nothing_comes(name: str) -> None:
    rng, names = random.Random(name), frozenset(slot.name for slot in World.intents[name].slots)

    unwanted = make_world(World.name, 4).draw_slots(name, names, rng)

    def is_wanted(slots: Mapping[str, JSON]) -> bool:
        return slots != unwanted

    drawn = [
        (world, world.draw_such(name, names, rng, is_wanted))
        for world in (make_world(World.name, draw_seed(rng, "train")) for _ in range(12))
    ]
    fitting = [(world, slots) for world, slots in drawn if slots is not None]
    for world, slots in fitting:
        assert is_wanted(slots)
        solve(world, Frame(world=World.name, intent=name, slots=slots), "en")

    assert len(fitting) >= 6 or not names
    assert all(world.draw_such(name, names, rng, lambda _: False) is None for world, _ in drawn[:2])


def test_every_rule_has_a_trap_and_every_act_a_plan() -> None:
    for act, action in World.domain.spec.actions.items():
        assert World.intents[act].shape(frozenset()).tools[-1] == act
        for rule in action.rules:
            trap = World.intents[f"{act}_against_{rule}"]
            assert trap.refusal is RefusalReason.RULE
            assert act not in trap.shape(frozenset()).tools


def test_no_refusal_reason_is_most_of_the_refusing_intents() -> None:
    reasons = Counter(intent.refusal for intent in World.intents.values() if intent.refusal is not None)
    assert set(reasons) == set(RefusalReason)
    assert max(reasons.values()) <= reasons.total() / 2


def test_shapes_are_those_of_the_plans() -> None:
    rng = random.Random(4)
    for intent in World.jobs():
        for _ in range(4):
            task = draw_task(intent.name, "en", rng)
            assert tuple(call.tool for call in task.plan.calls) == intent.shape(frozenset(task.slots)).tools


def test_wordings_are_well_formed_and_plans_have_skeletons() -> None:
    load_templates(WORLDS[World.name])
    for name, intent in World.intents.items():
        assert skeleton(WORLDS[World.name], name, frozenset(slot.name for slot in intent.slots if slot.is_required)) is not None


@pytest.mark.parametrize("world", ["hotel", "gen-5"])
def test_broken_plans_are_refused(world: str) -> None:
    """Given expert plans with a call left out, made up, made twice or none made at all: none passes; one made otherwise hardly ever."""
    rng = random.Random(3)
    tasks = mutations.draw_tasks(WORLDS[world], 80, rng)
    figures = mutations.audit(tasks, rng, per_kind=60).figures()
    assert figures["expert_accepted"] == 1.0
    for kind in ("dropped", "hallucinated", "duplicated", "noop"):
        assert figures[f"{kind}_refused"] == 1.0, kind
    assert figures["altered_refused"] >= 0.95
    assert figures["swaps_refused"] >= 0.95
