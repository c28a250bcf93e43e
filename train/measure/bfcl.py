"""Evaluates a policy on the multi-turn cases of the Berkeley function-calling leaderboard, in the world of each case
(`synth/worlds/bfcl_world.py`).

One idea: a case fixes the user's messages of every turn. The policy's calls are executed, and at the end `judge_conversation` compares the
result with the reference. A turn ends with an answer without a call. As in `synth/rollouts/episode.py`, a policy that uses up steps, tokens
or the window has failed. After a failure of the engine, the world or the judge, the case is repeated, at most twice; then it enters no
rate.

Decoding is greedy, with one conversation per case. The judge is stricter than the leaderboard's checker, so the figures are not comparable.
Source: see `synth/worlds/bfcl_world.py`; 20 steps per turn as in its `MAXIMUM_STEP_LIMIT`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from storage.errors import BadInput
from storage.records import Call, Message, Outcome, ToolCall, canonical_json, content_id, parse_arguments
from storage.store import Store, part_id
from storage.tables import TABLES
from synth.engines.base import ChatRequest, Engine, EngineFailure, has_failed, side_by_side
from synth.engines.local.call_texts import is_broken_call
from synth.intervals import wilson
from synth.roles.base import ToolsFailed
from synth.rollouts.draws import RETRIES
from synth.rollouts.episode import IN_FLIGHT, request_seed
from synth.worlds.bfcl_world import CATEGORIES, BFCLWorld, Case, Turn, cases, judge_conversation

VERSION = 3
MAX_STEPS = 20
"""Most answers in a turn."""
MAX_TOKENS = 1024
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Session:
    """The conversation of one case.

    made: calls by turn.
    checks: of `judge_conversation`, or the one that ended the conversation.
    failure: error of the infrastructure, if any.
    is_unanswered: whether that was an error of the engine.
    """

    case: Case
    attempts: int = 1
    messages: list[Message] = field(default_factory=list)
    made: list[list[Call]] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    outcome: Outcome = Outcome.UNFINISHED
    failure: str = ""
    is_unanswered: bool = False

    def fail(self, check: str) -> None:
        self.outcome, self.checks = Outcome.POLICY_FAILURE, {check: False}

    def spoil(self, outcome: Outcome, error: Exception) -> None:
        self.outcome, self.failure = outcome, f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Accuracy:
    """Result of a category (`all`: of all cases). rated: cases that enter the rate. low, high: Wilson's 95 % interval."""

    category: str
    cases: int
    rated: int
    passed: int
    low: float
    high: float


def select_cases(categories: Sequence[str] = CATEGORIES, limit: int | None = None) -> list[Case]:
    """The first `limit` cases of each of these categories.

    Raises:
        BadInput: a category is unknown, or bfcl-eval is not installed.
    """
    if strange := [name for name in categories if name not in CATEGORIES]:
        raise BadInput(f"BFCL has no multi-turn category {strange[0]!r}; it has {', '.join(CATEGORIES)}")
    selected = cases(tuple(dict.fromkeys(categories)))
    return [case for name in dict.fromkeys(categories) for case in [one for one in selected if one.category == name][:limit]]


# ---- conversations -----------------------------------------------------------------------------------------------------


def run_cases(
    engine: Engine,
    selected: Sequence[Case],
    *,
    max_tokens: int = MAX_TOKENS,
    in_flight: int = IN_FLIGHT,
    retries: int = RETRIES,
    progress: Progress | None = None,
) -> list[Session]:
    """One session per case, in order.

    Raises:
        EngineFailure: the engine did not answer in half of the cases. BudgetSpent: the engine's budget is spent.
    """

    def play(case: Case) -> Session:
        for attempt in range(1, retries + 2):
            session = play_case(engine, case, max_tokens=max_tokens, attempt=attempt)
            if session.outcome.is_rated:
                break
        return session

    sessions = side_by_side(play, selected, in_flight, "BFCL", progress or (lambda *_: None))
    unanswered = [session.failure for session in sessions if session.is_unanswered]
    if has_failed(len(unanswered), len(sessions)):
        raise EngineFailure(f"{engine.name} left {len(unanswered)} of {len(sessions)} cases without an answer: {unanswered[0]}")
    return sessions


def play_case(engine: Engine, case: Case, *, max_tokens: int = MAX_TOKENS, attempt: int = 1) -> Session:
    """Plays a case with the engine and judges it.

    Raises:
        BudgetSpent: the engine's budget is spent.
    """
    session = Session(case, attempt)
    try:
        world = BFCLWorld(case)
        for turn in case.turns:
            session.messages.append(Message(role="user", content=turn.said))
            session.made.append([])
            _take_turn(engine, session, turn, world, max_tokens)
            if session.outcome is not Outcome.UNFINISHED:
                return session
    except EngineFailure as failure:
        session.is_unanswered = True
        session.spoil(Outcome.INFRA_FAILURE, failure)
    except ToolsFailed as failure:
        session.spoil(failure.outcome, failure)
    else:
        _judge(session)
    return session


def _take_turn(engine: Engine, session: Session, turn: Turn, world: BFCLWorld, max_tokens: int) -> None:
    """Plays until the policy answers without a call; sets the outcome if it fails before that."""
    tools = tuple(tool for tool in session.case.tools if tool.name in turn.tools)
    for _ in range(MAX_STEPS):
        seed = request_seed("bfcl", session.case.id, len(session.messages))
        (answer,) = engine.chat([ChatRequest(tuple(session.messages), tools, 0.0, max_tokens, seed)])
        session.messages.append(answer.message)
        if answer.finish_reason == "length":
            return session.fail("ended_in_time")
        if not answer.message.tool_calls:
            return session.fail("well_formed") if is_broken_call(answer.message) else None
        for call in answer.message.tool_calls:
            arguments = parse_arguments(call.function.arguments)
            if arguments is None:
                return session.fail("well_formed")
            session.made[-1].append(Call(tool=call.function.name, arguments=arguments))
            session.messages.append(_run(world, turn, call))
    return session.fail("ended_in_time")


def _run(world: BFCLWorld, turn: Turn, call: ToolCall) -> Message:
    name = call.function.name
    try:
        content = (
            world.call(name, call.function.arguments).content
            if name in turn.tools
            else canonical_json({"error": f"there is no tool {name}"})
        )
    except Exception as error:  # a world answers bad calls, so an exception is not the policy's fault
        raise ToolsFailed(f"{name}: {type(error).__name__}: {error}") from error
    return Message(role="tool", tool_call_id=call.id, content=content)


def _judge(session: Session) -> None:
    try:
        session.checks = judge_conversation(session.case, session.made)
    except Exception as error:
        session.spoil(Outcome.JUDGE_FAILURE, error)
    else:
        session.outcome = Outcome.SUCCESS if all(session.checks.values()) else Outcome.POLICY_FAILURE


# ---- figures -----------------------------------------------------------------------------------------------------------


def accuracies(sessions: Sequence[Session]) -> list[Accuracy]:
    """Over all cases, then by category."""
    groups = {"all": list(sessions)}
    for session in sessions:
        groups.setdefault(session.case.category, []).append(session)
    figures = []
    for category, group in groups.items():
        rated = sum(session.outcome.is_rated for session in group)
        passed = sum(session.outcome is Outcome.SUCCESS for session in group)
        figures.append(Accuracy(category, len(group), rated, passed, *wilson(passed, rated)))
    return figures


def evaluation_frame(sessions: Sequence[Session], *, evaluation_id: str, policy_id: str) -> pl.DataFrame:
    """Rows of table `evaluations`, use `bfcl`, facet `category`; categories without a rated case have no row."""
    rows = [
        {
            "evaluation_id": evaluation_id,
            "policy_id": policy_id,
            "use": "bfcl",
            "decoding": "greedy",
            "facet": "all" if one.category == "all" else "category",
            "facet_value": one.category,
            "tasks": one.rated,
            "samples": one.rated,
            "rate": one.passed / one.rated,
            "low": one.low,
            "high": one.high,
            "pass_k": "{}",
        }
        for one in accuracies(sessions)
        if one.rated
    ]
    return pl.DataFrame(rows, schema=TABLES["evaluations"].columns)


def save_sessions(store: Store, policy_id: str, sessions: Sequence[Session], *, max_tokens: int = MAX_TOKENS) -> None:
    """Saves the figures of a policy; a measurement with the same outcome of every case is saved once."""
    measured = [(session.case.id, session.outcome.value) for session in sessions]
    evaluation_id = content_id("evaluation", policy_id, "bfcl", max_tokens, measured, VERSION)
    part = part_id("evaluations", [evaluation_id], {}, VERSION)
    frame = evaluation_frame(sessions, evaluation_id=evaluation_id, policy_id=policy_id)
    store.commit([store.find(part) or store.write("evaluations", part, frame)])
