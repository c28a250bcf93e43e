"""Running tags: the last rated rollouts of each task, by the formulas of a probe, and nothing lost on the way through a checkpoint."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.certainty.certainty import RegionConfig, certainty
from filters.certainty.running_tags import BEFORE_TRAINING, RunningTags
from storage.tables import TABLES
from synth.intervals import wilson
from synth.tasks.solver import sibling
from synth.worlds import WORLDS
from tests.synth.retail_tasks import frame_of

TASK = sibling(WORLDS["retail"], frame_of("order_status", 0), index=0, language="en", division="probe", use="train")
TASKS = [TASK, TASK.model_copy(update={"id": "task-other", "difficulty": 4})]
ONE, OTHER = (task.id for task in TASKS)
ROLLOUT = st.tuples(
    st.sampled_from([ONE, OTHER]), st.sampled_from(["success", "policy_failure", "infra_failure", "judge_failure", "unfinished"])
)


def running(window: int = 4) -> RunningTags:
    return RunningTags(TASKS, RegionConfig(), window=window)


def told(tags: RunningTags, outcomes: str, *, task: str = ONE, step: int = 0) -> RunningTags:
    """A rollout a letter: s success, f failure of the policy, x spoilt by us; each at the step after the one before."""
    for place, letter in enumerate(outcomes):
        outcome = {"s": "success", "f": "policy_failure", "x": "infra_failure"}[letter]
        tags.add(task, step=step + place, outcome=outcome, reward={"s": 1.0, "f": 0.0, "x": None}[letter])
    return tags


def test_a_tag_is_made_of_the_last_rollouts_alone():
    """Given a window of four, when a task that failed four times succeeds twice, then two of four count; a tag has all columns."""
    (tag,) = told(running(), "ffffss").tags("policy-1").to_dicts()
    assert (tag["k"], tag["successes"], tag["rate"], tag["region"]) == (4, 2, 0.5, "uncertain")
    assert (tag["wilson_low"], tag["wilson_high"]) == wilson(2, 4)
    assert (tag["reward_mean"], tag["reward_variance"], tag["learnability"]) == (0.5, 0.25, 0.125)
    assert (tag["first_step"], tag["last_step"]) == (2, 5)
    assert (tag["policy_id"], tag["purpose"], tag["difficulty"]) == ("policy-1", "rl", TASKS[0].difficulty)
    assert list(tag) == [*TABLES["tags"].columns, "first_step", "last_step"]


def test_what_is_not_rated_does_not_push_out_what_is():
    assert told(running(), "ssfs" + "x" * 9).tags().equals(told(running(), "ssfs").tags())
    assert told(running(), "xxx").tags().is_empty()


def test_a_probe_says_something_of_a_task_until_training_has_said_more():
    tags = running()
    for _ in range(4):
        tags.add(ONE, step=BEFORE_TRAINING, outcome="success", reward=1.0)
    assert tags.tags()["region"].item() == "mastered"
    assert tags.tags(since=0).is_empty(), "a probe's rollouts are none of the policy in training"
    told(tags, "ff", step=7)
    assert tags.tags().select("k", "successes", "first_step", "last_step").row(0) == (4, 2, -1, 8)
    assert tags.tags(since=0).select("k", "successes", "first_step", "last_step").row(0) == (2, 0, 7, 8)


def test_a_task_that_is_none_of_the_split_is_an_error():
    with pytest.raises(KeyError):
        told(running(), "s", task="task-x")


@given(st.lists(ROLLOUT, max_size=40), st.integers(2, 8), st.integers(0, 40))
def test_any_history_gives_what_certainty_gives_of_its_end_and_survives_a_checkpoint(history, window, saved_after):
    """Given rollouts in any order, when the state goes through JSON at any moment, then the tags are those of an undisturbed history, and
    those that `certainty` makes of the last rated rollouts."""
    whole, first, second = running(window), running(window), running(window)
    for step, (task, outcome) in enumerate(history):
        reward = {"success": 1.0, "policy_failure": 0.0}.get(outcome)
        if step == saved_after:
            told(second, "ssff")
            second.restore(json.loads(json.dumps(first.state())))
        for tags in (whole, first if step < saved_after else second):
            tags.add(task, step=step, outcome=outcome, reward=reward)
    ended = second if saved_after < len(history) else first
    assert ended.tags().equals(whole.tags())

    rated = [(task, outcome) for task, outcome in history if outcome in ("success", "policy_failure")]
    last = [(task, outcome) for own in (ONE, OTHER) for task, outcome in [one for one in rated if one[0] == own][-window:]]
    rollouts = pl.DataFrame(last, schema={"task_id": pl.String, "outcome": pl.String}, orient="row").with_columns(
        policy_id=pl.lit(""), reward=(pl.col("outcome") == "success").cast(pl.Float64)
    )
    difficulty = pl.DataFrame({"task_id": [task.id for task in TASKS], "difficulty": [task.difficulty for task in TASKS]})
    assert whole.tags().drop("first_step", "last_step").equals(certainty(rollouts, difficulty, RegionConfig(), purpose="rl"))
