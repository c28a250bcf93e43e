"""Fresh tasks: a function of seed and step, none twice, by weight; and their rollouts count to the tasks whose siblings they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from filters.certainty.route import RouteConfig
from storage.errors import HeadraceError
from storage.record_rows import tasks_frame
from storage.records import Outcome, Task
from storage.releases.release import ReleasedItem, ReleaseItem, Setting, make_release
from storage.store import Store, part_id
from synth.rollouts.draws import rollout_parts
from synth.rollouts.episode import Trace
from synth.tasks.solver import NotAdmitted, is_evaluation_seed
from tests.synth.scripted_engine import ScriptedEngine
from tests.train.tiny_policies import retail_tasks
from train.rl.rollout_batches import Batch, Row
from train.rl.task_sampler import FreshTasks, routed_tasks
from train.spec import RLSettings, StageSpec

TASKS = retail_tasks("order_status", "special_service", each=2)
SETTINGS = RLSettings(tasks_a_step=6, follow_tags=True)


def split(tasks: Sequence[Task] = TASKS, weights: Sequence[float] = (1, 2, 3, 4)) -> list[ReleasedItem]:
    return [
        ReleasedItem(ReleaseItem("task", task.id, task.id, weight), Setting(task.world, task.language, task.tools), task, None)
        for task, weight in zip(tasks, weights, strict=False)
    ]


def spec(store: Path = Path("store"), release: str = "release-1", seed: int = 3) -> StageSpec:
    fields = {"name": "rl", "algorithm": "rl", "store": store, "release_id": release, "split": "rl", "model_out": Path("model")}
    return StageSpec(**fields, seed=seed, rl=SETTINGS)


def fresh_tasks(tasks_a_step: int = 6, *, seed: int = 3, items: Sequence[ReleasedItem] | None = None, follow: bool = False) -> FreshTasks:
    settings = RLSettings(tasks_a_step=tasks_a_step, follow_tags=follow)
    return FreshTasks(items or split(), spec(seed=seed), settings, RouteConfig(rl_uniform=0.25))


def rolled_out(source: FreshTasks, step: int, succeed: dict[str, Sequence[bool]]) -> None:
    """A step in which the siblings of an intent succeed at these draws."""
    rows = [
        Row(task.id, Outcome.SUCCESS if success else Outcome.POLICY_FAILURE, float(success), float(success), Trace())
        for task in source(step)
        for success in succeed[task.intent]
    ]
    source.watch(Batch(step, step, tuple(rows)))


# ---- what a step draws -----------------------------------------------------------------------------------------------------


def test_fresh_tasks_are_a_function_of_seed_and_step_and_never_come_again():
    def drawn(seed: int) -> list[str]:
        source = fresh_tasks(seed=seed)
        return [task.id for step in range(5) for task in source(step)]

    assert len(set(drawn(1))) == 30
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_tasks_drawn_again_are_a_function_of_seed_step_and_round_and_no_task_of_any_step():
    """Given a step that draws twice again, then its first draw and every other step's are as if it had not."""
    source, plain = fresh_tasks(), fresh_tasks()
    again = [task.id for step in range(3) for round in (0, 1, 2) for task in source(step, round)]
    assert len(set(again)) == 3 * 3 * 6
    assert [task.id for task in fresh_tasks()(1, 2)] == [task.id for task in source(1, 2)]
    assert {task.id for step in range(3) for task in plain(step)} <= set(again)
    assert [task.id for task in source(2)] == [task.id for task in plain(2)]


def test_rollouts_that_are_not_learned_from_count_to_their_tasks_too():
    source = fresh_tasks()
    learned, left_out = (
        tuple(Row(task.id, Outcome.POLICY_FAILURE, 0.0, 0.0, Trace()) for task in tasks) for tasks in (source(0), source(0, 1))
    )
    source.watch(Batch(0, 0, learned, left_out))
    assert sum(len(rated) for rated in source.running.state().values()) == len(learned) + len(left_out) == 12


def test_rollouts_from_the_middle_of_a_task_say_nothing_of_the_task():
    source = fresh_tasks()
    rows = tuple(Row(task.id, Outcome.SUCCESS, 1.0, 1.0, Trace(), given_turns=number % 2) for number, task in enumerate(source(0)))
    source.watch(Batch(0, 0, rows))
    assert sum(len(rated) for rated in source.running.state().values()) == 3


def test_every_step_draws_its_frames_anew():
    source = fresh_tasks()
    assert len({tuple(task.frame_id for task in source(step)) for step in range(5)}) > 1


def test_fresh_tasks_are_for_training_and_not_those_of_the_split():
    tasks = fresh_tasks(24)(0)
    assert {task.use for task in tasks} == {"train"}
    assert not any(is_evaluation_seed(task.world_seed) for task in tasks)
    assert {task.id for task in tasks}.isdisjoint(task.id for task in TASKS)


def test_heavier_items_are_drawn_more_often():
    tasks = fresh_tasks(60, items=split(TASKS[::2], (1, 9)))(0)
    assert 42 <= sum(task.intent == TASKS[2].intent for task in tasks) < 60


def test_frames_that_give_no_siblings_are_an_error_that_says_how_many(monkeypatch):
    def never(*_: object) -> None:
        raise NotAdmitted("set_aside", "of nobody's use")

    monkeypatch.setattr("train.rl.task_sampler._sibling", never)
    with pytest.raises(HeadraceError, match="split rl: 200 draws gave only 0 of 6"):
        fresh_tasks()(0)


def test_a_step_may_have_any_number_of_tasks():
    """Given more a step than two hundred draws would give, and frames that are not always admitted, then no task comes twice still."""
    source = fresh_tasks(256)
    first, second = ({task.id for task in source(step)} for step in (0, 1))
    assert len(first) == len(second) == 256
    assert first.isdisjoint(second)


def test_a_split_without_tasks_is_refused():
    talks = [replace(item, task=None) for item in split()]
    with pytest.raises(HeadraceError, match="split rl of release release-1 has no task to draw siblings of"):
        fresh_tasks(items=talks)


# ---- draws that follow the tags ----------------------------------------------------------------------------------------------


WAVERING = {"order_status": (True, True, True, False), "special_service": (False,) * 4}


def test_a_rollout_counts_to_the_task_whose_sibling_it_was_of():
    source = fresh_tasks(24)
    rolled_out(source, 0, WAVERING)
    tags = source.running.tags()
    assert set(tags["task_id"]) == {task.id for task in TASKS}
    by_intent = {task.id: task.intent for task in TASKS}
    assert all(row["rate"] == (0.75 if by_intent[row["task_id"]] == "order_status" else 0.0) for row in tags.to_dicts())


def test_draws_that_follow_the_tags_turn_to_needs_that_waver_and_leave_a_floor():
    """Given tasks of which half waver and half never succeed, when draws follow the tags, then the wavering ones get most but the floor;
    when they do not, the split's weights stand."""
    wavering = {"order_status": (True, False, True, False), "special_service": (False,) * 4}
    follows, stays = fresh_tasks(24, follow=True), fresh_tasks(24)
    assert follows.weights() == [0.25] * 4, "nothing is measured yet"
    for source in (follows, stays):
        rolled_out(source, 0, wavering)
    weights = dict(zip([task.intent for task in TASKS], follows.weights(), strict=True))
    assert sum(follows.weights()) == pytest.approx(1)
    assert weights["special_service"] >= 0.25 / 4
    assert weights["order_status"] > 3 * weights["special_service"]
    assert stays.weights() == [1, 2, 3, 4]
    assert sum(task.intent == "order_status" for task in follows(1)) > 15


def test_a_need_is_known_by_the_groups_of_all_its_tasks_and_old_ones_give_way():
    """Given two tasks of one need, of which one alone was played, then both are weighed by it; a group counts once, however many rollouts
    it has; and groups beyond the window say nothing."""
    source = fresh_tasks(items=split(TASKS[:2], (1, 1)), follow=True)
    for step, outcomes in enumerate(["+-+-", "----", "--"]):
        for outcome in outcomes:
            rated = "success" if outcome == "+" else "policy_failure"
            source.running.add(TASKS[0].id, step=step, outcome=rated, reward=float(outcome == "+"), sibling=f"sibling-{step}")
    assert len(set(source.weights())) == 1
    every, latest = (source.running.latest_groups(source._groups, most) for most in (64, 2))
    assert (every["mixed"].sum(), every["groups"].sum()) == (1, 3)
    assert (latest["mixed"].sum(), latest["groups"].sum()) == (0, 2)
    for _ in range(8):
        source.running.add(TASKS[0].id, step=3, outcome="success", reward=1.0, sibling="sibling-3")
    cut = source.running.latest_groups(source._groups, 64)
    assert (cut["mixed"].sum(), cut["groups"].sum()) == (0, 3), "the first group has left the window in part, and does not count"


def test_the_tasks_of_a_step_stay_when_its_rollouts_are_counted():
    source = fresh_tasks(follow=True)
    before = source(0)
    rolled_out(source, 0, WAVERING)
    assert source(0) == before


def test_running_tags_begin_with_the_probe_that_the_split_was_routed_by(tmp_path):
    """Given a release that names its probed policy and its routing, then tags and weights at the start are those of that policy's probe."""
    store = Store(tmp_path / "store")
    store.commit([store.write("tasks", part_id("tasks", [], {}, 1), tasks_frame(TASKS))])
    for purpose, policy, skill in (("probe", "p", 0.5), ("probe", "q", 0.0), ("eval_in", "p", 1.0)):
        engine = ScriptedEngine(TASKS, skill=skill, name=policy)
        store.commit(rollout_parts(store, engine, TASKS, 8, purpose=purpose, policy_id=policy))
    manifest = {"probed_policy": "p", "routing": RouteConfig(rl_uniform=0.1).model_dump()}
    release = make_release(store, "rl", {"rl": [one.item for one in split()]}, manifest)
    tags = routed_tasks(store, split(), spec(store.root, release), SETTINGS).running.tags()
    seen = store.query(
        """SELECT task_id, count(*), count(*) FILTER (outcome = 'success') FROM rollouts
           WHERE policy_id = 'p' AND purpose = 'probe' GROUP BY 1"""
    )
    assert 0 < sum(seen.to_series(2)) < 32
    assert {row["task_id"]: (row["k"], row["successes"]) for row in tags.to_dicts()} == {
        task: (k, hits) for task, k, hits in seen.iter_rows()
    }
    unprobed = make_release(store, "unprobed", {"rl": [one.item for one in split()]}, {})
    assert routed_tasks(store, split(), spec(store.root, unprobed), SETTINGS).running.tags().is_empty()


def test_a_batch_that_another_process_has_drawn_and_played_counts_as_if_it_had_been_drawn_here():
    """Given who draws, plays and counts, and who is only given the batches, then both have the same tags."""
    plays, learns = fresh_tasks(follow=True), fresh_tasks(follow=True)
    for step in range(3):
        rows = tuple(Row(task.id, Outcome.SUCCESS, 1.0, 1.0, Trace()) for task in plays(step))
        batch = Batch(step, step, rows)
        plays.watch(batch)
        learns.watch(replace(batch, parents=plays.parents))
    assert learns.running.state() == plays.running.state()
    assert {row[0] for recent in learns.running.state().values() for row in recent} == {0, 1, 2}
