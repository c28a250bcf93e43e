"""A failed conversation is explained by what was expected and what was there, after a replay in its world."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from storage.explanations.explain_conversation import FailedCheck
from storage.records import Call, Message, Task
from storage.store import Store
from synth.conversations.failed_checks import DEMANDS, failed_checks
from synth.roles.simulate import simulate
from synth.tasks.solver import execute
from synth.tasks.verify import judge
from synth.worlds import WORLDS, make_world
from tests.storage.conftest import task_row, write
from tests.synth.conversations.conversations import accepted, play, tasks
from tests.synth.retail_tasks import task_of


def explained(folder: Path, task: Task, messages: Sequence[Message], checks: dict[str, bool]) -> dict[str, FailedCheck]:
    """The explanation of a rollout of a stored task, by check."""
    store = Store(folder / "store")
    store.commit([write(store, "tasks", task_row(task))])
    return {each.check: each for each in failed_checks(store, _row(messages, checks) | {"task_id": task.id})}


def _row(messages: Sequence[Message], checks: dict[str, bool]) -> dict[str, Any]:
    return {"messages": json.dumps([message.to_openai() for message in messages]), "checks": json.dumps(checks), "task_id": None}


def attempt(folder: Path, task: Task, calls: Sequence[Call], answer: str) -> dict[str, FailedCheck]:
    done = execute(make_world(task.world, task.world_seed), task.messages, calls, answer)
    return explained(folder, task, done.messages, judge(WORLDS[task.world], task, done.messages, done.changes).checks)


def test_an_end_state_is_compared_where_it_differs(tmp_path: Path) -> None:
    task = task_of("close_order", 0)
    path, value = next(iter(task.success.changes.items()))
    found = attempt(tmp_path, task, (), task.plan.answer)["end_state"]
    assert f"{path} becomes {json.dumps(value)}" in found.expected
    assert f"{path} is not changed" in found.found


def test_a_fact_that_the_answer_lacks_stands_beside_the_answer(tmp_path: Path) -> None:
    task = task_of("order_price", 0)
    found = attempt(tmp_path, task, task.plan.calls, "It costs 1 dollar.")
    assert found["facts"].expected.startswith(task.success.facts[0].value)
    assert "“It costs 1 dollar.”" in found["facts"].found
    assert "evidence" not in found, "its calls showed it"


def test_evidence_that_no_result_showed_is_named(tmp_path: Path) -> None:
    task = task_of("order_price", 0)
    assert all(fact.value in attempt(tmp_path, task, (), "No idea.")["evidence"].expected for fact in task.success.evidence)


def test_refusals_are_compared_by_reason(tmp_path: Path) -> None:
    task = task_of("special_service", 0)
    found = attempt(tmp_path, task, (), "That is against the rules.")["refusal"]
    assert (found.expected, found.found) == ("a refusal: missing tool", "a refusal: rule")


def test_a_value_without_a_source_is_named_with_its_call(tmp_path: Path) -> None:
    task = task_of("order_status", 0)
    found = attempt(tmp_path, task, (Call(tool="get_order", arguments={"order": "o99"}),), "o98 is shipped.")
    assert found["grounded_arguments"].found == "order=o99 in get_order(order=o99)"
    assert "not in the conversation: o98" in found["grounded_answer"].found


def test_a_turn_of_a_conversation_is_explained_by_its_own_answer(tmp_path: Path) -> None:
    for task in tasks("retail", 20):
        messages, played = play(task, lambda _, message: message if message.tool_calls else message.model_copy(update={"content": "Done."}))
        found = explained(tmp_path / task.id, task, messages, played.checks)
        facts = [each for name, each in found.items() if name.endswith(".facts")]
        if facts:
            assert facts[0].expected and facts[0].found == "the answer “Done.”"
            return
    raise AssertionError("no conversation asks for a fact in its first turn")


def test_a_rejected_conversation_is_explained_by_its_blueprint(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    blueprint, simulated = next(pair for pair in accepted("retail") if pair[0].goals[0].facts and len(pair[0].turns) > 1)
    spoilt, texts = list[Message](), 0
    for message in simulated.trajectory.messages:
        is_text = message.role == "assistant" and not message.tool_calls
        spoilt.append(message.model_copy(update={"content": f"text {texts}"}) if is_text else message)
        texts += is_text
    store.commit([write(store, "blueprints", {"blueprint_id": blueprint.id, "spec": blueprint.model_dump_json()})])
    row = _row(spoilt, {"complete": True, "goal_0.facts": False}) | {"blueprint_id": blueprint.id}
    (found,) = failed_checks(store, row)
    settled = next(turn.t for turn in blueprint.turns if 0 in turn.settles)
    assert blueprint.goals[0].facts[0].value in found.expected
    assert (found.check, found.found) == ("goal_0.facts", f"the answer “text {settled}”")


def test_without_its_world_a_failure_still_says_what_must_hold(tmp_path: Path) -> None:
    task = task_of("order_price", 0).model_copy(update={"world": "gone@1a2b3c4d"})
    assert explained(tmp_path, task, task.messages, {"facts": False}) == {"facts": FailedCheck("facts", DEMANDS["facts"])}


@pytest.mark.parametrize("world", ["retail", "city"])
def test_every_check_has_a_demand_in_words(world: str) -> None:
    blueprint, _simulated = accepted(world)[0]
    checks = {*simulate(blueprint).trajectory.checks, *play(tasks(world)[0])[1].checks, "ended_in_time", "observations", "plan_covered"}
    assert {name.rpartition(".")[2] for name in checks} <= DEMANDS.keys()
