"""Each evolution operator applies where it can, leaves a conversation that passes every check, and does what it says."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage.conversation import derive_turns
from storage.records import CODE_TOOL
from synth.blueprints.blueprint import Bands, Blueprint, static_checks
from synth.blueprints.cell import Cell
from synth.blueprints.conversation_template import MERGE_CLUSTERS, OPERATORS, PERTURBATIONS, draw_template, intent_pool
from synth.blueprints.draft import Draft, Offer, PlanFailed
from synth.blueprints.phrases import slots_of
from synth.blueprints.planner import Planner
from synth.blueprints.schedule import ConversationTemplate
from synth.blueprints.template_library import build_library
from synth.clusters.business_clusters import Cluster, cluster_tools
from synth.roles.simulate import Simulated, offered_tools, simulate
from synth.roles.world_tools import noisy
from synth.tasks.wording import spellings
from synth.worlds import WORLDS
from synth.worlds.run_python import missing

HERE = {world: [cluster for cluster in cluster_tools(WORLDS[world].tools) if cluster.world] for world in ("retail", "city", "banking")}
FREE = Planner(lambda _: True)


def applied(operator: str, count: int = 6) -> Iterator[tuple[ConversationTemplate, ConversationTemplate, Blueprint, Simulated]]:
    """Recipes before and after an operator, and what was made of the latter, in every world where it applies."""
    rng, found = random.Random(11), 0
    for attempt in range(600):
        cluster = rng.choice(HERE[("retail", "banking", "city")[attempt % 3]])
        assert cluster.world is not None
        pool = intent_pool(WORLDS[cluster.world], cluster.tool_names)
        before = draw_template(pool, rng)
        after = OPERATORS[operator](before, pool, rng)
        if after is None or operator in before.operators:
            continue
        try:
            blueprint = FREE.draft(after, Offer(cluster), rng)
        except PlanFailed:
            continue
        yield before, after, blueprint, simulate(blueprint)
        found += 1
        if found == count:
            return
    pytest.fail(f"{operator} applied to {found} recipes only")


def hidden_slots(blueprint: Blueprint) -> int:
    return sum(len(goal.hidden) for goal in blueprint.goals)


EFFECTS = {
    "add_constraint": lambda before, after, _: sum(len(g.slots) for g in after.goals) == sum(len(g.slots) for g in before.goals) + 1,
    "deepen": lambda before, after, made: len(after.goals) == len(before.goals) + 1 and hidden_slots(made) >= 1,
    "withhold": lambda _, __, made: any(turn.withholds for turn in made.turns),
    "inject_fault": lambda _, __, made: any(p.kind == "error" for p in made.perturbations),
    "tool_outage": lambda _, __, made: any(p.kind == "outage" for p in made.perturbations),
    "merge_goals": lambda _, __, made: any(len(turn.settles) > 1 for turn in made.turns),
    "goal_shift": lambda _, __, made: any(goal.is_abandoned for goal in made.goals),
    "ask_first": lambda _, __, made: any(turn.is_question and turn.steps for turn in made.turns),
    "verify": lambda _, __, made: any(node.is_check for node in made.nodes),
    "parallel": lambda before, after, _: before.is_parallel != after.is_parallel,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_does_what_it_says_and_the_conversation_passes(operator: str) -> None:
    made = list(applied(operator))

    for before, after, blueprint, _ in made:
        assert operator in blueprint.operators
        assert EFFECTS[operator](before, after, blueprint), operator
        assert static_checks(blueprint, {tool.name: tool for tool in offered_tools(blueprint)}) == []
    assert sum(simulated.accepted for *_, simulated in made) >= len(made) - 1


def test_a_tool_that_is_down_fails_whenever_it_is_called_and_the_plan_is_the_other_way() -> None:
    for _, _, blueprint, simulated in applied("tool_outage"):
        (outage,) = [p for p in blueprint.perturbations if p.kind == "outage"]
        assert outage.tried is not None
        calls = [call for turn in derive_turns(simulated.trajectory.messages) for step in turn.steps for call in step.calls]
        tried = [call for call in calls if call.tool == outage.tried.tool]
        assert [call.status for call in tried] == ["error"] * len(tried) != []
        assert outage.tried.tool not in {node.tool for node in blueprint.nodes}
        assert blueprint.mode_coarse == simulated.profile.coarse
        assert blueprint.complexity == pytest.approx(simulated.profile.complexity, rel=0.1)


def half(cluster: Cluster, *names: str) -> Cluster:
    """A cluster of some of another's tools."""
    return replace(cluster, id=f"cluster-{names[0]}", tool_ids=tuple(i for i in cluster.tool_ids if i.rsplit(".", 1)[-1] in names))


def test_two_clusters_of_a_world_are_merged_for_a_cell_that_failed_before_and_that_neither_has() -> None:
    bands, (whole, *_) = Bands(3.2, 8.0), HERE["retail"]
    buying = half(whole, "search_products", "escalate")
    closing = half(whole, "get_order", "exchange_order", "escalate")
    books = [build_library(WORLDS["retail"], tools, "retail", bands) for tools in (buying.tool_names, closing.tool_names)]
    union = build_library(WORLDS["retail"], buying.tool_names | closing.tool_names, "retail", bands)
    family, band = max(union.keys() - books[0].keys() - books[1].keys(), key=lambda shelf: (len(union[shelf]), shelf))
    cell, planner = Cell("retail", family, band), Planner(lambda _: True, bands=bands)
    with pytest.raises(PlanFailed):
        planner.propose(cell, [buying, closing], 1, random.Random(0))
    with pytest.raises(PlanFailed):
        planner.propose(cell, [buying, replace(HERE["city"][0], tool_ids=())], 2, random.Random(0))

    for seed in range(4):
        cluster, blueprint = planner.propose(cell, [buying, closing], 2, random.Random(seed))
        used = {node.tool for node in blueprint.nodes}
        assert (cluster, blueprint.cluster_id, blueprint.merged_with) == (buying, buying.id, closing.id)
        assert blueprint.operators[-1] == MERGE_CLUSTERS
        assert set(blueprint.tools) == buying.tool_names | closing.tool_names
        assert used & buying.tool_names
        assert used & closing.tool_names
        assert simulate(blueprint).accepted


def veiled(veil: str, world: str, seed: int, cluster: Cluster | None = None) -> tuple[Blueprint, Blueprint] | None:
    """A plan of one goal, and the same with a veil over it."""
    rng = random.Random(seed)
    cluster = cluster or rng.choice(HERE[world])
    template = draw_template(intent_pool(WORLDS[world], cluster.tool_names), rng)
    template = ConversationTemplate(WORLDS[world], template.goals[:1], template.is_parallel)
    both = []
    for perturbations in (frozenset[str](), frozenset({veil})):
        try:
            offer = Offer(cluster)
            both.append(Draft(template, offer, perturbations, "en" if seed % 2 else "zh", lambda *_: True, random.Random(seed)).write())
        except PlanFailed:
            return None
    return (both[0], both[1]) if veil in both[1].operators else None


@pytest.mark.parametrize("veil", PERTURBATIONS)
@pytest.mark.parametrize("world", ["retail", "city", "banking"])
def test_a_veil_keeps_the_plan_and_the_conversation_passes(veil: str, world: str) -> None:
    cluster = half(HERE[world][0], *sorted(HERE[world][0].tool_names)[:-2])
    pairs = [pair for pair in (veiled(veil, world, seed, cluster) for seed in range(40)) if pair is not None]

    assert len(pairs) >= 5
    for plain, hidden in pairs:
        assert veil not in plain.operators
        assert [(node.tool, node.values()) for node in hidden.nodes] == [(node.tool, node.values()) for node in plain.nodes]
        assert [goal.slots for goal in hidden.goals] == [goal.slots for goal in plain.goals]
    passed = [simulate(hidden).accepted for plain, hidden in pairs if simulate(plain).accepted]
    assert sum(passed) >= 0.9 * len(passed) > 0


def test_distractors_are_tools_of_the_world_beyond_the_cluster_that_the_assistant_sees() -> None:
    cluster = half(HERE["retail"][0], "search_products", "buy", "list_orders")
    pairs = [pair for pair in (veiled("distractors", "retail", seed, cluster) for seed in range(30)) if pair is not None]

    assert {len(hidden.tools) - len(plain.tools) for plain, hidden in pairs} == {1, 2, 3, 4}
    for plain, hidden in pairs:
        assert set(hidden.tools) > set(plain.tools) == cluster.tool_names
        assert [tool.name for tool in offered_tools(hidden)] == list(hidden.tools)
        assert "cancel_order" in hidden.forbidden_tools or "cancel_order" not in hidden.tools


def test_a_slip_of_the_tongue_names_another_value_first_and_the_right_one_after() -> None:
    pairs = [pair for pair in (veiled("self_correction", "retail", seed) for seed in range(1, 60, 2)) if pair is not None]

    for plain, hidden in pairs:
        goal = hidden.goals[0]
        wordings = [
            (slot, text)
            for slot in goal.slots
            if slots_of(WORLDS["retail"], goal.intent)[slot].kind in ("order", "user", "product")
            for text in spellings(WORLDS["retail"], goal.intent, slot, goal.slots[slot], "en")
        ]
        assert all(text in hidden.turns[0].text for _, text in wordings if text in plain.turns[0].text)
        assert any(words in hidden.turns[0].text for words in ("no sorry", "I mean", "no wait"))


def test_noise_is_in_what_was_found_and_in_nothing_else() -> None:
    fields = {"_trace": "qxzkrtw", "_cached": True}

    assert json.loads(noisy('{"order": "o17"}', fields)) == {"order": "o17", **fields}
    assert json.loads(noisy('[{"order": "o17"}, 3]', fields)) == [{"order": "o17", **fields}, 3]
    assert noisy('{"order":"o17"}', fields) == '{"order":"o17","_trace":"qxzkrtw","_cached":true}'
    for untouched in ('{"error": "no such order"}', "[]", '{"count": 0, "rows": []}', "plain words"):
        assert noisy(untouched, fields) == untouched


def test_vague_words_name_fewer_values_outright() -> None:
    pairs = [pair for pair in (veiled("vague_wording", "retail", seed) for seed in range(60)) if pair is not None]

    def named(blueprint: Blueprint) -> int:
        goal, text = blueprint.goals[0], blueprint.turns[0].text.casefold()
        plain = [
            spellings(WORLDS["retail"], goal.intent, slot, value, blueprint.language)[0].casefold() for slot, value in goal.slots.items()
        ]
        words = [word for words in WORLDS["retail"].tool_words.values() for word in words]
        return sum(word in text for word in (*plain, *words))

    assert sum(named(hidden) for _, hidden in pairs) < sum(named(plain) for plain, _ in pairs)


# ---- the code tool ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(bool(missing()), reason="this machine has no sandbox")
def test_any_cluster_offers_the_code_tool_and_code_waits_for_what_it_computes_over() -> None:
    cluster, rng, made = cluster_tools(WORLDS["banking"].tools)[0], random.Random(0), list[Blueprint]()
    while len(made) < 60:
        try:
            made.append(Planner(lambda _: True, code_share=0.2).draw_unsteered(cluster, rng))
        except PlanFailed:
            continue
    coding = [blueprint for blueprint in made if any(node.tool == CODE_TOOL for node in blueprint.nodes)]
    others = [blueprint for blueprint in made if blueprint not in coding]

    assert len(coding) >= 5
    for blueprint in coding:
        assert blueprint.code_tool
        assert "X" in blueprint.mode_coarse
        assert all(len(step) == 1 for turn in blueprint.turns for step in turn.steps if blueprint.nodes[step[-1]].tool == CODE_TOOL)
        simulated = simulate(blueprint)
        assert simulated.accepted
        assert simulated.profile.coarse == blueprint.mode_coarse
    assert 0.1 < sum(blueprint.code_tool for blueprint in others) / len(others) < 0.5
