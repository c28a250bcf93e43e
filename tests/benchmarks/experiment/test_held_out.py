"""The held-out set: every conversation is in the stratum and the band that it claims, its expert passes, and no domain is trained on."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.experiment import domains
from benchmarks.experiment.domains import SETTING_THEMES, THEMES, DomainsConfig, choose_domains, domains_of, practice_domains
from benchmarks.experiment.held_out import STRATA, HeldOut, expert_messages_of, held_out_set
from storage.records import Message, RefusalReason
from synth.conversations.conversation_play import blueprint_of, run_conversation
from synth.roles.scripted import ScriptedAssistant
from synth.worlds import WORLDS
from synth.worlds.declarative.compiled_world import SpecWorld

CONFIG = DomainsConfig(themes=("insurance", "wedding"), training=2, held_out=2)


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> tuple[HeldOut, ...]:
    return held_out_set(domains_of(choose_domains(CONFIG)).held_out, tmp_path_factory.mktemp("held-out"), each=3)


def test_every_stratum_has_one_conversation_in_each_band(held_out: tuple[HeldOut, ...]) -> None:
    counts = Counter((one.stratum, one.band) for one in held_out)

    assert counts == {(stratum, band): 1 for stratum in STRATA for band in ("low", "mid", "high")}
    assert len({one.task.id for one in held_out}) == len(held_out)


def test_strata_are_what_their_names_say(held_out: tuple[HeldOut, ...]) -> None:
    for one in held_out:
        blueprint = blueprint_of(one.task)
        refusals = {goal.refusal for goal in blueprint.goals} - {None}
        assert (RefusalReason.MISSING_INFORMATION in refusals) == (one.stratum == "refuse: missing information")
        assert (RefusalReason.MISSING_TOOL in refusals) == (one.stratum == "refuse: no tool")
        assert RefusalReason.RULE not in refusals
        assert any(turn.withholds for turn in blueprint.turns) == (one.stratum == "ask")
        assert any(p.kind == "error" for p in blueprint.perturbations) == (one.stratum == "repair")
        assert any(len(step) > 1 for turn in blueprint.turns for step in turn.steps) == (one.stratum == "parallel")
        assert (len(blueprint.goals) > 1) == (one.stratum in ("several goals", "parallel"))


def test_the_expert_passes_and_an_idle_policy_fails(held_out: tuple[HeldOut, ...]) -> None:
    for one in held_out:
        _, play = run_conversation(WORLDS[one.task.world], one.task, ScriptedAssistant(blueprint_of(one.task)).act)
        assert play.passed
        assert expert_messages_of(one)[0] == one.task.messages[0]
        _, idle = run_conversation(WORLDS[one.task.world], one.task, lambda dialogue, tools: Message(role="assistant", content="Fine."))
        assert not idle.passed


def test_prompts_name_the_tools_that_are_needed_and_state_the_rules(held_out: tuple[HeldOut, ...]) -> None:
    for one in held_out:
        tools = (one.task.messages[0].content or "").split("\n", maxsplit=1)[0]
        assert all(call.tool.replace("_", " ") in tools for call in one.task.plan.calls)
        assert all(message.role != "system" for message in one.task.messages)
        domain = cast(type[SpecWorld], WORLDS[one.task.world]).domain
        rules = [rule.words["en"] for action in domain.spec.actions.values() for rule in action.rules.values()]
        assert rules
        assert all(rule.removesuffix(".") in (one.task.messages[0].content or "") for rule in rules)


def test_no_held_out_domain_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds, names and themes alone matter, so no world is compiled, and any seed is admitted."""

    def named(seed: int) -> SimpleNamespace:
        spec = domains.generate(seed)
        return SimpleNamespace(name=spec["domain"], theme=spec["about"])

    monkeypatch.setattr(domains, "generate", lru_cache(None)(domains.generate))
    monkeypatch.setattr(domains, "_world", named)
    monkeypatch.setattr(domains, "WORLDS", SimpleNamespace(register=lambda world: None))
    monkeypatch.setattr(domains, "_DOMAINS_A_THEME", 1)
    settings = choose_domains(DomainsConfig(themes=SETTING_THEMES, training=1, held_out=1))
    chosen = choose_domains(DomainsConfig(themes=THEMES, training=1, held_out=1))
    practice = practice_domains.__wrapped__()
    groups = [chosen.training, chosen.held_out, settings.training, settings.held_out]
    worlds = [*([named(seed) for seed in seeds] for seeds in groups), practice]

    assert len(practice) == 24
    for values in (groups, [[world.name for world in group] for group in worlds]):
        assert all(set(one).isdisjoint(other) for at, one in enumerate(values) for other in values[at + 1 :])
    themes = [{world.theme for group in of for world in group} for of in (worlds[:2], worlds[2:4], worlds[4:])]
    assert all(one.isdisjoint(other) for at, one in enumerate(themes) for other in themes[at + 1 :])
