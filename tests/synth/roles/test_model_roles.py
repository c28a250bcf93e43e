"""The model assistant: what it sees, what it costs, and the outcome when its engine fails. The engines are scripted."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from storage.records import Cost, Message, Outcome
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.conversation_template import draw_template, intent_pool
from synth.blueprints.draft import Offer
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import cluster_tools
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.engines.budget import BudgetSpent
from synth.roles.model_roles import ModelAssistant
from synth.roles.scripted import ScriptedAssistant
from synth.roles.simulate import Simulated, simulate
from synth.worlds import WORLDS


class Following:
    """Scripted: an engine that answers as the blueprint plans, until its `patience` ends."""

    name = "scripted:following"

    def __init__(self, blueprint: Blueprint, patience: int = 100, failure: Exception | None = None) -> None:
        self._plan, self._patience = ScriptedAssistant(blueprint), patience
        self._failure = failure or EngineFailure("the server is gone")
        self.requests: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        (request,) = requests
        if len(self.requests) == self._patience:
            raise self._failure
        self.requests.append(request)
        return [ChatAnswer(self._plan.act(request.messages, request.tools), "stop", prompt_tokens=100, completion_tokens=7, usd=0.25)]


class Mumbling:
    """Scripted: an engine that never makes a call."""

    name = "scripted:mumbling"

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [ChatAnswer(Message(role="assistant", content="Hm."), "stop") for _ in requests]


@pytest.fixture(scope="module")
def blueprint() -> Blueprint:
    cluster = max(cluster_tools(WORLDS["retail"].tools), key=lambda cluster: len(cluster.tool_names))
    rng = random.Random(3)
    return Planner(lambda _: True).draft(draw_template(intent_pool(WORLDS["retail"], cluster.tool_names), rng), Offer(cluster), rng)


def simulate_with(blueprint: Blueprint, engine: Following | Mumbling) -> Simulated:
    return simulate(blueprint, assistant=lambda one: ModelAssistant(engine, one.id))


def test_what_a_model_does_is_judged_and_counted(blueprint: Blueprint) -> None:
    engine = Following(blueprint)
    simulated = simulate_with(blueprint, engine)
    assert simulated.accepted and simulated.trajectory.outcome is Outcome.SUCCESS
    assert simulated.trajectory.messages == simulate(blueprint).trajectory.messages
    assert (simulated.trajectory.teacher, simulated.trajectory.id) != (
        simulate(blueprint).trajectory.teacher,
        simulate(blueprint).trajectory.id,
    )
    turns = len(engine.requests)
    assert simulated.trajectory.cost == Cost(prompt_tokens=100 * turns, completion_tokens=7 * turns, usd=0.25 * turns)


def test_it_sees_the_dialogue_and_the_tools_on_offer_and_no_plan(blueprint: Blueprint) -> None:
    engine = Following(blueprint)
    simulate_with(blueprint, engine)
    assert all({tool.name for tool in request.tools} == set(blueprint.tools) for request in engine.requests)
    first = engine.requests[0].messages
    assert [message.role for message in first if message.role != "system"] == ["user"]
    assert len({request.seed for request in engine.requests}) == len(engine.requests)
    again = Following(blueprint)
    simulate_with(blueprint, again)
    assert again.requests == engine.requests, "run again, it asks the same"


def test_a_bad_answer_is_the_models_own_and_no_answer_is_not(blueprint: Blueprint) -> None:
    bad = simulate_with(blueprint, Mumbling()).trajectory
    assert (bad.outcome, bad.reward) == (Outcome.POLICY_FAILURE, 0.0)
    for patience in (0, 1):
        lost = simulate_with(blueprint, Following(blueprint, patience))
        assert (lost.accepted, lost.reason) == (False, "infra_failure")
        assert (lost.trajectory.outcome, lost.trajectory.reward) == (Outcome.INFRA_FAILURE, None)
        assert lost.trajectory.cost.prompt_tokens == 100 * patience
    with pytest.raises(BudgetSpent):
        simulate_with(blueprint, Following(blueprint, 1, BudgetSpent("spent")))
