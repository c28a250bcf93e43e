"""A task as its policy is to see it: with the tools cut to what its request is about, and the context's own tools beside them.

One idea: a task in a context is a task of its own, with an id of its own, and is admitted anew: its expert passes with what it reads on
(`synth/tasks/context_expert.py`), in the messages that a rollout may have, and no exploit has a reward, though it reads everything that was
hidden and launders its words through notes.

The tools of a request are those of its plan, of its intent's shape, and the one that a refused request is about; what is kept is the
smallest business cluster of the world with all of them. Which others are drawn, and the cluster of a request that is about no tool, follow
from the task's id. Conversations of a blueprint are offered a cluster already.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from storage.context.context_tools import WRITE_NOTE, added_tools
from storage.context.settings import PolicyContext
from storage.errors import BadInput
from storage.records import CODE_TOOL, Call, Message, Task, content_id
from synth.clusters.business_clusters import cluster_tools
from synth.conversations.conversation_play import MAX_STEPS_PER_TURN, ConversationPlay, blueprint_of, run_conversation
from synth.roles.scripted import ScriptedAssistant
from synth.tasks.context_expert import Pages, Played, Reader, play_calls, play_plan, read_least
from synth.tasks.exploits import ALWAYS_REFUSE, exploits
from synth.tasks.solver import NotAdmitted
from synth.worlds.base import World, cached_per_world

_ALL_STEPS = 200
"""Messages of the assistant in a turn in which it reads everything."""


def in_context(world: type[World], task: Task, context: PolicyContext) -> Task:
    """The task in a context, admitted; the task itself if the context changes nothing.

    world: the task's.

    Raises:
        NotAdmitted: the expert does not pass in this context, or an exploit does.
        BadInput: the world has a tool of the same name as one of the context's.
    """
    if not context.is_on:
        return task
    own = added_tools(context)
    if taken := {tool.name for tool in world.tools}.intersection(own):
        raise BadInput(f"world {world.name} has a tool {min(taken)} of its own: switch the context's off (train.context)")
    tools = (*scoped_tools(world, task, context), *own)
    update = {"id": content_id("task", task.id, context.model_dump(mode="json")), "tools": tools, "context": context}
    if task.conversation is not None:
        update["conversation"] = {**task.conversation, "tools": list(tools)}
    viewed = task.model_copy(update=update)
    _check_expert(world, viewed)
    if viewed.conversation is None:
        _check_exploits(world, viewed)
    return viewed


def without_context(task: Task) -> Task:
    """A task as it was before `in_context`, but for its id and for tools that were cut from a task with one request."""
    if task.context is None:
        return task
    own = added_tools(task.context)
    tools = tuple(name for name in task.tools if name not in own)
    conversation = None if task.conversation is None else {**task.conversation, "tools": list(tools)}
    return task.model_copy(update={"tools": tools, "conversation": conversation, "context": None})


def play_expert(world: type[World], task: Task) -> Played[ConversationPlay]:
    """The scripted assistant's conversation of a task whose user goes on, with as few pages as it needs in the task's context."""
    notes = task.context is not None and task.context.notes

    def play(pages: Pages) -> Played[ConversationPlay]:
        reader = Reader(ScriptedAssistant(blueprint_of(task)).act, pages, writes_notes=notes)
        steps = _ALL_STEPS if pages is None else MAX_STEPS_PER_TURN
        messages, verdict = run_conversation(world, task, reader.act, max_steps=steps)
        return Played(messages, dict(reader.read), verdict.passed, verdict)

    return read_least(play)


def _check_expert(world: type[World], task: Task) -> None:
    played: Played[Any] = play_plan(world, task) if task.conversation is None else play_expert(world, task)
    if not played.passed:
        raise NotAdmitted("expert_fails", "in its context")
    if (most := _most_messages(played.messages)) > MAX_STEPS_PER_TURN:
        raise NotAdmitted("too_long_in_context", f"{most} messages of the assistant")


def _most_messages(messages: Sequence[Message]) -> int:
    """Most messages of the assistant in one user turn."""
    counts = [0]
    for message in messages:
        counts += [0] * (message.role == "user")
        counts[-1] += message.role == "assistant"
    return max(counts)


def _check_exploits(world: type[World], task: Task) -> None:
    def look(calls: Sequence[Call]) -> Sequence[Message]:
        return play_calls(world, task, calls, "", None).messages[len(task.messages) :]

    for name, calls, answer in exploits(world, task, look):
        noted = [Call(tool=WRITE_NOTE, arguments={"text": answer[:100]}), Call(tool="read_notes")] if WRITE_NOTE in task.tools else []
        if name == ALWAYS_REFUSE and task.success.refusal:
            continue
        if play_calls(world, task, [*calls, *noted], answer, None).verdict.reward > 0:
            raise NotAdmitted("reward_hack", name)


# ---- tools on offer -------------------------------------------------------------------------------------------------------------


def scoped_tools(world: type[World], task: Task, context: PolicyContext) -> tuple[str, ...]:
    """The names of the task's tools that are kept on offer, in their order."""
    if context.tool_scope == "world" or task.conversation is not None:
        return task.tools
    needed = _needed_tools(world, task)
    kept = _cluster_of(world, task, needed) | needed
    if context.tool_scope != "cluster":
        others = [name for name in task.tools if name not in kept and name != CODE_TOOL]
        random.Random(f"tools/{task.id}").shuffle(others)
        kept |= frozenset(others[: context.tool_scope])
    return tuple(name for name in task.tools if name in kept)


def _needed_tools(world: type[World], task: Task) -> frozenset[str]:
    """The tools that a request is about, also one that it is refused."""
    intent = world.intents[task.intent]
    about = getattr(getattr(intent, "act", None), "name", "")
    names = {about, *(call.tool for call in task.plan.calls), *intent.shape(frozenset(task.slots)).tools}
    return frozenset(names).intersection(task.tools)


def _cluster_of(world: type[World], task: Task, needed: frozenset[str]) -> frozenset[str]:
    """The smallest of the world's clusters with the most of these tools; for none of them, one by the task's id."""
    clusters = _clusters(world)
    if not clusters:
        return frozenset(task.tools)
    if not needed - {CODE_TOOL}:
        return random.Random(f"cluster/{task.id}").choice(clusters)
    return max(clusters, key=lambda names: (len(needed & names), -len(names)))


@cached_per_world()
def _clusters(world: type[World]) -> tuple[frozenset[str], ...]:
    return tuple(cluster.tool_names for cluster in cluster_tools(world.tools))
