"""Any engine can be probed and evaluated as a policy: real requests to a scripted server that counts them, none of them paid twice."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks.synthesis_sections.mock_openai import MODEL
from filters.certainty.certainty import DrawsConfig, RegionConfig, certainty
from flows.summaries.summary_tables import certainty as certainty_table
from flows.summaries.summary_tables import ladder
from flows.summaries.summary_tables import priors as priors_table
from storage.errors import BadInput, HeadraceError
from storage.explanations.explain import explain
from storage.record_rows import tasks_frame
from storage.records import Outcome, Task
from storage.releases.lineage import lineage
from storage.report.page import write_report
from storage.store import Store, part_id
from synth.engines import http
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure
from synth.engines.budget import BudgetSpent
from synth.engines.openai import OpenAIConfig, OpenAIEngine
from synth.rollouts.draws import PART_TASKS, rollout, rollouts_frame
from synth.rollouts.episode import MAX_TOKENS
from synth.worlds import WORLDS
from tests.conftest import Serve
from tests.synth.probed import drilled
from tests.synth.scripted_engine import ScriptedEngine
from tests.train.served_policies import Served
from tests.train.tiny_policies import small_policy
from train.config import CascadeConfig, EngineConfig
from train.measure.probe import Prober, evaluate, tag
from train.policies import Policy, find_policy
from train.tiny import save_policy

RetailWorld = WORLDS["retail"]

ENGINE = f"openai:{MODEL}"
PROBED = PART_TASKS + 8
CONFIG = CascadeConfig(
    worlds=("retail",),
    probe_tasks=PROBED,
    draws=DrawsConfig(k=4, most=4),
    eval_tasks=8,
    eval_out_tasks=6,
    eval_samples=2,
    engine=EngineConfig(in_flight=4),
)
TAGS = "SELECT task_id, k, successes, region FROM tags WHERE purpose = 'probe' ORDER BY ALL"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "wait_s", lambda attempt, retry_after: 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Task]]:
    """The folder of a store with tasks of all divisions, and every task that a policy is measured on there."""
    store = Store(tmp_path_factory.mktemp("made") / "store")
    tasks = [task.model_copy(update={"blueprint_id": f"b{place}"}) for place, task in enumerate(drilled("retail", 200))]
    store.commit([store.write("tasks", part_id("tasks", ["drilled"], {}, 1), tasks_frame(tasks))])
    prober = Prober(store, CONFIG)
    measured = prober.tasks(["probe"], PROBED, "train") + prober.tasks(["seed", "probe"], CONFIG.eval_tasks, "eval_in")
    measured += prober.tasks(["held_out"], CONFIG.eval_out_tasks, "eval_out", fewest=0)
    return store.root, list({task.messages[-1].content: task for task in measured}.values())


@pytest.fixture
def store(made: tuple[Path, list[Task]], tmp_path: Path) -> Store:
    return Store(shutil.copytree(made[0], tmp_path / "store"))


@pytest.fixture
def served(made: tuple[Path, list[Task]], serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A server of a policy that does six in ten of these tasks."""
    mock = Served(made[1])
    monkeypatch.setenv("OPENAI_BASE_URL", serve(mock))
    return mock


def twice(served: Served) -> int:
    """Requests that were answered, and so paid, more than once."""
    return sum(count - 1 for count in served.answered.values())


# ---- a policy by an engine's name ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_engine_is_tagged_and_evaluated_as_any_policy(store: Store, served: Served) -> None:
    """Given a server, when its model is tagged, then the rates are those of its own rollouts, and the store knows the policy."""
    policy = tag(store, CONFIG, policy=ENGINE)
    tasks = probed(store)
    tags = {task: successes for task, _, successes, _ in store.query(TAGS).iter_rows()}
    direct = rollout(ScriptedEngine(tasks, skill=0.6), tasks, 4)
    assert tags == {task.id: sum(one.outcome is Outcome.SUCCESS for one in direct if one.task_id == task.id) for task in tasks}
    assert 0 < sum(tags.values()) < 4 * PROBED and twice(served) == 0

    evaluate(store, CONFIG, policy=ENGINE)
    assert policy is not None and policy.name == ENGINE and find_policy(store, policy.id) == policy
    assert store.query("SELECT stage_id, path FROM policies").rows() == [(None, ENGINE)]
    assert ENGINE in {row["policy"] for row in ladder(store).rows} & {row["policy"] for row in certainty_table(store).rows}
    assert ENGINE in str(explain(store, policy.id))
    assert f"for {policy.id} ({ENGINE}): " in str(explain(store, tasks[0].id))
    assert policy.id in str(lineage(store, store.query("SELECT rollout_id FROM rollouts LIMIT 1").item()))
    assert ENGINE in write_report(store, store.root.with_name("report.html")).read_text()


def test_what_was_measured_is_not_asked_again(store: Store, served: Served) -> None:
    policy = tag(store, CONFIG, policy=ENGINE)
    before, asked = store.content_hash(), served.answered.total()
    assert policy is not None
    for name in (ENGINE, policy.id):
        tag(store, CONFIG, policy=name)
    assert (store.content_hash(), served.answered.total()) == (before, asked)


def test_an_engine_has_the_room_for_answers_that_it_is_given(store: Store, served: Served) -> None:
    tag(store, CONFIG.model_copy(update={"probe_tasks": 2, "engine": EngineConfig(answer_tokens=77)}), policy=ENGINE)
    assert {b'"max_tokens":77' in body and b'"tools":[{' in body for body in served.answered} == {True}


def test_a_policy_of_ours_has_the_room_that_it_was_trained_with(store: Store, tmp_path: Path) -> None:
    """Given a policy with random weights, which hardly ever ends an answer, then what engines are given is nothing to it."""
    model, tokenizer = small_policy([])
    save_policy(model, tokenizer, tmp_path / "model")
    prober = Prober(store, CONFIG.model_copy(update={"engine": EngineConfig(answer_tokens=16)}))
    prober.rollouts(Policy("policy-own", "sft1", tmp_path / "model"), probed(store)[:2], 4, "probe", temperature=1.0)
    answers = [turn["token_ids"] for (turns,) in store.query("SELECT turns FROM rollouts").iter_rows() for turn in json.loads(turns)]
    assert max(map(len, answers)) == MAX_TOKENS


def test_a_model_folder_is_an_engine_too_and_other_weights_in_it_are_another_policy(store: Store, tmp_path: Path) -> None:
    few = CONFIG.model_copy(update={"probe_tasks": 2, "engine": EngineConfig(answer_tokens=16)})
    policies = []
    for seed in (0, 1):
        model, tokenizer = small_policy([], seed=seed)
        save_policy(model, tokenizer, tmp_path / "model")
        policies.append(tag(store, few, policy=f"hf:{tmp_path / 'model'}"))
    assert policies[0].name == policies[1].name and policies[0].id != policies[1].id
    assert store.query("SELECT DISTINCT policy_id FROM tags WHERE purpose = 'probe'").height == 2
    with pytest.raises(BadInput, match="other weights lie there now"):
        tag(store, few, policy=policies[0].id)


def test_what_cannot_answer_is_refused_before_anything_is_written(store: Store, served: Served, tmp_path: Path) -> None:
    before = store.content_hash()
    for name, says in {
        "openai:other": f"serves no model 'other'; it serves {MODEL}",
        "hf:nowhere": "nowhere is no Hugging Face model folder",
        "opanai:mock": "no engine is called",
        "policy-1": "has no policy policy-1; it has none",
    }.items():
        for measure in (tag, evaluate):
            with pytest.raises(BadInput, match=says):
                measure(store, CONFIG, policy=name)
    assert (store.content_hash(), served.answered.total()) == (before, 0)


def test_a_window_too_short_for_an_answer_is_refused(store: Store, served: Served, monkeypatch) -> None:
    """Else every answer would be refused by the server, and held against the policy."""

    async def narrow(self: OpenAIEngine, tools: bool, traced: bool) -> None:
        self.context_tokens = 900

    monkeypatch.setattr(OpenAIEngine, "_check", narrow)
    with pytest.raises(BadInput, match="has a window of 900 tokens"):
        tag(store, CONFIG, policy=ENGINE)
    assert served.answered.total() == 0


# ---- stopped, killed, and gone on with --------------------------------------------------------------------------------------


def probed(store: Store) -> list[Task]:
    return Prober(store, CONFIG).tasks(["probe"], PROBED, "train")


def tags_of(rollouts: pl.DataFrame, tasks: list[Task], regions: RegionConfig = RegionConfig()) -> list[tuple[object, ...]]:  # noqa: B008
    difficulty = pl.DataFrame({"task_id": [task.id for task in tasks], "difficulty": [task.difficulty for task in tasks]})
    found = certainty(rollouts, difficulty, regions, purpose="probe")
    return found.select("task_id", "k", "successes", "region").sort(pl.all()).rows()


def undisturbed(store: Store) -> list[tuple[object, ...]]:
    """The tags that the server's policy gets where nothing goes wrong."""
    tasks = probed(store)
    return tags_of(rollouts_frame(rollout(ScriptedEngine(tasks, skill=0.6), tasks, 4, policy_id="p"), "probe"), tasks)


def test_a_spent_budget_says_what_is_done_and_a_larger_one_goes_on(store: Store, served: Served) -> None:
    def with_budget(tokens: int) -> CascadeConfig:
        return CONFIG.model_copy(update={"engine": EngineConfig(in_flight=4, max_tokens=tokens)})

    with pytest.raises(
        BudgetSpent, match=r"the budget is spent: .* of 34,000 tokens; raise it and run the same again.*probe: 32 of 40 tasks are done"
    ):
        tag(store, with_budget(34_000), policy=ENGINE)
    paid = served.answered.total()
    assert 34_000 / 110 <= paid <= 34_000 / 110 + 4
    with pytest.raises(BudgetSpent):
        tag(store, with_budget(34_000), policy=ENGINE)
    assert served.answered.total() == paid, "what was paid before counts"
    tag(store, with_budget(10**9), policy=ENGINE)
    assert served.answered.total() > paid and twice(served) == 0
    assert store.query(TAGS).rows() == undisturbed(store)


@pytest.mark.slow
def test_a_probe_leaves_the_priors_that_the_other_tasks_of_their_needs_give(store: Store, served: Served) -> None:
    """Given a probe, then the store has the prior of every tagged task, the report's table says how well it predicts, and static tags
    have none."""
    tag(store, CONFIG, policy=ENGINE)
    rows = store.query("SELECT * FROM tags WHERE purpose = 'probe' ORDER BY task_id").to_dicts()
    intent_of = dict(store.query("SELECT task_id, intent FROM tasks").iter_rows())

    def prior(of: dict[str, Any]) -> float:
        others = [row for row in rows if row["task_id"] != of["task_id"]]
        expected = sum(1 - row["rate"] for row in others) / len(others)
        for same in (
            lambda row: row["difficulty"] == of["difficulty"],
            lambda row: intent_of[row["task_id"]] == intent_of[of["task_id"]],
            lambda row: row["need"] == of["need"],
        ):
            group = [1 - row["rate"] for row in others if same(row)]
            expected = (sum(group) + expected) / (len(group) + 1)
        return expected

    assert [row["difficulty_prior"] for row in rows] == pytest.approx([prior(row) for row in rows], abs=2e-6)
    assert {row["prior_basis"] for row in rows} >= {"need", "intent"}
    (fit,) = priors_table(store).rows
    assert int(fit["by need"]) == sum(row["prior_basis"] == "need" for row in rows) > 0
    static = store.query("SELECT need, difficulty_prior, prior_basis, prior_draws FROM tags WHERE purpose = 'static'")
    assert static.height and static.null_count().row(0) == (static.height,) * 4


@pytest.mark.parametrize("stopped_after", [60, 310], ids=["in the first part", "in the last part"])
def test_a_probe_that_raised_goes_on_and_pays_for_nothing_twice(store: Store, served: Served, monkeypatch, stopped_after: int) -> None:
    """Given an error after so many answers, then those of whole parts and those of the part under way are all there."""
    chat = OpenAIEngine.chat

    def failing(self: OpenAIEngine, requests: list[ChatRequest]) -> list[ChatAnswer]:
        if served.answered.total() >= stopped_after:
            raise RuntimeError("a bug")
        return chat(self, requests)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="a bug"):
        patched.setattr(OpenAIEngine, "chat", failing)
        tag(store, CONFIG, policy=ENGINE)
    assert stopped_after <= served.answered.total() < stopped_after + 5
    tag(store, CONFIG, policy=ENGINE)
    assert twice(served) == 0
    assert store.query(TAGS).rows() == undisturbed(store)


@pytest.mark.slow
def test_a_killed_probe_goes_on_and_pays_for_nothing_twice(store: Store, served: Served, monkeypatch) -> None:
    """Given a kill -9 in the second part, then only what was with the server in that moment is asked again."""
    served.latency_s = 0.005
    code = (
        "import sys; from storage.store import Store; from tests.train.measure.test_probe import CONFIG, ENGINE\n"
        "from train.measure.probe import tag\n"
        "tag(Store(sys.argv[1]), CONFIG, policy=ENGINE)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(store.root)], cwd=Path(__file__).parents[3])
    wait_for(lambda: whole_parts(store) == 1 and served.answered.total() > 300)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and whole_parts(store) == 1
    before = served.answered.total()
    tag(store, CONFIG, policy=ENGINE)
    assert served.answered.total() > before and twice(served) <= CONFIG.engine.in_flight
    assert store.query(TAGS).rows() == undisturbed(store)


def whole_parts(store: Store) -> int:
    return len(list((store.root / "lake" / "rollouts").glob("*.parquet")))


def wait_for(reached: Callable[[], bool], timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.002)


# ---- what fails and is not the policy's doing ----------------------------------------------------------------------------------


def test_faults_of_the_machinery_change_no_rate_and_are_counted(store: Store, serve: Serve, monkeypatch) -> None:
    """Given a server that fails or hangs one try in twenty, and a world that breaks once in twenty, then all tags are as without them."""
    tasks = probed(store)
    url = serve(Served(tasks, faults={"error": 0.02, "hang": 0.01, "cut": 0.02}))
    engine = OpenAIConfig(model=MODEL, base_url=url, tries=1, timeout_s=0.5)
    call, calls = RetailWorld.call, []

    def breaking(self: RetailWorld, *arguments: str) -> object:
        calls.append(arguments)
        if len(calls) % 20 == 0:
            raise RuntimeError("the sandbox is dead")
        return call(self, *arguments)

    with monkeypatch.context() as patched, OpenAIEngine(engine) as asked:
        patched.setattr(RetailWorld, "call", breaking)
        found = rollout(asked, tasks, 4, policy_id="p", retries=9)
    rows = rollouts_frame(found, "probe")
    begun_again = rows.filter(pl.col("attempts") > 1).height
    assert begun_again > 0.05 * rows.height and rows["failure"].is_null().all()
    assert tags_of(rows, tasks) == undisturbed(store)


def test_an_evaluation_of_which_nothing_could_be_rated_says_where_to_look(store: Store, served: Served, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the verifier is broken")

    monkeypatch.setattr("synth.rollouts.episode.judge", broken)
    with pytest.raises(
        HeadraceError, match=r"eval_in, sampled: none of 16 rollouts could be rated; `headrace explain rollout-\w+`"
    ) as error:
        evaluate(store, CONFIG, policy=ENGINE)
    (rollout_id,) = re.findall(r"rollout-\w+", str(error.value))
    assert "the verifier is broken" in str(explain(store, rollout_id))
    assert store.query("SELECT * FROM evaluations").is_empty()


def test_a_draw_that_is_spoilt_every_time_is_in_no_rate(store: Store) -> None:
    """Given an engine that never answers one draw in twenty, then these stand in the log with their tries, and no rate counts them."""
    tasks = probed(store)
    played = ScriptedEngine(tasks, skill=0.6)

    class Deaf:
        name = "deaf"

        def chat(self, requests: list[ChatRequest]) -> list[ChatAnswer]:
            if requests[0].seed % 20 == 0:
                raise EngineFailure("no answer within 120 s")
            return played.chat(requests)

    rows, whole = (rollouts_frame(rollout(engine, tasks, 4, policy_id="p"), "probe") for engine in (Deaf(), played))
    spoilt = rows.filter(pl.col("outcome") == "infra_failure")
    assert 0 < spoilt.height < 0.15 * rows.height
    assert set(spoilt["attempts"]) == {3} and set(spoilt["failure"]) == {"EngineFailure: no answer within 120 s"}
    kept = whole.join(spoilt, on=["task_id", "draw"], how="anti")
    measured, expected = (tags_of(one, tasks, RegionConfig(min_rated=0.25)) for one in (rows, kept))
    assert measured == expected and sum(k for _, k, *_ in measured) == rows.height - spoilt.height
