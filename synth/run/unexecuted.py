"""Conversations over clusters that no world executes: an engine plans them, an engine plays the tools, and nothing is executed.

They are kept beside what was executed and never mixed with it: `world` is null in `blueprints` and `trajectories`, `round` is null, and
`is_simulated` is true in `provenance`. So no release of what was synthesised holds them, no controller counts them, and they give no task.
Since no world says whether a goal was reached, a judge has to, and without one there are none.

Work is cut into parts of ten conversations, whose ids follow from the clusters, the engines and the prompts: a run that was killed goes on
after the last whole part. What engines answered before is not asked again where they keep their answers (`synth/engines/cache.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import polars as pl

from storage.conversation import derive_turns
from storage.errors import BadInput
from storage.records import Message, Outcome, Tool, canonical_json, content_id
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from synth.blueprints.blueprint import TurnPlan
from synth.clusters.business_clusters import Cluster
from synth.clusters.signatures import is_offerable
from synth.engines.base import EngineFailure
from synth.engines.budget import BudgetSpent
from synth.engines.thread_map import in_order, is_dead
from synth.prompts import versions
from synth.roles import free_planner, model_judge, model_user, simulated_tools
from synth.roles.base import Graded, RoleFailed
from synth.roles.free_observer import observe_free
from synth.roles.free_plan import FreePlan, free_script
from synth.roles.free_planner import Brief, brief, drafted
from synth.roles.model_judge import ModelJudge
from synth.roles.observer import Seen
from synth.roles.role_engines import Cast, provenance_frame, wanted
from synth.roles.simulate import Simulated, concluded, converse, judged, profile, trajectory_row
from synth.roles.simulated_tools import SimulatedTools
from synth.roles.user import ScriptedUser

VERSION = 2
CONVERSATIONS_A_PART = 10
LEAST_TOOLS = 2
NEEDED = ("planner", "assistant", "tools", "judge")
"""Roles that a program cannot play here."""
_PROMPTS = versions(free_planner.PROMPT, model_user.PROMPT, simulated_tools.PROMPT, model_judge.CRITERIA_PROMPT, model_judge.PROMPT)
_TABLES = ("blueprints", "trajectories", "provenance")
_LONGEST_REASON = 300

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Unexecuted:
    """A committed run. outcomes: of all conversations asked for, counts by outcome, `unplanned` where no plan came about. reasons: of those
    not accepted, counts. left_out: clusters with too few tools whose signatures can be checked. stopped: why there are fewer than were
    asked for, where the budget was spent; all counts are of the parts before."""

    parts: tuple[str, ...]
    accepted: int
    outcomes: Mapping[str, int]
    reasons: Mapping[str, int]
    left_out: int
    stopped: str = ""


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
    def failure(self) -> str:
        """What went wrong, in words, where an engine did."""
        return self.reason if self.simulated is None else self.simulated.failure

    @property
    def is_unanswered(self) -> bool:
        return self.reason.partition(":")[0] == Outcome.INFRA_FAILURE

    @property
    def status(self) -> str:
        if self.simulated is None:
            return "unplanned"
        return "accepted" if self.simulated.accepted else "rejected"


def simulate_clusters(
    store: Store,
    clusters: Sequence[Cluster],
    tools: Sequence[Tool],
    cast: Cast,
    n: int,
    *,
    seed: int = 0,
    chinese_share: float = 0.0,
    progress: Progress | None = None,
) -> Unexecuted:
    """Asks for `n` conversations over these clusters in turn, or for what is left of them, and commits them part by part. Where the budget
    is spent it ends early, with the whole parts before.

    Args:
        clusters: those of no world. tools: the catalogue that they are of.
        cast: with an engine in every role of `NEEDED`; it holds `in_flight` conversations at once.

    Raises:
        BadInput: a role without an engine, or no cluster that could be played; nothing was spent.
        EngineFailure: half of a part got no answer. Whole parts before are committed.
    """
    check_played(clusters, tools, cast)
    offers = playable(clusters, tools)
    briefs = [_brief(offers[at % len(offers)], at, seed, chinese_share, cast) for at in range(n)]
    batches = [_Batch.of(briefs[start : start + CONVERSATIONS_A_PART], cast, store) for start in range(0, n, CONVERSATIONS_A_PART)]
    missing = [one for batch in batches if not batch.is_there for one in batch.briefs]
    tally, parts = _Tally(n, progress or (lambda label, done, total: None)), list[Part]()
    stopped = ""
    try:
        with closing(in_order(lambda one: play(one, cast), missing, cast.config.in_flight)) as made:
            for batch in batches:
                own = batch.parts if batch.is_there else batch.written(list(islice(made, len(batch.briefs))), cast, store)
                store.commit(own)
                parts += own
                tally.add(*(pl.read_parquet(store.root / part.path) for part in own[:2]))
    except BudgetSpent as spent:
        stopped = str(spent)
    finally:
        if cast.answers is not None:
            cast.answers.commit()
    named = tuple(part.part_id for part in parts)
    return Unexecuted(named, tally.accepted, dict(tally.outcomes), dict(tally.reasons), len(clusters) - len(offers), stopped)


def check_played(clusters: Sequence[Cluster], tools: Sequence[Tool], cast: Cast) -> None:
    """Whether `simulate_clusters` could play these; nothing is asked.

    Raises:
        BadInput: a role without an engine, or no cluster that could be played.
    """
    lacking = [role for role in NEEDED if getattr(cast, role) is None]
    if lacking:
        raise BadInput(
            f"tools that no world executes need an engine as {', '.join(NEEDED)}; no engine is {' or '.join(lacking)}: "
            f"name one in roles.{lacking[0]}"
        )
    if not playable(clusters, tools):
        raise BadInput(
            f"of {len(clusters)} clusters of no world none has {LEAST_TOOLS} tools whose calls can be checked; "
            "give the catalogue's tools JSON schemas"
        )


def playable(clusters: Sequence[Cluster], tools: Sequence[Tool]) -> list[tuple[Cluster, tuple[Tool, ...]]]:
    """Clusters, each with those of its tools whose calls can be checked, where these are enough; best first."""
    wanted = {tool for cluster in clusters for tool in cluster.tool_ids}
    known = {tool.id: tool for tool in tools if tool.id in wanted and is_offerable(tool)}
    offers = [(cluster, tuple(known[tool] for tool in cluster.tool_ids if tool in known)) for cluster in clusters]
    return [(cluster, offered) for cluster, offered in sorted(offers, key=lambda offer: offer[0].rank) if len(offered) >= LEAST_TOOLS]


def _brief(offer: tuple[Cluster, tuple[Tool, ...]], at: int, seed: int, chinese_share: float, cast: Cast) -> Brief:
    return brief(content_id("unexecuted", seed, at, offer[0].id, _identity(cast)), *offer, chinese_share)


def _identity(cast: Cast) -> dict[str, Any]:
    """What a conversation follows from besides its cluster: who plays the roles, by which prompts, and what the judge was measured at."""
    judged = None if cast.judged is None else [cast.judged.agreed, cast.judged.labelled]
    return {"roles": cast.config.identity() | {"tools": cast.config.tools}, "prompts": dict(_PROMPTS), "judged": judged}


# ---- one conversation ---------------------------------------------------------------------------------------------------


def play(about: Brief, cast: Cast) -> Played:
    """Plans one conversation and carries it out.

    Raises:
        BudgetSpent: nothing more may be asked of an engine.
    """
    assert cast.planner is not None
    try:
        draft = drafted(cast.planner, about)
    except EngineFailure as failed:
        return Played(about, reason=f"{Outcome.INFRA_FAILURE}: {failed}"[:_LONGEST_REASON])
    if draft.plan is None:
        return Played(about, reason=f"no_plan: {draft.problems[0]}"[:_LONGEST_REASON])
    simulated = carry_out(draft.plan, about.tools, cast).with_cost(draft.cost)
    return Played(about, draft.plan, simulated, simulated.reason)


def carry_out(plan: FreePlan, offered: Sequence[Tool], cast: Cast) -> Simulated:
    """A plan's conversation with played tools: accepted where all that code can check holds, and the judge says so too.

    Raises:
        BudgetSpent: nothing more may be asked of an engine.
    """
    assert cast.assistant is not None and cast.tools is not None
    tools = {tool.name: tool for tool in offered}
    script = free_script(plan, tools)
    lines = [TurnPlan(t=at, text=turn.text) for at, turn in enumerate(plan.turns)]
    user = ScriptedUser(lines) if cast.user is None else cast.speaker(cast.user, script, plan.id)
    worker, box = cast.teacher(cast.assistant, plan.id), SimulatedTools(cast.tools, offered, plan.id)
    messages, ended = list[Message](), list[Mapping[str, Any]]()
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
        graded, failed = judged(found, lambda: _judge(cast).grade(wanted(script), offered, seen.messages))
    shape = profile("", plan.domain, seen.turns, tools)
    return concluded(plan.id, user, worker, seen, shape, found, failed=failed, graded=graded).with_cost(box.cost)


def _judge(cast: Cast) -> ModelJudge:
    assert cast.judge is not None
    return ModelJudge(cast.judge)


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
    def of(cls, briefs: Sequence[Brief], cast: Cast, store: Store) -> _Batch:
        about = [[one.key, one.cluster.id, one.language, [tool.model_dump(mode="json") for tool in one.tools]] for one in briefs]
        ids = {table: part_id(table, [], _identity(cast) | {"briefs": about}, VERSION) for table in _TABLES}
        return cls(briefs, ids, [part for name in ids.values() if (part := store.find(name)) is not None])

    @property
    def is_there(self) -> bool:
        return len(self.parts) == len(_TABLES)

    def written(self, made: Sequence[Played], cast: Cast, store: Store) -> list[Part]:
        """Raises EngineFailure where half of the conversations got no answer."""
        unanswered = [one.failure for one in made if one.is_unanswered]
        if is_dead(len(unanswered), len(made)):
            raise EngineFailure(
                f"{len(unanswered)} of {len(made)} conversations with played tools got no answer ({unanswered[0]}); none of these is stored"
            )
        frames = _frames(made, cast)
        return [store.write(table, self.ids[table], frames[table]) for table in _TABLES]


def _frames(made: Sequence[Played], cast: Cast) -> dict[str, pl.DataFrame]:
    talks = [(one.plan, one.simulated) for one in made if one.plan is not None and one.simulated is not None]
    provenance = provenance_frame([simulated for _, simulated in talks], cast, is_simulated=True)
    return {
        "blueprints": pl.DataFrame([_blueprint_row(one) for one in made], schema=TABLES["blueprints"].columns),
        "trajectories": pl.DataFrame([_trajectory_row(*talk) for talk in talks], schema=TABLES["trajectories"].columns),
        "provenance": provenance.with_columns(prompts=pl.lit(canonical_json(dict(_PROMPTS)))),
    }


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
