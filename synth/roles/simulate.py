"""Simulates a blueprint: an executed, verified, multi-turn trajectory.

The user speaks and the assistant calls tools until it answers, until the script ends or a limit is reached. Then the observer and the
judge accept the conversation, or reject it with a reason. The outcome names the part that failed: `user_failure` (the user left its script
or stopped early), `infra_failure` (an engine did not answer), `tool_failure`, `judge_failure`; such a conversation gets no reward. Any
other failure is the assistant's, also that it never ends its turn.

Also here: trajectories as rows of the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from storage.conversation import Turn, derive_turns
from storage.records import JSON, Cost, Message, Outcome, Task, Tool, Trajectory, canonical_json, content_id
from storage.tables import TABLES
from synth.blueprints.blueprint import MAX_USER_TURNS, Bands, Blueprint
from synth.blueprints.diversity import Profile, coarse_mode, complexity, fine_mode, tools_used
from synth.engines.base import EngineFailure
from synth.roles.base import Assistant, Grades, JudgeVerdict, RoleFailed, User
from synth.roles.observer import Transcript, observe
from synth.roles.scripted import LEAST_GRADE, ScriptedAssistant, ScriptedUser, scripted_grades
from synth.roles.world_tools import WorldTools
from synth.worlds import WORLDS

VERSION = 6
Judge = Callable[[Blueprint, Sequence[Tool], Sequence[Message]], JudgeVerdict]
"""Grades a conversation of a blueprint with these tools."""
MAX_STEPS_PER_TURN = 20


@dataclass(frozen=True, slots=True)
class Simulated:
    """An executed conversation.

    accepted: whether all checks hold.
    reason: empty if accepted, else the first check that failed, or the outcome if a part other than the assistant failed.
    grades: the judge's; None if it gave none.
    user_turns: number of user turns, and how many of them followed the script at the first try.
    criteria: the model judge's criteria, by dimension.
    failure: message of the failure of a part other than the assistant; empty if there was none.
    """

    trajectory: Trajectory
    profile: Profile
    accepted: bool
    reason: str
    grades: Grades | None
    user_turns: tuple[int, int] = (0, 0)
    criteria: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failure: str = ""

    def with_cost(self, more: Cost) -> Simulated:
        """A copy whose trajectory costs so much more."""
        return replace(self, trajectory=self.trajectory.model_copy(update={"cost": self.trajectory.cost + more}))


def simulate(
    blueprint: Blueprint,
    *,
    user: Callable[[Blueprint], User] | None = None,
    assistant: Callable[[Blueprint], Assistant] | None = None,
    judge: Judge | None = None,
) -> Simulated:
    """Executes a blueprint's conversation in its world. Roles that are not given are scripted; with scripted roles alone, the same
    blueprint gives the same bytes.

    judge: asked only if every check by code holds.

    Raises:
        BudgetSpent: the budget is used up.
    """
    tools = {tool.name: tool for tool in offered_tools(blueprint)}
    speaker: User = user(blueprint) if user is not None else ScriptedUser(blueprint.turns)
    actor: Assistant = assistant(blueprint) if assistant is not None else ScriptedAssistant(blueprint)
    transcript, failed = _converse(blueprint, speaker, actor, tuple(tools.values()))
    checks: dict[str, bool] = {}
    grades: Grades | None = None
    verdict: JudgeVerdict | None = None
    if failed is None:
        checks, extra = observe(WORLDS[blueprint.world], blueprint, transcript, tools)
        grades = scripted_grades(blueprint.language, checks, extra, transcript.messages)
        checks["judge"] = grades.least >= LEAST_GRADE
        if judge is not None:
            grades = None
            if all(checks.values()):
                try:
                    verdict = judge(blueprint, tuple(tools.values()), transcript.messages)
                    grades = verdict.grades
                    checks["judge"] = grades.least >= LEAST_GRADE
                except (EngineFailure, RoleFailed) as error:
                    failed = error
    reason, outcome = reason_and_outcome(checks, transcript, failed)
    judge_cost = verdict.cost if verdict is not None else failed.cost if isinstance(failed, RoleFailed) else Cost()
    trajectory = Trajectory(
        id=trajectory_id(blueprint.id, actor.name, transcript.messages),
        task_id="",
        messages=transcript.messages,
        outcome=outcome,
        reward=float(not reason) if outcome.is_rated else None,
        checks=checks,
        teacher=actor.name,
        cost=actor.cost + speaker.cost + judge_cost,
    )
    shape = profile(blueprint.world, blueprint.domain, transcript.turns, tools)
    criteria = verdict.criteria if verdict is not None else {}
    return Simulated(trajectory, shape, not reason, reason, grades, speaker.turns, criteria, str(failed or ""))


def offered_tools(blueprint: Blueprint) -> list[Tool]:
    """The tools that the assistant sees."""
    return [tool for tool in WORLDS[blueprint.world].tools if tool.name in blueprint.tools]


def _converse(
    blueprint: Blueprint, user: User, assistant: Assistant, tools: tuple[Tool, ...]
) -> tuple[Transcript, EngineFailure | RoleFailed | None]:
    """The conversation, and the failure that ended it, if any."""
    world = WORLDS[blueprint.world](blueprint.world_seed)
    box, changes = WorldTools(world, blueprint), list[Mapping[str, JSON]]()
    messages = [Message(role="system", content=opening)] if (opening := world.system_prompt) else []
    failed: EngineFailure | RoleFailed | None = None
    try:
        for _ in range(MAX_USER_TURNS):
            text = user.speak(messages)
            if text is None:
                break
            messages.append(Message(role="user", content=text))
            if not _assistant_turn(assistant, box, tools, messages):
                break
            changes.append(world.changes())
    except (EngineFailure, RoleFailed) as error:
        failed = error
    finally:
        world.close()
    return Transcript(tuple(messages), derive_turns(messages), tuple(changes), frozenset(box.injected)), failed


def _assistant_turn(assistant: Assistant, box: WorldTools, tools: tuple[Tool, ...], messages: list[Message]) -> bool:
    """Appends the assistant's messages and the results of its calls. Returns whether it ended its turn within the limit."""
    for _ in range(MAX_STEPS_PER_TURN):
        answer = assistant.act(messages, tools)
        messages.append(answer)
        if not answer.tool_calls:
            return True
        messages += [box.run(call) for call in answer.tool_calls]
    return False


def reason_and_outcome(
    checks: Mapping[str, bool], transcript: Transcript, failed: EngineFailure | RoleFailed | None
) -> tuple[str, Outcome]:
    """Why a conversation is not accepted (empty if it is), and its outcome."""
    if failed is not None:
        outcome = failed.outcome if isinstance(failed, RoleFailed) else Outcome.INFRA_FAILURE
        return outcome.value, outcome
    reason = next((name for name, holds in checks.items() if not holds), "")
    user_stopped = not checks["complete"] and len(transcript.changes) == len(transcript.turns)
    return reason, Outcome.SUCCESS if not reason else Outcome.USER_FAILURE if user_stopped else Outcome.POLICY_FAILURE


def profile(world: str, domain: str, turns: Sequence[Turn], tools: Mapping[str, Tool]) -> Profile:
    """The properties by which diversity is measured."""
    return Profile(
        world=world,
        domain=domain,
        coarse=coarse_mode(turns),
        fine=fine_mode(turns),
        complexity=round(complexity(turns, tools), 6),
        tools=tuple(tools_used(turns)),
    )


def trajectory_id(made_for: str, teacher: str, messages: Sequence[Message]) -> str:
    """The id of a trajectory. made_for: id of its blueprint or task."""
    return content_id("trajectory", made_for, teacher, [message.to_openai() for message in messages])


# ---- rows of the store ------------------------------------------------------------------------------------------------


def trajectories_frame(trajectories: Sequence[Trajectory], tasks: Sequence[Task]) -> pl.DataFrame:
    """Rows of table `trajectories` for trajectories of tasks, each with its task."""
    rows = []
    for trajectory, task in zip(trajectories, tasks, strict=True):
        tools = {tool.name: tool for tool in WORLDS[task.world].tools}
        shape = profile(task.world, WORLDS[task.world].intents[task.intent].domain, derive_turns(trajectory.messages), tools)
        about = {
            "task_id": task.id,
            "blueprint_id": task.blueprint_id,
            "query_id": task.query_id,
            "accepted": trajectory.outcome is Outcome.SUCCESS,
            "reason": next((name for name, holds in trajectory.checks.items() if not holds), None),
        }
        rows.append(_row(trajectory, shape, task) | about)
    return pl.DataFrame(rows, schema=TABLES["trajectories"].columns)


def simulated_frame(simulated: Sequence[tuple[Blueprint, Simulated, Task | None]], bands: Bands | None) -> pl.DataFrame:
    """Rows of table `trajectories` for simulated conversations. The task is that of the conversation, if it was admitted.

    bands: None while calibrating; then no row is accepted, with the reason `calibration`.
    """
    rows = []
    for blueprint, one, task in simulated:
        about = {
            "task_id": None if task is None else task.id,
            "blueprint_id": blueprint.id,
            "cluster_id": blueprint.cluster_id,
            "accepted": one.accepted and bands is not None,
            "reason": one.reason or (None if bands is not None else "calibration"),
            "complexity_band": None if bands is None else bands.band(one.profile.complexity),
        }
        rows.append(_row(one.trajectory, one.profile, blueprint) | about)
    return pl.DataFrame(rows, schema=TABLES["trajectories"].columns)


def _row(trajectory: Trajectory, shape: Profile, plan: Task | Blueprint) -> dict[str, JSON]:
    """The columns that every trajectory has."""
    return {
        "trajectory_id": trajectory.id,
        "world": plan.world,
        "world_seed": plan.world_seed,
        "language": plan.language,
        "domain": shape.domain,
        "teacher": trajectory.teacher,
        "outcome": trajectory.outcome.value,
        "reward": trajectory.reward,
        "mode_coarse": shape.coarse,
        "mode_fine": shape.fine,
        "complexity": shape.complexity,
        "tools_used": list(shape.tools),
        "messages": json.dumps([message.to_openai() for message in trajectory.messages], ensure_ascii=False),
        "checks": canonical_json(trajectory.checks),
        "prompt_tokens": trajectory.cost.prompt_tokens,
        "completion_tokens": trajectory.cost.completion_tokens,
        "cost_usd": trajectory.cost.usd,
    }
