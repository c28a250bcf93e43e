"""A policy holds BFCL's multi-turn cases: the reference's calls pass, less does not, and nobody is graded for what an engine broke."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from storage.errors import BadInput
from storage.records import Call, FunctionCall, Message, Outcome, ToolCall
from storage.report.evaluation_queries import read_measurements
from synth.engines.base import ChatAnswer, ChatRequest, Engine, EngineFailure
from synth.worlds.bfcl_world import CATEGORIES, BFCLWorld, Case
from tests.storage.conftest import build_sample
from train.measure.suites import bfcl
from train.measure.suites.bfcl import BFCLSuite, check_theirs
from train.measure.suites.figures import accuracies, disagreements, save_sessions
from train.measure.suites.play import play_case, run_cases
from train.measure.suites.suite import SuiteCase

SUITE = BFCLSuite()

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason="pip install --no-deps bfcl-eval")


@pytest.fixture(scope="module")
def few() -> list[SuiteCase]:
    """Three cases of each category."""
    return SUITE.cases(CATEGORIES, 3)


def called(number: int, name: str, arguments: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id=f"call_{number}", function=FunctionCall(name=name, arguments=arguments)),))


class Replaying:
    """Makes the calls that `of` gives for a case and turn, one a message, then says that it is done."""

    name = "replaying"

    def __init__(self, cases: Sequence[SuiteCase], of: Callable[[Case, int], Sequence[Call]]) -> None:
        self._cases, self._of = {case.said[0]: case.source for case in cases}, of
        self.seen: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.seen += requests
        return [self._answer(request.messages) for request in requests]

    def _answer(self, messages: Sequence[Message]) -> ChatAnswer:
        turn = sum(message.role == "user" for message in messages) - 1
        start = max(at for at, message in enumerate(messages) if message.role == "user")
        made = sum(message.role == "assistant" for message in messages[start:])
        calls = self._of(self._cases[messages[0].content or ""], turn)
        if made < len(calls):
            return ChatAnswer(called(len(messages), calls[made].tool, json.dumps(calls[made].arguments)), "tool_calls")
        return ChatAnswer(Message(role="assistant", content="Done."), "stop")


def reference(case: Case, turn: int) -> Sequence[Call]:
    return case.turns[turn].calls


def without_the_last(case: Case, turn: int) -> Sequence[Call]:
    last = max(at for at, each in enumerate(case.turns) if each.calls)
    return case.turns[turn].calls[: -1 if turn == last else None]


def outcomes(engine: Engine, cases: Sequence[SuiteCase]) -> list[Outcome]:
    return [session.outcome for session in run_cases(engine, SUITE, cases, in_flight=4)]


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_references_calls_pass_one_less_fails_and_none_fails(few: list[SuiteCase], category: str) -> None:
    """Given three cases of a category, when a policy makes the reference's calls, it passes all; without the last call, or any, none."""
    cases = [case for case in few if case.group == category]
    assert outcomes(Replaying(cases, reference), cases) == [Outcome.SUCCESS] * 3
    assert outcomes(Replaying(cases, without_the_last), cases) == [Outcome.POLICY_FAILURE] * 3
    assert outcomes(Replaying(cases, lambda *_: ()), cases) == [Outcome.POLICY_FAILURE] * 3


def test_a_tool_is_on_offer_from_the_turn_on_in_which_it_is_there(few: list[SuiteCase]) -> None:
    """Given a case that withholds a tool, then it is in no request before its turn, and a call of it is an error and fails the case."""
    case = next(case for case in few if case.group == "miss_func")
    engine = Replaying([case], reference)
    play_case(engine, SUITE, case)
    for request in engine.seen:
        turn = sum(message.role == "user" for message in request.messages) - 1
        assert {tool.name for tool in request.tools} == case.source.turns[turn].tools
    (withheld,) = case.source.turns[-1].tools - case.source.turns[0].tools
    calls = lambda case, turn: [*reference(case, turn), *([Call(tool=withheld)] if turn == 0 else [])]  # noqa: E731
    early = play_case(Replaying([case], calls), SUITE, case)
    assert early.outcome is Outcome.POLICY_FAILURE and early.verdicts and not early.verdicts.ours["known_tools"]
    assert f"there is no tool {withheld}" in str([message.content for message in early.messages])


class Saying:
    """Answers the same whatever it is asked."""

    name = "saying"

    def __init__(self, answer: ChatAnswer) -> None:
        self._answer = answer

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [self._answer for _ in requests]


@pytest.mark.parametrize(
    ("answer", "check"),
    [
        (ChatAnswer(called(0, "pwd", "{}"), "tool_calls"), "ended_in_time"),
        (ChatAnswer(Message(role="assistant", content="and so on and"), "length"), "ended_in_time"),
        (ChatAnswer(called(0, "pwd", "[1]"), "tool_calls"), "well_formed"),
        (ChatAnswer(Message(role="assistant", content="<tool_call>pwd()"), "stop"), "well_formed"),
    ],
)
def test_a_policy_that_never_ends_or_writes_no_call_has_failed(few: list[SuiteCase], answer: ChatAnswer, check: str) -> None:
    session = play_case(Saying(answer), SUITE, few[0])
    assert session.outcome is Outcome.POLICY_FAILURE and session.verdicts
    assert (session.verdicts.ours, session.verdicts.theirs) == ({check: False}, None)


class Failing(Replaying):
    """Gives no answer about some cases, the first `times` that it is asked about each."""

    def __init__(self, cases: Sequence[SuiteCase], about: Sequence[SuiteCase], times: int) -> None:
        super().__init__(cases, reference)
        self._left = {case.said[0]: times for case in about}

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        said = requests[0].messages[0].content or ""
        if self._left.get(said, 0) > 0:
            self._left[said] -= 1
            raise EngineFailure("the server is gone")
        return super().chat(requests)


def test_what_an_engine_left_unanswered_is_begun_again_and_then_in_no_rate() -> None:
    """Given ten cases of which an engine does not answer two, then these are asked again; for good, they enter no rate; and with all of
    them unanswered, there is no figure at all."""
    cases = SUITE.cases(["base"], 10)
    again = run_cases(Failing(cases, cases[:2], 2), SUITE, cases)
    assert [session.outcome for session in again] == [Outcome.SUCCESS] * 10
    assert [session.attempts for session in again[:3]] == [3, 3, 1]
    lost = run_cases(Failing(cases, cases[:2], 10**6), SUITE, cases)
    assert [session.outcome for session in lost[:2]] == [Outcome.INFRA_FAILURE] * 2 and "the server is gone" in lost[0].failure
    total = accuracies(lost)[0]
    assert (total.cases, total.ours.rated, total.ours.passed, total.theirs.passed) == (10, 8, 8, 8)
    with pytest.raises(EngineFailure, match="left 10 of 10 cases without an answer: EngineFailure: the server is gone"):
        run_cases(Failing(cases, cases, 10**6), SUITE, cases)


def test_a_world_or_a_judge_that_raises_is_no_failure_of_the_policy(few: list[SuiteCase], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(bfcl, "judge_conversation", broken)
    assert play_case(Replaying(few, reference), SUITE, few[0]).outcome is Outcome.JUDGE_FAILURE
    monkeypatch.setattr(BFCLWorld, "call", broken)
    session = play_case(Replaying(few, reference), SUITE, few[0])
    assert (session.outcome, "out of order" in session.failure) == (Outcome.TOOL_FAILURE, True)


def test_the_figures_of_a_policy_stay_in_its_store_once_and_with_wilsons_interval(few: list[SuiteCase], tmp_path: Path) -> None:
    store = build_sample(tmp_path / "store").store
    cases = [case for case in few if case.group in ("base", "long_context")]
    sessions = [play_case(Replaying([case], reference if case.group == "base" else without_the_last), SUITE, case) for case in cases]
    for _ in range(2):
        save_sessions(store, SUITE, "policy-2", sessions)
    rows = read_measurements(store).filter(use="bfcl")
    found = {(row["facet"], row["facet_value"]): (row["tasks"], row["rate"]) for row in rows.to_dicts()}
    by_checker = {"ours": (6, 0.5), "theirs": (6, 0.5), "agree": (6, 1.0), "ended_early": (6, 0.0)}
    by_group = {("all", "all"): (6, 0.5), ("group", "base"): (3, 1.0), ("group", "long_context"): (3, 0.0)}
    assert found == by_group | {("checker", value): rate for value, rate in by_checker.items()}
    assert rows.filter(facet_value="base")["low"].item() == pytest.approx(0.4385, abs=1e-4)


def test_what_a_server_left_out_is_measured_again_and_kept(tmp_path: Path) -> None:
    """Given a measurement of which a server spoilt a case, when it is made again without that, then the whole one is shown."""
    store = build_sample(tmp_path / "store").store
    cases = SUITE.cases(["base"], 3)
    for engine in (Failing(cases, cases[:1], 10**6), Replaying(cases, reference)):
        save_sessions(store, SUITE, "policy-2", run_cases(engine, SUITE, cases))
    assert read_measurements(store).filter(use="bfcl", facet="all").select("tasks", "rate").rows() == [(3, 1.0)]


def test_a_category_that_is_not_there_is_refused_in_a_line() -> None:
    with pytest.raises(BadInput, match="suite bfcl has no group 'bass'; it has base, miss_func"):
        SUITE.cases(["bass"])
    assert [case.id for case in SUITE.cases(["base"], 2)] == ["multi_turn_base_0", "multi_turn_base_1"]


def test_without_the_package_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match="pip install --no-deps bfcl-eval"):
        SUITE.cases()


def test_the_leaderboards_checker_runs_a_call_of_no_tool_and_ours_refuses_it(few: list[SuiteCase]) -> None:
    """Given the reference with a call more, of a tool that does not exist, then the leaderboard's checker accepts, ours does not, and the
    case is named with the check that fails; nothing that the policy wrote is evaluated as Python."""
    case = next(case for case in few if case.group == "base")
    calls = lambda case, turn: [*reference(case, turn), *([Call(tool="exec", arguments={"a": "1/0"})] if turn == 0 else [])]  # noqa: E731
    (session,) = run_cases(Replaying([case], calls), SUITE, [case])
    assert session.verdicts is not None and session.verdicts.theirs
    assert [(one.case_id, one.accepted_by, one.reason) for one in disagreements([session])] == [(case.id, "theirs", "known_tools")]


def test_a_checked_case_leaves_no_state_in_the_leaderboards_module(few: list[SuiteCase]) -> None:
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    case: Case = few[0].source
    before = set(vars(multi_turn_utils))
    dropped = [[list(turn.calls)] for turn in case.turns]
    assert check_theirs(case, dropped) == (True, "")
    dropped[0] = [dropped[0][0][:-1]]
    assert check_theirs(case, dropped)[0] is False
    assert set(vars(multi_turn_utils)) == before
