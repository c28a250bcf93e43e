"""Generated domains: valid whatever the seed, the same in every process, unlike one another, and called as real services call things."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.tasks.wording import load_templates
from synth.worlds import WORLDS, make_world
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.generate import generate
from synth.worlds.declarative.generate.components import archetypes, themes
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.resolve import resolve
from synth.worlds.declarative.tools import callees

SEEDS = range(40)
COMPILED = range(100, 124)


@cache
def admitted_worlds() -> list[type[SpecWorld]]:
    """The domains of COMPILED that are not refused."""
    worlds = []
    for seed in COMPILED:
        with suppress(SpecError):
            worlds.append(compile_spec(generate(seed), name=f"gen-{seed}"))
    return worlds


def _hash(seeds: range) -> str:
    return hashlib.sha256(json.dumps([generate(seed) for seed in seeds], ensure_ascii=False).encode()).hexdigest()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999_999_999))
def test_every_seed_gives_a_valid_spec(seed: int) -> None:
    """Valid by construction: four entities, 200 rows, eight tools and two business rules at least, as the compiler insists. Whether every
    rule is in somebody's way is up to admission."""
    assert 8 <= len(callees(resolve(generate(seed)))) <= 60


def test_a_seed_gives_the_same_spec_in_another_process() -> None:
    command = "from tests.synth.worlds.declarative.test_generate import _hash; print(_hash(range(12)))"
    environment = {"PYTHONHASHSEED": "7", "PATH": ""}
    other = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, env=environment)
    assert other.stdout.strip() == _hash(range(12))


def test_domains_are_unlike_in_theme_size_and_name() -> None:
    specs = [generate(seed) for seed in SEEDS]
    assert len({spec["about"] for spec in specs}) >= 25
    assert len({len(spec["entities"]) for spec in specs}) >= 3
    assert len({spec["domain"] for spec in specs}) >= 36
    assert {spec["currency"] for spec in specs} == {"dollars", "yuan", "euros", "pounds"}


def test_no_two_things_of_a_domain_have_one_name() -> None:
    for world in admitted_worlds():
        assert len({tool.name for tool in world.tools}) == len(world.tools)


@pytest.mark.slow
def test_generated_domains_are_admitted_and_worded() -> None:
    """Given domains by seed, nearly all are admitted, every intent of these is worded in both languages with all that it must say, and the
    trap of every rule is among the intents."""
    worlds = admitted_worlds()
    assert len(worlds) >= 0.93 * len(COMPILED)
    for world in worlds:
        assert set(load_templates(WORLDS[world.name]).intents) == set(world.intents)
        for act, action in world.domain.spec.actions.items():
            assert {f"{act}_against_{rule}" for rule in action.rules} <= set(world.intents)


def test_every_action_and_rule_of_the_archetypes_is_used_somewhere() -> None:
    """Given some hundreds of domains, nothing lies idle: a part that can never be written out is a slip of the pen."""
    verbs: set[str] = set()
    rules: set[tuple[str, str]] = set()
    for seed in range(400):
        for act in generate(seed)["actions"].values():
            english = act["verb"].partition(" / ")[0]
            verbs.add(english)
            rules.update((english, rule) for rule in act["rules"])
    for archetype in archetypes().values():
        for action in archetype.actions.values():
            forms = [re.compile(r"\w[\w -]*".join(map(re.escape, re.split("<.*?>", verb.en))) + r"( \w+ _)?") for verb in action.verbs]
            assert any(form.fullmatch(verb) for form in forms for verb in verbs), (archetype.role, action.symbol)
            found = {rule for verb, rule in rules if any(form.fullmatch(verb) for form in forms)}
            assert set(action.raw["rules"]) <= found, (archetype.role, action.symbol)


def test_themes_name_their_roles_apart() -> None:
    """Two roles of a theme must not share a noun in either language, nor two kinds of a role a name."""
    known = archetypes()
    assert len(themes()) >= 60
    for theme in themes():
        nouns = list(theme.nouns.values())
        assert set(theme.nouns) <= set(known), theme.key
        for names in ([noun.en for noun in nouns], [noun.zh for noun in nouns], [noun.key for noun in nouns]):
            assert len(set(names)) == len(names), theme.key
        for noun in nouns:
            assert len({kind.key for kind in noun.kinds}) == len({kind.zh for kind in noun.kinds}) == len(noun.kinds), (theme.key, noun.en)


def test_a_generated_world_is_found_by_name() -> None:
    world = make_world("gen-5", 3)
    assert world.name == "gen-5"
    assert WORLDS["gen-5"] is type(world)
    with pytest.raises(KeyError):
        WORLDS["gen-05"]
