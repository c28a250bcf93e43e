"""`headrace worlds learn`: what it measures is there, reasons follow from what was seen, and a climb needs a flat control."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synth.worlds import WORLDS
from train.measure.evaluate import Estimate
from train.proxy.learnable import IntentProgress, LearnConfig, Learned, _is_rising, explain, learn_world
from train.proxy.world_study import Reinforced, WorldStudy

SMALL = LearnConfig(frames=30, experts=24, sft_tokens=5_000, steps=2, control_steps=1, held_out=16)
NOTHING = Reinforced((), Counter(), ())
_REFUSED = ("undetermined", "misfit", "")
CLIMBED = Learned("shop", 0.3, 0.5, Estimate(0.2, 0.1, 0.3), Estimate(0.0, -0.1, 0.1), (0.3, 0.5), True, (), 0, 1.0)


def test_a_world_is_measured_before_and_after_with_its_control() -> None:
    steps: list[tuple[str, int, int]] = []

    learned = learn_world(WORLDS["hotel"], SMALL, progress=lambda *at: steps.append(at))

    assert ("RL", 2, 2) in steps
    assert ("control", 1, 1) in steps
    assert 0 <= learned.before <= 1
    assert learned.gain.mean == pytest.approx(learned.after - learned.before)
    assert learned.control_gain is not None
    assert len(learned.curve) == 1
    assert {one.intent for one in learned.intents} <= set(WORLDS["hotel"].intents)
    assert sum(one.tasks for one in learned.intents) <= SMALL.held_out


def test_the_control_is_an_equal_policy_with_shuffled_rewards_for_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    weights: list[tuple[str, int, float]] = []
    models: list[Any] = []
    reinforce = WorldStudy.reinforce

    def watch(study: WorldStudy, model: Any, steps: int, reward: Any, on_step: Any) -> Reinforced:
        weights.append((reward, steps, sum(float(one.double().abs().sum()) for one in model.parameters())))
        models.append(model)
        return reinforce(study, model, steps, reward, on_step)

    monkeypatch.setattr(WorldStudy, "reinforce", watch)

    learn_world(WORLDS["hotel"], SMALL)

    assert [(reward, steps) for reward, steps, _ in weights] == [("success", 2), ("shuffled", 1)]
    assert weights[0][2] == weights[1][2]
    assert models[0] is not models[1]


def test_a_name_that_training_does_not_have_is_readable() -> None:
    study = WorldStudy(WORLDS["helpdesk"], LearnConfig(frames=160, experts=60, held_out=120))
    own = [at for at, task in enumerate(study.held_out) if task.intent == "ask_named_agent"]
    zeros = np.zeros(len(study.held_out))
    training = {word for task in study.experts for message in task.messages for word in (message.content or "").split()}
    names = [word for at in own for word in str(study.held_out[at].slots).replace("'", " ").split() if word.istitle()]

    reasons = {one.intent: one.reason for one in explain(study, zeros, zeros, Reinforced((), Counter(), tuple(study.experts)))}

    assert not set(names) <= training
    assert reasons["ask_named_agent"] == "never succeeded"


def test_intents_that_fall_are_counted_as_those_that_move() -> None:
    rows = (IntentProgress("a", 4, 0.2, 0.5, "moved"), IntentProgress("b", 4, 0.5, 0.2, "slow"), IntentProgress("c", 4, 0.5, 0.5, "slow"))

    learned = replace(CLIMBED, intents=(*rows, IntentProgress("d", 0, 0.0, 0.0, "unmeasured")))

    assert learned.moved_share == pytest.approx(1 / 3)
    assert learned.fell_share == pytest.approx(1 / 3)


def test_a_climb_is_more_than_chance_and_more_than_the_controls() -> None:
    assert CLIMBED.climbs
    assert not replace(CLIMBED, gain=Estimate(0.06, -0.01, 0.1)).climbs
    assert not replace(CLIMBED, gain=Estimate(0.02, 0.01, 0.03)).climbs
    assert not replace(CLIMBED, control_gain=Estimate(0.15, 0.05, 0.25)).climbs
    assert replace(CLIMBED, before=0.95, gain=Estimate(0.0, -0.02, 0.02)).climbs


def test_a_curve_that_ends_flat_is_not_rising() -> None:
    assert _is_rising((0.1, 0.2, 0.3, 0.4))
    assert not _is_rising((0.1, 0.4, 0.4, 0.41))
    assert _is_rising((0.1, 0.5)) is None


def test_reasons_follow_from_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    study = WorldStudy(WORLDS["hotel"], SMALL)
    intent = study.held_out[0].intent
    own = [at for at, task in enumerate(study.held_out) if task.intent == intent]

    def reason(before: float, after: float, *, read: bool = True, succeeded: int = 0) -> str:
        rates = [np.full(len(study.held_out), rate) for rate in (before, after)]
        monkeypatch.setattr(study, "experts", study.held_out if read else [one for one in study.held_out if one.intent != intent][:1])
        rows = {one.intent: one for one in explain(study, *rates, Reinforced((), Counter({intent: succeeded}), ()))}
        return rows[intent].reason

    assert own
    assert reason(0.95, 0.95) == "mastered"
    assert reason(0.2, 0.4) == "moved"
    assert reason(0.2, 0.2, succeeded=3) == "slow"
    assert reason(0.0, 0.0) == "never succeeded"
    assert reason(0.0, 0.0, read=False) == "unreadable"
    monkeypatch.setattr(study, "sources", study.sources[:1])
    undrawn = set(WORLDS["hotel"].intents) - {source.frame.intent for source in study.sources}
    zeros = np.zeros(len(study.held_out))
    monkeypatch.setattr("train.proxy.learnable.why_not_drawn", lambda world, intent, **_: _REFUSED[len(intent) % 3])
    reasons = {one.intent: one.reason for one in explain(study, zeros, zeros, NOTHING) if one.intent in undrawn}
    assert set(reasons.values()) == {"ambiguous", "unsolvable", "unmeasured"}
    assert all(reason == ("ambiguous", "unsolvable", "unmeasured")[len(name) % 3] for name, reason in reasons.items())


def test_an_intent_without_a_held_out_task_is_unmeasured_and_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    study = WorldStudy(WORLDS["hotel"], SMALL)
    intent = study.held_out[0].intent
    monkeypatch.setattr(study, "held_out", [task for task in study.held_out if task.intent != intent])
    ones = np.ones(len(study.held_out))

    rows = explain(study, ones, ones, NOTHING)

    assert {one.intent: one.reason for one in rows}[intent] == "unmeasured"
    drawn = {source.frame.intent for source in study.sources}
    assert replace(CLIMBED, intents=tuple(one for one in rows if one.intent in drawn)).moved_share == 1
