"""The eight shipped domains beside the shop: each large enough, each action possible, each business rule in somebody's way."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from typing import Any

import pytest

from benchmarks.audits.mutations import audit
from storage.records import Frame, Language, RefusalReason, Task
from synth.tasks.solver import NotAdmitted, admit, expert_messages, training_seed
from synth.tasks.verify import verify_teacher
from synth.tasks.wording import render
from synth.worlds import WORLDS, make_world
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.domain import Act, Domain, Param
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.library_worlds import library_specs
from synth.worlds.declarative.rows.state import clock_steps

NAMES = ("banking", "clinic", "helpdesk", "hotel", "library", "logistics", "school", "telecom")
DRAWS, SEEDS = 4000, 4


def world_of(name: str) -> type[SpecWorld]:
    world = WORLDS[name]
    assert issubclass(world, SpecWorld)
    return world


def drawn(domain: Domain, param: Param, rng: random.Random) -> Any:
    """Any value of a parameter, as actions have it inside."""
    spec = param.spec
    if isinstance(spec, schema.RefParam):
        return rng.choice(domain.entities[spec.to].ids)
    if isinstance(spec, schema.ChoiceParam):
        return rng.choice(list(param.words))
    if isinstance(spec, schema.DateParam):
        return rng.randint(spec.first, spec.last)
    if isinstance(spec, schema.TimeParam):
        return rng.choice(clock_steps(spec.first, spec.last, spec.step))
    if isinstance(spec, schema.FlagParam):
        return rng.random() < 0.5
    return rng.randrange(int(spec.min), int(spec.max) + 1, int(spec.step))


def said(domain: Domain, param: Param, value: Any) -> Any:
    """The value as a call carries it."""
    return domain.iso(value) if isinstance(param.spec, schema.DateParam) else value


def outcomes(world: type[SpecWorld], act: Act) -> dict[frozenset[int], tuple[int, dict[str, Any]]]:
    """Which conditions fail together, with a seed and arguments of a case each; enough when each rule was alone, and none at all, once."""
    wanted = {frozenset(), *(frozenset({at}) for at, each in enumerate(act.conditions) if each.rule is not None)}
    found: dict[frozenset[int], tuple[int, dict[str, Any]]] = {}
    for seed in range(SEEDS):
        rng, here = random.Random(f"{act.name}/{seed}"), world(seed)
        for _ in range(DRAWS):
            values = {name: drawn(world.domain, param, rng) for name, param in act.params.items()}
            failing = frozenset(at for at, each in enumerate(act.conditions) if not each.test.run(here.now, values))
            if failing not in found:
                found[failing] = seed, {name: said(world.domain, act.params[name], value) for name, value in values.items()}
                if wanted <= set(found):
                    return found
    return found


def test_eight_unlike_businesses_are_shipped() -> None:
    assert tuple(name for name in library_specs() if name != "retail") == NAMES
    assert len({world_of(name).domain.spec.head.currency for name in NAMES}) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_a_domain_is_of_the_size_of_a_real_service(name: str) -> None:
    domain, world = world_of(name).domain, world_of(name)
    assert 4 <= len(domain.entities) <= 7
    assert 8 <= len(world.callees) <= 20
    assert sum(entity.spec.rows for entity in domain.entities.values()) >= 200
    rules = [rule for act in domain.acts.values() for rule in act.spec.rules]
    assert len(set(rules)) == len(rules) >= 8
    kinds = {field.spec.type for entity in domain.entities.values() for field in entity.fields.values()}
    assert {"ref", "choice", "money", "date"} <= kinds


@pytest.mark.parametrize("name", NAMES)
def test_every_action_can_be_done_and_every_rule_can_be_all_that_is_in_the_way(name: str) -> None:
    """Given a domain, when its actions are tried on all sorts of rows, then each is possible somewhere, and for each business rule there is
    a case that this rule alone forbids: the tool refuses it, says why, and nothing changes."""
    world = world_of(name)
    for act in world.domain.acts.values():
        cases = outcomes(world, act)
        assert frozenset() in cases, f"{act.name} is never possible"
        seed, arguments = cases[frozenset()]
        free = world(seed)
        possible = free.call(act.name, arguments)
        assert possible.is_error is not bool(free.changes())
        for at, condition in enumerate(act.conditions):
            if condition.rule is None:
                continue
            assert frozenset({at}) in cases, f"{act.name}: {condition.name} is never alone in the way"
            seed, arguments = cases[frozenset({at})]
            here = world(seed)
            refused = here.call(act.name, arguments)
            assert refused.is_error
            assert json.loads(refused.content) == {"error": condition.message}
            assert here.changes() == {}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_is_said_in_both_languages(name: str) -> None:
    """No Chinese in what is English, and no English in what is Chinese, but for abbreviations such as VPN, 4G and GB."""

    def words(value: Any) -> list[tuple[str, str]]:
        if isinstance(value, dict):
            return [pair for each in value.values() for pair in words(each)]
        if isinstance(value, (list, tuple)):
            return [pair for each in value for pair in words(each)]
        if isinstance(value, str) and " / " in value:
            return [tuple(part.strip() for part in value.rsplit(" / ", 1))]
        return []

    said = words(world_of(name).source)
    assert len(said) > 60
    for english, chinese in said:
        assert english.isascii(), english
        assert chinese == english or any("一" <= letter <= "鿿" for letter in chinese) or chinese.strip("_") == "", chinese


@lru_cache(maxsize=8)
def tasks(name: str) -> tuple[dict[str, list[Task]], int]:
    """Two tasks of every intent, drawn as drills are, the languages in turn; and how many draws were refused."""
    world, rng, found, refused = world_of(name), random.Random(name), dict[str, list[Task]](), 0
    for intent in world.jobs():
        for turn in range(6):
            if len(found.get(intent.name, ())) == 2:
                break
            language: Language = ("en", "zh")[turn % 2]
            names = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < 0.35)
            seed = training_seed(rng.randrange(2**20))
            frame = Frame(world=name, intent=intent.name, slots=make_world(name, seed).draw_slots(intent.name, names, rng))
            try:
                task = admit(
                    WORLDS[frame.world],
                    frame,
                    text=render(WORLDS[frame.world], frame, language, rng),
                    language=language,
                    seed=seed,
                    division="seed",
                )
            except NotAdmitted:
                refused += 1
            else:
                found.setdefault(intent.name, []).append(task)
    return found, refused


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_tasks_of_every_intent_are_admitted_and_the_teacher_passes(name: str) -> None:
    found, refused = tasks(name)
    admitted = [task for each in found.values() for task in each]
    assert set(found) == {intent.name for intent in world_of(name).jobs()}
    assert refused <= 0.02 * (refused + len(admitted))
    for task in admitted:
        assert verify_teacher(WORLDS[task.world], task, expert_messages(WORLDS[task.world], task)).success, task.intent


@pytest.mark.parametrize("name", NAMES)
def test_every_business_rule_traps_somebody(name: str) -> None:
    """Given any rule, there is a request that it forbids: the expert looks at what shows it, changes nothing, and says no by that rule."""
    found, world = tasks(name)[0], world_of(name)
    acts = {act.name for act in world.domain.acts.values()}
    for act in world.domain.acts.values():
        for rule in act.spec.rules:
            traps = found[f"{act.name}_against_{rule}"]
            assert all(task.success.refusal is RefusalReason.RULE and not task.success.changes for task in traps)
            assert all(not {call.tool for call in task.plan.calls} & acts for task in traps)


@pytest.mark.parametrize("name", NAMES)
def test_broken_trajectories_are_refused(name: str) -> None:
    some = [task for each in tasks(name)[0].values() for task in each]
    figures = audit(some, random.Random(1), per_kind=30).figures()
    assert figures["expert_accepted"] == figures["noop_refused"] == figures["hallucinated_refused"] == 1
    assert figures["dropped_refused"] >= 0.97
    assert min(figures["altered_refused"], figures["swaps_refused"]) >= 0.9
