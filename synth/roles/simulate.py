"""From a blueprint to an executed, verified, multi-turn trajectory.

The loop is the roles' conversation and nothing else: the user speaks, the assistant calls tools until it answers, until the user has no
more to say or a limit is reached. Then the observer and the judge say whether it is accepted, and why not. Whose fault a failure is
decides the outcome: a conversation that the user broke off, or in which it left its script, is a `user_failure`, one that an engine did not
answer an `infra_failure`, one whose tool could not be run a `tool_failure`, one whose judge gave no verdict a `judge_failure`; nobody is
graded for these. All else is the assistant's, who may also never end its turn.

Here too: the scripted teacher's trajectory of a task, and trajectories as rows of the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from storage.conversation import Turn, derive_turns
from storage.errors import HeadraceError
from storage.records import CODE_TOOL, JSON, Cost, Message, Outcome, Task, Tool, Trajectory, canonical_json, content_id
from storage.tables import TABLES
from synth.blueprints.blueprint import MAX_USER_TURNS, Bands, Blueprint
from synth.blueprints.diversity import Profile, coarse_mode, complexity, fine_mode, tools_used
from synth.engines.base import EngineFailure
from synth.roles.base import Assistant, Graded, Grades, RoleFailed, User
from synth.roles.observer import Keys, Seen, extra_calls, observe
from synth.roles.scripted import LEAST_GRADE, TEACHER, ScriptedAssistant, ScriptedJudge, ScriptedUser
from synth.roles.world_tools import WorldTools
from synth.tasks.solver import expert_messages
from synth.tasks.verify import verify_teacher
from synth.worlds import WORLDS
from synth.worlds.base import World

VERSION = 5
Judging = Callable[[Blueprint, Sequence[Tool], Sequence[Message]], Graded]
"""Grades a conversation of a blueprint with these tools."""
MAX_STEPS_PER_TURN = 20


@dataclass(frozen=True, slots=True)
class Simulated:
    """A conversation that was run.

    reason: empty if accepted, else the first check that failed, or the outcome where something other than the assistant failed; failure:
    then what, in words. grades: None where nobody gave any. user_turns: what the user said, and what of it kept to the script at once.
    criteria: the judge's, where it set any.
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
        """The same, where the trajectory has cost so much more."""
        return replace(self, trajectory=self.trajectory.model_copy(update={"cost": self.trajectory.cost + more}))


def simulate(
    blueprint: Blueprint,
    *,
    user: Callable[[Blueprint], User] | None = None,
    assistant: Callable[[Blueprint], Assistant] | None = None,
    judge: Judging | None = None,
) -> Simulated:
    """Runs a blueprint's conversation in its world. Without other roles the scripted ones: then the same blueprint gives the same bytes.

    judge: asked where every check by code holds.

    Raises:
        BudgetSpent: nothing more may be asked of an engine.
    """
    world = WORLDS[blueprint.world]
    tools = {tool.name: tool for tool in offered_tools(blueprint)}
    talker = user(blueprint) if user is not None else ScriptedUser(blueprint.turns)
    worker = assistant(blueprint) if assistant is not None else ScriptedAssistant(blueprint)
    box, messages, changes = WorldTools(world(blueprint.world_seed), blueprint), list[Message](), list[Mapping[str, JSON]]()
    failed: EngineFailure | RoleFailed | None = None
    graded: Graded | None = None
    found: dict[str, bool] = {}
    grades: Grades | None = None
    try:
        opening = box.world.system_prompt
        messages += [Message(role="system", content=opening)] if opening else []
        converse(talker, worker, box, tuple(tools.values()), messages, lambda: changes.append(box.world.changes()))
    except (EngineFailure, RoleFailed) as error:
        failed = error
    finally:
        box.world.close()
    seen = Seen(tuple(messages), derive_turns(messages), tuple(changes), frozenset(box.injected))
    if failed is None:
        found, grades = _observed(world, blueprint, seen, tools)
        if judge is not None:
            grades = None
            graded, failed = judged(found, lambda: judge(blueprint, tuple(tools.values()), seen.messages))
    shape = profile(blueprint.world, blueprint.domain, seen.turns, tools)
    return concluded(blueprint.id, talker, worker, seen, shape, found, failed=failed, graded=graded, grades=grades)


def judged(checks: Mapping[str, bool], grade: Callable[[], Graded]) -> tuple[Graded | None, EngineFailure | RoleFailed | None]:
    """A judge's verdict where all checks hold, or what kept it from giving one."""
    if not all(checks.values()):
        return None, None
    try:
        return grade(), None
    except (EngineFailure, RoleFailed) as error:
        return None, error


def concluded(
    made_for: str,
    user: User,
    assistant: Assistant,
    seen: Seen,
    shape: Profile,
    checks: Mapping[str, bool],
    *,
    failed: EngineFailure | RoleFailed | None,
    graded: Graded | None,
    grades: Grades | None = None,
) -> Simulated:
    """What came of a conversation, at the cost of its user, its assistant and its judge.

    Args:
        made_for: id of its plan. checks: by code.
        failed: what ended it, or kept its judge from a verdict. graded: that verdict; grades: of a judge that is no model.
    """
    found = dict(checks) if graded is None else {**checks, "judge": graded.grades.least >= LEAST_GRADE}
    reason, outcome = verdict(found, seen, failed)
    judging = graded.cost if graded is not None else failed.cost if isinstance(failed, RoleFailed) else Cost()
    trajectory = Trajectory(
        id=trajectory_id(made_for, assistant.name, seen.messages),
        task_id="",
        messages=seen.messages,
        outcome=outcome,
        reward=float(not reason) if outcome.is_rated else None,
        checks=found,
        teacher=assistant.name,
        cost=assistant.cost + user.cost + judging,
    )
    return Simulated(
        trajectory=trajectory,
        profile=shape,
        accepted=not reason,
        reason=reason,
        grades=grades if graded is None else graded.grades,
        user_turns=user.turns,
        criteria={} if graded is None else graded.criteria,
        failure=str(failed or ""),
    )


def offered_tools(blueprint: Blueprint) -> list[Tool]:
    """The tools that the assistant sees."""
    return [tool for tool in WORLDS[blueprint.world].tools if tool.name in blueprint.tools]


def converse(
    user: User,
    assistant: Assistant,
    box: WorldTools,
    tools: tuple[Tool, ...],
    messages: list[Message],
    ended: Callable[[], None],
) -> None:
    """Fills in the messages. ended: called whenever the assistant has ended its turn.

    Raises:
        UserFailed, ToolsFailed, EngineFailure, BudgetSpent: as the roles do; what was said till then is in the messages.
    """
    for _ in range(MAX_USER_TURNS):
        text = user.speak(messages)
        if text is None:
            break
        messages.append(Message(role="user", content=text))
        for _ in range(MAX_STEPS_PER_TURN):
            answer = assistant.act(messages, tools)
            messages.append(answer)
            if not answer.tool_calls:
                ended()
                break
            messages += [box.run(call) for call in answer.tool_calls]
        else:
            break


def _observed(world: type[World], blueprint: Blueprint, seen: Seen, tools: Mapping[str, Tool]) -> tuple[dict[str, bool], Grades]:
    """All checks by code, the last of them the scripted judge's; and its grades."""
    keys = Keys.of(blueprint)
    extra = extra_calls(keys, [call for turn in seen.turns for step in turn.steps for call in step.calls], seen.injected)
    checks = observe(world, blueprint, keys, seen, tools, extra=extra)
    grades = ScriptedJudge(blueprint.language, checks, extra).grade(seen.messages)
    checks["judge"] = grades.least >= LEAST_GRADE
    return checks, grades


def verdict(checks: Mapping[str, bool], seen: Seen, failed: EngineFailure | RoleFailed | None) -> tuple[str, Outcome]:
    """The reason (empty where all is well) and the outcome."""
    if failed is not None:
        outcome = failed.outcome if isinstance(failed, RoleFailed) else Outcome.INFRA_FAILURE
        return outcome.value, outcome
    reason = next((name for name, holds in checks.items() if not holds), "")
    broken_off = not checks["complete"] and len(seen.changes) == len(seen.turns)
    return reason, Outcome.SUCCESS if not reason else Outcome.USER_FAILURE if broken_off else Outcome.POLICY_FAILURE


def profile(world: str, domain: str, turns: Sequence[Turn], tools: Mapping[str, Tool]) -> Profile:
    """What diversity is measured on."""
    return Profile(
        world=world,
        domain=domain,
        coarse=coarse_mode(turns),
        fine=fine_mode(turns),
        complexity=round(complexity(turns, tools), 6),
        tools=tuple(tools_used(turns)),
    )


def trajectory_id(made_for: str, teacher: str, messages: Sequence[Message]) -> str:
    """Of what was said and done for a blueprint or task (its id)."""
    return content_id("trajectory", made_for, teacher, [message.to_openai() for message in messages])


# ---- the scripted teacher of a task -----------------------------------------------------------------------------------


def expert_trajectory(world: type[World], task: Task) -> Trajectory:
    """The task's expert plan, executed and verified: `teacher = scripted`.

    Raises:
        HeadraceError: the plan does not pass `verify_teacher`, which an admitted task's plan always does.
    """
    messages = tuple(expert_messages(world, task))
    verified = verify_teacher(world, task, messages)
    if not verified.success:
        failed = ", ".join(name for name, holds in verified.checks.items() if not holds)
        raise HeadraceError(f"the expert plan of task {task.id} fails {failed}; was the world changed without a new version?")
    return Trajectory(
        id=trajectory_id(task.id, TEACHER, messages),
        task_id=task.id,
        messages=messages,
        outcome=Outcome.SUCCESS,
        reward=verified.reward,
        checks=verified.checks,
        teacher=TEACHER,
    )


def expert_profile(world: type[World], task: Task) -> Profile | None:
    """What the executed expert plan is like; None where the plan has a program, which is not run for this."""
    if any(call.tool == CODE_TOOL for call in task.plan.calls):
        return None
    tools = {tool.name: tool for tool in world.tools}
    return profile(task.world, world.intents[task.intent].domain, derive_turns(expert_messages(world, task)), tools)


# ---- rows of the store ------------------------------------------------------------------------------------------------


def trajectories_frame(trajectories: Sequence[Trajectory], tasks: Sequence[Task]) -> pl.DataFrame:
    """Rows of table `trajectories` for single-task trajectories, each with its task."""
    rows = []
    for trajectory, task in zip(trajectories, tasks, strict=True):
        tools = {tool.name: tool for tool in WORLDS[task.world].tools}
        found = profile(task.world, WORLDS[task.world].intents[task.intent].domain, derive_turns(trajectory.messages), tools)
        about = {
            "task_id": task.id,
            "blueprint_id": task.blueprint_id,
            "cluster_id": None,
            "query_id": task.query_id,
            "world": task.world,
            "world_seed": task.world_seed,
            "language": task.language,
            "accepted": trajectory.outcome is Outcome.SUCCESS,
            "reason": next((name for name, holds in trajectory.checks.items() if not holds), None),
            "complexity_band": None,
        }
        rows.append(trajectory_row(trajectory, found) | about)
    return pl.DataFrame(rows, schema=TABLES["trajectories"].columns)


def simulated_frame(made: Sequence[tuple[Blueprint, Simulated, Task | None]], bands: Bands | None) -> pl.DataFrame:
    """Rows of table `trajectories` for simulated conversations. The task is that of a single-goal one, if it was admitted.

    bands: None while calibrating; then nothing counts as accepted, for the reason `calibration`.
    """
    rows = []
    for blueprint, simulated, task in made:
        about = {
            "task_id": None if task is None else task.id,
            "blueprint_id": blueprint.id,
            "cluster_id": blueprint.cluster_id,
            "query_id": None,
            "world": blueprint.world,
            "world_seed": blueprint.world_seed,
            "language": blueprint.language,
            "accepted": simulated.accepted and bands is not None,
            "reason": simulated.reason or (None if bands is not None else "calibration"),
            "complexity_band": None if bands is None else bands.band(simulated.profile.complexity),
        }
        rows.append(trajectory_row(simulated.trajectory, simulated.profile) | about)
    return pl.DataFrame(rows, schema=TABLES["trajectories"].columns)


def trajectory_row(trajectory: Trajectory, found: Profile) -> dict[str, JSON]:
    """The columns that a trajectory and its profile determine."""
    return {
        "trajectory_id": trajectory.id,
        "domain": found.domain,
        "teacher": trajectory.teacher,
        "outcome": trajectory.outcome.value,
        "reward": trajectory.reward,
        "mode_coarse": found.coarse,
        "mode_fine": found.fine,
        "complexity": found.complexity,
        "tools_used": list(found.tools),
        "messages": json.dumps([message.to_openai() for message in trajectory.messages], ensure_ascii=False),
        "checks": canonical_json(trajectory.checks),
        "prompt_tokens": trajectory.cost.prompt_tokens,
        "completion_tokens": trajectory.cost.completion_tokens,
        "cost_usd": trajectory.cost.usd,
    }
