"""Tasks in a context: their experts read on where they must, the verifier takes what was shown alone, and no exploit has a reward."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import pytest

from storage.context.settings import PolicyContext
from storage.errors import BadInput
from storage.records import Call, Fact, Frame, FunctionCall, Message, Outcome, Success, Task, Tool, ToolCall
from synth.clusters.business_clusters import cluster_tools
from synth.context.marks import without_reminder
from synth.context.offered_tools import tools_of
from synth.context.view import open_world
from synth.conversations.conversation_play import blueprint_of, run_conversation
from synth.conversations.expert import expert_trajectory
from synth.conversations.task_in_context import in_context, without_context
from synth.engines.base import ChatAnswer
from synth.rollouts.episode import Episode
from synth.tasks.context_expert import play_calls, play_plan
from synth.tasks.exploits import exploits
from synth.tasks.solver import NotAdmitted, admit, draw_seed, expert_messages
from synth.tasks.verify import judge, verify, verify_teacher
from synth.tasks.wording import render
from synth.worlds import WORLDS
from tests.synth.conversations.conversations import tasks as conversation_tasks

SHORT = PolicyContext(observation_chars=150)
EVERYTHING = PolicyContext(observation_chars=150, tool_scope="cluster", reminder_every=1, notes=True)


@cache
def admitted(name: str, count: int) -> tuple[Task, ...]:
    """Tasks of all intents of a world in turn."""
    world, rng, made = WORLDS[name], random.Random(name), list[Task]()
    jobs = list(world.jobs())
    for turn in range(3 * count):
        intent, seed = jobs[turn % len(jobs)], draw_seed(rng, "train")
        names = frozenset(slot.name for slot in intent.slots if slot.is_required)
        frame = Frame(world=name, intent=intent.name, slots=world(seed).draw_slots(intent.name, names, rng))
        try:
            made.append(admit(world, frame, text=render(world, frame, "en", rng), language="en", seed=seed, division="seed"))
        except NotAdmitted:
            continue
        if len(made) == count:
            break
    return tuple(made)


def calls_of(messages: Sequence[Message]) -> list[str]:
    return [call.function.name for message in messages for call in message.tool_calls]


@cache
def reading(context: PolicyContext) -> Task:
    """A task of the library whose expert reads on."""
    for task in admitted("library", 120):
        viewed = in_context(WORLDS["library"], task, context)
        if "read_more" in calls_of(expert_messages(WORLDS["library"], viewed)):
            return viewed
    raise AssertionError("no task hides what its plan needs")


def test_a_context_that_changes_nothing_leaves_the_task_as_it_is() -> None:
    task = admitted("library", 120)[0]
    assert in_context(WORLDS["library"], task, PolicyContext()) is task and "context" in task.model_dump()


@pytest.mark.parametrize("context", [SHORT, EVERYTHING], ids=["short", "everything"])
def test_experts_pass_in_their_context_and_a_replay_confirms_them(context: PolicyContext) -> None:
    world = WORLDS["library"]
    for task in admitted("library", 120)[::3]:
        viewed = in_context(world, task, context)
        trajectory = expert_trajectory(world, viewed)
        assert trajectory.outcome is Outcome.SUCCESS and trajectory.checks["observations"] and trajectory.checks["plan_covered"]
        assert set(calls_of(trajectory.messages)) <= set(viewed.tools) and viewed.id != task.id
        assert in_context(world, task, context) == viewed


def test_without_reading_on_the_same_plan_fails_where_its_expert_reads() -> None:
    task, world = reading(SHORT), WORLDS["library"]
    blind = play_calls(world, task, task.plan.calls, task.plan.answer, {})
    assert not blind.passed and play_plan(world, task).passed
    whole = task.model_copy(update={"context": None})
    assert play_calls(world, whole, task.plan.calls, task.plan.answer, {}).passed


def test_a_replay_without_the_context_sees_other_results() -> None:
    """The negative control of the replay: what was shown is checked, mark by mark."""
    task, world = reading(SHORT), WORLDS["library"]
    messages = expert_messages(world, task)
    assert verify_teacher(world, task, messages).success
    assert not verify(world, task.model_copy(update={"context": None}), messages).checks["observations"]
    place = next(at for at, message in enumerate(messages) if message.role == "tool" and "hidden]" in (message.content or ""))
    forged = [*messages]
    forged[place] = messages[place].model_copy(update={"content": (messages[place].content or "").replace(" of ", " of 9")})
    assert not verify(world, task, forged).checks["observations"]


# ---- the verifier -----------------------------------------------------------------------------------------------------------------


def call(name: str, **arguments: object) -> Message:
    return Message(
        role="assistant", tool_calls=(ToolCall(id=f"call_{name}", function=FunctionCall(name=name, arguments=json.dumps(arguments))),)
    )


def question(task: Task, value: str) -> Task:
    """The task, asked for a number that nothing of its request says."""
    update = {"success": Success(facts=(Fact(kind="number", value=value),)), "slots": {}}
    return task.model_copy(update={**update, "messages": (Message(role="user", content="How many?"),)})


def test_notes_are_no_source_of_an_answer_and_no_evidence() -> None:
    """Given a guess, when the policy writes it down and reads it, then it is a guess still; from a tool of the world it has a source."""
    task = question(in_context(WORLDS["retail"], admitted("retail", 20)[0], PolicyContext(notes=True)), "4711")
    said = [
        *task.messages,
        call("write_note", text="it is 4711"),
        Message(role="tool", tool_call_id="call_write_note", content='{"notes_kept": 1}'),
    ]
    noted = [*said, call("read_notes"), Message(role="tool", tool_call_id="call_read_notes", content='{"notes": ["it is 4711"]}')]
    answer = Message(role="assistant", content="It is 4711.")
    verdict = judge(WORLDS["retail"], task, [*noted, answer], {})
    assert verdict.checks["known_tools"] and verdict.checks["facts"] and not verdict.checks["grounded_answer"] and verdict.reward == 0
    shown = [*task.messages, call("get_order", order="o01"), Message(role="tool", tool_call_id="call_get_order", content='{"price": 4711}')]
    assert judge(WORLDS["retail"], task, [*shown, answer], {}).checks["grounded_answer"]


def test_of_a_mark_only_the_total_is_a_source() -> None:
    task = in_context(WORLDS["retail"], admitted("retail", 20)[0], SHORT)
    rows = [{"order": "o01"}, "[read_more id=r1 from=3: 17 of 23 items hidden]"]
    result = Message(role="tool", tool_call_id="call_list_orders", content=json.dumps(rows))
    shown = [Message(role="user", content="How many?"), call("list_orders", user="u17"), result]

    def is_grounded(text: str) -> bool:
        return judge(WORLDS["retail"], question(task, "1"), [*shown, Message(role="assistant", content=text)], {}).checks["grounded_answer"]

    assert is_grounded("There are 23 orders.") and not is_grounded("There are 17 orders.") and not is_grounded("There are 13 orders.")
    assert not is_grounded("The price is 17 dollars.")


def test_a_tool_that_the_context_does_not_add_is_unknown() -> None:
    task = in_context(WORLDS["retail"], admitted("retail", 20)[0], SHORT)
    answer = Message(role="assistant", content="Done.")
    assert judge(WORLDS["retail"], task, [*task.messages, call("read_more", id="r1"), answer], {}).checks["known_tools"]
    assert not judge(WORLDS["retail"], task, [*task.messages, call("read_notes"), answer], {}).checks["known_tools"]


@pytest.mark.parametrize("name", ["retail", "library"])
def test_no_exploit_has_a_reward_though_it_reads_and_notes_everything(name: str) -> None:
    world, tried = WORLDS[name], 0
    for task in admitted(name, 40 if name == "retail" else 120)[::4]:
        viewed = in_context(world, task, EVERYTHING)
        plays = exploits(world, viewed, lambda calls, viewed=viewed: play_calls(world, viewed, calls, "", None).messages)  # type: ignore[misc]
        for exploit, calls, answer in plays:
            notes = [Call(tool="write_note", arguments={"text": answer[:200] or "x"}), Call(tool="read_notes")]
            tried += 1
            assert play_calls(world, viewed, [*calls, *notes], answer, None).verdict.reward == 0 or viewed.success.refusal, exploit
    assert tried >= 10


# ---- tools ------------------------------------------------------------------------------------------------------------------------


def test_the_tools_on_offer_are_a_cluster_with_those_of_the_request_and_so_many_others() -> None:
    world = WORLDS["library"]
    clusters = [cluster.tool_names for cluster in cluster_tools(world.tools)]
    for task in admitted("library", 120)[::5]:
        cut = in_context(world, task, PolicyContext(tool_scope="cluster"))
        wider = in_context(world, task, PolicyContext(tool_scope=3))
        assert any(set(cut.tools) >= cluster & set(task.tools) for cluster in clusters)
        assert {call.tool for call in task.plan.calls} <= set(cut.tools) < set(task.tools)
        assert set(wider.tools) > set(cut.tools) and len(wider.tools) == min(len(cut.tools) + 3, len(task.tools))
        assert [name for name in task.tools if name in cut.tools] == list(cut.tools)


def test_the_tool_of_a_refused_request_stays_on_offer() -> None:
    """Else the right refusal would be that the tool is missing."""
    world = WORLDS["library"]
    refused = [task for task in admitted("library", 120) if task.success.refusal in ("rule", "missing_information")]
    about = [(task, getattr(world.intents[task.intent], "act", None)) for task in refused]
    named = [(task, act.name) for task, act in about if act is not None and act.name in task.tools]
    assert len(named) >= 3
    assert all(act in in_context(world, task, PolicyContext(tool_scope="cluster")).tools for task, act in named)


class NoteWorld(WORLDS["retail"]):  # type: ignore[misc]
    """A shop with a tool of the name of one of the context's."""

    tools: ClassVar[tuple[Tool, ...]] = (
        *WORLDS["retail"].tools,
        Tool(name="write_note", description="Writes.", parameters={"properties": {}}, server="shop", domain="retail"),
    )


def test_a_world_with_a_tool_of_the_same_name_keeps_it() -> None:
    task = admitted("retail", 20)[0]
    with pytest.raises(BadInput, match=r"has a tool write_note of its own.*train\.context"):
        in_context(NoteWorld, task, PolicyContext(notes=True))
    assert "read_more" in in_context(NoteWorld, task, SHORT).tools


# ---- rollouts -----------------------------------------------------------------------------------------------------------------------


def test_a_rollout_sees_what_the_expert_saw() -> None:
    """Given an engine that says what the expert said, then all results are equal, and the rollout succeeds."""
    task, world = reading(EVERYTHING), WORLDS["library"]
    expert, episode = expert_messages(world, task), Episode(reading(EVERYTHING), 0, 8)
    episode.kind = world
    for message in expert[len(task.messages) :]:
        if message.role == "assistant":
            episode.step(ChatAnswer(message, "tool_calls" if message.tool_calls else "stop"))
    assert episode.outcome is Outcome.SUCCESS and episode.messages == expert
    assert any(without_reminder(message.content or "") != message.content for message in expert if message.role == "tool")
    assert [tool.name for tool in tools_of(world, task)] == list(task.tools)
    assert open_world(world, task).changes() == {}


# ---- conversations ------------------------------------------------------------------------------------------------------------------


def test_conversations_go_on_in_their_context() -> None:
    world, read = WORLDS["retail"], 0
    for task in conversation_tasks("retail", 40)[::2]:
        viewed = in_context(world, task, EVERYTHING)
        trajectory = expert_trajectory(world, viewed)
        assert trajectory.outcome is Outcome.SUCCESS
        read += "read_more" in calls_of(trajectory.messages)
        assert without_context(viewed).model_copy(update={"id": task.id}) == task
    assert read


def test_reading_notes_again_is_no_second_look() -> None:
    """Given a user who asks to double-check, when the assistant reads its notes again instead, then it did not do what was asked."""
    world = WORLDS["retail"]
    tasks = [task for task in conversation_tasks("retail", 40) if any(node.is_check for node in blueprint_of(task).nodes)]
    for task in tasks:
        viewed = in_context(world, task, PolicyContext(notes=True))
        seen = list[str]()

        def act(messages: Sequence[Message], tools: Sequence[Tool], expert: Sequence[Message], seen: list[str] = seen) -> Message:
            planned = expert[len(messages)]
            for one in planned.tool_calls:
                key = f"{one.function.name} {one.function.arguments}"
                if key in seen:
                    note = one.model_copy(update={"function": FunctionCall(name="read_notes", arguments="{}")})
                    return planned.model_copy(update={"tool_calls": (note,)})
                seen.append(key)
            return planned

        expert = expert_trajectory(world, viewed).messages
        _, play = run_conversation(world, viewed, lambda messages, tools, expert=expert, act=act: act(messages, tools, expert))  # type: ignore[misc]
        assert not play.passed and not all(holds for name, holds in play.checks.items() if name.endswith("asked_for"))
    assert tasks
