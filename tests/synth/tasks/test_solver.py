"""Admission refuses what luck would pass; siblings keep the meaning and change the individuals."""

from __future__ import annotations

import random
from typing import Any

import pytest

from storage.records import Call, Fact, Frame, Plan, RefusalReason, Success, Task
from synth.tasks.solver import (
    NotAdmitted,
    admit,
    admit_any,
    are_evaluation_slots,
    check_admission,
    draw_seed,
    expert_messages,
    is_evaluation_seed,
    sibling,
    training_seed,
    world_seeds,
)
from synth.worlds import WORLDS
from tests.synth.retail_tasks import frame_of, task_of, tasks, wording

RetailWorld = WORLDS["retail"]


def refused(task: Task) -> str:
    """Why the task is not admitted."""
    with pytest.raises(NotAdmitted) as caught:
        check_admission(task, RetailWorld(task.world_seed))
    return caught.value.reason


def test_every_intent_gives_tasks_in_both_languages() -> None:
    admitted = tasks(4)
    assert {task.intent for task in admitted} == set(RetailWorld.intents)
    assert len({task.id for task in admitted}) == len(admitted)
    for task in admitted:
        assert task.messages[0].role == "system"
        assert (task.difficulty == -1) == (task.success.refusal is not None)
        assert expert_messages(WORLDS[task.world], task)[-1].content == task.plan.answer


def test_admission_leaves_the_world_as_it_was() -> None:
    task = task_of("exchange_and_buy", 0)
    world = RetailWorld(task.world_seed)
    check_admission(task, world)
    assert world.changes() == {}


def test_a_plan_with_a_call_too_many_is_not_minimal() -> None:
    task = task_of("close_order", 0)
    look = task.plan.calls[0]
    longer = task.model_copy(update={"plan": task.plan.model_copy(update={"calls": (look, *task.plan.calls)})})
    assert refused(longer) == "not_minimal"


def test_a_plan_that_misses_its_goal_is_refused() -> None:
    task = task_of("close_order", 0)
    assert refused(task.model_copy(update={"plan": task.plan.model_copy(update={"calls": task.plan.calls[:1]})})) == "expert_fails"


def test_a_goal_that_is_true_already_or_an_answer_known_beforehand_is_refused() -> None:
    task = task_of("order_price", 0)
    assert refused(task.model_copy(update={"success": Success()})) == "no_goal"
    told = Success(facts=(Fact(kind="id", value=task.slots["order"]),))
    plan = Plan(calls=task.plan.calls, answer=f"{task.slots['order']}.")
    assert refused(task.model_copy(update={"success": told, "plan": plan})) == "idle_passes"


def test_an_invented_step_fails_admission() -> None:
    task = task_of("call_back", 0)
    other = "u00" if task.slots["user"] != "u00" else "u01"
    plan = Plan(calls=(Call(tool="escalate", arguments={"user": other, "reason": "callback"}),), answer="Done.")
    assert refused(task.model_copy(update={"plan": plan, "success": Success(changes={f"tickets/{other}-callback": 1})})) == "expert_fails"


def test_a_frame_that_does_not_fit_the_seed_says_so_and_another_seed_is_tried() -> None:
    frame = frame_of("exchange_by_category", 5)
    with pytest.raises(NotAdmitted) as caught:
        for seed in range(100, 140):
            admit(WORLDS[frame.world], frame, text=wording(frame.slots), language="en", seed=seed, division="seed")
    assert caught.value.reason == "misfit"
    assert (
        admit_any(WORLDS[frame.world], frame, text=wording(frame.slots), language="en", seeds=range(100, 160), division="seed").frame_id
        == frame.id
    )
    with pytest.raises(NotAdmitted):
        admit_any(WORLDS[frame.world], frame, text="", language="en", seeds=(), division="seed")
    with pytest.raises(NotAdmitted, match="unknown_intent"):
        admit(WORLDS["retail"], Frame(world="retail", intent="juggle"), text="", language="en", seed=1, division="seed")


def test_whatever_is_stored_beside_the_frame_is_in_the_id() -> None:
    frame = frame_of("close_order", 3)

    def made(**origin: Any) -> Task:
        given: dict[str, Any] = {"index": 0, "language": "en", "division": "seed", "use": "train"} | origin
        return sibling(WORLDS[frame.world], frame, **given)

    twins = [made(), made(query_id="q1"), made(query_id="q2"), made(blueprint_id="b1"), made(division="probe"), made(language="zh")]
    assert made(query_id="q1") == twins[1]
    assert len({task.id for task in twins}) == len(twins)
    assert {(task.query_id, task.blueprint_id) for task in twins} == {(None, None), ("q1", None), ("q2", None), (None, "b1")}


def test_refusals_of_every_reason_are_admitted() -> None:
    assert {task.success.refusal for task in tasks(4)} == {None, *RefusalReason}


class TestSiblings:
    def test_seeds_are_fixed_and_set_aside_by_use(self) -> None:
        train, held = world_seeds("f", 0, "train", 50), world_seeds("f", 0, "eval_in", 50)
        assert train == world_seeds("f", 0, "train", 50) != world_seeds("f", 1, "train", 50)
        assert not any(is_evaluation_seed(seed) for seed in train)
        assert all(is_evaluation_seed(seed) for seed in held)

    @pytest.mark.parametrize("intent", ["close_order", "buy_pick", "exchange_by_category", "price_question", "special_service"])
    def test_a_sibling_keeps_the_meaning_and_never_meets_the_other_use(self, intent: str) -> None:
        frame = frame_of(intent, 3)
        entities = frozenset(slot.name for slot in RetailWorld.intents[intent].slots if slot.is_entity)
        for use in ("train", "eval_in"):
            made = [
                sibling(WORLDS[frame.world], frame, index=index, language="en", division="seed", use=use, query_id="q")
                for index in range(4)
            ]
            assert made == [
                sibling(WORLDS[frame.world], frame, index=index, language="en", division="seed", use=use, query_id="q")
                for index in range(4)
            ]
            assert len({task.id for task in made}) == 4
            for task in made:
                assert {name: value for name, value in task.slots.items() if name not in entities} == {
                    name: value for name, value in frame.slots.items() if name not in entities
                }
                assert (task.frame_id, task.query_id, task.use) == (frame.id, "q", use)
                drawn = Frame(world="retail", intent=intent, slots=task.slots)
                assert is_evaluation_seed(task.world_seed) == (use != "train")
                assert not entities or are_evaluation_slots(drawn.intent, drawn.slots, entities) == (use != "train")


def test_seeds_are_drawn_for_their_use() -> None:
    rng = random.Random(2)
    assert not any(is_evaluation_seed(draw_seed(rng, "train")) for _ in range(50))
    assert all(is_evaluation_seed(draw_seed(rng, use)) for use in ("eval_in", "eval_out") for _ in range(25))
    assert not any(is_evaluation_seed(training_seed(number)) for number in range(50))
