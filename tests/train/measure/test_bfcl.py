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
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.worlds.bfcl_world import CATEGORIES, BFCLWorld, Case
from tests.storage.conftest import build_sample
from train.measure import bfcl
from train.measure.bfcl import accuracies, play_case, run_cases, save_sessions, select_cases

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason="pip install --no-deps bfcl-eval")


@pytest.fixture(scope="module")
def few() -> list[Case]:
    """Three cases of each category."""
    return select_cases(CATEGORIES, 3)


def called(number: int, name: str, arguments: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id=f"call_{number}", function=FunctionCall(name=name, arguments=arguments)),))


class Replaying:
    """Makes the calls that `of` gives for a case and turn, one a message, then says that it is done."""

    name = "replaying"

    def __init__(self, cases: Sequence[Case], of: Callable[[Case, int], Sequence[Call]]) -> None:
        self._cases, self._of = {case.turns[0].said: case for case in cases}, of
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


def outcomes(engine: object, cases: Sequence[Case]) -> list[Outcome]:
    return [session.outcome for session in run_cases(engine, cases, in_flight=4)]  # type: ignore[arg-type]


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_references_calls_pass_one_less_fails_and_none_fails(few: list[Case], category: str) -> None:
    """Given three cases of a category, when a policy makes the reference's calls, it passes all; without the last call, or any, none."""
    cases = [case for case in few if case.category == category]
    assert outcomes(Replaying(cases, reference), cases) == [Outcome.SUCCESS] * 3
    assert outcomes(Replaying(cases, without_the_last), cases) == [Outcome.POLICY_FAILURE] * 3
    assert outcomes(Replaying(cases, lambda *_: ()), cases) == [Outcome.POLICY_FAILURE] * 3


def test_a_tool_is_on_offer_from_the_turn_on_in_which_it_is_there(few: list[Case]) -> None:
    """Given a case that withholds a tool, then it is in no request before its turn, and a call of it is an error and fails the case."""
    case = next(case for case in few if case.category == "miss_func")
    engine = Replaying([case], reference)
    play_case(engine, case)
    for request in engine.seen:
        turn = sum(message.role == "user" for message in request.messages) - 1
        assert {tool.name for tool in request.tools} == case.turns[turn].tools
    (withheld,) = case.turns[-1].tools - case.turns[0].tools
    early = play_case(Replaying([case], lambda case, turn: [*reference(case, turn), *([Call(tool=withheld)] if turn == 0 else [])]), case)
    assert early.outcome is Outcome.POLICY_FAILURE and not early.checks["known_tools"]
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
def test_a_policy_that_never_ends_or_writes_no_call_has_failed(few: list[Case], answer: ChatAnswer, check: str) -> None:
    session = play_case(Saying(answer), few[0])
    assert (session.outcome, session.checks) == (Outcome.POLICY_FAILURE, {check: False})


class Failing(Replaying):
    """Gives no answer about some cases, the first `times` that it is asked about each."""

    def __init__(self, cases: Sequence[Case], about: Sequence[Case], times: int) -> None:
        super().__init__(cases, reference)
        self._left = {case.turns[0].said: times for case in about}

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        said = requests[0].messages[0].content or ""
        if self._left.get(said, 0) > 0:
            self._left[said] -= 1
            raise EngineFailure("the server is gone")
        return super().chat(requests)


def test_what_an_engine_left_unanswered_is_begun_again_and_then_in_no_rate() -> None:
    """Given ten cases of which an engine does not answer two, then these are asked again; for good, they enter no rate; and with all of
    them unanswered, there is no figure at all."""
    cases = select_cases(["base"], 10)
    again = run_cases(Failing(cases, cases[:2], 2), cases)
    assert [session.outcome for session in again] == [Outcome.SUCCESS] * 10
    assert [session.attempts for session in again[:3]] == [3, 3, 1]
    lost = run_cases(Failing(cases, cases[:2], 10**6), cases)
    assert [session.outcome for session in lost[:2]] == [Outcome.INFRA_FAILURE] * 2 and "the server is gone" in lost[0].failure
    total = accuracies(lost)[0]
    assert (total.cases, total.rated, total.passed) == (10, 8, 8)
    with pytest.raises(EngineFailure, match="left 10 of 10 cases without an answer: EngineFailure: the server is gone"):
        run_cases(Failing(cases, cases, 10**6), cases)


def test_a_world_or_a_judge_that_raises_is_no_failure_of_the_policy(few: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(bfcl, "judge_conversation", broken)
    assert play_case(Replaying(few, reference), few[0]).outcome is Outcome.JUDGE_FAILURE
    monkeypatch.setattr(BFCLWorld, "call", broken)
    session = play_case(Replaying(few, reference), few[0])
    assert (session.outcome, "out of order" in session.failure) == (Outcome.TOOL_FAILURE, True)


def test_the_figures_of_a_policy_stay_in_its_store_once_and_with_wilsons_interval(few: list[Case], tmp_path: Path) -> None:
    store = build_sample(tmp_path / "store").store
    cases = [case for case in few if case.category in ("base", "long_context")]
    sessions = [play_case(Replaying([case], reference if case.category == "base" else without_the_last), case) for case in cases]
    for _ in range(2):
        save_sessions(store, "policy-2", sessions)
    rows = read_measurements(store).filter(use="bfcl")
    found = {value: (tasks, rate) for value, tasks, rate in rows.select("facet_value", "tasks", "rate").iter_rows()}
    assert found == {"all": (6, 0.5), "base": (3, 1.0), "long_context": (3, 0.0)}
    assert rows.filter(facet_value="base")["low"].item() == pytest.approx(0.4385, abs=1e-4)


def test_what_a_server_left_out_is_measured_again_and_kept(tmp_path: Path) -> None:
    """Given a measurement of which a server spoilt a case, when it is made again without that, then the whole one is shown."""
    store = build_sample(tmp_path / "store").store
    cases = select_cases(["base"], 3)
    for engine in (Failing(cases, cases[:1], 10**6), Replaying(cases, reference)):
        save_sessions(store, "policy-2", run_cases(engine, cases))
    assert read_measurements(store).filter(use="bfcl", facet="all").select("tasks", "rate").rows() == [(3, 1.0)]


def test_a_category_that_is_not_there_is_refused_in_a_line() -> None:
    with pytest.raises(BadInput, match="no multi-turn category 'bass'; it has base, miss_func"):
        select_cases(["bass"])
    assert [case.id for case in select_cases(["base"], 2)] == ["multi_turn_base_0", "multi_turn_base_1"]


def test_without_the_package_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match="pip install --no-deps bfcl-eval"):
        select_cases()
