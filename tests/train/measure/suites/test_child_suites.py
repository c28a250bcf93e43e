"""tau2 and AgentDojo through their own programs: references pass both checkers, damaged ones neither, and the user of tau2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from storage.records import Call, Message, Outcome
from synth.engines.base import ChatAnswer, ChatRequest
from synth.suites.child import is_installed
from train.measure.suites.agentdojo import AgentDojoSuite, facts_in
from train.measure.suites.child_suite import ChildSuite
from train.measure.suites.play import Session, run_cases
from train.measure.suites.replay import ReplayEngine
from train.measure.suites.suite import Reference, SuiteCase
from train.measure.suites.suite_names import SUITES
from train.measure.suites.tau2 import YES, Tau2Suite

NEEDED = {name: pytest.mark.skipif(not is_installed(name), reason=f"`make suites` installs {name}") for name in SUITES if name != "bfcl"}
FEW = 2


@pytest.fixture(params=[pytest.param(name, marks=mark) for name, mark in NEEDED.items()])
def suite(request: pytest.FixtureRequest) -> Iterator[ChildSuite]:
    opened = SUITES[request.param](None)
    assert isinstance(opened, ChildSuite)
    yield opened
    opened.close()


def changing(suite: ChildSuite) -> list[SuiteCase]:
    """The first cases whose reference replays cleanly and changes the state."""
    found: list[SuiteCase] = []
    for case in suite.cases():
        expected = suite.expected(case)
        if expected.is_clean and expected.changes:
            found.append(case)
        if len(found) == FEW:
            break
    return found


def as_it_is(case: SuiteCase) -> Reference:
    return case.reference


def play(suite: ChildSuite, cases: Sequence[SuiteCase], alter: Callable[[SuiteCase], Reference] = as_it_is) -> list[Session]:
    return run_cases(ReplayEngine(suite, cases, alter, together=True), suite, cases, in_flight=2)


def without_calls(case: SuiteCase) -> Reference:
    return Reference(((),), case.reference.answers)


def test_both_checkers_accept_the_reference_and_refuse_it_without_its_calls(suite: ChildSuite) -> None:
    cases = changing(suite)
    for session in play(suite, cases):
        assert session.verdicts is not None and session.verdicts.theirs and session.verdicts.accepted, (session.case_id, session.verdicts)
    for session in play(suite, cases, without_calls):
        assert session.verdicts is not None and not session.verdicts.theirs and not session.verdicts.ours["end_state"]
        assert session.outcome is Outcome.POLICY_FAILURE and session.verdicts.reason


def test_a_call_that_fails_changes_nothing_and_is_an_answer(suite: ChildSuite) -> None:
    (case,) = changing(suite)[:1]
    wrong = Call(tool=case.tools[0].name, arguments={"no_such_argument": 1})
    with_wrong = Reference(((wrong, *case.reference.calls[0]),), case.reference.answers)
    (session,) = play(suite, [case], lambda _: with_wrong)
    assert session.verdicts is not None and session.verdicts.theirs and session.verdicts.accepted
    assert any((message.content or "").startswith('{"error"') for message in session.messages if message.role == "tool")


@NEEDED["tau2-retail"]
def test_the_scripted_user_says_yes_to_a_question_and_ends_without_one() -> None:
    suite = Tau2Suite("retail")
    (case,) = changing(suite)[:1]

    class Asking(ReplayEngine):
        """Asks before it calls."""

        def answer(self, reference: Reference, messages: Sequence[Message]) -> ChatAnswer:
            if not any(message.content == YES for message in messages):
                return ChatAnswer(Message(role="assistant", content="Shall I?"), "stop")
            return super().answer(reference, [message for message in messages if message.content not in (YES, "Shall I?")])

    (session,) = run_cases(Asking(suite, [case]), suite, [case])
    suite.close()
    assert [message.content for message in session.messages if message.role == "user"] == [case.said[0], YES]
    assert session.verdicts is not None and session.verdicts.theirs and "not comparable" in suite.note


@NEEDED["tau2-retail"]
def test_an_engine_plays_the_user_with_tau2s_own_words() -> None:
    class ScriptedUser:
        """Greets, and stops after the agent's next words."""

        name = "scripted:user"
        heard: list[ChatRequest]

        def __init__(self) -> None:
            self.heard = []

        def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
            self.heard += requests
            return [ChatAnswer(Message(role="assistant", content="Hello." if len(self.heard) == 1 else "Thanks. ###STOP###"), "stop")]

    user = ScriptedUser()
    suite = Tau2Suite("retail", user)
    case = suite.cases(limit=1)[0]
    engine = ReplayEngine(suite, [case], lambda _: Reference(((),), ("What do you need?",)))
    (session,) = run_cases(engine, suite, [case])
    suite.close()
    assert [message.role for message in session.messages] == ["system", "assistant", "user", "assistant"]
    told = user.heard[1].messages
    assert "User Simulation Guidelines" in (told[0].content or "") and case.source["user"][0] in (told[0].content or "")
    assert [message.role for message in told[1:]] == ["user", "assistant", "user"], "to the user's engine, the agent is the user"


def test_the_values_of_an_expected_output_are_its_facts() -> None:
    def values(output: str, request: str = "") -> list[str]:
        return [fact.value for fact in facts_in(output, request)]

    assert values("1. Diamond Head 2.") == ["Diamond Head"]
    assert values("1. 3 2.https://x.com/reset") == ["3", "https://x.com/reset"]
    assert values("Le Baratin, 4.8, 3 Rue Jouye-Rouve") == ["Le Baratin", "4.8", "3 Rue Jouye-Rouve"]
    assert values("Your total spending in March 2022 was £1,050.", "How much did I spend in March 2022?") == ["1050"]
    assert values("0 4") == ["0", "4"]
    assert values("") == []
    assert AgentDojoSuite.name == "agentdojo"
