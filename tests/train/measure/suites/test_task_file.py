"""A file of tasks as a suite: its forms, both verdicts on it, and what is refused in a line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from storage.errors import BadInput
from storage.journal import Journal
from storage.records import JSON, Message
from synth.engines.base import ChatAnswer, ChatRequest
from synth.worlds import WORLDS
from tests.synth.context_tasks import task_read_on
from tests.train.tiny_policies import retail_tasks
from train.measure.suites.figures import Rate, accuracies, disagreements, estimate, evaluation_frame
from train.measure.suites.outcome import run_reference
from train.measure.suites.play import Session, run_cases
from train.measure.suites.replay import ReplayEngine
from train.measure.suites.suite import Reference, SuiteCase, Verdicts
from train.measure.suites.task_file import TaskFileSuite

RetailWorld = WORLDS["retail"]
LOOK_UP: dict[str, JSON] = {
    "world": "retail",
    "request": "Where is order o17?",
    "calls": [{"tool": "get_order", "arguments": {"order": "o17"}}],
}


def suite_of(folder: Path, *rows: dict[str, JSON]) -> TaskFileSuite:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TaskFileSuite(path)


def verdicts(sessions: Sequence[Session]) -> list[Verdicts]:
    return [session.verdicts for session in sessions if session.verdicts is not None]


def rated(sessions: Sequence[Session]) -> list[tuple[bool | None, bool]]:
    return [(verdict.theirs, verdict.accepted) for verdict in verdicts(sessions)]


def test_tasks_of_a_store_pass_with_their_plans_and_fail_without(tmp_path: Path) -> None:
    """Given three tasks as a store has them, two as records and one as a row with its spec, then the plan and its answer pass both checks,
    and idleness passes neither."""
    tasks = retail_tasks("close_order", each=3)
    records = [task.model_dump(mode="json") for task in tasks]
    suite = suite_of(tmp_path, *records[:2], {"spec": tasks[2].model_dump_json()})
    cases = suite.cases()
    assert [case.id for case in cases] == [task.id for task in tasks]
    assert rated(run_cases(ReplayEngine(suite, cases), suite, cases)) == [(True, True)] * 3
    idle = ReplayEngine(suite, cases, lambda _: Reference(((),), ("Done.",)))
    assert rated(run_cases(idle, suite, cases)) == [(False, False)] * 3


def test_a_short_task_expects_what_its_calls_change_and_its_facts(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, LOOK_UP | {"seed": 3, "facts": ["o17"]})
    (case,) = suite.cases()
    assert rated(run_cases(ReplayEngine(suite, [case]), suite, [case])) == [(True, True)]


def test_an_invented_figure_passes_the_bare_expectation_alone(tmp_path: Path) -> None:
    """Given a task whose answer must say `o17`, when a policy adds a price that nothing showed, then the file's expectation is met, our
    verifier refuses, and the difference names the check."""
    suite = suite_of(tmp_path, LOOK_UP | {"seed": 3, "facts": ["o17"]})
    (case,) = suite.cases()
    inventing = ReplayEngine(suite, [case], lambda case: Reference(case.reference.calls, ("Order o17 costs 98765 yuan.",)))
    sessions = run_cases(inventing, suite, [case])
    assert [(one.accepted_by, one.reason) for one in disagreements(sessions)] == [("theirs", "grounded_answer")]


class Counting(ReplayEngine):
    """Counts what it is asked."""

    asked = 0

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += len(requests)
        return super().chat(requests)


CUT = Reference(((),), ("and so on and",))


class CutShort(ReplayEngine):
    """Uses up its tokens where the reference is `CUT`."""

    def answer(self, reference: Reference, messages: Sequence[Message]) -> ChatAnswer:
        return (
            replace(super().answer(reference, messages), finish_reason="length")
            if reference is CUT
            else super().answer(reference, messages)
        )


def test_a_conversation_that_ended_early_fails_by_both_rates_and_agrees_with_none(tmp_path: Path) -> None:
    """Given two cases, when the policy solves one and uses up its tokens in the other, then no checker judged that one: it is a failure by
    both rates, no agreement and no disagreement, and is counted; read from the journal it is the same."""
    suite = suite_of(tmp_path, LOOK_UP, LOOK_UP | {"request": "And what is in o19?"})
    cases, journal = suite.cases(), Journal(tmp_path / "journal.jsonl")
    engine = CutShort(suite, cases, lambda case: CUT if case.id == "2" else case.reference)
    sessions = run_cases(engine, suite, cases, journal=journal)
    assert [one.verdicts and one.verdicts.theirs for one in sessions] == [True, None]
    total = accuracies(sessions)[0]
    assert (total.ours, total.theirs) == (Rate(1, 2), Rate(1, 2))
    assert (total.agree, total.ended_early) == (Rate(1, 1), Rate(1, 2))
    assert not disagreements(sessions)
    again = run_cases(engine, suite, cases, journal=journal)
    assert [(one.outcome, one.verdicts) for one in again] == [(one.outcome, one.verdicts) for one in sessions]
    frame = evaluation_frame(suite, sessions, evaluation_id="e", policy_id="p").filter(facet="checker")
    assert frame.select("facet_value", "tasks", "rate").rows() == [
        ("ours", 2, 0.5),
        ("theirs", 2, 0.5),
        ("agree", 1, 1.0),
        ("ended_early", 2, 0.5),
    ]
    (alone,) = sessions[1:]
    assert "agree" not in evaluation_frame(suite, [alone], evaluation_id="e", policy_id="p")["facet_value"]


def test_cases_that_open_alike_have_their_own_references(tmp_path: Path) -> None:
    """Given two cases with the same request in shops of two seeds, of which the reference changes other orders, then each is played with
    its own."""
    first, second = retail_tasks("close_order", each=2)
    rows = [task.model_copy(update={"messages": first.messages}).model_dump(mode="json") for task in (first, second)]
    suite = suite_of(tmp_path, *rows)
    cases = suite.cases()
    assert cases[0].said == cases[1].said and cases[0].reference != cases[1].reference
    assert [theirs for theirs, _ in rated(run_cases(ReplayEngine(suite, cases), suite, cases))] == [True, True]


class ClockShop(RetailWorld):
    """A shop in which every change leaves the time at which it was made."""

    name = "clock_shop"
    ticks: ClassVar[Iterator[int]] = itertools.count()

    def changes(self) -> dict[str, JSON]:
        made = super().changes()
        return made | {"changed_at": next(self.ticks)} if made else made


@pytest.fixture
def clock_shop() -> Iterator[str]:
    WORLDS.register(ClockShop)
    yield ClockShop.name
    WORLDS.forget(ClockShop.name)


def test_what_differs_from_run_to_run_counts_in_no_verdict(tmp_path: Path, clock_shop: str) -> None:
    """Given a short task whose reference changes an order and the time of the change, when the policy makes the same call, then both
    checkers accept; without it, neither does; and a time that the file itself asks for is compared."""
    (task,) = retail_tasks("close_order")
    calls = [call.model_dump() for call in task.plan.calls]
    row: dict[str, JSON] = {"world": clock_shop, "seed": task.world_seed, "request": "Close it.", "calls": calls}
    suite = suite_of(tmp_path, row, row | {"changes": task.success.changes | {"changed_at": -1}})
    cases = suite.cases()
    assert [verdict.theirs for verdict in verdicts(run_cases(ReplayEngine(suite, cases), suite, cases))] == [True, False]
    assert verdicts(run_cases(ReplayEngine(suite, cases[:1]), suite, cases[:1]))[0].ours["end_state"]
    idle = ReplayEngine(suite, cases[:1], lambda _: Reference(((),), ("Done.",)))
    assert rated(run_cases(idle, suite, cases[:1])) == [(False, False)]


def test_a_task_in_a_context_is_played_in_it(tmp_path: Path) -> None:
    """Given a task whose results are shortened, then the context's tools are on offer, the reference reads on and passes both checkers, and
    the plan alone does not see what it answers."""
    task = task_read_on()
    suite = suite_of(tmp_path, task.model_dump(mode="json"))
    cases = suite.cases()
    assert [tool.name for tool in cases[0].tools] == list(task.tools)
    assert rated(run_cases(ReplayEngine(suite, cases), suite, cases)) == [(True, True)]
    blind = ReplayEngine(suite, cases, lambda _: Reference((task.plan.calls,), (task.plan.answer,)))
    assert [ours for _, ours in rated(run_cases(blind, suite, cases))] == [False]


def test_a_case_that_was_played_is_not_played_again(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, LOOK_UP, LOOK_UP | {"request": "And what is in o19?", "facts": ["o19"]})
    cases, journal = suite.cases(), Journal(tmp_path / "journal.jsonl")
    run_cases(Counting(suite, cases), suite, cases[:1], journal=journal)
    engine = Counting(suite, cases)
    sessions = run_cases(engine, suite, cases, journal=journal)
    assert engine.asked == 2, "two answers: the call and the end of the second case"
    again = run_cases(engine, suite, cases, journal=journal)
    assert engine.asked == 2 and [one.to_json() for one in again] == [one.to_json() for one in sessions]
    assert all(isinstance(message, Message) for message in again[0].messages)


def test_an_estimate_grows_with_the_calls(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, LOOK_UP, LOOK_UP | {"request": "Twice?", "calls": [*LOOK_UP["calls"], *LOOK_UP["calls"]]})
    one, two = (estimate([case]) for case in suite.cases())
    assert (one.requests, two.requests) == (2, 3) and two.prompt_tokens > one.prompt_tokens > 100


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"world": "retial", "request": "x", "facts": ["y"]}, "line 1: world: no world is called 'retial'; did you mean 'retail'"),
        ({"world": "retail", "request": "x"}, "nothing is expected; give changes, calls or facts"),
        ({"world": "retail", "request": "x", "fatcs": ["y"]}, "line 1: fatcs: "),
        ({"world": "retail", "request": "x", "facts": ["y"], "tools": ["fly"]}, "world retail has no tool 'fly'"),
        (LOOK_UP | {"calls": [{"tool": "get_order", "arguments": {}}]}, "a reference call fails: get_order"),
        ("x", "line 1: "),
    ],
)
def test_a_line_that_is_no_task_is_refused_with_its_number(tmp_path: Path, row: dict[str, JSON], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        suite_of(tmp_path, row).cases()


def test_a_file_without_a_task_or_with_an_id_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no task in it"):
        suite_of(tmp_path).cases()
    with pytest.raises(BadInput, match="task id 'a' stands there more than once"):
        suite_of(tmp_path, LOOK_UP | {"id": "a"}, LOOK_UP | {"id": "a"}).cases()


def ids(cases: Sequence[SuiteCase]) -> list[str]:
    return [case.id for case in cases]


def test_lines_without_an_id_are_called_by_their_number(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, LOOK_UP, LOOK_UP | {"id": "mine"}, LOOK_UP)
    assert ids(suite.cases()) == ["1", "mine", "3"]
    assert ids(suite.cases(limit=2)) == ["1", "mine"]


def test_the_reference_of_another_seed_changes_all_that_its_calls_change() -> None:
    tasks = [task for task in retail_tasks("close_order", each=6) if task.world_seed != 0 and task.success.changes]
    assert tasks
    for task in tasks:
        expected = run_reference(WORLDS["retail"](task.world_seed), task.plan.calls, task.world_seed)
        assert expected.changes == task.success.changes
        assert not expected.volatile
