"""The cascade on a small store: nothing leaks, nothing is done twice, nothing weaker is promoted."""

import itertools
import json
import random
import shutil
from pathlib import Path

import polars as pl
import pytest

import train.cascade
import train.measure.probe
import train.measure.suites.overlap
import train.policies
from filters.certainty.certainty import DrawsConfig, RegionConfig
from filters.certainty.route import RouteConfig
from flows.summaries.summary_tables import certainty, flips
from storage.errors import BadInput, HeadraceError
from storage.explanations.explain import explain
from storage.record_rows import tasks_frame
from storage.records import Task
from storage.releases.lineage import lineage
from storage.releases.release import ReleaseItem, make_release, manifest_of
from storage.report.learning_curves import text_curves
from storage.report.sections import tags as report_tags
from storage.store import Store, part_id
from synth.conversations.conversation_task import goal_frames
from synth.run.config import SynthesisConfig
from synth.run.synthesize import synthesize
from synth.tasks.needs import need
from tests.conftest import Serve
from tests.train.backends.scripted_engines import PLAYED, ScriptedEngine
from tests.train.data.test_task_pool import origin
from tests.train.in_process import run_here
from train.backends import job_backend
from train.cascade import Cascade, CascadeResult, run_cascade
from train.config import CascadeConfig
from train.data.task_pool import shown_hash, sources
from train.measure.probe import evaluate, tag
from train.policies import known_policy, promoted_policy
from train.spec import StageSpec

pytestmark = pytest.mark.slow

STAGES = [{"name": "sft1", "max_steps": 200, "plateau_window": 0}, {"name": "sft2", "max_steps": 5}, {"name": "rl", "max_steps": 2}]
CONFIG = CascadeConfig(
    max_difficulty=2,
    expert_budget=240,
    synthesised_share=0.25,
    probe_tasks=60,
    draws=DrawsConfig(most=8),
    eval_tasks=12,
    eval_out_tasks=12,
    eval_samples=2,
    stages=STAGES,
)


def never(*_):
    raise AssertionError("something was done again")


class Launched(Exception):
    """A stage would have been trained by this spec."""

    def __init__(self, spec: StageSpec) -> None:
        self.spec = spec


class Judged(Exception):
    """A policy would have been judged by this."""


def raise_launched(_, spec, __):
    raise Launched(spec)


def copy_of(store: Store, folder: Path) -> Store:
    return Store(Path(shutil.copytree(store.root, folder / "store")))


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """A store with one cascade done."""
    rng = random.Random(0)
    tasks = {task.id: task for number in range(240) if (task := origin(number, rng))}
    store = Store(tmp_path_factory.mktemp("cascade") / "store")
    store.commit([store.write("tasks", part_id("tasks", ["origins"], {}, 1), tasks_frame(list(tasks.values())))])
    synthesize(
        store,
        SynthesisConfig(worlds=("retail",), accepted=40, calibration=30, chinese_share=0.0, veiled_share=0.0, subsample=20, drills={}),
    )
    result = run_cascade(store, CONFIG, run=run_here)
    assert [policy.name for policy in result.policies] == ["sft1", "sft2", "rl"]
    return store


def used(store: Store) -> dict[str, list[Task]]:
    """The tasks that were trained or probed on, and those of both evaluations."""
    rows = store.query("SELECT DISTINCT r.purpose, t.spec FROM rollouts r JOIN tasks t USING (task_id)")
    trained = store.query("SELECT DISTINCT 'train' AS purpose, t.spec FROM release_items i JOIN tasks t USING (task_id)")
    found: dict[str, list[Task]] = {"train": [], "eval_in": [], "eval_out": []}
    for purpose, spec in pl.concat([rows, trained]).iter_rows():
        found["train" if purpose == "probe" else purpose.removesuffix("_greedy")].append(Task.model_validate_json(spec))
    return found


# ---- what is trained on ---------------------------------------------------------------------------------------------------


def origins_of(store: Store, release: str, split: str) -> dict[str, int]:
    (release_id,) = store.query("SELECT release_id FROM releases WHERE name = ?", [release])["release_id"][:1]
    return manifest_of(store, release_id)["splits"][split]["origins"]


def test_every_release_has_synthesised_conversations_and_raw_queries(store):
    """The links from synthesis and from the funnel into training: each split of each release has items of both."""
    for release, split in (("seed", "seed"), ("second", "sft2"), ("rl", "rl")):
        origins = origins_of(store, release, split)
        assert origins["conversation"] / sum(origins.values()) >= 0.2 and origins["query"] / sum(origins.values()) >= 0.2, (split, origins)


def test_accepted_conversations_are_trained_on_as_they_are(store):
    """Given accepted conversations, then they are in the seed split; several have more goals than one; a cascade without any is refused."""
    rows = store.query(
        """SELECT t.trajectory_id, json_array_length(b.spec, '$.goals') AS goals FROM release_items i
           JOIN trajectories t ON t.trajectory_id = i.item_id JOIN blueprints b USING (blueprint_id)
           WHERE i.split = 'seed' AND t.cluster_id IS NOT NULL"""
    )
    assert rows.height > 15 and (rows["goals"] > 1).sum() > 5
    policy = known_policy(store, "rl")
    told = str(lineage(store, policy.id))
    assert "from synthesised conversations" in told and "seed/seed: " in told


@pytest.mark.parametrize("holds", ["a single task", "a conversation"])
def test_a_conversation_that_asks_for_what_is_held_out_is_in_no_release(store, tmp_path, holds):
    """Given an accepted conversation, when a goal of it is that of a held-out task, or of a held-out conversation, then it is refused."""
    own = copy_of(store, tmp_path)
    trajectory, task_id, spec = own.query(
        """SELECT t.trajectory_id, task_id, k.spec FROM trajectories t JOIN tasks k USING (task_id)
           WHERE t.cluster_id IS NOT NULL AND json_type(k.spec, '$.conversation') = 'OBJECT' ORDER BY ALL"""
    ).row(0)
    item = ReleaseItem("trajectory", trajectory, task_id)
    make_release(own, "before", {"seed": [item]}, {})
    task = Task.model_validate_json(spec)
    held_out = {"id": "task-held-out", "division": "held_out", "use": "eval_out"}
    if holds == "a single task":
        held_out |= {"conversation": None, "frame_id": goal_frames(task)[0].id}
    own.commit([own.write("tasks", part_id("tasks", ["held out"], {}, 1), tasks_frame([task.model_copy(update=held_out)]))])
    with pytest.raises(
        HeadraceError, match=rf"trajectory {trajectory} in split seed of release after asks for frame frame-\w+, which is held out"
    ):
        make_release(own, "after", {"seed": [item]}, {})


def test_a_store_without_conversations_is_refused_before_any_training(store, tmp_path):
    bare = Store(tmp_path / "store")
    singles = [Task.model_validate_json(spec) for spec in store.query("SELECT spec FROM tasks WHERE query_id IS NOT NULL")["spec"]]
    bare.commit([bare.write("tasks", part_id("tasks", ["bare"], {}, 1), tasks_frame(singles[:80]))])
    with pytest.raises(HeadraceError, match=r"no accepted conversation in retail.*headrace synthesize.*synthesised_share to 0"):
        run_cascade(bare, CONFIG, run=never)


def test_conversations_are_probed_evaluated_and_learned_by_rl_with_their_user(store):
    counts = store.query(
        """SELECT purpose, count(*) AS rollouts, max(len(json_extract(r.messages, '$[*].role'))) AS messages FROM rollouts r
           JOIN tasks k USING (task_id) WHERE json_type(k.spec, '$.conversation') = 'OBJECT' GROUP BY purpose"""
    )
    assert {"probe", "eval_in"} <= set(counts["purpose"]) and counts["messages"].min() > 2
    drawn = store.query(
        "SELECT count(*) FROM release_items i JOIN tasks k USING (task_id) WHERE i.split = 'rl' "
        "AND json_type(k.spec, '$.conversation') = 'OBJECT'"
    ).item()
    assert drawn > 5


def test_no_held_out_task_shows_what_a_training_task_shows(store):
    tasks = used(store)
    assert all(tasks.values())
    for first, second in itertools.combinations(tasks, 2):
        assert not {task.id for task in tasks[first]} & {task.id for task in tasks[second]}
    shown = {use: {shown_hash(task) for task in found} for use, found in tasks.items()}
    assert not shown["train"] & (shown["eval_in"] | shown["eval_out"])
    assert not {task.frame_id for task in tasks["eval_out"]} & {task.frame_id for use in ("train", "eval_in") for task in tasks[use]}
    needs = {use: {need(frame) for task in found for frame in goal_frames(task)} for use, found in tasks.items()}
    assert not needs["eval_out"] & needs["train"]


def test_every_stage_names_its_release_its_policies_and_its_code(store):
    stages = store.query("SELECT * FROM stages ORDER BY name")
    assert stages["name"].to_list() == ["rl", "sft1", "sft2"]
    assert stages["backend"].unique().to_list() == ["local"]
    assert stages["code_hash"].str.len_chars().to_list() == [16, 16, 16]
    assert store.query("SELECT count(*) FROM stages JOIN releases USING (release_id) JOIN policies USING (stage_id)").item() == 3


def test_rl_leaves_tags_of_the_tasks_whose_siblings_it_drew_and_no_region_of_a_probe_changes(store):
    """Given a cascade that ends with RL, then tasks of its split are tagged for the policy that came of it by their last rollouts; they are
    shown by `explain`, and not counted as tags of a probe."""
    (tags,) = [rows for _, rows in store.query("SELECT * FROM tags WHERE purpose = 'rl'").group_by("policy_id")]
    (policy,) = store.query("SELECT policy_id, release_id FROM policies JOIN stages USING (stage_id) WHERE name = 'rl'").rows()
    assert tags["policy_id"].unique().to_list() == [policy[0]]
    split = store.query("SELECT task_id FROM release_items WHERE release_id = ? AND split = 'rl'", [policy[1]])["task_id"]
    assert set(tags["task_id"]) <= set(split)
    assert 1 < tags.height <= 2 * CONFIG.stage("rl").tasks_a_step
    assert tags["k"].is_between(1, CONFIG.stage("rl").tag_window).all() and tags["difficulty"].null_count() == 0

    explanation = " ".join(str(explain(store, tags["task_id"][0])).split())
    assert "the last rollouts of its siblings while it was in training" in explanation and f"{policy[0]}" in explanation
    assert [one["policy"] for one in report_tags(store)["maps"]] == ["sft1"], "the draws of one probe route both stages"
    assert {row["policy"] for row in certainty(store).rows} == {"sft1"}


def test_how_often_checkpoints_are_made_makes_no_other_stage(store):
    """Given a finished cascade, when checkpoints are to be made more often, then nothing is trained again."""
    often = CONFIG.with_stage("rl", checkpoint_steps=1)
    run_cascade(store, often, run=never)
    with pytest.raises(Launched):
        run_cascade(store, often.with_stage("rl", follow_tags=True), run=raise_launched)


def test_a_second_call_trains_nothing_loads_no_policy_and_changes_nothing(store, monkeypatch):
    monkeypatch.setattr(train.policies, "engine_of", never)
    before = store.content_hash()
    result = run_cascade(store, CONFIG, run=never)
    assert store.content_hash() == before
    assert result.promoted == promoted_policy(store)


@pytest.mark.parametrize("held_out", [["tau2-retail"], None])
def test_a_release_that_overlaps_a_suite_is_refused_before_a_stage_reads_it(store, monkeypatch, held_out):
    """Given what a user said in the seed split as a suite's question, when the suite is held out, by its name or as one that is installed,
    then the cascade stops at the release; with another question, or where no suite is held out, it goes on and finds all done."""
    config = CascadeConfig.model_validate(CONFIG.model_dump() | {"held_out": held_out})
    rows = store.query("SELECT messages FROM trajectories JOIN release_items ON item_id = trajectory_id WHERE split = 'seed'")
    messages = [message for row in rows["messages"] for message in json.loads(row)]
    said = max((message["content"] for message in messages if message["role"] == "user"), key=len)
    questions = ["Exchange my clicky keyboard for a silent one"]
    monkeypatch.setattr(train.measure.suites.overlap, "questions_of", lambda suite: questions)
    assert run_cascade(store, config, run=never).promoted == promoted_policy(store)
    questions.append(said)
    with pytest.raises(BadInput, match=r"release release-\w+ overlaps suite (tau2-retail|bfcl): \d+ items.*train\.held_out"):
        run_cascade(store, config, run=never)
    run_cascade(store, config.model_copy(update={"held_out": ()}), run=never)


def test_a_cascade_of_two_stages_goes_from_the_seed_sft_to_rl(store, tmp_path):
    """Given a finished cascade, when the second SFT is left out, then only RL is trained, on what the probe of the first policy found."""
    own = copy_of(store, tmp_path)
    stages = [STAGES[0], {"name": "sft2", "skip": True}, STAGES[2] | {"parent": "sft1"}]
    result = run_cascade(own, CascadeConfig.model_validate(CONFIG.model_dump() | {"stages": stages}), run=run_here)
    assert [policy.name for policy in result.policies] == ["sft1", "rl"] and result.policies[0] == known_policy(own, "sft1")
    stage = own.query("SELECT input_policy_id, split, release_id FROM stages WHERE output_policy_id = ?", [result.policies[1].id]).row(0)
    assert stage[:2] == (result.policies[0].id, "rl")
    assert manifest_of(own, stage[2])["probed_policy"] == result.policies[0].id


@pytest.mark.parametrize("engine", ["verl", "roll"])
def test_a_stage_of_verl_or_roll_ends_as_a_policy_that_is_evaluated_and_judged(
    store: Store, tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Given a finished cascade and a cluster whose jobs leave what the engine leaves, when a stage of that engine follows, then its
    policy is in the store as any other, with its metrics, and has a verdict; a second call submits nothing."""
    monkeypatch.setattr(job_backend, "POLL_S", 0.01)
    own, fake = copy_of(store, tmp_path), ScriptedEngine()
    settings = {"algorithm": "rl", "split": "rl", "parent": "rl", "max_steps": 2, "tasks_a_step": 2, "draws": 2}
    cluster = {"address": serve(fake).removesuffix("/v1"), "gpus_per_node": 2, "engine": {"prompt_tokens": 256, "response_tokens": 256}}
    stages = [*STAGES, {"name": "clustered", "backend": engine, **settings}]
    config = CascadeConfig.model_validate(CONFIG.model_dump() | {"stages": stages, "cluster": cluster})
    result = run_cascade(own, config)
    policy = result.policies[-1]
    assert policy.name == "clustered" and result.passed["clustered"] in (True, False) and (policy.path / "model.safetensors").exists()
    (row,) = own.query("SELECT backend, metrics FROM stages WHERE output_policy_id = ?", [policy.id]).rows()
    metrics = json.loads(row[1])
    assert row[0] == engine and (metrics["steps"], metrics["rollouts_played"], metrics["rollouts_dropped"]) == (2.0, PLAYED, 1.0)
    played = own.query("SELECT count(*) FROM rollouts WHERE policy_id = ? AND purpose = 'eval_in'", [policy.id]).item()
    assert played == CONFIG.eval_tasks * CONFIG.eval_samples
    assert own.query("SELECT count(*) FROM tags WHERE policy_id = ?", [policy.id]).item() == 0
    assert "clustered (2 steps)" in text_curves(own) or not result.passed["clustered"]
    assert run_cascade(own, config).policies == result.policies and len(fake.submitted) == 1


def test_a_cascade_of_four_stages_goes_on_with_rl_by_another_loss(store, tmp_path):
    """Given a finished cascade, when a fourth stage follows it, then that one alone is trained, from RL's policy and the draws of the first
    probe; where that is asked for, it has a probe of its parent."""
    own = copy_of(store, tmp_path)
    more = {"name": "polish", "algorithm": "rl", "split": "rl", "parent": "rl", "loss": "grpo", "max_steps": 2}
    config = CascadeConfig.model_validate(CONFIG.model_dump() | {"stages": [*STAGES, more]})
    assert [config.probed_stage(stage) for stage in config.cascade] == [None, "sft1", "sft1", "sft1"]
    reprobed = config.model_copy(update={"route": RouteConfig(reprobe=True)})
    assert [reprobed.probed_stage(stage) for stage in reprobed.cascade] == [None, "sft1", "sft2", "rl"]
    trained: list[StageSpec] = []

    def noted(backend, spec, folder):
        trained.append(spec)
        return run_here(backend, spec, folder)

    result = run_cascade(own, config, run=noted)
    assert [policy.name for policy in result.policies] == ["sft1", "sft2", "rl", "polish"] and len(result.passed) == 4
    (spec,) = trained
    assert spec.rl is not None and spec.rl.loss == "grpo" and spec.model_in is not None
    assert spec.model_in.parent.name == own.query("SELECT stage_id FROM policies WHERE policy_id = ?", [result.policies[2].id]).item()
    assert manifest_of(own, spec.release_id)["probed_policy"] == result.policies[0].id


def test_a_later_and_weaker_policy_is_not_promoted(store):
    promoted = promoted_policy(store)
    weak = CONFIG.with_stage("sft1", max_steps=5).model_copy(update={"seed": 5})
    with pytest.raises(HeadraceError, match="split sft2 would be empty"):
        run_cascade(store, weak, run=run_here)
    assert store.query("SELECT count(*) FROM promotions WHERE NOT passed").item() >= 1
    assert promoted_policy(store) == promoted


def test_a_stage_that_fails_leaves_the_policy_that_was_promoted_and_no_trace(store):
    """Given a finished cascade, when its last stage is to be another one, and fails, then nothing in the store has changed."""

    def fails(_, spec, __):
        raise HeadraceError(f"stage {spec.name} was killed")

    promoted, before = promoted_policy(store), store.content_hash()
    longer = CONFIG.with_stage("rl", max_steps=3)
    with pytest.raises(HeadraceError, match="stage rl was killed"):
        run_cascade(store, longer, run=fails)
    assert promoted is not None and promoted_policy(store) == promoted
    assert store.content_hash() == before


def test_a_policy_is_held_against_every_earlier_one_of_its_cascade(store, monkeypatch):
    """Given a finished cascade whose second SFT is promoted, when its last policy is judged anew, then the gate sees the rollouts of the
    promoted one, and those of the first beside."""
    first, second, last = (known_policy(store, name) for name in ("sft1", "sft2", "rl"))

    def seen(_, promoted, __, ___, *, earlier):
        raise Judged([set(rollouts["policy_id"]) for rollouts in (promoted, *earlier)])

    monkeypatch.setattr(train.cascade, "gate", seen)
    monkeypatch.setattr(train.cascade, "promoted_policy", lambda _: second)
    monkeypatch.setattr(Cascade, "_verdict", lambda *_: None)
    with pytest.raises(Judged) as judged:
        Cascade(store, CONFIG).judge(last, CascadeResult(policies=[first, second]))
    assert judged.value.args[0] == [{second.id}, {first.id}]


def test_more_samples_are_another_measurement(store):
    policy = promoted_policy(store)
    evaluate(store, CONFIG.model_copy(update={"eval_samples": 3}))
    samples = "SELECT samples FROM evaluations WHERE policy_id = ? AND use = 'eval_in' AND decoding = 'sampled' AND facet = 'all'"
    assert sorted(store.query(samples, [policy.id])["samples"]) == [2 * CONFIG.eval_tasks, 3 * CONFIG.eval_tasks]


def test_every_measurement_tells_tasks_apart_by_world_language_difficulty_mode_and_intent(store):
    facets = store.query("SELECT evaluation_id, list(DISTINCT facet ORDER BY facet) AS facets FROM evaluations GROUP BY 1")["facets"]
    assert len(facets) >= 12 and {tuple(each) for each in facets} == {("all", "difficulty", "intent", "kind", "language", "mode", "world")}


def test_another_k_is_another_tag_and_another_seed_is_none(store):
    four, five = (CONFIG.model_copy(update={"draws": DrawsConfig(k=k, most=k)}) for k in (4, 5))
    policy = tag(store, four)
    tag(store, four.model_copy(update={"seed": 3}))
    tag(store, five)
    counts = store.query(
        "SELECT k, count(*) AS tags FROM tags WHERE policy_id = ? AND purpose = 'probe' GROUP BY k ORDER BY k", [policy.id]
    )
    assert counts.rows()[:2] == [(4, 60), (5, 60)]


def test_a_task_is_drawn_as_often_as_it_takes_and_again_on_demand(store):
    """Given draws up to 16, then each task that is drawn more than 8 times ends when its region is settled; a second probe has draws of its
    own."""
    settled = DrawsConfig()
    policy = tag(store, CONFIG.model_copy(update={"draws": settled}), again=20)
    tags = store.query("SELECT k, successes FROM tags WHERE policy_id = ? AND purpose = 'probe' AND k > 8", [policy.id])
    assert tags.height > 2
    for k, successes in tags.iter_rows():
        assert k in settled.looks and 0 < successes < k
        assert settled.is_settled(successes, k, 16 - k, RegionConfig())
    again = store.query("SELECT task_id, draw FROM rollouts WHERE policy_id = ? AND purpose = 'probe_again'", [policy.id])
    assert len(set(again["task_id"])) == 20 and again["draw"].min() == 1_000
    (flipped,) = flips(store).rows
    assert (flipped["policy"], flipped["tasks"]) == (policy.name, 20) and 0 <= flipped["another region"] <= 20


def test_changed_thresholds_change_the_routes_and_no_tag(store):
    """Given a store with a cascade, when the thresholds move, then the next release is routed by what was measured and by the new ones."""
    before = store.query("SELECT * FROM tags ORDER BY ALL")
    routes = {}
    for certain in (0.75, 0.3):
        moved = RouteConfig(regions=RegionConfig(certain_rate=certain), rl_uniform=0.0)
        with pytest.raises(Launched) as launched:
            run_cascade(store, CONFIG.with_stage("sft2", max_steps=4).model_copy(update={"route": moved}), run=raise_launched)
        items = store.query("SELECT split, task_id FROM release_items WHERE release_id = ?", [launched.value.spec.release_id])
        routes[certain] = {task for split, task in items.iter_rows() if split == "rl"}
        assert launched.value.spec.name == "sft2" and launched.value.spec.model_in is not None
        probed = store.query("SELECT policy_id FROM policies WHERE stage_id = ?", [launched.value.spec.model_in.parent.name]).item()
        rates = store.query("SELECT task_id, rate FROM tags WHERE policy_id = ? AND purpose = 'probe' AND k = 8", [probed])
        assert routes[certain] == {task for task, rate in rates.iter_rows() if 0 < rate < certain}
    assert routes[0.3] < routes[0.75]
    assert store.query("SELECT * FROM tags ORDER BY ALL").equals(before)


def test_a_store_without_unseen_frames_is_evaluated_without_them(store, monkeypatch):
    count = """SELECT count(DISTINCT evaluation_id) FILTER (use = 'eval_in'), count(DISTINCT evaluation_id) FILTER (use = 'eval_out')
               FROM evaluations"""
    seen, ((before, unseen),) = sources(store, worlds=["retail"], max_difficulty=2), store.query(count).rows()
    monkeypatch.setattr(train.measure.probe, "sources", lambda *_, **__: [source for source in seen if source.division != "held_out"])
    with pytest.warns(UserWarning, match="is not measured on eval_out: every held-out frame"):
        evaluate(store, CONFIG.model_copy(update={"seed": 8, "eval_samples": 1}))
    assert store.query(count).rows() == [(before + 2, unseen)]


def test_tasks_in_another_language_are_tasks_of_their_own(store):
    chinese = CONFIG.model_copy(update={"language": "zh", "eval_samples": 1})
    evaluate(store, chinese)
    rated = "SELECT count(DISTINCT task_id) FROM rollouts JOIN tasks USING (task_id) WHERE purpose = 'eval_in' AND language = 'zh'"
    assert store.query(rated).item() == CONFIG.eval_tasks
