"""Plays a policy through the cases of a suite, resumably.

One idea: an episode has the user and the tools; the policy's calls are executed, and at the end both verdicts are taken. As in
`synth/rollouts/episode.py`, a policy that uses up steps, tokens or the window has failed, in the suite's eyes too, though no checker sees
such a conversation. After a failure of the engine, the tools or a checker, the case is repeated, at most twice; then it enters no rate.

Decoding is greedy, with one conversation a case. A finished case is kept in a journal, so a measurement that was killed goes on with the
cases that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage.journal import Journal
from storage.records import JSON, Message, Outcome, ToolCall, canonical_json, parse_arguments
from synth.engines.base import ChatRequest, Engine, EngineFailure, has_failed, side_by_side
from synth.engines.local.call_texts import is_broken_call
from synth.roles.base import ToolsFailed
from synth.rollouts.draws import RETRIES
from synth.rollouts.episode import IN_FLIGHT, request_seed
from train.measure.suites.suite import Episode, Suite, SuiteCase, Verdicts

MAX_TOKENS = 1024
MAX_REPLIES = 30
"""Most messages of the user after the first."""
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Session:
    """The conversation of one case.

    outcome: by our verifier. verdicts: None if the conversation was not rated; of one that ended early, their verdict is None.
    failure: error of the infrastructure, if any. is_unanswered: whether that was an error of the engine.
    """

    case_id: str
    group: str
    attempts: int = 1
    messages: list[Message] = field(default_factory=list)
    outcome: Outcome = Outcome.UNFINISHED
    verdicts: Verdicts | None = None
    failure: str = ""
    is_unanswered: bool = False

    def fail(self, check: str) -> None:
        """The conversation ended before it could be judged, by the policy's fault."""
        self.outcome, self.verdicts = Outcome.POLICY_FAILURE, Verdicts(None, "", {check: False})

    def spoil(self, outcome: Outcome, error: Exception) -> None:
        self.outcome, self.failure = outcome, f"{type(error).__name__}: {error}"

    def to_json(self) -> dict[str, JSON]:
        verdicts = self.verdicts
        return {
            "case": self.case_id,
            "group": self.group,
            "attempts": self.attempts,
            "outcome": self.outcome.value,
            "theirs": None if verdicts is None else verdicts.theirs,
            "reason": "" if verdicts is None else verdicts.reason,
            "checks": {} if verdicts is None else dict(verdicts.ours),
            "failure": self.failure,
            "messages": [message.to_openai() for message in self.messages],
        }

    @classmethod
    def from_json(cls, row: dict[str, JSON]) -> Session:
        session = cls(row["case"], row["group"], row["attempts"], [Message.model_validate(message) for message in row["messages"]])
        session.outcome, session.failure = Outcome(row["outcome"]), row["failure"]
        if session.outcome.is_rated:
            session.verdicts = Verdicts(row["theirs"], row["reason"], row["checks"])
        return session


def run_cases(
    engine: Engine,
    suite: Suite,
    cases: Sequence[SuiteCase],
    *,
    max_tokens: int = MAX_TOKENS,
    in_flight: int = IN_FLIGHT,
    retries: int = RETRIES,
    journal: Journal | None = None,
    progress: Progress | None = None,
) -> list[Session]:
    """One session per case, in order.

    journal: rated sessions by case, of this suite, policy and limit of tokens; cases in it are not played again.

    Raises:
        EngineFailure: the engine did not answer in half of the cases. BudgetSpent: the engine's budget is spent.
    """
    known = {} if journal is None else journal.entries()

    def play(case: SuiteCase) -> Session:
        if case.id in known:
            return Session.from_json(known[case.id])
        for attempt in range(1, retries + 2):
            session = play_case(engine, suite, case, max_tokens=max_tokens, attempt=attempt)
            if session.outcome.is_rated:
                break
        if journal is not None and session.outcome.is_rated:
            journal.append(case.id, session.to_json())
        return session

    sessions = side_by_side(play, cases, in_flight, suite.name, progress or (lambda *_: None))
    unanswered = [session.failure for session in sessions if session.is_unanswered]
    if has_failed(len(unanswered), len(sessions)):
        raise EngineFailure(f"{engine.name} left {len(unanswered)} of {len(sessions)} cases without an answer: {unanswered[0]}")
    return sessions


def play_case(engine: Engine, suite: Suite, case: SuiteCase, *, max_tokens: int = MAX_TOKENS, attempt: int = 1) -> Session:
    """Plays a case with the engine and takes both verdicts.

    Raises:
        BudgetSpent: the engine's budget is spent.
    """
    session = Session(case.id, case.group, attempt)
    episode = suite.open(case)
    try:
        session.messages += episode.start()
        for _ in range(MAX_REPLIES + 1):
            _take_turn(engine, session, episode, suite, max_tokens)
            if session.outcome is not Outcome.UNFINISHED:
                return session
            said = episode.reply(session.messages)
            if said is None:
                break
            session.messages.append(Message(role="user", content=said))
        else:
            session.fail("ended_in_time")
            return session
        _judge(session, episode)
    except EngineFailure as failure:
        session.is_unanswered = True
        session.spoil(Outcome.INFRA_FAILURE, failure)
    except ToolsFailed as failure:
        session.spoil(failure.outcome, failure)
    finally:
        episode.close()
    return session


def _take_turn(engine: Engine, session: Session, episode: Episode, suite: Suite, max_tokens: int) -> None:
    """Plays until the policy answers without a call; sets the outcome if it fails before that."""
    for _ in range(suite.max_steps):
        seed = seed_of(suite.name, session.case_id, len(session.messages))
        (answer,) = engine.chat([ChatRequest(tuple(session.messages), episode.offered(), 0.0, max_tokens, seed)])
        session.messages.append(answer.message)
        if answer.finish_reason == "length":
            return session.fail("ended_in_time")
        if not answer.message.tool_calls:
            return session.fail("well_formed") if is_broken_call(answer.message) else None
        for call in answer.message.tool_calls:
            if parse_arguments(call.function.arguments) is None:
                return session.fail("well_formed")
            session.messages.append(_run(episode, call))
    return session.fail("ended_in_time")


def seed_of(suite: str, case_id: str, length: int) -> int:
    """Seed of the request for the next message in a case, whose conversation has that many messages."""
    return request_seed(suite, case_id, length)


def _run(episode: Episode, call: ToolCall) -> Message:
    name = call.function.name
    try:
        is_offered = any(tool.name == name for tool in episode.offered())
        content = episode.call(name, call.function.arguments) if is_offered else canonical_json({"error": f"there is no tool {name}"})
    except Exception as error:  # a world answers bad calls, so an exception is not the policy's fault
        raise ToolsFailed(f"{name}: {type(error).__name__}: {error}") from error
    return Message(role="tool", tool_call_id=call.id, content=content)


def _judge(session: Session, episode: Episode) -> None:
    try:
        session.verdicts = episode.verdicts(session.messages)
    except Exception as error:
        session.spoil(Outcome.JUDGE_FAILURE, error)
    else:
        session.outcome = Outcome.SUCCESS if session.verdicts.accepted else Outcome.POLICY_FAILURE
