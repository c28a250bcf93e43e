"""The need of a frame: what is asked for, without whom or what it is asked for."""

from __future__ import annotations

from storage.records import Frame
from synth.tasks.needs import individual_slots, need
from synth.worlds import WORLDS
from tests.train.tiny_policies import retail_tasks


def test_siblings_that_differ_in_individuals_share_a_need() -> None:
    one, other = retail_tasks("order_status", each=2)
    frames = [Frame(world=task.world, intent=task.intent, slots=task.slots) for task in (one, other)]
    assert frames[0].slots != frames[1].slots and set(frames[0].slots) == individual_slots(frames[0])
    assert need(frames[0]) == need(frames[1])


def test_another_intent_or_another_value_that_is_no_individual_is_another_need() -> None:
    tasks = [retail_tasks(intent)[0] for intent in ("order_status", "close_order", "special_service")]
    assert len({need(Frame(world=task.world, intent=task.intent, slots=task.slots)) for task in tasks}) == 3
    described = next(
        frame
        for task in retail_tasks(each=1)
        if (frame := Frame(world=task.world, intent=task.intent, slots=task.slots)).slots.keys() - individual_slots(frame)
    )
    name = min(described.slots.keys() - individual_slots(described))
    assert need(described) != need(described.model_copy(update={"slots": described.slots | {name: "another"}}))
    assert described.world in WORLDS
