"""From a blueprint to an executed, verified, multi-turn trajectory.

The loop is the roles' conversation and nothing else: the user speaks, the assistant calls tools until it answers, until the user has no
more to say or a limit is reached. Then the observer and the judge say whether it is accepted, and why not. Whose fault a failure is
decides the outcome: an exception of a world is an `infra_failure`, a user that leaves its plan a `user_failure`, all else the
assistant's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from storage.records import JSON, Cost, Message, Outcome, Tool, Trajectory, content_id, derive_turns
from synth.blueprints import Blueprint
from synth.diversity import Profile, coarse_mode, complexity, fine_mode, tools_used
from synth.roles.assistant import ScriptedAssistant
from synth.roles.base import Assistant, Grades, User
from synth.roles.judge import LEAST_GRADE, ScriptedJudge
from synth.roles.observer import Seen, extra_calls, observe
from synth.roles.tools import WorldTools
from synth.roles.user import ScriptedUser
from synth.worlds import WORLDS

VERSION = 1
MAX_USER_TURNS = 10
MAX_STEPS_PER_TURN = 20


@dataclass(frozen=True, slots=True)
class Simulated:
    """A conversation that was run. reason: empty if accepted, else the first check that failed."""

    trajectory: Trajectory
    profile: Profile
    accepted: bool
    reason: str
    grades: Grades


def simulate(
    blueprint: Blueprint,
    *,
    user: Callable[[Blueprint], User] | None = None,
    assistant: Callable[[Blueprint], Assistant] | None = None,
) -> Simulated:
    """Runs a blueprint's conversation in its world. Without other roles the scripted ones: then the same blueprint gives the same bytes."""
    tools = {tool.name: tool for tool in WORLDS[blueprint.world].tools if tool.name in blueprint.tools}
    talker = user(blueprint) if user is not None else ScriptedUser(blueprint.turns)
    worker = assistant(blueprint) if assistant is not None else ScriptedAssistant(blueprint)
    box = WorldTools(blueprint)
    try:
        messages, changes = _converse(talker, worker, box, tuple(tools.values()))
    finally:
        box.world.close()
    seen = Seen(tuple(messages), derive_turns(messages), tuple(changes), frozenset(box.injected))
    return _judged(blueprint, seen, tools, worker.name)


def _converse(user: User, assistant: Assistant, box: WorldTools, tools: tuple[Tool, ...]) -> tuple[list[Message], list[Mapping[str, JSON]]]:
    """The messages, and what had changed in the world whenever the assistant ended its turn."""
    prompt = box.world.system_prompt
    messages = [Message(role="system", content=prompt)] if prompt else []
    changes: list[Mapping[str, JSON]] = []
    for _ in range(MAX_USER_TURNS):
        text = user.speak(messages)
        if text is None:
            break
        messages.append(Message(role="user", content=text))
        for _ in range(MAX_STEPS_PER_TURN):
            answer = assistant.act(messages, tools)
            messages.append(answer)
            if not answer.tool_calls:
                changes.append(box.world.changes())
                break
            messages += [box.run(call) for call in answer.tool_calls]
    return messages, changes


def _judged(blueprint: Blueprint, seen: Seen, tools: Mapping[str, Tool], teacher: str) -> Simulated:
    checks = observe(blueprint, seen, tools)
    calls = [call for turn in seen.turns for step in turn.steps for call in step.calls]
    grades = ScriptedJudge(blueprint.language, checks, extra_calls(blueprint, calls, seen.injected)).grade(seen.messages)
    checks["judge"] = grades.least >= LEAST_GRADE
    reason = next((name for name, holds in checks.items() if not holds), "")
    trajectory = Trajectory(
        id=content_id("trajectory", blueprint.id, teacher, [message.to_openai() for message in seen.messages]),
        task_id="",
        messages=seen.messages,
        outcome=Outcome.POLICY_FAILURE if reason else Outcome.SUCCESS,
        reward=0.0 if reason else 1.0,
        checks=checks,
        teacher=teacher,
        cost=Cost(),
    )
    profile = Profile(
        domain=blueprint.domain,
        coarse=coarse_mode(seen.turns),
        fine=fine_mode(seen.turns),
        complexity=round(complexity(seen.turns, tools), 6),
        tools=tuple(tools_used(seen.turns)),
    )
    return Simulated(trajectory, profile, not reason, reason, grades)
