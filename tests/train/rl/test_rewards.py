"""Rewards of a group: a column a scorer, one number a rollout, and nothing held against a policy that is not its doing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import HeadraceError
from storage.records import Call, Outcome, Task
from synth.rollouts.episode import Episode
from synth.tasks.solver import execute
from synth.tasks.verify import judge
from synth.worlds import WORLDS, make_world
from tests.synth.retail_tasks import task_of
from train.rl.rewards import (
    AGGREGATES,
    SCORERS,
    Aggregate,
    Mark,
    Rated,
    Scores,
    group,
    hardly_differ,
    least,
    rewards_of,
    score_episodes,
    weighted_mean,
)
from train.spec import RLSettings

TASK = task_of("price_of_two", 1)
FIRST, SECOND = (fact.value for fact in TASK.success.facts)
BOTH, HALF, NONE = f"They are {FIRST} and {SECOND}.", f"It is {FIRST}.", "I cannot say."
BY_CODE = [SCORERS["success"], SCORERS["graded"]]


def episode(answer: str, *, task: Task = TASK, calls: Sequence[Call] | None = None, spoilt: Outcome | None = None) -> Episode:
    """One that is over."""
    done = execute(make_world(task.world, task.world_seed), task.messages, task.plan.calls if calls is None else calls, answer)
    verdict = judge(WORLDS[task.world], task, done.messages, done.changes)
    one = Episode(task, 0, 8)
    one.messages = list(done.messages)
    one.outcome = spoilt or (Outcome.SUCCESS if verdict.success else Outcome.POLICY_FAILURE)
    one.reward = None if spoilt else verdict.reward
    return one


DRAWS = [episode(BOTH), episode(HALF), episode(NONE), episode(BOTH, spoilt=Outcome.INFRA_FAILURE)]


# ---- the matrix ------------------------------------------------------------------------------------------------------------------


def test_a_column_a_scorer_and_a_row_a_rollout() -> None:
    """Given a full success, a half, none, and one that we spoilt, then the spoilt one has no number in any column."""
    matrix = group(TASK, DRAWS, BY_CODE)
    assert [scorer.name for scorer in BY_CODE] == ["success", "graded"]
    np.testing.assert_allclose(matrix, [[1, 1], [0, 0.7], [0, 0], [np.nan, np.nan]])


def test_the_marks_of_the_graded_reward_are_columns_too() -> None:
    """Given plan, fidelity and presentation by retrieval's weights, then they make up the graded reward of what is grounded."""
    scorers = [Mark("grounded"), Mark("plan"), Mark("fidelity"), Mark("presentation")]
    matrix = group(TASK, DRAWS[:2], scorers)
    np.testing.assert_allclose(matrix, [[1, 1, 1, 1], [1, 1, 0.5, 1]])
    graded = weighted_mean(matrix[:, 1:], np.array([0.2, 0.6, 0.2]))
    np.testing.assert_allclose(graded, group(TASK, DRAWS[:2], [SCORERS["graded"]])[:, 0])


def test_a_group_may_be_wholly_spoilt_or_empty() -> None:
    assert group(TASK, [], BY_CODE).shape == (0, 2)
    assert np.isnan(group(TASK, DRAWS[3:], BY_CODE)).all()


@pytest.mark.parametrize("scores", [[0.5], [0.5, 0.5, 1.5], [0.5, -0.1, 0.5]])
def test_a_scorer_that_gives_no_score_a_rollout_is_named(scores: list[float]) -> None:
    class Wrong:
        name = "wrong"

        def __call__(self, task: Task, rollouts: Sequence[Rated]) -> Scores:
            return np.array(scores)

    with pytest.raises(HeadraceError, match=r"scorer wrong must give 3 scores in \[0, 1\]"):
        group(TASK, DRAWS, [Wrong()])


# ---- one number ------------------------------------------------------------------------------------------------------------------


def test_a_row_collapses_to_its_weighted_mean_or_to_its_least() -> None:
    matrix = np.array([[1.0, 0.5], [0.0, 0.25], [1.0, np.nan]])
    np.testing.assert_allclose(weighted_mean(matrix, np.array([1, 1])), [0.75, 0.125, np.nan])
    np.testing.assert_allclose(weighted_mean(matrix, np.array([3, 1])), [0.875, 0.0625, np.nan])
    np.testing.assert_allclose(least(matrix, np.array([3, 1])), [0.5, 0, np.nan])


@pytest.mark.parametrize("collapse", AGGREGATES.values(), ids=AGGREGATES)
@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=8), st.lists(st.floats(0.1, 9), min_size=3, max_size=3)
)
def test_what_is_collapsed_lies_between_the_scores(collapse: Aggregate, rows: list[list[float]], weights: list[float]) -> None:
    matrix = np.array(rows)
    found = collapse(matrix, np.array(weights))
    assert ((found >= matrix.min(axis=1) - 1e-9) & (found <= matrix.max(axis=1) + 1e-9)).all()


def test_episodes_of_several_tasks_keep_their_order() -> None:
    other = task_of("close_order", 1)
    blind = episode(other.plan.answer, task=other, calls=other.plan.calls[1:])
    episodes = [*DRAWS, episode("Done.", task=other), blind]
    assert score_episodes(episodes, [SCORERS["success"]]) == [1.0, 0.0, 0.0, None, 1.0, 0.0]
    assert score_episodes(episodes, [SCORERS["graded"]]) == [1.0, pytest.approx(0.7), 0.0, None, 1.0, 0.0]


# ---- what RL learns from ---------------------------------------------------------------------------------------------------------


def test_rl_learns_from_one_scorer_or_from_weights_of_several() -> None:
    """Given a half answer in the right language, then it has no success, and full marks for how it is said."""
    assert rewards_of(DRAWS, RLSettings(), "0") == [1.0, 0.0, 0.0, None]
    assert rewards_of(DRAWS, RLSettings(reward="graded"), "0") == [1.0, pytest.approx(0.7), 0.0, None]
    both = RLSettings(reward={"success": 3, "presentation": 1})
    assert rewards_of(DRAWS, both, "0") == [1.0, 0.25, 0.25, None]
    assert rewards_of(DRAWS, both.model_copy(update={"collapse": "least"}), "0") == [1.0, 0.0, 0.0, None]


def test_a_collapse_of_ones_own_is_an_entry_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a collapse by how much each column tells the rollouts of a group apart, then nothing else had to be touched."""

    def by_spread(matrix: Scores, weights: Scores) -> Scores:
        spread = np.nanstd(matrix, axis=0)
        return weighted_mean(matrix, weights * spread)

    monkeypatch.setitem(AGGREGATES, "by_spread", by_spread)
    settings = RLSettings(reward={"success": 1, "presentation": 1}).model_copy(update={"collapse": "by_spread"})
    assert rewards_of(DRAWS, settings, "0") == [1.0, 0.0, 0.0, None], "all are well said, so that tells nothing"


def test_shuffled_rewards_are_those_of_success_at_places_that_tell_nothing() -> None:
    """Given 40 successes and 40 failures, then as many are dealt out, to as many of the one as of the other, equally for an equal seed."""
    episodes, settings = [DRAWS[0], DRAWS[2], DRAWS[3]] * 40, RLSettings(reward="shuffled")
    found, again, other = (rewards_of(episodes, settings, seed) for seed in ("0", "0", "1"))
    assert found == again != other
    assert found[2::3] == [None] * 40
    assert sum(found[0::3]) + sum(found[1::3]) == 40
    assert abs(sum(found[0::3]) - 20) < 10


@pytest.mark.parametrize(
    ("numbers", "are_alike"),
    [([1, 1, 1], True), ([1, None, 1], True), ([None, None], True), ([1, 0, None], False), ([0.9, 0.9, 0.96], True), ([0, 0.11], False)],
)
def test_a_group_hardly_differs_where_its_standard_deviation_is_small(numbers: list[float | None], are_alike: bool) -> None:
    assert hardly_differ(numbers, 0.05) == are_alike
