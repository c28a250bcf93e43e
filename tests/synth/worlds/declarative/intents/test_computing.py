"""Compute intents in a real sandbox: their tasks need the program, and are not offered where no sandbox works."""

from __future__ import annotations

import copy
import json
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.records import CODE_TOOL, Frame, FunctionCall, Language, Message, Task, ToolCall
from storage.store import Store
from synth.clusters.business_clusters import cluster_tools
from synth.engines.base import ChatAnswer
from synth.rollouts.episode import Episode
from synth.run.config import SynthesisConfig
from synth.run.synthesize import synthesize
from synth.sandbox import Sandbox, SandboxError, pick
from synth.tasks.assessment import assess
from synth.tasks.difficulty import difficulty
from synth.tasks.solver import admit, check_admission, draw_seed, execute, expert_messages
from synth.tasks.verify import judge, verify, verify_teacher
from synth.tasks.wording import load_templates, render
from synth.worlds import WORLDS, make_world, run_python
from synth.worlds.base import Unsolvable
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.intents.computing import ComputeIntent, compute_intents
from synth.worlds.declarative.intents.row_lists import OwnedRows
from synth.worlds.declarative.language.resolve import resolve
from synth.worlds.declarative.tools import LIST_LIMIT

DOMAINS = ("banking", "logistics", "school", "gen-1")
JOBS = [(world, name) for world in DOMAINS for name, intent in WORLDS[world].intents.items() if isinstance(intent, ComputeIntent)]

needs_sandbox = pytest.mark.skipif(bool(run_python.missing()), reason=f"no sandbox: {run_python.missing()}")


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine on which neither provider works."""
    caches = (run_python._provider, run_python._tool_of, run_python.missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def draw(world: str, name: str, rng: random.Random, language: str = "en") -> Task:
    seed = draw_seed(rng, "train")
    intent = WORLDS[world].intents[name]
    slots = make_world(world, seed).draw_slots(name, frozenset(slot.name for slot in intent.slots), rng)
    frame = Frame(world=world, intent=name, slots=slots)
    typed_language: Language = "en" if language == "en" else "zh"
    text = render(WORLDS[world], frame, typed_language, rng)
    return admit(WORLDS[world], frame, text=text, language=typed_language, seed=seed, division="seed")


# ---- the tool in a world ------------------------------------------------------------------------------------------------------------


def test_every_spec_world_has_the_tool_beside_its_own() -> None:
    for name in DOMAINS:
        world = WORLDS[name]
        tool = world.tools[-1]
        assert (tool.name, tool.world) == (CODE_TOOL, name)
        assert CODE_TOOL not in world.callees
        assert tool.server not in {other.server for other in world.tools[:-1]}
    assert len({tool.id for name in DOMAINS for tool in WORLDS[name].tools if tool.name == CODE_TOOL}) == len(DOMAINS)


def test_no_cluster_holds_it_but_a_strangers_tool_of_that_name_is_a_tool_like_any() -> None:
    tools = WORLDS["banking"].tools
    assert not any(CODE_TOOL in cluster.tool_names for cluster in cluster_tools(tools))
    names = {"get_card": CODE_TOOL}
    strangers = [tool.model_copy(update={"world": None, "name": names.get(tool.name, tool.name)}) for tool in tools[:-1]]
    assert any(CODE_TOOL in cluster.tool_names for cluster in cluster_tools(strangers))


@needs_sandbox
def test_a_world_runs_it_and_nothing_in_it_changes() -> None:
    world = make_world("banking", 0)
    before = world.state()
    answer = world.call(CODE_TOOL, '{"code": "print(6 * 7)"}')
    assert json.loads(answer.content)["stdout"] == "42\n"
    assert world.call(CODE_TOOL, {"code": "print(6 * 7)"}) == answer
    wrong: list[Any] = [{"program": "1"}, {}, [{}], "[1]", "{", {"code": 1}, {"code": " "}, {"code": "1", "timeout_s": 99}]
    assert all(world.call(CODE_TOOL, each).is_error for each in wrong)
    assert (world.state(), world.changes()) == (before, {})


# ---- the tasks ----------------------------------------------------------------------------------------------------------------------


def test_there_are_many_kinds_and_each_is_worded() -> None:
    kinds = {name.split("_")[0] for _, name in JOBS}
    assert {"total", "average", "share"} <= kinds
    for world in DOMAINS:
        load_templates(WORLDS[world])
    for world, name in JOBS:
        intent = WORLDS[world].intents[name]
        assert intent.leaf == f"{WORLDS[world].domain.name}.compute.{name}"
        calls = intent.shape(frozenset(slot.name for slot in intent.slots)).calls
        assert calls[-1] == (CODE_TOOL, (len(calls) - 2,))
        assert all(len(texts) >= 4 for texts in intent.wordings().values())


@needs_sandbox
@pytest.mark.parametrize(("world", "name"), JOBS)
def test_a_drawn_task_needs_the_program(world: str, name: str) -> None:
    rng = random.Random(name)
    for language in ("en", "zh", "en"):
        task = draw(world, name, rng, language)
        assert task.plan.calls[-1].tool == CODE_TOOL
        assert tuple(call.tool for call in task.plan.calls) == WORLDS[world].intents[name].shape(frozenset(task.slots)).tools
        verdict = verify_teacher(WORLDS[task.world], task, expert_messages(WORLDS[task.world], task))
        assert verdict.success, verdict.checks
        assert difficulty(WORLDS[world], Frame(world=world, intent=name, slots=task.slots), "").r >= 1
        place = make_world(world, task.world_seed)
        check_admission(task, place)
        unaided = execute(place, task.messages, task.plan.calls[:-1], task.plan.answer)
        assert not judge(WORLDS[task.world], task, unaided.messages, unaided.changes).checks["grounded_answer"]


@needs_sandbox
def test_only_the_number_of_the_rows_passes() -> None:
    rng = random.Random(5)
    for _ in range(12):
        task = draw("banking", "average_deposit_of_customer", rng)
        messages = expert_messages(WORLDS[task.world], task)
        rows = json.loads(messages[-4].content or "")["rows"]
        amounts = [row["amount"] for row in rows]
        run = {"mean": statistics.mean, "median": statistics.median, "deviation": statistics.pstdev}[task.slots["aspect"].split("_")[1]]
        expected = round(run(amounts), 2)
        assert task.success.facts[0].value == f"{expected:.15g}"
        for wrong in (expected + 0.4, expected * 1.005):
            answer = Message(role="assistant", content=f"It is {wrong:.2f} dollars.")
            assert not verify(WORLDS[task.world], task, [*messages[:-1], answer]).checks["facts"]
        answer = Message(role="assistant", content=f"It is ${expected:,.2f}.")
        assert verify(WORLDS[task.world], task, [*messages[:-1], answer]).success


def test_no_compute_intent_where_rows_are_too_few_or_values_too_near() -> None:
    def jobs(**changed: Any) -> set[str]:
        raw = copy.deepcopy(WORLDS["banking"].source)
        deposit = raw["entities"]["deposit"]
        deposit["rows"] = changed.get("rows", deposit["rows"])
        deposit["fields"]["amount"]["max"] = changed.get("most", deposit["fields"]["amount"]["max"])
        deposit["fields"]["matures"]["detail"] = "true"
        return {intent.name for intent in compute_intents(resolve(raw))}

    about = {"total_deposit_of_customer", "average_deposit_of_customer", "share_deposit_of_customer"}
    assert about <= jobs()
    assert not about & jobs(rows=79)
    assert not about & jobs(most=330)


def test_more_rows_than_a_list_shows_cannot_be_solved() -> None:
    raw = copy.deepcopy(WORLDS["logistics"].source)
    raw["entities"]["shipment"]["rows"] = 999
    world = compile_spec(raw)
    intent, state = world.intents["total_shipment_of_client"], world(0).now
    assert isinstance(intent, ComputeIntent)
    assert isinstance(intent.rows, OwnedRows)
    rows = {key: len(state.select(intent.rows.entity.number, ((intent.rows.owner.place, key),))) for key in intent.rows.owner_entity.ids}
    few, many = min(rows, key=rows.__getitem__), max(rows, key=rows.__getitem__)

    assert rows[few] <= LIST_LIMIT < rows[many]
    assert intent.plan(state, {"client": few, "aspect": "weight_total"}, "en")
    with pytest.raises(Unsolvable, match="more rows than a list shows"):
        intent.plan(state, {"client": many, "aspect": "weight_total"}, "en")


# ---- conversations ------------------------------------------------------------------------------------------------------------------

ROUND = {"proposals_per_round": 20}
CONFIG = {"worlds": ("banking",), "accepted": 60, "max_proposals": 200, "calibration": 30, "drills": {}, "evolution": ROUND}


@pytest.mark.slow
@needs_sandbox
def test_a_share_of_conversations_computes_and_a_run_that_goes_on_ends_the_same(tmp_path: Path) -> None:
    config = SynthesisConfig.model_validate(CONFIG)
    store = Store(tmp_path / "a")
    result = synthesize(store, config)
    assert result.notes == ()
    rows = store.query(
        "SELECT t.tools_used, t.mode_coarse, t.task_id, b.spec FROM trajectories t JOIN blueprints b USING (blueprint_id) WHERE t.accepted"
    )
    computing, offering = 0, 0
    for used, modes, _, spec in rows.iter_rows():
        plan = json.loads(spec)
        computes = CODE_TOOL in used
        assert ("X" in modes) == computes
        assert plan["code_tool"] == (CODE_TOOL in plan["tools"])
        assert plan["code_tool"] or not computes
        computing += computes
        offering += plan["code_tool"] and not computes
    assert 0.1 <= computing / rows.height <= 0.2
    assert 0.15 <= offering / (rows.height - computing) <= 0.45
    tools = store.query("SELECT tool_id FROM tools WHERE name = 'run_python'")
    clustered = store.query("SELECT unnest(tool_ids) AS tool_id FROM clusters")
    assert tools.height == 1
    assert tools["tool_id"][0] not in set(clustered["tool_id"])

    again = Store(tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        synthesize(again, config, progress=_stop_after(2))
    assert synthesize(again, config) == result
    assert again.content_hash() == store.content_hash()


def _stop_after(rounds: int):
    labels = []

    def progress(label: str, done: int, total: int) -> None:
        labels.append(label)
        if labels.count("synthesize") == rounds - 1:
            raise KeyboardInterrupt

    return progress


def test_where_no_sandbox_works_nothing_offers_it_and_the_run_says_so(no_sandbox: None, tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    result = synthesize(store, SynthesisConfig.model_validate(CONFIG | {"accepted": 20}))
    assert len(result.notes) == 1
    assert "run_python is not offered: no sandbox works here" in result.notes[0]
    specs = [json.loads(spec) for spec in store.query("SELECT spec FROM blueprints WHERE spec IS NOT NULL")["spec"]]
    assert not any(CODE_TOOL in spec["tools"] or spec["code_tool"] for spec in specs)
    assert not any(".compute." in goal["leaf"] for spec in specs for goal in spec["goals"])

    off = synthesize(Store(tmp_path / "b"), SynthesisConfig.model_validate(CONFIG | {"accepted": 20, "code_share": 0}))
    assert (off.notes, off.run, off.figures) == ((), result.run, result.figures)


def test_where_no_sandbox_works_a_call_is_our_failure_and_nobody_elses(no_sandbox: None) -> None:
    with pytest.raises(SandboxError, match="no sandbox works on this machine"):
        make_world("banking", 0).call(CODE_TOOL, {"code": "1"})


@needs_sandbox
def test_a_rollout_that_meets_no_sandbox_has_no_reward(request: pytest.FixtureRequest) -> None:
    task = draw("banking", "total_deposit_of_customer", random.Random(1))
    answers = [message for message in expert_messages(WORLDS[task.world], task) if message.role == "assistant"]
    request.getfixturevalue("no_sandbox")
    episode = Episode(task, 0, 8, WORLDS["banking"])
    for message in answers:
        if episode.outcome is None:
            episode.step(ChatAnswer(message=message, finish_reason="stop"))
    assert (episode.outcome, episode.reward) == ("infra_failure", None)


@needs_sandbox
def test_no_policy_can_make_its_failure_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """One protection is off, so that its program can end the box."""
    task = draw("banking", "total_deposit_of_customer", random.Random(1))
    code = "import random\nrandom.__builtins__['__import__']('resource').prlimit(1, 7, (1, 1))"
    call = ToolCall(id="c0", function=FunctionCall(name=CODE_TOOL, arguments=json.dumps({"code": code})))
    provider = pick()
    assert provider is not None
    with Sandbox(provider, run_python.LIMITS, without=frozenset({"seccomp"})) as sandbox:
        monkeypatch.setattr(run_python, "_tool_of", lambda process: run_python.CodeTool(sandbox))
        episode = Episode(task, 0, 8, WORLDS["banking"])
        episode.step(ChatAnswer(message=Message(role="assistant", tool_calls=(call,)), finish_reason="stop"))
        assert "ended the box" in (episode.messages[-1].content or "")
        episode.step(ChatAnswer(message=Message(role="assistant", content="I cannot say."), finish_reason="stop"))

    assert (episode.outcome, episode.reward) == ("policy_failure", 0.0)


def test_where_no_sandbox_works_no_job_needs_one(no_sandbox: None) -> None:
    here = WORLDS["banking"].jobs()
    assert here
    assert not any(isinstance(intent, ComputeIntent) for intent in here)
    assert assess(WORLDS["banking"], 40, seed=0).share > 0.95
