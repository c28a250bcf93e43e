"""Accepted conversations of a world, their tasks, and assistants that play them otherwise than the plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

from storage.records import Message, Task, Tool, ToolCall
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import cluster_tools
from synth.conversations.conversation_play import ConversationPlay, blueprint_of, run_conversation
from synth.conversations.conversation_task import conversation_task
from synth.roles.scripted import ScriptedAssistant
from synth.roles.simulate import Simulated, simulate
from synth.run.proposals import is_plain
from synth.tasks.split import STANDARD, division
from synth.worlds import WORLDS

Edit = Callable[[int, Message], Message]
"""(number of the user's turn, what the scripted assistant says) -> what is said instead."""


def is_seed(frame: str) -> bool:
    return division(frame, STANDARD) == "seed"


@cache
def accepted(world: str, count: int = 40, seed: int = 0) -> tuple[tuple[Blueprint, Simulated], ...]:
    """Accepted conversations in English that are more than one plain goal."""
    clusters = [cluster for cluster in cluster_tools(WORLDS[world].tools) if cluster.world]
    rng, planner, made = random.Random(seed), Planner(is_seed, chinese_share=0.0), list[tuple[Blueprint, Simulated]]()
    while len(made) < count:
        try:
            blueprint = planner.draw_unsteered(rng.choice(clusters), rng)
        except PlanFailed:
            continue
        simulated = simulate(blueprint)
        if simulated.accepted and not is_plain(blueprint):
            made.append((blueprint, simulated))
    return tuple(made)


@cache
def tasks(world: str, count: int = 40) -> tuple[Task, ...]:
    return tuple(conversation_task(WORLDS[world], blueprint, division="seed") for blueprint, _ in accepted(world, count))


def play(task: Task, edit: Edit = lambda _, message: message) -> tuple[tuple[Message, ...], ConversationPlay]:
    """The task played by the scripted assistant, with its messages edited."""
    scripted = ScriptedAssistant(blueprint_of(task))

    def act(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        turn = sum(message.role == "user" for message in messages) - 1
        return edit(turn, scripted.act(messages, tools))

    return run_conversation(WORLDS[task.world], task, act)


def renamed(call: ToolCall, tool: str) -> ToolCall:
    return call.model_copy(update={"function": call.function.model_copy(update={"name": tool})})
