"""Releases: the same selection is the same release; what cannot be trained on is refused."""

import pytest

from storage.errors import BadInput, HeadraceError
from storage.releases.release import ReleaseItem, load_split, make_release, manifest_of
from storage.store import Store
from storage.tables import TABLES
from tests.storage.conftest import EXPERTS, ROLLOUTS, TASKS, Sample, build_sample


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Sample:
    """A sample of this module's own, to write to."""
    return build_sample(tmp_path_factory.mktemp("own") / "store")


def test_a_split_comes_back_as_the_records_it_was_made_of(sample):
    seed = load_split(sample.store, sample.first_release, "seed")
    assert [item.task for item in seed] == list(TASKS[:2])
    assert [item.conversation for item in seed] == list(EXPERTS)
    own, rl = (load_split(sample.store, sample.second_release, split) for split in ("sft2", "rl"))
    assert own[1].conversation == ROLLOUTS[0]
    assert own[1].task == TASKS[2]
    assert [(item.task, item.conversation, item.item.weight) for item in rl] == [(TASKS[2], None, 0.5)]


def test_the_manifest_says_what_decided_and_what_came_out(sample):
    manifest = manifest_of(sample.store, sample.second_release)
    assert manifest["probed_policy"] == "policy-1"
    assert manifest["splits"]["sft2"]["kinds"] == {"rollout": 1, "trajectory": 1}
    assert {split: described["tasks"] for split, described in manifest["splits"].items()} == {"sft2": 2, "rl": 1}


def test_the_same_selection_is_the_same_release_and_any_change_another(own):
    items = [ReleaseItem("trajectory", expert.id, expert.task_id) for expert in EXPERTS]
    before = own.store.content_hash()
    assert make_release(own.store, "seed", {"seed": items}, {"expert_budget": 2}) == own.first_release
    assert own.store.content_hash() == before
    others = {
        make_release(own.store, "other name", {"seed": items}, {"expert_budget": 2}),
        make_release(own.store, "seed", {"seed": items}, {"expert_budget": 3}),
        make_release(own.store, "seed", {"seed": items[::-1]}, {"expert_budget": 2}),
        make_release(own.store, "seed", {"seed": items[:1]}, {"expert_budget": 2}),
        make_release(own.store, "seed", {"first": items}, {"expert_budget": 2}),
    }
    assert len(others | {own.first_release}) == 6


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ({}, "has no splits"),
        ({"seed": [ReleaseItem("task", "task-1", "task-1")], "rl": []}, "split rl of release r is empty"),
        ({"rl": [ReleaseItem("task", "task-9", "task-9")]}, "task task-9 in split rl .* is not in the store"),
        ({"rl": [ReleaseItem("trajectory", "none", "task-1")]}, "trajectory none .* is not in the store"),
        ({"rl": [ReleaseItem("rollout", "rollout-0", "task-1")]}, "rollout rollout-0 of task task-1 .* is not in the store"),
        ({"rl": [ReleaseItem("task", "task-1", "task-1", 0.0)]}, "weights are positive"),
        ({"rl": [ReleaseItem("task", "task-1", "task-1", float("nan"))]}, "weights are positive"),
        ({"rl": [ReleaseItem("task", "task-1", "task-1", float("inf"))]}, "weights are positive"),
        ({"rl": [ReleaseItem("task", "task-2", "task-1")]}, "task task-1 in split rl of release r stands there as task-2"),
        ({"rl": [ReleaseItem("task", "task-1", "task-1")] * 2}, "task task-1 stands in split rl of release r more than once"),
        ({"a/b": [ReleaseItem("task", "task-1", "task-1")]}, "split 'a/b' of release r cannot name a file"),
        ({"rl": [ReleaseItem("task", "task-4", "task-4")]}, "task-4 .use eval_in. is held out"),
        ({"eval_in": [ReleaseItem("task", "task-1", "task-1")]}, "trained on elsewhere"),
        ({"rl": [ReleaseItem("rollout", "rollout-0", None)]}, "rollout rollout-0 in split rl .* is about no task"),
        ({"eval_in": [ReleaseItem("trajectory", EXPERTS[0].id, None)]}, "in split eval_in .* is about no task"),
        ({"sft": [ReleaseItem("trajectory", EXPERTS[0].id, None)]}, r"of task \(none\) in split sft .* is not in the store"),
    ],
)
def test_what_cannot_be_released_is_refused(own, splits, words):
    before = own.store.content_hash()
    with pytest.raises(HeadraceError, match=words):
        make_release(own.store, "r", splits, {})
    assert own.store.content_hash() == before


def test_held_out_tasks_may_stand_in_splits_for_evaluation(own):
    release = make_release(own.store, "held out", {"eval_in": [ReleaseItem("task", "task-4", "task-4")]}, {})
    assert [item.task.use for item in load_split(own.store, release, "eval_in")] == ["eval_in"]


def test_unknown_releases_and_splits_name_the_known_ones(sample, tmp_path):
    with pytest.raises(BadInput, match=sample.second_release):
        load_split(sample.store, "release-x", "seed")
    with pytest.raises(BadInput, match="it has seed"):
        load_split(sample.store, sample.first_release, "sed")
    with pytest.raises(BadInput, match="none yet"):
        manifest_of(Store(tmp_path / "none"), "release-x")


def test_every_table_of_the_sample_has_rows(sample):
    """The tests of this folder mean something only if the sample is whole; only the reader fills `unserved`."""
    early = [table for table, schema in TABLES.items() if not schema.is_late]
    assert [table for table in early if sample.store.query(f"FROM {table}").is_empty()] == ["unserved"]
