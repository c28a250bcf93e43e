"""Conversations over clusters that no world executes: an engine plans them, an engine plays the tools, and nothing is executed.

They are kept beside what was executed and never mixed with it: `world` is null in `blueprints` and `trajectories`, `round` is null, and
`is_simulated` is true in `provenance`. So no release of what was synthesised holds them, no controller counts them, and they give no task.
Since no world says whether a goal was reached, a judge has to, and without one there are none.

Work is cut into parts of ten conversations, whose ids follow from the clusters, the engines and the prompts: a run that was killed goes on
after the last whole part. What engines answered before is not asked again where they keep their answers (`synth/engines/answers.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

import polars as pl

from storage.errors import BadInput
from storage.records import Cost, Message, Tool, Trajectory, canonical_json, content_id
from storage.schema import TABLES
from storage.store import Part, Store, part_id
from storage.turns import derive_turns
from synth.blueprints import TurnPlan
from synth.clusters import Cluster
from synth.engines.base import Engine, EngineFailure
from synth.prompts import versions
from synth.roles import free_planner, model_judge, model_user, simulated_tools
from synth.roles.base import Graded, RoleFailed, User
from synth.roles.free_observer import observe_free
from synth.roles.free_plan import FreePlan, free_script
from synth.roles.free_planner import Brief, brief, drafted
from synth.roles.judge import LEAST_GRADE
from synth.roles.labelled import Agreement
from synth.roles.model_assistant import ModelAssistant
from synth.roles.model_judge import ModelJudge
from synth.roles.model_user import ModelUser
from synth.roles.observer import Seen
from synth.roles.simulated_tools import SimulatedTools
from synth.roles.user import ScriptedUser
from synth.signatures import is_offerable
from synth.simulate import Simulated, converse, profile, trajectory_id, trajectory_row, verdict

VERSION = 1
CONVERSATIONS_A_PART = 10
LEAST_TOOLS = 2
PROMPTS = (free_planner.PROMPT, simulated_tools.PROMPT, model_judge.CRITERIA_PROMPT, model_judge.PROMPT)
_TABLES = ("blueprints", "trajectories", "provenance")
_LONGEST_REASON = 300

Progress = Callable[[str, int, int], None]
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs conversations, results in order; `concurrent.futures.ThreadPoolExecutor` is of this form. Engines stay in this process."""

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any]) -> Iterator[Result]: ...


@dataclass(frozen=True, slots=True)
class Players:
    """Which engine plays which role. user: None for the planner's words as they are. agreement: of the judge on a labelled split, where
    it was measured."""

    planner: Engine
    assistant: Engine
    tools: Engine
    judge: Engine | None
    user: Engine | None = None
    agreement: Agreement | None = None

    @property
    def roles(self) -> dict[str, str]:
        """Names by role."""
        named = {"planner": self.planner, "user": self.user, "assistant": self.assistant, "tools": self.tools, "judge": self.judge}
        return {role: "scripted" if engine is None else engine.name for role, engine in named.items()}

    @property
    def prompts(self) -> Mapping[str, str]:
        """Versions of what the engines are told."""
        return versions(*PROMPTS, *([] if self.user is None else [model_user.PROMPT]))


@dataclass(frozen=True, slots=True)
class Unexecuted:
    """A committed run. outcomes: of all conversations asked for, counts by outcome, `unplanned` where no plan came about. reasons: of those
    not accepted, counts. left_out: clusters with too few tools whose signatures can be checked."""

    parts: tuple[str, ...]
    accepted: int
    outcomes: Mapping[str, int]
    reasons: Mapping[str, int]
    left_out: int


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a brief: a reason why there is no plan, or a conversation."""

    brief: Brief
    plan: FreePlan | None = None
    simulated: Simulated | None = None
    reason: str = ""

    @property
    def id(self) -> str:
        return self.plan.id if self.plan is not None else content_id("blueprint", "unplanned", self.brief.key)

    @property
    def status(self) -> str:
        if self.simulated is None:
            return "unplanned"
        return "accepted" if self.simulated.accepted else "rejected"


def simulate_clusters(
    store: Store,
    clusters: Sequence[Cluster],
    tools: Sequence[Tool],
    players: Players,
    n: int,
    *,
    seed: int = 0,
    chinese_share: float = 0.0,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Unexecuted:
    """Asks for `n` conversations over these clusters in turn, or for what is left of them, and commits them part by part.

    Args:
        clusters: those of no world. tools: the catalogue that they are of.
        executor: of threads; one conversation after another in this thread by default.

    Raises:
        BadInput: no judge, or no cluster that could be played; nothing was spent.
        BudgetSpent: nothing more may be asked of an engine; whole parts are committed.
    """
    if players.judge is None:
        raise BadInput("tools that no world executes need a judge: without one nobody could say whether a goal was reached")
    offers = playable(clusters, tools)
    if not offers:
        raise BadInput(
            f"of {len(clusters)} clusters of no world none has {LEAST_TOOLS} tools whose parameters can be checked; "
            "give the catalogue's tools JSON schemas"
        )
    briefs = [_brief(offers[at % len(offers)], at, seed, chinese_share) for at in range(n)]
    batches = [_Batch.of(briefs[start : start + CONVERSATIONS_A_PART], players, store) for start in range(0, n, CONVERSATIONS_A_PART)]
    missing = [one for batch in batches if not batch.is_there for one in batch.briefs]
    made = iter((map if executor is None else executor.map)(lambda one: play(one, players), missing))
    tally = _Tally(n, progress or (lambda label, done, total: None))
    parts: list[Part] = []
    for batch in batches:
        own = batch.parts if batch.is_there else batch.written(list(islice(made, len(batch.briefs))), players, store)
        store.commit(own)
        parts += own
        tally.add(*(pl.read_parquet(store.root / part.path) for part in own[:2]))
    named = tuple(part.part_id for part in parts)
    return Unexecuted(named, tally.accepted, dict(tally.outcomes), dict(tally.reasons), len(clusters) - len(offers))


def playable(clusters: Sequence[Cluster], tools: Sequence[Tool]) -> list[tuple[Cluster, tuple[Tool, ...]]]:
    """Clusters, each with those of its tools whose calls can be checked, where these are enough; best first."""
    wanted = {tool for cluster in clusters for tool in cluster.tool_ids}
    known = {tool.id: tool for tool in tools if tool.id in wanted and is_offerable(tool)}
    offers = [(cluster, tuple(known[tool] for tool in cluster.tool_ids if tool in known)) for cluster in clusters]
    return [(cluster, offered) for cluster, offered in sorted(offers, key=lambda offer: offer[0].rank) if len(offered) >= LEAST_TOOLS]


def _brief(offer: tuple[Cluster, tuple[Tool, ...]], at: int, seed: int, chinese_share: float) -> Brief:
    return brief(content_id("unexecuted", seed, at, offer[0].id), *offer, chinese_share)


# ---- one conversation ---------------------------------------------------------------------------------------------------


def play(wanted: Brief, players: Players) -> Played:
    """Plans one conversation and carries it out.

    Raises:
        BudgetSpent: nothing more may be asked of an engine.
    """
    try:
        draft = drafted(players.planner, wanted)
    except EngineFailure as failed:
        return Played(wanted, reason=f"infra_failure: {failed}"[:_LONGEST_REASON])
    if draft.plan is None:
        return Played(wanted, reason=f"no_plan: {draft.problems[0]}"[:_LONGEST_REASON])
    simulated = carry_out(draft.plan, wanted.tools, players, spent=draft.cost)
    return Played(wanted, draft.plan, simulated, simulated.reason)


def carry_out(plan: FreePlan, offered: Sequence[Tool], players: Players, *, spent: Cost) -> Simulated:
    """A plan's conversation with played tools: accepted where all that code can check holds, and the judge says so too.

    spent: what planning took, part of the conversation's cost. Raises as `play`.
    """
    tools = {tool.name: tool for tool in offered}
    user, box = _user(plan, tools, players), SimulatedTools(players.tools, offered, plan.id)
    worker, messages, ended = ModelAssistant(players.assistant, plan.id), list[Message](), list[Mapping[str, Any]]()
    failed: EngineFailure | RoleFailed | None = None
    graded: Graded | None = None
    found: dict[str, bool] = {}
    try:
        converse(user, worker, box, tuple(offered), messages, lambda: ended.append({}))
    except (EngineFailure, RoleFailed) as error:
        failed = error
    seen = Seen(tuple(messages), derive_turns(messages), tuple(ended), frozenset())
    if failed is None:
        found = observe_free(plan, seen, tools)
        try:
            if all(found.values()):
                graded = _judged(plan, offered, seen.messages, players)
                found["judge"] = graded.grades.least >= LEAST_GRADE
        except (EngineFailure, RoleFailed) as error:
            failed = error
    reason, outcome = verdict(found, seen, failed)
    trajectory = Trajectory(
        id=trajectory_id(plan.id, worker.name, seen.messages),
        task_id="",
        messages=seen.messages,
        outcome=outcome,
        reward=float(not reason) if outcome.is_rated else None,
        checks=found,
        teacher=worker.name,
        cost=spent + user.cost + worker.cost + box.cost + (Cost() if graded is None else graded.cost),
    )
    return Simulated(
        trajectory=trajectory,
        profile=profile("", plan.domain, seen.turns, tools),
        accepted=not reason,
        reason=reason,
        grades=None if graded is None else graded.grades,
        user_turns=user.turns,
        criteria={} if graded is None else graded.criteria,
        failure=str(failed or ""),
    )


def _user(plan: FreePlan, tools: Mapping[str, Tool], players: Players) -> User:
    if players.user is None:
        return ScriptedUser([TurnPlan(t=at, text=turn.text) for at, turn in enumerate(plan.turns)])
    return ModelUser(players.user, free_script(plan, tools), plan.id)


def _judged(plan: FreePlan, tools: Sequence[Tool], messages: Sequence[Message], players: Players) -> Graded:
    assert players.judge is not None
    wanted = "\n".join([plan.goal, "", *(f"- {turn.text}" for turn in plan.turns)])
    return ModelJudge(players.judge).grade(wanted, tools, messages)


# ---- rows and parts -----------------------------------------------------------------------------------------------------


class _Tally:
    """What came of the conversations so far."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total, self._progress, self._done = total, progress, 0
        self.accepted = 0
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def add(self, blueprints: pl.DataFrame, trajectories: pl.DataFrame) -> None:
        """A part's rows of these tables."""
        self._done += blueprints.height
        self.accepted += int((blueprints["status"] == "accepted").sum())
        self.outcomes.update(trajectories["outcome"].to_list())
        self.outcomes.update(unplanned=int((blueprints["status"] == "unplanned").sum()))
        self.reasons.update(reason.partition(":")[0] for reason in blueprints["reason"].drop_nulls())
        self.outcomes += Counter()
        self._progress("tools played by an engine", self._done, self._total)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The conversations of a part of each table. parts: those that are there."""

    briefs: Sequence[Brief]
    ids: Mapping[str, str]
    parts: Sequence[Part]

    @classmethod
    def of(cls, briefs: Sequence[Brief], players: Players, store: Store) -> _Batch:
        measured = None if players.agreement is None else [players.agreement.agreed, players.agreement.labelled]
        told = {"roles": players.roles, "prompts": dict(players.prompts), "agreement": measured}
        about = [[one.key, one.cluster.id, one.language, [tool.model_dump(mode="json") for tool in one.tools]] for one in briefs]
        ids = {table: part_id(table, [], told | {"briefs": about}, VERSION) for table in _TABLES}
        return cls(briefs, ids, [part for name in ids.values() if (part := store.find(name)) is not None])

    @property
    def is_there(self) -> bool:
        return len(self.parts) == len(_TABLES)

    def written(self, made: Sequence[Played], players: Players, store: Store) -> list[Part]:
        frames = _frames(made, players)
        return [store.write(table, self.ids[table], frames[table]) for table in _TABLES]


def _frames(made: Sequence[Played], players: Players) -> dict[str, pl.DataFrame]:
    rows: dict[str, list[dict[str, Any]]] = {
        "blueprints": [_blueprint_row(one) for one in made],
        "trajectories": [_trajectory_row(one.plan, one.simulated) for one in made if one.plan is not None and one.simulated is not None],
        "provenance": [_provenance_row(one.simulated, players) for one in made if one.simulated is not None],
    }
    return {table: pl.DataFrame(rows[table], schema=TABLES[table].columns) for table in _TABLES}


def _blueprint_row(one: Played) -> dict[str, Any]:
    return dict.fromkeys(TABLES["blueprints"].columns) | {
        "blueprint_id": one.id,
        "cluster_id": one.brief.cluster.id,
        "domain": one.brief.cluster.domain,
        "status": one.status,
        "reason": one.reason or None,
        "spec": None if one.plan is None else canonical_json(one.plan.model_dump(mode="json")),
    }


def _trajectory_row(plan: FreePlan, simulated: Simulated) -> dict[str, Any]:
    about = {
        "blueprint_id": plan.id,
        "cluster_id": plan.cluster_id,
        "language": plan.language,
        "accepted": simulated.accepted,
        "reason": simulated.reason or None,
    }
    return dict.fromkeys(TABLES["trajectories"].columns) | trajectory_row(simulated.trajectory, simulated.profile) | about


def _provenance_row(simulated: Simulated, players: Players) -> dict[str, Any]:
    grades, agreement = simulated.grades, players.agreement
    return {
        "trajectory_id": simulated.trajectory.id,
        "roles": canonical_json(players.roles),
        "prompts": canonical_json(dict(players.prompts)),
        "is_simulated": True,
        "user_turns": simulated.user_turns[0],
        "user_adhered": simulated.user_turns[1],
        "planning": None if grades is None else grades.planning,
        "fidelity": None if grades is None else grades.fidelity,
        "presentation": None if grades is None else grades.presentation,
        "criteria": canonical_json({name: list(each) for name, each in simulated.criteria.items()}) if simulated.criteria else None,
        "judge_agreement": None if agreement is None else agreement.rate,
        "judge_labelled": None if agreement is None else agreement.labelled,
        "failure": simulated.failure or None,
    }
