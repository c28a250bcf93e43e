"""What a suite says of a policy: both rates with Wilson's 95 % intervals, where the two verdicts differ, and what a run will cost.

Rows of table `evaluations`: use is the suite, facet `all` or `group` is our verifier's rate, facet `checker` has that of the suite's own
checker (`theirs`), ours, the share of conversations on which both say the same (`agree`), and the share that ended before a checker could
see them (`ended_early`), which are failures by both rates and count in no agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storage.records import canonical_json, content_id
from storage.store import Store, part_id
from storage.tables import TABLES
from synth.engines.base import estimated_tokens
from synth.intervals import wilson
from train.measure.suites.play import MAX_TOKENS, Session
from train.measure.suites.suite import Suite, SuiteCase

VERSION = 5
_ANSWER_TOKENS, _RESULT_TOKENS = 60, 150
"""Of one message of a policy, and of one observation: rounded means over the suites' references."""


@dataclass(frozen=True)
class Rate:
    """passed of rated, with Wilson's 95 % interval; nothing rated: low 0, high 1."""

    passed: int
    rated: int

    @property
    def rate(self) -> float:
        return self.passed / self.rated if self.rated else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.passed, self.rated)


@dataclass(frozen=True)
class Accuracy:
    """Figures of a group (`all`: of all cases).

    ours, theirs: accepted, of all rated conversations. agree: both verdicts are the same, of those that both checkers judged.
    ended_early: conversations that no checker judged, of the rated ones.
    """

    group: str
    cases: int
    ours: Rate
    theirs: Rate
    agree: Rate
    ended_early: Rate


@dataclass(frozen=True)
class Disagreement:
    """A conversation that one checker accepts and the other refuses. reason: of the one that refuses."""

    case_id: str
    accepted_by: str
    reason: str


@dataclass(frozen=True)
class Cost:
    """Estimate of a run: one conversation a case, with as many calls as the reference makes."""

    cases: int
    requests: int
    prompt_tokens: int
    answer_tokens: int


def accuracies(sessions: Sequence[Session]) -> list[Accuracy]:
    """Over all cases, then by group."""
    groups = {"all": list(sessions)}
    for session in sessions:
        groups.setdefault(session.group, []).append(session)
    figures = []
    for name, group in groups.items():
        verdicts = [session.verdicts for session in group if session.verdicts is not None and session.outcome.is_rated]
        judged = [verdict for verdict in verdicts if verdict.theirs is not None]
        figures.append(
            Accuracy(
                name,
                len(group),
                ours=Rate(sum(verdict.accepted for verdict in verdicts), len(verdicts)),
                theirs=Rate(sum(bool(verdict.theirs) for verdict in verdicts), len(verdicts)),
                agree=Rate(sum(verdict.accepted == verdict.theirs for verdict in judged), len(judged)),
                ended_early=Rate(len(verdicts) - len(judged), len(verdicts)),
            )
        )
    return figures


def disagreements(sessions: Sequence[Session]) -> list[Disagreement]:
    """The conversations on which the verdicts differ, in order."""
    found = []
    for session in sessions:
        verdicts = session.verdicts
        if verdicts is None or verdicts.theirs in (None, verdicts.accepted):
            continue
        accepted_by = "theirs" if verdicts.theirs else "ours"
        found.append(Disagreement(session.case_id, accepted_by, verdicts.reason or ", ".join(verdicts.failed_checks)))
    return found


def estimate(cases: Sequence[SuiteCase]) -> Cost:
    """What the cases take if a policy makes as many calls as their references, one a message."""
    requests = prompt = answers = 0
    for case in cases:
        system = case.source.get("system", "") if isinstance(case.source, dict) else ""
        fixed = estimated_tokens(system) + estimated_tokens(canonical_json([tool.to_openai() for tool in case.tools]))
        calls = sum(map(len, case.reference.calls))
        said = sum(map(estimated_tokens, case.said))
        count = calls + len(case.reference.calls)
        requests += count
        prompt += count * (fixed + said) + (_ANSWER_TOKENS + _RESULT_TOKENS) * count * (count - 1) // 2
        answers += count * _ANSWER_TOKENS
    return Cost(len(cases), requests, prompt, answers)


def measurement_id(suite: Suite, policy_id: str, max_tokens: int = MAX_TOKENS) -> str:
    """Id of what may be resumed: a suite's release, its user, a policy, and the limit of tokens."""
    return content_id("suite", suite.name, suite.version, suite.note, policy_id, max_tokens, VERSION)


def evaluation_frame(suite: Suite, sessions: Sequence[Session], *, evaluation_id: str, policy_id: str) -> pl.DataFrame:
    """Rows of table `evaluations`; what has no rated case has no row."""
    rows = []
    for accuracy in accuracies(sessions):
        is_total = accuracy.group == "all"
        lines = [("all" if is_total else "group", accuracy.group, accuracy.ours)]
        if is_total:
            lines += [("checker", "ours", accuracy.ours), ("checker", "theirs", accuracy.theirs)]
            lines += [("checker", "agree", accuracy.agree), ("checker", "ended_early", accuracy.ended_early)]
        for facet, value, rate in lines:
            if not rate.rated:
                continue
            low, high = rate.interval
            rows.append(
                {
                    "evaluation_id": evaluation_id,
                    "policy_id": policy_id,
                    "use": suite.name,
                    "decoding": "greedy",
                    "facet": facet,
                    "facet_value": value,
                    "tasks": rate.rated,
                    "samples": rate.rated,
                    "rate": rate.rate,
                    "low": low,
                    "high": high,
                    "pass_k": "{}",
                }
            )
    return pl.DataFrame(rows, schema=TABLES["evaluations"].columns)


def save_sessions(store: Store, suite: Suite, policy_id: str, sessions: Sequence[Session], *, max_tokens: int = MAX_TOKENS) -> None:
    """Saves the figures of a policy; a measurement with the same verdicts on every case is saved once."""
    measured = [
        (session.case_id, session.outcome.value, session.verdicts.theirs if session.verdicts is not None else None) for session in sessions
    ]
    evaluation_id = content_id("evaluation", measurement_id(suite, policy_id, max_tokens), measured)
    part = part_id("evaluations", [evaluation_id], {}, VERSION)
    frame = evaluation_frame(suite, sessions, evaluation_id=evaluation_id, policy_id=policy_id)
    store.commit([store.find(part) or store.write("evaluations", part, frame)])
