"""Labelled conversations that measure judges: good ones, and ones with planted flaws, all executed."""

from __future__ import annotations

import math
import random

import pytest

from storage.records import Message
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import cluster_tools
from synth.roles.base import Grades
from synth.roles.judge_calibration import PLANTED, Agreement, Labelled, agreement, label_conversations, passes_checks
from synth.roles.simulate import simulate
from synth.worlds import WORLDS

MARKS = {"silent": ("Done.", "好了。"), "placeholder": ("{customer_name}",), "invented": ("48,213", "48213"), "rude": ("stupid", "蠢")}


def is_again(message: Message) -> bool:
    ids = [call.id for call in message.tool_calls] + [message.tool_call_id or ""]
    return any(one.startswith("again_") for one in ids)


@pytest.fixture(scope="module")
def split() -> list[Labelled]:
    blueprints = []
    for world in ("retail", "city"):
        clusters = cluster_tools(WORLDS[world].tools)
        for index in range(40):
            rng = random.Random(f"{world} {index}")
            try:
                blueprints.append(Planner(lambda _: True).draw_unsteered(rng.choice(clusters), rng))
            except PlanFailed:
                continue
    return label_conversations(blueprints)


def test_half_is_good_half_is_bad_in_every_known_way(split: list[Labelled]) -> None:
    planted = [one.planted for one in split]
    assert 0.35 < planted.count("") / len(planted) < 0.65
    assert set(planted) == {"", *PLANTED}
    assert all(one.simulated.accepted for one in split if not one.planted)


def test_every_flaw_is_in_the_conversation_and_nothing_else_is(split: list[Labelled]) -> None:
    for one in split:
        last = one.simulated.trajectory.messages[-1].content or ""
        for planted, words in MARKS.items():
            assert any(word in last for word in words) == (one.planted == planted)
        good = simulate(one.blueprint).trajectory.messages
        if one.planted == "repeated":
            assert [message for message in one.simulated.trajectory.messages if not is_again(message)] == list(good)
        else:
            assert one.simulated.trajectory.messages[:-1] == good[:-1]


def test_the_scripted_judge_is_as_good_as_it_is(split: list[Labelled]) -> None:
    found = agreement(split, [one.simulated.grades for one in split])

    assert {"rude", "smoothed"} <= found.missed.keys(), "what no rule sees"
    assert not {"placeholder", "invented", "repeated"} & found.missed.keys(), "what rules are made for"
    assert 0.5 < found.rate < 1 and 0 < found.kappa < 1


def test_what_code_sees_never_reaches_the_judge(split: list[Labelled]) -> None:
    asked = {one.planted for one in split if passes_checks(one)}
    assert {"", "rude", "smoothed"} <= asked and not {"invented", "repeated", "placeholder"} & asked


def test_agreement_is_one_for_the_truth_and_none_beyond_chance_for_blindness(split: list[Labelled]) -> None:
    good, bad = Grades(5, 5, 5), Grades(1, 5, 5)
    truth = agreement(split, [bad if one.planted else good for one in split])
    blind = agreement(split, [good for _ in split])
    reversed_ = agreement(split, [good if one.planted else bad for one in split])
    silent = agreement(split, [None for _ in split])

    assert (truth.rate, truth.kappa, dict(truth.missed)) == (1.0, 1.0, {})
    assert blind.kappa == pytest.approx(0) and sum(blind.missed.values()) == sum(bool(one.planted) for one in split)
    assert reversed_.rate == 0 and reversed_.kappa < 0
    assert silent.rate == 0, "no verdict agrees with nothing"


def test_what_is_stored_of_it_is_read_back(split: list[Labelled]) -> None:
    found = agreement(split, [one.simulated.grades for one in split])
    again = Agreement.of({figure.metric: figure for figure in found.figures()})
    assert again is not None and Agreement.of({}) is None
    assert (again.agreed, again.labelled, dict(again.missed)) == (found.agreed, found.labelled, dict(found.missed))
    assert math.isclose(again.kappa, found.kappa, abs_tol=1e-6)
