"""The verifier refuses broken trajectories of the shop, and the audit notices a verifier that does not."""

from __future__ import annotations

import random

import pytest

from benchmarks.audits.mutations import KINDS, audit, draw_tasks
from storage.records import Success
from synth.worlds import WORLDS
from tests.synth.retail_tasks import tasks


def test_the_shop_passes_the_audit() -> None:
    done = audit(tasks(8), random.Random(1), per_kind=80)
    figures = done.figures()
    assert set(done.kinds) == set(KINDS)
    assert all(tally.tried >= 60 for tally in done.kinds.values())
    assert figures["expert_accepted"] == figures["noop_refused"] == figures["hallucinated_refused"] == 1
    assert figures["dropped_refused"] >= 0.99
    assert min(figures["altered_refused"], figures["swaps_refused"], figures["duplicated_refused"]) >= 0.95


@pytest.mark.slow
def test_both_worlds_pass_the_audit_in_all_wordings() -> None:
    rng = random.Random(11)
    figures = audit([*draw_tasks(WORLDS["city"], 112, rng), *draw_tasks(WORLDS["retail"], 96, rng)], rng, per_kind=60).figures()
    assert figures["expert_accepted"] == figures["noop_refused"] == figures["hallucinated_refused"] == 1
    assert figures["dropped_refused"] >= 0.99
    assert min(figures["altered_refused"], figures["swaps_refused"], figures["duplicated_refused"]) >= 0.9, "0.95 at full size"


def test_the_same_seed_gives_the_same_audit() -> None:
    assert audit(tasks(2), random.Random(3), per_kind=10) == audit(tasks(2), random.Random(3), per_kind=10)


def test_a_weak_criterion_is_found_out() -> None:
    """Negative control: without evidence, acts on orders pass that nobody looked at."""
    blind = [
        task.model_copy(update={"success": Success(changes=task.success.changes, facts=task.success.facts)})
        for task in tasks(8)
        if task.intent in ("close_order", "close_and_buy")
    ]
    figures = audit(blind, random.Random(1), per_kind=20).figures()
    assert figures["expert_accepted"] == 1
    assert figures["dropped_refused"] < 0.9


def test_no_tasks_no_figures() -> None:
    assert audit([], random.Random(1), per_kind=5).figures()["mutations_tried"] == 0


def test_a_paste_of_all_that_was_observed_is_tried_and_never_passes_as_it_came() -> None:
    """Given tasks that ask for facts, when the observations are the answer, then their form is refused, and the values by some rivals."""
    asking = [task for task in tasks(8) if task.success.facts and task.plan.calls]
    pasted = audit(asking, random.Random(1), per_kind=1000).kinds["pasted"]
    assert pasted.tried == 2 * len(asking)
    assert pasted.refused > len(asking)
