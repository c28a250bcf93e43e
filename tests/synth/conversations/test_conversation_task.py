"""A conversation is a task: its user is simulated, every goal is judged when it is answered, and no trick passes."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Sequence

import pytest

from storage.records import JSON, Message, RefusalReason, Task
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.draft import Offer, PlanFailed
from synth.blueprints.planner import Planner
from synth.blueprints.redraw import redraw
from synth.blueprints.schedule import ConversationTemplate, GoalTemplate
from synth.clusters.business_clusters import cluster_tools
from synth.conversations.conversation_play import ConversationPlay, blueprint_of, run_conversation
from synth.conversations.conversation_task import conversation_frame, conversation_sibling, conversation_task, goal_frames
from synth.conversations.expert import expert_profile, expert_trajectory
from synth.tasks.solver import NotAdmitted, are_evaluation_slots, is_evaluation_seed
from synth.tasks.split import STANDARD, division
from synth.text.refusals import REFUSALS
from synth.worlds import WORLDS
from tests.synth.conversations.conversations import accepted, play, tasks

RETAIL = WORLDS["retail"]


def entities(task: Task) -> list[tuple[str, dict[str, JSON], bool]]:
    """(intent, slots, chained) of the goals that name an individual."""
    plan = blueprint_of(task)
    return [
        (goal.intent, goal.slots, template.is_chained)
        for goal, template in zip(plan.goals, plan.template, strict=True)
        if {slot.name for slot in RETAIL.intents[goal.intent].slots if slot.is_entity} & goal.slots.keys()
    ]


def is_set_aside(intent: str, slots: dict[str, JSON]) -> bool:
    return are_evaluation_slots(intent, slots, frozenset(slot.name for slot in RETAIL.intents[intent].slots if slot.is_entity))


@pytest.mark.parametrize("world", ["retail", "city", "banking"])
def test_the_task_of_a_conversation_opens_like_it_and_is_passed_by_playing_it(world: str) -> None:
    for (blueprint, simulated), task in zip(accepted(world, 20), tasks(world, 20), strict=True):
        messages, played = play(task)
        assert messages == simulated.trajectory.messages
        assert played.passed and 0 < played.reward <= 1
        assert task.messages == messages[: len(task.messages)] and task.messages[-1].role == "user"
        assert expert_trajectory(WORLDS[world], task).messages == messages
        profile = expert_profile(WORLDS[world], task)
        assert profile is None or profile.coarse == simulated.profile.coarse
        assert blueprint_of(Task.model_validate_json(task.model_dump_json())) == blueprint


def test_an_assistant_that_makes_no_call_fails_whatever_it_says() -> None:
    for task in tasks("retail"):
        plan = blueprint_of(task)
        if not plan.nodes:
            continue
        _, right_words = play(task, lambda turn, _, plan=plan: Message(role="assistant", content=plan.turns[turn].reply))
        assert not right_words.passed
        for refusal in REFUSALS.values():
            _, refused = play(task, lambda *_, text=refusal["en"]: Message(role="assistant", content=text))
            assert not refused.passed or task.success.refusal


def planned_calls(plan: Blueprint, numbers: Sequence[int]) -> Message:
    """The plan's calls of these numbers in one message."""
    calls = [
        {"id": f"call_{n}", "function": {"name": plan.nodes[n].tool, "arguments": json.dumps(plan.nodes[n].values())}} for n in numbers
    ]
    return Message.model_validate({"role": "assistant", "tool_calls": calls})


def test_a_change_before_the_user_was_asked_ends_the_conversation() -> None:
    """Given a user who wants to be asked first, when the assistant changes something in the first turn, then it fails there."""
    seen = 0
    for task in tasks("retail", 80):
        plan = blueprint_of(task)
        if plan.turns[0].cues[:1] != ("ask_first",) or plan.goals[0].is_abandoned:
            continue
        early = ConversationPlay(RETAIL, plan)
        said = list(task.messages)
        for step in (*plan.turns[0].steps, *plan.turns[1].steps):
            message = planned_calls(plan, step)
            said += [message, *early.call(message)]
        said.append(Message(role="assistant", content=plan.turns[1].reply))
        assert early.end_turn(said) is None
        assert not early.passed and early.checks["turn_0.state"] is False and early.reward == 0
        seen += 1
    assert seen >= 2


def test_what_the_user_asks_for_beside_the_goals_is_checked() -> None:
    """Given users who want a second look, or calls at once, when the assistant leaves that out, then it fails for that alone."""
    left_out = {"double_check": 0, "together": 0}
    for task in tasks("retail", 80):
        plan = blueprint_of(task)
        for cue in left_out:
            if [turn.cues for turn in plan.turns if turn.cues] != [(cue,)] or any(p.kind == "error" for p in plan.perturbations):
                continue
            _, played = _played_without(task, cue)
            failed = {name.split(".", 1)[1] for name, holds in played.checks.items() if not holds}
            assert failed == {"asked_for"}, (cue, played.checks)
            left_out[cue] += 1
    assert all(left_out.values()), left_out


def test_a_second_look_that_is_asked_for_after_the_answer_is_made_after_it() -> None:
    """Given a user who asks to look again after the answer, when the assistant looked twice before it and not again, then it fails."""
    goal = GoalTemplate("order_status", frozenset({"order"}), check="later")
    (cluster, *_) = [one for one in cluster_tools(RETAIL.tools) if "get_order" in one.tool_names]
    planner = Planner(lambda _: True, chinese_share=0.0)
    plan = planner.draft(ConversationTemplate(RETAIL, (goal,), is_parallel=False), Offer(cluster), random.Random(0))
    task = conversation_task(RETAIL, plan, division="seed")
    check = next(node.n for node in plan.nodes if node.is_check)
    early = [*(planned_calls(plan, step) for step in plan.turns[0].steps), planned_calls(plan, [check])]
    said = iter([*early, *(Message(role="assistant", content=turn.reply) for turn in plan.turns)])
    _, played = run_conversation(RETAIL, task, lambda *_: next(said))
    assert play(task)[1].passed
    assert [name for name, holds in played.checks.items() if not holds] == ["turn_1.asked_for"]


def _played_without(task: Task, cue: str) -> tuple[tuple[Message, ...], ConversationPlay]:
    """The plan played with each call once, or one after another."""
    plan = blueprint_of(task)
    queue: list[list[Message]] = []
    for turn in plan.turns:
        numbers = [n for step in turn.steps for n in step if cue != "double_check" or not plan.nodes[n].is_check]
        steps = [[n] for n in numbers] if cue == "together" else [[n for n in step if n in numbers] for step in turn.steps]
        queue.append([*(planned_calls(plan, step) for step in steps if step), Message(role="assistant", content=turn.reply)])
    flat = iter([message for turn in queue for message in turn])
    return run_conversation(RETAIL, task, lambda *_: next(flat))


def test_a_claim_in_place_of_a_question_ends_the_conversation() -> None:
    """Given turns in which the assistant is to ask, when it claims to be done, then it fails there."""
    seen = 0
    for task in tasks("retail"):
        asks = [turn.t for turn in blueprint_of(task).turns if turn.is_question]
        if not asks:
            continue
        claim = Message(role="assistant", content="Done! It is cancelled.")
        _, played = play(task, lambda turn, said, at=asks[0], claim=claim: claim if turn == at and not said.tool_calls else said)
        assert [name for name, holds in played.checks.items() if not holds] == [f"turn_{asks[0]}.question"]
        seen += 1
    assert seen >= 5


def test_calls_that_are_only_doubled_are_neither_together_nor_a_second_look() -> None:
    """Given users who want calls at once or a second look, when the first call is made twice in one message, or twice at once, and all
    others one by one, then that is not what they asked for."""
    seen = 0
    for task in tasks("retail", 80):
        plan = blueprint_of(task)
        cues = [turn.cues for turn in plan.turns if turn.cues]
        if len(plan.turns) > 1 or cues not in ([("together",)], [("double_check",)]) or plan.perturbations:
            continue
        numbers = [node.n for node in plan.nodes if not node.is_check]
        first = [[numbers[0], numbers[0]]] if cues == [("together",)] else [[numbers[0]], [numbers[0]]]
        if cues == [("double_check",)] and len(numbers) < 2:
            continue
        said = iter(
            [
                *(planned_calls(plan, step) for step in [*first, *([n] for n in numbers[1:])]),
                Message(role="assistant", content=plan.turns[0].reply),
            ]
        )
        _, played = run_conversation(RETAIL, task, lambda *_, said=said: next(said))
        assert not played.checks["turn_0.asked_for"]
        seen += 1
    assert seen >= 3


def test_a_wrong_answer_to_the_second_goal_keeps_the_reward_of_the_first() -> None:
    seen = 0
    for task in tasks("retail"):
        plan = blueprint_of(task)
        if [turn.settles for turn in plan.turns] != [(0,), (1,)] or plan.goals[1].refusal:
            continue
        _, whole = play(task)
        _, half = play(
            task,
            lambda turn, said: (
                said if turn == 0 or said.tool_calls else Message(role="assistant", content=REFUSALS[RefusalReason.MISSING_TOOL]["en"])
            ),
        )
        assert whole.passed and not half.passed
        assert 0 < half.reward < whole.reward
        seen += 1
    assert seen >= 3


def test_planned_faults_are_nobodys_failure() -> None:
    """Given a tool that fails once as planned, then the mark for failed calls does not count it."""
    faulty = [task for task in tasks("retail", 80) if any(p.kind == "error" for p in blueprint_of(task).perturbations)]
    assert faulty
    for task in faulty:
        plain = task.model_copy(update={"conversation": {**task.conversation, "perturbations": []}})
        assert play(task)[1].reward == play(plain)[1].reward


# ---- siblings and counterparts ----------------------------------------------------------------------------------------


def test_siblings_have_the_same_needs_and_other_individuals_of_their_use() -> None:
    made = 0
    for task, use in itertools.product(tasks("retail", 20), ("train", "eval_in")):
        with contextlib.suppress(NotAdmitted):
            drawn = conversation_sibling(RETAIL, task, 3, language="en", division="seed", use=use)
            made += 1
            other = task.model_copy(update={"conversation": drawn.conversation})
            assert drawn == conversation_sibling(RETAIL, other, 3, language="en", division="seed", use=use), "of whichever sibling"
            assert (drawn.frame_id, drawn.blueprint_id) == (task.frame_id, task.blueprint_id) and drawn.id != task.id
            assert is_evaluation_seed(drawn.world_seed) == (use != "train")
            for intent, slots, is_chained in entities(drawn):
                assert (use != "train" and is_chained) or is_set_aside(intent, slots) == (use != "train")
            for ours, theirs in zip(goal_frames(drawn), goal_frames(task), strict=True):
                individuals = {slot.name for slot in RETAIL.intents[ours.intent].slots if slot.is_entity}
                assert ours.intent == theirs.intent
                assert all(ours.slots[name] == value for name, value in theirs.slots.items() if name not in individuals)
            assert [turn.cues for turn in blueprint_of(drawn).turns] == [turn.cues for turn in blueprint_of(task).turns]
    assert made >= 34


def is_probe(frame: str) -> bool:
    return division(frame, STANDARD) == "probe"


def test_a_counterpart_asks_only_for_frames_of_its_division() -> None:
    made = 0
    for (blueprint, _), task in zip(accepted("retail", 20), tasks("retail", 20), strict=True):
        assert all(division(frame.id, STANDARD) == "seed" for frame in goal_frames(task))
        try:
            drawn = redraw(RETAIL, blueprint, key="key", index=0, language="en", use="train", is_allowed=is_probe)
        except PlanFailed:
            continue
        other = conversation_task(RETAIL, drawn, division="probe", blueprint_id=blueprint.id)
        assert all(division(frame.id, STANDARD) == "probe" for frame in goal_frames(other))
        assert other.blueprint_id == blueprint.id and other.frame_id != task.frame_id
        assert other.frame_id == conversation_frame(drawn.model_dump(mode="json"))
        made += 1
    assert made > 12
