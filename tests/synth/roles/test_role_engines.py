"""Synthesis with language models in its roles. The models are scripted stand-ins; everything around them is real."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from storage.errors import BadInput
from storage.records import Message
from storage.store import Store
from synth.blueprints.blueprint import Blueprint
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.engines.budget import Budget, BudgetSpent
from synth.engines.engine_names import EngineUse
from synth.roles import role_engines
from synth.roles.model_roles import ModelJudge
from synth.roles.role_engines import RoleEngines, RolesConfig, open_role_engines
from synth.run.config import SynthesisConfig
from synth.run.evolution.controller import EvolutionConfig
from synth.run.result import SynthesisResult
from synth.run.synthesize import preview, synthesize
from synth.worlds import WORLDS
from tests.synth.scripted_models import Standing, judging, parroting, planning, reciting, silent

PLAIN = SynthesisConfig(
    worlds=("retail",),
    accepted=12,
    calibration=24,
    subsample=12,
    drills={},
    max_proposals=36,
    evolution=EvolutionConfig(proposals_per_round=12),
)
TALKS = """SELECT round, position, messages, accepted, outcome, t.reason FROM trajectories t JOIN decisions USING (blueprint_id)
           ORDER BY round, position"""


def engines_of(**roles: Standing) -> RoleEngines:
    return replace(RoleEngines(RolesConfig(**{role: engine.name for role, engine in roles.items()})), **roles)  # type: ignore[arg-type]


def run_synthesis(folder: Path, engines: RoleEngines, **changes: object) -> tuple[Store, SynthesisResult]:
    store = Store(folder)
    return store, synthesize(store, PLAIN.model_copy(update={"roles": engines.config, **changes}), engines=engines)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("plain"))
    synthesize(store, PLAIN)
    return store


@pytest.fixture(scope="module")
def reciting_engine(plain: Store) -> Standing:
    talks = [[Message.model_validate(one) for one in json.loads(talk)] for talk in plain.query(TALKS)["messages"]]
    return Standing(reciting(talks), "openai:reciting")


def test_a_model_that_does_what_the_scripted_teacher_did_makes_the_same_conversations(
    plain: Store, reciting_engine: Standing, tmp_path: Path
) -> None:
    store, result = run_synthesis(tmp_path, engines_of(assistant=reciting_engine))

    assert result.accepted == PLAIN.accepted
    assert store.query(TALKS).equals(plain.query(TALKS))
    steered = store.query("SELECT DISTINCT teacher FROM trajectories WHERE reason IS DISTINCT FROM 'calibration'")
    assert steered["teacher"].to_list() == ["openai:reciting"], "and says whose they are"
    costs = store.query("SELECT prompt_tokens, cost_usd FROM trajectories WHERE accepted")
    assert costs["prompt_tokens"].min() >= 100 and costs["cost_usd"].min() > 0
    roles = [json.loads(text) for text in store.query("SELECT roles FROM provenance")["roles"]]
    assert len(roles) == store.query(TALKS).height
    assert all(role["assistant"] == "openai:reciting" for role in roles)


def test_what_others_play_in_the_same_store_is_theirs(plain: Store, reciting_engine: Standing, tmp_path: Path) -> None:
    """Scripted roles, then a teacher, then a bad one: each has its own conversations, figures and control, and a re-run adds nothing."""
    store = Store(tmp_path)
    runs = [synthesize(store, PLAIN).run]
    for engine in (reciting_engine, Standing(lambda _: "Hm.", "openai:bad"), reciting_engine):
        engines = engines_of(assistant=engine)
        runs.append(synthesize(store, PLAIN.model_copy(update={"roles": engines.config, "max_proposals": 24}), engines=engines).run)

    assert len(set(runs)) == 3 and runs[1] == runs[3]
    teachers = store.query("SELECT teacher, outcome FROM trajectories WHERE reason IS DISTINCT FROM 'calibration'")
    counts = Counter(teachers.iter_rows())
    assert counts["scripted", "success"] == counts["openai:reciting", "success"] == 12 and counts["openai:bad", "policy_failure"] == 24
    for run in set(runs):
        control = store.query("SELECT count(*) AS n FROM diversity WHERE run = ? AND round = -1", [run])["n"][0]
        assert control > 10, "the unsteered figures stand beside every run's"


@pytest.mark.slow
def test_a_run_that_was_cut_off_ends_as_an_undisturbed_one_however_many_talk_at_once(reciting_engine: Standing, tmp_path: Path) -> None:
    def run(folder: str, engine: Standing, in_flight: int) -> str:
        engines = engines_of(assistant=engine, user=Standing(parroting))
        engines = replace(engines, config=engines.config.model_copy(update={"in_flight": in_flight}))
        return run_synthesis(tmp_path / folder, engines, evolution=EvolutionConfig(proposals_per_round=5))[0].content_hash()

    asked = len(reciting_engine.asked)
    undisturbed = run("whole", reciting_engine, 16)
    asked = len(reciting_engine.asked) - asked
    assert run("alone", reciting_engine, 1) == undisturbed

    left = asked // 2

    def cut_off(request: ChatRequest) -> Message:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return reciting_engine.chat([request])[0].message

    with pytest.raises(KeyboardInterrupt):
        run("cut", Standing(cut_off, reciting_engine.name), 1)
    before = len(reciting_engine.asked)
    assert run("cut", reciting_engine, 16) == undisturbed
    assert len(reciting_engine.asked) - before < asked, "whole rounds are not held again"


def test_prompts_are_those_that_somebody_was_shown(reciting_engine: Standing, tmp_path: Path) -> None:
    def prompts_shown(folder: str, **roles: Standing) -> set[str]:
        store, _ = run_synthesis(tmp_path / folder, engines_of(**roles), max_proposals=12, accepted=3)
        (only,) = store.query("SELECT DISTINCT prompts FROM provenance")["prompts"]
        return set(json.loads(only))

    assert prompts_shown("teacher", assistant=reciting_engine) == set()
    assert prompts_shown("both", assistant=reciting_engine, user=Standing(parroting)) == {"user"}
    assert prompts_shown("judge", judge=Standing(judging(lambda talk: 5))) == {"judge", "judge_criteria"}


def test_only_what_the_judge_graded_has_its_grades(tmp_path: Path) -> None:
    engines = engines_of(assistant=Standing(lambda _: "Hm."), judge=Standing(judging(lambda talk: 5), "openai:judge"))
    store, _ = run_synthesis(tmp_path, engines, max_proposals=12)

    found = store.query("SELECT planning, judge_agreement, criteria FROM provenance")
    assert found.height > 5 and all(column.null_count() == found.height for column in found.get_columns())


def test_a_judge_that_is_refused_an_answer_is_measured_on_the_others(tmp_path: Path) -> None:
    def squeamish(request: ChatRequest) -> str:
        if any("stupid" in (message.content or "") or "这么蠢" in (message.content or "") for message in request.messages):
            raise EngineFailure("content filter")
        return judging(lambda talk: 5)(request)

    _, result = run_synthesis(tmp_path, engines_of(judge=Standing(squeamish)), max_proposals=24)
    assert result.accepted == PLAIN.accepted


def test_one_that_does_not_is_refused_and_steers_like_any_failure(tmp_path: Path) -> None:
    store, result = run_synthesis(tmp_path, engines_of(assistant=Standing(lambda _: "Hm.")), max_proposals=12)

    outcomes = store.query("SELECT outcome, count(*) AS n FROM trajectories JOIN provenance USING (trajectory_id) GROUP BY 1")
    assert outcomes["outcome"].to_list() == ["policy_failure"]
    assert result.accepted == 0 and sum(result.rejected.values()) == result.proposals == 12


def test_an_engine_that_dies_stops_the_run_and_stores_no_round_of_failures(reciting_engine: Standing, tmp_path: Path) -> None:
    with pytest.raises(EngineFailure, match=r"got no answer.*nobody answers"):
        run_synthesis(tmp_path / "dead", engines_of(assistant=Standing(silent)))
    assert Store(tmp_path / "dead").query("SELECT 1 FROM blueprints WHERE round >= 0").height == 0

    calls = iter(range(10**9))
    flaky = Standing(lambda request: silent(request) if next(calls) % 40 == 7 else reciting_engine.chat([request])[0].message)
    store, result = run_synthesis(tmp_path / "flaky", engines_of(assistant=flaky))

    lost = store.query("SELECT outcome, reward, failure FROM trajectories JOIN provenance USING (trajectory_id) WHERE NOT accepted")
    infra = lost.filter(outcome="infra_failure")
    assert infra.height >= 1 and infra["reward"].null_count() == infra.height and set(infra["failure"]) == {"nobody answers"}
    assert PLAIN.accepted - 3 <= result.accepted


@pytest.mark.slow
def test_a_user_that_keeps_to_its_script_is_heard_and_one_that_strays_is_to_blame_itself(plain: Store, tmp_path: Path) -> None:
    store, _ = run_synthesis(tmp_path / "true", engines_of(user=Standing(parroting)))
    assert store.query(TALKS).equals(plain.query(TALKS))
    said = store.query("SELECT sum(user_turns) AS turns, sum(user_adhered) AS adhered FROM provenance").row(0)
    assert said[0] == said[1] > 0
    rounds = store.query("SELECT value FROM diversity WHERE metric = 'user_adherence'")["value"]
    assert rounds.to_list() == [1.0] * len(rounds) != []

    def straying(request: ChatRequest) -> str:
        return parroting(request).replace("o", "0").replace("的", "") + " My lucky number is 7777."

    store, result = run_synthesis(tmp_path / "astray", engines_of(user=Standing(straying)), max_proposals=12)
    found = store.query("SELECT outcome, reward, failure FROM trajectories JOIN provenance USING (trajectory_id)")
    assert result.accepted == 0 and set(found["outcome"]) == {"user_failure"}
    assert found["reward"].null_count() == found.height and all("turn 0" in failure for failure in found["failure"])


def test_a_user_is_told_what_was_wrong_and_may_say_it_again(plain: Store, tmp_path: Path) -> None:
    def hesitant(request: ChatRequest) -> str:
        return parroting(request) if len(request.messages) > 2 else "1. Look.\n2. Find.\n3. Call get_order(order_id=o1)."

    store, _ = run_synthesis(tmp_path, engines_of(user=Standing(hesitant)))

    assert store.query(TALKS).equals(plain.query(TALKS))
    assert store.query("SELECT sum(user_turns) AS turns, sum(user_adhered) AS adhered FROM provenance").row(0)[1] == 0


@pytest.mark.slow
def test_the_judge_is_measured_and_its_worth_stands_beside_every_grade(plain: Store, tmp_path: Path) -> None:
    def seeing(talk: str) -> int:
        flaws = (
            "Done.",
            "{customer_name}",
            "48,213",
            "48213",
            "这是您要的",
            "what you were looking for",
            "stupid",
            "这么蠢",
            "rely on",
            "太当真",
        )
        repeated = any(talk.count(line) > 3 for line in set(talk.splitlines()) if line.startswith("Call:"))
        return 1 if repeated or any(flaw in talk for flaw in flaws) else 5

    for name, grade, accepted in (
        ("seeing", seeing, PLAIN.accepted),
        ("blind", lambda talk: 5, PLAIN.accepted),
        ("harsh", lambda talk: 2, 0),
    ):
        judge = Standing(judging(grade), f"openai:{name}")
        store, result = run_synthesis(tmp_path / name, engines_of(judge=judge), max_proposals=24)
        figures = {row["metric"]: row["value"] for row in store.query("SELECT metric, value FROM diversity WHERE round = -1").to_dicts()}
        kept = store.query("SELECT judge_agreement, judge_labelled, planning, criteria FROM provenance WHERE planning IS NOT NULL")
        assert result.accepted == accepted
        assert set(kept["judge_agreement"]) == {figures["judge_asked_agreement"]} and kept["judge_labelled"].min() >= 10
        if name == "seeing":
            assert figures["judge_agreement"] == 1.0 == figures["judge_kappa"]
            assert set(kept["planning"]) == {5} and kept["criteria"].null_count() == 0
        else:
            assert 0.3 < figures["judge_agreement"] < 0.7 and abs(figures["judge_kappa"]) < 0.01, "who sees nothing agrees by chance"


def test_every_answer_to_a_request_is_held_against_the_same_criteria_which_are_set_before_it() -> None:
    """Asked about two conversations of one request, and one of another, the judge sets criteria for the requests alone."""
    engine = Standing(judging(lambda talk: 5))
    judge, tools = ModelJudge(engine), WORLDS["retail"].tools
    answers = [(Message(role="user", content="Hi"), Message(role="assistant", content=text)) for text in ("Done.", "No.")]

    first, second = (judge.grade("cancel o17", tools, answer) for answer in answers)
    judge.grade("cancel o18", tools, answers[0])

    setting = [request for request in engine.asked if "The conversation:" not in (request.messages[1].content or "")]
    assert setting[0] == setting[1] != setting[2], "the same question, so a kept answer"
    assert first.criteria == second.criteria
    assert all("Assistant:" not in (request.messages[1].content or "") for request in setting)


def test_a_judge_that_answers_nonsense_is_to_blame_itself(tmp_path: Path) -> None:
    store, result = run_synthesis(tmp_path, engines_of(judge=Standing(lambda _: "Lovely!")), max_proposals=12)

    found = store.query("SELECT outcome, reward, failure FROM trajectories JOIN provenance USING (trajectory_id)")
    assert result.accepted == 0 and set(found["outcome"]) == {"judge_failure"} and found["reward"].null_count() == found.height


def test_a_planner_decides_what_is_wanted_and_a_program_whether_it_can_be_had(tmp_path: Path) -> None:
    planner = Standing(planning)
    store, result = run_synthesis(tmp_path, engines_of(planner=planner), chinese_share=0.5, code_share=0.0)

    assert result.accepted >= 2
    repaired = [request for request in planner.asked if len(request.messages) > 2]
    assert repaired and all("not valid" in (request.messages[3].content or "") for request in repaired)
    for spec, domain in store.query("SELECT spec, domain FROM blueprints WHERE round >= 0 AND spec IS NOT NULL").iter_rows():
        blueprint = Blueprint.model_validate_json(spec)
        assert blueprint.domain == domain and blueprint.turns[0].text.startswith(("I would like this", "我想要"))


def test_a_plan_that_cannot_be_done_is_none_and_costs_what_it_costs(tmp_path: Path) -> None:
    def wishful(request: ChatRequest) -> str:
        plan = json.loads(planning(request))
        plan["goals"][0]["slots"] |= {"order": "o99999"}
        return json.dumps(plan)

    planner = Standing(wishful)
    _, result = run_synthesis(tmp_path, engines_of(planner=planner), max_proposals=12)

    assert dict(result.rejected) == {"model_plan": 12}
    told = [request.messages[-1].content or "" for request in planner.asked if len(request.messages) > 2]
    assert any("o99999" in problem for problem in told)


# ---- budgets, previews, bad names -------------------------------------------------------------------------------------


class Metered(Standing):
    """With a budget, as a paid engine has."""

    def __init__(self, engine: Standing, budget: Budget) -> None:
        super().__init__(lambda request: engine.chat([request])[0].message, engine.name)
        self.budget, self.seen = budget, set[str]()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.budget.check()
        found = super().chat(requests)
        for request, answer in zip(requests, found, strict=True):
            if repr(request) not in self.seen:
                self.seen.add(repr(request))
                self.budget.add(answer.prompt_tokens, answer.completion_tokens)
        return found


def test_a_spent_budget_ends_the_run_cleanly_and_a_larger_one_takes_it_up(plain: Store, reciting_engine: Standing, tmp_path: Path) -> None:
    small = Metered(reciting_engine, Budget(tokens=1500))
    store, result = run_synthesis(tmp_path, replace(engines_of(assistant=small), budget=small.budget))

    assert result.accepted < PLAIN.accepted and result.is_spent and any("budget is spent" in note for note in result.notes)
    assert small.budget.spent_tokens <= 1500 + 12 * 110, "but for those that were in flight"
    store, result = run_synthesis(tmp_path, engines_of(assistant=Metered(reciting_engine, Budget())))
    assert result.accepted == PLAIN.accepted and store.query(TALKS).equals(plain.query(TALKS))


def test_a_preview_tells_what_a_run_would_cost_and_commits_nothing(reciting_engine: Standing, tmp_path: Path) -> None:
    store = Store(tmp_path)
    engines = engines_of(assistant=reciting_engine)

    found = preview(store, PLAIN.model_copy(update={"roles": engines.config}), proposals=5, engines=engines)

    assert (found.proposals, found.accepted, dict(found.outcomes)) == (5, 5, {"success": 5})
    assert found.expected_proposals == PLAIN.accepted
    assert found.expected_cost.prompt_tokens == pytest.approx(found.cost.prompt_tokens * PLAIN.accepted / 5, abs=1)
    assert not store.exists() or store.query("SELECT 1 FROM trajectories").height == 0
    with pytest.raises(BudgetSpent):
        poor = Metered(reciting_engine, Budget(tokens=1))
        preview(store, PLAIN.model_copy(update={"roles": engines.config}), engines=engines_of(assistant=poor))


def test_a_limit_in_dollars_wants_prices() -> None:
    with pytest.raises(ValidationError, match="max_usd has no effect without prices"):
        RolesConfig(max_usd=5)
    with pytest.raises(ValidationError, match="a price cannot be negative"):
        RolesConfig(usd_per_million=(-1, 2))
    with pytest.raises(BadInput, match="needs the price"):
        Budget(usd=5)


def test_other_weights_in_the_same_folder_are_another_engine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"a" * 100)
    first = RolesConfig(assistant=f"vllm:{tmp_path}").identity()
    assert first == RolesConfig(assistant=f"vllm:{tmp_path}", in_flight=3).identity()
    weights.write_bytes(b"a" * 99 + b"b")
    assert first != RolesConfig(assistant=f"vllm:{tmp_path}").identity()


def test_a_window_that_has_no_room_for_a_role_is_told_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow(Standing):
        context_tokens = 1_300

    @contextlib.contextmanager
    def named(name: str, _use: EngineUse) -> Iterator[Standing]:
        yield Narrow(parroting, name)

    monkeypatch.setattr(role_engines, "engine_named", named)
    with open_role_engines(RolesConfig(user="openai:m", judge="openai:m"), Store(tmp_path / "store"), tmp_path / "logs") as engines:
        assert engines.user is engines.judge is not None
    for roles in (RolesConfig(planner="openai:m"), RolesConfig(assistant="openai:m", answer_tokens=1_400)):
        with (
            pytest.raises(BadInput, match="openai:m has a window of 1,300 tokens, but a request and its answer need about"),
            open_role_engines(roles, Store(tmp_path / "store"), tmp_path / "logs"),
        ):
            pass


@pytest.mark.parametrize("name", ["gpt", "openai:", "scripted:me", ""])
def test_a_name_that_is_no_engines_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="is no engine; give scripted, or one of openai:MODEL"):
        RolesConfig(assistant=name)
