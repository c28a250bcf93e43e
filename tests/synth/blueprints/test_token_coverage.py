"""Coverage per token: gains fall, the lazy choice is the greedy one, and a variety of blueprints is preferred to more of the same."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.blueprints.token_coverage import Coverage, CoverageWeights, decision_kinds, estimated_tokens, features
from synth.clusters.business_clusters import cluster_tools
from synth.roles.simulate import simulate
from synth.worlds import WORLDS
from train.data.seed_split import rough_tokens

KINDS = st.sampled_from(["act", "read", "decision"])
FEATURES = st.dictionaries(st.tuples(KINDS, st.sampled_from("abcde")), st.integers(1, 3), min_size=1, max_size=4)
CANDIDATES = st.lists(st.tuples(FEATURES, st.integers(20, 200)), min_size=1, max_size=25)


@given(FEATURES, st.lists(FEATURES, max_size=6))
def test_a_gain_never_rises(covered: dict[tuple[str, str], int], others: list[dict[tuple[str, str], int]]) -> None:
    coverage = Coverage()
    before = coverage.gain(covered)
    for other in others:
        coverage.add(other)
        after = coverage.gain(covered)
        assert after <= before + 1e-12
        before = after


@given(CANDIDATES, st.integers(1, 30))
def test_the_lazy_choice_is_the_greedy_one(candidates: list[tuple[dict[tuple[str, str], int], int]], most: int) -> None:
    chosen = Coverage().choose(candidates, most)

    plain, greedy, left = Coverage(), list[int](), set(range(len(candidates)))
    while left and len(greedy) < most:
        best = min(left, key=lambda at: (-plain.gain(candidates[at][0]) / candidates[at][1], at))
        greedy.append(best)
        plain.add(candidates[best][0])
        left.remove(best)
    assert chosen == greedy


def test_a_factor_makes_a_candidate_wanted_more() -> None:
    candidates = [({("act", "cancel"): 1}, 10), ({("act", "refund"): 1}, 10)]

    assert Coverage().choose(candidates, 1) == [0]
    assert Coverage().choose(candidates, 1, [1.0, 1.5]) == [1]


def test_new_tools_come_before_more_of_the_same() -> None:
    same, other = {("act", "cancel"): 1}, {("act", "refund"): 1}

    assert Coverage().choose([(same, 10), (same, 10), (other, 10)], 2) == [0, 2]
    assert Coverage(CoverageWeights(act=0.0)).gain(same) == 0


@pytest.fixture(scope="module")
def blueprints():
    rng, planner = random.Random(0), Planner(lambda _: True, chinese_share=0.0)
    clusters = [one for name in ("retail", "library", "gen-1") for one in cluster_tools(WORLDS[name].tools) if one.world]
    drawn = []
    while len(drawn) < 120:
        try:
            drawn.append(planner.draw_unsteered(rng.choice(clusters), rng, evolved_share=0.5))
        except PlanFailed:
            continue
    return drawn


def test_features_are_the_calls_and_the_decisions_of_a_blueprint(blueprints) -> None:
    for blueprint in blueprints:
        covered = Counter(features(blueprint))
        tools = Counter({name: n for (kind, name), n in covered.items() if kind != "decision"})
        assert tools == Counter(f"{blueprint.world}.{node.tool}" for node in blueprint.nodes)
        assert sum(n for (kind, _), n in covered.items() if kind == "decision") == len(decision_kinds(blueprint))
    changing = {f"{one.world}.{tool.name}" for one in blueprints for tool in WORLDS[one.world].tools if tool.changes_state}
    assert all((name in changing) == (kind == "act") for one in blueprints for kind, name in features(one) if kind != "decision")


def test_estimated_tokens_rank_conversations_by_length(blueprints) -> None:
    simulated = [(blueprint, simulate(blueprint)) for blueprint in blueprints]
    bodies = [[message for message in one.trajectory.messages if message.role != "system"] for _, one in simulated]
    pairs = [(estimated_tokens(blueprint), rough_tokens(body)) for (blueprint, _), body in zip(simulated, bodies, strict=True)]
    ranks = [sorted(range(len(pairs)), key=lambda at, side=side: pairs[at][side]) for side in (0, 1)]
    places = [{at: place for place, at in enumerate(order)} for order in ranks]
    distance = sum((places[0][at] - places[1][at]) ** 2 for at in range(len(pairs)))
    spearman = 1 - 6 * distance / (len(pairs) * (len(pairs) ** 2 - 1))
    assert spearman > 0.7
