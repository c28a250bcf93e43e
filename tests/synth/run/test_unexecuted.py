"""Conversations over tools that no world executes: planned, played and judged by engines, kept apart from what was executed.

Every engine here is scripted. The catalogue is a small one of a clinic's front desk; a real one is used where the test data is there.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from filters.release_synthetic import collect
from storage.errors import BadInput, HeadraceError
from storage.lineage import explain
from storage.records import JSON, Message, Outcome, Tool, ToolCall
from storage.releases.release import ReleaseItem, make_release
from storage.report.sections import summary
from storage.store import Store
from synth.clusters.business_clusters import Cluster, ClusterConfig, cluster_tools
from synth.clusters.catalog import read_catalogue
from synth.clusters.cluster_store import build_parts
from synth.clusters.signatures import LONGEST_SCHEMA, argument_problems, is_offerable
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.engines.budget import BudgetSpent
from synth.roles.base import ToolsFailed
from synth.roles.free_observer import unsupported
from synth.roles.judge_calibration import Agreement
from synth.roles.role_engines import Cast, RolesConfig
from synth.roles.simulate import Simulated
from synth.roles.simulated_tools import LONGEST_RESULT, SimulatedTools
from synth.run.config import SynthesisConfig
from synth.run.synthesize import synthesize
from synth.run.unexecuted import Played, Unexecuted, _brief, play, playable, simulate_clusters


def tool(name: str, description: str, /, *, changes_state: bool = False, **parameters: JSON) -> Tool:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return Tool(name=name, description=description, parameters=schema, server="clinic", domain="Health", changes_state=changes_state)


TEXT: dict[str, JSON] = {"type": "string"}
DAY: dict[str, JSON] = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"}
TOOLS = (
    tool("find_patient", "Finds a patient by name. Returns the patient id.", name=TEXT),
    tool("list_visits", "Lists the visits of a patient. Returns visit ids and dates.", patient_id=TEXT),
    tool("move_visit", "Moves a visit to another day.", changes_state=True, visit_id=TEXT, day=DAY),
)

PLAN: dict[str, Any] = {
    "persona": "hurried",
    "goal": "Move the visit of Ada Brown to 2026-06-03.",
    "turns": [{"text": "When is Ada Brown due? Please move that to 2026-06-03.", "facts": ["Ada Brown", "2026-06-03"]}],
    "calls": [
        {"turn": 0, "tool": "find_patient", "arguments": {"name": {"from": "user", "value": "Ada Brown"}}},
        {"turn": 0, "tool": "list_visits", "arguments": {"patient_id": {"from": "call", "call": 0}}},
        {
            "turn": 0,
            "tool": "move_visit",
            "arguments": {"visit_id": {"from": "call", "call": 1}, "day": {"from": "user", "value": "2026-06-03"}},
        },
    ],
}
RESULTS: dict[str, JSON] = {
    "find_patient": {"patient_id": "p17"},
    "list_visits": {"visits": [{"visit_id": "v204", "day": "2026-05-28"}]},
    "move_visit": {"visit_id": "v204", "day": "2026-06-03"},
}
CALLS: tuple[tuple[str, dict[str, JSON]], ...] = (
    ("find_patient", {"name": "Ada Brown"}),
    ("list_visits", {"patient_id": "p17"}),
    ("move_visit", {"visit_id": "v204", "day": "2026-06-03"}),
)
ANSWER = "Done: visit v204 was on 2026-05-28, and is on 2026-06-03 now."
GRADES = {name: {"why": "It is as it should be.", "grade": 5} for name in ("planning", "fidelity", "presentation")}
CRITERIA = {name: ["It is what was asked for."] for name in GRADES}

Saying = Callable[[ChatRequest, int], str]
"""What a role says to a request that it is asked for the n-th time in a conversation."""


class Scripted:
    """A scripted engine that plays one role. requests: all that it was asked."""

    def __init__(self, role: str, say: Callable[[ChatRequest], Message]) -> None:
        self.name, self._say = f"scripted:{role}", say
        self.requests: list[ChatRequest] = []
        self._lock = threading.Lock()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        with self._lock:
            self.requests += requests
        return [ChatAnswer(self._say(request), "stop", prompt_tokens=10, completion_tokens=1) for request in requests]


def text(content: str) -> Message:
    return Message(role="assistant", content=content)


def planning(*answers: JSON) -> Scripted:
    """Scripted: gives these plans one after the other as it is told to repair them, the last one again and again."""

    def say(request: ChatRequest) -> Message:
        tries = sum(message.role == "assistant" for message in request.messages)
        return text(json.dumps(answers[min(tries, len(answers) - 1)]))

    return Scripted("planner", say)


def working(calls: Sequence[tuple[str, Mapping[str, JSON]]] = CALLS, answer: str = ANSWER) -> Scripted:
    """Scripted: makes these calls one by one, and answers."""

    def say(request: ChatRequest) -> Message:
        made = sum(bool(message.tool_calls) for message in request.messages)
        if made == len(calls):
            return text(answer)
        name, arguments = calls[made]
        return Message(role="assistant", tool_calls=(called(name, arguments, made),))

    return Scripted("assistant", say)


def called(name: str, arguments: Mapping[str, JSON], at: int = 0) -> ToolCall:
    return ToolCall.model_validate({"id": f"call_{at}", "function": {"name": name, "arguments": json.dumps(arguments)}})


def serving(results: Mapping[str, JSON] = RESULTS) -> Scripted:
    """Scripted: the result of whatever tool the call at the end of the request names."""
    return Scripted("tools", lambda request: text(json.dumps(results[asked_for(request).split()[0]])))


def asked_for(request: ChatRequest) -> str:
    (first,) = [message for message in request.messages if message.role == "user"][:1]
    return (first.content or "").rpartition("The call: ")[2]


def judging(grade: int = 5) -> Scripted:
    def say(request: ChatRequest) -> Message:
        grades = {name: {"why": "Because.", "grade": grade} for name in GRADES}
        return text(json.dumps(CRITERIA if "set the bar" in (request.messages[0].content or "") else grades))

    return Scripted("judge", say)


def failing(role: str, error: Exception) -> Scripted:
    def say(_: ChatRequest) -> Message:
        raise error

    return Scripted(role, say)


def players(in_flight: int = 1, **others: Scripted | None) -> Cast:
    roles: dict[str, Any] = {"planner": planning(PLAN), "assistant": working(), "tools": serving(), "judge": judging(), **others}
    named = {role: f"openai:{engine.name}" for role, engine in roles.items() if engine is not None}
    return Cast(RolesConfig(in_flight=in_flight, **named), **roles)


@pytest.fixture(scope="module")
def clusters() -> list[Cluster]:
    found = cluster_tools(TOOLS)
    assert [(cluster.world, len(cluster.tool_ids)) for cluster in found] == [(None, 3)]
    return found


@pytest.fixture
def one(clusters: list[Cluster]) -> Callable[[Cast], Played]:
    """One conversation over the clinic's cluster."""
    (offer,) = playable(clusters, TOOLS)
    return lambda cast: play(_brief(offer, 0, 0, 0.0, cast), cast)


def conversation(played: Played) -> Simulated:
    assert played.simulated is not None, played.reason
    return played.simulated


# ---- a conversation and its faults ---------------------------------------------------------------------------------------


def test_what_is_planned_played_and_judged_well_is_accepted(one: Callable[[Cast], Played]) -> None:
    cast = players()

    simulated = conversation(one(cast))

    assert (simulated.accepted, simulated.reason, simulated.trajectory.outcome) == (True, "", Outcome.SUCCESS)
    roles = [message.role for message in simulated.trajectory.messages]
    assert roles == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert simulated.trajectory.teacher == "scripted:assistant"
    asked = [cast.planner, cast.assistant, cast.tools, cast.judge]
    assert simulated.trajectory.cost.prompt_tokens == 10 * sum(len(engine.requests) for engine in asked if isinstance(engine, Scripted))
    assert all(holds for holds in simulated.trajectory.checks.values()) and "judge" in simulated.trajectory.checks


def test_the_assistant_sees_no_plan_and_the_tools_no_goal(one: Callable[[Cast], Played]) -> None:
    worker, server = working(), serving()
    one(players(assistant=worker, tools=server))

    assert {tool.name for tool in worker.requests[0].tools} == {tool.name for tool in TOOLS}
    assert [message.content for message in worker.requests[0].messages] == [PLAN["turns"][0]["text"]]
    assert not any(PLAN["goal"] in (message.content or "") for request in server.requests for message in request.messages)


def changed(**fields: JSON) -> dict[str, Any]:
    return PLAN | fields


def first_call(**argument: JSON) -> dict[str, Any]:
    return changed(calls=[{"turn": 0, "tool": "find_patient", "arguments": {"name": argument}}, *PLAN["calls"][1:]])


def wording(text: str, *facts: str) -> dict[str, Any]:
    return changed(turns=[{"text": text, "facts": list(facts)}])


BAD_PLANS: dict[str, tuple[JSON, str]] = {
    "an unknown tool": (changed(calls=[{"turn": 0, "tool": "fly", "arguments": {}}] * 2), "fly"),
    "one call": (changed(calls=PLAN["calls"][:1]), "calls"),
    "a turn that there is not": (changed(calls=[*PLAN["calls"][:2], PLAN["calls"][2] | {"turn": 1}]), "turn 1"),
    "a missing argument": (changed(calls=[*PLAN["calls"][:2], PLAN["calls"][2] | {"arguments": {}}]), "visit_id"),
    "a value that breaks the schema": (
        changed(
            calls=[
                *PLAN["calls"][:2],
                PLAN["calls"][2] | {"arguments": {"visit_id": {"from": "call", "call": 1}, "day": {"from": "user", "value": "Ada Brown"}}},
            ]
        ),
        "does not match",
    ),
    "an unknown parameter": (
        changed(calls=[PLAN["calls"][0], *[{"turn": 0, "tool": "list_visits", "arguments": {"who": {"from": "call", "call": 0}}}] * 2]),
        "no parameter who",
    ),
    "a value that nobody says": (first_call(**{"from": "user", "value": "Grace Hopper"}), "word for word"),
    "a source that comes later": (first_call(**{"from": "call", "call": 2}), "no earlier call"),
    "an identifier from nowhere": (
        changed(
            calls=[PLAN["calls"][0], {"turn": 0, "tool": "list_visits", "arguments": {"patient_id": {"from": "const", "value": "p1"}}}]
        ),
        "identifies something",
    ),
    "no call that uses another": (changed(calls=[PLAN["calls"][0]] * 2), "no call uses"),
    "a fact that is not told": (wording("Move the visit of Ada Brown to 2026-06-03.", "Dr Lee"), "dr lee"),
    "a tool's name in the request": (wording("Ada Brown: find_patient, then move to 2026-06-03.", "Ada Brown"), "find_patient"),
    "a list of instructions": (wording("1. find Ada Brown\n2. look\n3. move to 2026-06-03", "Ada Brown"), "number the steps"),
    "the wrong language": (wording("请把 Ada Brown 的预约改到 2026-06-03。", "Ada Brown"), "English"),
}


@pytest.mark.parametrize("kind", BAD_PLANS)
def test_a_bad_plan_is_written_again_from_what_is_wrong_with_it(one: Callable[[Cast], Played], kind: str) -> None:
    bad, told = BAD_PLANS[kind]
    planner = planning(bad, PLAN)

    assert conversation(one(players(planner=planner))).accepted

    first, second = planner.requests
    assert told in (second.messages[-1].content or ""), second.messages[-1].content
    assert second.messages[: len(first.messages)] == first.messages


def test_a_plan_that_is_never_right_costs_nothing_more(one: Callable[[Cast], Played]) -> None:
    worker = working()
    played = one(players(planner=planning(BAD_PLANS["one call"][0]), assistant=worker))

    assert (played.status, played.plan, played.simulated) == ("unplanned", None, None)
    assert played.reason.startswith("no_plan: ")
    assert worker.requests == []


FAULTS: dict[str, tuple[dict[str, Scripted], str, Outcome]] = {
    "tools that talk nonsense": ({"tools": Scripted("tools", lambda _: text("I would say p17"))}, "tool_failure", Outcome.TOOL_FAILURE),
    "tools that make errors up": ({"tools": serving({name: {"error": "down"} for name in RESULTS})}, "tool_failure", Outcome.TOOL_FAILURE),
    "no answer from the tools": ({"tools": failing("tools", EngineFailure("gone"))}, "infra_failure", Outcome.INFRA_FAILURE),
    "no answer from the assistant": ({"assistant": failing("assistant", EngineFailure("gone"))}, "infra_failure", Outcome.INFRA_FAILURE),
    "a judge without a verdict": ({"judge": Scripted("judge", lambda _: text("Fine!"))}, "judge_failure", Outcome.JUDGE_FAILURE),
    "a user off its script": ({"user": Scripted("user", lambda _: text("Hello there!"))}, "user_failure", Outcome.USER_FAILURE),
    "a judge that is not pleased": ({"judge": judging(3)}, "judge", Outcome.POLICY_FAILURE),
    "an invented number": ({"assistant": working(answer=ANSWER + " That costs 85 dollars.")}, "grounded_answers", Outcome.POLICY_FAILURE),
    "an invented identifier": (
        {"assistant": working([CALLS[0], ("list_visits", {"patient_id": "p99"}), CALLS[2]])},
        "grounded_arguments",
        Outcome.POLICY_FAILURE,
    ),
    "nothing called": ({"assistant": working([], "It is on another day now.")}, "covers_plan", Outcome.POLICY_FAILURE),
    "calls in no order": ({"assistant": working([CALLS[1], CALLS[0], CALLS[2]])}, "covers_plan", Outcome.POLICY_FAILURE),
    "an argument of no sense": (
        {"assistant": working([*CALLS[:2], ("move_visit", {"visit_id": "v204", "day": "soon"}), CALLS[2]])},
        "schema_valid",
        Outcome.POLICY_FAILURE,
    ),
    "no words": ({"assistant": working(answer=" ")}, "answered", Outcome.POLICY_FAILURE),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_is_whose_it_is(one: Callable[[Cast], Played], fault: str) -> None:
    others, reason, outcome = FAULTS[fault]
    judge = judging()

    simulated = conversation(one(players(**{"judge": judge, **others})))

    assert (simulated.accepted, simulated.reason, simulated.trajectory.outcome) == (False, reason, outcome)
    assert simulated.trajectory.reward == (0.0 if outcome is Outcome.POLICY_FAILURE else None), "held against the assistant, or not"
    assert judge.requests == [], "where code has decided, nobody is asked"


def test_a_judge_that_gave_no_verdict_is_paid_all_the_same(one: Callable[[Cast], Played]) -> None:
    cast = players(judge=Scripted("judge", lambda _: text("Fine!")))
    simulated = conversation(one(cast))
    engines = [cast.planner, cast.assistant, cast.tools, cast.judge]
    assert simulated.trajectory.cost.prompt_tokens == 10 * sum(len(engine.requests) for engine in engines if isinstance(engine, Scripted))


def test_other_arguments_and_a_look_more_are_the_assistants_to_choose(one: Callable[[Cast], Played]) -> None:
    """The negative control of the checks above: what departs from the plan without breaking its order is accepted."""
    calls = [("find_patient", {"name": "Brown"}), CALLS[1], CALLS[1], CALLS[2]]
    assert conversation(one(players(assistant=working(calls)))).accepted


def test_a_user_that_is_an_engine_says_it_in_other_words(one: Callable[[Cast], Played]) -> None:
    said = "Could you put Ada Brown's appointment on 2026-06-03 instead?"
    simulated = conversation(one(players(user=Scripted("user", lambda _: text(said)))))

    assert simulated.accepted and simulated.user_turns == (1, 1)
    assert simulated.trajectory.messages[0].content == said


@pytest.mark.parametrize(
    ("answer", "invented"),
    [
        ("Visit v204 on 2026-05-28 at 09:30, 1 of 2, costs $85.50.", []),
        ("改到5月28日上午9点30分，就诊号v204，费用85.5元。", []),
        ("Invoice INV-2024-001 is paid.", []),
        ("Visit v205 on 2026-05-29 at 10:30 costs 91.", ["v205", "2026-05-29", "10:30", "91"]),
        ("发票INV-2024-002。", ["-2"]),
    ],
)
def test_what_an_answer_may_rest_on(answer: str, invented: list[str]) -> None:
    heard = '{"visits": [{"visit_id": "v204", "at": "2026-05-28T09:30:00", "fee": 85.5, "bill": "inv-2024-001"}]}\n2'
    assert unsupported(answer, heard) == invented


# ---- the tools ------------------------------------------------------------------------------------------------------------


def test_the_same_call_is_asked_once_until_something_changed() -> None:
    engine = serving()
    box = SimulatedTools(engine, TOOLS, "seed")
    look, move = called("list_visits", {"patient_id": "p17"}), called("move_visit", {"visit_id": "v204", "day": "2026-06-03"})

    assert box.run(look).content == box.run(look).content
    assert len(engine.requests) == 1
    box.run(move)
    box.run(look)
    assert [asked_for(request).split()[0] for request in engine.requests] == ["list_visits", "move_visit", "list_visits"]
    shown = [message.content or "" for message in engine.requests[-1].messages]
    assert any("v204" in content and "move_visit" in content for content in shown[1:]), "it is shown what it answered before"
    assert {request.temperature for request in engine.requests} == {0.0}


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("fly", "{}", "no such tool"),
        ("list_visits", "p17", "no JSON object"),
        ("list_visits", "{}", "patient_id"),
        ("list_visits", '{"patient_id": 17}', "17"),
        ("list_visits", '{"patient_id": "p17", "page": 2}', "no parameter page"),
        ("move_visit", '{"visit_id": "v204", "day": "tomorrow"}', "tomorrow"),
    ],
)
def test_a_bad_call_is_an_observation_and_asks_nobody(name: str, arguments: str, told: str) -> None:
    engine = serving()
    call = ToolCall.model_validate({"id": "a", "function": {"name": name, "arguments": arguments}})

    result = SimulatedTools(engine, TOOLS, "seed").run(call)

    assert result.tool_call_id == "a" and told in json.loads(result.content or "")["error"]
    assert engine.requests == []


def test_a_declared_output_is_kept_to_and_a_bad_result_written_again() -> None:
    output: dict[str, JSON] = {"type": "object", "properties": {"patient_id": {"type": "string"}}, "required": ["patient_id"]}
    declared = [TOOLS[0].model_copy(update={"output": output})]
    tries = ["p17", '{"patient_id": 17}', '{"error": "busy"}', json.dumps({"patient_id": "p" * LONGEST_RESULT}), '{"patient_id": "p17"}']

    def say(request: ChatRequest) -> Message:
        return text(tries[sum(message.role == "assistant" for message in request.messages)])

    engine = Scripted("tools", say)
    result = SimulatedTools(engine, declared, "seed", repairs=4).run(called("find_patient", {"name": "Ada"}))

    assert json.loads(result.content or "") == {"patient_id": "p17"}
    assert engine.requests[0].schema == output
    with pytest.raises(ToolsFailed, match="find_patient"):
        SimulatedTools(engine, declared, "seed", repairs=3).run(called("find_patient", {"name": "Ada"}))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "thing"},
        {"type": "string"},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/definitions/a"}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
        {"type": "object", "$ref": "#"},
        {"type": "object", "description": "x" * LONGEST_SCHEMA},
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_a_tool_whose_calls_cannot_be_checked_is_not_offered(clusters: list[Cluster], parameters: dict[str, JSON]) -> None:
    unknown = TOOLS[1].model_copy(update={"parameters": parameters})
    ((_, offered),) = playable(clusters, [TOOLS[0], unknown, TOOLS[2]])

    assert [tool.name for tool in offered] == ["find_patient", "move_visit"]
    assert playable(clusters, [TOOLS[0], unknown]) == []


def test_references_inside_a_schema_are_followed_and_other_names_refused_unless_they_are_allowed() -> None:
    schema: dict[str, JSON] = {
        "type": "object",
        "properties": {"day": {"$ref": "#/$defs/day"}},
        "required": ["day"],
        "$defs": {"day": {"type": "string", "pattern": r"^\d{4}-"}},
    }
    moving, open_one = (TOOLS[2].model_copy(update={"parameters": schema | more}) for more in ({}, {"additionalProperties": True}))

    assert is_offerable(moving) and not is_offerable(moving.model_copy(update={"name": "move a visit"}))
    assert argument_problems(moving, {"day": "2026-06-03"}) == []
    assert "'soon' does not match" in argument_problems(moving, {"day": "soon"})[0]
    assert argument_problems(moving, {"day": "2026-06-03", "page": 1}) == ["move_visit has no parameter page"]
    assert argument_problems(open_one, {"day": "2026-06-03", "page": 1}) == []
    assert argument_problems(moving, {"day": None}, unknown=["day"]) == []


# ---- the store ------------------------------------------------------------------------------------------------------------


def made(store: Store, clusters: list[Cluster], cast: Cast, n: int, **settings: Any) -> Unexecuted:
    store.commit(build_parts(store, TOOLS, ClusterConfig(), clusters))
    return simulate_clusters(store, clusters, TOOLS, cast, n, **settings)


def test_what_is_stored_is_marked_and_kept_apart(tmp_path: Path, clusters: list[Cluster]) -> None:
    store, shown = Store(tmp_path), list[tuple[str, int, int]]()
    agreement = Agreement(agreed=18, labelled=20, kappa=0.8, missed={})

    result = made(store, clusters, replace(players(in_flight=4), judged=agreement), 12, progress=lambda *told: shown.append(told))

    assert (result.accepted, result.outcomes, result.reasons, result.left_out) == (12, {"success": 12}, {}, 0)
    assert [done for _, done, _ in shown] == [10, 12]
    rows = store.query("SELECT * FROM trajectories JOIN provenance USING (trajectory_id)").to_dicts()
    assert len(rows) == 12 and all(row["accepted"] and row["is_simulated"] and row["world"] is None for row in rows)
    assert all(row["task_id"] is None and row["cluster_id"] == clusters[0].id for row in rows)
    assert json.loads(rows[0]["roles"])["tools"] == "openai:scripted:tools" and json.loads(rows[0]["roles"])["user"] == "scripted"
    assert set(json.loads(rows[0]["prompts"])) == {"free_plan", "user", "tools", "judge", "judge_criteria"}
    assert (rows[0]["judge_agreement"], rows[0]["judge_labelled"], rows[0]["planning"]) == (0.9, 20, 5)
    assert store.query("SELECT DISTINCT world, round, status FROM blueprints").rows() == [(None, None, "accepted")]
    for table in ("tasks", "decisions", "diversity"):
        assert store.query(f"SELECT count(*) FROM {table}").item() == 0, table
    with pytest.raises(BadInput, match="no synthesised conversation"):
        collect(store)
    with pytest.raises(HeadraceError, match="was not executed"):
        make_release(store, "mine", {"sft": [ReleaseItem("trajectory", rows[0]["trajectory_id"], None)]}, {})
    assert summary(store)["trajectories accepted"] == 0, "the report counts what was executed"
    facts = [" ".join(fact) for fact in explain(store, rows[0]["trajectory_id"]).facts]
    assert any("scripted:tools" in fact and "nothing was executed" in fact for fact in facts), facts


def test_a_synthesis_over_a_catalogue_alone_holds_nothing_else(tmp_path: Path) -> None:
    catalogue = tmp_path / "tools.jsonl"
    catalogue.write_text("".join(f"{json.dumps(one.to_openai() | {'server': one.server})}\n" for one in TOOLS))
    cast, store = players(), Store(tmp_path / "store")
    roles = cast.config.model_copy(update={"played": 3})
    config = SynthesisConfig(worlds=(), drills={}, tools=catalogue, roles=roles, chinese_share=0)

    result = synthesize(store, config, cast=cast)

    assert (result.played, result.accepted, result.rounds, result.figures) == (3, 0, 0, ())
    assert any(
        "3 of 3 conversations with played tools accepted" in note and "nothing of them was executed" in note for note in result.notes
    )
    assert store.query("SELECT count(*) AS n FROM trajectories JOIN provenance USING (trajectory_id) WHERE is_simulated")["n"][0] == 3
    with pytest.raises(HeadraceError, match="no cluster of tools can serve any intent"):
        synthesize(Store(tmp_path / "other"), config.model_copy(update={"roles": RolesConfig()}))


def test_a_mixed_run_adds_up(tmp_path: Path, clusters: list[Cluster]) -> None:
    """Of conversations side by side some cannot be planned and some are not answered; each is counted once, by whose fault it was."""

    def say(request: ChatRequest) -> Message:
        if request.seed % 3 == 0:
            raise EngineFailure("gone")
        return text(json.dumps(PLAN if request.seed % 3 == 1 else []))

    planner = Scripted("planner", say)
    result = made(Store(tmp_path), clusters, players(4, planner=planner, judge=judging(2)), 20)

    kinds = Counter(seed % 3 for seed in {request.seed for request in planner.requests})
    assert set(kinds) == {0, 1, 2} and kinds.total() == 20
    assert result.outcomes == {"policy_failure": kinds[1], "unplanned": kinds[0] + kinds[2]}
    assert result.reasons == {"judge": kinds[1], "infra_failure": kinds[0], "no_plan": kinds[2]}


def test_a_run_that_was_cut_off_goes_on_and_pays_nothing_twice(tmp_path: Path, clusters: list[Cluster]) -> None:
    made(Store(tmp_path / "whole"), clusters, players(4), 25)
    store, worker = Store(tmp_path / "cut"), working()
    spent = [worker._say]

    def until_spent(request: ChatRequest) -> Message:
        if len(worker.requests) > 15 * 4:
            raise BudgetSpent("the budget is spent")
        return spent[0](request)

    worker._say = until_spent
    stopped = made(store, clusters, players(assistant=worker), 25)
    assert (stopped.stopped, stopped.accepted, stopped.outcomes) == ("the budget is spent", 10, {"success": 10})
    assert len(stopped.parts) == 3 and store.query("SELECT count(*) FROM trajectories").item() == 10, (
        "the whole part before it is committed"
    )
    again = players()
    result = made(store, clusters, again, 25)

    assert (result.accepted, result.stopped) == (25, "") and store.content_hash() == Store(tmp_path / "whole").content_hash()
    assert isinstance(again.planner, Scripted) and len(again.planner.requests) == 15, "those of the part that is there are not asked again"
    once_more = players()
    assert made(store, clusters, once_more, 25) == result
    assert isinstance(once_more.planner, Scripted) and once_more.planner.requests == []


def test_another_engine_makes_other_parts_and_more_conversations_keep_the_first(tmp_path: Path, clusters: list[Cluster]) -> None:
    store = Store(tmp_path)
    first = made(store, clusters, players(), 10)
    more = made(store, clusters, players(), 20)
    assert set(first.parts) < set(more.parts)
    other = working()
    other.name = "scripted:other"
    assert set(made(store, clusters, players(assistant=other), 10).parts).isdisjoint(more.parts)


def test_casts_that_differ_in_one_engine_stand_side_by_side_in_one_store(tmp_path: Path, clusters: list[Cluster]) -> None:
    """Given the same planner, when others play the assistant (and fail now and then) or the tools, then all is kept, under their names."""
    store, worker, server = Store(tmp_path), working(answer=ANSWER + " That costs 85 dollars."), serving()
    worker.name, server.name = "scripted:other", "scripted:box"
    casts = [players(), players(assistant=worker), players(tools=server)]
    casts.append(replace(casts[0], judged=Agreement(agreed=18, labelled=20, kappa=0.8, missed={})))

    results = [made(store, clusters, cast, 10) for cast in casts]

    assert [result.accepted for result in results] == [10, 0, 10, 10]
    assert len({part for result in results for part in result.parts}) == 3 * len(casts)
    rows = store.query(
        "SELECT teacher, accepted, roles, judge_agreement FROM trajectories JOIN provenance USING (trajectory_id)"
    ).to_dicts()
    assert Counter((row["teacher"], json.loads(row["roles"])["tools"], row["accepted"], row["judge_agreement"]) for row in rows) == {
        ("scripted:assistant", "openai:scripted:tools", True, None): 10,
        ("scripted:other", "openai:scripted:tools", False, None): 10,
        ("scripted:assistant", "openai:scripted:box", True, None): 10,
        ("scripted:assistant", "openai:scripted:tools", True, 0.9): 10,
    }
    assert {json.loads(row["roles"])["assistant"].partition(":")[2] == row["teacher"] for row in rows} == {True}


def test_an_engine_that_is_gone_stops_the_run_and_leaves_nothing_that_a_later_one_would_take_for_done(
    tmp_path: Path, clusters: list[Cluster]
) -> None:
    store = Store(tmp_path)
    with pytest.raises(EngineFailure, match=r"10 of 10 .*gone"):
        made(store, clusters, players(planner=failing("planner", EngineFailure("gone"))), 10)
    with pytest.raises(EngineFailure, match=r"10 of 10 .*gone"):
        made(store, clusters, players(tools=failing("tools", EngineFailure("gone"))), 10)
    assert store.query("SELECT count(*) FROM blueprints").item() == 0
    assert made(store, clusters, players(), 10).accepted == 10


def test_nothing_is_spent_where_nothing_could_come_of_it(tmp_path: Path, clusters: list[Cluster]) -> None:
    cast = players(judge=None)
    with pytest.raises(BadInput, match="no engine is judge"):
        simulate_clusters(Store(tmp_path), clusters, TOOLS, cast, 5)
    with pytest.raises(BadInput, match="JSON schemas"):
        simulate_clusters(Store(tmp_path), clusters, [tool.model_copy(update={"parameters": {}}) for tool in TOOLS], players(), 5)
    assert isinstance(cast.planner, Scripted) and cast.planner.requests == []


def test_a_synthesis_that_could_not_play_its_tools_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    catalogue = tmp_path / "tools.jsonl"
    catalogue.write_text("".join(f"{json.dumps(one.to_openai() | {'server': one.server})}\n" for one in TOOLS))
    cast, store = players(judge=None), Store(tmp_path / "store")
    config = SynthesisConfig(worlds=(), drills={}, tools=catalogue, roles=cast.config, chinese_share=0)

    with pytest.raises(BadInput, match="no engine is judge"):
        synthesize(store, config, cast=cast)

    assert store.query("SELECT count(*) FROM tools").item() == 0
    none = config.model_copy(update={"roles": cast.config.model_copy(update={"played": 0})})
    assert synthesize(store, none, cast=cast).played == 0, "who wants none is not refused"


def test_a_synthesis_whose_budget_is_spent_keeps_what_was_played(tmp_path: Path) -> None:
    catalogue = tmp_path / "tools.jsonl"
    catalogue.write_text("".join(f"{json.dumps(one.to_openai() | {'server': one.server})}\n" for one in TOOLS))
    planner = planning(PLAN)
    say = planner._say

    def until_spent(request: ChatRequest) -> Message:
        if len(planner.requests) > 12:
            raise BudgetSpent("the budget is spent")
        return say(request)

    planner._say = until_spent
    cast, store = players(planner=planner), Store(tmp_path / "store")

    result = synthesize(store, SynthesisConfig(worlds=(), drills={}, tools=catalogue, roles=cast.config, chinese_share=0), cast=cast)

    assert result.played == 10
    assert any("10 of 20 conversations with played tools accepted" in note for note in result.notes), result.notes
    assert any("stopped among conversations with played tools: the budget is spent" in note for note in result.notes), result.notes


PLAIN: Mapping[str, JSON] = {"": "lamp", "string": "lamp", "integer": 12, "number": 12}


def plainly(tool: Tool) -> dict[str, JSON] | None:
    """Arguments of the required parameters, where these take any text or number."""
    declared, required = tool.parameters.get("properties", {}), tool.parameters.get("required", [])
    is_plain = all(set(declared.get(name, {})) <= {"type", "description", "title"} for name in required)
    values = {name: PLAIN.get(declared.get(name, {}).get("type", "")) for name in required}
    return values if is_plain and required and None not in values.values() else None


def test_a_cluster_of_a_real_catalogue(test_data: Path, tmp_path: Path) -> None:
    path = test_data / "mcp_tools_toucan.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    tools = [tool for tool in read_catalogue(path).tools if tool.server.startswith(("github", "trello", "spotify", "notion"))]
    clusters = cluster_tools(tools)
    by_id = {tool.id: tool for _, offered in playable(clusters, tools) for tool in offered}
    edge, cluster = next(
        (edge, cluster)
        for cluster in clusters
        for edge in cluster.edges
        if all(
            end in by_id and plainly(by_id[end]) and PLAIN["string"] in (plainly(by_id[end]) or {}).values()
            for end in (edge.source, edge.target)
        )
    )
    given, taken = plainly(by_id[edge.source]) or {}, plainly(by_id[edge.target]) or {}
    chained = next(name for name, value in taken.items() if value == PLAIN["string"])
    said = {name: {"from": "user", "value": value} for name, value in taken.items()}
    plan = PLAN | {
        "turns": [{"text": "Please look up the lamp for me, the one with the number 12.", "facts": ["lamp", "12"]}],
        "calls": [
            {
                "turn": 0,
                "tool": by_id[edge.source].name,
                "arguments": {name: {"from": "user", "value": one} for name, one in given.items()},
            },
            {"turn": 0, "tool": by_id[edge.target].name, "arguments": said | {chained: {"from": "call", "call": 0}}},
        ],
    }
    calls = [(by_id[edge.source].name, given), (by_id[edge.target].name, taken | {chained: "k7"})]
    cast = players(
        planner=planning(plan),
        tools=Scripted("tools", lambda _: text('{"key": "k7", "state": "lit"}')),
        assistant=working(calls, "The lamp, number 12, is lit."),
    )

    result = simulate_clusters(Store(tmp_path), [cluster], tools, cast, 1)

    assert (result.accepted, result.outcomes) == (1, {"success": 1}), result.reasons
